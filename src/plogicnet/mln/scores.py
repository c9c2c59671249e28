"""The rule model's scores: the log-odds of triples that rules conclude, and the base rate of all others."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from plogicnet.graph import HEAD, RELATION, SIDES, TAIL, AnswerIndex, BoolArray, FloatArray, IntArray, Side, TripleSet


@dataclass(frozen=True)
class RuleScores:
    """The rule model's scores for ranking, prediction and calibration.

    Attributes:
        reached: the triples, observed or not, that at least one rule concludes.
        log_odds: the log-odds of each triple in `reached`.
        base: the base log-odds b of each relation. They are the log-odds of all other triples.
        irreflexive: whether each relation has the constraint that excludes r(x, x).
        observed: O. The constraint does not exclude observed triples.
    """

    reached: TripleSet
    log_odds: FloatArray
    base: FloatArray
    irreflexive: BoolArray
    observed: TripleSet

    @property
    def is_empty(self) -> bool:
        """Whether no rule concludes a triple."""
        return not len(self.reached)

    @cached_property
    def _answers(self) -> dict[Side, AnswerIndex]:
        return {side: AnswerIndex.of(self.reached.triples, self.reached.entities, side) for side in SIDES}

    def of_triples(self, triples: IntArray) -> tuple[FloatArray, BoolArray]:
        """Return the log-odds of each triple, and whether a rule concludes it."""
        rows = self.reached.find(triples)
        is_reached = rows >= 0
        log_odds = self.base[triples[:, RELATION]].copy()
        log_odds[is_reached] = self.log_odds[rows[is_reached]]
        return log_odds, is_reached

    def of_queries(self, known: IntArray, relations: IntArray, side: Side) -> tuple[IntArray, IntArray, FloatArray]:
        """Return the candidates that rules conclude, as three arrays: index of the query, entity, log-odds."""
        query_index, candidates, rows = self._answers[side].lookup(known, relations)
        return query_index, candidates, self.log_odds[rows]

    def forbidden(self, triples: IntArray) -> BoolArray:
        """Return whether a constraint excludes each triple.

        It excludes (e, r, e) if r is irreflexive, unless the triple is observed or rules give it p_w ≥ 0.5.
        """
        is_loop = (triples[:, HEAD] == triples[:, TAIL]) & self.irreflexive[triples[:, RELATION]]
        result = np.zeros(len(triples), dtype=bool)
        if is_loop.any():
            log_odds, is_reached = self.of_triples(triples[is_loop])
            is_exempt = self.observed.contains(triples[is_loop]) | (is_reached & (special.expit(log_odds) >= 0.5))
            result[is_loop] = ~is_exempt
        return result
