"""The rules' score of any triple: sparse log-odds where a rule reaches it, the base rate elsewhere."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from plogicnet.graph import HEAD, RELATION, SIDES, TAIL, Answers, BoolArray, FloatArray, IntArray, Side, TripleSet


@dataclass(frozen=True)
class RuleScores:
    """The rule model's answers, ready for ranking, prediction and calibration.

    Attributes:
        reached: the triples that at least one grounding concludes, observed ones too.
        log_odds: their log-odds b + Σ.
        base: b of each relation, which is also the log-odds of every triple that no rule reaches.
        irreflexive: which relations have the constraint that r(x, x) does not hold.
        observed: O; an observed self-loop is exempt from the constraint.
    """

    reached: TripleSet
    log_odds: FloatArray
    base: FloatArray
    irreflexive: BoolArray
    observed: TripleSet

    @cached_property
    def _answers(self) -> dict[Side, Answers]:
        return {side: Answers.of(self.reached.triples, self.reached.entities, side) for side in SIDES}

    def of_triples(self, triples: IntArray) -> tuple[FloatArray, BoolArray]:
        """The log-odds of given triples, and which of them a rule reaches."""
        rows = self.reached.find(triples)
        reached = rows >= 0
        odds = self.base[triples[:, RELATION]].copy()
        odds[reached] = self.log_odds[rows[reached]]
        return odds, reached

    def of_queries(self, known: IntArray, relations: IntArray, side: Side) -> tuple[IntArray, IntArray, FloatArray]:
        """For queries against all entities, the reached candidates alone: query's number, entity, log-odds."""
        owners, candidates, rows = self._answers[side].lookup(known, relations)
        return owners, candidates, self.log_odds[rows]

    def forbidden(self, triples: IntArray) -> BoolArray:
        """Which triples a constraint rules out: (e, r, e), unless observed or held probable by other rules."""
        loops = (triples[:, HEAD] == triples[:, TAIL]) & self.irreflexive[triples[:, RELATION]]
        result = np.zeros(len(triples), dtype=bool)
        if loops.any():
            odds, reached = self.of_triples(triples[loops])
            exempt = self.observed.contains(triples[loops]) | (reached & (special.expit(odds) >= 0.5))
            result[loops] = ~exempt
        return result
