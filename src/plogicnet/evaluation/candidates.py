"""The candidates of a batch of queries, scored once and then sorted by several orders (see `orders.Order`)."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from plogicnet.evaluation.orders import CandidateScores
from plogicnet.graph import BoolArray, FloatArray, IntArray, Side
from plogicnet.mln import RuleScores
from plogicnet.neural.protocol import NeuralModel

Pairs = tuple[IntArray, IntArray]
"""Candidates as two arrays of equal length: the index of the query, and the entity."""
NO_PAIRS: Pairs = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


@dataclass(frozen=True)
class Queries:
    """Queries with a missing head or tail: `side` is the missing side, `known` the entities on the other side.

    Example:
        >>> len(Queries(known=np.array([0, 1]), relations=np.array([0, 0]), side="tail"))
        2
    """

    known: IntArray
    relations: IntArray
    side: Side

    def __len__(self) -> int:
        return len(self.known)

    def slice(self, start: int, stop: int) -> "Queries":
        """Return the queries from `start` up to, but not including, `stop`."""
        return Queries(self.known[start:stop], self.relations[start:stop], self.side)


@dataclass(frozen=True)
class Candidates:
    """All candidates of a batch of queries, with everything needed to sort them by any `Order`.

    Each candidate is of one of three kinds:

    - Filtered candidates do not compete.
    - Special candidates are not filtered, and at least one of these holds: a rule concludes them, a constraint excludes
      them, they have no neural score. They are listed one by one.
    - Plain candidates are all others. They differ only in their neural score, so a matrix of scores is enough.

    Attributes:
        scores: neural scores, (queries, entities); -∞ for filtered candidates.
        requested_scores: neural scores of the `requested` candidates of `score_candidates`, even if they are filtered.
        base: base rate of each query's relation, as log-odds.
        n_competitors: number of candidates of each query that are not filtered.
        starts: starts[i] to starts[i + 1] are the positions of query i in the arrays of special candidates.
        special_query, special_entity: the query and the entity of each special candidate.
        special_scores: the scores of the special candidates.
        special_forbidden: whether a constraint excludes each special candidate.
    """

    scores: Tensor
    requested_scores: Tensor
    base: Tensor
    n_competitors: Tensor
    starts: Tensor
    special_query: Tensor
    special_entity: Tensor
    special_scores: CandidateScores
    special_forbidden: Tensor

    def last_two_of_top(self, n: int) -> Tensor:
        """Return the (n-1)-th and the n-th highest score of each query, (queries, 2); for n = 1, ∞ and the highest."""
        top = torch.topk(self.scores, min(n, self.scores.shape[1]), dim=1).values
        return torch.nn.functional.pad(top, (1, 0), value=torch.inf)[:, -2:]

    def mask_special(self) -> None:
        """Set the scores of special candidates to -∞, so that only plain candidates have finite scores."""
        self.scores[self.special_query, self.special_entity] = -torch.inf


def score_candidates(
    neural: NeuralModel | None,
    rules: RuleScores,
    queries: Queries,
    filtered: Pairs,
    requested: Pairs = NO_PAIRS,
    score_as_triples: bool = False,
) -> Candidates:
    """Score the candidates of a batch of queries.

    Args:
        neural: the neural model; None: all scores are zero.
        rules: the rule model's scores.
        queries: the queries.
        filtered: candidates that do not compete.
        requested: candidates to return the scores of, even if they are filtered.
        score_as_triples: whether scores must equal `NeuralModel.score` of the triples (see `Order`).
    """
    n_queries, n_entities = len(queries), rules.reached.entities
    if neural is None:
        scores = torch.zeros(n_queries, n_entities)
    else:
        scorer = neural.score_answers if score_as_triples else neural.score_all
        scores = scorer(queries.known, queries.relations, queries.side).float().contiguous()
    base = rules.base[queries.relations]
    tensor = partial(to_tensor, scores.device)
    # the position of a candidate in the flat matrix is query · n_entities + entity
    filtered_positions = np.unique(filtered[0] * n_entities + filtered[1])
    special, evidence, reached, forbidden = _find_special(neural, rules, queries, filtered_positions)
    query, flat = special // n_entities, scores.view(-1)
    requested_scores, special_scores = flat[tensor(requested[0] * n_entities + requested[1])], flat[tensor(special)]
    flat[tensor(filtered_positions)] = -torch.inf
    return Candidates(
        scores=scores,
        requested_scores=requested_scores,
        base=tensor(base),
        n_competitors=tensor(n_entities - np.bincount(filtered_positions // n_entities, minlength=n_queries)),
        starts=tensor(np.searchsorted(special, np.arange(n_queries + 1) * n_entities)),
        special_query=tensor(query),
        special_entity=tensor(special % n_entities),
        special_scores=CandidateScores(special_scores, tensor(base[query]), tensor(evidence), tensor(reached)),
        special_forbidden=tensor(forbidden),
    )


def _find_special(
    neural: NeuralModel | None, rules: RuleScores, queries: Queries, filtered_positions: IntArray
) -> tuple[IntArray, FloatArray, BoolArray, BoolArray]:
    """Return four arrays about the special candidates.

    These are: the position in the flat matrix of scores, the rules' log-odds minus the base rate, whether a rule
    concludes the candidate, and whether a constraint excludes it.
    """
    n_entities, known = rules.reached.entities, queries.known
    query, concluded, log_odds = rules.of_queries(known, queries.relations, queries.side)
    concluded += query * n_entities  # now positions in the flat matrix
    forbidden = np.flatnonzero(rules.forbidden(np.stack([known, queries.relations, known], axis=1)))
    forbidden = forbidden * n_entities + known[forbidden]
    special = np.unique(np.concatenate([concluded, forbidden])) if len(forbidden) else concluded
    if neural is not None and (unscorable := neural.unscorable).any():
        special = np.union1d(special, np.flatnonzero(unscorable[known][:, None] | unscorable))
    special = special[_find(filtered_positions, special) < 0]
    row = _find(concluded, special)
    evidence = np.where(row >= 0, np.append(log_odds - rules.base[queries.relations][query], 0.0)[row], 0.0)
    return special, evidence, row >= 0, _find(forbidden, special) >= 0


def _find(sorted_positions: IntArray, positions: IntArray) -> IntArray:
    """Return the index of each position in a sorted array of positions, or -1 if it is not in the array."""
    if not len(sorted_positions):
        return np.full(len(positions), -1, dtype=np.int64)
    index = np.minimum(np.searchsorted(sorted_positions, positions), len(sorted_positions) - 1)
    return np.where(sorted_positions[index] == positions, index, -1)


def to_tensor(device: torch.device, array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> Tensor:
    """Return an array as a tensor on a device."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
