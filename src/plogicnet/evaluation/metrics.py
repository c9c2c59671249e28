"""The registry of metrics, which all tables, pages, reports and result files use. Metrics are computed from ranks.

This module does not import torch. Other packages add metrics with the entry point group `plogicnet.metrics`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plogicnet.support.registry import Registry

if TYPE_CHECKING:
    from plogicnet.graph import FloatArray


@dataclass(frozen=True)
class Metric:
    """A number computed from ranks.

    Attributes:
        key: the name of the metric in JSON and in the registry.
        title: the name of the metric in tables.
        compute: a function of a non-empty array of ranks (1 is the best rank; ties can give fractions).
        higher_is_better: whether better ranks give a higher value.
        digits: decimal places in tables.

    Example:
        >>> METRICS.get("mr").show(2.25)
        '2.2'
    """

    key: str
    title: str
    compute: "Callable[[FloatArray], float]"
    higher_is_better: bool = True
    digits: int = 3

    def show(self, value: float | None) -> str:
        """Return a value as text. None, for example if the results are older than the metric, is a dash."""
        return "–" if value is None else f"{value:.{self.digits}f}"

    def best(self, values: Iterable[float]) -> float:
        """Return the best of some values."""
        return max(values) if self.higher_is_better else min(values)


METRICS: Registry[Metric] = Registry("metric", "plogicnet.metrics")


def columns() -> list[Metric]:
    """Return the metrics in the order of table columns: the ones with `higher_is_better` first.

    Example:
        >>> [metric.title for metric in columns()]
        ['MRR', 'Hits@1', 'Hits@3', 'Hits@10', 'MR']
    """
    return sorted(METRICS.values(), key=lambda metric: not metric.higher_is_better)


def compute_metrics(ranks: "FloatArray") -> dict[str, float]:
    """Compute every metric of some ranks, by key; all are zero if there are no ranks.

    Example:
        >>> import numpy as np
        >>> compute_metrics(np.array([1.0, 4.0]))["mrr"]
        0.625
    """
    return {metric.key: metric.compute(ranks) if ranks.size else 0.0 for metric in METRICS.values()}


def _hits(k: int) -> Metric:
    return Metric(f"hits_at_{k}", f"Hits@{k}", lambda ranks: float((ranks <= k).mean()))


for built_in in (
    Metric("mr", "MR", lambda ranks: float(ranks.mean()), higher_is_better=False, digits=1),
    Metric("mrr", "MRR", lambda ranks: float((1.0 / ranks).mean())),
    *map(_hits, (1, 3, 10)),
):
    METRICS.register(built_in.key, built_in)
