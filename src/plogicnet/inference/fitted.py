"""A trained model as data, and the one place where a probability is made of what its two halves say."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy import special

from plogicnet.config import Config
from plogicnet.evaluation.calibration import AT_ONCE, Calibration, calibrate_twice, columns_of, sample
from plogicnet.evaluation.orders import Combination, Scored
from plogicnet.graph import HEAD, RELATION, SIDES, TAIL, Answers, BoolArray, FloatArray, IntArray, KnowledgeGraph
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
        q: the neural model's own probability; NaN without a neural model, and where it cannot score an entity.
        log_odds: the rules' log-odds.
        base: the log-odds of the relation's base rate.
        reached: whether a rule reaches the triple.
        known: whether it is a training triple.
        held_out: which split holds it back from training, as a number in `HELD_OUT`.
        forbidden: whether a constraint rules it out.
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
        """The rules' own probability."""
        return probability(self.log_odds)

    @property
    def in_hidden(self) -> BoolArray:
        """Whether a rule concludes it from training triples."""
        return self.reached & ~self.known

    def take(self, rows: IntArray | BoolArray) -> "Judged":
        """Some of the rows, in the order given."""
        return Judged(**{column: values[rows] for column, values in vars(self).items()})

    @classmethod
    def joined(cls, parts: "Sequence[Judged]") -> "Judged":
        """The rows of all parts, of which there is at least one."""
        return cls(*(np.concatenate(column) for column in zip(*(vars(part).values() for part in parts), strict=True)))

    def order(self, ties: Combination, within: IntArray | None = None) -> IntArray:
        """The rows from the most probable to the least, equals by `ties` and then by number; within groups if given."""
        on = torch.from_numpy
        scored = Scored(on(self.score), on(self.base), on(self.log_odds - self.base), on(self.reached))
        by = [np.where(self.forbidden, -np.inf, level.numpy()) for level in ties.levels(scored)]
        keys = [self.triples[:, TAIL], self.triples[:, HEAD], self.triples[:, RELATION]]
        keys += [-level for level in reversed(by)] + [self.forbidden, -self.probability]
        return np.lexsort(keys if within is None else [*keys, within])


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
    def known(self) -> Mapping[str, Answers]:
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
            to[:, 1] = np.where(judged.reached, judged.p_w, 0.0) if self.outcome.neural is None else judged.q
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
        score = columns[:, 0]
        return Judged(
            triples=triples,
            probability=np.where(forbidden, 0.0, self.calibration.probability(columns)),
            score=score,
            q=np.full(len(score), np.nan) if self.outcome.neural is None else np.asarray(special.expit(score)),
            log_odds=odds,
            base=rules.base[triples[:, RELATION]],
            reached=reached,
            known=self.graph.observed.contains(triples),
            held_out=self.held_out.numbers(triples),
            forbidden=forbidden,
        )

    def judge(self, triples: IntArray, rules: RuleScores | None = None) -> list[Prediction]:
        """The same, in names."""
        return predictions(self.judged(triples, rules), self.graph)

    def nothing(self) -> Judged:
        """No triple, judged."""
        return self.judged(self.graph.train[:0])

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
        few = many(len(graph.valid), "validation triple")
        log.warning("only %s: λ, probabilities and figures on valid are rough; %d or more are better", few, FEW)
    labels = sample(graph, "valid", ["train", "valid"], config.seed)
    labels = labels.take(~scores.forbidden(labels.triples))  # these are not judged by the regression
    columns = columns_of(outcome.neural, scores, labels.triples)
    if not system_of(config).rules_predict:
        columns[:, 1:] = 0.0
    return calibrate_twice(columns, labels)


def predictions(judged: Judged, graph: KnowledgeGraph) -> list[Prediction]:
    """Judged triples one by one, in names."""
    columns = (judged.probability, judged.q, judged.p_w, judged.known, judged.in_hidden, judged.held_out)
    rows = zip(judged.triples, *(column.tolist() for column in columns), strict=True)
    return [
        Prediction(*graph.names(triple), p, None if np.isnan(q) else q, p_w, known, hidden, HELD_OUT[held_out])
        for triple, p, q, p_w, known, hidden, held_out in rows
    ]
