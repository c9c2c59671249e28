"""The distinct rows of a triples × rules matrix. Weight learning needs only these rows, not the groundings."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from plogicnet.graph import FloatArray, IntArray
from plogicnet.support.compiling import compiled


@dataclass(frozen=True)
class MergedRows:
    """The distinct rows of a triples × rules matrix, each with the number of its triples and the sum of their targets.

    Attributes:
        matrix: distinct rows × rules.
        base: the base log-odds of each row. Rows with different base log-odds are distinct.
        count: the number of triples with each row.
        total: the sum of the targets of these triples.
    """

    matrix: sparse.csr_array
    base: FloatArray
    count: FloatArray
    total: FloatArray


@dataclass(frozen=True)
class DistinctRows:
    """The distinct rows of a triples × rules matrix, in the order of first occurrence.

    Attributes:
        matrix: distinct rows × rules. In a ground network, a row is a rule multiset (see `GroundNetwork.multisets`).
        base: the base log-odds of each row. Rows with different base log-odds are distinct.
        row_of_triple: the distinct row of each triple, or -1 if the triple's row is empty.
    """

    matrix: sparse.csr_array
    base: FloatArray
    row_of_triple: IntArray

    @classmethod
    def of(cls, matrix: sparse.csr_array, base: FloatArray | None = None) -> "DistinctRows":
        """Return the distinct rows of a matrix. The default base log-odds are 0.

        Example:
            >>> DistinctRows.of(sparse.csr_array(np.array([[1.0], [0.0], [1.0]]))).row_of_triple
            array([ 0, -1,  0])
        """
        base = np.zeros(matrix.shape[0]) if base is None else base
        first_rows, row_of_triple = _find_distinct(
            matrix.indptr, matrix.indices, matrix.data.view(np.int64), base.view(np.int64)
        )
        return cls(matrix[first_rows], base[first_rows], row_of_triple)

    def deduplicate(self) -> "DistinctRows":
        """Return the same triples with equal rows merged and empty rows removed.

        Rows can become equal or empty when the matrix is changed.
        """
        distinct = DistinctRows.of(self.matrix, self.base)
        return DistinctRows(distinct.matrix, distinct.base, np.append(distinct.row_of_triple, -1)[self.row_of_triple])

    def append_columns(self, other: "DistinctRows") -> "DistinctRows":
        """Return the rows with the columns of another matrix of the same triples appended. Empty rows stay empty.

        Example:
            >>> left = DistinctRows.of(sparse.csr_array(np.array([[2.0], [2.0], [0.0]])))
            >>> right = DistinctRows.of(sparse.csr_array(np.array([[0.0], [-1.0], [-1.0]])))
            >>> left.append_columns(right).full_matrix.toarray().tolist()
            [[2.0, 0.0], [2.0, -1.0], [0.0, 0.0]]
        """
        has_row, n_right = self.row_of_triple >= 0, len(other.base)
        left, right = self.row_of_triple[has_row], other.row_of_triple[has_row]
        pairs, first, pair_of_triple = np.unique(
            left * (n_right + 1) + right + 1, return_index=True, return_inverse=True
        )
        order = np.argsort(first)
        left, right = np.divmod(pairs[order], n_right + 1)
        empty_row = sparse.csr_array((1, other.matrix.shape[1]))
        parts = [self.matrix[left], sparse.vstack([empty_row, other.matrix], format="csr")[right]]
        row_of_triple = np.full(len(has_row), -1)
        row_of_triple[has_row] = np.argsort(order)[pair_of_triple]
        return DistinctRows(sparse.csr_array(sparse.hstack(parts, format="csr")), self.base[left], row_of_triple)

    def merge(self, targets: FloatArray, count: FloatArray | None = None) -> MergedRows:
        """Return the number of triples and the sum of their targets per row. `count` is the weight of each triple.

        Example:
            >>> merged = DistinctRows.of(sparse.csr_array(np.ones((2, 1)))).merge(np.array([1.0, 0.5]))
            >>> merged.count, merged.total
            (array([2.]), array([1.5]))
        """
        has_row, n_rows = self.row_of_triple >= 0, len(self.base)
        count = np.ones(len(targets)) if count is None else count
        sums = (
            np.bincount(self.row_of_triple[has_row], values[has_row], n_rows) for values in (count, count * targets)
        )
        return MergedRows(self.matrix, self.base, *(total.astype(np.float64) for total in sums))

    def sums(self, weights: FloatArray) -> FloatArray:
        """Return matrix · weights for every triple, 0 for empty rows."""
        return np.asarray(np.append(self.matrix @ weights, 0.0)[self.row_of_triple])

    def row(self, triple: int) -> tuple[IntArray, FloatArray]:
        """Return the indices of the rules in a triple's row, and their values."""
        row = int(self.row_of_triple[triple])
        entries = slice(*self.matrix.indptr[row : row + 2]) if row >= 0 else slice(0)
        return self.matrix.indices[entries].astype(np.int64), self.matrix.data[entries]

    @property
    def full_matrix(self) -> sparse.csr_array:
        """The matrix with one row per triple."""
        empty_row = sparse.csr_array((1, self.matrix.shape[1]))
        return sparse.csr_array(sparse.vstack([self.matrix, empty_row], format="csr")[self.row_of_triple])


@compiled()
def _find_distinct(begin, rule, value, base):  # type: ignore[no-untyped-def]
    """Return the first occurrence of each distinct row and, for each row, the index of its distinct row or -1.

    begin, rule and value are the CSR arrays indptr, indices and data. `table` is a hash table with open addressing.
    """
    n_rows = len(base)
    capacity = 16
    while capacity < 2 * n_rows:
        capacity *= 2
    table = np.full(capacity, -1, dtype=np.int32)
    first_rows = np.empty(n_rows, dtype=np.int64)
    row_of_triple = np.full(n_rows, -1, dtype=np.int64)
    n = 0
    for row in range(n_rows):
        low, high = begin[row], begin[row + 1]
        if low == high:
            continue
        hash_ = np.uint64(base[row])
        for k in range(low, high):
            hash_ = (hash_ ^ np.uint64(rule[k])) * np.uint64(0x9E3779B97F4A7C15)
            hash_ = (hash_ ^ (hash_ >> np.uint64(29)) ^ np.uint64(value[k])) * np.uint64(0xBF58476D1CE4E5B9)
            hash_ ^= hash_ >> np.uint64(32)
        slot = np.int64(hash_ & np.uint64(capacity - 1))
        while table[slot] >= 0 and not _rows_equal(begin, rule, value, base, row, first_rows[table[slot]]):
            slot = (slot + 1) & (capacity - 1)
        if table[slot] < 0:
            table[slot] = n
            first_rows[n] = row
            n += 1
        row_of_triple[row] = table[slot]
    return first_rows[:n].copy(), row_of_triple


@compiled()
def _rows_equal(begin, rule, value, base, row, other):  # type: ignore[no-untyped-def]
    shift = begin[other] - begin[row]
    if base[other] != base[row] or begin[other + 1] - begin[row + 1] != shift:
        return False
    for k in range(begin[row], begin[row + 1]):
        if rule[k] != rule[k + shift] or value[k] != value[k + shift]:
            return False
    return True
