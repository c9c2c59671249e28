"""The native engine's compiled part: one pass over all two-step paths counts every composition rule at once."""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from plogicnet.graph import HEAD, RELATION, TAIL, IntArray, TripleSet

Int32 = NDArray[np.int32]


@dataclass(frozen=True)
class Runs:
    """Facts sorted by (head, relation, tail), cut into runs of one head and relation; and again by (head, tail).

    Attributes:
        row: the facts' rows in the set they come from, in the first order.
        tail: tails in the first order.
        begin: where each run begins in it, and the end of the last.
        head, relation: each run's head and relation.
        of_head: where each head's runs begin, and the end of the last's.
        pair_tail, pair_relation: tails and relations in order of (head, tail).
        of_pair: where each head's facts begin in that order (and in the first), and the end of the last's.
    """

    row: IntArray
    tail: Int32
    begin: IntArray
    head: Int32
    relation: Int32
    of_head: IntArray
    pair_tail: Int32
    pair_relation: Int32
    of_pair: IntArray

    @classmethod
    def of(cls, facts: TripleSet) -> "Runs":
        """Sorts the facts both ways."""
        h, r, t = facts.triples[:, HEAD], facts.triples[:, RELATION], facts.triples[:, TAIL]
        first = np.lexsort((t, r, h))
        ordered = facts.triples[first]
        new = np.ones(len(ordered), dtype=bool)
        new[1:] = np.any(ordered[1:, [HEAD, RELATION]] != ordered[:-1, [HEAD, RELATION]], axis=1)
        begin = np.flatnonzero(new)
        every_head = np.arange(facts.entities + 1)
        second = np.lexsort((t, h))
        return cls(
            row=first,
            tail=ordered[:, TAIL].astype(np.int32),
            begin=np.append(begin, len(ordered)),
            head=ordered[begin, HEAD].astype(np.int32),
            relation=ordered[begin, RELATION].astype(np.int32),
            of_head=np.searchsorted(ordered[begin, HEAD], every_head),
            pair_tail=t[second].astype(np.int32),
            pair_relation=r[second].astype(np.int32),
            of_pair=np.searchsorted(ordered[:, HEAD], every_head),
        )


def count_compositions(
    runs: Runs, first: int, seconds: IntArray, relations: int, entities: int, paths: bool
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """All rules first(X, Y) & second(Y, Z) => r(X, Z) with at least one hit, for one first and given second relations.

    Returns:
        second, r, support, hits: one entry a rule, by second relation and r.

    Example:
        >>> facts = TripleSet.of([(0, 0, 1), (1, 1, 2), (0, 2, 2)], entities=3)
        >>> [c.tolist() for c in count_compositions(Runs.of(facts), 0, np.array([1]), 3, 3, paths=False)]
        [[1], [2], [1], [1]]
    """
    place = np.full(relations, -1, dtype=np.int32)
    place[seconds] = np.arange(len(seconds))
    starts = np.flatnonzero(runs.relation == first)
    support, hits, own = _count(
        starts, runs.tail, runs.begin, runs.head, runs.relation, runs.of_head, runs.pair_tail, runs.pair_relation,
        runs.of_pair, place, len(seconds), relations, entities, first, paths,
    )  # fmt: skip
    at, relation = np.nonzero(hits)
    second = seconds[at]
    lost = np.where(relation == first, own[at, 0], 0) + np.where(relation == second, own[at, 1], 0)
    lost = np.where(first == second, np.where(relation == first, own[at, 2], 0), lost)
    kept = hits[at, relation] > lost
    columns = (second, relation, support[at] - lost, hits[at, relation] - lost)
    return columns[0][kept], columns[1][kept], columns[2][kept], columns[3][kept]


@dataclass(frozen=True)
class Composed:
    """Groundings of compositions: rule, head, tail, and the rows of the two premises."""

    rule: IntArray
    head: IntArray
    tail: IntArray
    premises: IntArray


def ground_compositions(
    runs: Runs, first: int, seconds: IntArray, relations: IntArray, rules: IntArray, n_relations: int, paths: bool
) -> Composed:
    """All groundings of the rules first(X, Y) & second(Y, Z) => relation(X, Z), given as columns of equal length.

    Example:
        >>> facts = TripleSet.of([(0, 0, 1), (1, 1, 2)], entities=3)
        >>> one = np.array([1])
        >>> found = ground_compositions(Runs.of(facts), 0, one, np.array([2]), np.array([7]), 3, paths=False)
        >>> found.rule, found.head, found.tail, found.premises
        (array([7]), array([0]), array([2]), array([[0, 1]]))
    """
    order = np.argsort(seconds, kind="stable")
    of_second = np.searchsorted(seconds[order], np.arange(n_relations + 1))
    starts = np.flatnonzero(runs.relation == first)
    shared = (starts, runs.tail, runs.begin, runs.head, runs.relation, runs.of_head, runs.row)
    arguments = (*shared, of_second, relations[order], rules[order], first, paths)
    nothing = np.empty((0, 5), dtype=np.int64)
    found = np.empty((_ground(*arguments, nothing), 5), dtype=np.int64)
    _ground(*arguments, found)
    return Composed(found[:, 0], found[:, 1], found[:, 2], found[:, 3:])


@njit(nogil=True, cache=True)
def _ground(  # type: ignore[no-untyped-def]
    starts, tail, begin, run_head, run_relation, of_head, row, of_second, relations, rules, first, paths, found
):
    """Fills `found` with (rule, head, tail, premise, premise), or where it has no room, only counts."""
    n = 0
    room = len(found) > 0
    for start in starts:
        head = run_head[start]
        for k in range(begin[start], begin[start + 1]):
            middle = tail[k]
            for run in range(of_head[middle], of_head[middle + 1]):
                second = run_relation[run]
                for rule in range(of_second[second], of_second[second + 1]):
                    relation = relations[rule]
                    for q in range(begin[run], begin[run + 1]):
                        t = tail[q]
                        own = (relation == first and middle == t) or (relation == second and middle == head)
                        if paths or not own:
                            if room:
                                found[n, 0] = rules[rule]
                                found[n, 1] = head
                                found[n, 2] = t
                                found[n, 3] = row[k]
                                found[n, 4] = row[q]
                            n += 1
    return n


@njit(nogil=True, cache=True)
def _count(  # type: ignore[no-untyped-def]
    starts, tail, begin, run_head, run_relation, of_head, pair_tail, pair_relation, of_pair,
    place, n_seconds, n_relations, n_entities, first, paths,
):  # fmt: skip
    support = np.zeros(n_seconds, dtype=np.int64)
    hits = np.zeros((n_seconds, n_relations), dtype=np.int64)
    own = np.zeros((n_seconds, 3), dtype=np.int64)
    stamp = np.full(n_entities, -1, dtype=np.int64)  # which (head, second) a tail was last reached for
    at_pair = np.zeros(n_entities, dtype=np.int64)  # where the facts of (head, tail) stand
    pair_stamp = np.full(n_entities, -1, dtype=np.int64)
    chain_first = np.full(n_seconds, -1, dtype=np.int64)  # linked lists of runs, one for each second relation
    chain_next = np.empty(len(run_head), dtype=np.int64)
    chain_run = np.empty(len(run_head), dtype=np.int64)
    touched = np.empty(n_seconds, dtype=np.int64)
    turn = 0
    for start in starts:
        head = run_head[start]
        for k in range(of_pair[head], of_pair[head + 1]):
            t = pair_tail[k]
            if pair_stamp[t] != start:
                pair_stamp[t] = start
                at_pair[t] = k
        nodes = 0
        n_touched = 0
        for k in range(begin[start], begin[start + 1]):
            middle = tail[k]
            for run in range(of_head[middle], of_head[middle + 1]):
                j = place[run_relation[run]]
                if j >= 0:
                    if chain_first[j] < 0:
                        touched[n_touched] = j
                        n_touched += 1
                    chain_run[nodes] = run
                    chain_next[nodes] = chain_first[j]
                    chain_first[j] = nodes
                    nodes += 1
        for i in range(n_touched):
            j = touched[i]
            turn += 1
            looped = False
            node = chain_first[j]
            while node >= 0:
                run = chain_run[node]
                middle = run_head[run]
                looped |= middle == head
                for k in range(begin[run], begin[run + 1]):
                    t = tail[k]
                    looped |= t == middle
                    if paths or stamp[t] != turn:
                        stamp[t] = turn
                        support[j] += 1
                        if pair_stamp[t] == start:
                            p = at_pair[t]
                            stop = of_pair[head + 1]
                            while p < stop and pair_tail[p] == t:
                                hits[j, pair_relation[p]] += 1
                                p += 1
                node = chain_next[node]
            if looped and not paths:
                turn = _count_own(
                    own[j], head, chain_first[j], chain_next, chain_run, tail, begin, run_head, stamp, turn,
                    run_relation[chain_run[chain_first[j]]] == first,
                )  # fmt: skip
            chain_first[j] = -1
    return support, hits, own


@njit(nogil=True, cache=True)
def _count_own(own, head, first_node, chain_next, chain_run, tail, begin, run_head, stamp, turn, same):  # type: ignore[no-untyped-def]
    """Counts the pairs (head, t) that are reached only by a path with the hypothesis among its premises.

    For the first relation that is the path whose middle is t itself, for the second the one whose middle is the head;
    where both are one relation, either. Premises and hypothesis are then the same observed triple, so such a pair is a
    lost hit as well as lost support.
    """
    for case in range(3):
        if (case == 2) != same:
            continue
        turn += 1
        node = first_node
        while node >= 0:  # what is reached by other paths
            run = chain_run[node]
            middle = run_head[run]
            for k in range(begin[run], begin[run + 1]):
                if not _is_own(case, middle, head, tail[k]):
                    stamp[tail[k]] = turn
            node = chain_next[node]
        node = first_node
        while node >= 0:
            run = chain_run[node]
            middle = run_head[run]
            for k in range(begin[run], begin[run + 1]):
                t = tail[k]
                if _is_own(case, middle, head, t) and stamp[t] != turn:
                    stamp[t] = turn
                    own[case] += 1
            node = chain_next[node]
    return turn


@njit(nogil=True, cache=True)
def _is_own(case, middle, head, t):  # type: ignore[no-untyped-def]
    return (case != 1 and middle == t) or (case != 0 and middle == head)
