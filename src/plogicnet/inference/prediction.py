"""Prediction: the most probable answers to queries, and the missing facts of a graph."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import special

from plogicnet.evaluation.candidates import Queries
from plogicnet.evaluation.orders import ProbabilityOrder
from plogicnet.evaluation.top import top_k
from plogicnet.graph import (
    HEAD,
    MISSING,
    RELATION,
    SIDES,
    SPLITS,
    TAIL,
    IntArray,
    KnowledgeGraph,
    Side,
    triple_keys,
)
from plogicnet.inference.fitted import FittedModel, PredictionBatch
from plogicnet.inference.pool import Effort, Pool
from plogicnet.support import memory
from plogicnet.support.errors import InputError
from plogicnet.support.progress import Progress, no_progress

CHUNK_CANDIDATES = 1 << 19
"""Maximum number of candidates scored at once, if memory allows it."""
CANDIDATE_BYTES = 500
"""Memory per candidate if all of them are predicted and written."""
N_EXTRA_CANDIDATES = 16
"""Number of candidates per query that are predicted in addition to `top`.

The ranking that selects candidates rounds scores differently from the prediction.
"""
SCORE_TOLERANCE = 1e-3
"""Absolute and relative tolerance of the score threshold, for the same reason as `N_EXTRA_CANDIDATES`."""
ALMOST_ONE = 1 - 2**-53
"""The largest probability below one."""
RECALL = 0.9
"""The default recall of completion; see `Pool`."""
TIMED_QUERIES = 64
"""The number of queries that are timed for a forecast."""


def chunk_size() -> int:
    """Return the number of candidates to process at once, given the free memory.

    Example:
        >>> chunk_size() <= CHUNK_CANDIDATES
        True
    """
    return max(1, min(CHUNK_CANDIDATES, memory.free_bytes() // 2 // CANDIDATE_BYTES))


def query_of(graph: KnowledgeGraph, head: str | None, relation: str | None, tail: str | None) -> IntArray:
    """Return a query as one row of ids; the part that is None becomes `MISSING`.

    Example:
        >>> query_of(KnowledgeGraph.from_names([("anna", "knows", "ben")]), "anna", "knows", None)
        array([[ 0,  0, -1]])
    """
    names = (head, relation, tail)
    if names.count(None) > 1:
        raise InputError("at most one of head, relation and tail can be missing in a query")
    vocabularies = (graph.entities, graph.relations, graph.entities)
    ids = [MISSING if name is None else v.id(name) for name, v in zip(names, vocabularies, strict=True)]
    return np.array([ids], dtype=np.int64)


def iter_answers(
    fitted: FittedModel,
    queries: IntArray,
    top: int = 10,
    include_known: bool = False,
    batch_memory_mb: int = 0,
    progress: Progress = no_progress,
) -> Iterator[tuple[IntArray, PredictionBatch]]:
    """Yield the most probable answers in batches, in the order of the queries (triples with one part `MISSING`).

    Each batch comes with the index of each answer's query. If an entity is missing, a fast ranking selects the entities
    to predict. If the relation is missing, all relations are predicted.
    """
    if top < 1:
        raise InputError(f"top must be at least 1, got {top}")
    if len(queries) and np.any((queries == MISSING).sum(axis=1) != 1):
        raise InputError("exactly one of head, relation and tail must be missing in a query")
    k = min(top + N_EXTRA_CANDIDATES, len(fitted.graph.entities))
    max_candidates = max(k, len(fitted.graph.relations) * bool(np.any(queries[:, RELATION] == MISSING)))
    step = max(1, chunk_size() // max_candidates)
    with progress("answering queries", len(queries)) as advance:
        for start in range(0, len(queries), step):
            chunk = queries[start : start + step]
            candidates = [_relation_candidates(fitted, chunk, include_known)]
            candidates += [_entity_candidates(fitted, chunk, side, k, include_known, batch_memory_mb) for side in SIDES]
            query, triples = (np.concatenate(columns) for columns in zip(*candidates, strict=True))
            batch = fitted.predict_batch(triples)
            order = batch.order(fitted.ties, query)
            query = query[order]
            in_top = np.arange(len(query)) - np.searchsorted(query, query) < top
            yield start + query[in_top], batch.take(order[in_top])
            advance(len(chunk))


def _relation_candidates(fitted: FittedModel, queries: IntArray, include_known: bool) -> tuple[IntArray, IntArray]:
    """Return all candidates of the queries with a missing relation: query indices and triples."""
    query = np.flatnonzero(queries[:, RELATION] == MISSING)
    n = len(fitted.graph.relations)
    triples = np.repeat(queries[query], n, axis=0)
    triples[:, RELATION] = np.tile(np.arange(n), len(query))
    query = np.repeat(query, n)
    if not include_known:
        new = ~fitted.graph.observed.contains(triples)
        query, triples = query[new], triples[new]
    return query, triples


def _entity_candidates(
    fitted: FittedModel, queries: IntArray, side: Side, k: int, include_known: bool, batch_memory_mb: int
) -> tuple[IntArray, IntArray]:
    """Return the k best candidates of the queries in which this side is missing: query indices and triples."""
    missing, given = (HEAD, TAIL) if side == "head" else (TAIL, HEAD)
    query = np.flatnonzero(queries[:, missing] == MISSING)
    chunk = queries[query]
    order, entity_queries = (
        ProbabilityOrder(fitted.calibration, fitted.ties),
        Queries(chunk[:, given], chunk[:, RELATION], side),
    )
    known = None if include_known else fitted.known[side]
    best = top_k(fitted.outcome.neural, fitted.rules, order, entity_queries, k, known, batch_memory_mb)
    rows, positions = np.nonzero(best >= 0)
    triples = chunk[rows]
    triples[:, missing] = best[rows, positions]
    return query[rows], triples


def iter_missing(
    fitted: FittedModel,
    min_probability: Callable[[], float],
    all_pairs: bool = False,
    recall: float = RECALL,
    known: Sequence[str] = SPLITS,
    progress: Progress = no_progress,
) -> Iterator[PredictionBatch]:
    """Yield the missing facts with at least a minimum probability, in batches of bounded size.

    The candidates are those of the pool for a recall, or all pairs of entities. The triples of the splits `known` are
    not missing. The facts are sorted by relation id, then by head id, then by decreasing probability. `min_probability`
    is called before each batch, because the minimum can rise during the search.
    """
    pool = fitted.pool(recall, known)
    parts = _iter_all_pairs(fitted, pool, min_probability, progress) if all_pairs else _iter_pool(pool, progress)
    for triples in parts:
        batch = fitted.predict_batch(triples)
        batch = batch.take(batch.probability >= min_probability())
        yield batch.take(batch.order(fitted.ties, batch.triples[:, HEAD]))


def _iter_pool(pool: Pool, progress: Progress) -> Iterator[IntArray]:
    """Yield the candidates of the pool, in parts of bounded size. The candidates of a head are in one part."""
    with progress("finding candidates, queries", pool.n_queries()) as advance:
        for relation in range(len(pool.graph.relations)):
            yield from _parts(pool.candidates(relation, advance), chunk_size())


def _parts(triples: IntArray, size: int) -> Iterator[IntArray]:
    """Split triples that are sorted by head, so that each head is in one part. A part with several heads fits `size`.

    Example:
        >>> triples = np.array([[0, 0, 1], [0, 0, 2], [1, 0, 2], [2, 0, 2]])
        >>> [part[:, HEAD].tolist() for part in _parts(triples, size=2)]
        [[0, 0], [1, 2]]
    """
    ends, first = np.flatnonzero(np.diff(triples[:, HEAD], append=-1)) + 1, 0
    while first < len(triples):
        fitting = ends[(ends > first) & (ends <= first + size)]
        stop = int(fitting[-1]) if len(fitting) else int(ends[np.searchsorted(ends, first, "right")])
        yield triples[first:stop]
        first = stop


def _iter_all_pairs(
    fitted: FittedModel, pool: Pool, min_probability: Callable[[], float], progress: Progress
) -> Iterator[IntArray]:
    """Yield the unknown triples of all pairs of entities that can have the minimum probability, in parts."""
    n, size = len(fitted.graph.entities), max(1, chunk_size() // max(1, len(fitted.graph.entities)))
    with progress("scoring candidates", n * n * len(fitted.graph.relations)) as advance:
        for relation in range(len(fitted.graph.relations)):
            for start in range(0, n, size):
                heads = np.arange(start, min(start + size, n))
                yield _possible_pairs(fitted, pool, relation, heads, min_probability())
                advance(len(heads) * n)


def _possible_pairs(
    fitted: FittedModel, pool: Pool, relation: int, heads: IntArray, min_probability: float
) -> IntArray:
    """Return the unknown triples of these heads that rules conclude, or whose score can give the minimum probability.

    The probability increases with the score, so most triples can be skipped.
    """
    n, relations = len(fitted.graph.entities), np.full(len(heads), relation)
    row, concluded, _ = fitted.rules.of_queries(heads, relations, "tail")
    rows, tails = _filter_by_score(fitted, relation, heads, min_probability)
    head = np.concatenate([heads[rows], heads[row]])
    triples = np.stack([head, np.full(len(head), relation), np.concatenate([tails, concluded])], axis=1)
    return pool.without_known(triple_keys(triples, n))


def _filter_by_score(
    fitted: FittedModel, relation: int, heads: IntArray, min_probability: float
) -> tuple[IntArray, IntArray]:
    """Return the pairs (index of a head, tail) whose score can give the minimum probability, as two arrays."""
    c, neural, every = fitted.calibration, fitted.outcome.neural, np.arange(len(fitted.graph.entities))
    min_log_odds = float(special.logit(min(min_probability, ALMOST_ONE))) - c.intercept
    # whether the probability of a triple without a score that no rule concludes is at least the minimum
    unscored = bool(c.probability(np.array([[np.nan, 0.0, 0.0]]))[0] >= min_probability)
    if neural is None or c.score == 0:
        is_possible = min_log_odds <= SCORE_TOLERANCE or unscored
        rows, columns = np.indices((len(heads), len(every)) if is_possible else (0, 0))
        return rows.ravel(), columns.ravel()
    min_score = min_log_odds / c.score
    min_score -= SCORE_TOLERANCE * max(1.0, abs(min_score))
    scores = neural.score_answers(heads, np.full(len(heads), relation), "tail", every)
    passing = scores >= min_score
    if unscored:
        passing |= scores.isnan()
    rows, columns = torch.nonzero(passing).cpu().numpy().T
    return rows, columns


def about(
    fitted: FittedModel, entity: int, missing: Side, top: int, recall: float = RECALL, known: Sequence[str] = SPLITS
) -> PredictionBatch:
    """Return the most probable missing facts about an entity, as head or, if the head is missing, as tail.

    The candidates have the relations that probably apply to the entity. At least `top` answers per relation are asked
    for.
    """
    pool = fitted.pool(recall, known)
    pool = replace(pool, effort=replace(pool.effort, top=max(top, pool.effort.top)))
    return most_probable(fitted, [fitted.predict_batch(pool.about(entity, missing))], top)


def complete(
    fitted: FittedModel,
    min_probability: float,
    top: int | None = None,
    all_pairs: bool = False,
    recall: float = RECALL,
    known: Sequence[str] = SPLITS,
    progress: Progress = no_progress,
) -> PredictionBatch:
    """Return the missing facts with at least a minimum probability, or only the `top` best, most probable first.

    With `top`, only these facts and one batch are in memory, and the minimum is raised to the last of these facts.
    """
    if top is not None and top < 1:
        raise InputError(f"top must be at least 1, got {top}")
    kept = [fitted.empty_batch()]

    def threshold() -> float:
        return max(min_probability, float(kept[0].probability[-1])) if len(kept[0]) == top else min_probability

    for batch in iter_missing(fitted, threshold, all_pairs, recall, known, progress):
        kept.append(batch)
        if top is not None and len(batch):
            kept[:] = [most_probable(fitted, kept, top)]
    return most_probable(fitted, kept, top)


def most_probable(fitted: FittedModel, batches: Sequence[PredictionBatch], top: int | None) -> PredictionBatch:
    """Return the predictions of some batches, or only the `top` best, most probable first."""
    batch = PredictionBatch.concat(batches)
    if top is not None and len(batch) > top:  # sort only the rows that can be among the top
        batch = batch.take(batch.probability >= np.partition(batch.probability, -top)[-top])
    return batch.take(batch.order(fitted.ties)[:top])


@dataclass(frozen=True)
class Forecast:
    """What completion will take.

    Attributes:
        effort: the effort; None for all pairs of entities.
        work: the number of queries, or of pairs of entities.
        seconds: the estimated time.
    """

    effort: Effort | None
    work: int
    seconds: float


def forecast(fitted: FittedModel, all_pairs: bool = False, recall: float = RECALL) -> Forecast:
    """Estimate the time of completion, by measuring some of its work."""
    n, m, pool = len(fitted.graph.entities), len(fitted.graph.relations), fitted.pool(recall)
    if all_pairs:
        heads = np.arange(min(n, max(1, chunk_size() // n)))
        seconds = _fastest_of_two(lambda: _possible_pairs(fitted, pool, 0, heads, min_probability=1.0))
        return Forecast(None, n * n * m, seconds * n * m / len(heads))
    work, asked = pool.n_queries(), np.arange(min(n, TIMED_QUERIES))
    relation = int(np.bincount(fitted.graph.train[:, RELATION], minlength=m).argmax())

    def answer() -> None:
        for triples in pool.best_answers(asked, relation, "tail"):
            fitted.predict_batch(triples)

    return Forecast(pool.effort, work, _fastest_of_two(answer) * work / len(asked))


def _fastest_of_two(work: Callable[[], object]) -> float:
    """Return the seconds of a call. The first of two calls can compile code."""
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)
