"""Hidden triples and groundings against trying every tuple of entities."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet.graph import KnowledgeGraph
from plogicnet.grounding import Chain, Counting, Move, chains_of, ground_network
from plogicnet.rules import RuleTable, parse_rule
from reference import COUNTINGS, as_set, graphs_and_chains, hidden, network, numbered_graph, unpacked


@settings(max_examples=100, deadline=None)
@given(graphs_and_chains(), st.sampled_from(COUNTINGS))
def test_hidden_triples(case: tuple[KnowledgeGraph, list[Chain]], counting: Counting) -> None:
    graph, chains = case
    found = ground_network(graph.observed, chains, counting).hidden
    assert as_set(found) == hidden(as_set(graph.train), len(graph.entities), chains, counting)
    assert len(as_set(found)) == len(found)


@settings(max_examples=100, deadline=None)
@given(graphs_and_chains(), st.sampled_from(COUNTINGS), st.booleans())
def test_ground_network(case: tuple[KnowledgeGraph, list[Chain]], counting: Counting, hidden_premises: bool) -> None:
    graph, chains = case
    facts, n = as_set(graph.train), len(graph.entities)
    grounded = ground_network(graph.observed, chains, counting, hidden_premises)
    assert Counter(unpacked(grounded)) == Counter(network(facts, n, chains, counting, hidden_premises))
    assert as_set(grounded.hidden) == hidden(facts, n, chains, counting)
    assert as_set(grounded.triples.triples) == facts | as_set(grounded.hidden)
    assert as_set(grounded.triples.triples[grounded.observed]) == facts
    assert grounded.rules == len(chains)
    for premises in grounded.premises:  # each premise once, and at least one
        rows = premises[premises >= 0].tolist()
        assert rows
        assert len(set(rows)) == len(rows)


@settings(max_examples=30, deadline=None)
@given(graphs_and_chains())
def test_the_groundings_of_one_triple(case: tuple[KnowledgeGraph, list[Chain]]) -> None:
    graph, chains = case
    grounded = ground_network(graph.observed, chains, "distinct")
    expected = Counter(i.hypothesis for _, i in unpacked(grounded))
    found = [grounded.of(row) for row in range(len(grounded.triples))]
    assert [len(rows) for rows in found] == [expected[h, r, t] for h, r, t in grounded.triples.triples.tolist()]
    assert sorted(np.concatenate(found).tolist()) == list(range(len(grounded.rule)))


def test_a_premise_that_occurs_twice_counts_once() -> None:
    """r0(x, y) walked forth and back concludes r1(x, x) from one fact."""
    chain = Chain((Move(0, True), Move(0, False)), 1)
    grounded = ground_network(numbered_graph(2, 2, [(0, 0, 1)]).observed, [chain], "distinct")
    assert grounded.triples.triples[grounded.hypothesis].tolist() == [[0, 1, 0]]
    assert grounded.premises.tolist() == [[0, -1]]


def test_a_grounding_that_supports_itself_is_left_out_but_for_paths() -> None:
    """r(a, a) & r(a, b) => r(a, b)."""
    observed = numbered_graph(2, 1, [(0, 0, 0), (0, 0, 1)]).observed
    chain = Chain((Move(0, True), Move(0, True)), 0)
    assert unpacked(ground_network(observed, [chain], "distinct")) == []
    assert len(unpacked(ground_network(observed, [chain], "paths"))) == 2


def test_no_rules_no_groundings() -> None:
    graph = numbered_graph(2, 1, [(0, 0, 1)])
    grounded = ground_network(graph.observed, [], "distinct", hidden_premises=True)
    assert (len(grounded.triples), len(grounded.hidden), len(grounded.rule), grounded.rules) == (1, 0, 0, 0)


def test_chains_of_numbers_the_rules_of_a_table() -> None:
    graph = KnowledgeGraph.from_names([("a", "husband", "b"), ("b", "wife", "a")])
    table = RuleTable.of([parse_rule("wife(X, Y) => husband(Y, X)")], [1], [1])
    assert chains_of(table, graph) == [Chain((Move(1, False),), 0)]
