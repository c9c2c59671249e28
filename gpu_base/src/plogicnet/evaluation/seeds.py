"""Figures of several seeds together: mean and standard deviation."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

FIGURES = ("mr", "mrr", "hits_at_1", "hits_at_3", "hits_at_10")


def over_seeds(reports: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """For each system and figure, the mean over reports and the standard deviation (of a sample; 0 for one).

    Example:
        >>> figures = dict.fromkeys(FIGURES, 1.0)
        >>> over_seeds([{"plogicnet": figures}, {"plogicnet": figures}])["plogicnet"]["mrr"]
        {'mean': 1.0, 'sd': 0.0}
    """
    systems = [name for name, figures in reports[0].items() if isinstance(figures, Mapping) and "mrr" in figures]
    return {
        name: {figure: _mean_and_sd([report[name][figure] for report in reports]) for figure in FIGURES}
        for name in systems
    }


def _mean_and_sd(values: Sequence[float]) -> dict[str, float]:
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"mean": float(np.mean(values)), "sd": sd}
