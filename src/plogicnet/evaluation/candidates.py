"""The candidates of a batch of queries, scored once for all orders."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from plogicnet.evaluation.orders import Scored
from plogicnet.graph import BoolArray, FloatArray, IntArray, Side
from plogicnet.mln import RuleScores
from plogicnet.neural.protocol import NeuralModel

Pairs = tuple[IntArray, IntArray]
"""(query's number, entity) of some candidates."""
NOTHING: Pairs = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


@dataclass(frozen=True)
class Queries:
    """Queries of one side: each has a known entity and a relation, and asks for the entity at the given side.

    Example:
        >>> len(Queries(known=np.array([0, 1]), relations=np.array([0, 0]), side="tail"))
        2
    """

    known: IntArray
    relations: IntArray
    side: Side

    def __len__(self) -> int:
        return len(self.known)

    def between(self, start: int, stop: int) -> "Queries":
        """The queries of a range."""
        return Queries(self.known[start:stop], self.relations[start:stop], self.side)


@dataclass(frozen=True)
class Candidates:
    """All candidates of a batch of queries, with all that orders need.

    Most candidates are plain: no rule reaches them, and they are ordered by their score. Two kinds are listed: those
    left out, which do not compete, and special ones. Special are those that are not left out and that a rule reaches,
    that a constraint rules out, or that have no score.

    Attributes:
        score: (queries, entities), the neural model's scores with -∞ for all that is left out.
        asked: the scores of the candidates that were asked for, left out or not.
        base: the base of each query's relation.
        rivals: how many candidates of each query are not left out.
        starts: query i has the special candidates from starts[i] to starts[i + 1].
        owner, entity: the query and the entity of each special candidate.
        special: what is known of them.
        barred: which of them a constraint rules out.
    """

    score: Tensor
    asked: Tensor
    base: Tensor
    rivals: Tensor
    starts: Tensor
    owner: Tensor
    entity: Tensor
    special: Scored
    barred: Tensor

    def last_of_best(self, n: int) -> Tensor:
        """The last two of each query's n highest scores: (queries, 2)."""
        best = torch.topk(self.score, min(n, self.score.shape[1]), dim=1).values
        return torch.nn.functional.pad(best, (1, 0), value=torch.inf)[:, -2:]

    def leave_plain(self) -> None:
        """Sets the scores of special candidates to -∞ too, so that the matrix holds the plain ones alone."""
        self.score[self.owner, self.entity] = -torch.inf


def score_candidates(
    neural: NeuralModel | None,
    rules: RuleScores,
    queries: Queries,
    left_out: Pairs,
    asked: Pairs = NOTHING,
    whole_triples: bool = False,
) -> Candidates:
    """Scores the candidates of a batch of queries, as answers or as whole triples; those left out do not compete."""
    n, entities = len(queries), rules.reached.entities
    if neural is None:
        score = torch.zeros(n, entities)
    else:
        scorer = neural.score_answers if whole_triples else neural.score_all
        score = scorer(queries.known, queries.relations, queries.side).float().contiguous()
    base = rules.base[queries.relations]
    on = partial(to, score.device)
    # a candidate is a place in the matrix: query · entities + entity
    known = np.unique(left_out[0] * entities + left_out[1])
    special, evidence, reached, barred = _special(neural, rules, queries, known)
    owner, flat = special // entities, score.view(-1)
    asked_score, special_score = flat[on(asked[0] * entities + asked[1])], flat[on(special)]
    flat[on(known)] = -torch.inf
    return Candidates(
        score=score,
        asked=asked_score,
        base=on(base),
        rivals=on(entities - np.bincount(known // entities, minlength=n)),
        starts=on(np.searchsorted(special, np.arange(n + 1) * entities)),
        owner=on(owner),
        entity=on(special % entities),
        special=Scored(special_score, on(base[owner]), on(evidence), on(reached)),
        barred=on(barred),
    )


def _special(
    neural: NeuralModel | None, rules: RuleScores, queries: Queries, left_out: IntArray
) -> tuple[IntArray, FloatArray, BoolArray, BoolArray]:
    """The special candidates: place, the rules' evidence, whether a rule reaches it, whether a constraint bars it."""
    entities, known = rules.reached.entities, queries.known
    owners, reached, log_odds = rules.of_queries(known, queries.relations, queries.side)
    reached += owners * entities
    barred = np.flatnonzero(rules.forbidden(np.stack([known, queries.relations, known], axis=1)))
    barred = barred * entities + known[barred]
    special = np.unique(np.concatenate([reached, barred])) if len(barred) else reached
    if neural is not None and (unscorable := neural.unscorable).any():
        special = np.union1d(special, np.flatnonzero(unscorable[known][:, None] | unscorable))
    special = special[_find(left_out, special) < 0]
    row = _find(reached, special)
    evidence = np.where(row >= 0, np.append(log_odds - rules.base[queries.relations][owners], 0.0)[row], 0.0)
    return special, evidence, row >= 0, _find(barred, special) >= 0


def _find(places: IntArray, wanted: IntArray) -> IntArray:
    """The index of each in an array of sorted places, -1 where it is not there."""
    if not len(places):
        return np.full(len(wanted), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(places, wanted), len(places) - 1)
    return np.where(places[at] == wanted, at, -1)


def to(device: torch.device, array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> Tensor:
    """An array as a tensor on a device."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
