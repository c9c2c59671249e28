"""Mean and standard deviation of metrics over several seeds."""

import statistics
from collections.abc import Sequence

from plogicnet.evaluation.metrics import METRICS
from plogicnet.evaluation.results import SplitMetrics

mean = statistics.fmean


def sd(values: Sequence[float]) -> float:
    """Return the sample standard deviation; 0 for one value.

    Example:
        >>> sd([1.0, 3.0, 5.0]), sd([1.0])
        (2.0, 0.0)
    """
    return statistics.stdev(values) if len(values) > 1 else 0.0


def mean_and_sd(values: Sequence[float]) -> dict[str, float]:
    """Return the mean and the sample standard deviation as a JSON object.

    Example:
        >>> mean_and_sd([1.0, 3.0, 5.0])
        {'mean': 3.0, 'sd': 2.0}
    """
    return {"mean": mean(values), "sd": sd(values)}


def aggregate_seeds(runs: Sequence[SplitMetrics]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the mean and the standard deviation over several runs, by ranking and metric."""
    return {
        name: {
            key: mean_and_sd([run.rankings[name].overall[key] for run in runs])
            for key in (metric.key for metric in METRICS.values())
            if all(key in run.rankings[name].overall for run in runs)
        }
        for name in runs[0].rankings
    }
