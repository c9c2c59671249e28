"""Filtered ranking of the triples of a split by any number of orders at once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from plogicnet.evaluation.batches import in_batches, queries_at_once
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
    size = queries_at_once(neural, len(graph.entities), batch_memory_mb)

    def work(side: Side, answers: Answers, by_query: IntArray, start: int, stop: int) -> None:
        rows = by_query[start:stop]
        contest = _contest(triples[rows], side, answers, neural, rules, orders.values())
        counted = torch.stack([torch.stack(contest.count(o), 1) for o in orders.values()]).cpu().numpy()
        for name, counts in zip(orders, counted, strict=True):
            found[name][rows, SIDES.index(side)] = counts
        advance(stop - start)

    with progress(f"ranking {split}, queries", 2 * len(triples)) as advance:
        for side in SIDES:
            answers = graph.known(list(filtered) or filter_splits(split), side)
            by_query = np.lexsort((triples[:, TAIL if side == "head" else HEAD], triples[:, RELATION]))
            in_batches(partial(work, side, answers, by_query), len(triples), size)
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
    row: Tensor
    truth: Scored
    lifted: Tensor
    barred: Tensor
    best: Mapping[int, Tensor]

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
        better, level = self._all(replace(order, rule_share=0.0))
        for here, least in ((score > last_here, before), (score == last_here, last)):
            better_inside, level_inside = self._all(order, least)
            better, level = torch.where(here, better_inside, better), torch.where(here, level_inside, level)
        return better, level

    def _all(self, order: Combination, least: Tensor | None = None) -> Counts:
        """The counts among all candidates, or among those that score no less than a least score of each query."""
        there = self.candidates
        own, (first, second) = order.levels(self.truth), order.levels(there.special)
        last = there.barred & order.constraint
        if least is not None:
            last = last | (there.special.score < least[there.owner])
        first, second = first.masked_fill(last, -torch.inf), second.masked_fill(last, -torch.inf)
        above, level = self._plain(order, own, least)
        more_above, more_level = count_keys(there.starts, first, second, self.row, *own)
        return above + more_above, level + more_level

    def _plain(self, order: Combination, own: Keys, least: Tensor | None) -> Counts:
        """The counts among plain candidates.

        A truth that is plain itself is beaten by every higher score, in every order. For one that a rule reaches, the
        score from which on a plain candidate beats it is searched for.
        """
        if not order.neural:
            plain = (self.candidates.rivals - self.candidates.starts.diff())[self.row]
            first = order.levels(Scored.plain(self.truth.score, self.truth.base))[0]
            return plain * (first > own[0]), plain * (first == own[0])
        above, level = self._by_score
        at = self.lifted
        if order.by_score or not len(at):
            return above, level
        own, row, base = (own[0][at], own[1][at]), self.row[at], self.truth.base[at]
        limit = _limit(order, own, base)
        if least is not None:
            limit = torch.maximum(limit, torch.nextafter(least[row], least.new_tensor(-torch.inf)))
        more, same = count_scores(self.candidates.score, row, limit)
        equal = order.levels(Scored.plain(self.truth.score[at], base))[0] == own[0]
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
    truth = Scored(candidates.asked, *(to(device, column) for column in (base, odds - base, reached)))
    lifted, barred = to(device, np.flatnonzero(reached)), to(device, rules.forbidden(triples))
    return Contest(candidates, to(device, row), truth, lifted, barred, best)


def _limit(order: Combination, own: Keys, base: Tensor) -> Tensor:
    """The highest float32 score with which a plain candidate does not beat a truth of these keys; -∞ if none is.

    A binary search over all float32 numbers in their order. It uses only the order's keys, so the limit is exactly
    where comparing every candidate's keys would put it.
    """
    infinity = torch.tensor(torch.inf).view(torch.int32).item()
    low = torch.full_like(base, -infinity, dtype=torch.int64)
    high = torch.full_like(low, infinity)
    for _ in range(33):
        middle = (low + high + 1) >> 1
        first, second = order.levels(Scored.plain(_float(middle), base))
        beaten = (first > own[0]) | ((first == own[0]) & (second > own[1]))
        low, high = torch.where(beaten, low, middle), torch.where(beaten, middle - 1, high)
    return _float(low)


def _float(number: Tensor) -> Tensor:
    """The float32 that is so many places above zero (below, where negative)."""
    size = number.abs().to(torch.int32).view(torch.float32)
    return torch.where(number < 0, -size, size)
