"""Filtered ranking, calibration, and their reports."""

from plogicnet.evaluation.calibration import (
    Calibration,
    Sample,
    calibrate,
    calibrate_twice,
    columns_of,
    reliability,
    sample,
)
from plogicnet.evaluation.ranking import Ranks, filter_splits, rank, report, summary
from plogicnet.evaluation.seeds import over_seeds
from plogicnet.evaluation.systems import Judgement, Scored, System, levels
from plogicnet.evaluation.top import Top, top_k

__all__ = [
    "Calibration",
    "Judgement",
    "Ranks",
    "Sample",
    "Scored",
    "System",
    "Top",
    "calibrate",
    "calibrate_twice",
    "columns_of",
    "filter_splits",
    "levels",
    "over_seeds",
    "rank",
    "reliability",
    "report",
    "sample",
    "summary",
    "top_k",
]
