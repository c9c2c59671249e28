"""Ranks and the figures computed from them, as records with one JSON form. No torch here."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from plogicnet.evaluation.metrics import summary
from plogicnet.graph import CATEGORIES, RELATION, SIDES, FloatArray, IntArray, KnowledgeGraph

Figures = Mapping[str, float]
"""The value of every metric, by its key."""


@dataclass(frozen=True)
class Ranks:
    """The ranks of each triple's head (column 0) and tail (column 1): competitors better, and competitors level.

    Example:
        >>> Ranks(np.array([[0, 2]]), np.array([[0, 1]])).realistic
        array([[1. , 3.5]])
    """

    better: IntArray
    level: IntArray

    @property
    def optimistic(self) -> FloatArray:
        """The truth is first among its equals."""
        return np.asarray(self.better + 1.0)

    @property
    def pessimistic(self) -> FloatArray:
        """The truth is last among its equals."""
        return np.asarray(self.better + self.level + 1.0)

    @property
    def realistic(self) -> FloatArray:
        """The mean of both, the headline."""
        return np.asarray(self.better + self.level / 2 + 1.0)


@dataclass(frozen=True)
class RankingFigures:
    """The figures of one ranking on a split: realistic ranks overall and in groups, and the other tie policies overall.

    Example:
        >>> graph = KnowledgeGraph.from_names([("anna", "knows", "ben")], test=[("ben", "knows", "anna")])
        >>> figures = RankingFigures.of(graph, "test", Ranks(np.array([[0, 1]]), np.array([[0, 0]])))
        >>> figures.overall["mrr"], figures.by_side["tail"]["mrr"], list(figures.by_category)
        (0.75, 0.5, ['1-1'])
        >>> RankingFigures.of_json(figures.to_json()) == figures
        True
    """

    overall: Figures
    optimistic: Figures
    pessimistic: Figures
    by_side: Mapping[str, Figures]
    by_relation: Mapping[str, Figures]
    by_category: Mapping[str, Figures]

    @classmethod
    def of(cls, graph: KnowledgeGraph, split: str, ranks: Ranks) -> "RankingFigures":
        """The figures of the ranks of a split's triples."""
        realistic, relations = ranks.realistic, graph.split(split)[:, RELATION]
        category = np.array([CATEGORIES.index(c) for c in graph.relation_categories])[relations]
        return cls(
            overall=summary(realistic),
            optimistic=summary(ranks.optimistic),
            pessimistic=summary(ranks.pessimistic),
            by_side={side: summary(realistic[:, column]) for column, side in enumerate(SIDES)},
            by_relation={graph.relations.names[r]: summary(realistic[relations == r]) for r in np.unique(relations)},
            by_category={CATEGORIES[c]: summary(realistic[category == c]) for c in np.unique(category)},
        )

    def to_json(self) -> dict[str, Any]:
        """One object: the overall figures themselves, the others by name."""
        groups = asdict(self)
        return {**groups.pop("overall"), **groups}

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> "RankingFigures":
        """What `to_json` gave."""
        overall = {key: value for key, value in content.items() if not isinstance(value, Mapping)}
        return cls(overall, **{key: value for key, value in content.items() if key not in overall})


@dataclass(frozen=True)
class Bin:
    """A range of probabilities: their mean, the share of their triples that is true, and the share of all triples."""

    predicted: float
    true: float
    share: float


@dataclass(frozen=True)
class Reliability:
    """How good probabilities are.

    Attributes:
        brier: the Brier score.
        ece: the expected calibration error.
        curve: the reliability curve.
        uncalibrated: the same before calibration, without its curve.
    """

    brier: float
    ece: float
    curve: tuple[Bin, ...] = ()
    uncalibrated: "Reliability | None" = None

    def to_json(self) -> dict[str, Any]:
        """The parts that are there."""
        curve = {"curve": [asdict(part) for part in self.curve]} if self.curve else {}
        before = {"uncalibrated": self.uncalibrated.to_json()} if self.uncalibrated else {}
        return {"brier": self.brier, "ece": self.ece, **curve, **before}

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> "Reliability":
        """What `to_json` gave.

        Example:
            >>> made = Reliability(0.1, 0.0, (Bin(0.5, 0.5, 1.0),), Reliability(0.2, 0.1))
            >>> Reliability.of_json(made.to_json()) == made
            True
        """
        before = content.get("uncalibrated")
        curve = tuple(Bin(**part) for part in content.get("curve", ()))
        return cls(content["brier"], content["ece"], curve, before and cls.of_json(before))


@dataclass(frozen=True)
class SplitFigures:
    """The figures of a trained model on a split.

    Attributes:
        rankings: the figures of each half alone, pLogicNet and pLogicNet*, by name.
        calibration: how good the probabilities are.
    """

    split: str
    lambda_: float
    rankings: Mapping[str, RankingFigures]
    calibration: Reliability

    def to_json(self) -> dict[str, Any]:
        """One object with the rankings among its members."""
        rankings = {name: figures.to_json() for name, figures in self.rankings.items()}
        return {"split": self.split, "lambda": self.lambda_, **rankings, "calibration": self.calibration.to_json()}

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> "SplitFigures":
        """What `to_json` gave.

        Example:
            >>> SplitFigures.of_json({"split": "test", "lambda": 1.0, "calibration": {"brier": 0.1, "ece": 0.0}}).split
            'test'
        """
        others = {key: value for key, value in content.items() if key not in ("split", "lambda", "calibration")}
        rankings = {name: RankingFigures.of_json(value) for name, value in others.items()}
        return cls(content["split"], content["lambda"], rankings, Reliability.of_json(content["calibration"]))
