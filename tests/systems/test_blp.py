"""BLP: the noisy-or against enumeration of its causes, its learning against the likelihood itself."""

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
from plogicnet.grounding.rulebook import find_rules
from plogicnet.rules import RuleTable
from plogicnet.support.errors import InputError
from plogicnet.systems.blp import BLP as SYSTEM
from plogicnet.systems.blp import NoisyOr, expectation_maximisation
from small import SMALL, family_rows, small_graph

BLP = Config().with_values(SMALL | {"system": "blp"})


def learned(graph: KnowledgeGraph, config: Config = BLP) -> NoisyOr:
    mined = find_rules(graph, config)
    model = SYSTEM.rule_model(graph, config, mined.rules, mined.constraints)
    model = SYSTEM.learn(model, np.zeros(0), config, seed=0)
    assert isinstance(model, NoisyOr)
    return model


def by_enumeration(leak: float, causes: list[float]) -> float:
    """The probability that at least one of independent causes fires: the sum over all ways in which they can."""
    chances = [leak, *causes]
    total = 0.0
    for fired in itertools.product((False, True), repeat=len(chances)):
        if any(fired):
            total += float(np.prod([c if f else 1 - c for c, f in zip(chances, fired, strict=True)]))
    return total


chance = st.floats(0.001, 0.999)


@given(leak=chance, rules=st.lists(st.tuples(chance, st.integers(0, 3)), max_size=3))
@settings(deadline=None)
def test_noisy_or_is_the_sum_over_all_ways_to_fire(leak: float, rules: list[tuple[float, int]]) -> None:
    graph = KnowledgeGraph.from_names([("a", "r", "b")])
    none = RuleTable.of([], [], [])
    model = SYSTEM.rule_model(graph, BLP, none, none)
    model = NoisyOr(model.rules, model.constraints, replace(model.evidence, base=np.array([special.logit(leak)])))
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
def test_em_finds_the_most_probable_chances_and_never_goes_down(
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

    def contrary(x: FloatArray) -> float:
        return -log_posterior(special.expit(x), matrix, leak, y, count, prior)

    best = optimize.minimize(contrary, np.zeros(len(start)), tol=1e-10)
    found = expectation_maximisation(matrix, leak, y, count, start, free, prior, 100_000)
    assert log_posterior(found, matrix, leak, y, count, prior) == pytest.approx(-best.fun, abs=1e-5)


def test_chances_of_one_rule_alone_are_its_share_of_hits() -> None:
    """Without other rules, and with hardly a leak, a grounding fired where its hypothesis is observed."""
    rows = [(f"a{i}", "knows", f"b{i}") for i in range(8)] + [(f"b{i}", "met", f"a{i}") for i in range(6)]
    rows += [(f"z{i}", "next", f"z{i + 1}") for i in range(400)]  # among so many entities the base rates are small
    config = BLP.with_values({"rules.patterns": ["inverse"], "rules.min_precision.inverse": 0.7})
    model = learned(KnowledgeGraph.from_names(rows), config)
    chances = {str(r): -np.expm1(-w) for r, w in zip(model.rules.rules, model.rules.weight, strict=True)}
    assert chances["knows(X, Y) => met(Y, X)"] == pytest.approx((6 + 1) / (8 + 2), abs=1e-4)
    assert chances["met(X, Y) => knows(Y, X)"] == pytest.approx((6 + 1) / (6 + 2), abs=1e-4)


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
    """In -log(1 - p), where each grounding has its share."""
    fitted = PLogicNet(BLP).fit(small_graph())
    model = fitted.fitted.outcome.rule_model
    triples = model.groundings.hidden
    seen = 0
    for triple in triples[:: max(1, len(triples) // 10)]:
        about = fitted.explain(*fitted.fitted.graph.names(triple))
        total = sum(rule.contribution for rule in about.rules) - np.log1p(-special.expit(about.base))
        assert total == pytest.approx(-np.log1p(-about.p_w), rel=1e-6)
        assert about.log_odds == pytest.approx(special.logit(about.p_w), rel=1e-6)
        seen += len(about.rules)
    assert seen


def test_weights_that_a_person_gives() -> None:
    graph = KnowledgeGraph.from_names(family_rows())
    fitted = PLogicNet(BLP).fit(graph, rules="=2: husband(X, Y) => wife(Y, X)")
    rows = {row["rule"]: row for row in fitted.rules.rows()}
    assert rows["husband(X, Y) => wife(Y, X)"]["weight"] == 2.0
    with pytest.raises(InputError, match="not negative"):
        PLogicNet(BLP).fit(graph, rules="=-2: husband(X, Y) => wife(Y, X)")
