"""Negative evidence: mining of rules with a negated hypothesis, and the facts that contradict triples.

Such a rule concludes nothing. Its premise is one training triple, so that neither mining nor evaluation needs an
engine.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from scipy import sparse

from plogicnet import config
from plogicnet.graph import HEAD, RELATION, TAIL, IntArray, KnowledgeGraph, TripleSet
from plogicnet.graph.triples import expand_ranges
from plogicnet.grounding.mining import RULE_BYTES
from plogicnet.rules import Rule, RuleTable
from plogicnet.rules.rule import Contradiction, Evidence
from plogicnet.support.errors import InputError
from plogicnet.support.memory import require_bytes

MIN_SUPPORT = 10
"""The smallest support of mined negative evidence, if `rules.min_support` is lower."""
CHUNK_TRIPLES = 100_000
"""The number of facts whose possible relations are counted in one step, which limits the memory."""
FUNCTIONAL: tuple[Evidence, Evidence] = ("other tail", "other head")
DISJOINT: tuple[Evidence, Evidence] = ("same pair", "swapped pair")
BOUNDS: tuple[Literal["left", "right"], Literal["left", "right"]] = ("left", "right")
"""The sides of `searchsorted` that give the begin and the end of a range."""


def negative_values(rules: Sequence[Rule], graph: KnowledgeGraph, triples: IntArray) -> sparse.csr_array:
    """Return the matrix (triples × rules) with -1 where a training triple contradicts a triple, otherwise 0.

    Each triple is evaluated as if it were not in the graph itself.

    Args:
        rules: negative evidence.
        graph: the graph whose training triples are the premises.
        triples: the triples, in the graph or not, in any order. They can contain duplicates.

    Example:
        >>> from plogicnet.rules import parse_rule
        >>> graph = KnowledgeGraph.from_names([("anna", "born_in", "rome"), ("anna", "lives_in", "paris")])
        >>> rules = [parse_rule("born_in(X, Z) & Z != Y => not born_in(X, Y)")]
        >>> triples = graph.train.copy()
        >>> triples[1, 1] = 0  # born_in(anna, rome), born_in(anna, paris)
        >>> negative_values(rules, graph, triples).toarray()
        array([[ 0.],
               [-1.]])
    """
    return NegativeEvidence.of(rules, graph).values(triples)


@dataclass(frozen=True)
class NegativeEvidence:
    """Rules with a negated hypothesis, and an index of the training triples that can be their premises.

    Attributes:
        facts: the training triples.
        n_rules: the number of rules.
        functional: for each evidence of `FUNCTIONAL`, the index of each relation's rule, or -1.
        disjoint: for each evidence of `DISJOINT`, the relation of the premise, the relation of the hypothesis and the
            index of each rule, as columns.
    """

    facts: TripleSet
    n_rules: int
    functional: dict[Evidence, IntArray]
    disjoint: dict[Evidence, IntArray]

    @classmethod
    def of(cls, rules: Sequence[Rule], graph: KnowledgeGraph) -> "NegativeEvidence":
        """Prepare rules for evaluation. Raise InputError if one of them is not negative evidence."""
        n, ids = len(graph.relations), graph.relations.id
        functional = {evidence: np.full(n, -1) for evidence in FUNCTIONAL}
        disjoint: dict[Evidence, list[tuple[int, int, int]]] = {evidence: [] for evidence in DISJOINT}
        for i, rule in enumerate(rules):
            meaning = rule.contradiction
            if meaning is None:
                raise InputError(f"{rule}: expected negative evidence, such as s(X, Y) => not r(X, Y)")
            if meaning.evidence in functional:
                functional[meaning.evidence][ids(meaning.hypothesis)] = i
            else:
                disjoint[meaning.evidence].append((ids(meaning.premise), ids(meaning.hypothesis), i))
        columns = {key: np.array(rows, dtype=np.int64).reshape(-1, 3) for key, rows in disjoint.items()}
        return cls(graph.observed, len(rules), functional, columns)

    def values(self, triples: IntArray) -> sparse.csr_array:
        """Return the matrix of `negative_values`."""
        pairs = [*self._functional_pairs(triples), *self._disjoint_pairs(triples)]
        row, column = (np.concatenate(part) for part in zip(*pairs, strict=True))
        shape = (len(triples), self.n_rules)
        # at most one fact is the premise of a disjoint rule for a triple, so no pair occurs twice
        return sparse.csr_array(sparse.coo_array((np.full(len(row), -1.0), (row, column)), shape))

    def premises(self, triple: IntArray) -> dict[int, IntArray]:
        """Return the facts that contradict a triple, by the index of the rule."""
        relation, found = int(triple[RELATION]), {}
        for evidence, rules in self.functional.items():
            if rules[relation] >= 0:
                found[int(rules[relation])] = self._facts_with(evidence, triple)
        for evidence, rows in self.disjoint.items():
            linked = self._facts_with(evidence, triple) if len(rows) else self.facts.triples[:0]
            for premise, _, rule in rows[rows[:, 1] == relation].tolist():
                found[rule] = linked[linked[:, RELATION] == premise]
        return {rule: facts for rule, facts in sorted(found.items()) if len(facts)}

    def _facts_with(self, evidence: Evidence, triple: IntArray) -> IntArray:
        """Return the facts that are such evidence against a triple, without the triple itself."""
        keys, facts = self._indexes[evidence]
        key = _evidence_keys(evidence, triple[None, :], self.facts.entities)
        begin, end = (int(np.searchsorted(keys, key, side)[0]) for side in BOUNDS)
        found = self.facts.triples[facts[begin:end]]
        return np.asarray(found[(found != triple).any(axis=1)])

    def _functional_pairs(self, triples: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield the rows of triples with another tail (or head) in the graph, and the indices of their rules."""
        for evidence, rules in self.functional.items():
            rows = np.flatnonzero(rules[triples[:, RELATION]] >= 0)
            selected = triples[rows]
            begin, end = self._find(evidence, selected)
            is_contradicted = end - begin > self.facts.contains(selected)  # more facts than the triple itself
            yield rows[is_contradicted], rules[selected[is_contradicted, RELATION]]

    def _disjoint_pairs(self, triples: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield the rows of triples whose entities are linked in the graph, and the indices of their rules."""
        for evidence, rules in self.disjoint.items():
            if not len(rules):
                continue
            has_rule = np.zeros(self.n_relations, dtype=bool)
            has_rule[rules[:, 1]] = True
            rows = np.flatnonzero(has_rule[triples[:, RELATION]])
            index, position = expand_ranges(*self._find(evidence, triples[rows]))
            row, facts = rows[index], self._indexes[evidence][1][position]
            premise, hypothesis = self.facts.triples[facts, RELATION], triples[row, RELATION]
            rule_keys, keys = (a * self.n_relations + b for a, b in ((rules[:, 0], rules[:, 1]), (premise, hypothesis)))
            order = np.argsort(rule_keys)
            found = order[np.minimum(np.searchsorted(rule_keys, keys, sorter=order), len(rules) - 1)]
            is_itself = (premise == hypothesis) & (triples[row, HEAD] == triples[row, TAIL])
            kept = (rule_keys[found] == keys) & ~is_itself
            yield row[kept], rules[found[kept], 2]

    def _find(self, evidence: Evidence, triples: IntArray) -> tuple[IntArray, IntArray]:
        """Return for each triple the range of its facts in the index of an evidence."""
        wanted = _evidence_keys(evidence, triples, self.facts.entities)
        begin, end = (np.searchsorted(self._indexes[evidence][0], wanted, side) for side in BOUNDS)
        return begin, end

    @property
    def n_relations(self) -> int:
        """The number of relations."""
        return len(self.functional[FUNCTIONAL[0]])

    @cached_property
    def _indexes(self) -> dict[Evidence, tuple[IntArray, IntArray]]:
        """For each evidence, the sorted keys of all facts, and the rows of these facts."""
        facts, n = self.facts.triples, self.facts.entities
        indexes: dict[Evidence, tuple[IntArray, IntArray]] = {}
        for evidence in (*FUNCTIONAL, *DISJOINT):
            # a fact s(y, x) is found by the pair (x, y) of the triple that it contradicts
            keys = _evidence_keys(evidence, facts[:, ::-1] if evidence == "swapped pair" else facts, n)
            rows = np.argsort(keys, kind="stable")
            indexes[evidence] = keys[rows], rows
        return indexes


def _evidence_keys(evidence: Evidence, triples: IntArray, entities: int) -> IntArray:
    """Return a key of each triple. The facts that can be such evidence against it have the same key.

    Example:
        >>> _evidence_keys("other tail", np.array([[2, 1, 0]]), entities=3)
        array([5])
    """
    head, relation, tail = triples.T
    first, second = {"other tail": (relation, head), "other head": (relation, tail)}.get(evidence, (head, tail))
    return np.asarray(first * entities + second)


def mine_negative(graph: KnowledgeGraph, settings: config.Rules) -> tuple[RuleTable, int]:
    """Return the negative evidence that reaches the thresholds, and the number of candidates with at least one hit.

    See `functional_counts` and `disjoint_counts` for support and hits.

    Example:
        >>> graph = KnowledgeGraph.from_names([(f"king {i}", "before", f"king {i + 1}") for i in range(20)])
        >>> rules, _ = mine_negative(graph, config.Rules(negative=("disjoint",)))
        >>> list(map(str, rules.rules)), rules.support, rules.hits
        (['before(Y, X) => not before(X, Y)'], array([20]), array([20]))
    """
    names, min_support = graph.relations.names, max(settings.min_support, MIN_SUPPORT)
    count_functions = {"functional": functional_counts, "disjoint": disjoint_counts}
    columns: list[tuple[Rule, int, int]] = []
    n_candidates = 0
    for pattern in dict.fromkeys(settings.negative):
        for evidence, counts in count_functions[pattern](graph).items():
            n_candidates += int((counts.hits > 0).sum())
            precise = counts.hits / np.maximum(counts.support, 1) >= getattr(settings.min_precision, pattern)
            for row in np.flatnonzero(precise & (counts.support >= min_support)).tolist():
                meaning = Contradiction(names[counts.premise[row]], names[counts.hypothesis[row]], evidence)
                rule = meaning.rule
                rule.__dict__["contradiction"] = meaning  # fills the cached property, because there can be many rules
                columns.append((rule, int(counts.support[row]), int(counts.hits[row])))
    require_bytes(RULE_BYTES * len(columns), f"{len(columns):,} rules", "raise rules.min_precision")
    rules, support, hits = zip(*columns, strict=True) if columns else ((), (), ())
    return RuleTable.of(rules, support, hits), n_candidates


def count_negative(graph: KnowledgeGraph, rules: Sequence[Rule]) -> tuple[IntArray, IntArray]:
    """Return support and hits of negative evidence."""
    meanings = [rule.contradiction for rule in rules]
    evidences = {meaning.evidence for meaning in meanings if meaning is not None}
    counts: dict[tuple[int, int, Evidence], tuple[int, int]] = {}
    for names, count in ((FUNCTIONAL, functional_counts), (DISJOINT, disjoint_counts)):
        if evidences & set(names):
            for evidence, found in count(graph).items():
                columns = (found.premise, found.hypothesis, found.support, found.hits)
                rows = zip(*(column.tolist() for column in columns), strict=True)
                counts |= {(premise, hypothesis, evidence): (n, hits) for premise, hypothesis, n, hits in rows}
    ids = graph.relations.id
    keys = [(ids(m.premise), ids(m.hypothesis), m.evidence) for m in meanings if m is not None]
    table = np.array([counts.get(key, (0, 0)) for key in keys], dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


@dataclass(frozen=True)
class EvidenceCounts:
    """Support and hits of all rules with the same evidence, one entry per pair of relations."""

    premise: IntArray
    hypothesis: IntArray
    support: IntArray
    hits: IntArray


def functional_counts(graph: KnowledgeGraph) -> dict[Evidence, EvidenceCounts]:
    """Count `r(X, Z) & Z != Y => not r(X, Y)` and `r(Z, Y) & Z != X => not r(X, Y)` for every relation r.

    Support is the number of facts of r. Hits are the facts that no other fact contradicts: those whose head has no
    other tail, or whose tail has no other head.
    """
    facts, n_relations = graph.observed.triples, len(graph.relations)
    relations = np.arange(n_relations)
    support = np.bincount(facts[:, RELATION], minlength=n_relations)
    result: dict[Evidence, EvidenceCounts] = {}
    for evidence in FUNCTIONAL:
        keys, n = np.unique(_evidence_keys(evidence, facts, len(graph.entities)), return_counts=True)
        hits = np.bincount(keys[n == 1] // len(graph.entities), minlength=n_relations)
        result[evidence] = EvidenceCounts(relations, relations, support, hits)
    return result


def disjoint_counts(graph: KnowledgeGraph) -> dict[Evidence, EvidenceCounts]:
    """Count `s(X, Y) => not r(X, Y)` and `s(Y, X) => not r(X, Y)` for all relations r and s with support.

    Support is the number of pairs (x, y) with the premise, such that x is the head or y the tail of some fact of r.
    Other pairs tell nothing about r. Both ends are not required: no son is a daughter, but their parents are the same.
    Hits are those pairs without r(x, y). Facts r(x, x) are not their own premise.
    """
    facts, n, n_relations = graph.observed.triples, len(graph.entities), len(graph.relations)
    heads, tails = (_indicator(facts[:, end], facts[:, RELATION], (n, n_relations)) for end in (HEAD, TAIL))
    pair_keys, pair = np.unique(facts[:, HEAD] * n + facts[:, TAIL], return_inverse=True)
    by_pair = _indicator(pair, facts[:, RELATION], (len(pair_keys), n_relations))
    result: dict[Evidence, EvidenceCounts] = {}
    for evidence in DISJOINT:
        first, second = (HEAD, TAIL) if evidence == "same pair" else (TAIL, HEAD)
        support: Any = sparse.csr_array((n_relations, n_relations))
        violated: Any = sparse.csr_array((n_relations, n_relations))
        for start in range(0, len(facts), CHUNK_TRIPLES):
            chunk = facts[start : start + CHUNK_TRIPLES]
            x, y = chunk[:, first], chunk[:, second]
            is_head, is_tail = heads[x], tails[y]
            support += _sum_by_relation(chunk, is_head + is_tail - is_head.multiply(is_tail))
            keys = x * n + y
            row = np.minimum(np.searchsorted(pair_keys, keys), len(pair_keys) - 1)
            is_linked = pair_keys[row] == keys
            violated += _sum_by_relation(chunk[is_linked], by_pair[row[is_linked]])
        loops = np.bincount(facts[facts[:, HEAD] == facts[:, TAIL], RELATION], minlength=n_relations)
        itself = sparse.diags_array(support.diagonal() if evidence == "same pair" else loops.astype(np.float64))
        support = (support - itself).tocoo()
        premise, hypothesis = support.coords
        hits = support.data - (violated - itself).tocsr()[premise, hypothesis]
        columns = (premise, hypothesis, support.data, hits)
        result[evidence] = EvidenceCounts(*(column.astype(np.int64) for column in columns))
    return result


def _indicator(rows: IntArray, columns: IntArray, shape: tuple[int, int]) -> sparse.csr_array:
    """Return a sparse matrix with 1 at the given positions, which can be repeated."""
    matrix = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape)
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


def _sum_by_relation(facts: IntArray, matrix: sparse.csr_array) -> sparse.csr_array:
    """Add the rows of a matrix (facts × relations) by the relation of the fact."""
    n = matrix.shape[1]
    selector = sparse.csr_array((np.ones(len(facts)), (facts[:, RELATION], np.arange(len(facts)))), (n, len(facts)))
    return sparse.csr_array(selector @ matrix)
