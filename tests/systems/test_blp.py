"""BLP: the noisy-or compared with an enumeration of its causes, and EM compared with an optimiser."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, sparse, special

from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.graph import FloatArray, KnowledgeGraph
from plogicnet.grounding.rulebook import collect_rules
from plogicnet.rules import RuleTable
from plogicnet.support.errors import InputError
from plogicnet.systems.blp import BLP as SYSTEM
from plogicnet.systems.blp import NoisyOr, expectation_maximisation
from small import SMALL, family_rows, small_graph

BLP = Config().with_values(SMALL | {"system": "blp"})


def learned(graph: KnowledgeGraph, config: Config = BLP) -> NoisyOr:
    mined = collect_rules(graph, config)
    model = SYSTEM.rule_model(graph, config, mined.rules, mined.constraints)
    model = SYSTEM.m_step(model, np.zeros(0), config, seed=0)
    assert isinstance(model, NoisyOr)
    return model


def by_enumeration(leak: float, causes: list[float]) -> float:
    """Sum the probability that at least one cause fires over all combinations of independent causes."""
    probabilities = [leak, *causes]
    total = 0.0
    for fired in itertools.product((False, True), repeat=len(probabilities)):
        if any(fired):
            total += float(np.prod([c if f else 1 - c for c, f in zip(probabilities, fired, strict=True)]))
    return total


probability = st.floats(0.001, 0.999)


@given(leak=probability, rules=st.lists(st.tuples(probability, st.integers(0, 3)), max_size=3))
@settings(deadline=None)
def test_noisy_or_equals_the_enumeration_of_its_causes(leak: float, rules: list[tuple[float, int]]) -> None:
    graph = KnowledgeGraph.from_names([("a", "r", "b")])
    none = RuleTable.of([], [], [])
    model = SYSTEM.rule_model(graph, BLP, none, none)
    model = NoisyOr(model.rules, model.constraints, replace(model.assignment, base=np.array([special.logit(leak)])))
    sums = sum(-np.log1p(-c) * n for c, n in rules)
    p = special.expit(model.log_odds_of(np.array([sums]), np.array([0])))[0]
    assert p == pytest.approx(by_enumeration(leak, [c for c, n in rules for _ in range(n)]), rel=1e-9)


def log_posterior(
    c: FloatArray, matrix: sparse.csr_array, leak: FloatArray, y: FloatArray, count: FloatArray, prior: float
) -> float:
    a = leak - matrix @ np.log1p(-c)
    likelihood = count * (y * np.log(-np.expm1(-a)) - (1 - y) * a)
    return float(likelihood.sum() + prior * (np.log(c) + np.log1p(-c)).sum())


@st.composite
def problems(draw: Any) -> tuple[sparse.csr_array, FloatArray, FloatArray, FloatArray, FloatArray]:
    rows, rules = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    matrix = sparse.csr_array(rng.integers(0, 3, (rows, rules)).astype(float))
    leak, y, count = rng.uniform(0.001, 0.1, rows), rng.random(rows).round(), rng.integers(1, 4, rows).astype(float)
    return matrix, leak, y, count, rng.uniform(0.1, 0.9, rules)


@given(problems())
@settings(deadline=None, max_examples=40)
def test_em_finds_the_maximum_and_never_lowers_the_objective(
    problem: tuple[sparse.csr_array, FloatArray, FloatArray, FloatArray, FloatArray],
) -> None:
    matrix, leak, y, count, start = problem
    free, prior = np.zeros(len(start), dtype=bool), 1.0
    values = [
        log_posterior(
            expectation_maximisation(matrix, leak, y, count, start, free, prior, n), matrix, leak, y, count, prior
        )
        for n in range(8)
    ]
    assert all(after >= before - 1e-9 for before, after in itertools.pairwise(values))

    def negative(x: FloatArray) -> float:
        return -log_posterior(special.expit(x), matrix, leak, y, count, prior)

    best = optimize.minimize(negative, np.zeros(len(start)), tol=1e-10)
    learned_c = expectation_maximisation(matrix, leak, y, count, start, free, prior, 100_000)
    assert log_posterior(learned_c, matrix, leak, y, count, prior) == pytest.approx(-best.fun, abs=1e-5)


def test_the_probability_of_a_single_rule_is_its_smoothed_precision() -> None:
    """Without other rules and almost without leak, a grounding fires if its hypothesis is observed."""
    rows = [(f"a{i}", "knows", f"b{i}") for i in range(8)] + [(f"b{i}", "met", f"a{i}") for i in range(6)]
    rows += [(f"z{i}", "next", f"z{i + 1}") for i in range(400)]  # many entities make the base rates small
    config = BLP.with_values({"rules.patterns": ["inverse"], "rules.min_precision.inverse": 0.7})
    model = learned(KnowledgeGraph.from_names(rows), config)
    probabilities = {str(r): -np.expm1(-w) for r, w in zip(model.rules.rules, model.rules.weight, strict=True)}
    assert probabilities["knows(X, Y) => met(Y, X)"] == pytest.approx((6 + 1) / (8 + 2), abs=1e-4)
    assert probabilities["met(X, Y) => knows(Y, X)"] == pytest.approx((6 + 1) / (6 + 2), abs=1e-4)


def test_p_w_is_the_noisy_or_of_a_triples_groundings() -> None:
    model, graph = learned(small_graph()), small_graph()
    counts = model.matrix.toarray()
    c = -np.expm1(-model.rules.weight)
    assert ((c > 0) & (c < 1)).all()
    leak = special.expit(model.base[model.groundings.triples.triples[:, 1]])
    expected = 1 - (1 - leak) * np.prod((1 - c) ** counts, axis=1)
    assert special.expit(model.log_odds) == pytest.approx(expected, rel=1e-9)
    odds, reached = model.scores(graph).of_triples(model.groundings.triples.triples)
    assert special.expit(odds) == pytest.approx(np.where(reached, expected, leak), rel=1e-9)


def test_an_explanation_adds_up() -> None:
    """The contributions add up to -log(1 - p)."""
    fitted = PLogicNet(BLP).fit(small_graph())
    model = fitted.fitted.outcome.rule_model
    triples = model.groundings.hidden
    seen = 0
    for triple in triples[:: max(1, len(triples) // 10)]:
        explanation = fitted.explain(*fitted.fitted.graph.names(triple))
        total = sum(rule.contribution for rule in explanation.rules) - np.log1p(-special.expit(explanation.base))
        assert total == pytest.approx(-np.log1p(-explanation.p_w), rel=1e-6)
        assert explanation.log_odds == pytest.approx(special.logit(explanation.p_w), rel=1e-6)
        seen += len(explanation.rules)
    assert seen


def test_given_weights_are_kept_and_must_not_be_negative() -> None:
    graph = KnowledgeGraph.from_names(family_rows())
    fitted = PLogicNet(BLP).fit(graph, rules="=2: husband(X, Y) => wife(Y, X)")
    rows = {row["rule"]: row for row in fitted.rules.rows()}
    assert rows["husband(X, Y) => wife(Y, X)"]["weight"] == 2.0
    with pytest.raises(InputError, match="must be at least 0"):
        PLogicNet(BLP).fit(graph, rules="=-2: husband(X, Y) => wife(Y, X)")
