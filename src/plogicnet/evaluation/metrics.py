"""Metrics: what is computed from ranks. The only list of them: every table, page, report and result file reads it.

Light to import. Other packages add metrics by the entry point group `plogicnet.metrics`.
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
        key: its name in JSON; it is registered by that name.
        title: its name in tables.
        of: the function of a non-empty array of ranks (1 is the best rank; ties may give fractions).
        higher_is_better: whether better ranks give a higher value.
        digits: decimal places in tables.

    Example:
        >>> METRICS.get("mr").show(2.25)
        '2.2'
    """

    key: str
    title: str
    of: "Callable[[FloatArray], float]"
    higher_is_better: bool = True
    digits: int = 3

    def show(self, value: float | None) -> str:
        """A value as text; a dash where there is none, as in figures older than the metric."""
        return "–" if value is None else f"{value:.{self.digits}f}"

    def best(self, values: Iterable[float]) -> float:
        """The best of some values."""
        return max(values) if self.higher_is_better else min(values)


METRICS: Registry[Metric] = Registry("metric", "plogicnet.metrics")


def columns() -> list[Metric]:
    """The metrics in the order of tables: those where higher is better first.

    Example:
        >>> [metric.title for metric in columns()]
        ['MRR', 'Hits@1', 'Hits@3', 'Hits@10', 'MR']
    """
    return sorted(METRICS.values(), key=lambda metric: not metric.higher_is_better)


def summary(ranks: "FloatArray") -> dict[str, float]:
    """Every metric of some ranks, by key; zeros for no ranks.

    Example:
        >>> import numpy as np
        >>> summary(np.array([1.0, 4.0]))["mrr"]
        0.625
    """
    return {metric.key: metric.of(ranks) if ranks.size else 0.0 for metric in METRICS.values()}


def _hits(k: int) -> Metric:
    return Metric(f"hits_at_{k}", f"Hits@{k}", lambda ranks: float((ranks <= k).mean()))


for built_in in (
    Metric("mr", "MR", lambda ranks: float(ranks.mean()), higher_is_better=False, digits=1),
    Metric("mrr", "MRR", lambda ranks: float((1.0 / ranks).mean())),
    *map(_hits, (1, 3, 10)),
):
    METRICS.register(built_in.key, built_in)
