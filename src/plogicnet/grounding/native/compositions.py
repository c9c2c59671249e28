"""Two steps forwards, compiled: one pass over all two-step paths counts every composition rule at once."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from plogicnet.graph import HEAD, RELATION, TAIL, IntArray, TripleSet

Int32 = NDArray[np.int32]
SEARCH_FROM = 16
"""A run so many times longer than all else of a head and second relation is searched, not walked through."""


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
        by_relation: the runs' numbers by relation.
        of_relation_begin: where each relation's begin among them, and the end of the last's.
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
    by_relation: IntArray
    of_relation_begin: IntArray

    def of_relation(self, relation: int) -> IntArray:
        """The runs of one relation, by head."""
        if relation + 1 >= len(self.of_relation_begin):
            return self.by_relation[:0]
        return self.by_relation[self.of_relation_begin[relation] : self.of_relation_begin[relation + 1]]

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
        by_relation = np.argsort(ordered[begin, RELATION], kind="stable")
        every_relation = np.arange(int(r.max(initial=0)) + 2)
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
            by_relation=by_relation,
            of_relation_begin=np.searchsorted(ordered[begin[by_relation], RELATION], every_relation),
        )


@dataclass(frozen=True)
class Counts:
    """What one pass over paths counted, for each second relation, and for it and each hypothesis's relation.

    Attributes:
        support: (head, tail) pairs that are reached.
        hits: of those, how many are observed under each relation.
        own: of those, how many are lost to a hypothesis of the first relation, of the second, of both if they are
            one, because only paths with that hypothesis among their premises reach them.
    """

    support: IntArray
    hits: sparse.csr_array
    own: IntArray

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.support + other.support, sparse.csr_array(self.hits + other.hits), self.own + other.own)


class Workspace:
    """The arrays of one thread, so that nothing as large as the graph is made anew for each piece of work.

    Between two pieces the counters are zero; a mark holds for one `turn`, which only grows.
    """

    def __init__(self, runs: Runs, entities: int, relations: int, counters: int) -> None:
        self.relations = relations
        self.hits = np.zeros(counters, dtype=np.int64)
        self.stamp = np.full(entities, -1, dtype=np.int64)  # which (head, second) a tail was last reached for
        self.pair_stamp = np.full(entities, -1, dtype=np.int64)  # for which run the next holds
        self.at_pair = np.zeros(entities, dtype=np.int64)  # where the facts of (head, tail) stand
        self.chain_next = np.empty(len(runs.head), dtype=np.int64)  # linked lists of runs, one for each second relation
        self.chain_run = np.empty(len(runs.head), dtype=np.int64)
        self.turn = 0


def count_compositions(
    runs: Runs, starts: IntArray, first: int, seconds: IntArray, space: Workspace, paths: bool
) -> Counts:
    """Counts the paths first(X, Y) & second(Y, Z) that begin with some of the first relation's runs.

    Counts of different runs add up, since each (head, tail) pair belongs to one of them.

    Example:
        >>> facts = TripleSet.of([(0, 0, 1), (1, 1, 2), (0, 2, 2)], entities=3)
        >>> runs = Runs.of(facts)
        >>> space = Workspace(runs, entities=3, relations=3, counters=3)
        >>> count_compositions(runs, runs.of_relation(0), 0, np.array([1]), space, paths=False).hits.toarray().tolist()
        [[0, 0, 1]]
    """
    place = np.full(space.relations, -1, dtype=np.int32)
    place[seconds] = np.arange(len(seconds))
    support, cells, own, space.turn = _count(
        starts, runs.tail, runs.begin, runs.head, runs.relation, runs.of_head, runs.pair_tail, runs.pair_relation,
        runs.of_pair, place, len(seconds), space.relations, first, paths,
        space.hits, space.stamp, space.pair_stamp, space.at_pair, space.chain_next, space.chain_run, space.turn,
    )  # fmt: skip
    cells = np.sort(cells)
    row, relation = np.divmod(cells, space.relations)
    begin = np.searchsorted(row, np.arange(len(seconds) + 1))
    hits = sparse.csr_array((space.hits[cells], relation, begin), (len(seconds), space.relations))
    space.hits[cells] = 0
    return Counts(support, hits, own)


def rules_of(counts: Counts, first: int, seconds: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """The rules first(X, Y) & second(Y, Z) => r(X, Z) with at least one hit: second, r, support, hits, in that order.

    Example:
        >>> counts = Counts(np.array([5]), sparse.csr_array([[0, 2]]), np.zeros((1, 3), dtype=np.int64))
        >>> [column.tolist() for column in rules_of(counts, 0, np.array([1]))]
        [[1], [1], [5], [2]]
    """
    found = counts.hits.tocoo()
    (at, relation), hits = found.coords, found.data
    second = seconds[at]
    lost = np.where(relation == first, counts.own[at, 0], 0) + np.where(relation == second, counts.own[at, 1], 0)
    lost = np.where(first == second, np.where(relation == first, counts.own[at, 2], 0), lost)
    kept = hits > lost
    columns = (second, relation.astype(np.int64), counts.support[at] - lost, hits - lost)
    return columns[0][kept], columns[1][kept], columns[2][kept], columns[3][kept]


@dataclass(frozen=True)
class Wanted:
    """The rules first(X, Y) & second(Y, Z) => relation(X, Z) of one first relation, by second relation.

    Attributes:
        of_second: where each second relation's rules begin, and the end of the last's.
        relations, rules: the hypotheses' relations, and the rules' numbers.
        paths: whether groundings count that have their hypothesis among their premises.
    """

    first: int
    of_second: IntArray
    relations: IntArray
    rules: IntArray
    paths: bool

    @classmethod
    def of(
        cls, first: int, seconds: IntArray, relations: IntArray, rules: IntArray, n_relations: int, paths: bool
    ) -> "Wanted":
        """The rules, given as columns of equal length."""
        order = np.argsort(seconds, kind="stable")
        of_second = np.searchsorted(seconds[order], np.arange(n_relations + 1))
        return cls(first, of_second, relations[order], rules[order], paths)


def count_groundings(runs: Runs, wanted: Wanted) -> int:
    """How many groundings the rules have.

    Example:
        >>> facts = TripleSet.of([(0, 0, 1), (1, 1, 2)], entities=3)
        >>> one = np.array([1])
        >>> count_groundings(Runs.of(facts), Wanted.of(0, one, np.array([2]), np.array([7]), 3, paths=False))
        1
    """
    nothing = np.empty(0, dtype=np.int64)
    return int(_ground(*_arguments(runs, wanted, 0, nothing, nothing, np.empty((0, 2), dtype=np.int64))))


def fill_groundings(runs: Runs, wanted: Wanted, n: int, rule: IntArray, key: IntArray, premises: IntArray) -> None:
    """Writes the groundings into arrays of as many rows: rule, the hypothesis's key, the rows of the two premises.

    A premise that occurs twice in a grounding counts once; -1 stands for the second.

    Example:
        >>> facts = TripleSet.of([(0, 0, 1), (1, 1, 2)], entities=3)
        >>> wanted = Wanted.of(0, np.array([1]), np.array([2]), np.array([7]), 3, paths=False)
        >>> rule, key, premises = np.empty(1, dtype=np.int64), np.empty(1, dtype=np.int64), np.empty((1, 2), dtype=int)
        >>> fill_groundings(Runs.of(facts), wanted, 3, rule, key, premises)
        >>> rule, key, premises  # the key of (0, 2, 2)
        (array([7]), array([20]), array([[0, 1]]))
    """
    _ground(*_arguments(runs, wanted, n, rule, key, premises))


def _arguments(runs: Runs, wanted: Wanted, *to_fill: Any) -> tuple[Any, ...]:
    starts = runs.of_relation(wanted.first)
    shared = (starts, runs.tail, runs.begin, runs.head, runs.relation, runs.of_head, runs.row)
    return (*shared, wanted.of_second, wanted.relations, wanted.rules, wanted.first, wanted.paths, *to_fill)


@njit(nogil=True, cache=True)
def _ground(  # type: ignore[no-untyped-def]
    starts, tail, begin, run_head, run_relation, of_head, row, of_second, relations, rules, first, paths,
    entities, found_rule, found_key, found_premises,
):  # fmt: skip
    """Fills the arrays, or where they have no room, only counts."""
    n = 0
    room = len(found_rule) > 0
    for start in starts:
        head = np.int64(run_head[start])
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
                                found_rule[n] = rules[rule]
                                found_key[n] = (relation * entities + head) * entities + t
                                found_premises[n, 0] = row[k]
                                found_premises[n, 1] = row[q] if q != k else -1
                            n += 1
    return n


@njit(nogil=True, cache=True)
def _count(  # type: ignore[no-untyped-def]
    starts, tail, begin, run_head, run_relation, of_head, pair_tail, pair_relation, of_pair,
    place, n_seconds, n_relations, first, paths,
    hits, stamp, pair_stamp, at_pair, chain_next, chain_run, turn,
):  # fmt: skip
    """Returns support, the counters in `hits` that are no longer zero, what is lost, and the turn reached."""
    support = np.zeros(n_seconds, dtype=np.int64)
    own = np.zeros((n_seconds, 3), dtype=np.int64)
    chain_first = np.full(n_seconds, -1, dtype=np.int64)
    touched = np.empty(n_seconds, dtype=np.int64)
    cells = np.empty(1024, dtype=np.int64)
    n_cells = 0
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
        own_facts = of_pair[head + 1] - of_pair[head]
        for i in range(n_touched):
            j = touched[i]
            turn += 1
            longest, total, looped = _surveyed(chain_first[j], chain_next, chain_run, begin, run_head, tail, head)
            size = begin[longest + 1] - begin[longest]
            if size > SEARCH_FROM * (total - size + own_facts) and not (looped or paths):
                # one run holds nearly all: count it by its length, and look up only the others and the head's facts
                support[j] += size
                node = chain_first[j]
                while node >= 0:
                    run = chain_run[node]
                    if run != longest:
                        for k in range(begin[run], begin[run + 1]):
                            t = tail[k]
                            if stamp[t] != turn and not _holds(tail, begin[longest], begin[longest + 1], t):
                                stamp[t] = turn
                                support[j] += 1
                    node = chain_next[node]
                for p in range(of_pair[head], of_pair[head + 1]):
                    t = pair_tail[p]
                    if stamp[t] == turn or _holds(tail, begin[longest], begin[longest + 1], t):
                        cell = j * n_relations + pair_relation[p]
                        if hits[cell] == 0:
                            cells, n_cells = _noted(cells, n_cells, cell)
                        hits[cell] += 1
                chain_first[j] = -1
                continue
            node = chain_first[j]
            while node >= 0:
                run = chain_run[node]
                size = begin[run + 1] - begin[run]
                if paths and size > SEARCH_FROM * own_facts:
                    support[j] += size
                    for p in range(of_pair[head], of_pair[head + 1]):
                        if _holds(tail, begin[run], begin[run + 1], pair_tail[p]):
                            cell = j * n_relations + pair_relation[p]
                            if hits[cell] == 0:
                                cells, n_cells = _noted(cells, n_cells, cell)
                            hits[cell] += 1
                    node = chain_next[node]
                    continue
                for k in range(begin[run], begin[run + 1]):
                    t = tail[k]
                    if paths or stamp[t] != turn:
                        stamp[t] = turn
                        support[j] += 1
                        if pair_stamp[t] == start:
                            p = at_pair[t]
                            stop = of_pair[head + 1]
                            while p < stop and pair_tail[p] == t:
                                cell = j * n_relations + pair_relation[p]
                                if hits[cell] == 0:
                                    cells, n_cells = _noted(cells, n_cells, cell)
                                hits[cell] += 1
                                p += 1
                node = chain_next[node]
            if looped and not paths:
                turn = _count_own(
                    own[j], head, chain_first[j], chain_next, chain_run, tail, begin, run_head, stamp, turn,
                    run_relation[chain_run[chain_first[j]]] == first,
                )  # fmt: skip
            chain_first[j] = -1
    return support, cells[:n_cells], own, turn


@njit(nogil=True, cache=True)
def _noted(cells, n_cells, cell):  # type: ignore[no-untyped-def]
    """Appends a cell to a list that grows as it must."""
    if n_cells == len(cells):
        longer = np.empty(2 * n_cells, dtype=np.int64)
        longer[:n_cells] = cells
        cells = longer
    cells[n_cells] = cell
    return cells, n_cells + 1


@njit(nogil=True, cache=True)
def _surveyed(first_node, chain_next, chain_run, begin, run_head, tail, head):  # type: ignore[no-untyped-def]
    """The longest of some runs, the length of all, and whether a premise of some path may be its hypothesis."""
    longest = chain_run[first_node]
    total = 0
    looped = False
    node = first_node
    while node >= 0:
        run = chain_run[node]
        size = begin[run + 1] - begin[run]
        total += size
        if size > begin[longest + 1] - begin[longest]:
            longest = run
        middle = run_head[run]
        looped |= middle == head or _holds(tail, begin[run], begin[run + 1], middle)
        node = chain_next[node]
    return longest, total, looped


@njit(nogil=True, cache=True)
def _holds(tail, low, high, wanted):  # type: ignore[no-untyped-def]
    """Whether a sorted stretch holds a value."""
    stop = high
    while low < high:
        middle = (low + high) // 2
        if tail[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low < stop and tail[low] == wanted


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
