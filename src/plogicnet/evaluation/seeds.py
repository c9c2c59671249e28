"""Figures of several seeds together; the only mean and standard deviation of measured values."""

import statistics
from collections.abc import Sequence

from plogicnet.evaluation.figures import SplitFigures
from plogicnet.evaluation.metrics import METRICS

mean = statistics.fmean


def sd(values: Sequence[float]) -> float:
    """The standard deviation of a sample; 0 of one value.

    Example:
        >>> sd([1.0, 3.0, 5.0]), sd([1.0])
        (2.0, 0.0)
    """
    return statistics.stdev(values) if len(values) > 1 else 0.0


def mean_and_sd(values: Sequence[float]) -> dict[str, float]:
    """Both, for JSON.

    Example:
        >>> mean_and_sd([1.0, 3.0, 5.0])
        {'mean': 3.0, 'sd': 2.0}
    """
    return {"mean": mean(values), "sd": sd(values)}


def over_seeds(reports: Sequence[SplitFigures]) -> dict[str, dict[str, dict[str, float]]]:
    """For each ranking and metric, the mean and the standard deviation over the reports."""
    return {
        name: {
            key: mean_and_sd([report.rankings[name].overall[key] for report in reports])
            for key in (metric.key for metric in METRICS.values())
            if all(key in report.rankings[name].overall for report in reports)
        }
        for name in reports[0].rankings
    }
