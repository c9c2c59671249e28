"""NNE-AER: the bounds, the penalty and its gradient, and that a zero penalty implies the entailment."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet.graph import FloatArray, KnowledgeGraph
from plogicnet.neural.protocol import Examples
from plogicnet.neural.vectors.model import VectorModel
from plogicnet.neural.vectors.settings import VectorSettings
from plogicnet.rules import RuleTable, parse_rule
from plogicnet.support.errors import InputError
from plogicnet.systems.nne_aer import Entailments, make_nne_aer, penalty

GUIDE = Entailments(np.array([0, 1]), np.array([1, 2]), np.array([1.0, -1.0]), np.array([0.9, 0.5]), mu=3.0)
TRIPLES = np.array([[0, 0, 1], [1, 1, 2], [2, 2, 3], [3, 0, 0], [1, 2, 3]])


def slow_penalty(p: FloatArray, q: FloatArray, sign: FloatArray, confidence: FloatArray) -> float:
    total, dim = 0.0, p.shape[1] // 2
    for i in range(len(p)):
        for k in range(dim):
            total += confidence[i] * max(0.0, p[i, k] - q[i, k])
            total += confidence[i] * (p[i, dim + k] - sign[i] * q[i, dim + k]) ** 2
    return total


@given(seed=st.integers(0, 10_000), n=st.integers(0, 4), dim=st.integers(1, 3))
@settings(deadline=None)
def test_the_penalty_and_its_gradient_equal_a_loop(seed: int, n: int, dim: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(2, n, 2 * dim))
    sign, confidence = rng.choice([-1.0, 1.0], n), rng.random(n)
    p, q = (torch.tensor(v, requires_grad=True) for v in vectors)
    value = penalty(p, q, torch.tensor(sign), torch.tensor(confidence))
    assert float(value.detach()) == pytest.approx(slow_penalty(vectors[0], vectors[1], sign, confidence))
    value.backward()  # type: ignore[no-untyped-call]
    for at in np.ndindex(vectors.shape):
        moved = []
        for step in (1e-6, -1e-6):
            other = vectors.copy()
            other[at] += step
            moved.append(slow_penalty(other[0], other[1], sign, confidence))
        gradient = (p, q)[at[0]].grad
        assert gradient is not None
        assert float(gradient[at[1:]]) == pytest.approx((moved[0] - moved[1]) / 2e-6, abs=1e-5)


@given(seed=st.integers(0, 10_000), inverse=st.booleans())
@settings(deadline=None)
def test_with_zero_penalty_the_conclusion_is_at_least_as_probable(seed: int, inverse: bool) -> None:
    """For any entity vectors in [0, 1]: score(x, r_p, y) ≤ score(x, r_q, y), or score(y, r_q, x) for an inverse."""
    rng = np.random.default_rng(seed)
    model = VectorModel(6, 2, VectorSettings(model="ComplEx", dim=3))
    p = rng.normal(size=6)
    q = np.concatenate([p[:3] + rng.random(3), (-1 if inverse else 1) * p[3:]])
    model.relation.copy_(torch.tensor(np.stack([p, q])))
    model.entity.copy_(torch.tensor(rng.random((6, 6))))
    sign = torch.tensor([-1.0 if inverse else 1.0])
    assert float(penalty(model.relation[:1], model.relation[1:], sign, torch.ones(1))) == 0.0
    pairs = np.array([(x, y) for x in range(6) for y in range(6)])
    premise = np.insert(pairs, 1, 0, axis=1)
    conclusion = np.insert(pairs[:, ::-1] if inverse else pairs, 1, 1, axis=1)
    assert (model.score(premise) <= model.score(conclusion) + 1e-5).all()


@pytest.mark.parametrize("recipe", ["sampled", "one_vs_all"])
def test_entities_stay_within_their_bounds(recipe: str) -> None:
    settings_ = VectorSettings(model="ComplEx", recipe=recipe, dim=4, steps=0, batch=4, negatives=2, learning_rate=0.5)  # type: ignore[arg-type]
    for steps in (0, 1, 25):
        model = VectorModel(4, 3, VectorSettings(**{**vars(settings_), "steps": steps}), guide=GUIDE)
        model.fit(Examples.of(TRIPLES), seed=1)
        assert model.entity.min() >= 0
        assert model.entity.max() <= 1
    assert model.entity.max() == 1  # this learning rate is high enough to reach the bound
    free = VectorModel(4, 3, model.settings)
    free.fit(Examples.of(TRIPLES), seed=1)
    assert free.entity.min() < 0


@pytest.mark.parametrize("recipe", ["sampled", "one_vs_all"])
def test_the_term_is_the_penalty_over_all_relation_tables(recipe: str) -> None:
    model = VectorModel(4, 3, VectorSettings(model="ComplEx", recipe=recipe, dim=4, steps=0, batch=8), guide=GUIDE)  # type: ignore[arg-type]
    model.fit(Examples.of(TRIPLES), seed=1)
    tables = [t.double().numpy() for t in torch.split(model.relation, 3)]
    expected = sum(slow_penalty(t[[0, 1]], t[[1, 2]], GUIDE.sign, GUIDE.confidence) for t in tables) * 3.0 / 8
    assert len(tables) == (2 if recipe == "one_vs_all" else 1)
    assert float(GUIDE.term(model, seed=0)(0)) == pytest.approx(expected, rel=1e-5)


def test_a_strong_penalty_makes_relations_entail() -> None:
    def final_penalty(mu: float) -> float:
        guide = Entailments(GUIDE.premise, GUIDE.conclusion, GUIDE.sign, np.ones(2), mu)
        model = VectorModel(
            4, 3, VectorSettings(model="ComplEx", dim=4, steps=300, batch=4, learning_rate=0.05), guide=guide
        )
        model.fit(Examples.of(TRIPLES), seed=1)
        table = model.relation.double().numpy()
        return slow_penalty(table[[0, 1]], table[[1, 2]], GUIDE.sign, np.ones(2))

    assert final_penalty(100.0) < 0.01 < final_penalty(0.0)


def test_rules_are_converted_to_entailments() -> None:
    graph = KnowledgeGraph.from_names([("a", "r", "b"), ("b", "s", "a"), ("a", "t", "b")])
    texts = ["r(X, Y) => s(Y, X)", "r(X, Y) => t(X, Y)", "t(X, Y) => t(Y, X)"]
    rules = RuleTable.of([parse_rule(t) for t in texts], support=[4, 2, 1], hits=[3, 1, 1])
    guide = make_nne_aer(rules, graph, mu=0.1)
    id_of = graph.relations.id
    assert guide.premise.tolist() == [id_of("r"), id_of("r"), id_of("t")]
    assert guide.conclusion.tolist() == [id_of("s"), id_of("t"), id_of("t")]
    assert guide.sign.tolist() == [-1, 1, -1]
    assert guide.confidence.tolist() == [0.75, 0.5, 1.0]
    two = RuleTable.of([parse_rule("r(X, Y) & s(Y, Z) => t(X, Z)")], [1], [1])
    with pytest.raises(InputError, match="NNE-AER supports only"):
        make_nne_aer(two, graph, mu=0.1)
