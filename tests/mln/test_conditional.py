"""The conditional, compared with the joint distribution of the Markov logic network (Eq. 3)."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from plogicnet.graph import RELATION, BoolArray, FloatArray, KnowledgeGraph
from plogicnet.grounding.groundings import InMemoryGroundNetwork
from plogicnet.grounding.native.grounding import ground_network
from plogicnet.grounding.native.walks import Chain, EncodedStep
from plogicnet.grounding.rows import DistinctRows
from plogicnet.mln import aggregate_rows, base_log_odds, features, probability
from plogicnet.mln.conditional import Aggregate, Blanket
from reference import (
    Triple,
    as_set,
    graphs,
    graphs_and_chains,
    ground_by_brute_force,
    log_joint,
    numbered_graph,
    to_groundings,
    true_triples,
)

Case = tuple[KnowledgeGraph, list[Chain]]
number = st.floats(-3, 3, allow_nan=False).map(lambda x: round(x, 3))


def draw_parameters(
    data: st.DataObject, variables: int, rules: int, relations: int
) -> tuple[BoolArray, FloatArray, FloatArray]:
    """Draw a truth assignment, the weights of the rules, and the unit clauses of the relations."""
    truth = data.draw(st.lists(st.booleans(), min_size=variables, max_size=variables))
    weights = data.draw(st.lists(number, min_size=rules, max_size=rules))
    base = data.draw(st.lists(number, min_size=relations, max_size=relations))
    return np.array(truth, dtype=bool), np.array(weights, dtype=float), np.array(base, dtype=float)


def exact_log_odds(
    network: InMemoryGroundNetwork,
    truth: BoolArray,
    weights: FloatArray,
    base: FloatArray,
    aggregate: Aggregate = "sum",
) -> FloatArray:
    relations = network.triples.triples[:, RELATION]
    return np.asarray(base[relations] + features(network, truth, "full", aggregate) @ weights)


@settings(max_examples=80, deadline=None)
@given(st.data(), graphs_and_chains(max_entities=4, max_triples=7))
def test_full_blanket_with_sum_is_the_exact_conditional(data: st.DataObject, case: Case) -> None:
    """log p(v = 1, rest) - log p(v = 0, rest) for every variable and any assignment of the rest."""
    graph, chains = case
    network = ground_network(graph.observed, chains, "distinct", hidden_premises=True)
    truth, weights, base = draw_parameters(data, len(network.triples), len(chains), len(graph.relations))
    factors = ground_by_brute_force(as_set(graph.train), len(graph.entities), chains, "distinct", hidden_premises=True)
    true = true_triples(network.triples, truth)

    def log_p(true: set[Triple]) -> float:
        return log_joint(factors, true, weights.tolist(), base.tolist())

    rows: list[Triple] = [(h, r, t) for h, r, t in network.triples.triples.tolist()]
    expected = [log_p(true | {v}) - log_p(true - {v}) for v in rows]
    np.testing.assert_allclose(exact_log_odds(network, truth, weights, base), expected, atol=1e-8)


@settings(max_examples=40, deadline=None)
@given(st.data(), graphs_and_chains(max_entities=3, max_relations=2, max_triples=4, max_chains=2))
def test_full_blanket_is_the_conditional_of_the_enumerated_joint(data: st.DataObject, case: Case) -> None:
    graph, chains = case
    network = ground_network(graph.observed, chains, "distinct", hidden_premises=True)
    n = len(network.triples)
    assume(n <= 10)
    truth, weights, base = draw_parameters(data, n, len(chains), len(graph.relations))
    factors = ground_by_brute_force(as_set(graph.train), len(graph.entities), chains, "distinct", hidden_premises=True)
    assignments = list(itertools.product((False, True), repeat=n))
    logs = [log_joint(factors, true_triples(network.triples, w), weights.tolist(), base.tolist()) for w in assignments]
    joint = np.exp(np.array(logs) - max(logs)).reshape((2,) * n)
    joint /= joint.sum()
    found = probability(exact_log_odds(network, truth, weights, base))
    for v in range(n):
        false, true = joint[tuple(slice(None) if i == v else int(x) for i, x in enumerate(truth))]
        assert found[v] == pytest.approx(true / (true + false), abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.data(), graphs_and_chains(max_entities=3, max_relations=2, max_triples=4, max_chains=2))
def test_hypothesis_blanket_is_the_conditional_of_the_concluding_groundings(data: st.DataObject, case: Case) -> None:
    """The joint distribution contains only the groundings that conclude v."""
    graph, chains = case
    network = ground_network(graph.observed, chains, "distinct", hidden_premises=True)
    n = len(network.triples)
    assume(n <= 8)
    truth, weights, base = draw_parameters(data, n, len(chains), len(graph.relations))
    factors = ground_by_brute_force(as_set(graph.train), len(graph.entities), chains, "distinct", hidden_premises=True)
    assignments = list(itertools.product((False, True), repeat=n))
    matrix = features(network, truth, "hypothesis")
    found = probability(base[network.triples.triples[:, RELATION]] + matrix @ weights)
    for v, (h, r, t) in enumerate(network.triples.triples.tolist()):
        concluding = [(rule, grounding) for rule, grounding in factors if grounding.hypothesis == (h, r, t)]
        logs = [
            log_joint(concluding, true_triples(network.triples, w), weights.tolist(), base.tolist())
            for w in assignments
        ]
        joint = np.exp(np.array(logs) - max(logs)).reshape((2,) * n)
        false, true = joint[tuple(slice(None) if i == v else int(x) for i, x in enumerate(truth))]
        assert found[v] == pytest.approx(true / (true + false), abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(
    st.data(),
    graphs_and_chains(),
    st.booleans(),
    st.sampled_from(["sum", "mean", "saturating"]),
    st.sampled_from(["hypothesis", "full"]),
)
def test_aggregates_as_by_loops(
    data: st.DataObject, case: Case, hidden_premises: bool, aggregate: Aggregate, blanket: Blanket
) -> None:
    """+w per grounding that concludes v from true premises. If full, -w per grounding that only v would violate."""
    graph, chains = case
    network = ground_network(graph.observed, chains, "distinct", hidden_premises)
    truth, weights, base = draw_parameters(data, len(network.triples), len(chains), len(graph.relations))
    true = true_triples(network.triples, truth)
    expected = []
    for h, r, t in network.triples.triples.tolist():
        v, terms, concluding, violated = (h, r, t), [], Counter[int](), Counter[int]()
        for rule, (hypothesis, premises) in to_groundings(network):
            if hypothesis == v and premises <= true:
                terms.append(weights[rule])
                concluding[rule] += 1
            if blanket == "full" and v in premises and premises - {v} <= true and hypothesis not in true:
                terms.append(-weights[rule])
                violated[rule] += 1
        total = sum(terms) / max(len(terms), 1) if aggregate == "mean" else sum(terms)
        if aggregate == "saturating":
            total = sum(math.log2((1 + concluding[i]) / (1 + violated[i])) * w for i, w in enumerate(weights))
        expected.append(base[r] + total)
    matrix = features(network, truth, blanket, aggregate)
    assert matrix.shape == (len(network.triples), len(chains))
    found = base[network.triples.triples[:, RELATION]] + matrix @ weights
    np.testing.assert_allclose(found, expected, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(graphs_and_chains(), st.sampled_from(["sum", "mean", "saturating"]))
def test_multisets_and_matrix_have_identical_rows(case: Case, aggregate: Aggregate) -> None:
    """Bit by bit, so that both give the same weights."""
    graph, chains = case
    network = ground_network(graph.observed, chains, "distinct")
    merged = aggregate_rows(network.multisets, aggregate)
    matrix = DistinctRows.of(features(network, network.observed, "hypothesis", aggregate))
    assert merged.row_of_triple.tolist() == matrix.row_of_triple.tolist()
    assert merged.matrix.toarray().tolist() == matrix.matrix.toarray().tolist()


def test_a_repeated_premise_counts_once() -> None:
    """r0(x, y) & r0(x, y) => r1(x, x) with an observed premise: +w for the conclusion, -w for the premise."""
    chain = Chain((EncodedStep(0, True), EncodedStep(0, False)), 1)
    network = ground_network(numbered_graph(2, 2, [(0, 0, 1)]).observed, [chain], "distinct", hidden_premises=True)
    assert network.triples.triples.tolist() == [[0, 0, 1], [0, 1, 0]]
    assert features(network, network.observed, "full").toarray().tolist() == [[-1], [1]]
    assert features(network, ~network.observed, "full").toarray().tolist() == [[0], [0]]


@settings(max_examples=60, deadline=None)
@given(graphs(held_out=True))
def test_base_log_odds_are_finite(graph: KnowledgeGraph) -> None:
    pairs = len(graph.entities) ** 2
    found = base_log_odds(graph, unit_clauses=True)
    assert base_log_odds(graph, unit_clauses=False).tolist() == [0.0] * len(graph.relations)
    assert np.isfinite(found).all()
    for relation, b in enumerate(found):
        facts = sum(r == relation for _, r, _ in as_set(graph.train))
        if 0 < facts < pairs:
            assert b == pytest.approx(math.log(facts / (pairs - facts)))
        else:  # more extreme than with one triple more or less
            assert abs(b) > math.log(pairs - 1)
            assert (b > 0) == (facts > 0)


def test_probability_is_the_logistic_function_without_overflow() -> None:
    assert probability(np.array([-1e4, 0.0, math.log(3), 1e4])).tolist() == pytest.approx([0, 0.5, 0.75, 1])
