"""Platt scaling: the linear function of a score whose σ is a probability."""

import numpy as np
from scipy import sparse

from plogicnet.graph import FloatArray
from plogicnet.mln import Pseudolikelihood, newton

MIN_SLOPE = 1e-3
"""The slope of uninformative scores. It must be positive, so that the order of the scores is kept."""


def platt(scores: FloatArray, labels: FloatArray, counts: FloatArray) -> tuple[float, float]:
    """Return (slope, offset) that maximise the likelihood of σ(slope · score + offset), weighted by `counts`.

    As in Platt's method, the targets are smoothed as if there were one more row of each label. So the slope is finite
    even if the scores separate the labels perfectly. It is at least `MIN_SLOPE`.

    Example:
        >>> slope, offset = platt(np.array([-2.0, 0.0, 0.0, 2.0]), np.array([0.0, 0.0, 1.0, 1.0]), np.ones(4))
        >>> slope > 0 and abs(offset) < 1e-6
        True
    """
    positive, negative = counts[labels > 0].sum(), counts[labels <= 0].sum()
    target = np.where(labels > 0, (positive + 1) / (positive + 2), 1 / (negative + 2))
    # standardise the scores, so that Newton's method converges
    mean, std = float(np.mean(scores)), float(np.std(scores)) or 1.0
    scaled, ones = (scores - mean) / std, np.ones(len(scores))

    def fit(columns: list[FloatArray], base: FloatArray) -> list[float]:
        design = sparse_design(np.stack(columns, axis=1))
        return list(newton(Pseudolikelihood(design, base, target, l2=0.0, count=counts)).tolist())

    slope, offset = fit([scaled, ones], np.zeros(len(scores)))
    if slope / std < MIN_SLOPE:
        slope = MIN_SLOPE * std
        [offset] = fit([ones], slope * scaled)
    return slope / std, offset - slope * mean / std


def sparse_design(design: FloatArray) -> sparse.csr_array:
    """Convert a narrow matrix to CSR, with less memory than scipy's conversion."""
    nonzero = design != 0
    column = np.broadcast_to(np.arange(design.shape[1], dtype=np.int32), design.shape)[nonzero]
    row_starts = np.append(0, np.cumsum(nonzero.sum(axis=1)))
    return sparse.csr_array((design[nonzero], column, row_starts.astype(np.int32)), design.shape)
