"""Orders by which candidates are sorted: by the neural model, by the rules, or by both."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from scipy import special
from torch import Tensor

from plogicnet.evaluation.calibration import Calibration

Combine = Literal["probability", "log_odds"]
Keys = tuple[Tensor, Tensor]
"""Two sort keys per candidate, highest first. The second key breaks ties of the first."""


@dataclass(frozen=True)
class CandidateScores:
    """The scores of some candidates, as tensors of one shape.

    Attributes:
        score: the neural model's scores; 0 without a neural model, NaN if the model cannot score an entity.
        base: base rate of each candidate's relation, as log-odds.
        evidence: the rules' log-odds minus the base rate; zero if no rule concludes the candidate.
        reached: whether a rule concludes the candidate.
    """

    score: Tensor
    base: Tensor
    evidence: Tensor
    reached: Tensor

    @classmethod
    def plain(cls, score: Tensor, base: Tensor) -> "CandidateScores":
        """Return the scores of plain candidates, which no rule concludes."""
        return cls(score, base, torch.zeros_like(base), torch.zeros_like(base, dtype=torch.bool))

    @cached_property
    def comparable_score(self) -> Tensor:
        """The scores as float64, with -∞ for candidates without a score, so that they are last."""
        return torch.where(torch.isnan(self.score), -torch.inf, self.score.double())

    @cached_property
    def q(self) -> Tensor:
        """The neural model's probability q of each candidate."""
        return sigmoid(self.comparable_score)

    @cached_property
    def p_w(self) -> Tensor:
        """The rule model's probability p_w of each candidate."""
        return sigmoid(self.base + self.evidence)


@dataclass(frozen=True)
class CombinedOrder:
    """An order by q, by the rules, or by both.

    Attributes:
        neural: whether to use q; False: order by p_w.
        lambda_: λ, the weight of the rules relative to q (Eq. 10 of the pLogicNet paper).
        constraint: whether irreflexive constraints put (e, r, e) last.
        combine: how to combine q and the rules; see the setting em.combine.
        rerank: number of the neural model's best candidates to re-rank; 0: all. The others are below them, in the
            neural model's order.
    """

    neural: bool = True
    lambda_: float = 0.0
    constraint: bool = True
    combine: Combine = "probability"
    rerank: int = 0

    score_as_triples = False

    @property
    def by_score(self) -> bool:
        """Whether candidates are ordered only by the raw score."""
        return self.neural and self.lambda_ == 0

    @property
    def n_reranked(self) -> int:
        """`rerank`, or 0 if re-ranking would not change the order."""
        return self.rerank if self.neural and not self.by_score else 0

    def sort_keys(self, candidates: CandidateScores) -> Keys:
        """Return the sort keys of candidates, before constraints and re-ranking.

        With λ = 0 the keys are the raw scores, so that pLogicNet* with λ = 0 is exactly pLogicNet. Otherwise the first
        key is σ(s) + λ·p_w in float64 (Eq. 10), and the raw score breaks ties between saturated values of σ.
        """
        score = candidates.comparable_score
        if not self.neural:
            return candidates.p_w, candidates.evidence  # the evidence still differs if p_w rounds to 1
        if self.lambda_ == 0:
            return score, score
        if self.combine == "probability":
            return candidates.q + self.lambda_ * candidates.p_w, score
        return score + self.lambda_ * candidates.evidence, score


@dataclass(frozen=True)
class ProbabilityOrder:
    """The order that users see: by calibrated probability. `tie_breaker` orders candidates with equal probability.

    Example:
        >>> plain = CandidateScores.plain(torch.zeros(1), torch.zeros(1, dtype=torch.float64))
        >>> len(ProbabilityOrder(Calibration(0, 1, 0, 0), CombinedOrder()).sort_keys(plain))
        3
    """

    calibration: Calibration
    tie_breaker: CombinedOrder

    neural = constraint = score_as_triples = True
    n_reranked = 0

    def sort_keys(self, candidates: CandidateScores) -> list[Tensor]:
        """Return the probability and the sort keys of the tie-breaker."""
        reached = candidates.reached.double()
        log_odds = self.calibration.log_odds(candidates.score.double(), candidates.p_w * reached, reached)
        return [sigmoid(log_odds), *self.tie_breaker.sort_keys(candidates)]


Order = CombinedOrder | ProbabilityOrder
"""An order of the candidates of a query.

Of two candidates that no rule concludes, the one with the higher score is never below the other.

Attributes:
    sort_keys: returns the sort keys of candidates, most important first. Higher keys are better.
    neural: whether to use the neural model.
    constraint: whether irreflexive constraints put (e, r, e) last.
    n_reranked: number of the neural model's best candidates to re-rank; the others are below them. 0: all.
    score_as_triples: whether a candidate's score must equal `NeuralModel.score` of its triple (`score_answers`).
        Otherwise models that score head and tail queries differently use only the query's direction (`score_all`).
"""


def sigmoid(x: Tensor) -> Tensor:
    """Compute σ such that equal inputs give equal results. On a CPU, torch rounds the last elements differently.

    Example:
        >>> sigmoid(torch.zeros(1, dtype=torch.float64))
        tensor([0.5000], dtype=torch.float64)
    """
    return torch.from_numpy(special.expit(x.numpy())) if x.device.type == "cpu" else torch.sigmoid(x)
