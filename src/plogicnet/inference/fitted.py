"""A trained model as data, and the one place where a probability is made of what its two halves say."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy import special

from plogicnet.config import Config
from plogicnet.evaluation.calibration import AT_ONCE, Calibration, calibrate_twice, columns_of, sample
from plogicnet.evaluation.orders import Combination, Scored
from plogicnet.graph import (
    HEAD,
    RELATION,
    SIDES,
    TAIL,
    Answers,
    BoolArray,
    FloatArray,
    IntArray,
    KnowledgeGraph,
    Side,
    as_triples,
)
from plogicnet.inference.examples import Example, Names, examples_of
from plogicnet.inference.held_out import HELD_OUT, HeldOut
from plogicnet.mln import RuleScores, probability
from plogicnet.rules import Rule
from plogicnet.support.errors import InputError, many
from plogicnet.support.records import Record
from plogicnet.systems.system import system_of
from plogicnet.training.selection import tie_breaker
from plogicnet.training.state import Outcome

log = logging.getLogger(__name__)
FEW = 50
"""Probabilities that are calibrated on fewer triples are not to be relied on."""


@dataclass(frozen=True)
class Prediction(Record):
    """One judged triple, in names.

    Attributes:
        probability: calibrated on validation triples; cautious, for a true fact that neither train nor valid holds
            counted as wrong there.
        q: the neural model's own probability; None without a neural model, and where it cannot score an entity.
        p_w: the rules' own probability.
        known: whether it is a training triple.
        in_hidden: whether a rule concludes it from training triples.
        held_out: valid or test, where that split holds it back from training.
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
    def triple(self) -> Names:
        """Head, relation, tail."""
        return self.head, self.relation, self.tail


@dataclass(frozen=True)
class Judged:
    """Judged triples in columns.

    Attributes:
        probability: the calibrated probability; zero for what a constraint rules out.
        score: the neural model's score (logit q); zeros without a neural model, NaN where it cannot score an entity.
        log_odds: the rules' log-odds.
        base: the log-odds of the relation's base rate.
        reached: whether a rule reaches the triple.
        known: whether it is a training triple.
        held_out: which split holds it back from training, as a number in `HELD_OUT`.
        forbidden: whether a constraint rules it out.
        has_neural: whether there is a neural model.
    """

    triples: IntArray
    probability: FloatArray
    score: FloatArray
    log_odds: FloatArray
    base: FloatArray
    reached: BoolArray
    known: BoolArray
    held_out: IntArray
    forbidden: BoolArray
    has_neural: bool

    def __len__(self) -> int:
        return len(self.triples)

    @property
    def q(self) -> FloatArray | None:
        """The neural model's own probability; NaN where it cannot score an entity."""
        return np.asarray(special.expit(self.score)) if self.has_neural else None

    @property
    def p_w(self) -> FloatArray:
        """The rules' own probability."""
        return probability(self.log_odds)

    @property
    def in_hidden(self) -> BoolArray:
        """Whether a rule concludes it from training triples."""
        return self.reached & ~self.known

    def take(self, rows: IntArray | BoolArray) -> "Judged":
        """Some of the rows, in the order given."""
        return replace(self, **{c: getattr(self, c)[rows] for c in _COLUMNS})

    @classmethod
    def joined(cls, parts: "Sequence[Judged]") -> "Judged":
        """The rows of all parts, of which there is at least one."""
        columns: dict[str, Any] = {c: np.concatenate([getattr(part, c) for part in parts]) for c in _COLUMNS}
        return replace(parts[0], **columns)

    def order(self, ties: Combination, within: IntArray | None = None) -> IntArray:
        """The rows from the most probable to the least, equals by `ties` and then by number; within groups if given."""
        on = torch.from_numpy
        scored = Scored(on(self.score), on(self.base), on(self.log_odds - self.base), on(self.reached))
        by = [np.where(self.forbidden, -np.inf, level.numpy()) for level in ties.levels(scored)]
        keys = [self.triples[:, TAIL], self.triples[:, HEAD], self.triples[:, RELATION]]
        keys += [-level for level in reversed(by)] + [self.forbidden, -self.probability]
        return np.lexsort(keys if within is None else [*keys, within])


_COLUMNS = tuple(field.name for field in fields(Judged) if field.name != "has_neural")


@dataclass(frozen=True)
class Fitted:
    """A trained model: the graph, what EM left behind, and the calibration; with what is derived from them.

    Attributes:
        candidates: how many rules were counted when they were mined.
        ties: pLogicNet*'s order, which decides between equal probabilities.
        added: how many facts were added since training.
    """

    graph: KnowledgeGraph
    outcome: Outcome
    calibration: Calibration
    candidates: int
    ties: Combination
    added: int = 0

    @classmethod
    def of(
        cls, graph: KnowledgeGraph, config: Config, outcome: Outcome, calibration: Calibration, candidates: int
    ) -> "Fitted":
        """The trained model of a run."""
        return cls(graph, outcome, calibration, candidates, tie_breaker(config, outcome.lambda_))

    @cached_property
    def rules(self) -> RuleScores:
        """The rule model's answers."""
        return self.outcome.rule_model.scores(self.graph)

    @cached_property
    def known(self) -> dict[Side, Answers]:
        """The training triples' answers to every query, by side."""
        return {side: self.graph.known(["train"], side) for side in SIDES}

    @cached_property
    def held_out(self) -> HeldOut:
        """The facts of valid and of test that train does not hold."""
        return HeldOut.of(self.graph)

    @cached_property
    def hidden(self) -> Answers:
        """The tails that rules conclude, for every head and relation."""
        return Answers.of(self.outcome.rule_model.hidden, len(self.graph.entities), "tail")

    def probabilities(self, triples: IntArray) -> FloatArray:
        """Two columns: the calibrated probability of triples, and the uncalibrated one: q, else p_w."""
        columns = np.zeros((len(triples), 2))
        for at in range(0, len(triples), AT_ONCE):  # a judgement holds much more than its probability
            judged, to = self.judged(triples[at : at + AT_ONCE]), columns[at : at + AT_ONCE]
            to[:, 0] = judged.probability
            to[:, 1] = np.where(judged.reached, judged.p_w, 0.0) if judged.q is None else judged.q
        return columns

    def judged(self, triples: IntArray, rules: RuleScores | None = None) -> Judged:
        """Judges triples, in their order. This is the one place where a probability is made.

        Args:
            triples: what to judge.
            rules: what the rules say of them, where that is known without the whole network.
        """
        rules = rules or self.rules
        columns = columns_of(self.outcome.neural, rules, triples)
        forbidden = rules.forbidden(triples)
        odds, reached = rules.of_triples(triples)
        return Judged(
            triples=triples,
            probability=np.where(forbidden, 0.0, self.calibration.probability(columns)),
            score=columns[:, 0],
            log_odds=odds,
            base=rules.base[triples[:, RELATION]],
            reached=reached,
            known=self.graph.observed.contains(triples),
            held_out=self.held_out.numbers(triples),
            forbidden=forbidden,
            has_neural=self.outcome.neural is not None,
        )

    def judge(self, triples: IntArray, rules: RuleScores | None = None) -> list[Prediction]:
        """The same, in names."""
        return predictions(self.judged(triples, rules), self.graph)

    def nothing(self) -> Judged:
        """No triple, judged."""
        return self.judged(as_triples([]))

    def examples(self, rule: Rule, most: int) -> list[Example]:
        """Some groundings of a rule of this model; none of a constraint, or where memory cannot hold all groundings."""
        model = self.outcome.rule_model
        if rule not in model.rules.rules:
            return []
        try:
            groundings = model.groundings
        except InputError:
            return []
        return examples_of(self.graph, groundings, model.rules.rules.index(rule), most, self.held_out)


def fit_calibration(graph: KnowledgeGraph, config: Config, outcome: Outcome) -> Calibration:
    """Fits what makes probabilities of scores, on validation triples and their corruptions."""
    scores = outcome.rule_model.scores(graph)
    if 0 < len(graph.valid) < FEW:
        log.warning(
            "only %s: λ, probabilities and figures on valid are rough; %d or more are better",
            many(len(graph.valid), "validation triple"),
            FEW,
        )
    labels = sample(graph, "valid", ["train", "valid"], config.seed)
    labels = labels.take(~scores.forbidden(labels.triples))  # these are not judged by the regression
    columns = columns_of(outcome.neural, scores, labels.triples)
    if not system_of(config).rules_predict:
        columns[:, 1:] = 0.0
    return calibrate_twice(columns, labels)


def predictions(judged: Judged, graph: KnowledgeGraph) -> list[Prediction]:
    """Judged triples one by one, in names."""
    q = judged.q
    rows = zip(
        judged.triples,
        judged.probability.tolist(),
        [None] * len(judged) if q is None else [None if np.isnan(value) else value for value in q.tolist()],
        judged.p_w.tolist(),
        judged.known.tolist(),
        judged.in_hidden.tolist(),
        [HELD_OUT[number] for number in judged.held_out.tolist()],
        strict=True,
    )
    return [Prediction(*graph.names(triple), *rest) for triple, *rest in rows]
