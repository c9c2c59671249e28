"""Prediction: the most probable answers to queries, and the missing facts of a graph."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import special

from plogicnet.evaluation.candidates import Queries
from plogicnet.evaluation.orders import ProbabilityOrder
from plogicnet.evaluation.top import top_k
from plogicnet.graph import HEAD, MISSING, RELATION, SIDES, TAIL, IntArray, KnowledgeGraph, Side, TripleSet, triple_keys
from plogicnet.inference.fitted import FittedModel, PredictionBatch
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


@dataclass(frozen=True)
class CandidatePairs:
    """The candidates for missing facts of one relation.

    Attributes:
        relation: the id of the relation.
        heads, tails: every pair of one of these heads and one of these tails is a candidate.
        concluded_heads: the head of each triple that rules conclude. These triples are candidates too.
    """

    relation: int
    heads: IntArray
    tails: IntArray
    concluded_heads: IntArray

    @property
    def size(self) -> int:
        """The number of candidates, including known facts."""
        return len(self.heads) * len(self.tails) + len(self.concluded_heads)

    def chunks(self) -> Iterator[tuple[IntArray, IntArray, int]]:
        """Yield chunks of heads as three values.

        These are the heads that are paired with all tails, all heads of the chunk, and the number of candidates.
        """
        all_heads, counts = np.unique(np.concatenate([self.heads, self.concluded_heads]), return_counts=True)
        paired = np.isin(all_heads, self.heads)
        sums = np.append(0, np.cumsum(counts + paired * (len(self.tails) - 1)))
        start, max_candidates = 0, chunk_size()
        while start < len(all_heads):
            stop = max(start + 1, int(np.searchsorted(sums, sums[start] + max_candidates, "right")) - 1)
            rows = slice(start, stop)
            yield all_heads[rows][paired[rows]], all_heads[rows], int(sums[stop] - sums[start])
            start = stop


def candidate_pairs(fitted: FittedModel, all_pairs: bool = False) -> Iterator[CandidatePairs]:
    """Yield the candidates of each relation. Heads and tails are those in train, or all entities with `all_pairs`."""
    train, hidden = fitted.graph.train, fitted.outcome.rule_model.hidden
    entities = np.arange(len(fitted.graph.entities))
    for relation in range(len(fitted.graph.relations)):
        facts = train[train[:, RELATION] == relation]
        heads, tails = (entities, entities) if all_pairs else (np.unique(facts[:, HEAD]), np.unique(facts[:, TAIL]))
        yield CandidatePairs(relation, heads, tails, hidden[hidden[:, RELATION] == relation][:, HEAD])


def iter_missing(
    fitted: FittedModel,
    min_probability: Callable[[], float],
    all_pairs: bool = False,
    progress: Progress = no_progress,
) -> Iterator[PredictionBatch]:
    """Yield the missing facts with at least a minimum probability, in batches of bounded size.

    The facts are sorted by relation id, then by head id, then by decreasing probability. `min_probability` is called
    before each batch, because the minimum can rise during the search.
    """
    relations = list(candidate_pairs(fitted, all_pairs))
    with progress("scoring candidates", sum(pairs.size for pairs in relations)) as advance:
        for pairs in relations:
            for paired, heads, candidates in pairs.chunks():
                yield _missing(fitted, pairs, paired, heads, min_probability())
                advance(candidates)


def _missing(
    fitted: FittedModel, pairs: CandidatePairs, paired: IntArray, heads: IntArray, min_probability: float
) -> PredictionBatch:
    """Return the missing facts of one relation with these heads; the heads in `paired` are paired with all tails.

    Candidates that no rule concludes are first filtered by score, since the probability increases with the score. The
    remaining candidates and all concluded triples are predicted.
    """
    head_indices, concluded, _ = fitted.hidden.lookup(heads, np.full(len(heads), pairs.relation))
    rows, columns = _filter_by_score(fitted, pairs, paired, min_probability)
    head = np.concatenate([paired[rows], heads[head_indices]])
    tail = np.concatenate([pairs.tails[columns], concluded])
    triples = np.stack([head, np.full(len(head), pairs.relation), tail], axis=1)
    keys = np.unique(triple_keys(triples, len(fitted.graph.entities)))
    keys = keys[~fitted.graph.observed.contains_keys(keys)]
    batch = fitted.predict_batch(TripleSet.of_keys(keys, len(fitted.graph.entities)).triples)
    batch = batch.take(batch.probability >= min_probability)
    return batch.take(batch.order(fitted.ties, batch.triples[:, HEAD]))


def _filter_by_score(
    fitted: FittedModel, pairs: CandidatePairs, paired: IntArray, min_probability: float
) -> tuple[IntArray, IntArray]:
    """Return the pairs of a head and a tail, as two arrays of indices, whose score can give the minimum probability."""
    c, neural = fitted.calibration, fitted.outcome.neural
    min_log_odds = float(special.logit(min(min_probability, ALMOST_ONE))) - c.intercept
    # whether the probability of a triple without a score that no rule concludes is at least the minimum
    unscored = bool(c.probability(np.array([[np.nan, 0.0, 0.0]]))[0] >= min_probability)
    if neural is None or c.score == 0 or not len(paired) or not len(pairs.tails):
        rows, columns = np.indices(
            (len(paired), len(pairs.tails)) if min_log_odds <= SCORE_TOLERANCE or unscored else (0, 0)
        )
        return rows.ravel(), columns.ravel()
    min_score = min_log_odds / c.score
    min_score -= SCORE_TOLERANCE * max(1.0, abs(min_score))
    scores = neural.score_answers(paired, np.full(len(paired), pairs.relation), "tail", pairs.tails)
    passing = scores >= min_score
    if unscored:
        passing |= scores.isnan()
    rows, columns = torch.nonzero(passing).cpu().numpy().T
    return rows, columns


def complete(
    fitted: FittedModel,
    min_probability: float,
    top: int | None = None,
    all_pairs: bool = False,
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

    for batch in iter_missing(fitted, threshold, all_pairs, progress):
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


def seconds_to_score(fitted: FittedModel, all_pairs: bool = False) -> float:
    """Estimate the time to score all candidates for missing facts, by timing one chunk of the largest relation."""
    relations = list(candidate_pairs(fitted, all_pairs))
    pairs = max(relations, key=lambda pairs: pairs.size)
    paired = next(pairs.chunks(), (pairs.heads,))[0]
    seconds = []
    for _ in range(2):  # the first call is the warm-up
        started = time.perf_counter()
        _filter_by_score(fitted, pairs, paired, min_probability=1.0)
        seconds.append(time.perf_counter() - started)
    return min(seconds) * sum(pairs.size for pairs in relations) / max(1, len(paired) * len(pairs.tails))
