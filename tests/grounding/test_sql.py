"""The SQL engine against trying every tuple of entities, and against the native engine."""

import os
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet import config
from plogicnet.graph import RELATION, IntArray, KnowledgeGraph, TripleSet, open_graph
from plogicnet.grounding import (
    Chain,
    Counting,
    Groundings,
    Mined,
    chain_of,
    chains_of,
    ground_network,
    mine,
    sql,
)
from plogicnet.grounding.sql import Clause, clause_of, count_sql, ground_sql, ground_triple_sql, mine_sql
from plogicnet.rules import Atom, Constant, Rule, Step, Variable, chain_rule, parse_rule
from plogicnet.support.errors import InputError
from reference import (
    COUNTINGS,
    as_set,
    candidates,
    graphs,
    graphs_and_chains,
    graphs_and_clauses,
    hidden,
    instances,
    joined_network,
    network,
    numbered_graph,
    paths,
    possible_rules,
    support_and_hits,
    unpacked,
)

ALL = config.MinPrecision(0, 0, 0, 0)


def as_clause(chain: Chain, graph: KnowledgeGraph) -> Clause:
    names = graph.relations.names
    rule = chain_rule([Step(names[move.relation], move.forward) for move in chain.moves], names[chain.relation])
    return clause_of(rule, graph)


def counted(graph: KnowledgeGraph, mined: Mined) -> dict[Chain, tuple[int, int]]:
    columns = zip(mined.rules.rules, mined.rules.support.tolist(), mined.rules.hits.tolist(), strict=True)
    return {chain_of(rule, graph.relations): (support, hits) for rule, support, hits in columns}


def assert_same_mined(found: Mined, native: Mined) -> None:
    assert found.candidates == native.candidates
    for mine_, theirs in ((found.rules, native.rules), (found.constraints, native.constraints)):
        assert mine_.rules == theirs.rules
        assert mine_.support.tolist() == theirs.support.tolist()
        assert mine_.hits.tolist() == theirs.hits.tolist()


def rows(grounded: Groundings) -> IntArray:
    found = np.column_stack([grounded.rule, grounded.hypothesis, np.sort(grounded.premises, axis=1)])
    return np.asarray(found[np.lexsort(found.T[::-1])])


def assert_same_network(found: Groundings, native: Groundings) -> None:
    assert np.array_equal(found.triples.triples, native.triples.triples)
    assert np.array_equal(found.observed, native.observed)
    assert np.array_equal(rows(found), rows(native))
    assert found.rules == native.rules


# Mining


@settings(max_examples=40, deadline=None)
@given(graphs(), st.sampled_from(COUNTINGS))
def test_every_candidate_as_by_trying_and_as_native(graph: KnowledgeGraph, counting: Counting) -> None:
    chosen = config.Rules(counting=counting, min_precision=ALL)
    found = mine_sql(graph, chosen)
    facts, n = as_set(graph.train), len(graph.entities)
    every = [chain for chains in possible_rules(len(graph.relations)).values() for chain in chains]
    tried = {chain: support_and_hits(facts, n, chain, counting) for chain in every}
    expected = {chain: counts for chain, counts in tried.items() if counts[1]}
    assert counted(graph, found) == expected
    assert candidates(facts, paths(facts), counting) == expected
    assert_same_mined(found, mine(graph, chosen))


@settings(max_examples=30, deadline=None)
@given(
    graphs(max_entities=4, max_relations=3),
    st.sampled_from(COUNTINGS),
    st.lists(st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5, 0.6, 1.0]), min_size=4, max_size=4),
    st.integers(1, 4),
    st.lists(st.sampled_from(config.Rules().patterns), unique=True),
)
def test_what_is_kept(
    graph: KnowledgeGraph,
    counting: Counting,
    least: list[float],
    min_support: int,
    patterns: list[config.Pattern],
) -> None:
    chosen = config.Rules(True, tuple(patterns), config.MinPrecision(*least), min_support, counting)
    assert_same_mined(mine_sql(graph, chosen), mine(graph, chosen))


@settings(max_examples=15, deadline=None)
@given(graphs(), st.sampled_from(COUNTINGS), st.integers(2, 8))
def test_pieces_add_up(graph: KnowledgeGraph, counting: Counting, paths_at_once: int) -> None:
    chosen = config.Rules(counting=counting, min_precision=ALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql, "PATHS_AT_ONCE", paths_at_once)
        found = mine_sql(graph, chosen, threads=1)
    assert_same_mined(found, mine_sql(graph, chosen))


# Grounding


@settings(max_examples=40, deadline=None)
@given(graphs_and_chains(), st.sampled_from(COUNTINGS), st.booleans())
def test_chains_as_by_trying_and_as_native(
    case: tuple[KnowledgeGraph, list[Chain]], counting: Counting, hidden_premises: bool
) -> None:
    graph, chains = case
    found = ground_sql(graph.observed, [as_clause(c, graph) for c in chains], counting, hidden_premises)
    tried = network(as_set(graph.train), len(graph.entities), chains, counting, hidden_premises)
    assert Counter(unpacked(found)) == Counter(tried)
    assert_same_network(found, ground_network(graph.observed, chains, counting, hidden_premises))


@settings(max_examples=60, deadline=None)
@given(graphs_and_clauses(), st.sampled_from(COUNTINGS), st.booleans())
def test_clauses_as_by_trying(
    case: tuple[KnowledgeGraph, list[Clause]], counting: Counting, hidden_premises: bool
) -> None:
    graph, clauses = case
    facts, n = as_set(graph.train), len(graph.entities)
    found = ground_sql(graph.observed, clauses, counting, hidden_premises)
    assert Counter(unpacked(found)) == Counter(network(facts, n, clauses, counting, hidden_premises))
    assert as_set(found.hidden) == hidden(facts, n, clauses, counting)
    assert as_set(found.triples.triples[found.observed]) == facts
    for premises in found.premises:  # each premise once, and at least one
        used = premises[premises >= 0].tolist()
        assert used
        assert len(set(used)) == len(used)
    support, hits = count_sql(graph.observed, clauses, counting)
    tried = [support_and_hits(facts, n, clause, counting) for clause in clauses]
    assert list(zip(support.tolist(), hits.tolist(), strict=True)) == tried


@settings(max_examples=40, deadline=None)
@given(st.data(), graphs_and_clauses(), st.sampled_from(COUNTINGS))
def test_the_groundings_of_one_triple(
    data: st.DataObject, case: tuple[KnowledgeGraph, list[Clause]], counting: Counting
) -> None:
    graph, clauses = case
    facts, n = as_set(graph.train), len(graph.entities)
    concluded = sorted(facts | hidden(facts, n, clauses, counting) | {(0, 0, 1)})
    triple = data.draw(st.sampled_from(concluded))
    found = ground_triple_sql(graph.observed, clauses, triple, counting)
    tried = [(i, g) for i, clause in enumerate(clauses) for g in instances(facts, n, clause, counting)]
    assert Counter(unpacked(found)) == Counter((i, g) for i, g in tried if g.hypothesis == triple)
    assert as_set(found.triples.triples) == facts | {triple}
    assert as_set(found.triples.triples[found.observed]) == facts
    assert found.rules == len(clauses)


FAMILY = [
    ("anna", "parent", "ben"),
    ("anna", "parent", "cleo"),
    ("ben", "lives_in", "paris"),
    ("cleo", "lives_in", "paris"),
    ("dora", "lives_in", "oslo"),
    ("ben", "likes", "cleo"),
    ("cleo", "likes", "ben"),
    ("ben", "likes", "ben"),
]


@pytest.mark.parametrize(
    ("text", "concluded"),
    [
        ("lives_in(X, paris) => likes(X, paris)", {("ben", "paris"), ("cleo", "paris")}),
        ("lives_in(X, paris) => likes(anna, X)", {("anna", "ben"), ("anna", "cleo")}),
        ("likes(X, X) => lives_in(X, X)", {("ben", "ben")}),
        ("parent(X, Y) & likes(Y, Y) => lives_in(X, X)", {("anna", "anna")}),
        ("parent(X, Y) & parent(X, Z) & likes(Y, Z) => lives_in(X, Z)", {("anna", "ben"), ("anna", "cleo")}),
        ("parent(X, Y) & lives_in(Y, Z) & lives_in(Y, paris) => lives_in(X, Z)", {("anna", "paris")}),
        ("parent(anna, ben) => lives_in(anna, oslo)", {("anna", "oslo")}),
        ("likes(X, Y) & likes(Y, X) => parent(X, Y)", {("ben", "ben"), ("ben", "cleo"), ("cleo", "ben")}),
        ("parent(X, Y) & lives_in(Z, U) & likes(Y, Z) => lives_in(X, U)", {("anna", "paris")}),
    ],
)
def test_written_rules_of_every_kind(text: str, concluded: set[tuple[str, str]]) -> None:
    graph = KnowledgeGraph.from_names(FAMILY)
    found = ground_sql(graph.observed, [clause_of(parse_rule(text), graph)], "distinct")
    names = graph.entities.names
    assert {(names[h], names[t]) for h, _, t in found.triples.triples[found.hypothesis].tolist()} == concluded


def test_no_rules_no_groundings() -> None:
    graph = numbered_graph(2, 1, [(0, 0, 1)])
    grounded = ground_sql(graph.observed, [], "distinct", hidden_premises=True)
    assert (len(grounded.triples), len(grounded.hidden), len(grounded.rule), grounded.rules) == (1, 0, 0, 0)
    assert len(ground_triple_sql(graph.observed, [], (1, 0, 0)).rule) == 0
    assert [len(column) for column in count_sql(graph.observed, [], "paths")] == [0, 0]


def test_no_facts_no_groundings() -> None:
    graph = numbered_graph(2, 1, [(0, 0, 1)])
    clause = clause_of(parse_rule("r0(X, Y) => r0(Y, X)"), graph)
    nothing = TripleSet.of([], entities=2)
    assert len(ground_sql(nothing, [clause], "paths").triples) == 0
    assert [column.tolist() for column in count_sql(nothing, [clause], "paths")] == [[0], [0]]


def test_numbers_beyond_32_bits() -> None:
    far = 2**31 + 5
    clause = clause_of(parse_rule("r0(X, Y) => r0(Y, X)"), numbered_graph(2, 1, [(0, 0, 1)]))
    found = ground_sql(TripleSet.of([(far, 0, 1)], entities=far + 1), [clause], "distinct")
    assert found.hidden.tolist() == [[1, 0, far]]


# What is refused


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (parse_rule("likez(X, Y) => likes(Y, X)"), "unknown relation 'likez'. Did you mean 'likes'"),
        (parse_rule("likes(X, Y) => likez(Y, X)"), "unknown relation 'likez'"),
        (parse_rule("lives_in(X, pariss) => likes(X, X)"), "unknown entity 'pariss'. Did you mean 'paris'"),
        (parse_rule("=> not likes(X, X)"), "a constraint has no groundings"),
        (
            Rule((Atom("likes", Variable("X"), Variable("X")),), Atom("likes", Variable("X"), Variable("Y"))),
            "'Y' is in no premise",
        ),
        (
            Rule(
                (Atom("likes", Variable("X"), Constant("ben")), Atom("likes", Variable("Y"), Constant("ben"))),
                Atom("parent", Variable("X"), Variable("Y")),
            ),
            "no shared variables",
        ),
        (Rule((), Atom("likes", Variable("X"), Variable("Y"))), "without premises"),
    ],
)
def test_what_is_no_clause_of_the_graph(rule: Rule, message: str) -> None:
    with pytest.raises(InputError, match=message):
        clause_of(rule, KnowledgeGraph.from_names(FAMILY))


def test_without_duckdb_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(InputError, match=r"pip install 'plogicnet\[sql\]'"):
        mine_sql(numbered_graph(2, 1, [(0, 0, 1)]), config.Rules())


def test_too_little_memory_is_an_input_error() -> None:
    rng = np.random.default_rng(0)
    facts = rng.integers(0, 300, (90_000, 3))
    facts[:, RELATION] = 0
    observed = TripleSet.of(facts, entities=300)
    clause = clause_of(parse_rule("r0(X, Y) & r0(Y, Z) => r0(Z, X)"), numbered_graph(2, 1, [(0, 0, 1)]))
    with pytest.raises(InputError, match="3 MB of memory"):
        count_sql(observed, [clause], "distinct", memory_mb=3)


# The benchmark data sets


def opened(name: str) -> KnowledgeGraph:
    root = os.environ.get("PLOGICNET_DATA")
    if not root or not (Path(root) / name).is_dir():
        pytest.skip(f"PLOGICNET_DATA is not set to a directory that holds {name}")
    return open_graph(name)


SMALL = ["umls", "kinship", "nations", "wn18rr"]


@pytest.mark.parametrize("counting", COUNTINGS)
@pytest.mark.parametrize("name", SMALL)
def test_data_sets_as_native(name: str, counting: Counting) -> None:
    graph = opened(name)
    chosen = config.Rules(counting=counting)
    mined = mine(graph, chosen)
    assert_same_mined(mine_sql(graph, chosen), mined)
    clauses = [clause_of(rule, graph) for rule in mined.rules.rules]
    found = ground_sql(graph.observed, clauses, counting)
    assert_same_network(found, ground_network(graph.observed, chains_of(mined.rules, graph), counting))
    support, hits = count_sql(graph.observed, clauses, counting)
    assert (support.tolist(), hits.tolist()) == (mined.rules.support.tolist(), mined.rules.hits.tolist())


@pytest.mark.parametrize("name", SMALL)
def test_data_sets_as_by_joining_dictionaries(name: str) -> None:
    graph = opened(name)
    facts = as_set(graph.train)
    found = paths(facts)
    mined = mine_sql(graph, config.Rules(min_precision=ALL))
    assert counted(graph, mined) == candidates(facts, found, "distinct")
    kept = mined.rules.take(mined.rules.precision >= 0.6)
    grounded = ground_sql(graph.observed, [clause_of(rule, graph) for rule in kept.rules], "distinct")
    expected = joined_network(found, chains_of(kept, graph), "distinct")
    assert Counter(unpacked(grounded)) == Counter(expected)
    assert as_set(grounded.hidden) == {i.hypothesis for _, i in expected} - facts
