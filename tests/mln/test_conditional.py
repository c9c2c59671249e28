"""The conditional against the Markov logic network itself (Eq. 3), by counting true groundings and by enumeration."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from plogicnet.graph import RELATION, BoolArray, FloatArray, KnowledgeGraph
from plogicnet.grounding.groundings import Groundings
from plogicnet.grounding.native.grounding import ground_network
from plogicnet.grounding.native.walks import Chain, Move
from plogicnet.grounding.rows import Rows
from plogicnet.mln import aggregated, base_log_odds, features, probability
from plogicnet.mln.conditional import Aggregate, Blanket
from reference import (
    Triple,
    as_set,
    graphs,
    graphs_and_chains,
    log_joint,
    network,
    numbered_graph,
    true_rows,
    unpacked,
)

Case = tuple[KnowledgeGraph, list[Chain]]
number = st.floats(-3, 3, allow_nan=False).map(lambda x: round(x, 3))


def drawn(data: st.DataObject, variables: int, rules: int, relations: int) -> tuple[BoolArray, FloatArray, FloatArray]:
    """An assignment of truth, the rules' weights, and the relations' unit clauses."""
    truth = data.draw(st.lists(st.booleans(), min_size=variables, max_size=variables))
    weights = data.draw(st.lists(number, min_size=rules, max_size=rules))
    base = data.draw(st.lists(number, min_size=relations, max_size=relations))
    return np.array(truth, dtype=bool), np.array(weights, dtype=float), np.array(base, dtype=float)


def exact_log_odds(
    grounded: Groundings, truth: BoolArray, weights: FloatArray, base: FloatArray, aggregate: Aggregate = "sum"
) -> FloatArray:
    relations = grounded.triples.triples[:, RELATION]
    return np.asarray(base[relations] + features(grounded, truth, "full", aggregate) @ weights)


@settings(max_examples=80, deadline=None)
@given(st.data(), graphs_and_chains(max_entities=4, max_triples=7))
def test_full_blanket_and_sum_are_the_conditional_of_the_network(data: st.DataObject, case: Case) -> None:
    """log p(v = 1, rest) - log p(v = 0, rest) for every variable, under any assignment of the rest."""
    graph, chains = case
    grounded = ground_network(graph.observed, chains, "distinct", hidden_premises=True)
    truth, weights, base = drawn(data, len(grounded.triples), len(chains), len(graph.relations))
    factors = network(as_set(graph.train), len(graph.entities), chains, "distinct", hidden_premises=True)
    world = true_rows(grounded.triples, truth)

    def log_p(true: set[Triple]) -> float:
        return log_joint(factors, true, weights.tolist(), base.tolist())

    rows: list[Triple] = [(h, r, t) for h, r, t in grounded.triples.triples.tolist()]
    expected = [log_p(world | {v}) - log_p(world - {v}) for v in rows]
    np.testing.assert_allclose(exact_log_odds(grounded, truth, weights, base), expected, atol=1e-8)


@settings(max_examples=40, deadline=None)
@given(st.data(), graphs_and_chains(max_entities=3, max_relations=2, max_triples=4, max_chains=2))
def test_the_conditional_of_the_enumerated_joint_distribution(data: st.DataObject, case: Case) -> None:
    graph, chains = case
    grounded = ground_network(graph.observed, chains, "distinct", hidden_premises=True)
    n = len(grounded.triples)
    assume(n <= 10)
    truth, weights, base = drawn(data, n, len(chains), len(graph.relations))
    factors = network(as_set(graph.train), len(graph.entities), chains, "distinct", hidden_premises=True)
    worlds = list(itertools.product((False, True), repeat=n))
    logs = [log_joint(factors, true_rows(grounded.triples, w), weights.tolist(), base.tolist()) for w in worlds]
    joint = np.exp(np.array(logs) - max(logs)).reshape((2,) * n)
    joint /= joint.sum()
    found = probability(exact_log_odds(grounded, truth, weights, base))
    for v in range(n):
        false, true = joint[tuple(slice(None) if i == v else int(x) for i, x in enumerate(truth))]
        assert found[v] == pytest.approx(true / (true + false), abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.data(), graphs_and_chains(max_entities=3, max_relations=2, max_triples=4, max_chains=2))
def test_the_hypothesis_blanket_is_the_conditional_of_what_concludes_a_triple(data: st.DataObject, case: Case) -> None:
    """The enumerated joint distribution of the groundings that conclude v alone, under any assignment of the rest."""
    graph, chains = case
    grounded = ground_network(graph.observed, chains, "distinct", hidden_premises=True)
    n = len(grounded.triples)
    assume(n <= 8)
    truth, weights, base = drawn(data, n, len(chains), len(graph.relations))
    factors = network(as_set(graph.train), len(graph.entities), chains, "distinct", hidden_premises=True)
    worlds = list(itertools.product((False, True), repeat=n))
    matrix = features(grounded, truth, "hypothesis")
    found = probability(base[grounded.triples.triples[:, RELATION]] + matrix @ weights)
    for v, (h, r, t) in enumerate(grounded.triples.triples.tolist()):
        own = [(rule, instance) for rule, instance in factors if instance.hypothesis == (h, r, t)]
        logs = [log_joint(own, true_rows(grounded.triples, w), weights.tolist(), base.tolist()) for w in worlds]
        joint = np.exp(np.array(logs) - max(logs)).reshape((2,) * n)
        false, true = joint[tuple(slice(None) if i == v else int(x) for i, x in enumerate(truth))]
        assert found[v] == pytest.approx(true / (true + false), abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(
    st.data(),
    graphs_and_chains(),
    st.booleans(),
    st.sampled_from(["sum", "mean"]),
    st.sampled_from(["hypothesis", "full"]),
)
def test_sum_and_mean_by_loops(
    data: st.DataObject, case: Case, hidden_premises: bool, aggregate: Aggregate, blanket: Blanket
) -> None:
    """+w for each grounding that concludes v from true premises; if full, -w for each that v alone would break."""
    graph, chains = case
    grounded = ground_network(graph.observed, chains, "distinct", hidden_premises)
    truth, weights, base = drawn(data, len(grounded.triples), len(chains), len(graph.relations))
    world = true_rows(grounded.triples, truth)
    expected = []
    for h, r, t in grounded.triples.triples.tolist():
        v, terms = (h, r, t), []
        for rule, (hypothesis, premises) in unpacked(grounded):
            if hypothesis == v and premises <= world:
                terms.append(weights[rule])
            if blanket == "full" and v in premises and premises - {v} <= world and hypothesis not in world:
                terms.append(-weights[rule])
        total = sum(terms) / max(len(terms), 1) if aggregate == "mean" else sum(terms)
        expected.append(base[r] + total)
    matrix = features(grounded, truth, blanket, aggregate)
    assert matrix.shape == (len(grounded.triples), len(chains))
    found = base[grounded.triples.triples[:, RELATION]] + matrix @ weights
    np.testing.assert_allclose(found, expected, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(graphs_and_chains(), st.sampled_from(["sum", "mean"]))
def test_the_merged_form_has_the_rows_of_the_matrix(case: Case, aggregate: Aggregate) -> None:
    """To the last bit: weights that are learned from one are those of the other."""
    graph, chains = case
    grounded = ground_network(graph.observed, chains, "distinct")
    merged = aggregated(grounded.multisets, aggregate)
    matrix = Rows.of(features(grounded, grounded.observed, "hypothesis", aggregate))
    assert merged.number.tolist() == matrix.number.tolist()
    assert merged.matrix.toarray().tolist() == matrix.matrix.toarray().tolist()


def test_a_repeated_premise_is_one_premise_in_both_roles() -> None:
    """r0(x, y) & r0(x, y) => r1(x, x), with the premise observed: +w for the conclusion, -w for the premise."""
    chain = Chain((Move(0, True), Move(0, False)), 1)
    grounded = ground_network(numbered_graph(2, 2, [(0, 0, 1)]).observed, [chain], "distinct", hidden_premises=True)
    assert grounded.triples.triples.tolist() == [[0, 0, 1], [0, 1, 0]]
    assert features(grounded, grounded.observed, "full").toarray().tolist() == [[-1], [1]]
    assert features(grounded, ~grounded.observed, "full").toarray().tolist() == [[0], [0]]


@settings(max_examples=60, deadline=None)
@given(graphs(held_out=True))
def test_base_log_odds(graph: KnowledgeGraph) -> None:
    pairs = len(graph.entities) ** 2
    found = base_log_odds(graph, unit_clauses=True)
    assert base_log_odds(graph, unit_clauses=False).tolist() == [0.0] * len(graph.relations)
    assert np.isfinite(found).all()
    for relation, b in enumerate(found):
        facts = sum(r == relation for _, r, _ in as_set(graph.train))
        if 0 < facts < pairs:
            assert b == pytest.approx(math.log(facts / (pairs - facts)))
        else:  # finite, and beyond what any triple more or less would give
            assert abs(b) > math.log(pairs - 1)
            assert (b > 0) == (facts > 0)


def test_probability_is_the_logistic_function_and_never_overflows() -> None:
    assert probability(np.array([-1e4, 0.0, math.log(3), 1e4])).tolist() == pytest.approx([0, 0.5, 0.75, 1])
