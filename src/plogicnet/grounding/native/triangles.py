"""Compiled counting of the hits of compositions, first(X, Y) & second(Y, Z) => relation(X, Z).

A hit is a triangle: a two-step path and a fact that connects its ends. For each connected pair of entities, the middle
entities of all paths are found from the end with fewer facts. So entities with many facts are cheap.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plogicnet.graph import HEAD, RELATION, TAIL, IntArray, TripleSet
from plogicnet.support.compiling import compiled
from plogicnet.support.errors import InputError

Int32 = NDArray[np.int32]
FIRST_ROWS = 1 << 10
"""The size of a new table of counters."""
BODY, HYPOTHESIS = 0, 1
"""The columns of both tables of `HitCounters` that identify a row."""
HITS, SELF_SUPPORTING = 2, 3
"""The other columns of the table of rules."""
MARK, N_PATHS, KINDS = 2, 3, 4
"""The other columns of the table of bodies."""
FREE = -1
"""The value of `BODY` in a free row."""
ROW_BYTES = 8 * (4 + 5)
"""The memory of a row of both tables."""


@dataclass(frozen=True)
class Neighbours:
    """The connected pairs of entities, sorted by one entity of the pair, then by its neighbour.

    Attributes:
        begin: the beginning of each entity's pairs, and the end of the last.
        neighbour: the neighbour of each pair.
        relation_begin: the beginning of each pair's relations, and the end of the last.
        relation: the relations of the facts that connect each pair.
    """

    begin: IntArray
    neighbour: Int32
    relation_begin: IntArray
    relation: Int32

    @classmethod
    def of(cls, facts: TripleSet, forward: bool) -> "Neighbours":
        """Sort the facts by (head, tail), or by (tail, head) if not `forward`.

        Example:
            >>> tails = Neighbours.of(TripleSet.of([(0, 0, 1), (0, 1, 1), (2, 0, 1)], entities=3), forward=True)
            >>> tails.begin.tolist(), tails.neighbour.tolist(), tails.relation_begin.tolist()
            ([0, 1, 1, 2], [1, 1], [0, 2, 3])
        """
        entity, neighbour = facts.triples[:, [HEAD, TAIL] if forward else [TAIL, HEAD]].T
        keys = entity * facts.entities + neighbour
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        relation_begin = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
        pairs = keys[relation_begin]
        return cls(
            np.searchsorted(pairs, np.arange(facts.entities + 1) * facts.entities),
            (pairs % facts.entities).astype(np.int32),
            np.append(relation_begin, len(keys)),
            facts.triples[order, RELATION].astype(np.int32),
        )


@dataclass(frozen=True)
class ConnectedPairs:
    """The distinct (head, tail) pairs of facts, by head and by tail."""

    tails: Neighbours
    heads: Neighbours

    @classmethod
    def of(cls, facts: TripleSet) -> "ConnectedPairs":
        """Sort the facts."""
        return cls(Neighbours.of(facts, forward=True), Neighbours.of(facts, forward=False))

    def sides(self, forward: bool) -> tuple[Neighbours, Neighbours]:
        """Return the neighbours of the entities where pairs begin (`forward`) or end, and those of the other ends."""
        return (self.tails, self.heads) if forward else (self.heads, self.tails)

    def steps(self, forward: bool) -> IntArray:
        """Return the number of entities that `count_hits` visits for each pair.

        The pairs are sorted by head (`forward`) or by tail. Each pair is counted in one of both orders. In the other
        order, its number is 0.

        Example:
            >>> pairs = ConnectedPairs.of(TripleSet.of([(0, 0, 1), (0, 0, 2), (1, 0, 2), (3, 0, 2)], entities=4))
            >>> pairs.steps(forward=True), pairs.steps(forward=False)
            (array([1, 0, 0, 0]), array([0, 2, 1, 1]))
        """
        near, far = self.sides(forward)
        n_near, n_far = np.diff(near.begin), np.diff(far.begin)[near.neighbour]
        is_smaller = n_far < np.repeat(n_near, n_near) + forward
        return np.where(is_smaller, n_far, 0)


class HitCounters:
    """The counters of one thread, in two hash tables with linear probing.

    A row of `rules` belongs to a rule: `BODY` is first relation · relations + second relation, and `HYPOTHESIS` is the
    relation of the hypothesis. `HITS` is the number of observed (head, tail) pairs that the rule concludes.
    `SELF_SUPPORTING` is the number of pairs that only self-supporting paths connect. With `paths` counting, `HITS` is
    the number of all paths.

    A row of `bodies` belongs to a body and describes the paths of one (head, tail) pair: their number, and their kinds
    as in `_supports`. `MARK` stands for the pair. So the rows never have to be cleared.
    """

    def __init__(self, n_entities: int, max_bytes: int) -> None:
        # a table can become twice as large, and it is copied
        self.max_rows = max_bytes // (3 * ROW_BYTES)
        self.rules, self.bodies = (np.zeros((FIRST_ROWS, columns), dtype=np.int64) for columns in (4, 5))
        self.rules[:, BODY] = self.bodies[:, BODY] = FREE
        self.n_rules = self.n_bodies = 0
        self.position = np.zeros(n_entities, dtype=np.int32)  # where an entity is among the neighbours of another one

    def rows(self) -> IntArray:
        """Return the rows of all rules."""
        rows: IntArray = self.rules[self.rules[:, BODY] != FREE]
        return rows


def count_hits(
    pairs: ConnectedPairs,
    forward: bool,
    start: int,
    stop: int,
    n_relations: int,
    count_paths: bool,
    counters: HitCounters,
) -> None:
    """Count the hits at the pairs from `start` to `stop` in one order; see `ConnectedPairs.steps`.

    Raise InputError if the rules do not fit into the table of the counters.

    Example:
        >>> pairs = ConnectedPairs.of(TripleSet.of([(0, 0, 1), (1, 1, 2), (0, 2, 2)], entities=3))
        >>> counters = HitCounters(n_entities=3, max_bytes=10**6)
        >>> for forward in (True, False):
        ...     count_hits(pairs, forward, 0, 3, 3, False, counters)
        >>> counters.rows().tolist()  # r0(X, Y) & r1(Y, Z) => r2(X, Z) has one hit
        [[1, 2, 1, 0]]
    """
    near, far = pairs.sides(forward)
    counters.bodies, counters.n_bodies, counters.rules, counters.n_rules, is_complete = _close_triangles(
        start, stop, near.begin, near.neighbour, near.relation_begin, near.relation,
        far.begin, far.neighbour, far.relation_begin, far.relation, forward, n_relations, count_paths,
        counters.position, counters.bodies, counters.n_bodies, counters.rules, counters.n_rules, counters.max_rows,
    )  # fmt: skip
    if not is_complete:
        raise InputError(
            f"mining: more than {counters.n_rules:,} compositions have hits, and their counters do not fit into memory."
            " Use fewer threads, or remove composition from rules.patterns"
        )


@dataclass(frozen=True)
class Hits:
    """The rules with at least one hit, sorted by body and relation.

    Attributes:
        body: first relation · relations + second relation.
        relation: the relation of the hypothesis.
        hits: the hits, without those of self-supporting groundings.
        self_supporting: the number of (head, tail) pairs that only self-supporting groundings connect.
    """

    body: IntArray
    relation: IntArray
    hits: IntArray
    self_supporting: IntArray

    @classmethod
    def of(cls, rows: IntArray) -> "Hits":
        """Add up the rows of several `HitCounters`.

        Example:
            >>> hits = Hits.of(np.array([[1, 2, 3, 0], [0, 2, 0, 1], [1, 2, 1, 1]]))
            >>> hits.body.tolist(), hits.hits.tolist(), hits.self_supporting.tolist()
            ([1], [4], [1])
        """
        rows = rows[np.lexsort((rows[:, HYPOTHESIS], rows[:, BODY]))]
        rules = rows[:, [BODY, HYPOTHESIS]]
        begin = np.flatnonzero(np.append(True, np.any(rules[1:] != rules[:-1], axis=1))[: len(rows)])
        hits, self_supporting = (
            np.add.reduceat(rows[:, c], begin) if len(begin) else rows[:, c] for c in (HITS, SELF_SUPPORTING)
        )
        kept = hits > 0
        body, relation = rules[begin[kept]].T
        return cls(body, relation, hits[kept], self_supporting[kept])


@compiled()
def _close_triangles(  # type: ignore[no-untyped-def]
    start, stop, near_begin, near_neighbour, near_relation_begin, near_relation,
    far_begin, far_neighbour, far_relation_begin, far_relation, forward, n_relations, count_paths,
    position, bodies, n_bodies, rules, n_rules, max_rows,
):  # fmt: skip
    """Return both tables with their numbers of used rows, and whether the tables were large enough.

    The middle entities of a pair (entity, other) are the near neighbours of `entity` that are far neighbours of
    `other`. The near neighbours are looked up in `position`, and the far neighbours are visited.
    """
    touched = np.empty(len(bodies), dtype=np.int64)  # the rows of the bodies of a pair
    entity = np.searchsorted(near_begin, start, side="right") - 1
    low = high = 0
    for k in range(start, stop):
        if len(rules) > max_rows:
            return bodies, n_bodies, rules, n_rules, False
        if k >= high:  # the first pair of an entity
            while near_begin[entity + 1] <= k:
                entity += 1
            low, high = near_begin[entity], near_begin[entity + 1]
            for p in range(low, high):
                position[near_neighbour[p]] = p - low
        other = np.int64(near_neighbour[k])
        head, tail = (entity, other) if forward else (other, entity)
        if far_begin[other + 1] - far_begin[other] >= high - low + forward:
            continue  # counted in the other order
        mark = 2 * k + forward + 1  # a new row has mark 0
        n_touched = 0
        for q in range(far_begin[other], far_begin[other + 1]):
            middle = far_neighbour[q]
            p = low + position[middle]
            if p >= high or near_neighbour[p] != middle:
                continue
            kind = 1 << (middle == head) + 2 * (middle == tail)
            for i in range(near_relation_begin[p], near_relation_begin[p + 1]):
                for j in range(far_relation_begin[q], far_relation_begin[q + 1]):
                    first, second = np.int64(near_relation[i]), np.int64(far_relation[j])
                    if not forward:
                        first, second = second, first
                    if 2 * n_bodies >= len(bodies):
                        bodies = _enlarge(bodies)
                        touched = np.empty(len(bodies), dtype=np.int64)
                        n_touched = 0
                        for row in range(len(bodies)):
                            if bodies[row, BODY] != FREE and bodies[row, MARK] == mark:
                                touched[n_touched] = row
                                n_touched += 1
                    row, is_new = _find_row(bodies, first * n_relations + second, 0)
                    n_bodies += is_new
                    if bodies[row, MARK] != mark:
                        bodies[row, MARK] = mark
                        bodies[row, N_PATHS] = 0
                        bodies[row, KINDS] = 0
                        touched[n_touched] = row
                        n_touched += 1
                    bodies[row, N_PATHS] += 1
                    bodies[row, KINDS] |= kind
        for i in range(n_touched):
            body, kinds = bodies[touched[i], BODY], bodies[touched[i], KINDS]
            for r in range(near_relation_begin[k], near_relation_begin[k + 1]):
                hypothesis = np.int64(near_relation[r])
                if 2 * n_rules >= len(rules):
                    rules = _enlarge(rules)
                row, is_new = _find_row(rules, body, hypothesis)
                n_rules += is_new
                if count_paths:
                    rules[row, HITS] += bodies[touched[i], N_PATHS]
                elif kinds & 1 or _supports(kinds, hypothesis, body // n_relations, body % n_relations):
                    rules[row, HITS] += 1
                else:
                    rules[row, SELF_SUPPORTING] += 1
    return bodies, n_bodies, rules, n_rules, True


@compiled()
def _supports(kinds, hypothesis, first, second):  # type: ignore[no-untyped-def]
    """Return whether one of these kinds of paths supports the hypothesis without having it as a premise.

    The bits of `kinds` stand for paths whose middle entity is neither end of the path (1), the head (2), the tail (4),
    or both (8). At the head, the second step is a fact of the pair. At the tail, it is the first step.
    """
    is_first, is_second = hypothesis == first, hypothesis == second
    return (
        kinds & 1 != 0
        or (kinds & 2 != 0 and not is_second)
        or (kinds & 4 != 0 and not is_first)
        or (kinds & 8 != 0 and not is_first and not is_second)
    )


@compiled()
def _find_row(table, body, hypothesis):  # type: ignore[no-untyped-def]
    """Return a body's or rule's row, and 1 if it is new, otherwise 0. The counters of a new row are 0."""
    last = len(table) - 1  # the number of rows is a power of two
    mixed = body * 1_000_003 + hypothesis * 7_919
    row = (mixed ^ (mixed >> 15)) & last
    while table[row, BODY] != FREE:
        if table[row, BODY] == body and table[row, HYPOTHESIS] == hypothesis:
            return row, 0
        row = (row + 1) & last
    table[row, BODY] = body
    table[row, HYPOTHESIS] = hypothesis
    return row, 1


@compiled()
def _enlarge(table):  # type: ignore[no-untyped-def]
    """Return a table of twice the size with the same rows."""
    larger = np.zeros((2 * len(table), table.shape[1]), dtype=np.int64)
    larger[:, BODY] = FREE
    for row in range(len(table)):
        if table[row, BODY] != FREE:
            larger[_find_row(larger, table[row, BODY], table[row, HYPOTHESIS])[0]] = table[row]
    return larger
