"""The objective of the M-step cut into parts that share no triple, with equal triples merged into one."""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from plogicnet.graph import FloatArray, IntArray


@dataclass(frozen=True)
class Part:
    """One part: some rules, and all triples that they reach. Rows are sparse, with the part's own rule numbers.

    Attributes:
        rules: the part's rules, as columns of the whole matrix.
        begin: where each row's entries begin, and the end of the last's.
        rule, times: each entry's rule (its place in `rules`) and value.
        base, target, count: b, y and c of each row.
    """

    rules: IntArray
    begin: IntArray
    rule: NDArray[np.int32]
    times: FloatArray
    base: FloatArray
    target: FloatArray
    count: FloatArray

    @property
    def rows(self) -> tuple[IntArray, NDArray[np.int32], FloatArray, FloatArray, FloatArray]:
        """What the compiled code takes them by."""
        return self.begin, self.rule, self.times, self.base, self.count


def merge(
    matrix: sparse.csr_array, base: FloatArray, target: FloatArray, count: FloatArray
) -> tuple[sparse.csr_array, FloatArray, FloatArray, FloatArray]:
    """Equal rows become one: triples with the same base that the same rules reach equally often.

    Such a row counts as often as they do and has their mean target: the objective is linear in y. Triples that no rule
    reaches say nothing about the weights and are left out.

    Example:
        >>> matrix = sparse.csr_array(np.array([[1.0], [1.0], [0.0]]))
        >>> [a.tolist() for a in merge(matrix, np.zeros(3), np.array([1.0, 0, 1]), np.ones(3))[1:]]
        [[0.0], [0.5], [2.0]]
    """
    bits, base_bits = matrix.data.view(np.int64), base.view(np.int64)
    kept, counts, targets = _merged(matrix.indptr, matrix.indices, bits, base_bits, target, count)
    return matrix[kept], base[kept], targets, counts


def cut(matrix: sparse.csr_array, base: FloatArray, target: FloatArray, count: FloatArray) -> list[Part]:
    """The parts, by their first rule: rules of one part are linked by triples that they reach together.

    Under the hypothesis blanket the rules of two relations never meet, so that thousands of rules fall into parts of a
    few hundred at most, and the Hessian into as many blocks. Every row must have an entry.

    Example:
        >>> matrix = sparse.csr_array(np.array([[1.0, 0, 2], [0, 1, 0]]))
        >>> [(part.rules.tolist(), part.base.tolist()) for part in cut(matrix, np.array([3.0, 4]), *np.ones((2, 2)))]
        [([0, 2], [3.0]), ([1], [4.0])]
    """
    part_of_rule, parts = _linked(matrix.indptr, matrix.indices, matrix.shape[1])
    part_of_row = part_of_rule[matrix.indices[matrix.indptr[:-1]]]
    rules, rows = np.argsort(part_of_rule, kind="stable"), np.argsort(part_of_row, kind="stable")
    every = np.arange(parts + 1)
    rules_begin, rows_begin = np.searchsorted(part_of_rule[rules], every), np.searchsorted(part_of_row[rows], every)
    place = np.empty(len(rules), dtype=np.int32)
    place[rules] = np.arange(len(rules)) - rules_begin[part_of_rule[rules]]
    ordered = matrix[rows]
    ordered.sum_duplicates()  # and in the order of rules, as compiled code expects
    begin, rule = ordered.indptr.astype(np.int64), place[ordered.indices]
    base, target, count = base[rows], target[rows], count[rows]

    def part(number: int) -> Part:
        start, stop = rows_begin[number], rows_begin[number + 1]
        low, high = begin[start], begin[stop]
        return Part(
            rules[rules_begin[number] : rules_begin[number + 1]],
            begin[start : stop + 1] - low,
            rule[low:high],
            ordered.data[low:high],
            base[start:stop],
            target[start:stop],
            count[start:stop],
        )

    return [part(number) for number in range(parts)]


@njit(nogil=True, cache=True)
def _merged(begin, rule, times, base, target, count):  # type: ignore[no-untyped-def]
    """The first of each set of equal rows, their counts' sum and mean target, by a hash table."""
    rows = len(base)
    room = 16
    while room < 2 * rows:
        room *= 2
    table = np.full(room, -1, dtype=np.int32)
    kept = np.empty(rows, dtype=np.int64)
    counts, targets = np.zeros(rows), np.zeros(rows)
    n = 0
    for row in range(rows):
        low, high = begin[row], begin[row + 1]
        if low == high or count[row] == 0:
            continue
        mixed = np.uint64(base[row])
        for k in range(low, high):
            mixed = (mixed ^ np.uint64(rule[k])) * np.uint64(0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> np.uint64(29)) ^ np.uint64(times[k])) * np.uint64(0xBF58476D1CE4E5B9)
            mixed ^= mixed >> np.uint64(32)
        slot = np.int64(mixed & np.uint64(room - 1))
        while table[slot] >= 0 and not _alike(begin, rule, times, base, row, kept[table[slot]]):
            slot = (slot + 1) & (room - 1)
        if table[slot] < 0:
            table[slot] = n
            kept[n] = row
            n += 1
        counts[table[slot]] += count[row]
        targets[table[slot]] += count[row] * target[row]
    for row in range(n):
        targets[row] /= counts[row]
    return kept[:n].copy(), counts[:n].copy(), targets[:n].copy()


@njit(nogil=True, cache=True)
def _alike(begin, rule, times, base, row, other):  # type: ignore[no-untyped-def]
    shift = begin[other] - begin[row]
    if base[other] != base[row] or begin[other + 1] - begin[row + 1] != shift:
        return False
    for k in range(begin[row], begin[row + 1]):
        if rule[k] != rule[k + shift] or times[k] != times[k + shift]:
            return False
    return True


@njit(nogil=True, cache=True)
def _linked(begin, rule, rules):  # type: ignore[no-untyped-def]
    """The part of each rule, and the number of parts: rules that a row links are in one (union-find)."""
    parent = np.arange(rules)
    for row in range(len(begin) - 1):
        a = _root(parent, rule[begin[row]])
        for k in range(begin[row] + 1, begin[row + 1]):
            b = _root(parent, rule[k])
            parent[max(a, b)] = a = min(a, b)
    part = np.empty(rules, dtype=np.int64)
    parts = 0
    for j in range(rules):  # a root is the smallest of its part, so it comes first
        root = _root(parent, j)
        if root == j:
            part[j] = parts
            parts += 1
        else:
            part[j] = part[root]
    return part, parts


@njit(nogil=True, cache=True)
def _root(parent, j):  # type: ignore[no-untyped-def]
    while parent[j] != j:
        parent[j] = parent[parent[j]]
        j = parent[j]
    return j
