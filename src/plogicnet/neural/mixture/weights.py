"""The weights of a mixture's parts, fitted on queries of the valid split."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from plogicnet.graph import HEAD, RELATION, SIDES, TAIL, BoolArray, FloatArray, IntArray, KnowledgeGraph
from plogicnet.neural.protocol import NeuralModel
from plogicnet.support.errors import pluralize
from plogicnet.support.progress import Progress

log = logging.getLogger(__name__)
MAX_TRIPLES = 2_500
"""Larger splits are sampled."""
MAX_SCORE_BYTES = 2**28
"""Maximum memory of the scores. The sample is smaller if the scores of all entities do not fit."""
QUERIES_PER_CALL = 256
"""Number of queries that a part scores at once."""
CHUNK_CELLS = 1 << 20
"""Number of candidates per chunk when a loss is computed."""
RIDGE = 30.0
"""L2 penalty on the difference from the prior, for scores divided by their standard deviation.

The prior of the common weights is 1 / parts, and that of a relation's weights are the common weights. The losses are
summed over the queries, so the penalty matters only if there are few.
"""
MIN_TRIPLES = 10
"""A relation with fewer sampled triples has no weights of its own."""


@dataclass(frozen=True)
class Weights:
    """The weights with which a mixture adds the scores of its parts.

    Attributes:
        together: the weights of the parts for each relation, (relations, parts).
        alone: slope and offset of each part's scores for triples that not all parts can score, (parts, 2).

    Example:
        >>> Weights.only(1, parts=2, relations=1).together
        array([[0., 1.]])
    """

    together: FloatArray
    alone: FloatArray

    @classmethod
    def only(cls, part: int, parts: int, relations: int) -> "Weights":
        """Return the weights that use a single part."""
        return cls(np.tile(np.eye(parts)[part], (relations, 1)), np.tile([1.0, 0.0], (parts, 1)))


@dataclass(frozen=True)
class QueryScores:
    """The parts' scores of all entities as answers of distinct queries, which are sorted by relation.

    Attributes:
        scores: the scores, (parts, queries, entities).
        competes: whether each entity competes with the true answers, (queries, entities). Known answers do not.
        relation: the relation of each query.
        query: the query of each true answer, sorted.
        answer: the entity of each true answer.
    """

    scores: NDArray[np.float32]
    competes: BoolArray
    relation: IntArray
    query: IntArray
    answer: IntArray

    @classmethod
    def of(
        cls, parts: Sequence[NeuralModel], graph: KnowledgeGraph, triples: IntArray, progress: Progress
    ) -> "QueryScores":
        """Score both queries of each triple. The facts of train and valid do not compete."""
        n = len(graph.entities)
        asked = [(relation * 2 + s) * n + known for s, known, relation in _columns(triples)]
        keys, query = np.unique(np.concatenate(asked), return_inverse=True)
        directed, known = np.divmod(keys, n)
        relation, side_number = np.divmod(directed, 2)
        scores, competes = np.empty((len(parts), len(keys), n), dtype=np.float32), np.ones((len(keys), n), dtype=bool)
        with progress("fitting the mixture, queries", len(parts) * len(keys)) as advance:
            for s, side in enumerate(SIDES):
                of_side, answers = np.flatnonzero(side_number == s), graph.answer_index(["train", "valid"], side)
                for start in range(0, len(of_side), QUERIES_PER_CALL):
                    rows = of_side[start : start + QUERIES_PER_CALL]
                    row, answer, _ = answers.lookup(known[rows], relation[rows])
                    competes[rows[row], answer] = False
                    for part, part_scores in zip(parts, scores, strict=True):
                        part_scores[rows] = part.score_all(known[rows], relation[rows], side).float().cpu().numpy()
                        advance(len(rows))
        for part_scores in scores:  # a part can be unable to score an entity
            competes &= np.isfinite(part_scores)
        answer = np.concatenate([triples[:, HEAD], triples[:, TAIL]])
        order = np.argsort(query, kind="stable")
        order = order[np.isfinite(scores[:, query[order], answer[order]]).all(axis=0)]
        return cls(scores, competes, relation, query[order], answer[order])

    def of_relation(self, relation: int) -> "QueryScores":
        """Return the queries of a relation."""
        first, last = np.searchsorted(self.relation, [relation, relation + 1])
        begin, end = np.searchsorted(self.query, [first, last])
        rows = slice(first, last)
        query, answer = self.query[begin:end] - first, self.answer[begin:end]
        return QueryScores(self.scores[:, rows], self.competes[rows], self.relation[rows], query, answer)

    def of_part(self, part: int) -> "QueryScores":
        """Return the scores of a single part."""
        return replace(self, scores=self.scores[part : part + 1])

    @cached_property
    def answer_scores(self) -> FloatArray:
        """The parts' scores of the true answers, (true answers, parts)."""
        return self.scores[:, self.query, self.answer].T.astype(np.float64)

    @cached_property
    def spread(self) -> FloatArray:
        """The standard deviation of each part's scores, within a query; 1 if all are equal."""
        variances = []
        for rows in self._chunks(len(self.relation)):
            competes = self.competes[rows]
            count = np.maximum(competes.sum(axis=1), 1)[:, None]
            scores = np.where(competes, self.scores[:, rows].astype(np.float64), 0.0)
            mean = scores.sum(axis=2, keepdims=True) / count
            variances.append((np.where(competes, scores - mean, 0.0) ** 2 / count).sum(axis=2))
        spread = np.sqrt(np.concatenate(variances, axis=1).mean(axis=1))
        return np.where(spread > 0, spread, 1.0)

    def competition(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the log of Σ exp(score) over the entities that compete, and their expected scores under the softmax.

        `weights` are those of each query, (queries, parts). The expected scores are of each part, (queries, parts).
        """
        log_sum, expected = np.empty(len(self.relation)), np.empty((len(self.relation), len(self.scores)))
        for rows in self._chunks(len(self.relation)):
            logits = np.where(self.competes[rows], self._mix(weights, rows), -np.inf)
            highest = np.maximum(logits.max(axis=1, keepdims=True), -1e300)  # finite, also if no entity competes
            share = np.exp(logits - highest)
            total = share.sum(axis=1)
            with np.errstate(divide="ignore"):
                log_sum[rows] = highest[:, 0] + np.log(total)
            share = share / np.maximum(total, 1e-300)[:, None]
            for part, scores in enumerate(self.scores):
                expected[rows, part] = (share * np.where(share > 0, scores[rows], 0.0)).sum(axis=1)
        return log_sum, expected

    def cross_entropy(self, weights: FloatArray) -> tuple[float, FloatArray]:
        """Return the sum of -log softmax over the true answers, and its gradient. `weights` are those of the parts."""
        log_sum, expected = self.competition(np.broadcast_to(weights, (len(self.relation), len(weights))))
        # no matrix products: their rounding can depend on the number of threads
        margin = log_sum[self.query] - (self.answer_scores * weights).sum(axis=1)
        gradient = special.expit(margin)[:, None] * (expected[self.query] - self.answer_scores)
        return float(np.logaddexp(0.0, margin).sum()), gradient.sum(axis=0)

    def reciprocal_ranks(self, weights: FloatArray) -> FloatArray:
        """Return 1 / realistic filtered rank of the true answers. `weights` are those of each query."""
        reciprocal = np.empty(len(self.query))
        for answers in self._chunks(len(self.query)):
            query, answer = self.query[answers], self.answer[answers]
            logits, competes = self._mix(weights, query), self.competes[query]
            target = logits[np.arange(len(query)), answer][:, None]
            better, tied = ((compare(logits, target) & competes).sum(axis=1) for compare in (np.greater, np.equal))
            reciprocal[answers] = 1 / (1 + better + tied / 2)
        return reciprocal

    def _mix(self, weights: FloatArray, rows: slice | IntArray) -> FloatArray:
        parts = (weights[rows, part, None] * scores[rows] for part, scores in enumerate(self.scores))
        return sum(parts, np.zeros(()))

    def _chunks(self, n_rows: int) -> Iterator[slice]:
        """Yield slices of rows, each of which has a score per entity."""
        step = max(1, CHUNK_CELLS // self.competes.shape[1])
        return (slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step))


def _columns(triples: IntArray) -> Iterator[tuple[int, IntArray, IntArray]]:
    """Yield (number of the missing side, known entity, relation)."""
    for side, known in enumerate((TAIL, HEAD)):
        yield side, triples[:, known], triples[:, RELATION]


def fit_weights(
    parts: Sequence[NeuralModel], names: Sequence[str], graph: KnowledgeGraph, seed: int, progress: Progress
) -> Weights:
    """Return the weights ≥ 0 with the lowest cross-entropy of the answers of valid, over all entities.

    Relations with enough triples have their own weights. If the best part has a higher MRR on valid than the mixture,
    only this part gets a weight. Without a valid split, or if the parts can score none of its answers, all parts have
    equal weights, divided by the standard deviation of their scores.
    """
    split = graph.valid if len(graph.valid) else graph.train
    size = min(MAX_TRIPLES, max(1, MAX_SCORE_BYTES // (2 * len(graph.entities) * (4 * len(parts) + 1))))
    if len(split) > size:
        split = split[np.sort(np.random.default_rng([seed, 17]).choice(len(split), size, replace=False))]
    scores = QueryScores.of(parts, graph, split, progress)
    if not len(graph.valid):
        together = np.tile(1 / (len(parts) * scores.spread), (len(graph.relations), 1))
        return Weights(together, _alone(scores, together, 1 / scores.spread))
    together = _weights_by_relation(scores, len(graph.relations), names)
    if (best := _better_part(scores, together, names)) is not None:
        together = Weights.only(best, len(parts), len(together)).together
    slopes = [_minimise(scores.of_part(i), 1 / scores.spread[i : i + 1])[0] for i in range(len(parts))]
    return Weights(together, _alone(scores, together, np.array(slopes)))


def _weights_by_relation(scores: QueryScores, n_relations: int, names: Sequence[str]) -> FloatArray:
    """Return the weights for each relation: its own ones, or the common ones if it has few triples."""
    common = _minimise(scores, 1 / (len(scores.scores) * scores.spread))
    together = np.tile(common, (n_relations, 1))
    answers = np.bincount(scores.relation[scores.query], minlength=n_relations)
    own = np.flatnonzero(answers >= 2 * MIN_TRIPLES)
    for relation in own.tolist():
        together[relation] = _minimise(scores.of_relation(relation), common)
    shown = ", ".join(f"{name} {weight:.4g}" for name, weight in zip(names, common, strict=True))
    log.info("weights of the mixture: %s; %s with weights of their own", shown, pluralize(len(own), "relation"))
    return together


def _better_part(scores: QueryScores, together: FloatArray, names: Sequence[str]) -> int | None:
    """Return the part with the highest MRR if it is higher than that of the mixture, otherwise None.

    A difference of at most one standard error does not count: on a small valid split, it is chance. Without answers
    that all parts can score, the result is None.
    """
    if not len(scores.query):
        return None
    mixed = scores.reciprocal_ranks(together[scores.relation])
    of_part = [scores.reciprocal_ranks(np.tile(row, (len(scores.relation), 1))) for row in np.eye(len(names))]
    mrr = [float(ranks.mean()) for ranks in of_part]
    best = int(np.argmax(mrr))
    shown = ", ".join(f"{name} {value:.4f}" for name, value in zip(names, mrr, strict=True))
    log.info("MRR on %s of valid: mixture %.4f, %s", pluralize(len(mixed), "query", "queries"), mixed.mean(), shown)
    difference = of_part[best] - mixed
    if difference.mean() <= difference.std() / np.sqrt(len(mixed)):
        return None
    log.info("only %s is used, because its MRR on valid is higher than that of the mixture", names[best])
    return best


def _minimise(scores: QueryScores, prior: FloatArray) -> FloatArray:
    """Return the weights ≥ 0 that minimise the cross-entropy plus a penalty on the difference from the prior."""
    spread = scores.spread

    def objective(scaled: FloatArray) -> tuple[float, FloatArray]:
        loss, gradient = scores.cross_entropy(scaled / spread)
        difference = scaled - prior * spread
        return loss + RIDGE / 2 * float(difference @ difference), gradient / spread + RIDGE * difference

    found = optimize.minimize(
        objective,
        prior * spread,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * len(prior),
        options={"ftol": 1e-13, "gtol": 1e-8, "maxiter": 200},
    )
    return np.asarray(found.x / spread)


def _alone(scores: QueryScores, together: FloatArray, slopes: FloatArray) -> FloatArray:
    """Return slope and offset of each part. The offset makes Σ exp(score) equal to that of the mixture, on average."""
    mixed, _ = scores.competition(together[scores.relation])
    rows = []
    for part, slope in enumerate(slopes):
        alone, _ = scores.of_part(part).competition(np.full((len(mixed), 1), slope))
        finite = np.isfinite(alone)
        rows.append([slope, np.mean(mixed[finite] - alone[finite]) if finite.any() else 0.0])
    return np.array(rows)
