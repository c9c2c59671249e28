"""Calibration: from scores to the probability that is shown to people, fitted on validation triples."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from scipy import special

from plogicnet.evaluation.figures import Bin, Reliability
from plogicnet.evaluation.scaling import sparse_design
from plogicnet.graph import HEAD, TAIL, BoolArray, FloatArray, IntArray, KnowledgeGraph, TripleSet
from plogicnet.mln import Pseudolikelihood, RuleScores, newton
from plogicnet.neural.protocol import NeuralModel

NEGATIVES = 100
"""Sampled corruptions per validation triple and side; each stands for its share of all entities."""
TRIPLES_MOST = 5_000
AT_ONCE = 1 << 17
"""So many triples are judged at once; pieces of this size are scored as all of them together are."""
RIDGE = 1e-2
BINS = 10
MONOTONE = np.array([False, True, True, False])
"""Of intercept, score, p_w, reached: which may not be negative."""
Column = TypeVar("Column", FloatArray, torch.Tensor)


@dataclass(frozen=True)
class Calibration:
    """Logistic regression on the neural score (logit q), the rules' p_w, and whether any rule reaches the triple.

    p_w rather than its log-odds: sums over many groundings reach log-odds of 40, and a line through those is flat
    where it matters. A triple with an entity that the model cannot score has no score (NaN): a second regression judges
    it, fitted without that column. The joint one with the score's term left out would be wrong, for its other
    coefficients are what the rules add to a score.

    Attributes:
        intercept: what every triple has.
        score, p_w, reached: the columns' coefficients.
        alone: the regression for triples without a score; None: this one, without the score's term.

    Example:
        >>> Calibration(intercept=0.0, score=1.0, p_w=0.0, reached=0.0).probability(np.zeros((1, 3)))
        array([0.5])
    """

    intercept: float
    score: float
    p_w: float
    reached: float
    alone: "Calibration | None" = None

    def log_odds(self, score: Column, p_w: Column, reached: Column) -> Column:
        """The weighted columns, all arrays or all tensors; p_w is zero where no rule reaches."""
        # no matrix product: it rounds differently for one row and for many
        odds = self.intercept + self.score * score + self.p_w * p_w + self.reached * reached
        lacking = score != score  # NaN
        if lacking.any():
            p_w, reached = p_w[lacking], reached[lacking]
            odds[lacking] = (self.alone or self).log_odds(0.0 * p_w, p_w, reached)
        return odds

    def probability(self, columns: FloatArray) -> FloatArray:
        """σ of the weighted columns (score, p_w, reached)."""
        return np.asarray(special.expit(self.log_odds(*columns.T)))

    def to_json(self) -> dict[str, Any]:
        """The coefficients."""
        return asdict(self, dict_factory=lambda items: {key: value for key, value in items if value is not None})

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> "Calibration":
        """What `to_json` gave.

        Example:
            >>> Calibration.of_json({"intercept": 0.0, "score": 1.0, "p_w": 0.0, "reached": 0.0}).alone is None
            True
        """
        alone = content.get("alone")
        return cls(**{**content, "alone": None if alone is None else cls.of_json(alone)})


def columns_of(neural: NeuralModel | None, rules: RuleScores, triples: IntArray) -> FloatArray:
    """The columns (score, p_w, reached) of given triples; the score is NaN where the model cannot score an entity."""
    columns = np.zeros((len(triples), 3))
    for at in range(0, len(triples), AT_ONCE):
        part, to = triples[at : at + AT_ONCE], columns[at : at + AT_ONCE]
        odds, reached = rules.of_triples(part)
        to[:, 1], to[:, 2] = np.where(reached, special.expit(odds), 0.0), reached
        if neural is not None:
            to[:, 0] = neural.score(part).double().cpu().numpy()
    return columns


@dataclass(frozen=True)
class Sample:
    """Triples of a split (label 1) and their corruptions (label 0); `count` is how many candidates each stands for."""

    triples: IntArray
    label: FloatArray
    count: FloatArray

    def take(self, rows: BoolArray) -> "Sample":
        """Some of the rows."""
        return Sample(self.triples[rows], self.label[rows], self.count[rows])


def sample(graph: KnowledgeGraph, split: str, splits: Sequence[str], seed: int) -> Sample:
    """The triples of a split and sampled corruptions of both sides that are in none of the given splits.

    Uniform corruptions are few beside all the entities a query could be answered with, so each counts for its share of
    them: a probability then is a share of candidates, not one against a single random corruption. It is a cautious one:
    true facts that none of the given splits holds are among the corruptions, and count as wrong.

    Example:
        >>> rows = [(str(i), "next", str(i + 1)) for i in range(100)]
        >>> graph = KnowledgeGraph.from_names(rows).with_validation(seed=0)
        >>> int(sample(graph, "valid", ["train", "valid"], seed=0).label.sum())
        5
    """
    rng = np.random.default_rng([seed, 7])
    positives = graph.split(split)
    if len(positives) > TRIPLES_MOST:
        positives = positives[np.sort(rng.choice(len(positives), TRIPLES_MOST, replace=False))]
    n = len(graph.entities)
    each = min(NEGATIVES, n)
    corrupted = []
    for column in (HEAD, TAIL):
        rows = np.repeat(positives, each, axis=0)
        rows[:, column] = np.tile(np.arange(n), len(positives)) if each == n else rng.integers(n, size=len(rows))
        corrupted.append(rows)
    negatives = np.concatenate(corrupted)
    known = TripleSet.of(np.concatenate([graph.split(s) for s in splits]), n)
    negatives = negatives[~known.contains(negatives)]
    count = np.concatenate([np.full(len(positives), 2.0), np.full(len(negatives), n / each)])
    label = np.concatenate([np.ones(len(positives)), np.zeros(len(negatives))])
    return Sample(np.concatenate([positives, negatives]), label, count)


def calibrate(columns: FloatArray, labels: Sample) -> Calibration:
    """Fits the regression by the rule model's own solver.

    A higher score or p_w never makes a triple less probable: a column with a negative coefficient is left out.
    """
    used = np.ones(4, dtype=bool)
    while True:
        design = sparse_design(np.column_stack([np.ones(len(columns)), columns]) * used)
        objective = Pseudolikelihood(design, np.zeros(len(columns)), labels.label, l2=RIDGE, count=labels.count)
        fitted = newton(objective)
        contrary = MONOTONE & (fitted < 0)
        if not contrary.any():
            return Calibration(*fitted.tolist())
        used &= ~contrary


def calibrate_twice(columns: FloatArray, labels: Sample) -> Calibration:
    """The regression, and in it the one for triples without a score."""
    return replace(calibrate(columns, labels), alone=calibrate(columns * [0.0, 1.0, 1.0], labels))


def reliability(probability: FloatArray, labels: Sample) -> Reliability:
    """Brier score, expected calibration error and the reliability curve.

    Example:
        >>> perfect = Sample(np.zeros((2, 3), dtype=int), np.array([1.0, 0.0]), np.ones(2))
        >>> reliability(np.array([1.0, 0.0]), perfect).brier
        0.0
    """
    share = labels.count / labels.count.sum()
    brier = float(share @ (probability - labels.label) ** 2)
    place = np.minimum((probability * BINS).astype(int), BINS - 1)
    curve, error = [], 0.0
    for number in range(BINS):
        inside: BoolArray = place == number
        weight = float(share[inside].sum())
        if not weight:
            continue
        predicted = float(share[inside] @ probability[inside]) / weight
        true = float(share[inside] @ labels.label[inside]) / weight
        error += weight * abs(predicted - true)
        curve.append(Bin(predicted, true, weight))
    return Reliability(brier, error, tuple(curve))
