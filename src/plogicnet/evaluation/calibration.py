"""Calibration: the function from scores to the probability that users see, fitted on validation triples."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from scipy import special

from plogicnet.evaluation.results import CalibrationQuality, ReliabilityBin
from plogicnet.evaluation.scaling import sparse_design
from plogicnet.graph import HEAD, TAIL, BoolArray, FloatArray, IntArray, KnowledgeGraph, TripleSet
from plogicnet.mln import Pseudolikelihood, RuleScores, newton
from plogicnet.neural.protocol import NeuralModel

NEGATIVES_PER_SIDE = 100
"""Number of sampled corruptions per triple and side. Each is weighted to represent its share of all entities."""
MAX_TRIPLES = 5_000
"""Larger splits are sampled."""
NEGATIVES_BY_QUERY, MAX_TRIPLES_BY_QUERY = 20, 500
"""The same two numbers if the neural model needs message passing for each sampled triple."""
CHUNK_ROWS = 1 << 17
"""Number of triples scored at once. Scores do not depend on it."""
RIDGE = 1e-2
"""L2 penalty of the regression."""
BINS = 10
"""Number of bins of the reliability curve."""
MONOTONE = np.array([False, True, True, False])
"""Whether each coefficient (intercept, score, p_w, reached) must be at least zero."""
Column = TypeVar("Column", FloatArray, torch.Tensor)


@dataclass(frozen=True)
class Calibration:
    """Logistic regression on the neural score (logit q), the rules' p_w, and whether a rule concludes the triple.

    The feature is p_w, not its log-odds. Sums over many groundings give log-odds of up to 40, and a line fitted to
    such values is flat in the range that matters. Triples with an entity that the neural model cannot score have no
    score (NaN). Their probability comes from a second regression, fitted without the score. The first regression
    without its score term would be wrong: its rule coefficients were fitted as corrections to the score.

    Attributes:
        intercept: the intercept.
        score, p_w, reached: the coefficients of the features.
        alone: the regression for triples without a score. If None, this regression without its score term is used.

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
        """Return the log-odds, given the features of triples; p_w must be 0 if no rule concludes the triple."""
        # not a matrix product: it rounds differently for one row and for many
        log_odds = self.intercept + self.score * score + self.p_w * p_w + self.reached * reached
        unscored = score != score  # NaN
        if unscored.any():
            p_w, reached = p_w[unscored], reached[unscored]
            log_odds[unscored] = (self.alone or self).log_odds(0.0 * p_w, p_w, reached)
        return log_odds

    def probability(self, features: FloatArray) -> FloatArray:
        """Return the probability of each triple, given its features as a row (score, p_w, reached)."""
        return np.asarray(special.expit(self.log_odds(*features.T)))

    def to_json(self) -> dict[str, Any]:
        """Return the coefficients as a JSON object."""
        return asdict(self, dict_factory=lambda items: {key: value for key, value in items if value is not None})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Calibration":
        """Create an instance from the output of `to_json`.

        Example:
            >>> Calibration.from_json({"intercept": 0.0, "score": 1.0, "p_w": 0.0, "reached": 0.0}).alone is None
            True
        """
        alone = data.get("alone")
        return cls(**{**data, "alone": None if alone is None else cls.from_json(alone)})


def calibration_features(neural: NeuralModel | None, rules: RuleScores, triples: IntArray) -> FloatArray:
    """Return a row (score, p_w, reached) per triple; the score is NaN if the neural model cannot score an entity."""
    features = np.zeros((len(triples), 3))
    for start in range(0, len(triples), CHUNK_ROWS):
        chunk, out = triples[start : start + CHUNK_ROWS], features[start : start + CHUNK_ROWS]
        log_odds, reached = rules.of_triples(chunk)
        out[:, 1], out[:, 2] = np.where(reached, special.expit(log_odds), 0.0), reached
        if neural is not None:
            out[:, 0] = neural.score(chunk).double().cpu().numpy()
    return features


@dataclass(frozen=True)
class Sample:
    """Triples of a split (label 1) and corruptions (label 0); each row represents `count` candidates."""

    triples: IntArray
    label: FloatArray
    count: FloatArray

    def take(self, rows: BoolArray) -> "Sample":
        """Return the selected rows."""
        return Sample(self.triples[rows], self.label[rows], self.count[rows])


def sample(
    graph: KnowledgeGraph, split: str, splits: Sequence[str], seed: int, neural: NeuralModel | None = None
) -> Sample:
    """Return the triples of a split, and sampled corruptions of both sides that are not in any of `splits`.

    A query has far more candidates than sampled corruptions, so each corruption counts for its share of the entities.
    A fitted probability then refers to all candidates of a query, not to a single random corruption. It is a cautious
    estimate: corruptions can be true facts that are not in any of `splits`, and these count as wrong. Fewer triples and
    corruptions are sampled if they are expensive to score with `neural`.

    Example:
        >>> rows = [(str(i), "next", str(i + 1)) for i in range(100)]
        >>> graph = KnowledgeGraph.from_names(rows).with_validation(seed=0)
        >>> int(sample(graph, "valid", ["train", "valid"], seed=0).label.sum())
        5
    """
    rng = np.random.default_rng([seed, 7])
    positives = graph.split(split)
    is_pairwise = neural is None or neural.is_pairwise
    size = MAX_TRIPLES if is_pairwise else MAX_TRIPLES_BY_QUERY
    if len(positives) > size:
        positives = positives[np.sort(rng.choice(len(positives), size, replace=False))]
    n = len(graph.entities)
    per_query = min(NEGATIVES_PER_SIDE if is_pairwise else NEGATIVES_BY_QUERY, n)
    corruptions = []
    for column in (HEAD, TAIL):
        rows = np.repeat(positives, per_query, axis=0)
        rows[:, column] = np.tile(np.arange(n), len(positives)) if per_query == n else rng.integers(n, size=len(rows))
        corruptions.append(rows)
    negatives = np.concatenate(corruptions)
    known = TripleSet.of(np.concatenate([graph.split(s) for s in splits]), n)
    negatives = negatives[~known.contains(negatives)]
    if neural is not None:
        negatives = negatives[~neural.unscorable[negatives[:, [HEAD, TAIL]]].any(axis=1)]
    count = np.concatenate([np.full(len(positives), 2.0), np.full(len(negatives), n / per_query)])
    label = np.concatenate([np.ones(len(positives)), np.zeros(len(negatives))])
    return Sample(np.concatenate([positives, negatives]), label, count)


def calibrate(features: FloatArray, labels: Sample) -> Calibration:
    """Fit a regression with the rule model's solver.

    A higher score or p_w must not lower the probability, so a feature with a negative coefficient is dropped.
    """
    used = np.ones(4, dtype=bool)
    while True:
        design = sparse_design(np.column_stack([np.ones(len(features)), features]) * used)
        objective = Pseudolikelihood(design, np.zeros(len(features)), labels.label, l2=RIDGE, count=labels.count)
        coefficients = newton(objective)
        negative = MONOTONE & (coefficients < 0)
        if not negative.any():
            return Calibration(*coefficients.tolist())
        used &= ~negative


def calibrate_with_fallback(features: FloatArray, labels: Sample) -> Calibration:
    """Fit the main regression, and a second one without the score (`alone`) for triples that have no score."""
    return replace(calibrate(features, labels), alone=calibrate(features * [0.0, 1.0, 1.0], labels))


def reliability(probability: FloatArray, labels: Sample) -> CalibrationQuality:
    """Compute the Brier score, the expected calibration error and the reliability curve.

    Example:
        >>> perfect = Sample(np.zeros((2, 3), dtype=int), np.array([1.0, 0.0]), np.ones(2))
        >>> reliability(np.array([1.0, 0.0]), perfect).brier
        0.0
    """
    share = labels.count / labels.count.sum()
    brier = float(share @ (probability - labels.label) ** 2)
    bins = np.minimum((probability * BINS).astype(int), BINS - 1)
    curve, error = [], 0.0
    for bin_ in range(BINS):
        in_bin: BoolArray = bins == bin_
        weight = float(share[in_bin].sum())
        if not weight:
            continue
        predicted = float(share[in_bin] @ probability[in_bin]) / weight
        true_share = float(share[in_bin] @ labels.label[in_bin]) / weight
        error += weight * abs(predicted - true_share)
        curve.append(ReliabilityBin(predicted, true_share, weight))
    return CalibrationQuality(brier, error, tuple(curve))
