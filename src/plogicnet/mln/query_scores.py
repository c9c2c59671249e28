"""Scores of the rule model that are computed for each query, since there are too many conclusions to keep."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from plogicnet.graph import HEAD, RELATION, TAIL, BoolArray, FloatArray, IntArray, Side
from plogicnet.grounding.native.adjacency import Adjacency
from plogicnet.grounding.native.conclusions import Conclusions, Queries, conclude
from plogicnet.grounding.native.rule_index import RuleIndex
from plogicnet.mln.scores import RuleScores
from plogicnet.support.compiling import compiled

_NOTHING = np.empty(0, np.int64)
MAX_QUERIES = 1 << 10
"""The number of queries whose candidates are kept at a time."""
RESOLUTION = 2.0**30
"""Log-odds are multiples of 1 / RESOLUTION. The order of a sum then does not decide ties."""


@dataclass(frozen=True)
class Weights:
    """The rules with their weights, ready to score queries.

    Attributes:
        adjacency: the graph.
        index: the rules.
        rule: the weight of each rule.
        formula: the weight of each formula, relations × formulas.
        threads: number of threads; 0 uses all cores.
    """

    adjacency: Adjacency
    index: RuleIndex
    rule: FloatArray
    formula: FloatArray
    threads: int

    def evidence(self, queries: Queries) -> "Evidence":
        """Return the candidates of queries with their evidence, the log-odds without the base rate."""
        columns: list[tuple[IntArray, IntArray, FloatArray]] = [(_NOTHING, _NOTHING, np.empty(0))]
        start = 0
        for part in conclude(self.adjacency, self.index, queries, threads=self.threads):
            query = start + part.query
            columns.append((query, part.entity, self.of_candidates(part, queries.relation[query])))
            start += len(part.begin) - 1
        query, entity, value = (np.concatenate(column) for column in zip(*columns, strict=True))
        return Evidence(query, entity, value)

    def of_candidates(self, part: Conclusions, relation: IntArray) -> FloatArray:
        """Return the evidence of candidates, of which `relation` is the relation of each."""
        return np.asarray(
            _evidence(relation, part.values, part.rule_begin, part.rule, part.rule_value, self.formula, self.rule)
        )


@dataclass(frozen=True)
class Evidence:
    """The candidates of queries: index of the query, entity, and evidence, sorted by query and entity."""

    query: IntArray
    entity: IntArray
    value: FloatArray


@dataclass(frozen=True)
class QueryScores(RuleScores):
    """The rule model's scores, computed when they are asked for. `reached` and `log_odds` are empty.

    A known fact is scored as if it were not in the graph.

    Attributes:
        weights: the rules with their weights.
        last: the direction, the query keys and the evidence of the last queries, in a list of at most one entry.
    """

    weights: Weights
    last: list[tuple[int, IntArray, Evidence]] = field(default_factory=list, repr=False, compare=False)

    @property
    def is_empty(self) -> bool:
        """Whether no rule can conclude a triple."""
        return not len(self.weights.rule)

    def of_queries(self, known: IntArray, relations: IntArray, side: Side) -> tuple[IntArray, IntArray, FloatArray]:
        """Return the candidates that rules conclude, as three arrays: index of the query, entity, log-odds."""
        direction = 0 if side == "tail" else 1
        queries = Queries(known, relations, np.full(len(known), direction), np.full(len(known), -1))
        evidence = self.weights.evidence(queries)
        self.last[:] = [(direction, self._keys(known, relations), evidence)]
        return evidence.query.copy(), evidence.entity.copy(), self.base[relations][evidence.query] + evidence.value

    def of_triples(self, triples: IntArray) -> tuple[FloatArray, BoolArray]:
        """Return the log-odds of each triple, and whether a rule concludes it."""
        log_odds, is_reached = self.base[triples[:, RELATION]].copy(), np.zeros(len(triples), dtype=bool)
        is_known = self.observed.contains(triples)
        for rows, direction, evidence, query in self._queries_of(triples, is_known):
            n, asked = self.reached.entities, triples[rows, TAIL if direction == 0 else HEAD]
            keys, wanted = evidence.query * n + evidence.entity, query * n + asked
            position = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
            found = keys[position] == wanted if len(keys) else np.zeros(len(wanted), dtype=bool)
            is_reached[rows] = found
            log_odds[rows[found]] += evidence.value[position[found]]
        return log_odds, is_reached

    def forbidden(self, triples: IntArray) -> BoolArray:
        """Return whether a constraint excludes each triple: (e, r, e) if r is irreflexive, unless it is observed.

        The weights are learned without such triples as candidates, so their p_w means nothing.
        """
        is_loop = (triples[:, HEAD] == triples[:, TAIL]) & self.irreflexive[triples[:, RELATION]]
        return np.asarray(is_loop & ~self.observed.contains(triples))

    def _queries_of(self, triples: IntArray, is_known: BoolArray) -> Iterator[tuple[IntArray, int, Evidence, IntArray]]:
        """Yield triples with queries that score them: rows, direction, evidence, and each row's query."""
        if self.last and len(self.last[0][1]) and not is_known.any():
            direction, known_keys, evidence = self.last[0]
            keys = self._keys(triples[:, HEAD if direction == 0 else TAIL], triples[:, RELATION])
            order = np.argsort(known_keys, kind="stable")
            position = order[np.minimum(np.searchsorted(known_keys[order], keys), len(order) - 1)]
            if np.array_equal(known_keys[position], keys):
                yield np.arange(len(triples)), direction, evidence, position
                return
        # a triple is scored by the query that more of the triples share
        sizes = [_sizes_of_groups(self._keys(triples[:, column], triples[:, RELATION])) for column in (HEAD, TAIL)]
        by_tail = sizes[0] >= sizes[1]
        for direction, column, other in ((0, HEAD, TAIL), (1, TAIL, HEAD)):
            rows = np.flatnonzero(by_tail if direction == 0 else ~by_tail)
            if not len(rows):
                continue
            # a fact in the graph is hidden from its own query, so no other triple shares that query
            answer = np.where(is_known[rows], triples[rows, other], -1)
            distinct = np.stack([triples[rows, column], triples[rows, RELATION], answer], axis=1)
            (known, relation, answer), query = _distinct_rows(distinct)
            queries = Queries(known, relation, np.full(len(known), direction), answer)
            for start in range(0, len(queries), MAX_QUERIES):
                stop = start + MAX_QUERIES
                asked = np.flatnonzero((query >= start) & (query < stop))
                yield (
                    rows[asked],
                    direction,
                    self.weights.evidence(queries.take(slice(start, stop))),
                    query[asked] - start,
                )

    def _keys(self, known: IntArray, relations: IntArray) -> IntArray:
        return relations * self.reached.entities + known


def _sizes_of_groups(keys: IntArray) -> IntArray:
    """Return how often each key occurs."""
    _, group, size = np.unique(keys, return_inverse=True, return_counts=True)
    return np.asarray(size[group])


def _distinct_rows(rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return the columns of the distinct rows, and the index of each row among them."""
    distinct, index = np.unique(rows, axis=0, return_inverse=True)
    return np.ascontiguousarray(distinct.T), index.reshape(-1)


@compiled()
def _evidence(relation, values, rule_begin, rule, rule_value, formula_weight, rule_weight):  # type: ignore[no-untyped-def]
    result = np.empty(len(values))
    for i in range(len(values)):
        total = 0.0
        for j in range(values.shape[1]):
            total += values[i, j] * formula_weight[relation[i], j]
        for k in range(rule_begin[i], rule_begin[i + 1]):
            total += rule_value[k] * rule_weight[rule[k]]
        result[i] = np.rint(total * RESOLUTION) / RESOLUTION
    return result
