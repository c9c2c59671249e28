"""The contract of a metric: what tables and reports rely on, checked of any registered metric."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet.evaluation.metrics import METRICS, Metric

RANKS = st.lists(st.integers(2, 10**6).map(lambda twice: twice / 2), min_size=1, max_size=30)
"""Ranks are at least 1, and halves where candidates tie."""


def check_metric(metric: Metric) -> None:
    """All of the contract."""
    assert METRICS.get(metric.key) is metric, "it is registered under its key"
    assert metric.title

    def better(a: float, b: float) -> bool:
        return a >= b - 1e-12 if metric.higher_is_better else a <= b + 1e-12

    @given(RANKS, st.integers(0, 29), st.integers(0, 2**31))
    @settings(deadline=None, max_examples=100)
    def holds(ranks: list[float], place: int, seed: int) -> None:
        value = metric.of(np.array(ranks))
        assert np.isfinite(value)
        assert json.loads(json.dumps(value)) == value, "it is a plain number"
        assert metric.show(value)
        shuffled = np.random.default_rng(seed).permutation(ranks)
        assert metric.of(shuffled) == pytest.approx(value), "the order does not matter"
        assert metric.of(np.array([ranks, ranks]).T) == pytest.approx(value), "nor does the shape"
        assert better(metric.of(np.ones(len(ranks))), value), "perfect ranks are best"
        improved = [max(1.0, rank - 1) if i == place else rank for i, rank in enumerate(ranks)]
        assert better(metric.of(np.array(improved)), value), "a better rank is never worse"

    holds()
