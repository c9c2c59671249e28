"""The best answers to many queries at once."""

from dataclasses import dataclass

import numpy as np
import torch
from numba import njit

from plogicnet.evaluation.counting import ROWS_AT_ONCE, spread
from plogicnet.evaluation.memory import batch_size, device_of, in_batches
from plogicnet.evaluation.systems import NOTHING, Judgement, Queries, Scored, System, levels, prepare
from plogicnet.graph import Answers, BoolArray, FloatArray, IntArray, Side
from plogicnet.kge import Embedding
from plogicnet.mln import RuleScores
from plogicnet.progress import Progress, silent

BYTES_PER_CANDIDATE = 64
"""Scores, their places as sortable numbers, and the list of special candidates were rules to reach them all."""


@dataclass(frozen=True)
class Top:
    """The best answers to each query, best first: arrays (queries, k).

    Attributes:
        entities: the answers; -1 where there are no more.
        known: which of them are known facts.
    """

    entities: IntArray
    known: BoolArray


def top_k(
    embedding: Embedding | None,
    rules: RuleScores,
    system: System | Judgement,
    known_entity: IntArray,
    relations: IntArray,
    side: Side,
    k: int,
    known: Answers | None = None,
    filtered: bool = True,
    batch_memory_mb: int = 0,
    progress: Progress = silent,
) -> Top:
    """The k best answers to each query (known entity, relation), by a system or by calibrated probability.

    Answers that stand level are given in the order of their numbers. Known facts are left out, or marked only.

    Example:
        >>> top_k(embedding, rules, System(), heads, relations, "tail", k=10)  # doctest: +SKIP
    """
    entities = rules.reached.entities
    if isinstance(system, System) and not system.embedding:
        embedding = None  # all scores are zero then, and what no rule tells apart comes in the order of its numbers
    k = min(k, entities)
    top = Top(np.full((len(known_entity), k), -1), np.zeros((len(known_entity), k), dtype=bool))
    size = batch_size(BYTES_PER_CANDIDATE * entities, device_of(embedding), batch_memory_mb)
    with progress("answering, queries", len(known_entity)) as advance:

        def work(start: int, stop: int) -> None:
            part, about = known_entity[start:stop], relations[start:stop]
            facts = known.lookup(part, about)[:2] if known else NOTHING
            left_out = facts if filtered else NOTHING
            whole = isinstance(system, Judgement)  # probabilities are fitted to the scores of whole triples
            queries = prepare(embedding, rules, part, about, side, left_out, whole=whole)
            found = _best(queries, system, k).cpu().numpy()
            top.entities[start:stop] = found
            marked = np.isin(np.arange(len(part))[:, None] * entities + found, facts[0] * entities + facts[1])
            top.known[start:stop] = marked & (found >= 0)
            advance(stop - start)

        in_batches(work, len(known_entity), size)
    return top


def _best(queries: Queries, system: System | Judgement, k: int) -> torch.Tensor:
    """The k best of each query: among its k best plain candidates and all special ones."""
    n = len(queries.score)
    rerank = system.rerank if isinstance(system, System) and system.embedding and not system.by_score else 0
    least = queries.last_of_best(rerank)[:, 1] if rerank else queries.score.new_full((n,), -torch.inf)
    queries.leave_plain()
    score, candidate = highest(queries.score, k)
    owner = torch.arange(n, device=score.device)[:, None].expand_as(candidate)
    there = score > -torch.inf
    plain = Scored.plain(score[there], queries.base[owner[there]])
    bars = not isinstance(system, System) or system.constraint
    barred = queries.barred & bars
    special = [level.masked_fill(barred, -torch.inf) for level in levels(system, queries.special)]
    both = [torch.cat(level) for level in zip(levels(system, plain), special, strict=True)]
    scores = torch.cat([plain.score, queries.special.score])
    owner, candidate = torch.cat([owner[there], queries.owner]), torch.cat([candidate[there], queries.candidate])
    below = (scores < least[owner]) & (both[-1] > -torch.inf)
    order = _order(owner, [both[0].masked_fill(below, -torch.inf), *both[1:]], candidate)
    owner, candidate = owner[order], candidate[order]
    place = torch.arange(len(owner), device=owner.device) - torch.searchsorted(owner, owner)
    found = torch.full((n, k), -1, device=owner.device)
    first = place < k
    found[owner[first], place[first]] = candidate[first]
    return found


def _order(owner: torch.Tensor, by: list[torch.Tensor], candidate: torch.Tensor) -> torch.Tensor:
    """By query, then keys from high to low, then number."""
    keys = [candidate, *(-key for key in reversed(by)), owner]
    return torch.from_numpy(np.lexsort([key.cpu().numpy() for key in keys])).to(owner.device)


def highest(score: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k highest scores of each row and their places, in any order; of equal scores the first, as topk does not.

    Example:
        >>> highest(torch.tensor([[1.0, 2.0, 2.0]]), 1)
        (tensor([[2.]]), tensor([[1]]))
    """
    if score.device.type == "cpu" and score.dtype == torch.float32:
        best, place = torch.empty(len(score), k), torch.empty(len(score), k, dtype=torch.int64)
        rows = score.numpy(), best.numpy(), place.numpy()
        spread(lambda start: _highest_rows(start, *rows), len(score))
        return best, place
    return highest_in_tensors(score, k)


def highest_in_tensors(score: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`highest` where there is no compiled code.

    Example:
        >>> highest_in_tensors(torch.tensor([[1.0, 2.0, 2.0]]), 1)
        (tensor([[2.]]), tensor([[1]]))
    """
    bits = (score + 0.0).view(torch.int32).long()  # -0 is 0
    rising = torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    places = torch.arange(score.shape[1], device=score.device)
    best = torch.topk((rising << 32) | (0x7FFFFFFF - places), k, dim=1).values
    place = 0x7FFFFFFF - (best & 0x7FFFFFFF)
    return torch.gather(score, 1, place), place


@njit(nogil=True, cache=True)
def _highest_rows(start: int, scores: FloatArray, best: FloatArray, place: IntArray) -> None:
    """A heap for each row, with the lowest on top; of equal scores the last is the lowest."""
    k = best.shape[1]
    for i in range(start, min(start + ROWS_AT_ONCE, len(scores))):
        row, top, at = scores[i], best[i], place[i]
        for j in range(k):  # a new one rises from the end
            child = j
            while child > 0:
                parent = (child - 1) // 2
                if row[j] > top[parent]:  # stands after it, and so is lower only where its score is no higher
                    break
                top[child], at[child] = top[parent], at[parent]
                child = parent
            top[child], at[child] = row[j], j
        for j in range(k, len(row)):
            if not row[j] > top[0]:
                continue
            parent = 0  # takes the place of the lowest, and sinks
            while 2 * parent + 1 < k:
                child = 2 * parent + 1
                other = child + 1
                if other < k and (top[other] < top[child] or (top[other] == top[child] and at[other] > at[child])):
                    child = other
                if top[child] >= row[j]:  # of equals the new one is the lowest
                    break
                top[parent], at[parent] = top[child], at[child]
                parent = child
            top[parent], at[parent] = row[j], j
