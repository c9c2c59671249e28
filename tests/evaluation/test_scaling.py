"""Platt scaling compared with a numerical optimiser, and with perfect or uninformative scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special

from plogicnet.evaluation.scaling import platt
from plogicnet.graph import FloatArray


def loss(parameters: FloatArray, scores: FloatArray, labels: FloatArray, counts: FloatArray) -> float:
    """Return the negative log-likelihood with Platt's targets, row by row."""
    positive = sum(c for c, y in zip(counts, labels, strict=True) if y)
    negative = sum(c for c, y in zip(counts, labels, strict=True) if not y)
    total = 0.0
    for s, y, c in zip(scores, labels, counts, strict=True):
        target = (positive + 1) / (positive + 2) if y else 1 / (negative + 2)
        odds = parameters[0] * s + parameters[1]
        total -= c * (target * special.log_expit(odds) + (1 - target) * special.log_expit(-odds))
    return total


@given(st.integers(2, 40), st.floats(0.1, 20), st.floats(-50, 50), st.integers(0, 2**31))
@settings(deadline=None, max_examples=15)
def test_platt_finds_the_maximum_likelihood(n: int, std: float, mean: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < 0.4).astype(float)
    scores = mean + std * (rng.normal(size=n) + labels)
    counts = rng.choice([1.0, 7.5], n)
    slope, offset = platt(scores, labels, counts)
    assert slope > 0
    value = loss(np.array([slope, offset]), scores, labels, counts)
    start = np.array([1 / std, -mean / std])
    best = optimize.minimize(loss, start, (scores, labels, counts), bounds=[(1e-3, None), (None, None)])
    assert value <= best.fun + 1e-6 * (1 + abs(best.fun))


def test_perfectly_separating_scores_get_a_finite_slope() -> None:
    scores, labels = np.array([-3.0, -2.0, 2.0, 3.0]), np.array([0.0, 0.0, 1.0, 1.0])
    slope, offset = platt(scores, labels, np.ones(4))
    assert 0.3 < slope < 3
    assert offset == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("scores", [np.zeros(6), np.array([3.0, 2.0, 1.0, -1.0, -2.0, -3.0])])
def test_uninformative_or_inverted_scores_give_the_base_rate_and_keep_their_order(scores: FloatArray) -> None:
    labels = np.array([0.0, 0.0, 0.0, 0.0, 1.0, 1.0])
    slope, offset = platt(scores, labels, np.ones(6))
    assert 0 < slope <= 1.01e-3
    assert special.expit(slope * scores + offset).mean() == pytest.approx((2 * 0.75 + 4 / 6) / 6, abs=1e-3)


def test_platt_recovers_a_known_line() -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(size=50_000) * 2 - 1
    labels = (rng.random(50_000) < special.expit(odds)).astype(float)
    slope, offset = platt((odds - 3) / 0.2, labels, np.ones(50_000))
    assert slope == pytest.approx(0.2, rel=0.05)
    assert offset == pytest.approx(3, abs=0.1)
