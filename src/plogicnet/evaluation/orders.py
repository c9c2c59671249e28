"""Orders: the ways in which candidates can be ordered by the neural model, the rules or both."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from scipy import special
from torch import Tensor

from plogicnet.evaluation.calibration import Calibration

Combine = Literal["probability", "log_odds"]
Keys = tuple[Tensor, Tensor]
"""Candidates are ordered by the first, and among equals by the second."""


@dataclass(frozen=True)
class Scored:
    """What is known of some candidates: tensors of one shape.

    Attributes:
        score: the neural model's scores; zeros where there is no neural model, NaN where it cannot score an entity.
        base: the base of each candidate's relation.
        evidence: the rules' log-odds minus the base, zero where no rule reaches.
        reached: whether a rule reaches it.
    """

    score: Tensor
    base: Tensor
    evidence: Tensor
    reached: Tensor

    @classmethod
    def plain(cls, score: Tensor, base: Tensor) -> "Scored":
        """Candidates that no rule reaches."""
        return cls(score, base, torch.zeros_like(base), torch.zeros_like(base, dtype=torch.bool))

    @cached_property
    def wide_score(self) -> Tensor:
        """The scores in float64, in which keys are compared; a candidate without a score is below the others."""
        return torch.where(torch.isnan(self.score), -torch.inf, self.score.double())

    @cached_property
    def q(self) -> Tensor:
        """Q of each candidate."""
        return sigmoid(self.wide_score)

    @cached_property
    def p_w(self) -> Tensor:
        """p_w of each candidate."""
        return sigmoid(self.base + self.evidence)


@dataclass(frozen=True)
class Combination:
    """An order by q, by the rules, or by both.

    Attributes:
        neural: whether q counts.
        rule_share: λ of Eq. 10.
        constraint: whether irreflexive constraints put (e, r, e) last.
        combine: how q and the rules are put together.
        rerank: only so many of the neural model's best are re-ranked, the others stay below in its order; 0: all are.
    """

    neural: bool = True
    rule_share: float = 0.0
    constraint: bool = True
    combine: Combine = "probability"
    rerank: int = 0

    whole_triples = False

    @property
    def by_score(self) -> bool:
        """Whether the raw score alone decides."""
        return self.neural and self.rule_share == 0

    @property
    def window(self) -> int:
        """Re-ranking by the score alone, or without scores, changes nothing."""
        return self.rerank if self.neural and not self.by_score else 0

    def levels(self, of: Scored) -> Keys:
        """What candidates are ordered by, before constraints and re-ranking.

        λ = 0 is the raw score itself, so that pLogicNet* with λ = 0 is exactly pLogicNet. Else the first key is
        σ(s) + λ·p_w in float64 (Eq. 10) and the raw score breaks the ties that σ's saturation makes.
        """
        score = of.wide_score
        if not self.neural:
            return of.p_w, of.evidence  # log-odds differ where p_w rounds to one
        if self.rule_share == 0:
            return score, score
        if self.combine == "probability":
            return of.q + self.rule_share * of.p_w, score
        return score + self.rule_share * of.evidence, score


@dataclass(frozen=True)
class ByProbability:
    """The order that people see: by calibrated probability, which is fitted to whole triples; ties by a combination.

    Example:
        >>> nothing = Scored.plain(torch.zeros(1), torch.zeros(1, dtype=torch.float64))
        >>> len(ByProbability(Calibration(0, 1, 0, 0), Combination()).levels(nothing))
        3
    """

    calibration: Calibration
    ties: Combination

    neural = constraint = whole_triples = True
    window = 0

    def levels(self, of: Scored) -> list[Tensor]:
        """The probability, then the keys of the combination."""
        reached = of.reached.double()
        odds = self.calibration.log_odds(of.score.double(), of.p_w * reached, reached)
        return [sigmoid(odds), *self.ties.levels(of)]


Order = Combination | ByProbability
"""A way of ordering the candidates of a query: of two that no rule reaches, one with a higher score is never below.

Its `levels` are what candidates are ordered by: the first, among its equals the second, and so on. `neural` says
whether the neural model is used, `constraint` whether irreflexive constraints put (e, r, e) last, `window` how many of
the neural model's best are ordered (the others stay below; 0: all are ordered), and `whole_triples` whether scores are
those of whole triples (`score_answers`) instead of those of answers (`score_all`).
"""


def sigmoid(x: Tensor) -> Tensor:
    """σ by which equal numbers have equal values: torch's own on a CPU rounds the last few of a tensor differently.

    Example:
        >>> sigmoid(torch.zeros(1, dtype=torch.float64))
        tensor([0.5000], dtype=torch.float64)
    """
    return torch.from_numpy(special.expit(x.numpy())) if x.device.type == "cpu" else torch.sigmoid(x)
