"""Compiled counting and grounding of compositions, first(X, Y) & second(Y, Z) => relation(X, Z)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plogicnet.graph import HEAD, RELATION, TAIL, IntArray, TripleSet
from plogicnet.support.compiling import compiled

Int32 = NDArray[np.int32]
SEARCH_RATIO = 16
"""If a group is more than this many times larger than all groups to combine it with, `_count_tails` does not scan it.
It looks up the tails of the other groups in it by binary search.
"""


@dataclass(frozen=True)
class SortedFacts:
    """Facts sorted by (head, relation, tail).

    The facts with the same head and relation are a group. A group is referred to by its index. Each `…_begin` array has
    one more element, the end of the last range.

    Attributes:
        row: the rows of the facts in the original set.
        tail: the tails of the facts.
        group_begin: the beginning of each group's facts.
        group_head, group_relation: the head and relation of each group.
        head_begin: the first group of each head.
        groups_by_relation: the indices of the groups, sorted by relation.
        relation_begin: the beginning of each relation's groups in `groups_by_relation`.
    """

    row: IntArray
    tail: Int32
    group_begin: IntArray
    group_head: Int32
    group_relation: Int32
    head_begin: IntArray
    groups_by_relation: IntArray
    relation_begin: IntArray

    def groups_of_relation(self, relation: int) -> IntArray:
        """Return the indices of a relation's groups, sorted by head."""
        if relation + 1 >= len(self.relation_begin):
            return self.groups_by_relation[:0]
        return self.groups_by_relation[self.relation_begin[relation] : self.relation_begin[relation + 1]]

    @classmethod
    def of(cls, facts: TripleSet) -> "SortedFacts":
        """Sort the facts."""
        order = np.argsort(facts.triples[:, HEAD], kind="stable")  # the facts are sorted by (relation, head, tail)
        ordered = facts.triples[order]
        is_new = np.ones(len(ordered), dtype=bool)
        is_new[1:] = np.any(ordered[1:, [HEAD, RELATION]] != ordered[:-1, [HEAD, RELATION]], axis=1)
        group_begin = np.flatnonzero(is_new)
        groups_by_relation = np.argsort(ordered[group_begin, RELATION], kind="stable")
        every_relation = np.arange(int(ordered[:, RELATION].max(initial=0)) + 2)
        return cls(
            row=order,
            tail=ordered[:, TAIL].astype(np.int32),
            group_begin=np.append(group_begin, len(ordered)),
            group_head=ordered[group_begin, HEAD].astype(np.int32),
            group_relation=ordered[group_begin, RELATION].astype(np.int32),
            head_begin=np.searchsorted(ordered[group_begin, HEAD], np.arange(facts.entities + 1)),
            groups_by_relation=groups_by_relation,
            relation_begin=np.searchsorted(ordered[group_begin[groups_by_relation], RELATION], every_relation),
        )


@dataclass(frozen=True)
class IncomingGroups:
    """The groups of facts with the same relation and tail, sorted by relation and tail.

    Attributes:
        tail: the tail of each group.
        size: the number of facts of each group.
        relation_begin: the beginning of each relation's groups, and the end of the last.
        of_fact: the group of each fact, in the order of `SortedFacts`.
    """

    tail: IntArray
    size: IntArray
    relation_begin: IntArray
    of_fact: IntArray

    @classmethod
    def of(cls, facts: TripleSet, ordered: SortedFacts, n_relations: int) -> "IncomingGroups":
        """Group the facts.

        Example:
            >>> facts = TripleSet.of([(0, 0, 1), (2, 0, 1), (1, 1, 2)], entities=3)
            >>> groups = IncomingGroups.of(facts, SortedFacts.of(facts), n_relations=2)
            >>> groups.tail.tolist(), groups.size.tolist(), groups.relation_begin.tolist(), groups.of_fact.tolist()
            ([1, 2], [2, 1], [0, 1, 2], [0, 1, 0])
        """
        keys = facts.triples[:, RELATION] * facts.entities + facts.triples[:, TAIL]
        groups, group, size = np.unique(keys, return_inverse=True, return_counts=True)
        relation, tail = np.divmod(groups, facts.entities)
        return cls(tail, size, np.searchsorted(relation, np.arange(n_relations + 1)), group[ordered.row])


@dataclass(frozen=True)
class Bodies:
    """Bodies of compositions, sorted by first and second relation.

    Attributes:
        first: the first relations.
        second: the second relations.
        first_begin: the beginning of each first relation's bodies, and the end of the last.
    """

    first: IntArray
    second: IntArray
    first_begin: IntArray

    @classmethod
    def of(cls, keys: IntArray, n_relations: int) -> "Bodies":
        """Create the bodies from sorted keys, first relation · relations + second relation.

        Example:
            >>> bodies = Bodies.of(np.array([1, 2, 3]), n_relations=2)
            >>> bodies.first.tolist(), bodies.second.tolist(), bodies.first_begin.tolist()
            ([0, 1, 1], [1, 0, 1], [0, 1, 3])
        """
        first, second = np.divmod(keys, n_relations)
        return cls(first, second, np.searchsorted(first, np.arange(n_relations + 1)))


@dataclass(frozen=True)
class BodyPaths:
    """The two-step paths of bodies, counted without walking them.

    Attributes:
        total: the number of paths of each body.
        most: the largest number of paths of each body through one middle entity. They connect different (head, tail)
            pairs.
        middles: the number of middle entities of each body.
        continuations: the number of ways to continue a path that arrives in each group of `IncomingGroups`.
    """

    total: IntArray
    most: IntArray
    middles: IntArray
    continuations: IntArray


def count_body_paths(facts: SortedFacts, incoming: IncomingGroups, bodies: Bodies) -> BodyPaths:
    """Count the paths of each body.

    Example:
        >>> triples = TripleSet.of([(0, 0, 1), (3, 0, 1), (1, 1, 2), (0, 0, 4), (4, 1, 2)], entities=5)
        >>> facts = SortedFacts.of(triples)
        >>> incoming, bodies = IncomingGroups.of(triples, facts, n_relations=2), Bodies.of(np.array([1]), n_relations=2)
        >>> paths = count_body_paths(facts, incoming, bodies)
        >>> paths.total.tolist(), paths.most.tolist(), paths.middles.tolist(), paths.continuations.tolist()
        ([3], [2], [2], [1, 1, 0])
    """
    return BodyPaths(
        *_count_body_paths(
            bodies.first_begin, bodies.second, incoming.relation_begin, incoming.tail, incoming.size,
            facts.head_begin, facts.group_begin, facts.group_relation,
        )
    )  # fmt: skip


@dataclass(frozen=True)
class BodyWalk:
    """The paths that a call of `count_pairs` walks.

    Attributes:
        start_groups: the groups of the first steps, sorted by relation.
        bodies: the bodies with the same first relations, among all bodies to count.
        n_links: the sum of `BodyPaths.middles` of these bodies.
        n_incoming: the number of groups of `IncomingGroups` with the same first relations.
    """

    start_groups: IntArray
    bodies: slice
    n_links: int
    n_incoming: int

    @classmethod
    def of(
        cls, facts: SortedFacts, incoming: IncomingGroups, bodies: Bodies, paths: BodyPaths, start_groups: IntArray
    ) -> "BodyWalk":
        """Create the walk that begins in some groups."""
        firsts = facts.group_relation[start_groups[[0, -1]]] + [0, 1]
        counted = slice(*bodies.first_begin[firsts].tolist())
        n_incoming = int(np.diff(incoming.relation_begin[firsts])[0])
        return cls(start_groups, counted, int(paths.middles[counted].sum()), n_incoming)

    @property
    def needed_bytes(self) -> int:
        """The memory of `count_pairs`."""
        n_bodies: int = self.bodies.stop - self.bodies.start
        return 8 * (3 * self.n_links + 2 * self.n_incoming + 3 * n_bodies)


def count_pairs(
    facts: SortedFacts, incoming: IncomingGroups, bodies: Bodies, walk: BodyWalk, stamp: IntArray
) -> IntArray:
    """Count the distinct (head, tail) pairs that the paths of each body of the walk connect.

    Counts of walks from different groups can be added, because the heads or bodies differ. `stamp` is an array of a
    thread with one entry per entity, at first -1.

    Example:
        >>> triples = TripleSet.of([(0, 0, 1), (3, 0, 1), (1, 1, 2), (0, 0, 4), (4, 1, 2)], entities=5)
        >>> facts = SortedFacts.of(triples)
        >>> incoming, bodies = IncomingGroups.of(triples, facts, n_relations=2), Bodies.of(np.array([1]), n_relations=2)
        >>> paths = count_body_paths(facts, incoming, bodies)
        >>> walk = BodyWalk.of(facts, incoming, bodies, paths, facts.groups_of_relation(0))
        >>> count_pairs(facts, incoming, bodies, walk, stamp=np.full(5, -1))
        array([2])
    """
    counts: IntArray = _count_pairs(
        walk.start_groups, facts.tail, facts.group_begin, facts.group_relation, facts.head_begin,
        incoming.of_fact, incoming.relation_begin, bodies.first_begin, bodies.second,
        walk.bodies.start, walk.bodies.stop, walk.n_incoming, walk.n_links, stamp,
    )  # fmt: skip
    return counts


@dataclass(frozen=True)
class CompositionRules:
    """The compositions with one first relation, sorted by second relation.

    Attributes:
        first: the first relation.
        second_begin: the beginning of each second relation's rules, and the end of the last.
        relations: the relations of the hypotheses.
        rule_indices: the indices of the rules among all rules.
        count_paths: whether to include self-supporting groundings.
    """

    first: int
    second_begin: IntArray
    relations: IntArray
    rule_indices: IntArray
    count_paths: bool

    @classmethod
    def of(
        cls,
        first: int,
        seconds: IntArray,
        relations: IntArray,
        rule_indices: IntArray,
        n_relations: int,
        count_paths: bool,
    ) -> "CompositionRules":
        """Create the rules from columns of equal length: second relation, relation of the hypothesis, rule index."""
        order = np.argsort(seconds, kind="stable")
        second_begin = np.searchsorted(seconds[order], np.arange(n_relations + 1))
        return cls(first, second_begin, relations[order], rule_indices[order], count_paths)


def count_groundings(facts: SortedFacts, rules: CompositionRules) -> int:
    """Return the number of groundings of the rules.

    Example:
        >>> facts = SortedFacts.of(TripleSet.of([(0, 0, 1), (1, 1, 2)], entities=3))
        >>> rules = CompositionRules.of(0, np.array([1]), np.array([2]), np.array([7]), 3, count_paths=False)
        >>> count_groundings(facts, rules)
        1
    """
    empty = np.empty(0, dtype=np.int64)
    return int(_ground(*_arguments(facts, rules, 0, empty, empty, np.empty((0, 2), dtype=np.int64))))


def fill_groundings(
    facts: SortedFacts, rules: CompositionRules, n_entities: int, rule: IntArray, key: IntArray, premises: IntArray
) -> None:
    """Write the groundings to three arrays of length `count_groundings`.

    The arrays are the rule indices, the keys of the hypotheses, and the rows of the two premises. If both premises are
    the same fact, the second is -1.

    Example:
        >>> facts = SortedFacts.of(TripleSet.of([(0, 0, 1), (1, 1, 2)], entities=3))
        >>> rules = CompositionRules.of(0, np.array([1]), np.array([2]), np.array([7]), 3, count_paths=False)
        >>> rule, key, premises = np.empty(1, dtype=np.int64), np.empty(1, dtype=np.int64), np.empty((1, 2), dtype=int)
        >>> fill_groundings(facts, rules, 3, rule, key, premises)
        >>> rule, key, premises  # the key of (0, 2, 2)
        (array([7]), array([20]), array([[0, 1]]))
    """
    _ground(*_arguments(facts, rules, n_entities, rule, key, premises))


def _arguments(facts: SortedFacts, rules: CompositionRules, *outputs: Any) -> tuple[Any, ...]:
    start_groups = facts.groups_of_relation(rules.first)
    groups = (
        start_groups,
        facts.tail,
        facts.group_begin,
        facts.group_head,
        facts.group_relation,
        facts.head_begin,
        facts.row,
    )
    return (*groups, rules.second_begin, rules.relations, rules.rule_indices, rules.first, rules.count_paths, *outputs)


@compiled()
def _ground(  # type: ignore[no-untyped-def]
    start_groups, tail, group_begin, group_head, group_relation, head_begin, row,
    second_begin, relations, rule_indices, first, count_paths, n_entities, out_rule, out_key, out_premises,
):  # fmt: skip
    """Return the number of groundings. Unless the output arrays are empty, write the groundings to them."""
    n = 0
    fill = len(out_rule) > 0
    for start in start_groups:
        head = np.int64(group_head[start])
        for k in range(group_begin[start], group_begin[start + 1]):
            middle = tail[k]
            for group in range(head_begin[middle], head_begin[middle + 1]):
                second = group_relation[group]
                for rule in range(second_begin[second], second_begin[second + 1]):
                    relation = relations[rule]
                    for q in range(group_begin[group], group_begin[group + 1]):
                        t = tail[q]
                        self_supporting = (relation == first and middle == t) or (relation == second and middle == head)
                        if count_paths or not self_supporting:
                            if fill:
                                out_rule[n] = rule_indices[rule]
                                out_key[n] = (relation * n_entities + head) * n_entities + t
                                out_premises[n, 0] = row[k]
                                out_premises[n, 1] = row[q] if q != k else -1
                            n += 1
    return n


@compiled()
def _count_body_paths(  # type: ignore[no-untyped-def]
    first_begin, second, incoming_begin, incoming_tail, incoming_size, head_begin, group_begin, group_relation
):
    """Return the attributes of `BodyPaths`."""
    total, most, middles = np.zeros((3, len(second)), dtype=np.int64)
    continuations = np.zeros(len(incoming_tail), dtype=np.int64)
    n_relations = len(first_begin) - 1
    body_of = np.full(n_relations, -1, dtype=np.int64)
    for first in range(n_relations):
        bodies = range(first_begin[first], first_begin[first + 1])
        for body in bodies:
            body_of[second[body]] = body
        for i in range(incoming_begin[first], incoming_begin[first + 1] if len(bodies) else 0):
            middle = incoming_tail[i]
            for group in range(head_begin[middle], head_begin[middle + 1]):
                body = body_of[group_relation[group]]
                if body >= 0:
                    size = group_begin[group + 1] - group_begin[group]
                    total[body] += incoming_size[i] * size
                    most[body] = max(most[body], incoming_size[i] * size)
                    middles[body] += 1
                    continuations[i] += size
        for body in bodies:
            body_of[second[body]] = -1
    return total, most, middles, continuations


@compiled()
def _count_pairs(  # type: ignore[no-untyped-def]
    start_groups, tail, group_begin, group_relation, head_begin, incoming_of_fact, incoming_begin,
    first_begin, second, body_low, body_high, n_incoming, n_links, stamp,
):  # fmt: skip
    """Return the number of (head, tail) pairs of each body from `body_low` to `body_high`.

    The groups that continue a path to a middle entity are collected once per first relation and middle entity. Groups
    of other bodies are not visited again. For each start group, these continuations are then collected in linked
    lists, one list per body. The tails of a list are the tails of all paths of the body from one head.
    """
    n_bodies = body_high - body_low
    incoming_low = incoming_begin[group_relation[start_groups[0]]]
    counts = np.zeros(n_bodies, dtype=np.int64)
    first_link = np.full(n_bodies, -1, dtype=np.int64)
    touched = np.empty(n_bodies, dtype=np.int64)
    link_begin = np.full(n_incoming, -1, dtype=np.int64)
    link_end = np.empty(n_incoming, dtype=np.int64)
    link_group, link_body, link_next = np.empty((3, n_links), dtype=np.int64)
    n_used = 0
    body_of = np.full(len(first_begin) - 1, -1, dtype=np.int64)
    first = -1
    for start in start_groups:
        if group_relation[start] != first:
            first = group_relation[start]
            body_of[:] = -1
            for body in range(first_begin[first], first_begin[first + 1]):
                body_of[second[body]] = body - body_low
        n_touched = 0
        for k in range(group_begin[start], group_begin[start + 1]):
            i = incoming_of_fact[k] - incoming_low
            if link_begin[i] < 0:
                link_begin[i] = n_used
                for group in range(head_begin[tail[k]], head_begin[tail[k] + 1]):
                    body = body_of[group_relation[group]]
                    if body >= 0:
                        link_group[n_used] = group
                        link_body[n_used] = body
                        n_used += 1
                link_end[i] = n_used
            for link in range(link_begin[i], link_end[i]):
                body = link_body[link]
                if first_link[body] < 0:
                    touched[n_touched] = body
                    n_touched += 1
                link_next[link] = first_link[body]
                first_link[body] = link
        for j in range(n_touched):
            body = touched[j]
            mark = start * len(second) + body
            counts[body] += _count_tails(first_link[body], link_next, link_group, group_begin, tail, stamp, mark)
            first_link[body] = -1
    return counts


@compiled()
def _count_tails(first_link, link_next, link_group, group_begin, tail, stamp, mark):  # type: ignore[no-untyped-def]
    """Return the number of distinct tails of the groups of a linked list.

    `mark` was never used before. If stamp[t] equals `mark`, tail t was already counted. So `stamp` never has to be
    cleared. If one group contains nearly all tails, its size is added and the other tails are looked up in it.
    """
    largest = total = n_largest = 0
    link = first_link
    while link >= 0:
        group = link_group[link]
        size = group_begin[group + 1] - group_begin[group]
        total += size
        if size > n_largest:
            largest, n_largest = group, size
        link = link_next[link]
    search = n_largest > SEARCH_RATIO * (total - n_largest)
    low, high = group_begin[largest], group_begin[largest + 1]
    n = n_largest if search else 0
    link = first_link
    while link >= 0:
        group = link_group[link]
        if group != largest or not search:
            for k in range(group_begin[group], group_begin[group + 1]):
                t = tail[k]
                if stamp[t] != mark and not (search and _contains(tail, low, high, t)):
                    stamp[t] = mark
                    n += 1
        link = link_next[link]
    return n


@compiled()
def _contains(tail, low, high, value):  # type: ignore[no-untyped-def]
    """Return whether the sorted slice tail[low:high] contains the value."""
    stop = high
    while low < high:
        middle = (low + high) // 2
        if tail[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low < stop and tail[low] == value
