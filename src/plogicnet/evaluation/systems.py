"""Systems: the ways in which candidates can be ordered by vectors, rules or both."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch

from plogicnet.graph import HEAD, RELATION, TAIL, IntArray, Side
from plogicnet.kge import Embedding
from plogicnet.mln import RuleScores

Combine = Literal["probability", "log_odds"]


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


@dataclass(frozen=True)
class Keys:
    """Two keys per (query, candidate): candidates are ordered by the first, and among equals by the second."""

    first: torch.Tensor
    second: torch.Tensor


@dataclass(frozen=True)
class Queries:
    """A batch of queries of one side with all that systems need, computed once: shapes (queries, entities).

    Attributes:
        score: the embedding's scores; zeros where there is no embedding.
        evidence: the rules' log-odds minus the base, zero where no rule reaches.
        base: the base of each query's relation.
        known: candidates that are left out of the ranking.
        loops: candidates that a constraint rules out.
    """

    score: torch.Tensor
    evidence: torch.Tensor
    base: torch.Tensor
    known: torch.Tensor
    loops: torch.Tensor

    @cached_property
    def wide_score(self) -> torch.Tensor:
        """The scores in float64, in which keys are compared."""
        return self.score.double()

    @cached_property
    def q(self) -> torch.Tensor:
        """Q of each candidate."""
        return torch.sigmoid(self.wide_score)

    @cached_property
    def p_w(self) -> torch.Tensor:
        """p_w of each candidate."""
        return torch.sigmoid(self.base + self.evidence)


def keys(system: System, queries: Queries) -> Keys:
    """The keys by which a system orders the candidates.

    λ = 0 is the raw score itself, so that pLogicNet* with λ = 0 is exactly pLogicNet. Else the first key is
    σ(s) + λ·p_w in float64 (Eq. 10) and the raw score breaks the ties that σ's saturation makes.
    """
    score = queries.wide_score
    if not system.embedding:
        first, second = queries.p_w, torch.zeros_like(score)
    elif system.rule_share == 0:
        first = second = score
    elif system.combine == "probability":
        first, second = queries.q + system.rule_share * queries.p_w, score
    else:
        first, second = score + system.rule_share * queries.evidence, score
    if system.rerank and system.embedding:
        first = first.masked_fill(~_best(score.masked_fill(queries.known, -torch.inf), system.rerank), -torch.inf)
    if system.constraint:
        first = first.masked_fill(queries.loops, -torch.inf)
        second = second.masked_fill(queries.loops, -torch.inf)
    return Keys(first, second)


def _best(score: torch.Tensor, n: int) -> torch.Tensor:
    least = torch.topk(score, min(n, score.shape[1]), dim=1).values[:, -1:]
    return score >= least


def prepare(
    embedding: Embedding | None,
    rules: RuleScores,
    known_entity: IntArray,
    relations: IntArray,
    side: Side,
    known: tuple[IntArray, IntArray],
) -> Queries:
    """Scores a batch of queries; `known` are (query's number, entity) pairs that do not compete."""
    n, entities = len(known_entity), rules.reached.entities
    score = embedding.score_all(known_entity, relations, side) if embedding else torch.zeros(n, entities)
    device = score.device
    base = rules.base[relations]
    owners, candidates, log_odds = rules.of_queries(known_entity, relations, side)
    evidence = torch.zeros(n, entities, dtype=torch.float64, device=device)
    evidence[_on(owners, device), _on(candidates, device)] = _on(log_odds - base[owners], device)
    out = torch.zeros(n, entities, dtype=torch.bool, device=device)
    out[_on(known[0], device), _on(known[1], device)] = True
    loops = torch.zeros(n, entities, dtype=torch.bool, device=device)
    triples = np.stack([known_entity] * 3, axis=1)
    triples[:, RELATION] = relations
    barred = np.flatnonzero(rules.forbidden(triples))
    loops[_on(barred, device), _on(triples[barred, HEAD if side == "head" else TAIL], device)] = True
    return Queries(score, evidence, _on(base, device)[:, None], out, loops)


def _on(array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]", device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
