"""The best answers to many queries at once."""

import numpy as np
import torch

from plogicnet.evaluation.batches import queries_per_batch, run_in_batches
from plogicnet.evaluation.candidates import NO_PAIRS, Candidates, Queries, score_candidates
from plogicnet.evaluation.counting import CHUNK_ROWS, run_in_threads
from plogicnet.evaluation.orders import CandidateScores, Order
from plogicnet.graph import AnswerIndex, FloatArray, IntArray
from plogicnet.mln import RuleScores
from plogicnet.neural.protocol import NeuralModel
from plogicnet.support.compiling import compiled


def top_k(
    neural: NeuralModel | None,
    rules: RuleScores,
    order: Order,
    queries: Queries,
    k: int,
    known: AnswerIndex | None = None,
    batch_memory_mb: int = 0,
) -> IntArray:
    """Return the k best answers to each query as a row of entity ids, best first; -1 fills a row with fewer answers.

    Answers in `known` are left out. Tied answers are sorted by entity id.
    """
    n_entities = rules.reached.entities
    if not order.neural:
        neural = None  # all scores are then zero, so candidates that the rules leave tied are sorted by entity id
    k = min(k, n_entities)
    answers = np.full((len(queries), k), -1)
    size = queries_per_batch(neural, n_entities, batch_memory_mb)

    def work(start: int, stop: int) -> None:
        batch = queries.slice(start, stop)
        filtered = NO_PAIRS if known is None else known.lookup(batch.known, batch.relations)[:2]
        candidates = score_candidates(neural, rules, batch, filtered, score_as_triples=order.score_as_triples)
        answers[start:stop] = _top_of_batch(candidates, order, k).cpu().numpy()

    run_in_batches(work, len(queries), size)
    return answers


def _top_of_batch(candidates: Candidates, order: Order, k: int) -> torch.Tensor:
    """Return the k best answers to each query, selected from its k best plain candidates and all special ones."""
    n = len(candidates.scores)
    top = order.n_reranked
    min_score = candidates.last_two_of_top(top)[:, 1] if top else candidates.scores.new_full((n,), -torch.inf)
    candidates.mask_special()
    score, entity = stable_top_k(candidates.scores, k)
    query = torch.arange(n, device=score.device)[:, None].expand_as(entity)
    is_plain = score > -torch.inf
    plain = CandidateScores.plain(score[is_plain], candidates.base[query[is_plain]])
    forbidden = candidates.special_forbidden & order.constraint
    special_keys = [key.masked_fill(forbidden, -torch.inf) for key in order.sort_keys(candidates.special_scores)]
    keys = [torch.cat(pair) for pair in zip(order.sort_keys(plain), special_keys, strict=True)]
    scores = torch.cat([plain.score, candidates.special_scores.score])
    query, entity = (
        torch.cat([query[is_plain], candidates.special_query]),
        torch.cat([entity[is_plain], candidates.special_entity]),
    )
    not_reranked = (scores < min_score[query]) & (keys[-1] > -torch.inf)
    # by query, then by keys in descending order, then by entity
    columns = [entity, *(-key for key in reversed(keys[1:])), -keys[0].masked_fill(not_reranked, -torch.inf), query]
    sorted_ = torch.from_numpy(np.lexsort([column.cpu().numpy() for column in columns])).to(query.device)
    query, entity = query[sorted_], entity[sorted_]
    rank = torch.arange(len(query), device=query.device) - torch.searchsorted(query, query)
    answers = torch.full((n, k), -1, device=query.device)
    in_top = rank < k
    answers[query[in_top], rank[in_top]] = entity[in_top]
    return answers


def stable_top_k(score: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the k highest scores of each row and their columns, unsorted.

    Of equal scores, the ones in the first columns are returned, which `torch.topk` does not guarantee.


    Example:
        >>> stable_top_k(torch.tensor([[1.0, 2.0, 2.0]]), 1)
        (tensor([[2.]]), tensor([[1]]))
    """
    if score.device.type == "cpu" and score.dtype == torch.float32:
        top, column = torch.empty(len(score), k), torch.empty(len(score), k, dtype=torch.int64)
        arrays = score.numpy(), top.numpy(), column.numpy()
        run_in_threads(lambda start: _stable_top_k_rows(start, *arrays), len(score))
        return top, column
    return stable_top_k_in_tensors(score, k)


def stable_top_k_in_tensors(score: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Do the same as `stable_top_k` without compiled code.

    Example:
        >>> stable_top_k_in_tensors(torch.tensor([[1.0, 2.0, 2.0]]), 1)
        (tensor([[2.]]), tensor([[1]]))
    """
    bits = (score + 0.0).view(torch.int32).long()  # -0 becomes 0
    ascending = torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    columns = torch.arange(score.shape[1], device=score.device)
    top = torch.topk((ascending << 32) | (0x7FFFFFFF - columns), k, dim=1).values
    column = 0x7FFFFFFF - (top & 0x7FFFFFFF)
    return torch.gather(score, 1, column), column


@compiled()
def _stable_top_k_rows(start: int, scores: FloatArray, top: FloatArray, column: IntArray) -> None:
    """Keep the k highest scores of each row in a heap, the lowest on top. Of equal scores, the last is the lowest."""
    k = top.shape[1]
    for i in range(start, min(start + CHUNK_ROWS, len(scores))):
        row, heap, at = scores[i], top[i], column[i]
        for j in range(k):  # add a score at the end and move it up
            child = j
            while child > 0:
                parent = (child - 1) // 2
                if row[j] > heap[parent]:  # the new column is later, so it is lower unless its score is higher
                    break
                heap[child], at[child] = heap[parent], at[parent]
                child = parent
            heap[child], at[child] = row[j], j
        for j in range(k, len(row)):
            if not row[j] > heap[0]:
                continue
            parent = 0  # replace the lowest score, and move the new one down
            while 2 * parent + 1 < k:
                child = 2 * parent + 1
                other = child + 1
                if other < k and (heap[other] < heap[child] or (heap[other] == heap[child] and at[other] > at[child])):
                    child = other
                if heap[child] >= row[j]:  # of equal scores, the new one is the lowest
                    break
                heap[parent], at[parent] = heap[child], at[child]
                parent = child
            heap[parent], at[parent] = row[j], j
