"""Platt scaling: the line that makes σ of a score a probability."""

import numpy as np
from scipy import special

from plogicnet.graph import FloatArray

LEAST_SLOPE = 1e-3
STEPS = 100


def platt(scores: FloatArray, labels: FloatArray, counts: FloatArray) -> tuple[float, float]:
    """The (slope > 0, offset) for which σ(slope · score + offset) has the greatest likelihood; each row counts as told.

    Labels are drawn a little towards each other, as Platt has it (one more of either kind), so that scores that
    separate them perfectly do not ask for an endless slope. Scores that say nothing get a slope of almost zero.

    Example:
        >>> slope, offset = platt(np.array([-2.0, 0.0, 0.0, 2.0]), np.array([0.0, 0.0, 1.0, 1.0]), np.ones(4))
        >>> slope > 0 and abs(offset) < 1e-6
        True
    """
    positive, negative = counts[labels > 0].sum(), counts[labels <= 0].sum()
    target = np.where(labels > 0, (positive + 1) / (positive + 2), 1 / (negative + 2))
    # in units of their own spread, so that Newton's steps are well scaled
    middle, spread = float(np.mean(scores)), float(np.std(scores)) or 1.0
    design = np.stack([(scores - middle) / spread, np.ones(len(scores))], axis=1)
    slope, offset = _newton(design, target, counts, np.array([0.0, 0.0]))
    if slope / spread < LEAST_SLOPE:
        fixed = LEAST_SLOPE * spread * design[:, 0]
        slope, offset = LEAST_SLOPE * spread, _newton(design[:, 1:], target, counts, np.zeros(1), fixed)[0]
    return float(slope / spread), float(offset - slope * middle / spread)


def _newton(
    design: FloatArray, target: FloatArray, counts: FloatArray, start: FloatArray, fixed: FloatArray | float = 0.0
) -> FloatArray:
    """The coefficients of greatest likelihood: Newton's method, each step halved until it gains."""

    def loss(coefficients: FloatArray) -> float:
        odds = design @ coefficients + fixed
        return float(counts @ (np.logaddexp(0.0, odds) - target * odds))

    now, value = start, loss(start)
    for _ in range(STEPS):
        p = special.expit(design @ now + fixed)
        gradient = design.T @ (counts * (p - target))
        hessian = (design * (counts * p * (1 - p))[:, None]).T @ design + 1e-9 * np.eye(len(now))
        step = np.linalg.solve(hessian, gradient)
        while (new := loss(now - step)) > value and np.abs(step).max() > 1e-12:
            step = step / 2
        if value - new <= 1e-12 * abs(value):
            break
        now, value = now - step, new
    return np.asarray(now)
