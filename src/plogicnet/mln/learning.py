"""Learning rule weights: the pseudolikelihood of Sec. 4.3, its gradient, Newton's method and the paper's ascent."""

import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from scipy import sparse, special

from plogicnet import config
from plogicnet.graph import BoolArray, FloatArray
from plogicnet.grounding.rows import Merged, Rows
from plogicnet.mln.parts import Part, cut
from plogicnet.mln.solver import maximise, variances

log = logging.getLogger(__name__)
DENSE_UP_TO = 1_000
"""Up to so many weights a part's Hessian is factored; beyond, conjugate gradients only multiply with it."""
NEWTON_STEPS = 100
GRADIENT_ENOUGH = 1e-8
GRADIENT_TO_WARN_OF = 1e-4


@dataclass(frozen=True)
class Pseudolikelihood:
    """The concave objective Σ_v c_v [y_v log p_v + (1 - y_v) log(1 - p_v)] - l2/2·‖w‖², p = σ(b + X w).

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
        """The objective."""
        odds = self.base + self.matrix @ weights
        # log(1 - p) = -softplus(odds) and log p = odds - softplus(odds)
        gain = self.count * (self.target * odds - np.logaddexp(0.0, odds))
        return float(gain.sum() - self.l2 / 2 * weights @ weights)

    def gradient(self, weights: FloatArray) -> FloatArray:
        """The exact gradient: Xᵀ(y - p) - l2·w (Eq. 9 with the grounding counts kept)."""
        p = special.expit(self.base + self.matrix @ weights)
        return np.asarray(self.matrix.T @ (self.count * (self.target - p)) - self.l2 * weights)


def learn_weights(
    rows: Rows,
    targets: FloatArray,
    settings: config.MLN,
    start: FloatArray | None = None,
    fixed: BoolArray | None = None,
    threads: int = 0,
) -> FloatArray:
    """The M-step: the weights that maximise the pseudolikelihood, by the solver that the settings name.

    Args:
        rows: the triples × rules matrix and base, with equal triples as one row.
        targets: y of each triple.
        settings: l2, and which solver.
        start: where the search begins; NaN, and without it every weight: at 0.
        fixed: which weights stay as `start` has them. They are part of the others' base; l2 leaves them alone.
        threads: 0: all cores. The weights are the same bits on any number.

    Example:
        >>> half, targets = Rows.of(sparse.csr_array(np.ones((2, 1)))), np.array([1.0, 0])
        >>> abs(float(learn_weights(half, targets, config.MLN())[0])) < 1e-9
        True
        >>> learn_weights(half, targets, config.MLN(), start=np.array([2.0]), fixed=np.array([True]))
        array([2.])
    """
    weights = _weights(rows.matrix, start)
    free = _free(rows.matrix, fixed)
    learned = _objective(_given(rows, weights, free).merged(targets), settings.l2)
    if settings.solver == "gradient":
        weights[free] = ascend(learned, settings.gradient.step, settings.gradient.iterations, weights[free])
    else:
        weights[free] = _maximum(learned, weights[free], threads)
    return weights


def newton(objective: Pseudolikelihood, start: FloatArray | None = None, threads: int = 0) -> FloatArray:
    """The maximum by Newton's method, part by part; the objective never falls on the way.

    Example:
        >>> one = Pseudolikelihood(sparse.csr_array(np.ones((4, 1))), np.zeros(4), np.array([1.0, 1, 1, 0]), l2=0.0)
        >>> newton(one).round(3)
        array([1.099])
    """
    return _maximum(merged(objective), _weights(objective.matrix, start), threads)


def _maximum(objective: Pseudolikelihood, begun: FloatArray, threads: int) -> FloatArray:
    """The same for an objective whose rows are distinct."""

    def solve(part: Part) -> FloatArray:
        limits = (DENSE_UP_TO, NEWTON_STEPS, GRADIENT_ENOUGH)
        found, _ = maximise(*part.rows, part.target, objective.l2, begun[part.rules], *limits)
        return np.asarray(found)

    weights = _by_part(objective, solve, threads)
    steepest = float(np.abs(objective.gradient(weights)).max(initial=0.0))
    if steepest > GRADIENT_TO_WARN_OF:
        log.warning("the rule weights are not at their maximum (gradient %.0e); a larger mln.l2 helps", steepest)
    return weights


def ascend(objective: Pseudolikelihood, step: float, iterations: int, start: FloatArray | None = None) -> FloatArray:
    """The paper's plain gradient ascent.

    Example:
        >>> one = Pseudolikelihood(sparse.csr_array(np.ones((1, 1))), np.zeros(1), np.ones(1), l2=0.0)
        >>> ascend(one, step=1.0, iterations=1)
        array([0.5])
    """
    weights = _weights(objective.matrix, start)
    for _ in range(iterations):
        weights = weights + step * objective.gradient(weights)
    return weights


def standard_errors(
    rows: Rows, weights: FloatArray, l2: float, fixed: BoolArray | None = None, threads: int = 0
) -> FloatArray:
    """How far each weight may be off: √diag(H⁻¹), H the objective's negative Hessian over the weights that are free.

    NaN for a fixed weight and where a part has more than DENSE_UP_TO rules; infinite where the triples do not
    determine the weights of a part.

    Example:
        >>> standard_errors(Rows.of(sparse.csr_array(np.ones((4, 1)))), np.zeros(1), l2=0.0)  # 4 triples, variance 1/4
        array([1.])
    """
    free = _free(rows.matrix, fixed)
    given = _objective(_given(rows, weights, free).merged(np.zeros(len(rows.number))), l2)
    learned = weights[free]

    def solve(part: Part) -> FloatArray:
        if len(part.rules) > DENSE_UP_TO:
            return np.full(len(part.rules), np.nan)
        return np.asarray(np.sqrt(variances(*part.rows, given.l2, learned[part.rules])))

    errors = np.full(len(weights), np.nan)
    errors[free] = _by_part(given, solve, threads)
    return errors


def merged(objective: Pseudolikelihood) -> Pseudolikelihood:
    """The same objective, with equal triples as one row and without those that no rule reaches (a constant).

    Such a row counts as often as they do and has their mean target: the objective is linear in y.

    Example:
        >>> four = Pseudolikelihood(sparse.csr_array(np.ones((4, 1))), np.zeros(4), np.array([1.0, 1, 1, 0]), l2=0.0)
        >>> merged(four).target, merged(four).count
        (array([0.75]), array([4.]))
    """
    matrix, base, target, count = objective.matrix, objective.base, objective.target, _counts(objective)
    if not count.all():
        used = count != 0
        matrix, base, target, count = matrix[used], base[used], target[used], count[used]
    return _objective(Rows.of(matrix, base).merged(target, count), objective.l2)


def _objective(merged: Merged, l2: float) -> Pseudolikelihood:
    return Pseudolikelihood(merged.matrix, merged.base, merged.total / merged.count, l2, merged.count)


def _by_part(objective: Pseudolikelihood, solve: Callable[[Part], FloatArray], threads: int) -> FloatArray:
    """One figure a rule, from `solve` on each part; the largest parts first, so that threads end together."""
    parts = cut(objective.matrix, objective.base, objective.target, _counts(objective))
    parts.sort(key=lambda part: len(part.rules) ** 3 + len(part.times), reverse=True)
    figures = np.zeros(objective.matrix.shape[1])
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        for part, found in zip(parts, pool.map(solve, parts), strict=True):
            figures[part.rules] = found
    return figures


def _counts(objective: Pseudolikelihood) -> FloatArray:
    count = objective.count
    return np.full(len(objective.base), count) if isinstance(count, float) else count


def _weights(matrix: sparse.csr_array, start: FloatArray | None) -> FloatArray:
    """Where the search begins: zero where nothing is given."""
    return np.zeros(matrix.shape[1]) if start is None else np.where(np.isnan(start), 0.0, start)


def _free(matrix: sparse.csr_array, fixed: BoolArray | None) -> BoolArray:
    return np.ones(matrix.shape[1], dtype=bool) if fixed is None else ~fixed


def _given(rows: Rows, weights: FloatArray, free: BoolArray) -> Rows:
    """The rows of the free weights alone: what the others contribute moves into the base."""
    if free.all():
        return rows
    base = rows.base + rows.matrix @ np.where(free, 0.0, weights)
    return Rows(sparse.csr_array(rows.matrix[:, np.flatnonzero(free)]), base, rows.number).distinct()
