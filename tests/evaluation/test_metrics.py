"""The registry of metrics: every metric follows the contract, and an added one appears in all results."""

import json
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.metrics import check_metric
from plogicnet.evaluation.metrics import METRICS, Metric, columns, compute_metrics
from plogicnet.evaluation.results import CalibrationQuality, RankingMetrics, Ranks, SplitMetrics
from plogicnet.evaluation.seeds import aggregate_seeds
from plogicnet.graph import demo_family
from toy_modules import toy


@pytest.fixture
def added() -> Iterator[Metric]:
    """A metric from another package, registered for one test."""
    metric: Metric = toy("toy_metric").HITS_AT_2
    METRICS.register(metric.key, metric)
    yield metric
    del METRICS._entries[metric.key]


@pytest.mark.parametrize("key", METRICS.names())
def test_built_in_metrics_follow_the_contract(key: str) -> None:
    check_metric(METRICS.get(key))


def test_a_metric_of_another_package_is_in_all_results(added: Metric) -> None:
    check_metric(added)
    graph = demo_family()
    first = np.zeros((len(graph.test), 2), dtype=np.int64)
    metrics = RankingMetrics.from_ranks(graph, "test", Ranks(n_better=first, n_tied=first))
    groups = [*metrics.by_side.values(), *metrics.by_relation.values(), *metrics.by_category.values()]
    for group in (metrics.overall, metrics.optimistic, metrics.pessimistic, *groups):
        assert group[added.key] == 1.0
    assert [metric.title for metric in columns()] == ["MRR", "Hits@1", "Hits@3", "Hits@10", "Hits@2", "MR"]
    split = SplitMetrics("test", 0.5, {"plogicnet*": metrics}, CalibrationQuality(0.1, 0.2))
    assert SplitMetrics.from_json(json.loads(json.dumps(split.to_json()))) == split
    assert aggregate_seeds([split, split])["plogicnet*"][added.key] == {"mean": 1.0, "sd": 0.0}


def slow_metrics(ranks: list[float]) -> dict[str, float]:
    n = len(ranks)
    metrics = {"mr": sum(ranks) / n, "mrr": sum(1 / r for r in ranks) / n}
    return metrics | {f"hits_at_{k}": sum(r <= k for r in ranks) / n for k in (1, 3, 10)}


@given(st.lists(st.integers(2, 60).map(lambda x: x / 2), min_size=1, max_size=30))
@settings(deadline=None, max_examples=50)
def test_metrics_equal_a_loop(ranks: list[float]) -> None:
    assert compute_metrics(np.array(ranks)) == pytest.approx(slow_metrics(ranks))


def test_metrics_without_ranks_are_zero() -> None:
    assert compute_metrics(np.empty((0, 2))) == {"mr": 0, "mrr": 0, "hits_at_1": 0, "hits_at_3": 0, "hits_at_10": 0}


def test_metrics_that_a_run_lacks_are_omitted_from_tables_and_means(added: Metric) -> None:
    rules = RankingMetrics({"mrr": 0.25}, {}, {}, {}, {}, {})
    old = SplitMetrics("valid", 1.0, {"rules": rules}, CalibrationQuality(0.1, 0.0))
    assert aggregate_seeds([old]) == {"rules": {"mrr": {"mean": 0.25, "sd": 0.0}}}
    assert added.show(rules.overall.get(added.key)) == "–"
