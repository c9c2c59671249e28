"""Splitting the objective of the M-step into components of rules that share no triples."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from plogicnet.graph import FloatArray, IntArray
from plogicnet.support.compiling import compiled


@dataclass(frozen=True)
class Component:
    """Some rules and all distinct rows with an entry of these rules, as a sparse matrix.

    Attributes:
        rules: the columns of the rules in the full matrix.
        begin: the beginning of each row's entries, and the end of the last row.
        rule, value: the rule (index into `rules`) and the value of each entry.
        base, target, count: b, y and c of each row; see `Pseudolikelihood`.
    """

    rules: IntArray
    begin: IntArray
    rule: NDArray[np.int32]
    value: FloatArray
    base: FloatArray
    target: FloatArray
    count: FloatArray

    @property
    def rows(self) -> tuple[IntArray, NDArray[np.int32], FloatArray, FloatArray, FloatArray]:
        """The arguments begin, rule, value, base and count of the functions in `mln.solver`."""
        return self.begin, self.rule, self.value, self.base, self.count


def split_into_components(
    matrix: sparse.csr_array, base: FloatArray, target: FloatArray, count: FloatArray
) -> list[Component]:
    """Return the connected components, sorted by first rule. Two rules are connected if a row has entries of both.

    The components can be solved separately, because the Hessian is block-diagonal. With the hypothesis blanket, rules
    that conclude different relations are never connected. So thousands of rules form components of a few hundred rules
    or less. Every row must have an entry.

    Example:
        >>> matrix = sparse.csr_array(np.array([[1.0, 0, 2], [0, 1, 0]]))
        >>> components = split_into_components(matrix, np.array([3.0, 4]), *np.ones((2, 2)))
        >>> [(component.rules.tolist(), component.base.tolist()) for component in components]
        [([0, 2], [3.0]), ([1], [4.0])]
    """
    component_of_rule, n_components = _find_components(matrix.indptr, matrix.indices, matrix.shape[1])
    component_of_row = component_of_rule[matrix.indices[matrix.indptr[:-1]]]
    rules, rows = np.argsort(component_of_rule, kind="stable"), np.argsort(component_of_row, kind="stable")
    boundaries = np.arange(n_components + 1)
    rules_begin, rows_begin = (
        np.searchsorted(component_of_rule[rules], boundaries),
        np.searchsorted(component_of_row[rows], boundaries),
    )
    local_index = np.empty(len(rules), dtype=np.int32)
    local_index[rules] = np.arange(len(rules)) - rules_begin[component_of_rule[rules]]
    ordered = matrix[rows]
    ordered.sum_duplicates()  # also sorts each row by rule, as the compiled code expects
    begin, rule = ordered.indptr.astype(np.int64), local_index[ordered.indices]
    base, target, count = base[rows], target[rows], count[rows]

    def build_component(i: int) -> Component:
        start, stop = rows_begin[i], rows_begin[i + 1]
        low, high = begin[start], begin[stop]
        return Component(
            rules[rules_begin[i] : rules_begin[i + 1]],
            begin[start : stop + 1] - low,
            rule[low:high],
            ordered.data[low:high],
            base[start:stop],
            target[start:stop],
            count[start:stop],
        )

    return [build_component(i) for i in range(n_components)]


@compiled()
def _find_components(begin, rule, n_rules):  # type: ignore[no-untyped-def]
    """Return the component of each rule and the number of components (union-find)."""
    parent = np.arange(n_rules)
    for row in range(len(begin) - 1):
        a = _find_root(parent, rule[begin[row]])
        for k in range(begin[row] + 1, begin[row + 1]):
            b = _find_root(parent, rule[k])
            parent[max(a, b)] = a = min(a, b)
    component = np.empty(n_rules, dtype=np.int64)
    n_components = 0
    for j in range(n_rules):  # a root is the smallest rule of its component, so it comes first
        root = _find_root(parent, j)
        if root == j:
            component[j] = n_components
            n_components += 1
        else:
            component[j] = component[root]
    return component, n_components


@compiled()
def _find_root(parent, j):  # type: ignore[no-untyped-def]
    while parent[j] != j:
        parent[j] = parent[parent[j]]
        j = parent[j]
    return j
