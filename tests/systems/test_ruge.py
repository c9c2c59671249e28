"""RUGE: soft labels compared with a numerical optimum, the lift of each triple, and its term of the loss."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.grounding.rulebook import collect_rules
from plogicnet.neural.protocol import Examples
from plogicnet.neural.vectors.model import VectorModel
from plogicnet.neural.vectors.settings import VectorSettings
from plogicnet.rules import parse_statements
from plogicnet.systems.ruge import RUGE as SYSTEM
from plogicnet.systems.ruge import RugeSettings, SoftLabels, compute_lifts, make_ruge, soft_labels
from small import SMALL, small_graph

fraction = st.floats(0.0, 1.0)
RUGE = Config().with_values(SMALL | {"system": "ruge"})


@given(q=fraction, c=st.floats(0.0, 1.0), rules=st.lists(st.tuples(fraction, fraction), max_size=4))
@settings(deadline=None)
def test_soft_labels_are_the_optimum_of_the_objective(q: float, c: float, rules: list[tuple[float, float]]) -> None:
    """They minimise ½(s - q)² + C Σ λ (1 - truth of the ground rule) over 0 ≤ s ≤ 1, with the product t-norm."""

    def objective(s: float) -> float:
        truths = [premises * s - premises + 1 for _, premises in rules]
        return (s - q) ** 2 / 2 + c * sum(
            confidence * (1 - truth) for (confidence, _), truth in zip(rules, truths, strict=True)
        )

    best = optimize.minimize_scalar(objective, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-9})
    lift = c * sum(confidence * premises for confidence, premises in rules)
    label = float(soft_labels(torch.tensor([q], dtype=torch.float64), torch.tensor([lift], dtype=torch.float64))[0])
    assert label == pytest.approx(best.x, abs=1e-5)
    assert objective(label) <= objective(best.x) + 1e-12


def test_lifts_of_a_known_graph() -> None:
    rows = [("a", "r", "b"), ("b", "s", "c"), ("a", "r", "d"), ("d", "s", "c"), ("x", "t", "y"), ("c", "u", "a")]
    graph = KnowledgeGraph.from_names(rows)
    config = RUGE.with_values({"rules.mine": False})
    text = "r(X, Y) & s(Y, Z) => t(X, Z)\nu(X, Y) => t(Y, X)"
    rules = collect_rules(graph, config, parse_statements(text, graph)).rules
    groundings = SYSTEM.rule_model(graph, config, rules, rules.take(np.zeros(0, dtype=np.int64))).groundings
    at = int(groundings.triples.find(graph.encode("a", "t", "c")[None, :])[0])
    truth = groundings.observed.astype(float)
    confidence = np.array([0.5, 0.8])
    # two paths and one inverse fact conclude (a, t, c)
    concluding = groundings.groundings_of(at)
    assert sorted(compute_lifts(groundings, truth, confidence, 0.1)[concluding]) == pytest.approx([0.05, 0.05, 0.08])
    truth[groundings.triples.find(graph.encode("a", "r", "b")[None, :])] = 0.3
    truth[groundings.triples.find(graph.encode("b", "s", "c")[None, :])] = 0.5
    assert sorted(compute_lifts(groundings, truth, confidence, 0.1)[concluding]) == pytest.approx(
        [0.05 * 0.15, 0.05, 0.08]
    )


def test_the_guide_contains_all_hidden_triples_with_lifts_from_precision() -> None:
    graph = small_graph()
    mined = collect_rules(graph, RUGE)
    assert set(mined.rules.patterns) <= {"composition", "inverse"}
    model = SYSTEM.rule_model(graph, RUGE, mined.rules, mined.constraints)
    guide = make_ruge(model, RugeSettings())
    assert guide is not None
    lifts: dict[tuple[int, ...], float] = {}
    for triple, lift in zip(guide.hidden.tolist(), guide.lift, strict=True):
        assert lift > 0
        lifts[tuple(triple)] = lifts.get(tuple(triple), 0.0) + lift
    counts = model.matrix.toarray()[~model.groundings.observed]
    expected = dict(
        zip(map(tuple, model.groundings.hidden.tolist()), 0.01 * counts @ mined.rules.precision, strict=True)
    )
    assert lifts == pytest.approx(expected)


@pytest.mark.parametrize("recipe", ["sampled", "one_vs_all"])
def test_the_term_is_the_cross_entropy_of_the_soft_labels(recipe: str) -> None:
    hidden, lift = np.array([[0, 0, 1], [2, 1, 0], [1, 1, 1]]), np.array([0.01, 0.2, 3.0])
    guide = SoftLabels(hidden, lift, weight=2.0, batch=3)
    model = VectorModel(3, 2, VectorSettings(model="ComplEx", recipe=recipe, dim=4, gamma=1.0, steps=0), guide=guide)  # type: ignore[arg-type]
    model.fit(Examples.of(np.array([[0, 0, 2]])), seed=5)
    if recipe == "sampled":
        phi = torch.sigmoid(model.score(hidden)).double().numpy()
    else:  # tail queries use only the forward relations
        phi = torch.sigmoid(model._score_pairs(hidden, "tail")).double().numpy()
    s = np.clip(phi + lift, 0, 1)
    expected = -2.0 * np.mean(s * np.log(phi) + (1 - s) * np.log(1 - phi))
    assert float(guide.term(model, seed=5)(0)) == pytest.approx(expected, rel=1e-5)


def test_groundings_of_one_triple_add_up() -> None:
    """Groundings drawn in one step are one triple with the sum of their lifts."""
    one, two = np.array([[0, 0, 1]]), np.array([[2, 1, 0]])
    model = VectorModel(3, 2, VectorSettings(model="ComplEx", dim=4, gamma=1.0, steps=0))
    model.fit(Examples.of(np.array([[0, 0, 2]])), seed=5)
    apart = SoftLabels(np.concatenate([one, two, one]), np.array([0.01, 0.2, 0.03]), weight=1.0, batch=3)
    summed = SoftLabels(np.concatenate([one, two]), np.array([0.04, 0.2]), weight=1.0, batch=2)
    assert float(apart.term(model, seed=5)(0)) == pytest.approx(float(summed.term(model, seed=5)(0)), rel=1e-6)


def test_zero_lifts_do_not_change_the_vectors() -> None:
    triples = np.array([[0, 0, 1], [1, 0, 2], [2, 1, 0]])
    settings_ = VectorSettings(model="ComplEx", dim=4, steps=20, batch=2, negatives=2, learning_rate=0.1)
    plain, guided = (
        VectorModel(3, 2, settings_, guide=guide)
        for guide in (None, SoftLabels(np.array([[0, 1, 2]]), np.zeros(1), weight=1.0, batch=1))
    )
    for model in (plain, guided):
        model.fit(Examples.of(triples), seed=1)
    assert torch.allclose(plain.entity, guided.entity, atol=1e-7)


def test_soft_labels_have_no_gradient_of_their_own() -> None:
    """The gradient of the cross-entropy is φ - s, so minus the lift for a label that is not clipped."""
    guide = SoftLabels(np.array([[0, 0, 1]]), np.array([0.05]), weight=1.0, batch=1)
    model = VectorModel(2, 1, VectorSettings(model="ComplEx", dim=2), guide=guide)
    with torch.no_grad():
        model.entity.copy_(torch.tensor([[1.0, 0, 0, 0], [0.5, 0, 0, 0]]))
        model.relation.copy_(torch.tensor([[0.4, 0, 0, 0]]))
    model.relation.requires_grad_()
    guide.term(model, seed=0)(0).backward()  # type: ignore[no-untyped-call]
    assert model.relation.grad is not None
    assert float(model.relation.grad[0, 0]) == pytest.approx(-0.05 * 1.0 * 0.5, rel=1e-4)
