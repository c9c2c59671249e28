"""Compiled counting and grounding of compositions, first(X, Y) & second(Y, Z) => relation(X, Z)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from plogicnet.graph import HEAD, RELATION, TAIL, IntArray, TripleSet
from plogicnet.support.compiling import compiled

Int32 = NDArray[np.int32]
SEARCH_RATIO = 16
"""If a group is more than this many times larger than the facts to compare it with, `_count` does not scan the group.
It looks up these facts in the group by binary search.
"""


@dataclass(frozen=True)
class SortedFacts:
    """Facts sorted in two orders: first by (head, relation, tail), second by (head, tail).

    In the first order, the facts with the same head and relation are a group. A group is referred to by its index. Each
    `…_begin` array has one more element, the end of the last range.

    Attributes:
        row: the rows of the facts in the original set, in the first order.
        tail: the tails in the first order.
        group_begin: the beginning of each group's facts in the first order.
        group_head, group_relation: the head and relation of each group.
        head_begin: the first group of each head.
        pair_tail, pair_relation: the tails and relations in the second order.
        pair_begin: the beginning of each head's facts in both orders.
        groups_by_relation: the indices of the groups, sorted by relation.
        relation_begin: the beginning of each relation's groups in `groups_by_relation`.
    """

    row: IntArray
    tail: Int32
    group_begin: IntArray
    group_head: Int32
    group_relation: Int32
    head_begin: IntArray
    pair_tail: Int32
    pair_relation: Int32
    pair_begin: IntArray
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
        h, r, t = facts.triples[:, HEAD], facts.triples[:, RELATION], facts.triples[:, TAIL]
        first = np.lexsort((t, r, h))
        ordered = facts.triples[first]
        is_new = np.ones(len(ordered), dtype=bool)
        is_new[1:] = np.any(ordered[1:, [HEAD, RELATION]] != ordered[:-1, [HEAD, RELATION]], axis=1)
        group_begin = np.flatnonzero(is_new)
        every_head = np.arange(facts.entities + 1)
        second = np.lexsort((t, h))
        groups_by_relation = np.argsort(ordered[group_begin, RELATION], kind="stable")
        every_relation = np.arange(int(r.max(initial=0)) + 2)
        return cls(
            row=first,
            tail=ordered[:, TAIL].astype(np.int32),
            group_begin=np.append(group_begin, len(ordered)),
            group_head=ordered[group_begin, HEAD].astype(np.int32),
            group_relation=ordered[group_begin, RELATION].astype(np.int32),
            head_begin=np.searchsorted(ordered[group_begin, HEAD], every_head),
            pair_tail=t[second].astype(np.int32),
            pair_relation=r[second].astype(np.int32),
            pair_begin=np.searchsorted(ordered[:, HEAD], every_head),
            groups_by_relation=groups_by_relation,
            relation_begin=np.searchsorted(ordered[group_begin[groups_by_relation], RELATION], every_relation),
        )


@dataclass(frozen=True)
class CompositionCounts:
    """The counts of compositions with one first relation. With `paths` counting, paths are counted instead of pairs.

    Attributes:
        support: per second relation, the number of (head, tail) pairs that paths connect.
        hits: second relations × relations of the hypothesis, the number of these pairs that are observed.
        self_supporting: second relations × 3, the number of pairs that only self-supporting paths connect. Column 0 is
            for hypotheses with the first relation. Column 1 is for hypotheses with the second relation. Column 2 is for
            hypotheses with both, if first and second relation are the same.
    """

    support: IntArray
    hits: sparse.csr_array
    self_supporting: IntArray

    def __add__(self, other: "CompositionCounts") -> "CompositionCounts":
        return CompositionCounts(
            self.support + other.support,
            sparse.csr_array(self.hits + other.hits),
            self.self_supporting + other.self_supporting,
        )


class Workspace:
    """The arrays of one thread, reused for all its chunks.

    `mark` is increased for each new (head, second relation). If stamp[t] equals `mark`, tail t was already counted for
    this pair. So `stamp` never has to be cleared. The counters `hits` are zero between chunks.
    """

    def __init__(self, facts: SortedFacts, n_entities: int, n_relations: int, n_counters: int) -> None:
        self.n_relations = n_relations
        self.hits = np.zeros(n_counters, dtype=np.int64)
        self.stamp = np.full(n_entities, -1, dtype=np.int64)
        self.pair_stamp = np.full(n_entities, -1, dtype=np.int64)  # the start group for which pair_position is valid
        self.pair_position = np.zeros(n_entities, dtype=np.int64)  # where the facts of (head, tail) begin
        self.node_next = np.empty(len(facts.group_head), dtype=np.int64)  # linked lists of groups per second relation
        self.node_group = np.empty(len(facts.group_head), dtype=np.int64)
        self.mark = 0


def count_compositions(
    facts: SortedFacts, start_groups: IntArray, first: int, seconds: IntArray, space: Workspace, count_paths: bool
) -> CompositionCounts:
    """Count the compositions with paths that begin in some groups of the first relation.

    Counts of different groups can be added, because their heads differ.

    Args:
        facts: the facts.
        start_groups: the groups of the first relation.
        first: the first relation.
        seconds: the second relations to count.
        space: the arrays of the thread.
        count_paths: whether to count paths, including self-supporting ones, instead of (head, tail) pairs.

    Example:
        >>> facts = SortedFacts.of(TripleSet.of([(0, 0, 1), (1, 1, 2), (0, 2, 2)], entities=3))
        >>> space = Workspace(facts, n_entities=3, n_relations=3, n_counters=3)
        >>> groups = facts.groups_of_relation(0)
        >>> counts = count_compositions(facts, groups, 0, np.array([1]), space, count_paths=False)
        >>> counts.hits.toarray().tolist()
        [[0, 0, 1]]
    """
    second_index = np.full(space.n_relations, -1, dtype=np.int32)
    second_index[seconds] = np.arange(len(seconds))
    support, cells, self_supporting, space.mark = _count(
        start_groups, facts.tail, facts.group_begin, facts.group_head, facts.group_relation, facts.head_begin,
        facts.pair_tail, facts.pair_relation, facts.pair_begin,
        second_index, len(seconds), space.n_relations, first, count_paths,
        space.hits, space.stamp, space.pair_stamp, space.pair_position, space.node_next, space.node_group, space.mark,
    )  # fmt: skip
    cells = np.sort(cells)
    row, relation = np.divmod(cells, space.n_relations)
    begin = np.searchsorted(row, np.arange(len(seconds) + 1))
    hits = sparse.csr_array((space.hits[cells], relation, begin), (len(seconds), space.n_relations))
    space.hits[cells] = 0
    return CompositionCounts(support, hits, self_supporting)


def rules_with_hits(
    counts: CompositionCounts, first: int, seconds: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return the rules with at least one hit, as four arrays: second relation, hypothesis's relation, support, hits.

    Example:
        >>> counts = CompositionCounts(np.array([5]), sparse.csr_array([[0, 2]]), np.zeros((1, 3), dtype=np.int64))
        >>> [column.tolist() for column in rules_with_hits(counts, 0, np.array([1]))]
        [[1], [1], [5], [2]]
    """
    nonzero = counts.hits.tocoo()
    (row, relation), hits = nonzero.coords, nonzero.data
    second = seconds[row]
    excluded = np.where(relation == first, counts.self_supporting[row, 0], 0) + np.where(
        relation == second, counts.self_supporting[row, 1], 0
    )
    excluded = np.where(first == second, np.where(relation == first, counts.self_supporting[row, 2], 0), excluded)
    kept = hits > excluded
    columns = (second, relation.astype(np.int64), counts.support[row] - excluded, hits - excluded)
    return columns[0][kept], columns[1][kept], columns[2][kept], columns[3][kept]


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
def _count(  # type: ignore[no-untyped-def]
    start_groups, tail, group_begin, group_head, group_relation, head_begin, pair_tail, pair_relation, pair_begin,
    second_index, n_seconds, n_relations, first, count_paths,
    hits, stamp, pair_stamp, pair_position, node_next, node_group, mark,
):  # fmt: skip
    """Return support, the indices of the nonzero cells of `hits`, self_supporting and the last mark.

    For each head, the groups of the middle entities are collected in linked lists, one list per second relation. The
    tails of a list are then the tails of all paths from the head along both relations.
    """
    support = np.zeros(n_seconds, dtype=np.int64)
    self_supporting = np.zeros((n_seconds, 3), dtype=np.int64)
    first_nodes = np.full(n_seconds, -1, dtype=np.int64)
    touched = np.empty(n_seconds, dtype=np.int64)
    cells = np.empty(1024, dtype=np.int64)
    n_cells = 0
    for start in start_groups:
        head = group_head[start]
        for k in range(pair_begin[head], pair_begin[head + 1]):
            t = pair_tail[k]
            if pair_stamp[t] != start:
                pair_stamp[t] = start
                pair_position[t] = k
        n_nodes = 0
        n_touched = 0
        for k in range(group_begin[start], group_begin[start + 1]):
            middle = tail[k]
            for group in range(head_begin[middle], head_begin[middle + 1]):
                j = second_index[group_relation[group]]
                if j >= 0:
                    if first_nodes[j] < 0:
                        touched[n_touched] = j
                        n_touched += 1
                    node_group[n_nodes] = group
                    node_next[n_nodes] = first_nodes[j]
                    first_nodes[j] = n_nodes
                    n_nodes += 1
        n_head_facts = pair_begin[head + 1] - pair_begin[head]
        for i in range(n_touched):
            j = touched[i]
            mark += 1
            longest, total, may_support_itself = _summarize_groups(
                first_nodes[j], node_next, node_group, group_begin, group_head, tail, head
            )
            size = group_begin[longest + 1] - group_begin[longest]
            if size > SEARCH_RATIO * (total - size + n_head_facts) and not (may_support_itself or count_paths):
                # one group contains nearly all tails: add its size, and look up only the other tails in it
                support[j] += size
                node = first_nodes[j]
                while node >= 0:
                    group = node_group[node]
                    if group != longest:
                        for k in range(group_begin[group], group_begin[group + 1]):
                            t = tail[k]
                            if stamp[t] != mark and not _contains(
                                tail, group_begin[longest], group_begin[longest + 1], t
                            ):
                                stamp[t] = mark
                                support[j] += 1
                    node = node_next[node]
                for p in range(pair_begin[head], pair_begin[head + 1]):
                    t = pair_tail[p]
                    if stamp[t] == mark or _contains(tail, group_begin[longest], group_begin[longest + 1], t):
                        cell = j * n_relations + pair_relation[p]
                        if hits[cell] == 0:
                            cells, n_cells = _append(cells, n_cells, cell)
                        hits[cell] += 1
                first_nodes[j] = -1
                continue
            node = first_nodes[j]
            while node >= 0:
                group = node_group[node]
                size = group_begin[group + 1] - group_begin[group]
                if count_paths and size > SEARCH_RATIO * n_head_facts:
                    support[j] += size
                    for p in range(pair_begin[head], pair_begin[head + 1]):
                        if _contains(tail, group_begin[group], group_begin[group + 1], pair_tail[p]):
                            cell = j * n_relations + pair_relation[p]
                            if hits[cell] == 0:
                                cells, n_cells = _append(cells, n_cells, cell)
                            hits[cell] += 1
                    node = node_next[node]
                    continue
                for k in range(group_begin[group], group_begin[group + 1]):
                    t = tail[k]
                    if count_paths or stamp[t] != mark:
                        stamp[t] = mark
                        support[j] += 1
                        if pair_stamp[t] == start:
                            p = pair_position[t]
                            stop = pair_begin[head + 1]
                            while p < stop and pair_tail[p] == t:
                                cell = j * n_relations + pair_relation[p]
                                if hits[cell] == 0:
                                    cells, n_cells = _append(cells, n_cells, cell)
                                hits[cell] += 1
                                p += 1
                node = node_next[node]
            if may_support_itself and not count_paths:
                mark = _count_self_supporting(
                    self_supporting[j], head, first_nodes[j], node_next, node_group, tail, group_begin, group_head,
                    stamp, mark, group_relation[node_group[first_nodes[j]]] == first,
                )  # fmt: skip
            first_nodes[j] = -1
    return support, cells[:n_cells], self_supporting, mark


@compiled()
def _append(cells, n_cells, cell):  # type: ignore[no-untyped-def]
    """Append a cell to an array that grows if necessary."""
    if n_cells == len(cells):
        longer = np.empty(2 * n_cells, dtype=np.int64)
        longer[:n_cells] = cells
        cells = longer
    cells[n_cells] = cell
    return cells, n_cells + 1


@compiled()
def _summarize_groups(first_node, node_next, node_group, group_begin, group_head, tail, head):  # type: ignore[no-untyped-def]
    """Return the largest group of a linked list, the total size, and whether a path can be self-supporting."""
    longest = node_group[first_node]
    total = 0
    may_support_itself = False
    node = first_node
    while node >= 0:
        group = node_group[node]
        size = group_begin[group + 1] - group_begin[group]
        total += size
        if size > group_begin[longest + 1] - group_begin[longest]:
            longest = group
        middle = group_head[group]
        may_support_itself |= middle == head or _contains(tail, group_begin[group], group_begin[group + 1], middle)
        node = node_next[node]
    return longest, total, may_support_itself


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


@compiled()
def _count_self_supporting(  # type: ignore[no-untyped-def]
    self_supporting, head, first_node, node_next, node_group, tail, group_begin, group_head, stamp, mark, same_relation
):
    """Count the pairs (head, t) that only self-supporting paths connect, for the three columns of `self_supporting`.

    If the hypothesis has the first relation, a path is self-supporting if t is in the middle. If it has the second
    relation, a path is self-supporting if the head is in the middle. The hypothesis of a self-supporting path is
    observed. So the pair is later subtracted from support and hits.
    """
    for case in range(3):
        if (case == 2) != same_relation:
            continue
        mark += 1
        node = first_node
        while node >= 0:  # stamp the tails of paths that are not self-supporting
            group = node_group[node]
            middle = group_head[group]
            for k in range(group_begin[group], group_begin[group + 1]):
                if not _supports_itself(case, middle, head, tail[k]):
                    stamp[tail[k]] = mark
            node = node_next[node]
        node = first_node
        while node >= 0:
            group = node_group[node]
            middle = group_head[group]
            for k in range(group_begin[group], group_begin[group + 1]):
                t = tail[k]
                if _supports_itself(case, middle, head, t) and stamp[t] != mark:
                    stamp[t] = mark
                    self_supporting[case] += 1
            node = node_next[node]
    return mark


@compiled()
def _supports_itself(case, middle, head, t):  # type: ignore[no-untyped-def]
    return (case != 1 and middle == t) or (case != 0 and middle == head)
