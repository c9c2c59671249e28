"""Triples × rules with equal triples as one row: all that weight learning needs of the groundings."""

from dataclasses import dataclass

import numpy as np
from numba import njit
from scipy import sparse

from plogicnet.graph import FloatArray, IntArray


@dataclass(frozen=True)
class Merged:
    """Distinct rows with what is summed over the triples of each.

    Attributes:
        matrix: one row each; of groundings, a rule multiset: how often each rule concludes the triple.
        base: a number of each row, which tells rows apart too.
        count: the number of triples.
        total: the sum of their targets.
    """

    matrix: sparse.csr_array
    base: FloatArray
    count: FloatArray
    total: FloatArray


@dataclass(frozen=True)
class Rows:
    """The distinct rows of a matrix of triples × rules, in the order of the first triple that has each.

    Attributes:
        matrix: distinct rows × rules.
        base: a number of each row, which tells rows apart too.
        number: for each triple, its row; -1 where its row is empty.
    """

    matrix: sparse.csr_array
    base: FloatArray
    number: IntArray

    @classmethod
    def of(cls, matrix: sparse.csr_array, base: FloatArray | None = None) -> "Rows":
        """The distinct rows of a matrix, each with a base if given.

        Example:
            >>> Rows.of(sparse.csr_array(np.array([[1.0], [0.0], [1.0]]))).number
            array([ 0, -1,  0])
        """
        base = np.zeros(matrix.shape[0]) if base is None else base
        kept, number = _distinct(matrix.indptr, matrix.indices, matrix.data.view(np.int64), base.view(np.int64))
        return cls(matrix[kept], base[kept], number)

    def distinct(self) -> "Rows":
        """The same triples, where several rows have become equal or empty."""
        again = Rows.of(self.matrix, self.base)
        return Rows(again.matrix, again.base, np.append(again.number, -1)[self.number])

    def merged(self, targets: FloatArray, count: FloatArray | None = None) -> Merged:
        """Sums the triples' targets by row; a triple may count more than once.

        Example:
            >>> merged = Rows.of(sparse.csr_array(np.ones((2, 1)))).merged(np.array([1.0, 0.5]))
            >>> merged.count, merged.total
            (array([2.]), array([1.5]))
        """
        reached, rows = self.number >= 0, len(self.base)
        count = np.ones(len(targets)) if count is None else count
        sums = (np.bincount(self.number[reached], each[reached], rows) for each in (count, count * targets))
        return Merged(self.matrix, self.base, *(total.astype(np.float64) for total in sums))

    def sums(self, weights: FloatArray) -> FloatArray:
        """Matrix · weights of every triple; 0 where its row is empty."""
        return np.asarray(np.append(self.matrix @ weights, 0.0)[self.number])

    def row(self, triple: int) -> tuple[IntArray, FloatArray]:
        """One triple's rules and their values."""
        at = int(self.number[triple])
        entries = slice(*self.matrix.indptr[at : at + 2]) if at >= 0 else slice(0)
        return self.matrix.indices[entries].astype(np.int64), self.matrix.data[entries]

    @property
    def whole(self) -> sparse.csr_array:
        """The matrix of all triples × rules."""
        nothing = sparse.csr_array((1, self.matrix.shape[1]))
        return sparse.csr_array(sparse.vstack([self.matrix, nothing], format="csr")[self.number])


@njit(nogil=True, cache=True)
def _distinct(begin, rule, times, base):  # type: ignore[no-untyped-def]
    """The first of each set of equal rows, and each row's set, -1 for an empty row; by a hash table."""
    rows = len(base)
    room = 16
    while room < 2 * rows:
        room *= 2
    table = np.full(room, -1, dtype=np.int32)
    kept = np.empty(rows, dtype=np.int64)
    number = np.full(rows, -1, dtype=np.int64)
    n = 0
    for row in range(rows):
        low, high = begin[row], begin[row + 1]
        if low == high:
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
        number[row] = table[slot]
    return kept[:n].copy(), number


@njit(nogil=True, cache=True)
def _alike(begin, rule, times, base, row, other):  # type: ignore[no-untyped-def]
    shift = begin[other] - begin[row]
    if base[other] != base[row] or begin[other + 1] - begin[row + 1] != shift:
        return False
    for k in range(begin[row], begin[row + 1]):
        if rule[k] != rule[k + shift] or times[k] != times[k + shift]:
            return False
    return True
