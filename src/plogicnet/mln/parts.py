"""The objective of the M-step cut into parts that share no triple."""

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
