"""The best answers to many queries at once."""

import numpy as np
import torch
from numba import njit

from plogicnet.evaluation.batches import in_batches, queries_at_once
from plogicnet.evaluation.candidates import NOTHING, Candidates, Queries, score_candidates
from plogicnet.evaluation.counting import ROWS_AT_ONCE, spread
from plogicnet.evaluation.orders import Order, Scored
from plogicnet.graph import Answers, FloatArray, IntArray
from plogicnet.mln import RuleScores
from plogicnet.neural.protocol import NeuralModel


def top_k(
    neural: NeuralModel | None,
    rules: RuleScores,
    order: Order,
    queries: Queries,
    k: int,
    known: Answers | None = None,
    batch_memory_mb: int = 0,
) -> IntArray:
    """The k best answers to each query, best first; -1 where there are no more. Known answers are left out.

    Answers that are level come in the order of their numbers.
    """
    entities = rules.reached.entities
    if not order.neural:
        neural = None  # all scores are zero then, and what no rule tells apart comes in the order of its numbers
    k = min(k, entities)
    found = np.full((len(queries), k), -1)
    size = queries_at_once(neural, entities, batch_memory_mb)

    def work(start: int, stop: int) -> None:
        part = queries.between(start, stop)
        left_out = NOTHING if known is None else known.lookup(part.known, part.relations)[:2]
        candidates = score_candidates(neural, rules, part, left_out, whole_triples=order.whole_triples)
        found[start:stop] = _best(candidates, order, k).cpu().numpy()

    in_batches(work, len(queries), size)
    return found


def _best(candidates: Candidates, order: Order, k: int) -> torch.Tensor:
    """The k best of each query: among its k best plain candidates and all special ones."""
    n = len(candidates.score)
    window = order.window
    least = candidates.last_of_best(window)[:, 1] if window else candidates.score.new_full((n,), -torch.inf)
    candidates.leave_plain()
    score, entity = highest(candidates.score, k)
    owner = torch.arange(n, device=score.device)[:, None].expand_as(entity)
    there = score > -torch.inf
    plain = Scored.plain(score[there], candidates.base[owner[there]])
    barred = candidates.barred & order.constraint
    special = [level.masked_fill(barred, -torch.inf) for level in order.levels(candidates.special)]
    both = [torch.cat(level) for level in zip(order.levels(plain), special, strict=True)]
    scores = torch.cat([plain.score, candidates.special.score])
    owner, entity = torch.cat([owner[there], candidates.owner]), torch.cat([entity[there], candidates.entity])
    below = (scores < least[owner]) & (both[-1] > -torch.inf)
    # by query, then keys from high to low, then number
    keys = [entity, *(-key for key in reversed(both[1:])), -both[0].masked_fill(below, -torch.inf), owner]
    sorted_ = torch.from_numpy(np.lexsort([key.cpu().numpy() for key in keys])).to(owner.device)
    owner, entity = owner[sorted_], entity[sorted_]
    place = torch.arange(len(owner), device=owner.device) - torch.searchsorted(owner, owner)
    found = torch.full((n, k), -1, device=owner.device)
    first = place < k
    found[owner[first], place[first]] = entity[first]
    return found


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
