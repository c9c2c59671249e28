"""The candidates for missing facts: the best answers to queries that probably have an answer that is not known.

A query is a relation and an entity on one side. Whether it probably has an unknown answer is judged by the relations
of the entity (`Slots.evidence`). Each such query contributes its best answers by the neural model and by the rules.
How much evidence is needed and how many answers are taken is an `Effort`, chosen by how many facts of valid would be
among the candidates.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from plogicnet.evaluation.candidates import Queries
from plogicnet.evaluation.orders import CombinedOrder
from plogicnet.evaluation.ranking import rank
from plogicnet.evaluation.top import top_k
from plogicnet.graph import (
    HEAD,
    RELATION,
    SIDES,
    SPLITS,
    TAIL,
    AnswerIndex,
    FloatArray,
    IntArray,
    KnowledgeGraph,
    Side,
    Slots,
    TripleSet,
    triple_keys,
)
from plogicnet.mln import RuleScores
from plogicnet.neural.protocol import NeuralModel
from plogicnet.support.errors import InputError
from plogicnet.support.progress import Advance, Progress, no_progress
from plogicnet.support.records import Record

RECALLS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 1.0)
"""The recalls for which an effort is chosen."""
TOPS = (1, 2, 3, 5, 10, 20, 50, 100)
"""The numbers of answers per query to choose from."""
MAX_TRIPLES, MAX_TRIPLES_BY_QUERY = 1_000, 250
"""Maximum number of validation triples for the choice; the second one if queries need message passing."""
CANDIDATE_COST = 50
"""The cost of predicting a candidate, relative to that of scoring an entity as answer of a query."""
QUERIES_PER_CALL = 1_024
KNOWN_SIDE: dict[Side, Side] = {"tail": "head", "head": "tail"}
"""The side of the known entity, by the missing side."""


@dataclass(frozen=True)
class Effort(Record):
    """How many candidates for missing facts are considered.

    Attributes:
        evidence: minimum evidence that an entity has an unknown fact of a relation; see `Slots.evidence`.
        top: number of answers per query.
        recall: the share of validation triples among the candidates; None if there is no valid split.
        target: the recall that was asked for; None if there is no valid split.
        queries: the number of queries in the graph that was trained on; None if it is not known.
    """

    evidence: float
    top: int
    recall: float | None = None
    target: float | None = None
    queries: int | None = None


WITHOUT_VALID = Effort(evidence=0.3, top=10)
"""The effort if there is no valid split to choose it."""


def choose_efforts(
    graph: KnowledgeGraph,
    neural: NeuralModel | None,
    rules: RuleScores,
    hidden: IntArray,
    seed: int,
    progress: Progress = no_progress,
) -> tuple[Effort, ...]:
    """Return the cheapest effort for each of `RECALLS`. A recall that cannot be reached has the largest effort.

    Args:
        graph: the graph.
        neural: the neural model, or None.
        rules: the rule model's scores.
        hidden: conclusions of rules, which are always candidates.
        seed: the seed of the sample of valid.
        progress: progress display.
    """
    size = MAX_TRIPLES if neural is None or neural.is_pairwise else MAX_TRIPLES_BY_QUERY
    unknown = graph.valid[~graph.observed.contains(graph.valid)]
    triples = unknown[np.random.default_rng([seed, 29]).permutation(len(unknown))[:size]]
    if not len(triples):
        return ()
    slots, n = Slots.of(graph), len(graph.entities)
    best = _best_ranks(replace(graph, valid=triples), neural, rules, progress)
    evidence = np.stack([_evidence_of(triples, slots, KNOWN_SIDE[side]) for side in SIDES], 1)
    is_concluded = TripleSet.of(hidden, n).contains(triples)
    options: list[tuple[float, float, int]] = []  # evidence, recall, top
    for top in TOPS:
        reached = np.where(best <= top, evidence, -np.inf).max(axis=1)
        reached[is_concluded] = np.inf
        ordered = np.sort(reached)[::-1]
        for target in RECALLS:
            least = float(min(ordered[int(np.ceil(target * len(ordered))) - 1], 1.0))
            least = least if least >= 0 else 0.0  # not reached: all queries
            options.append((least, float((reached >= least).mean()), top))
    thresholds = np.unique([least for least, _, _ in options])
    n_queries = dict(zip(thresholds.tolist(), count_queries(slots, thresholds, progress).tolist(), strict=True))
    costs = [n_queries[least] * (n + CANDIDATE_COST * top) for least, _, top in options]
    efforts = []
    for target in RECALLS:
        enough = [i for i, (_, recall, _) in enumerate(options) if recall >= target]
        # if none is enough, take the largest recall
        chosen = min(enough or range(len(options)), key=lambda i: (0 if enough else -options[i][1], costs[i]))
        least, recall, top = options[chosen]
        efforts.append(Effort(least, top, recall, target, n_queries[least]))
    return tuple(efforts)


def effort_for(efforts: Sequence[Effort], recall: float) -> Effort:
    """Return the first effort for at least this recall.

    Example:
        >>> effort_for([Effort(0.5, 1, 0.52, 0.5), Effort(0.1, 10, 0.91, 0.9)], recall=0.8).top
        10
    """
    if not 0 <= recall <= 1:
        raise InputError(f"recall must be between 0 and 1, got {recall:g}")
    return next((effort for effort in efforts if (effort.target or 0.0) >= recall), (efforts or [WITHOUT_VALID])[-1])


def count_queries(slots: Slots, thresholds: FloatArray, progress: Progress = no_progress) -> IntArray:
    """Return the number of queries with at least this evidence, for each of the thresholds, which are sorted."""
    counts = np.zeros(len(thresholds) + 1, dtype=np.int64)
    with progress("counting queries, relations", slots.n_relations) as advance:
        for relation in range(slots.n_relations):
            for side in SIDES:
                reached = np.searchsorted(thresholds, slots.evidence(relation, side), "right")
                counts += np.bincount(reached, minlength=len(counts))
            advance()
    return counts[::-1].cumsum()[::-1][1:]


def _best_ranks(graph: KnowledgeGraph, neural: NeuralModel | None, rules: RuleScores, progress: Progress) -> FloatArray:
    """Return the rank of each missing entity of valid among those that train does not know, by the better half.

    The columns are the missing sides. A rank by the rules counts only if a rule concludes the triple. The missing
    entity is not filtered, so it competes with itself, and is tied.
    """
    orders = {"neural": CombinedOrder()} if neural is not None else {}
    orders["rules"] = CombinedOrder(neural=False)
    ranks = rank(graph, "valid", neural, rules, orders, progress=progress, filtered=["train"])
    is_reached = rules.of_triples(graph.valid)[1]
    by_rules = np.where(is_reached[:, None], ranks["rules"].pessimistic - 1, np.inf)
    return by_rules if neural is None else np.minimum(by_rules, ranks["neural"].pessimistic - 1)


def _evidence_of(triples: IntArray, slots: Slots, side: Side) -> FloatArray:
    """Return the evidence of the entities on a side of some triples."""
    evidence = np.empty(len(triples))
    for relation in np.unique(triples[:, RELATION]).tolist():
        rows = triples[:, RELATION] == relation
        evidence[rows] = slots.evidence(relation, side)[triples[rows, HEAD if side == "head" else TAIL]]
    return evidence


@dataclass(frozen=True)
class Pool:
    """The candidates for missing facts of a graph.

    Attributes:
        graph: the graph.
        neural: the neural model, or None.
        rules: the rule model's scores.
        hidden: conclusions of rules, which are always candidates.
        effort: how many candidates there are.
        slots: the slots of the graph.
        known: the splits whose triples are not candidates.
    """

    graph: KnowledgeGraph
    neural: NeuralModel | None
    rules: RuleScores
    hidden: IntArray
    effort: Effort
    slots: Slots
    known: tuple[str, ...] = SPLITS

    @cached_property
    def known_triples(self) -> TripleSet:
        """The triples that are not candidates."""
        return TripleSet.of(np.concatenate([self.graph.split(s) for s in self.known]), len(self.graph.entities))

    @cached_property
    def known_answers(self) -> dict[Side, AnswerIndex]:
        """The answers that are not candidates, by side."""
        return {side: self.graph.answer_index(self.known, side) for side in SIDES}

    def n_queries(self) -> int:
        """Return the number of queries, without facts that were added after training."""
        if self.effort.queries is not None:
            return self.effort.queries
        return int(count_queries(self.slots, np.array([self.effort.evidence]))[0])

    def candidates(self, relation: int, advance: Advance) -> IntArray:
        """Return the candidates of a relation, sorted by head and tail.

        `advance` is called with the number of queries that are done.
        """
        n = len(self.graph.entities)
        keys = [triple_keys(self.hidden[self.hidden[:, RELATION] == relation], n)]
        for side in SIDES:
            evidence = self.slots.evidence(relation, KNOWN_SIDE[side])
            known = np.flatnonzero(evidence >= self.effort.evidence)
            for start in range(0, len(known), QUERIES_PER_CALL):
                part = known[start : start + QUERIES_PER_CALL]
                keys += [triple_keys(found, n) for found in self.best_answers(part, relation, side)]
                advance(len(part))
        return self.without_known(np.concatenate(keys))

    def about(self, entity: int, missing: Side) -> IntArray:
        """Return the candidates about an entity, on the side that is not missing, sorted by relation and other entity.

        Only relations that probably apply to the entity are considered.
        """
        n, side = len(self.graph.entities), KNOWN_SIDE[missing]
        keys = [triple_keys(self.hidden[self.hidden[:, HEAD if side == "head" else TAIL] == entity], n)]
        by_side = self.slots.evidence_of(entity).reshape(2, -1)
        evidence = by_side[0] if side == "head" else by_side[1]
        for relation in np.flatnonzero(evidence >= self.effort.evidence).tolist():
            keys += [triple_keys(found, n) for found in self.best_answers(np.array([entity]), relation, missing)]
        return self.without_known(np.concatenate(keys))

    def without_known(self, keys: IntArray) -> IntArray:
        """Return the distinct triples with these keys that are not known, sorted by relation, head and tail."""
        distinct = np.unique(keys)
        new = distinct[~self.known_triples.contains_keys(distinct)]
        return TripleSet.of_keys(new, len(self.graph.entities)).triples

    def best_answers(self, known: IntArray, relation: int, side: Side) -> Iterator[IntArray]:
        """Yield the triples of the best answers, by the rules and by the neural model, if it can score the entities."""
        orders = [(CombinedOrder(neural=False), known)]
        if self.neural is not None:
            orders.append((CombinedOrder(), known[~self.neural.unscorable[known]]))
        for order, asked in orders:
            queries = Queries(asked, np.full(len(asked), relation), side)
            best = top_k(self.neural, self.rules, order, queries, self.effort.top, self.known_answers[side])
            row, column = np.nonzero(best >= 0)
            ends = (asked[row], best[row, column]) if side == "tail" else (best[row, column], asked[row])
            triples = np.stack([ends[0], np.full(len(row), relation), ends[1]], 1)
            is_concluded = self.rules.of_triples(triples)[1]
            yield triples if order.neural else triples[is_concluded]
