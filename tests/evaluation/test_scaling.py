"""Platt scaling against a search over a grid, and where scores say everything or nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special

from plogicnet.evaluation.scaling import platt
from plogicnet.graph import FloatArray


def loss(line: FloatArray, scores: FloatArray, labels: FloatArray, counts: FloatArray) -> float:
    """Minus the log-likelihood with Platt's targets, row by row."""
    positive = sum(c for c, y in zip(counts, labels, strict=True) if y)
    negative = sum(c for c, y in zip(counts, labels, strict=True) if not y)
    total = 0.0
    for s, y, c in zip(scores, labels, counts, strict=True):
        target = (positive + 1) / (positive + 2) if y else 1 / (negative + 2)
        odds = line[0] * s + line[1]
        total -= c * (target * special.log_expit(odds) + (1 - target) * special.log_expit(-odds))
    return total


@given(st.integers(2, 40), st.floats(0.1, 20), st.floats(-50, 50), st.integers(0, 2**31))
@settings(deadline=None, max_examples=15)
def test_the_line_is_the_best_there_is(n: int, spread: float, middle: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < 0.4).astype(float)
    scores = middle + spread * (rng.normal(size=n) + labels)
    counts = rng.choice([1.0, 7.5], n)
    slope, offset = platt(scores, labels, counts)
    assert slope > 0
    found = loss(np.array([slope, offset]), scores, labels, counts)
    start = np.array([1 / spread, -middle / spread])
    best = optimize.minimize(loss, start, (scores, labels, counts), bounds=[(1e-3, None), (None, None)])
    assert found <= best.fun + 1e-6 * (1 + abs(best.fun))


def test_scores_that_separate_perfectly_ask_for_no_endless_slope() -> None:
    scores, labels = np.array([-3.0, -2.0, 2.0, 3.0]), np.array([0.0, 0.0, 1.0, 1.0])
    slope, offset = platt(scores, labels, np.ones(4))
    assert 0.3 < slope < 3
    assert offset == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("scores", [np.zeros(6), np.array([3.0, 2.0, 1.0, -1.0, -2.0, -3.0])])
def test_scores_that_say_nothing_or_the_contrary_leave_the_base_rate_and_the_order(scores: FloatArray) -> None:
    labels = np.array([0.0, 0.0, 0.0, 0.0, 1.0, 1.0])
    slope, offset = platt(scores, labels, np.ones(6))
    assert 0 < slope <= 1.01e-3
    assert special.expit(slope * scores + offset).mean() == pytest.approx((2 * 0.75 + 4 / 6) / 6, abs=1e-3)


def test_probabilities_are_calibrated_on_what_they_were_fitted_on() -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(size=50_000) * 2 - 1
    labels = (rng.random(50_000) < special.expit(odds)).astype(float)
    slope, offset = platt((odds - 3) / 0.2, labels, np.ones(50_000))
    assert slope == pytest.approx(0.2, rel=0.05)
    assert offset == pytest.approx(3, abs=0.1)
