"""Dataclasses of evaluation results, with a JSON form: ranks, ranking metrics and calibration quality.

This module does not import torch.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from plogicnet.evaluation.metrics import compute_metrics
from plogicnet.graph import CATEGORIES, RELATION, SIDES, FloatArray, IntArray, KnowledgeGraph

MetricValues = Mapping[str, float]
"""Metric values by metric key, for example {"mrr": 0.3, "hits_at_10": 0.5}."""


@dataclass(frozen=True)
class Ranks:
    """The ranks of the true entities, stored as two counts per query.

    `n_better` candidates score higher than the true entity, and `n_tied` other candidates score the same. Both arrays
    have the shape (triples, 2): column 0 is the head query of each triple, column 1 the tail query.

    Example:
        >>> Ranks(n_better=np.array([[0, 2]]), n_tied=np.array([[0, 1]])).realistic
        array([[1. , 3.5]])
    """

    n_better: IntArray
    n_tied: IntArray

    @property
    def optimistic(self) -> FloatArray:
        """The ranks with the true entity first among ties."""
        return np.asarray(self.n_better + 1.0)

    @property
    def pessimistic(self) -> FloatArray:
        """The ranks with the true entity last among ties."""
        return np.asarray(self.n_better + self.n_tied + 1.0)

    @property
    def realistic(self) -> FloatArray:
        """The mean of the optimistic and the pessimistic rank. It is the default of all metrics."""
        return np.asarray(self.n_better + self.n_tied / 2 + 1.0)


@dataclass(frozen=True)
class RankingMetrics:
    """The metrics of one ranking on a split.

    All metrics except `optimistic` and `pessimistic` are computed from realistic ranks.

    Attributes:
        overall: metrics over all queries.
        optimistic: metrics over all queries, with ties broken for the true entity.
        pessimistic: metrics over all queries, with ties broken against the true entity.
        by_side: metrics of the head queries and of the tail queries.
        by_relation: metrics per relation.
        by_category: metrics per relation category ("1-1", "1-N", "N-1", "N-N"; `KnowledgeGraph.relation_categories`).

    Example:
        >>> graph = KnowledgeGraph.from_names([("anna", "knows", "ben")], test=[("ben", "knows", "anna")])
        >>> ranks = Ranks(n_better=np.array([[0, 1]]), n_tied=np.array([[0, 0]]))
        >>> metrics = RankingMetrics.from_ranks(graph, "test", ranks)
        >>> metrics.overall["mrr"], metrics.by_side["tail"]["mrr"], list(metrics.by_category)
        (0.75, 0.5, ['1-1'])
        >>> RankingMetrics.from_json(metrics.to_json()) == metrics
        True
    """

    overall: MetricValues
    optimistic: MetricValues
    pessimistic: MetricValues
    by_side: Mapping[str, MetricValues]
    by_relation: Mapping[str, MetricValues]
    by_category: Mapping[str, MetricValues]

    @classmethod
    def from_ranks(cls, graph: KnowledgeGraph, split: str, ranks: Ranks) -> "RankingMetrics":
        """Compute the metrics from the ranks of a split's triples."""
        realistic, relations = ranks.realistic, graph.split(split)[:, RELATION]
        categories = np.array([CATEGORIES.index(c) for c in graph.relation_categories])[relations]
        return cls(
            overall=compute_metrics(realistic),
            optimistic=compute_metrics(ranks.optimistic),
            pessimistic=compute_metrics(ranks.pessimistic),
            by_side={side: compute_metrics(realistic[:, column]) for column, side in enumerate(SIDES)},
            by_relation={
                graph.relations.names[r]: compute_metrics(realistic[relations == r]) for r in np.unique(relations)
            },
            by_category={CATEGORIES[c]: compute_metrics(realistic[categories == c]) for c in np.unique(categories)},
        )

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with the overall metrics at the top level, and the other fields by name."""
        data = asdict(self)
        return {**data.pop("overall"), **data}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "RankingMetrics":
        """Create an instance from the output of `to_json`."""
        overall = {key: value for key, value in data.items() if not isinstance(value, Mapping)}
        return cls(overall, **{key: value for key, value in data.items() if key not in overall})


@dataclass(frozen=True)
class ReliabilityBin:
    """A bin of a reliability curve.

    Attributes:
        predicted: mean predicted probability.
        true: share of the bin's triples that are true, a number from 0 to 1.
        share: share of all triples that are in the bin.
    """

    predicted: float
    true: float
    share: float


@dataclass(frozen=True)
class CalibrationQuality:
    """The calibration quality of predicted probabilities.

    Attributes:
        brier: the Brier score.
        ece: the expected calibration error.
        curve: the reliability curve.
        uncalibrated: the quality before calibration, with an empty curve; None if it is unknown.
    """

    brier: float
    ece: float
    curve: tuple[ReliabilityBin, ...] = ()
    uncalibrated: "CalibrationQuality | None" = None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object. `curve` is omitted if it is empty, `uncalibrated` if it is None."""
        curve = {"curve": [asdict(bin_) for bin_ in self.curve]} if self.curve else {}
        uncalibrated = {"uncalibrated": self.uncalibrated.to_json()} if self.uncalibrated else {}
        return {"brier": self.brier, "ece": self.ece, **curve, **uncalibrated}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "CalibrationQuality":
        """Create an instance from the output of `to_json`.

        Example:
            >>> curve = (ReliabilityBin(predicted=0.5, true=0.5, share=1.0),)
            >>> before = CalibrationQuality(brier=0.2, ece=0.1)
            >>> quality = CalibrationQuality(brier=0.1, ece=0.0, curve=curve, uncalibrated=before)
            >>> CalibrationQuality.from_json(quality.to_json()) == quality
            True
        """
        uncalibrated = data.get("uncalibrated")
        curve = tuple(ReliabilityBin(**bin_) for bin_ in data.get("curve", ()))
        return cls(data["brier"], data["ece"], curve, uncalibrated and cls.from_json(uncalibrated))


@dataclass(frozen=True)
class SplitMetrics:
    """The evaluation of a trained model on a split.

    Attributes:
        lambda_: λ of pLogicNet*.
        rankings: the metrics of each ranking, by key: "neural", "rules", "plogicnet", "plogicnet*".
        calibration: the calibration quality of the probabilities.
    """

    split: str
    lambda_: float
    rankings: Mapping[str, RankingMetrics]
    calibration: CalibrationQuality

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object in which each ranking has its own key."""
        rankings = {name: metrics.to_json() for name, metrics in self.rankings.items()}
        return {"split": self.split, "lambda": self.lambda_, **rankings, "calibration": self.calibration.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "SplitMetrics":
        """Create an instance from the output of `to_json`.

        Example:
            >>> data = {"split": "test", "lambda": 1.0, "calibration": {"brier": 0.1, "ece": 0.0}}
            >>> SplitMetrics.from_json(data).to_json() == data
            True
        """
        ranking_data = {key: value for key, value in data.items() if key not in ("split", "lambda", "calibration")}
        rankings = {name: RankingMetrics.from_json(value) for name, value in ranking_data.items()}
        return cls(data["split"], data["lambda"], rankings, CalibrationQuality.from_json(data["calibration"]))
