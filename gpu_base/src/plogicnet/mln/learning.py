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
from plogicnet.mln.parts import Part, cut, merge
from plogicnet.mln.solver import maximise, variances

log = logging.getLogger(__name__)
DENSE_UP_TO = 1_000
"""Up to so many weights a part's Hessian is factored; beyond, conjugate gradients only multiply with it."""
NEWTON_STEPS = 100
GRADIENT_ENOUGH = 1e-8
GRADIENT_WORTH_A_WORD = 1e-4


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

    def curvature(self, weights: FloatArray) -> FloatArray:
        """The diagonal D of the negative Hessian Xᵀ D X + l2·I."""
        p = special.expit(self.base + self.matrix @ weights)
        return np.asarray(self.count * p * (1 - p))


def learn_weights(
    objective: Pseudolikelihood,
    settings: config.MLN,
    start: FloatArray | None = None,
    fixed: BoolArray | None = None,
    threads: int = 0,
) -> FloatArray:
    """The M-step: the weights that maximise the objective, by the solver that the settings name.

    Args:
        objective: what is maximised.
        settings: which solver.
        start: where the search begins; NaN, and without it every weight: at 0.
        fixed: which weights stay as `start` has them. What they say is part of the others' base; l2 leaves them alone.
        threads: 0: all cores. The weights are the same bits on any number.

    Example:
        >>> half = Pseudolikelihood(sparse.csr_array(np.ones((2, 1))), np.zeros(2), np.array([1.0, 0]), l2=1.0)
        >>> abs(float(learn_weights(half, config.MLN())[0])) < 1e-9
        True
        >>> learn_weights(half, config.MLN(), start=np.array([2.0]), fixed=np.array([True]))
        array([2.])
    """
    weights = _weights(objective, start)
    free = _free(objective, fixed)
    learned = _given(objective, weights, free)
    if settings.solver == "gradient":
        weights[free] = ascend(merged(learned), settings.gradient.step, settings.gradient.iterations, weights[free])
    else:
        weights[free] = newton(learned, weights[free], threads)
    return weights


def newton(objective: Pseudolikelihood, start: FloatArray | None = None, threads: int = 0) -> FloatArray:
    """The maximum by Newton's method, part by part; the objective never falls on the way.

    Example:
        >>> one = Pseudolikelihood(sparse.csr_array(np.ones((4, 1))), np.zeros(4), np.array([1.0, 1, 1, 0]), l2=0.0)
        >>> newton(one).round(3)
        array([1.099])
    """
    begun, objective = _weights(objective, start), merged(objective)

    def solve(part: Part) -> FloatArray:
        limits = (DENSE_UP_TO, NEWTON_STEPS, GRADIENT_ENOUGH)
        found, _ = maximise(*part.rows, part.target, objective.l2, begun[part.rules], *limits)
        return np.asarray(found)

    weights = _by_part(objective, solve, threads)
    steepest = float(np.abs(objective.gradient(weights)).max(initial=0.0))
    if steepest > GRADIENT_WORTH_A_WORD:
        log.warning("the rule weights are not at their maximum (gradient %.0e); a larger mln.l2 helps", steepest)
    return weights


def ascend(objective: Pseudolikelihood, step: float, iterations: int, start: FloatArray | None = None) -> FloatArray:
    """The paper's plain gradient ascent.

    Example:
        >>> one = Pseudolikelihood(sparse.csr_array(np.ones((1, 1))), np.zeros(1), np.ones(1), l2=0.0)
        >>> ascend(one, step=1.0, iterations=1)
        array([0.5])
    """
    weights = _weights(objective, start)
    for _ in range(iterations):
        weights = weights + step * objective.gradient(weights)
    return weights


def standard_errors(
    objective: Pseudolikelihood, weights: FloatArray, fixed: BoolArray | None = None, threads: int = 0
) -> FloatArray:
    """How far each weight may be off: √diag(H⁻¹), H the objective's negative Hessian over the weights that are free.

    NaN for a fixed weight and where a part has more than DENSE_UP_TO rules; infinite where the triples do not tell the
    weights of a part apart.

    Example:
        >>> one = Pseudolikelihood(sparse.csr_array(np.ones((4, 1))), np.zeros(4), np.array([1.0, 1, 0, 0]), l2=0.0)
        >>> standard_errors(one, np.zeros(1))  # four triples of variance 1/4
        array([1.])
    """
    free = _free(objective, fixed)
    given = merged(_given(objective, weights, free))
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

    Example:
        >>> four = Pseudolikelihood(sparse.csr_array(np.ones((4, 1))), np.zeros(4), np.array([1.0, 1, 1, 0]), l2=0.0)
        >>> merged(four).target, merged(four).count
        (array([0.75]), array([4.]))
    """
    matrix, base, target, count = merge(objective.matrix, objective.base, objective.target, _counts(objective))
    return Pseudolikelihood(matrix, base, target, objective.l2, count)


def _by_part(objective: Pseudolikelihood, solve: Callable[[Part], FloatArray], threads: int) -> FloatArray:
    """One figure a rule, by what `solve` says of the parts; the largest ones first, so that threads end together."""
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


def _weights(objective: Pseudolikelihood, start: FloatArray | None) -> FloatArray:
    """Where the search begins: zero where nothing else is said."""
    size = objective.matrix.shape[1]
    return np.zeros(size) if start is None else np.where(np.isnan(start), 0.0, start)


def _free(objective: Pseudolikelihood, fixed: BoolArray | None) -> BoolArray:
    return np.ones(objective.matrix.shape[1], dtype=bool) if fixed is None else ~fixed


def _given(objective: Pseudolikelihood, weights: FloatArray, free: BoolArray) -> Pseudolikelihood:
    """The objective of the free weights alone: what the others say moves into the base."""
    if free.all():
        return objective
    base = objective.base + objective.matrix @ np.where(free, 0.0, weights)
    matrix = sparse.csr_array(objective.matrix[:, np.flatnonzero(free)])
    return Pseudolikelihood(matrix, base, objective.target, objective.l2, objective.count)
