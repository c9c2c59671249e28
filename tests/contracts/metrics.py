"""The contract of metrics, checked for any registered metric."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet.evaluation.metrics import METRICS, Metric

RANKS = st.lists(st.integers(2, 10**6).map(lambda twice: twice / 2), min_size=1, max_size=30)
"""Ranks are at least 1; ties can give halves."""


def check_metric(metric: Metric) -> None:
    """Check the whole contract."""
    assert METRICS.get(metric.key) is metric, "the metric must be registered under its key"
    assert metric.title

    def at_least_as_good(a: float, b: float) -> bool:
        return a >= b - 1e-12 if metric.higher_is_better else a <= b + 1e-12

    @given(RANKS, st.integers(0, 29), st.integers(0, 2**31))
    @settings(deadline=None, max_examples=100)
    def check(ranks: list[float], index: int, seed: int) -> None:
        value = metric.compute(np.array(ranks))
        assert np.isfinite(value)
        assert json.loads(json.dumps(value)) == value, "the value must be a plain number"
        assert metric.show(value)
        shuffled = np.random.default_rng(seed).permutation(ranks)
        assert metric.compute(shuffled) == pytest.approx(value), "the order must not matter"
        assert metric.compute(np.array([ranks, ranks]).T) == pytest.approx(value), "the shape must not matter"
        assert at_least_as_good(metric.compute(np.ones(len(ranks))), value), "perfect ranks must be best"
        improved = [max(1.0, rank - 1) if i == index else rank for i, rank in enumerate(ranks)]
        assert at_least_as_good(metric.compute(np.array(improved)), value), (
            "a better rank must never give a worse value"
        )

    check()
