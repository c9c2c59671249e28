"""Negative evidence: counts, values and premises, compared with trying every fact."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from plogicnet import config
from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.grounding import negative
from plogicnet.grounding.negative import NegativeEvidence, count_negative, mine_negative, negative_values
from plogicnet.grounding.rows import DistinctRows
from plogicnet.grounding.rulebook import collect_rules
from plogicnet.mln import build_rule_model, probability
from plogicnet.rules import Rule, parse_rule, parse_statements
from plogicnet.rules.rule import Contradiction
from plogicnet.support.errors import InputError
from reference import contradicting_facts, graphs

small_graphs = graphs(max_entities=4, max_relations=3, max_triples=14)


def all_rules(graph: KnowledgeGraph) -> list[Rule]:
    names = graph.relations.names
    functional = [Contradiction(r, r, evidence) for evidence in negative.FUNCTIONAL for r in names]
    disjoint = [
        Contradiction(s, r, evidence)
        for evidence in negative.DISJOINT
        for s, r in itertools.product(names, names)
        if s != r or evidence == "swapped pair"
    ]
    return [meaning.rule for meaning in (*functional, *disjoint)]


def all_triples(graph: KnowledgeGraph) -> list[tuple[str, str, str]]:
    entities = graph.entities.names
    return list(itertools.product(entities, graph.relations.names, entities))


def count(rule: Rule, facts: set[tuple[str, str, str]], graph: KnowledgeGraph) -> tuple[int, int]:
    """Return support and hits."""
    relation = rule.head.relation
    own = {fact for fact in facts if fact[1] == relation}
    if rule.pattern == "functional":
        return len(own), sum(not contradicting_facts(rule, facts, fact) for fact in own)
    heads, tails = {h for h, _, _ in own}, {t for _, _, t in own}
    candidates = [v for v in all_triples(graph) if v[1] == relation and (v[0] in heads or v[2] in tails)]
    supported = [v for v in candidates if contradicting_facts(rule, facts, v)]
    return len(supported), sum(v not in own for v in supported)


@settings(max_examples=60, deadline=None)
@given(small_graphs, st.integers(1, 20))
def test_counts_values_and_premises(graph: KnowledgeGraph, chunk: int) -> None:
    rules, facts = all_rules(graph), {graph.names(t) for t in graph.train}
    triples = all_triples(graph)
    ids = np.array([graph.encode(*v) for v in triples])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(negative, "CHUNK_TRIPLES", chunk)
        support, hits = count_negative(graph, rules)
    assert list(zip(support.tolist(), hits.tolist(), strict=True)) == [count(rule, facts, graph) for rule in rules]
    expected = [[contradicting_facts(rule, facts, v) for rule in rules] for v in triples]
    values = negative_values(rules, graph, ids)
    assert values.has_canonical_format
    assert values.toarray().tolist() == [[-float(bool(found)) for found in row] for row in expected]
    evidence = NegativeEvidence.of(rules, graph)
    for triple, row in zip(ids, expected, strict=True):
        premises = {rule: {graph.names(f) for f in found} for rule, found in evidence.premises(triple).items()}
        assert premises == {rule: found for rule, found in enumerate(row) if found}


@settings(max_examples=60, deadline=None)
@given(small_graphs, st.floats(0, 1), st.floats(0, 1), st.integers(1, 4))
def test_mined_rules_are_those_that_reach_the_thresholds(
    graph: KnowledgeGraph, functional: float, disjoint: float, min_support: int
) -> None:
    thresholds = {"functional": functional, "disjoint": disjoint}
    precision = {f"rules.min_precision.{pattern}": value for pattern, value in thresholds.items()}
    values = {"rules.negative": ["functional", "disjoint"], "rules.min_support": min_support}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(negative, "MIN_SUPPORT", 1)
        mined, n_candidates = mine_negative(graph, Config().with_values(values | precision).rules)
    facts = {graph.names(t) for t in graph.train}
    counts = {rule: count(rule, facts, graph) for rule in all_rules(graph)}
    expected = {
        rule: (n, hits)
        for rule, (n, hits) in counts.items()
        if n >= min_support and hits / n >= thresholds[rule.pattern]
    }
    found = zip(mined.support.tolist(), mined.hits.tolist(), strict=True)
    assert dict(zip(mined.rules, found, strict=True)) == expected
    assert n_candidates == sum(hits > 0 for _, hits in counts.values())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 100_000))
def test_appended_columns_give_the_distinct_rows_of_both_matrices(seed: int) -> None:
    """In the same order, so that the weights are the same to the last bit."""
    rng = np.random.default_rng(seed)
    left, right = rng.integers(0, 2, (12, 2)).astype(float), -rng.integers(0, 2, (12, 3)).astype(float)
    base = rng.integers(0, 2, 12).astype(float)
    is_empty = (left == 0).all(axis=1, keepdims=True)
    ignored = np.where(is_empty, -1.0, right)  # rows that are empty on the left stay empty
    right = np.where(is_empty, 0.0, right)
    found = DistinctRows.of(sparse.csr_array(left), base).append_columns(DistinctRows.of(sparse.csr_array(ignored)))
    expected = DistinctRows.of(sparse.csr_array(np.hstack([left, right])), base)
    assert found.row_of_triple.tolist() == expected.row_of_triple.tolist()
    assert found.base.tolist() == expected.base.tolist()
    for part in ("indptr", "indices", "data"):
        assert getattr(found.matrix, part).tolist() == getattr(expected.matrix, part).tolist()


def test_a_contradicted_triple_is_less_probable() -> None:
    """A rule concludes daughter or son for every child. Negative evidence tells which of them is wrong."""
    rows = [
        row for i in range(40) for row in ((f"a{i}", "child", f"b{i}"), (f"a{i}", ("son", "daughter")[i % 2], f"b{i}"))
    ]
    rows += [(f"c{i}", "child", f"d{i}") for i in range(20)]  # neither daughter nor son is known
    rows += [(f"a{i}", ("daughter", "son")[i % 2], f"e{i}") for i in range(40)]  # a parent has both
    graph = KnowledgeGraph.from_names(rows)
    texts = ["son(X, Y) => not daughter(X, Y)", "daughter(X, Y) => not son(X, Y)"]
    probabilities = []
    for kinds in ([], ["disjoint"]):
        values = {"em.neural": False, "rules.negative": kinds, "rules.min_precision.subrelation": 0.1}
        settings = Config().with_values(values)
        mined = collect_rules(graph, settings)
        model = build_rule_model(graph, settings, mined.rules, mined.constraints)
        model = model.learn(np.zeros(len(model.hidden)), settings, seed=0)
        scores, triples = model.scores(graph), [graph.encode(h, "daughter", t) for h, t in (("a0", "b0"), ("c0", "d0"))]
        log_odds, _ = scores.of_triples(np.array(triples))
        probabilities.append(probability(log_odds).tolist())
        assert set(texts) <= set(map(str, mined.rules.rules)) or not kinds
    (contradicted, unknown), (contradicted_now, unknown_now) = probabilities
    assert contradicted == unknown
    assert contradicted_now < contradicted < unknown_now


def test_written_negative_evidence_comes_last_with_its_weight() -> None:
    graph = KnowledgeGraph.from_names([("a", "son", "b"), ("c", "daughter", "d"), ("a", "child", "b")])
    text = "=2: son(A, B) => not daughter(A, B)\nson(X, Y) => child(X, Y)\nchild(X, Z) & Y != Z => not child(X, Y)"
    settings = Config().with_values({"rules.mine": False})
    rules = collect_rules(graph, settings, parse_statements(text, graph)).rules
    assert list(map(str, rules.rules)) == [
        "son(X, Y) => child(X, Y)",
        "son(A, B) => not daughter(A, B)",
        "child(X, Z) & Y != Z => not child(X, Y)",
    ]
    assert (rules.support.tolist(), rules.hits.tolist()) == ([1, 0, 1], [1, 0, 1])
    assert rules.given[1] == 2
    with pytest.raises(InputError, match="duplicate of the rule in line 1"):
        parse_statements("son(X, Y) => not child(X, Y)\nson(B, A) => not child(B, A)", graph)
    with pytest.raises(InputError, match="expected negative evidence"):
        NegativeEvidence.of([parse_rule("son(X, Y) => child(X, Y)")], graph)


def test_nothing_is_mined_by_default() -> None:
    graph = KnowledgeGraph.from_names([(f"a{i}", "son", f"b{i}") for i in range(20)])
    assert len(mine_negative(graph, config.Rules())[0]) == 0
