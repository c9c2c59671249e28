"""Filtered ranking of the triples of a split by any number of orders at once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from plogicnet.evaluation.batches import batch_size, device_of, in_batches, query_bytes
from plogicnet.evaluation.candidates import Candidates, Queries, score_candidates, to
from plogicnet.evaluation.counting import Counts, count_keys, count_scores
from plogicnet.evaluation.figures import Ranks
from plogicnet.evaluation.orders import Combination, Keys, Scored
from plogicnet.graph import HEAD, RELATION, SIDES, TAIL, Answers, IntArray, KnowledgeGraph, Side
from plogicnet.mln import RuleScores
from plogicnet.neural.protocol import NeuralModel
from plogicnet.support.progress import Progress, silent


def filter_splits(split: str) -> list[str]:
    """What is filtered: train and valid on valid, all three on test.

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
    orders: Mapping[str, Combination],
    batch_memory_mb: int = 0,
    progress: Progress = silent,
    filtered: Sequence[str] = (),
) -> dict[str, Ranks]:
    """Ranks the head and the tail of every triple of a split against all entities, by each order.

    Args:
        graph: the graph.
        split: the split whose triples are ranked.
        neural: the neural model; None: all scores are zero.
        rules: the rule model's answers.
        orders: the orders by name.
        batch_memory_mb: the memory of a batch of queries, most of it used only where rules reach most candidates; 0:
            a quarter of what is free, at most 256 MB (4 GB on a GPU). A batch that still does not fit is halved.
        progress: shows the progress.
        filtered: the splits whose facts do not compete; by default those of `filter_splits`.
    """
    triples = graph.split(split)
    found = {name: np.zeros((len(triples), 2, 2), dtype=np.int64) for name in orders}
    size = batch_size(query_bytes(neural, len(graph.entities)), device_of(neural), batch_memory_mb)
    with progress(f"ranking {split}, queries", 2 * len(triples)) as advance:
        for side in SIDES:
            answers = graph.known(list(filtered) or filter_splits(split), side)
            known = TAIL if side == "head" else HEAD
            by_query = np.lexsort((triples[:, known], triples[:, RELATION]))

            def work(
                start: int, stop: int, side: Side = side, answers: Answers = answers, order: IntArray = by_query
            ) -> None:
                rows = order[start:stop]
                contest = _contest(triples[rows], side, answers, neural, rules, orders.values())
                counted = torch.stack([torch.stack(contest.count(o), 1) for o in orders.values()]).cpu().numpy()
                for name, counts in zip(orders, counted, strict=True):
                    found[name][rows, SIDES.index(side)] = counts
                advance(stop - start)

            in_batches(work, len(triples), size)
    return {name: Ranks(counts[:, :, 0], counts[:, :, 1]) for name, counts in found.items()}


@dataclass(frozen=True)
class Contest:
    """Triples (the truths) of a batch of queries against all that is not known.

    Plain candidates are counted by their raw scores, special ones by their keys; see `Candidates`.

    Attributes:
        candidates: the candidates of the queries.
        row: the query of each truth.
        truth: what is known of the truths.
        lifted: the truths that a rule reaches.
        barred: whether a constraint rules a truth out.
        best: for each window, the last two of the best scores of each query.
    """

    candidates: Candidates
    row: torch.Tensor
    truth: Scored
    lifted: torch.Tensor
    barred: torch.Tensor
    best: Mapping[int, torch.Tensor]

    def count(self, order: Combination) -> Counts:
        """How many candidates are above each truth, and how many level with it."""
        better, level = self._in_window(order) if order.window else self._all(order)
        if order.constraint:  # a truth that is ruled out is below all others
            better = torch.where(self.barred, self.candidates.rivals[self.row], better)
            level = level.masked_fill(self.barred, 0)
        return better, level

    def _in_window(self, order: Combination) -> Counts:
        """The order within the neural model's best n, which are those that score no less than the n-th.

        A truth above the n-th of the others moves that one out, so beside it are those no less than the one before.
        """
        before, last = self.best[order.window].unbind(1)
        score, last_here = self.truth.score, last[self.row]
        moves, counts = (score > last_here), self._all(replace(order, rule_share=0.0))
        for here, least in ((moves, before), (score == last_here, last)):
            inside = self._all(order, least)
            counts = (torch.where(here, inside[0], counts[0]), torch.where(here, inside[1], counts[1]))
        return counts

    def _all(self, order: Combination, least: torch.Tensor | None = None) -> Counts:
        """The counts among all candidates, or among those that score no less than a least score of each query."""
        there = self.candidates
        own, special = order.keys(self.truth), order.keys(there.special)
        if order.constraint:
            special = special.barring(there.barred)
        if least is not None:
            special = special.barring(there.special.score < least[there.owner])
        above, level = self._plain(order, own, least)
        ranges = there.starts, special.first, special.second
        more_above, more_level = count_keys(*ranges, self.row, own.first, own.second)
        return above + more_above, level + more_level

    def _plain(self, order: Combination, own: Keys, least: torch.Tensor | None) -> Counts:
        """The counts among plain candidates.

        A truth that is plain itself is beaten by every higher score, in every order. For one that a rule reaches, the
        score from which on a plain candidate beats it is searched for.
        """
        if not order.neural:
            plain = (self.candidates.rivals - self.candidates.starts.diff())[self.row]
            first = order.keys(Scored.plain(self.truth.score, self.truth.base)).first
            return plain * (first > own.first), plain * (first == own.first)
        above, level = self._by_score
        at = self.lifted
        if order.by_score or not len(at):
            return above, level
        own, row, truth = Keys(own.first[at], own.second[at]), self.row[at], self.truth.score[at]
        limit = _limit(order, own, self.truth.base[at])
        if least is not None:
            limit = torch.maximum(limit, torch.nextafter(least[row], least.new_tensor(-torch.inf)))
        more, same = count_scores(self.candidates.score, row, limit)
        equal = order.keys(Scored.plain(truth, self.truth.base[at])).first == own.first
        return above.index_copy(0, at, more), level.index_copy(0, at, same * equal)

    @cached_property
    def _by_score(self) -> Counts:
        return count_scores(self.candidates.score, self.row, self.truth.score)


def _contest(
    triples: IntArray,
    side: Side,
    answers: Answers,
    neural: NeuralModel | None,
    rules: RuleScores,
    orders: Iterable[Combination],
) -> Contest:
    """Each distinct query is scored once; the truths' own scores are read from the same matrix as their rivals'."""
    known, asked = (TAIL, HEAD) if side == "head" else (HEAD, TAIL)
    distinct, row = np.unique(triples[:, RELATION] * answers.entities + triples[:, known], return_inverse=True)
    relations, entity = np.divmod(distinct, answers.entities)
    left_out = answers.lookup(entity, relations)[:2]
    queries, truths = Queries(entity, relations, side), (row, triples[:, asked])
    candidates = score_candidates(neural, rules, queries, left_out, truths)
    device = candidates.score.device
    best = {o.window: candidates.last_of_best(o.window) for o in orders if o.window}
    candidates.leave_plain()
    odds, reached = rules.of_triples(triples)
    base = rules.base[triples[:, RELATION]]
    truth = Scored(candidates.asked, to(device, base), to(device, odds - base), to(device, reached))
    barred = to(device, rules.forbidden(triples))
    return Contest(candidates, to(device, row), truth, to(device, np.flatnonzero(reached)), barred, best)


def _limit(order: Combination, own: Keys, base: torch.Tensor) -> torch.Tensor:
    """The highest float32 score with which a plain candidate does not beat a truth of these keys; -∞ if none is.

    A binary search over all float32 numbers in their order. It uses only the order's keys, so the limit is exactly
    where comparing every candidate's keys would put it.
    """
    infinity = torch.tensor(torch.inf).view(torch.int32).item()
    low = torch.full_like(base, -infinity, dtype=torch.int64)
    high = torch.full_like(low, infinity)
    for _ in range(33):
        middle = (low + high + 1) >> 1
        plain = order.keys(Scored.plain(_float(middle), base))
        beaten = (plain.first > own.first) | ((plain.first == own.first) & (plain.second > own.second))
        low, high = torch.where(beaten, low, middle), torch.where(beaten, middle - 1, high)
    return _float(low)


def _float(number: torch.Tensor) -> torch.Tensor:
    """The float32 that is so many places above zero (below, where negative)."""
    size = number.abs().to(torch.int32).view(torch.float32)
    return torch.where(number < 0, -size, size)
