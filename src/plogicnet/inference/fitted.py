"""A trained model, and the computation of its probabilities from neural and rule scores."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy import special

from plogicnet.config import Config
from plogicnet.evaluation.calibration import (
    CHUNK_ROWS,
    Calibration,
    calibrate_with_fallback,
    calibration_features,
    sample,
)
from plogicnet.evaluation.orders import CandidateScores, CombinedOrder
from plogicnet.graph import (
    HEAD,
    RELATION,
    SIDES,
    SPLITS,
    TAIL,
    AnswerIndex,
    BoolArray,
    FloatArray,
    IntArray,
    KnowledgeGraph,
    Slots,
)
from plogicnet.inference.examples import Example, NameTriple, examples_of
from plogicnet.inference.held_out import HELD_OUT, HeldOut
from plogicnet.inference.pool import Effort, Pool, effort_for
from plogicnet.mln import RuleScores, probability
from plogicnet.rules import Rule
from plogicnet.support.errors import InputError, pluralize
from plogicnet.support.records import Record
from plogicnet.systems.system import system_of
from plogicnet.training.selection import tie_breaker
from plogicnet.training.state import Outcome

log = logging.getLogger(__name__)
MIN_VALID_TRIPLES = 50
"""Calibration on fewer validation triples is unreliable."""


@dataclass(frozen=True)
class Prediction(Record):
    """The prediction for one triple, with names.

    Attributes:
        probability: probability calibrated on validation triples. It is cautious, because true facts that are not in
            train or valid counted as false during calibration.
        q: probability of the neural model; None without a neural model, or if the model cannot score an entity.
        p_w: probability of the rules.
        known: whether the triple is a training triple.
        in_hidden: whether a rule concludes the triple from training triples, and it is not a training triple.
        held_out: "valid" or "test" if that split contains the triple and train does not; otherwise None.
    """

    head: str
    relation: str
    tail: str
    probability: float
    q: float | None
    p_w: float
    known: bool
    in_hidden: bool
    held_out: str | None = None

    @property
    def triple(self) -> NameTriple:
        """Head, relation, tail."""
        return self.head, self.relation, self.tail


@dataclass(frozen=True)
class PredictionBatch:
    """Predictions for many triples, as arrays with one row per triple.

    Attributes:
        probability: calibrated probability; zero if a constraint excludes the triple.
        score: score of the neural model (logit q); 0 without a neural model, NaN if the model cannot score an entity.
        q: probability of the neural model; NaN without a neural model, or if the model cannot score an entity.
        log_odds: log-odds of the rules.
        base: the relation's base rate, as log-odds.
        reached: whether a rule concludes the triple.
        known: whether the triple is a training triple.
        held_out: the code of the held-out split that contains the triple, an index into `HELD_OUT`.
        forbidden: whether a constraint excludes the triple.
    """

    triples: IntArray
    probability: FloatArray
    score: FloatArray
    q: FloatArray
    log_odds: FloatArray
    base: FloatArray
    reached: BoolArray
    known: BoolArray
    held_out: IntArray
    forbidden: BoolArray

    def __len__(self) -> int:
        return len(self.triples)

    @property
    def p_w(self) -> FloatArray:
        """Probability of the rules."""
        return probability(self.log_odds)

    @property
    def in_hidden(self) -> BoolArray:
        """Whether a rule concludes the triple from training triples, and it is not a training triple."""
        return self.reached & ~self.known

    def take(self, rows: IntArray | BoolArray) -> "PredictionBatch":
        """Return the selected rows, in the given order."""
        return PredictionBatch(**{column: values[rows] for column, values in vars(self).items()})

    @classmethod
    def concat(cls, batches: "Sequence[PredictionBatch]") -> "PredictionBatch":
        """Concatenate the rows of one or more batches."""
        return cls(*(np.concatenate(column) for column in zip(*(vars(b).values() for b in batches), strict=True)))

    def order(self, ties: CombinedOrder, within: IntArray | None = None) -> IntArray:
        """Return the row indices that sort by decreasing probability, then by `ties`, then by relation, head and tail.

        With `within`, the group of each row, the rows are sorted by group first.
        """
        tensor = torch.from_numpy
        scores = CandidateScores(
            tensor(self.score), tensor(self.base), tensor(self.log_odds - self.base), tensor(self.reached)
        )
        sort_keys = [np.where(self.forbidden, -np.inf, key.numpy()) for key in ties.sort_keys(scores)]
        keys = [self.triples[:, TAIL], self.triples[:, HEAD], self.triples[:, RELATION]]
        keys += [-key for key in reversed(sort_keys)] + [self.forbidden, -self.probability]
        return np.lexsort(keys if within is None else [*keys, within])


@dataclass(frozen=True)
class FittedModel:
    """A trained model: the graph, the result of EM and the calibration, with cached lookups.

    Attributes:
        candidates: number of candidate rules that mining counted.
        ties: the order of triples with equal probability, that of pLogicNet*.
        added: number of facts added since training.
        efforts: how many candidates for missing facts are enough for some recalls.
    """

    graph: KnowledgeGraph
    outcome: Outcome
    calibration: Calibration
    candidates: int
    ties: CombinedOrder
    added: int = 0
    efforts: tuple[Effort, ...] = ()

    @classmethod
    def of(
        cls,
        graph: KnowledgeGraph,
        config: Config,
        outcome: Outcome,
        calibration: Calibration,
        candidates: int,
        efforts: tuple[Effort, ...] = (),
    ) -> "FittedModel":
        """Create the trained model of a run."""
        return cls(graph, outcome, calibration, candidates, tie_breaker(config, outcome.lambda_), efforts=efforts)

    def pool(self, recall: float, known: Sequence[str] = SPLITS) -> Pool:
        """Return the candidates for missing facts that are enough for a recall, without the triples of some splits."""
        outcome = self.outcome
        hidden, effort = outcome.rule_model.hidden, effort_for(self.efforts, recall)
        return Pool(self.graph, outcome.neural, self.rules, hidden, effort, self.slots, tuple(known))

    @cached_property
    def slots(self) -> Slots:
        """Which relations probably apply to an entity."""
        return Slots.of(self.graph)

    @cached_property
    def rules(self) -> RuleScores:
        """The scores of the rule model."""
        return self.outcome.rule_model.scores(self.graph)

    @cached_property
    def known(self) -> Mapping[str, AnswerIndex]:
        """The lookup of known answers, by missing side."""
        return {side: self.graph.answer_index(["train"], side) for side in SIDES}

    @cached_property
    def held_out(self) -> HeldOut:
        """The triples of valid and test that are not in train."""
        return HeldOut.of(self.graph)

    def probabilities(self, triples: IntArray) -> FloatArray:
        """Return two columns: calibrated and uncalibrated probability (q, or p_w without a neural model)."""
        columns = np.zeros((len(triples), 2))
        for start in range(0, len(triples), CHUNK_ROWS):  # a batch takes much more memory than its probabilities
            batch, rows = self.predict_batch(triples[start : start + CHUNK_ROWS]), columns[start : start + CHUNK_ROWS]
            rows[:, 0] = batch.probability
            rows[:, 1] = np.where(batch.reached, batch.p_w, 0.0) if self.outcome.neural is None else batch.q
        return columns

    def predict_batch(self, triples: IntArray, rules: RuleScores | None = None) -> PredictionBatch:
        """Predict triples, in the given order. All predicted probabilities come from this method.

        Args:
            triples: the triples to predict.
            rules: rule scores of these triples. By default, all rules are grounded to compute them.
        """
        rules = rules or self.rules
        features = calibration_features(self.outcome.neural, rules, triples)
        forbidden = rules.forbidden(triples)
        log_odds, reached = rules.of_triples(triples)
        score = features[:, 0]
        return PredictionBatch(
            triples=triples,
            probability=np.where(forbidden, 0.0, self.calibration.probability(features)),
            score=score,
            q=np.full(len(score), np.nan) if self.outcome.neural is None else np.asarray(special.expit(score)),
            log_odds=log_odds,
            base=rules.base[triples[:, RELATION]],
            reached=reached,
            known=self.graph.observed.contains(triples),
            held_out=self.held_out.codes(triples),
            forbidden=forbidden,
        )

    def predict_triples(self, triples: IntArray, rules: RuleScores | None = None) -> list[Prediction]:
        """Predict triples like `predict_batch`, and return the predictions with names."""
        return predictions(self.predict_batch(triples, rules), self.graph)

    def empty_batch(self) -> PredictionBatch:
        """Return a batch without rows."""
        return self.predict_batch(self.graph.train[:0])

    def examples(self, rule: Rule, max_examples: int) -> list[Example]:
        """Return groundings of a rule; an empty list for negated rules, or if the memory is not enough."""
        model = self.outcome.rule_model
        row = model.rules.row_of.get(rule)
        if row is None or rule.negated:
            return []
        try:
            groundings = model.groundings
        except InputError:
            return []
        return examples_of(self.graph, groundings, row, max_examples, self.held_out)


def fit_calibration(graph: KnowledgeGraph, config: Config, outcome: Outcome) -> Calibration:
    """Fit the calibration on validation triples and their corruptions."""
    scores = outcome.rule_model.scores(graph)
    if 0 < len(graph.valid) < MIN_VALID_TRIPLES:
        count = pluralize(len(graph.valid), "validation triple")
        log.warning(
            "the graph has only %s, so λ, probabilities and metrics on valid are unreliable. Use %d or more.",
            count,
            MIN_VALID_TRIPLES,
        )
    labels = sample(graph, "valid", ["train", "valid"], config.seed, outcome.neural)
    labels = labels.take(
        ~scores.forbidden(labels.triples)
    )  # triples that a constraint excludes have probability 0, whatever the regression gives
    features = calibration_features(outcome.neural, scores, labels.triples)
    if not system_of(config).rules_predict:
        features[:, 1:] = 0.0
    return calibrate_with_fallback(features, labels)


def predictions(batch: PredictionBatch, graph: KnowledgeGraph) -> list[Prediction]:
    """Convert a batch to a list of predictions with names."""
    columns = (batch.probability, batch.q, batch.p_w, batch.known, batch.in_hidden, batch.held_out)
    rows = zip(batch.triples, *(column.tolist() for column in columns), strict=True)
    return [
        Prediction(*graph.names(triple), p, None if np.isnan(q) else q, p_w, known, hidden, HELD_OUT[held_out])
        for triple, p, q, p_w, known, hidden, held_out in rows
    ]
