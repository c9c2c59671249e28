"""Platt scaling: the line that makes σ of a score a probability."""

import numpy as np
from scipy import sparse

from plogicnet.graph import FloatArray
from plogicnet.mln import Pseudolikelihood, newton

LEAST_SLOPE = 1e-3


def platt(scores: FloatArray, labels: FloatArray, counts: FloatArray) -> tuple[float, float]:
    """The (slope > 0, offset) for which σ(slope · score + offset) has the greatest likelihood, rows weighted by counts.

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
    scaled, ones = (scores - middle) / spread, np.ones(len(scores))

    def fit(columns: list[FloatArray], base: FloatArray) -> list[float]:
        design = sparse_design(np.stack(columns, axis=1))
        return list(newton(Pseudolikelihood(design, base, target, l2=0.0, count=counts)).tolist())

    slope, offset = fit([scaled, ones], np.zeros(len(scores)))
    if slope / spread < LEAST_SLOPE:
        slope = LEAST_SLOPE * spread
        [offset] = fit([ones], slope * scaled)
    return slope / spread, offset - slope * middle / spread


def sparse_design(design: FloatArray) -> sparse.csr_array:
    """A narrow matrix's entries; scipy's own conversion holds it several times over."""
    there = design != 0
    column = np.broadcast_to(np.arange(design.shape[1], dtype=np.int32), design.shape)[there]
    begin = np.append(0, np.cumsum(there.sum(axis=1)))
    return sparse.csr_array((design[there], column, begin.astype(np.int32)), design.shape)
