"""Learning of rule weights: the pseudolikelihood (Sec. 4.3 of the paper), Newton's method and gradient ascent."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse, special

from plogicnet import config
from plogicnet.graph import BoolArray, FloatArray
from plogicnet.grounding.rows import DistinctRows, MergedRows
from plogicnet.mln.components import Component, split_into_components
from plogicnet.mln.solver import maximise, variances
from plogicnet.support.threads import map_in_threads

log = logging.getLogger(__name__)
MAX_DENSE_RULES = 1_000
"""The largest number of rules in a component with a dense Hessian. Larger components use conjugate gradients."""
MAX_NEWTON_STEPS = 100
GRADIENT_TOLERANCE = 1e-8
MAX_QUIET_GRADIENT = 1e-4
"""If an entry of the final gradient is larger, a warning is logged."""


@dataclass(frozen=True)
class Pseudolikelihood:
    """The concave objective Σ_v c_v [y_v log p_v + (1 - y_v) log(1 - p_v)] - l2/2·‖w‖² with p = σ(b + X w).

    Attributes:
        matrix: X, with one row v per triple or per group of triples with equal rows, and one column per rule.
        base: b of each row, the base log-odds.
        target: y of each row, the probability that the triple is true.
        l2: the weight of the penalty.
        count: c of each row, the number of triples.

    Example:
        >>> one = sparse.csr_array(np.ones((4, 1)))
        >>> objective = Pseudolikelihood(one, np.zeros(4), np.array([1.0, 1, 1, 0]), l2=0.0)
        >>> round(float(newton(objective)[0]), 6) == round(float(np.log(3)), 6)  # the log-odds of 3 in 4
        True
    """

    matrix: sparse.csr_array
    base: FloatArray
    target: FloatArray
    l2: float
    count: FloatArray | float = 1.0

    def value(self, weights: FloatArray) -> float:
        """Return the value of the objective."""
        log_odds = self.base + self.matrix @ weights
        # log(1 - p) = -softplus(log_odds) and log p = log_odds - softplus(log_odds)
        log_likelihood = self.count * (self.target * log_odds - np.logaddexp(0.0, log_odds))
        return float(log_likelihood.sum() - self.l2 / 2 * weights @ weights)

    def gradient(self, weights: FloatArray) -> FloatArray:
        """Return the exact gradient Xᵀ c (y - p) - l2·w. This is Eq. 9 of the paper, with the numbers of groundings."""
        p = special.expit(self.base + self.matrix @ weights)
        return np.asarray(self.matrix.T @ (self.count * (self.target - p)) - self.l2 * weights)


def learn_weights(
    rows: DistinctRows,
    targets: FloatArray,
    settings: config.MLN,
    start: FloatArray | None = None,
    fixed: BoolArray | None = None,
    threads: int = 0,
) -> FloatArray:
    """Return the weights that maximise the pseudolikelihood (the M-step).

    Args:
        rows: the distinct rows of the triples × rules matrix.
        targets: y of each triple, the probability that it is true; NaN if it is unknown. Such triples are left out.
        settings: l2 and the solver.
        start: initial weights; NaN means 0.
        fixed: which weights keep their value in `start`. They are not penalised.
        threads: number of threads; 0 uses all cores. The result does not depend on it.

    Example:
        >>> half, targets = DistinctRows.of(sparse.csr_array(np.ones((2, 1)))), np.array([1.0, 0])
        >>> abs(float(learn_weights(half, targets, config.MLN())[0])) < 1e-9
        True
        >>> learn_weights(half, targets, config.MLN(), start=np.array([2.0]), fixed=np.array([True]))
        array([2.])
    """
    weights = _initial_weights(rows.matrix, start)
    is_free = _free_mask(rows.matrix, fixed)
    is_known = ~np.isnan(targets)
    merged = _fix_weights(rows, weights, is_free).merge(np.where(is_known, targets, 0.0), is_known.astype(np.float64))
    objective = _objective(merged, settings.l2)
    if settings.solver == "gradient":
        weights[is_free] = gradient_ascent(
            objective, settings.gradient.step, settings.gradient.iterations, weights[is_free]
        )
    else:
        weights[is_free] = _maximise(objective, weights[is_free], threads)
    return weights


def newton(objective: Pseudolikelihood, start: FloatArray | None = None, threads: int = 0) -> FloatArray:
    """Maximise an objective with Newton's method. The objective never decreases.

    Example:
        >>> one = Pseudolikelihood(sparse.csr_array(np.ones((4, 1))), np.zeros(4), np.array([1.0, 1, 1, 0]), l2=0.0)
        >>> newton(one).round(3)
        array([1.099])
    """
    return _maximise(merge_equal_rows(objective), _initial_weights(objective.matrix, start), threads)


def _maximise(objective: Pseudolikelihood, start: FloatArray, threads: int) -> FloatArray:
    """Maximise an objective with distinct, nonempty rows, one component at a time."""

    def solve(component: Component) -> FloatArray:
        limits = (MAX_DENSE_RULES, MAX_NEWTON_STEPS, GRADIENT_TOLERANCE)
        weights, _ = maximise(*component.rows, component.target, objective.l2, start[component.rules], *limits)
        return np.asarray(weights)

    weights = _solve_components(objective, solve, threads)
    largest = float(np.abs(objective.gradient(weights)).max(initial=0.0))
    if largest > MAX_QUIET_GRADIENT:
        log.warning("weight learning did not converge (largest gradient %.0e). Raise mln.l2.", largest)
    return weights


def gradient_ascent(
    objective: Pseudolikelihood, step: float, iterations: int, start: FloatArray | None = None
) -> FloatArray:
    """Maximise an objective with plain gradient ascent, as in the paper.

    Example:
        >>> one = Pseudolikelihood(sparse.csr_array(np.ones((1, 1))), np.zeros(1), np.ones(1), l2=0.0)
        >>> gradient_ascent(one, step=1.0, iterations=1)
        array([0.5])
    """
    weights = _initial_weights(objective.matrix, start)
    for _ in range(iterations):
        weights = weights + step * objective.gradient(weights)
    return weights


def standard_errors(
    rows: DistinctRows,
    weights: FloatArray,
    l2: float,
    fixed: BoolArray | None = None,
    threads: int = 0,
    is_known: BoolArray | None = None,
) -> FloatArray:
    """Return the standard errors √diag(H⁻¹), where H is the negative Hessian for the weights that are not fixed.

    With `is_known`, only these triples count.

    A standard error is NaN if the weight is fixed or if its component has more than MAX_DENSE_RULES rules. It is
    infinite if the triples do not determine the weights of its component.

    Example:
        >>> four = DistinctRows.of(sparse.csr_array(np.ones((4, 1))))
        >>> standard_errors(four, np.zeros(1), l2=0.0)  # 4 triples, variance 1/4
        array([1.])
    """
    is_free = _free_mask(rows.matrix, fixed)
    count = None if is_known is None else is_known.astype(np.float64)
    merged = _fix_weights(rows, weights, is_free).merge(np.zeros(len(rows.row_of_triple)), count)
    objective = _objective(merged, l2)
    free_weights = weights[is_free]

    def solve(component: Component) -> FloatArray:
        if len(component.rules) > MAX_DENSE_RULES:
            return np.full(len(component.rules), np.nan)
        return np.asarray(np.sqrt(variances(*component.rows, objective.l2, free_weights[component.rules])))

    errors = np.full(len(weights), np.nan)
    errors[is_free] = _solve_components(objective, solve, threads)
    return errors


def merge_equal_rows(objective: Pseudolikelihood) -> Pseudolikelihood:
    """Return the objective with equal rows merged and empty rows removed. Empty rows add only a constant.

    A merged row has the sum of the counts and the mean of the targets. This is exact, because the objective is linear
    in y.

    Example:
        >>> four = Pseudolikelihood(sparse.csr_array(np.ones((4, 1))), np.zeros(4), np.array([1.0, 1, 1, 0]), l2=0.0)
        >>> merged = merge_equal_rows(four)
        >>> merged.target, merged.count
        (array([0.75]), array([4.]))
    """
    matrix, base, target, count = objective.matrix, objective.base, objective.target, _row_counts(objective)
    return _objective(DistinctRows.of(matrix, base).merge(target, count), objective.l2)


def _objective(merged: MergedRows, l2: float) -> Pseudolikelihood:
    """Return the objective of merged rows. Rows that no triple counts for are removed."""
    matrix, base, count, total = merged.matrix, merged.base, merged.count, merged.total
    if not count.all():
        is_counted = count != 0
        matrix, base, count, total = matrix[is_counted], base[is_counted], count[is_counted], total[is_counted]
    return Pseudolikelihood(matrix, base, total / count, l2, count)


def _solve_components(
    objective: Pseudolikelihood, solve: Callable[[Component], FloatArray], threads: int
) -> FloatArray:
    """Call `solve` on each component and return one value per rule. Large components are first, to balance threads."""
    components = split_into_components(objective.matrix, objective.base, objective.target, _row_counts(objective))
    components.sort(key=lambda component: len(component.rules) ** 3 + len(component.value), reverse=True)
    values = np.zeros(objective.matrix.shape[1])
    for component, result in zip(components, map_in_threads(solve, components, threads), strict=True):
        values[component.rules] = result
    return values


def _row_counts(objective: Pseudolikelihood) -> FloatArray:
    count = objective.count
    return np.full(len(objective.base), count) if isinstance(count, float) else count


def _initial_weights(matrix: sparse.csr_array, start: FloatArray | None) -> FloatArray:
    """Return the initial weights, with 0 for missing ones."""
    return np.zeros(matrix.shape[1]) if start is None else np.where(np.isnan(start), 0.0, start)


def _free_mask(matrix: sparse.csr_array, fixed: BoolArray | None) -> BoolArray:
    return np.ones(matrix.shape[1], dtype=bool) if fixed is None else ~fixed


def _fix_weights(rows: DistinctRows, weights: FloatArray, is_free: BoolArray) -> DistinctRows:
    """Return the rows without the columns of fixed weights. Their contribution is added to the base log-odds."""
    if is_free.all():
        return rows
    base = rows.base + rows.matrix @ np.where(is_free, 0.0, weights)
    return DistinctRows(
        sparse.csr_array(rows.matrix[:, np.flatnonzero(is_free)]), base, rows.row_of_triple
    ).deduplicate()
