"""A trained model as data: what predictions and explanations are made from."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from plogicnet.em import Outcome
from plogicnet.evaluation import Calibration, columns_of
from plogicnet.graph import FloatArray, IntArray, KnowledgeGraph
from plogicnet.mln import RuleScores, probability


@dataclass(frozen=True)
class Prediction:
    """One judged triple, in names.

    Attributes:
        probability: calibrated on validation triples: of such candidates, at least so many are right (a true fact
            that neither train nor valid holds was counted as wrong).
        q: the embedding's own probability; None without an embedding, and where an entity has no vector.
        p_w: the rules' own probability.
        known: whether it is a training triple.
        in_hidden: whether a rule concludes it from training triples.
    """

    head: str
    relation: str
    tail: str
    probability: float
    q: float | None
    p_w: float
    known: bool
    in_hidden: bool


@dataclass(frozen=True)
class Fitted:
    """A trained model: the graph, what EM left behind, and the calibration; with what is derived from them."""

    graph: KnowledgeGraph
    outcome: Outcome
    calibration: Calibration
    candidates: int
    added: int = 0
    """How many facts were added since training."""

    @cached_property
    def rules(self) -> RuleScores:
        """The rule model's answers."""
        return self.outcome.rule_model.scores(self.graph)

    def probability(self, triples: IntArray) -> FloatArray:
        """The calibrated probability of triples; a constraint makes it zero."""
        p = self.calibration.probability(columns_of(self.outcome.embedding, self.rules, triples))
        return np.where(self.rules.forbidden(triples), 0.0, p)

    def judge(self, triples: IntArray, rules: RuleScores) -> list[Prediction]:
        """Judges given triples, in their order, by the vectors and by what the rules say of them."""
        columns = columns_of(self.outcome.embedding, rules, triples)
        p = np.where(rules.forbidden(triples), 0.0, self.calibration.probability(columns))
        odds, reached = rules.of_triples(triples)
        known = self.graph.observed.contains(triples)
        no_q = np.isnan(columns[:, 0]) | (self.outcome.embedding is None)
        q = [None if none else value for none, value in zip(no_q, special.expit(columns[:, 0]).tolist(), strict=True)]
        rest = (probability(odds), known, reached & ~known)
        rows = zip(triples, p.tolist(), q, *(column.tolist() for column in rest), strict=True)
        return [Prediction(*self.graph.names(triple), *judged) for triple, *judged in rows]
