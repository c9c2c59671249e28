"""Filtered ranking of test triples by any number of systems at once, and the figures that come of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from plogicnet.evaluation.counting import Counts, count_keys, count_scores
from plogicnet.evaluation.memory import batch_size, device_of, in_batches
from plogicnet.evaluation.systems import Keys, Queries, Scored, System, keys, prepare, to
from plogicnet.graph import CATEGORIES, HEAD, RELATION, TAIL, Answers, FloatArray, IntArray, KnowledgeGraph, Side
from plogicnet.kge import Embedding
from plogicnet.mln import RuleScores
from plogicnet.progress import Progress, silent

SIDES: tuple[Side, Side] = ("head", "tail")
BYTES_PER_CANDIDATE = 64
"""Two score matrices while they are made (8), and the list of special candidates were rules to reach them all."""


@dataclass(frozen=True)
class Ranks:
    """The ranks of each triple's head (column 0) and tail (column 1): competitors better, and competitors level.

    Example:
        >>> Ranks(np.array([[0, 2]]), np.array([[0, 1]])).realistic
        array([[1. , 3.5]])
    """

    better: IntArray
    level: IntArray

    @property
    def optimistic(self) -> FloatArray:
        """The truth stands first among its equals."""
        return np.asarray(self.better + 1.0)

    @property
    def pessimistic(self) -> FloatArray:
        """The truth stands last among its equals."""
        return np.asarray(self.better + self.level + 1.0)

    @property
    def realistic(self) -> FloatArray:
        """The mean of both, the headline."""
        return np.asarray(self.better + self.level / 2 + 1.0)


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
    embedding: Embedding | None,
    rules: RuleScores,
    systems: Mapping[str, System],
    batch_memory_mb: int = 0,
    progress: Progress = silent,
    filtered: Sequence[str] = (),
) -> dict[str, Ranks]:
    """Ranks the head and the tail of every triple of a split against all entities, for each system.

    Facts of the splits named by `filtered` do not compete; unless told, all that is known then (see `filter_splits`).

    A batch of queries takes `batch_memory_mb`, most of it only where rules reach most candidates; 0 is a quarter of
    what is free, at most 256 MB (4 GB on a GPU). A batch that still does not fit is halved.

    Example:
        >>> rank(graph, "test", embedding, rules, {"pLogicNet": System()})  # doctest: +SKIP
    """
    triples = graph.split(split)
    found = {name: np.zeros((len(triples), 2, 2), dtype=np.int64) for name in systems}
    size = batch_size(BYTES_PER_CANDIDATE * len(graph.entities), device_of(embedding), batch_memory_mb)
    with progress(f"ranking {split}, queries", 2 * len(triples)) as advance:
        for side in SIDES:
            answers = graph.known(list(filtered) or filter_splits(split), side)
            known = TAIL if side == "head" else HEAD
            order = np.lexsort((triples[:, known], triples[:, RELATION]))  # triples of one query stand together

            def work(
                start: int, stop: int, side: Side = side, answers: Answers = answers, order: IntArray = order
            ) -> None:
                rows = order[start:stop]
                contest = _contest(triples[rows], side, answers, embedding, rules, systems.values())
                counted = torch.stack([torch.stack(contest.count(s), 1) for s in systems.values()]).cpu().numpy()
                for name, counts in zip(systems, counted, strict=True):
                    found[name][rows, SIDES.index(side)] = counts
                advance(stop - start)

            in_batches(work, len(triples), size)
    return {name: Ranks(counts[:, :, 0], counts[:, :, 1]) for name, counts in found.items()}


@dataclass(frozen=True)
class Contest:
    """Triples (the truths) of a batch of queries against all that is not known.

    Plain candidates are counted by their raw scores, special ones by their keys; see `Queries`.

    Attributes:
        row: the query of each truth.
        truth: what is known of the truths.
        lifted: the truths that a rule reaches.
        barred: whether a constraint rules a truth out.
        best: for each number of candidates to re-rank, the last two of the best scores of each query.
    """

    queries: Queries
    row: torch.Tensor
    truth: Scored
    lifted: torch.Tensor
    barred: torch.Tensor
    best: Mapping[int, torch.Tensor]

    def count(self, system: System) -> Counts:
        """How many candidates stand above each truth, and how many level with it."""
        if system.rerank and system.embedding and not system.by_score:
            better, level = self._reranked(system)
        else:
            better, level = self._all(system)
        if system.constraint:  # a truth that is ruled out stands below all others
            better = torch.where(self.barred, self.queries.rivals[self.row], better)
            level = level.masked_fill(self.barred, 0)
        return better, level

    def _reranked(self, system: System) -> Counts:
        """The system's order within the embedding's best, which are those that score no less than the n-th.

        A truth above the n-th of the others moves that one out, so beside it are those no less than the one before.
        """
        before, last = self.best[system.rerank].unbind(1)
        score, last_here = self.truth.score, last[self.row]
        moves, counts = (score > last_here), self._all(replace(system, rule_share=0.0))
        for here, least in ((moves, before), (score == last_here, last)):
            inside = self._all(system, least)
            counts = (torch.where(here, inside[0], counts[0]), torch.where(here, inside[1], counts[1]))
        return counts

    def _all(self, system: System, least: torch.Tensor | None = None) -> Counts:
        """The counts among all candidates, or among those that score no less than a least score of each query."""
        own, special = keys(system, self.truth), keys(system, self.queries.special)
        if system.constraint:
            special = special.barring(self.queries.barred)
        if least is not None:
            special = special.barring(self.queries.special.score < least[self.queries.owner])
        above, level = self._plain(system, own, least)
        ranges = self.queries.starts, special.first, special.second
        more_above, more_level = count_keys(*ranges, self.row, own.first, own.second)
        return above + more_above, level + more_level

    def _plain(self, system: System, own: Keys, least: torch.Tensor | None) -> Counts:
        """The counts among plain candidates.

        A truth that is plain itself is beaten by whatever scores higher, in every system. For one that a rule
        reaches, the score from which on a plain candidate beats it is searched for.
        """
        if not system.embedding:
            plain = (self.queries.rivals - self.queries.starts.diff())[self.row]
            first = keys(system, Scored.plain(self.truth.score, self.truth.base)).first
            return plain * (first > own.first), plain * (first == own.first)
        above, level = self._by_score
        at = self.lifted
        if system.by_score or not len(at):
            return above, level
        own, row, truth = Keys(own.first[at], own.second[at]), self.row[at], self.truth.score[at]
        limit = _limit(system, own, self.truth.base[at])
        if least is not None:
            limit = torch.maximum(limit, torch.nextafter(least[row], least.new_tensor(-torch.inf)))
        more, same = count_scores(self.queries.score, row, limit)
        equal = keys(system, Scored.plain(truth, self.truth.base[at])).first == own.first
        return above.index_copy(0, at, more), level.index_copy(0, at, same * equal)

    @cached_property
    def _by_score(self) -> Counts:
        return count_scores(self.queries.score, self.row, self.truth.score)


def _contest(
    triples: IntArray,
    side: Side,
    answers: Answers,
    embedding: Embedding | None,
    rules: RuleScores,
    systems: Iterable[System],
) -> Contest:
    """Each distinct query is scored once; the truths' own scores are read from the same matrix as their rivals'."""
    known, asked = (TAIL, HEAD) if side == "head" else (HEAD, TAIL)
    distinct, row = np.unique(triples[:, RELATION] * answers.entities + triples[:, known], return_inverse=True)
    relations, entity = np.divmod(distinct, answers.entities)
    owners, others, _ = answers.lookup(entity, relations)
    queries = prepare(embedding, rules, entity, relations, side, (owners, others), (row, triples[:, asked]))
    device = queries.score.device
    best = {s.rerank: queries.last_of_best(s.rerank) for s in systems if s.rerank}
    queries.leave_plain()
    odds, reached = rules.of_triples(triples)
    base = rules.base[triples[:, RELATION]]
    truth = Scored(queries.asked, to(device, base), to(device, odds - base), to(device, reached))
    barred = to(device, rules.forbidden(triples))
    return Contest(queries, to(device, row), truth, to(device, np.flatnonzero(reached)), barred, best)


def _limit(system: System, own: Keys, base: torch.Tensor) -> torch.Tensor:
    """The highest float32 score with which a plain candidate does not beat a truth of these keys; -∞ if none is.

    A search by halves over all float32 numbers, in their order: it asks `keys` and nothing else, so it draws the
    line exactly where comparing every candidate's keys would.
    """
    infinity = torch.tensor(torch.inf).view(torch.int32).item()
    low = torch.full_like(base, -infinity, dtype=torch.int64)
    high = torch.full_like(low, infinity)
    for _ in range(33):
        middle = (low + high + 1) >> 1
        plain = keys(system, Scored.plain(_float(middle), base))
        beaten = (plain.first > own.first) | ((plain.first == own.first) & (plain.second > own.second))
        low, high = torch.where(beaten, low, middle), torch.where(beaten, middle - 1, high)
    return _float(low)


def _float(number: torch.Tensor) -> torch.Tensor:
    """The float32 that stands so many places above zero (below, where negative)."""
    size = number.abs().to(torch.int32).view(torch.float32)
    return torch.where(number < 0, -size, size)


def summary(ranks: FloatArray) -> dict[str, float]:
    """MR, MRR and Hits@1/3/10 of some ranks; zeros for none.

    Example:
        >>> summary(np.array([1.0, 4.0]))["mrr"]
        0.625
    """
    if not ranks.size:
        return dict.fromkeys(("mr", "mrr", "hits_at_1", "hits_at_3", "hits_at_10"), 0.0)
    figures = {"mr": float(ranks.mean()), "mrr": float((1.0 / ranks).mean())}
    return figures | {f"hits_at_{k}": float((ranks <= k).mean()) for k in (1, 3, 10)}


def report(graph: KnowledgeGraph, split: str, ranks: Ranks) -> dict[str, object]:
    """All figures of one system: overall under three tie policies, by side, relation and category.

    Example:
        >>> report(graph, "test", ranks)["mrr"]  # doctest: +SKIP
    """
    realistic, relations = ranks.realistic, graph.split(split)[:, RELATION]
    category = np.array([CATEGORIES.index(c) for c in graph.relation_categories])[relations]

    def of(rows: Iterable[object]) -> dict[str, float]:
        return summary(realistic[np.asarray(rows)])

    return {
        **summary(realistic),
        "optimistic": summary(ranks.optimistic),
        "pessimistic": summary(ranks.pessimistic),
        "by_side": {side: summary(realistic[:, column]) for column, side in enumerate(SIDES)},
        "by_relation": {graph.relations.names[r]: of(relations == r) for r in np.unique(relations)},
        "by_category": {name: of(category == i) for i, name in enumerate(CATEGORIES) if (category == i).any()},
    }
