"""Systems: the ways in which candidates can be ordered by vectors, rules or both."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import numpy as np
import torch
from scipy import special

from plogicnet.evaluation.calibration import Calibration
from plogicnet.graph import IntArray, Side
from plogicnet.kge import Embedding, Widened
from plogicnet.mln import RuleScores

Combine = Literal["probability", "log_odds"]
Pairs = tuple[IntArray, IntArray]
"""(query's number, entity) of some candidates."""
NOTHING: Pairs = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


@dataclass(frozen=True)
class System:
    """One way of ordering candidates.

    Attributes:
        embedding: whether q counts.
        rule_share: λ of Eq. 10.
        constraint: whether irreflexive constraints put (e, r, e) last.
        combine: how q and the rules are put together.
        rerank: only so many of the embedding's best are re-ranked, the others stay below in its order; 0: all are.
    """

    embedding: bool = True
    rule_share: float = 0.0
    constraint: bool = True
    combine: Combine = "probability"
    rerank: int = 0

    @property
    def by_score(self) -> bool:
        """Whether the raw score alone decides."""
        return self.embedding and self.rule_share == 0


@dataclass(frozen=True)
class Judgement:
    """The order that people are shown: by calibrated probability, and among equals by a system."""

    calibration: Calibration
    ties: System


@dataclass(frozen=True)
class Keys:
    """Two keys per candidate: candidates are ordered by the first, and among equals by the second."""

    first: torch.Tensor
    second: torch.Tensor

    def barring(self, barred: torch.Tensor) -> "Keys":
        """The same with some candidates below all others."""
        return Keys(self.first.masked_fill(barred, -torch.inf), self.second.masked_fill(barred, -torch.inf))


@dataclass(frozen=True)
class Scored:
    """What is known of some candidates: tensors of one shape.

    Attributes:
        score: the embedding's scores; zeros where there is no embedding, NaN where an entity has no vector.
        base: the base of each candidate's relation.
        evidence: the rules' log-odds minus the base, zero where no rule reaches.
        reached: whether a rule reaches it.
    """

    score: torch.Tensor
    base: torch.Tensor
    evidence: torch.Tensor
    reached: torch.Tensor

    @classmethod
    def plain(cls, score: torch.Tensor, base: torch.Tensor) -> "Scored":
        """Candidates that no rule reaches."""
        return cls(score, base, torch.zeros_like(base), torch.zeros_like(base, dtype=torch.bool))

    @cached_property
    def wide_score(self) -> torch.Tensor:
        """The scores in float64, in which keys are compared; a candidate without one stands below the others."""
        return torch.where(self.lacking, -torch.inf, self.score.double())

    @cached_property
    def lacking(self) -> torch.Tensor:
        """Which candidates have no score, because an entity has no vector."""
        return torch.isnan(self.score)

    @cached_property
    def q(self) -> torch.Tensor:
        """Q of each candidate."""
        return sigmoid(self.wide_score)

    @cached_property
    def p_w(self) -> torch.Tensor:
        """p_w of each candidate."""
        return sigmoid(self.base + self.evidence)


def sigmoid(x: torch.Tensor) -> torch.Tensor:
    """σ of which equal numbers have equal values: torch's own on a CPU rounds the last few of a tensor differently.

    Example:
        >>> sigmoid(torch.zeros(1, dtype=torch.float64))
        tensor([0.5000], dtype=torch.float64)
    """
    return torch.from_numpy(special.expit(x.numpy())) if x.device.type == "cpu" else torch.sigmoid(x)


def keys(system: System, of: Scored) -> Keys:
    """The keys by which candidates are ordered, before constraints and re-ranking.

    λ = 0 is the raw score itself, so that pLogicNet* with λ = 0 is exactly pLogicNet. Else the first key is
    σ(s) + λ·p_w in float64 (Eq. 10) and the raw score breaks the ties that σ's saturation makes. Whatever the system,
    of candidates that no rule reaches the one with the higher score is never below: all that follows relies on it.
    """
    score = of.wide_score
    if not system.embedding:
        return Keys(of.p_w, of.evidence)  # log-odds tell apart what p_w rounds to one
    if system.rule_share == 0:
        return Keys(score, score)
    if system.combine == "probability":
        return Keys(of.q + system.rule_share * of.p_w, score)
    return Keys(score + system.rule_share * of.evidence, score)


def levels(order: System | Judgement, of: Scored) -> list[torch.Tensor]:
    """What candidates are ordered by: the first, among its equals the second, and so on; before constraints.

    Example:
        >>> nothing = Scored.plain(torch.zeros(1), torch.zeros(1, dtype=torch.float64))
        >>> len(levels(System(), nothing)), len(levels(Judgement(Calibration(0, 1, 0, 0), System()), nothing))
        (2, 3)
    """
    if isinstance(order, System):
        key = keys(order, of)
        return [key.first, key.second]
    return [sigmoid(_log_odds(order.calibration, of)), *levels(order.ties, of)]


def _log_odds(c: Calibration, of: Scored) -> torch.Tensor:
    """What `Calibration.log_odds` says of candidates."""
    odds = c.intercept + c.score * of.wide_score
    odds = torch.where(of.reached, odds + c.p_w * of.p_w + c.reached, odds)
    if not of.lacking.any():
        return odds
    by_rules = torch.where(of.reached, of.p_w, 0.0)
    if c.alone is None:
        return torch.where(of.lacking, by_rules.logit(), odds)
    alone = c.alone.intercept + c.alone.p_w * by_rules + torch.where(of.reached, c.alone.reached, 0.0)
    return torch.where(of.lacking, alone, odds)


@dataclass(frozen=True)
class Queries:
    """A batch of queries of one side with all that systems need, computed once.

    Most candidates are plain: no rule reaches them, and they are ordered by their score. What needs more than that is
    listed: known candidates, which do not compete, and special ones, those that are not known and that a rule reaches
    or a constraint rules out, or that have no score.

    Attributes:
        score: (queries, entities), the embedding's scores with -∞ for all that is known.
        asked: the scores of the candidates that were asked for, known or not.
        base: the base of each query's relation.
        rivals: how many candidates each query has that are not known.
        starts: query i has the special candidates from starts[i] to starts[i + 1].
        owner, candidate: the special candidates.
        special: what is known of them.
        barred: which of them a constraint rules out.
    """

    score: torch.Tensor
    asked: torch.Tensor
    base: torch.Tensor
    rivals: torch.Tensor
    starts: torch.Tensor
    owner: torch.Tensor
    candidate: torch.Tensor
    special: Scored
    barred: torch.Tensor

    def last_of_best(self, n: int) -> torch.Tensor:
        """The last two of each query's n highest scores: (queries, 2)."""
        best = torch.topk(self.score, min(n, self.score.shape[1]), dim=1).values
        return torch.nn.functional.pad(best, (1, 0), value=torch.inf)[:, -2:]

    def leave_plain(self) -> None:
        """Puts the special candidates at -∞ too, so that the score matrix holds the plain ones alone."""
        self.score[self.owner, self.candidate] = -torch.inf


def prepare(
    embedding: Embedding | None,
    rules: RuleScores,
    known_entity: IntArray,
    relations: IntArray,
    side: Side,
    known: Pairs,
    asked: Pairs = NOTHING,
    whole: bool = False,
) -> Queries:
    """Scores a batch of queries, or the whole triples they make; `known` are the candidates that do not compete."""
    n, entities = len(known_entity), rules.reached.entities
    if embedding is None:
        score = torch.zeros(n, entities)
    else:
        score = (embedding.score_answers if whole else embedding.score_all)(known_entity, relations, side).contiguous()
    base = rules.base[relations]
    on = partial(to, score.device)

    # a candidate is a place in the matrix: query · entities + entity
    left_out = np.unique(known[0] * entities + known[1])
    owners, reached, log_odds = rules.of_queries(known_entity, relations, side)
    reached += owners * entities
    loops = np.stack([known_entity, relations, known_entity], axis=1)
    barred = np.flatnonzero(rules.forbidden(loops))
    barred = barred * entities + known_entity[barred]
    lacking = _lacking(embedding, known_entity)
    more = [places for places in (barred, lacking) if len(places)]
    special = np.unique(np.concatenate([reached, *more])) if more else reached
    special = special[_find(left_out, special) < 0]
    row = _find(reached, special)
    evidence = np.where(row >= 0, np.append(log_odds - base[owners], 0.0)[row], 0.0)

    flat = score.view(-1)
    asked_score, special_score = flat[on(asked[0] * entities + asked[1])], flat[on(special)]
    flat[on(left_out)] = -torch.inf
    return Queries(
        score,
        asked_score,
        on(base),
        on(entities - np.bincount(left_out // entities, minlength=n)),
        on(np.searchsorted(special, np.arange(n + 1) * entities)),
        on(special // entities),
        on(special % entities),
        Scored(special_score, on(base[special // entities]), on(evidence), on(row >= 0)),
        on(_find(barred, special) >= 0),
    )


def _lacking(embedding: Embedding | None, known_entity: IntArray) -> IntArray:
    """The places of candidates without a score, because an entity has no vector."""
    if not isinstance(embedding, Widened):
        return NOTHING[0]
    entities = np.arange(embedding.entities)
    lacking = embedding.lacks(known_entity)[:, None] | embedding.lacks(entities)
    return np.flatnonzero(lacking)


def _find(places: IntArray, wanted: IntArray) -> IntArray:
    """Where each stands among sorted places, -1 where it does not."""
    if not len(places):
        return np.full(len(wanted), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(places, wanted), len(places) - 1)
    return np.where(places[at] == wanted, at, -1)


def to(device: torch.device, array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> torch.Tensor:
    """An array as a tensor on a device."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
