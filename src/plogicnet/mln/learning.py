"""Learning rule weights: the pseudolikelihood of Sec. 4.3, its gradient, Newton's method and the paper's ascent."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import linalg, sparse, special
from scipy.sparse import linalg as sparse_linalg

from plogicnet import config
from plogicnet.graph import FloatArray

log = logging.getLogger(__name__)
DENSE_UP_TO = 3_000
"""Up to so many weights the Hessian is factored; beyond, conjugate gradients only multiply with it."""
NEWTON_STEPS = 200
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


def learn_weights(objective: Pseudolikelihood, settings: config.MLN) -> FloatArray:
    """The M-step: the weights that maximise the objective, by the solver that the settings name.

    Example:
        >>> half = Pseudolikelihood(sparse.csr_array(np.ones((2, 1))), np.zeros(2), np.array([1.0, 0]), l2=1.0)
        >>> abs(float(learn_weights(half, config.MLN())[0])) < 1e-9
        True
    """
    if objective.matrix.shape[1] == 0:
        return np.zeros(0)
    # triples without a grounding say nothing about the weights
    reached = np.diff(objective.matrix.indptr) > 0
    count = objective.count if isinstance(objective.count, float) else objective.count[reached]
    useful = Pseudolikelihood(
        objective.matrix[reached], objective.base[reached], objective.target[reached], objective.l2, count
    )
    if settings.solver == "gradient":
        return ascend(useful, settings.gradient.step, settings.gradient.iterations)
    return newton(useful)


def newton(objective: Pseudolikelihood) -> FloatArray:
    """Damped Newton from w = 0; but for rounding, the objective never falls.

    Far from the maximum a rare relation's p(1 - p) is tiny and a full step would leap into saturation, where no
    curvature is left to come back by. So the Hessian is damped by a multiple of the identity (Levenberg), which falls
    with each step that gains what the quadratic model promises, and rises faster and faster where none is gained.
    """
    weights = np.zeros(objective.matrix.shape[1])
    value, damping, rise = objective.value(weights), 10.0, 4.0
    for _ in range(NEWTON_STEPS):
        gradient = objective.gradient(weights)
        if np.abs(gradient).max(initial=0.0) <= GRADIENT_ENOUGH:
            return weights
        step = _newton_step(objective, weights, gradient, damping)
        tried = objective.value(weights + step)
        promised = float(gradient @ step + damping * step @ step) / 2
        rounding = 1e-14 * abs(value)  # near the maximum a gain may drown in it
        share = (tried - value + rounding) / (promised + rounding)
        if share > 1e-4:
            weights, value = weights + step, tried
            damping, rise = damping * max(0.1, 1 - (2 * share - 1) ** 3), 4.0
        else:
            damping, rise = max(damping, 1e-3) * rise, 4 * rise
    steepest = float(np.abs(objective.gradient(weights)).max(initial=0.0))
    if steepest > GRADIENT_WORTH_A_WORD:
        log.warning("the rule weights are not at their maximum (gradient %.0e); a larger mln.l2 helps", steepest)
    return weights


def ascend(objective: Pseudolikelihood, step: float, iterations: int) -> FloatArray:
    """The paper's plain gradient ascent from w = 0."""
    weights = np.zeros(objective.matrix.shape[1])
    for _ in range(iterations):
        weights = weights + step * objective.gradient(weights)
    return weights


def _newton_step(objective: Pseudolikelihood, weights: FloatArray, gradient: FloatArray, damping: float) -> FloatArray:
    """Solves (Xᵀ D X + (l2 + damping)·I) step = gradient; a trace of ridge keeps it from being singular."""
    matrix, curvature, ridge = objective.matrix, objective.curvature(weights), objective.l2 + damping + 1e-10
    size = len(weights)
    if size <= DENSE_UP_TO:
        hessian = (matrix.T @ (sparse.diags_array(curvature) @ matrix)).toarray() + ridge * np.eye(size)
        return np.asarray(linalg.solve(hessian, gradient, assume_a="pos"))
    diagonal = np.asarray(matrix.multiply(matrix).T @ curvature) + ridge
    multiply: Callable[[FloatArray], FloatArray] = lambda v: matrix.T @ (curvature * (matrix @ v)) + ridge * v  # noqa: E731
    operator = sparse_linalg.LinearOperator((size, size), matvec=multiply, dtype=np.float64)
    scale = sparse_linalg.LinearOperator((size, size), matvec=lambda v: v / diagonal, dtype=np.float64)
    # as precise as the gradient is small: few inner steps far away, Newton's convergence near the maximum
    tolerance = min(0.1, float(np.sqrt(np.abs(gradient).max())))
    step, _ = sparse_linalg.cg(operator, gradient, rtol=tolerance, maxiter=1000, M=scale)
    return np.asarray(step)
