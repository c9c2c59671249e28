"""The list of metrics: every metric keeps the contract, and one that is added is everywhere."""

import json
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.metrics import check_metric
from plogicnet.evaluation.figures import RankingFigures, Ranks, Reliability, SplitFigures
from plogicnet.evaluation.metrics import METRICS, Metric, columns, summary
from plogicnet.evaluation.seeds import over_seeds
from plogicnet.graph import demo_family
from toy_modules import toy


@pytest.fixture
def added() -> Iterator[Metric]:
    """A metric from outside the package, registered for one test."""
    metric: Metric = toy("toy_metric").HITS_AT_2
    METRICS.register(metric.key, metric)
    yield metric
    del METRICS._entries[metric.key]


@pytest.mark.parametrize("key", METRICS.names())
def test_built_in_metrics_keep_the_contract(key: str) -> None:
    check_metric(METRICS.get(key))


def test_a_metric_of_another_package_is_in_every_figure(added: Metric) -> None:
    check_metric(added)
    graph = demo_family()
    first = np.zeros((len(graph.test), 2), dtype=np.int64)
    figures = RankingFigures.of(graph, "test", Ranks(better=first, level=first))
    groups = [*figures.by_side.values(), *figures.by_relation.values(), *figures.by_category.values()]
    for group in (figures.overall, figures.optimistic, figures.pessimistic, *groups):
        assert group[added.key] == 1.0
    assert [metric.title for metric in columns()] == ["MRR", "Hits@1", "Hits@3", "Hits@10", "Hits@2", "MR"]
    split = SplitFigures("test", 0.5, {"plogicnet*": figures}, Reliability(0.1, 0.2))
    assert SplitFigures.of_json(json.loads(json.dumps(split.to_json()))) == split
    assert over_seeds([split, split])["plogicnet*"][added.key] == {"mean": 1.0, "sd": 0.0}


def slow_summary(ranks: list[float]) -> dict[str, float]:
    n = len(ranks)
    figures = {"mr": sum(ranks) / n, "mrr": sum(1 / r for r in ranks) / n}
    return figures | {f"hits_at_{k}": sum(r <= k for r in ranks) / n for k in (1, 3, 10)}


@given(st.lists(st.integers(2, 60).map(lambda x: x / 2), min_size=1, max_size=30))
@settings(deadline=None, max_examples=50)
def test_summary_equals_the_loop(ranks: list[float]) -> None:
    assert summary(np.array(ranks)) == pytest.approx(slow_summary(ranks))


def test_summary_of_nothing_is_zeros() -> None:
    assert summary(np.empty((0, 2))) == {"mr": 0, "mrr": 0, "hits_at_1": 0, "hits_at_3": 0, "hits_at_10": 0}


def test_figures_that_a_run_lacks_are_left_out_of_tables_and_means(added: Metric) -> None:
    rules = RankingFigures({"mrr": 0.25}, {}, {}, {}, {}, {})
    old = SplitFigures("valid", 1.0, {"rules": rules}, Reliability(0.1, 0.0))
    assert over_seeds([old]) == {"rules": {"mrr": {"mean": 0.25, "sd": 0.0}}}
    assert added.show(rules.overall.get(added.key)) == "–"
