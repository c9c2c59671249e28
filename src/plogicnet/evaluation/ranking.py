"""Filtered ranking of the triples of a split, by several orders in one pass."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from plogicnet.evaluation.batches import queries_per_batch, run_in_batches
from plogicnet.evaluation.candidates import Candidates, Queries, score_candidates, to_tensor
from plogicnet.evaluation.counting import Counts, count_keys, count_scores
from plogicnet.evaluation.orders import CandidateScores, CombinedOrder, Keys
from plogicnet.evaluation.results import Ranks
from plogicnet.graph import HEAD, RELATION, SIDES, TAIL, AnswerIndex, IntArray, KnowledgeGraph, Side
from plogicnet.mln import RuleScores
from plogicnet.neural.protocol import NeuralModel
from plogicnet.support.progress import Progress, no_progress


def filter_splits(split: str) -> list[str]:
    """Return the splits whose facts are filtered in the ranking of a split: train and valid for valid, all for test.

    Example:
        >>> filter_splits("valid")
        ['train', 'valid']
    """
    return ["train", "valid", "test"] if split == "test" else ["train", "valid"]


def rank(
    graph: KnowledgeGraph,
    split: str,
    neural: NeuralModel | None,
    rules: RuleScores,
    orders: Mapping[str, CombinedOrder],
    batch_memory_mb: int = 0,
    progress: Progress = no_progress,
    filtered: Sequence[str] = (),
) -> dict[str, Ranks]:
    """Rank the head and the tail of every triple of a split against all entities, by each order.

    Args:
        graph: the graph.
        split: the split to rank.
        neural: the neural model; None: all scores are zero.
        rules: the rule model's scores.
        orders: the orders by name.
        batch_memory_mb: memory for a batch of queries; 0: a quarter of the free memory, at most 256 MB (4 GB on a GPU).
            A batch needs all of it only if rules conclude most candidates. A batch that does not fit is halved.
        progress: progress display.
        filtered: the splits whose facts do not compete; by default the result of `filter_splits`.
    """
    triples = graph.split(split)
    counts = {name: np.zeros((len(triples), 2, 2), dtype=np.int64) for name in orders}
    size = queries_per_batch(neural, len(graph.entities), batch_memory_mb)

    def work(side: Side, answers: AnswerIndex, by_query: IntArray, start: int, stop: int) -> None:
        rows = by_query[start:stop]
        counter = _make_counter(triples[rows], side, answers, neural, rules, orders.values())
        batch = torch.stack([torch.stack(counter.count(o), 1) for o in orders.values()]).cpu().numpy()
        for name, batch_counts in zip(orders, batch, strict=True):
            counts[name][rows, SIDES.index(side)] = batch_counts
        advance(stop - start)

    with progress(f"ranking {split}, queries", 2 * len(triples)) as advance:
        for side in SIDES:
            answers = graph.answer_index(list(filtered) or filter_splits(split), side)
            by_query = np.lexsort((triples[:, TAIL if side == "head" else HEAD], triples[:, RELATION]))
            run_in_batches(partial(work, side, answers, by_query), len(triples), size)
    return {name: Ranks(count[:, :, 0], count[:, :, 1]) for name, count in counts.items()}


@dataclass(frozen=True)
class RankCounter:
    """A counter of the candidates that rank above the targets of a batch of queries, or tie with them.

    A target is a triple of the split. Plain candidates are counted by their raw scores, special ones by their sort
    keys (see `Candidates`).

    Attributes:
        candidates: the candidates of the queries.
        query: the index of each target's query.
        target: the scores of the targets.
        reached_rows: the indices of the targets that a rule concludes.
        forbidden: whether a constraint excludes each target.
        last_of_top: the result of `Candidates.last_two_of_top` for each value of `n_reranked`.
    """

    candidates: Candidates
    query: Tensor
    target: CandidateScores
    reached_rows: Tensor
    forbidden: Tensor
    last_of_top: Mapping[int, Tensor]

    def count(self, order: CombinedOrder) -> Counts:
        """Return the number of candidates above each target, and the number of candidates that tie with it."""
        better, tied = self._count_reranked(order) if order.n_reranked else self._count_all(order)
        if order.constraint:  # a target that a constraint excludes is below all others
            better = torch.where(self.forbidden, self.candidates.n_competitors[self.query], better)
            tied = tied.masked_fill(self.forbidden, 0)
        return better, tied

    def _count_reranked(self, order: CombinedOrder) -> Counts:
        """Count if only the neural model's n best candidates are re-ranked, those with at least the n-th best score.

        If the target scores higher than the n-th best other candidate, it displaces that candidate, and the threshold
        is the (n-1)-th best score.
        """
        second_last, last = self.last_of_top[order.n_reranked].unbind(1)
        score, last_score = self.target.score, last[self.query]
        better, tied = self._count_all(replace(order, lambda_=0.0))
        for in_top, min_score in ((score > last_score, second_last), (score == last_score, last)):
            better_inside, tied_inside = self._count_all(order, min_score)
            better, tied = torch.where(in_top, better_inside, better), torch.where(in_top, tied_inside, tied)
        return better, tied

    def _count_all(self, order: CombinedOrder, min_score: Tensor | None = None) -> Counts:
        """Count among all candidates, or only among the ones with at least `min_score` of their query."""
        candidates = self.candidates
        keys, (first, second) = order.sort_keys(self.target), order.sort_keys(candidates.special_scores)
        is_last = candidates.special_forbidden & order.constraint
        if min_score is not None:
            is_last = is_last | (candidates.special_scores.score < min_score[candidates.special_query])
        first, second = first.masked_fill(is_last, -torch.inf), second.masked_fill(is_last, -torch.inf)
        better, tied = self._count_plain(order, keys, min_score)
        special_better, special_tied = count_keys(candidates.starts, first, second, self.query, *keys)
        return better + special_better, tied + special_tied

    def _count_plain(self, order: CombinedOrder, keys: Keys, min_score: Tensor | None) -> Counts:
        """Count among plain candidates.

        If no rule concludes the target, the plain candidates above it are those with a higher score, in every order
        with a neural model. Otherwise `_highest_losing_score` returns the score that a plain candidate must exceed.
        """
        if not order.neural:
            n_plain = (self.candidates.n_competitors - self.candidates.starts.diff())[self.query]
            first = order.sort_keys(CandidateScores.plain(self.target.score, self.target.base))[0]
            return n_plain * (first > keys[0]), n_plain * (first == keys[0])
        better, tied = self._counts_by_score
        rows = self.reached_rows
        if order.by_score or not len(rows):
            return better, tied
        keys, query, base = (keys[0][rows], keys[1][rows]), self.query[rows], self.target.base[rows]
        limit = _highest_losing_score(order, keys, base)
        if min_score is not None:
            limit = torch.maximum(limit, torch.nextafter(min_score[query], min_score.new_tensor(-torch.inf)))
        above, same = count_scores(self.candidates.scores, query, limit)
        equal = order.sort_keys(CandidateScores.plain(self.target.score[rows], base))[0] == keys[0]
        return better.index_copy(0, rows, above), tied.index_copy(0, rows, same * equal)

    @cached_property
    def _counts_by_score(self) -> Counts:
        return count_scores(self.candidates.scores, self.query, self.target.score)


def _make_counter(
    triples: IntArray,
    side: Side,
    answers: AnswerIndex,
    neural: NeuralModel | None,
    rules: RuleScores,
    orders: Iterable[CombinedOrder],
) -> RankCounter:
    """Create the counter of a batch of triples.

    Each distinct query is scored once. Targets and competitors are scored in the same matrix, so that ties are exact.
    """
    known, missing = (TAIL, HEAD) if side == "head" else (HEAD, TAIL)
    distinct, query = np.unique(triples[:, RELATION] * answers.entities + triples[:, known], return_inverse=True)
    relations, entity = np.divmod(distinct, answers.entities)
    filtered = answers.lookup(entity, relations)[:2]
    queries, targets = Queries(entity, relations, side), (query, triples[:, missing])
    candidates = score_candidates(neural, rules, queries, filtered, targets)
    device = candidates.scores.device
    last_of_top = {o.n_reranked: candidates.last_two_of_top(o.n_reranked) for o in orders if o.n_reranked}
    candidates.mask_special()
    log_odds, reached = rules.of_triples(triples)
    base = rules.base[triples[:, RELATION]]
    target = CandidateScores(
        candidates.requested_scores, *(to_tensor(device, column) for column in (base, log_odds - base, reached))
    )
    reached_rows, forbidden = to_tensor(device, np.flatnonzero(reached)), to_tensor(device, rules.forbidden(triples))
    return RankCounter(candidates, to_tensor(device, query), target, reached_rows, forbidden, last_of_top)


def _highest_losing_score(order: CombinedOrder, keys: Keys, base: Tensor) -> Tensor:
    """Return the highest float32 score with which a plain candidate is not above a target with these keys, or -∞.

    This is a binary search over all float32 numbers. It compares sort keys, so the result is exact: the same as if the
    keys of every candidate were compared.
    """
    infinity = torch.tensor(torch.inf).view(torch.int32).item()
    low = torch.full_like(base, -infinity, dtype=torch.int64)
    high = torch.full_like(low, infinity)
    for _ in range(33):
        middle = (low + high + 1) >> 1
        first, second = order.sort_keys(CandidateScores.plain(_nth_float(middle), base))
        is_above = (first > keys[0]) | ((first == keys[0]) & (second > keys[1]))
        low, high = torch.where(is_above, low, middle), torch.where(is_above, middle - 1, high)
    return _nth_float(low)


def _nth_float(n: Tensor) -> Tensor:
    """Return the n-th float32 number above zero, or the |n|-th below zero if n is negative."""
    magnitude = n.abs().to(torch.int32).view(torch.float32)
    return torch.where(n < 0, -magnitude, magnitude)
