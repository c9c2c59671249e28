"""A trained model as data, and the one place where a probability is made of what its two halves say."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy import special

from plogicnet.em import Outcome
from plogicnet.evaluation import Calibration, Scored, System, columns_of, levels
from plogicnet.evaluation.calibration import AT_ONCE
from plogicnet.graph import (
    HEAD,
    RELATION,
    TAIL,
    Answers,
    BoolArray,
    FloatArray,
    IntArray,
    KnowledgeGraph,
    Side,
    TripleSet,
    as_triples,
)
from plogicnet.mln import RuleScores, probability

SIDES: tuple[Side, Side] = ("head", "tail")
HELD_OUT = (None, "valid", "test")


@dataclass(frozen=True)
class Prediction:
    """One judged triple, in names.

    Attributes:
        probability: calibrated on validation triples; cautious, for a true fact that neither train nor valid holds
            counted as wrong there.
        q: the embedding's own probability; None without an embedding, and where an entity has no vector.
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


@dataclass(frozen=True)
class Judged:
    """Judged triples in columns.

    Attributes:
        probability: the calibrated probability; zero for what a constraint rules out.
        score: the embedding's score (logit q); zeros without an embedding, NaN where an entity has no vector.
        log_odds: the rules' log-odds.
        base: the log-odds of the relation's base rate.
        reached: whether a rule reaches the triple.
        known: whether it is a training triple.
        held_out: which split holds it back from training, as a place in `HELD_OUT`.
        forbidden: whether a constraint rules it out.
        embedded: whether there is an embedding.
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
    embedded: bool

    def __len__(self) -> int:
        return len(self.triples)

    @property
    def q(self) -> FloatArray | None:
        """The embedding's own probability; NaN where an entity has no vector."""
        return np.asarray(special.expit(self.score)) if self.embedded else None

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

    def order(self, ties: System, within: IntArray | None = None) -> IntArray:
        """The rows from the most probable to the least, equals by a system and then by number; within groups, if any.

        Example:
            >>> judged.take(judged.order(System())[:10])  # doctest: +SKIP
        """
        on = torch.from_numpy
        scored = Scored(on(self.score), on(self.base), on(self.log_odds - self.base), on(self.reached))
        by = [np.where(self.forbidden, -np.inf, level.numpy()) for level in levels(ties, scored)]
        keys = [self.triples[:, TAIL], self.triples[:, HEAD], self.triples[:, RELATION]]
        keys += [-level for level in reversed(by)] + [self.forbidden, -self.probability]
        return np.lexsort(keys if within is None else [*keys, within])


_COLUMNS = tuple(field.name for field in fields(Judged) if field.name != "embedded")


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
    ties: System
    added: int = 0

    @cached_property
    def rules(self) -> RuleScores:
        """The rule model's answers."""
        return self.outcome.rule_model.scores(self.graph)

    @cached_property
    def known(self) -> dict[Side, Answers]:
        """The training triples' answers to every query, by side."""
        return {side: self.graph.known(["train"], side) for side in SIDES}

    @cached_property
    def held_out(self) -> tuple[TripleSet, TripleSet]:
        """The facts of valid and of test that are not in train too."""
        graph = self.graph
        kept = [split[~graph.observed.contains(split)] for split in (graph.valid, graph.test)]
        return TripleSet.of(kept[0], len(graph.entities)), TripleSet.of(kept[1], len(graph.entities))

    @cached_property
    def hidden(self) -> Answers:
        """The tails that rules conclude, for every head and relation."""
        return Answers.of(self.outcome.rule_model.groundings.hidden, len(self.graph.entities), "tail")

    def probabilities(self, triples: IntArray) -> FloatArray:
        """Two columns: the calibrated probability of triples, and what it is made of: q, or p_w without vectors."""
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
        embedding = self.outcome.embedding
        columns = columns_of(embedding, rules, triples)
        forbidden = rules.forbidden(triples)
        odds, reached = rules.of_triples(triples)
        return Judged(
            triples,
            np.where(forbidden, 0.0, self.calibration.probability(columns)),
            columns[:, 0],
            odds,
            rules.base[triples[:, RELATION]],
            reached,
            self.graph.observed.contains(triples),
            np.select([s.contains(triples) for s in self.held_out], [1, 2], 0),
            forbidden,
            embedding is not None,
        )

    def judge(self, triples: IntArray, rules: RuleScores | None = None) -> list[Prediction]:
        """The same, in names."""
        return predictions(self.judged(triples, rules), self.graph)

    def nothing(self) -> Judged:
        """No triple, judged."""
        return self.judged(as_triples([]))


def predictions(judged: Judged, graph: KnowledgeGraph) -> list[Prediction]:
    """Judged triples one by one, in names.

    Example:
        >>> predictions(fitted.judged(graph.test[:3]), graph)  # doctest: +SKIP
    """
    q = judged.q
    rows = zip(
        judged.triples,
        judged.probability.tolist(),
        [None] * len(judged) if q is None else [None if np.isnan(value) else value for value in q.tolist()],
        judged.p_w.tolist(),
        judged.known.tolist(),
        judged.in_hidden.tolist(),
        [HELD_OUT[place] for place in judged.held_out.tolist()],
        strict=True,
    )
    return [Prediction(*graph.names(triple), *rest) for triple, *rest in rows]


def prediction_rows(found: list[Prediction]) -> list[dict[str, object]]:
    """Predictions as dictionaries, for JSON.

    Example:
        >>> prediction_rows([Prediction("a", "r", "b", 0.5, 0.5, 0.5, False, False)])[0]["head"]
        'a'
    """
    return [asdict(p) for p in found]
