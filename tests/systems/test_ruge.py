"""RUGE: its closed form against a numeric optimum, what it asks of each triple by hand, and its part of the loss."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.grounding.rulebook import find_rules
from plogicnet.neural.protocol import Examples
from plogicnet.neural.vectors.model import VectorModel
from plogicnet.neural.vectors.settings import VectorSettings
from plogicnet.rules import statements_of
from plogicnet.systems.ruge import RUGE as SYSTEM
from plogicnet.systems.ruge import RugeSettings, SoftLabels, lifts, make_ruge, soft_labels
from small import SMALL, small_graph

share = st.floats(0.0, 1.0)
RUGE = Config().with_values(SMALL | {"system": "ruge"})


@given(q=share, c=st.floats(0.0, 1.0), rules=st.lists(st.tuples(share, share), max_size=4))
@settings(deadline=None)
def test_soft_labels_are_the_optimum_of_the_objective(q: float, c: float, rules: list[tuple[float, float]]) -> None:
    """min ½(s - q)² + C Σ λ (1 - truth of the ground rule), by the product t-norm, over 0 ≤ s ≤ 1."""

    def objective(s: float) -> float:
        truths = [premises * s - premises + 1 for _, premises in rules]
        return (s - q) ** 2 / 2 + c * sum(
            confidence * (1 - truth) for (confidence, _), truth in zip(rules, truths, strict=True)
        )

    best = optimize.minimize_scalar(objective, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-9})
    lift = c * sum(confidence * premises for confidence, premises in rules)
    found = float(soft_labels(torch.tensor([q], dtype=torch.float64), torch.tensor([lift], dtype=torch.float64))[0])
    assert found == pytest.approx(best.x, abs=1e-5)
    assert objective(found) <= objective(best.x) + 1e-12


def test_lifts_by_hand() -> None:
    rows = [("a", "r", "b"), ("b", "s", "c"), ("a", "r", "d"), ("d", "s", "c"), ("x", "t", "y"), ("c", "u", "a")]
    graph = KnowledgeGraph.from_names(rows)
    config = RUGE.with_values({"rules.mine": False})
    text = "r(X, Y) & s(Y, Z) => t(X, Z)\nu(X, Y) => t(Y, X)"
    rules = find_rules(graph, config, statements_of(text, graph)).rules
    groundings = SYSTEM.rule_model(graph, config, rules, rules.take(np.zeros(0, dtype=np.int64))).groundings
    at = int(groundings.triples.find(graph.numbers("a", "t", "c")[None, :])[0])
    truth = groundings.observed.astype(float)
    confidence = np.array([0.5, 0.8])
    # two paths and one inverse fact lead to (a, t, c)
    own = groundings.of(at)
    assert sorted(lifts(groundings, truth, confidence, 0.1)[own]) == pytest.approx([0.05, 0.05, 0.08])
    truth[groundings.triples.find(graph.numbers("a", "r", "b")[None, :])] = 0.3
    truth[groundings.triples.find(graph.numbers("b", "s", "c")[None, :])] = 0.5
    assert sorted(lifts(groundings, truth, confidence, 0.1)[own]) == pytest.approx([0.05 * 0.15, 0.05, 0.08])


def test_the_guide_holds_the_hidden_triples_and_the_rules_precision() -> None:
    graph = small_graph()
    mined = find_rules(graph, RUGE)
    assert set(mined.rules.patterns) <= {"composition", "inverse"}
    model = SYSTEM.rule_model(graph, RUGE, mined.rules, mined.constraints)
    guide = make_ruge(model, RugeSettings())
    assert guide is not None
    asked: dict[tuple[int, ...], float] = {}
    for triple, lift in zip(guide.hidden.tolist(), guide.lift, strict=True):
        assert lift > 0
        asked[tuple(triple)] = asked.get(tuple(triple), 0.0) + lift
    counts = model.matrix.toarray()[~model.groundings.observed]
    whole = dict(zip(map(tuple, model.groundings.hidden.tolist()), 0.01 * counts @ mined.rules.precision, strict=True))
    assert asked == pytest.approx(whole)


@pytest.mark.parametrize("recipe", ["sampled", "one_vs_all"])
def test_the_term_is_the_cross_entropy_of_the_soft_labels(recipe: str) -> None:
    hidden, lift = np.array([[0, 0, 1], [2, 1, 0], [1, 1, 1]]), np.array([0.01, 0.2, 3.0])
    guide = SoftLabels(hidden, lift, weight=2.0, batch=3)
    model = VectorModel(3, 2, VectorSettings(model="ComplEx", recipe=recipe, dim=4, gamma=1.0, steps=0), guide=guide)  # type: ignore[arg-type]
    model.fit(Examples.of(np.array([[0, 0, 2]])), seed=5)
    if recipe == "sampled":
        phi = torch.sigmoid(model.score(hidden)).double().numpy()
    else:  # asked for tails: the forward relations alone
        phi = torch.sigmoid(model._pairs(hidden, "tail")).double().numpy()
    s = np.clip(phi + lift, 0, 1)
    expected = -2.0 * np.mean(s * np.log(phi) + (1 - s) * np.log(1 - phi))
    assert float(guide.term(model, seed=5)(0)) == pytest.approx(expected, rel=1e-5)


def test_groundings_of_one_triple_lift_its_label_together() -> None:
    """Drawn in one step, they are one triple with the sum of what they ask for; drawn alone, each asks for its own."""
    one, two = np.array([[0, 0, 1]]), np.array([[2, 1, 0]])
    model = VectorModel(3, 2, VectorSettings(model="ComplEx", dim=4, gamma=1.0, steps=0))
    model.fit(Examples.of(np.array([[0, 0, 2]])), seed=5)
    apart = SoftLabels(np.concatenate([one, two, one]), np.array([0.01, 0.2, 0.03]), weight=1.0, batch=3)
    summed = SoftLabels(np.concatenate([one, two]), np.array([0.04, 0.2]), weight=1.0, batch=2)
    assert float(apart.term(model, seed=5)(0)) == pytest.approx(float(summed.term(model, seed=5)(0)), rel=1e-6)


def test_rules_that_ask_for_nothing_change_nothing() -> None:
    triples = np.array([[0, 0, 1], [1, 0, 2], [2, 1, 0]])
    settings_ = VectorSettings(model="ComplEx", dim=4, steps=20, batch=2, negatives=2, learning_rate=0.1)
    plain, guided = (
        VectorModel(3, 2, settings_, guide=guide)
        for guide in (None, SoftLabels(np.array([[0, 1, 2]]), np.zeros(1), weight=1.0, batch=1))
    )
    for model in (plain, guided):
        model.fit(Examples.of(triples), seed=1)
    assert torch.allclose(plain.entity, guided.entity, atol=1e-7)


def test_soft_labels_take_no_gradient_and_raise_what_rules_conclude() -> None:
    """The gradient of the cross-entropy is φ - s: of an unclipped label it is the lift itself."""
    guide = SoftLabels(np.array([[0, 0, 1]]), np.array([0.05]), weight=1.0, batch=1)
    model = VectorModel(2, 1, VectorSettings(model="ComplEx", dim=2), guide=guide)
    with torch.no_grad():
        model.entity.copy_(torch.tensor([[1.0, 0, 0, 0], [0.5, 0, 0, 0]]))
        model.relation.copy_(torch.tensor([[0.4, 0, 0, 0]]))
    model.relation.requires_grad_()
    guide.term(model, seed=0)(0).backward()  # type: ignore[no-untyped-call]
    assert model.relation.grad is not None
    assert float(model.relation.grad[0, 0]) == pytest.approx(-0.05 * 1.0 * 0.5, rel=1e-4)
