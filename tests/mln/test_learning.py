"""Weight learning: the objective by a loop, its gradient by differences, and the maximum by other means."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from plogicnet import config
from plogicnet.graph import FloatArray
from plogicnet.mln import Pseudolikelihood, learn_weights, learning, newton


def problem(seed: int, l2: float = 1.0, triples: int = 30, rules: int = 4, counted: bool = False) -> Pseudolikelihood:
    """Small counts of groundings, some of them negative as under the full blanket; some triples have none."""
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-1, 4, (triples, rules)) * (rng.random((triples, rules)) < 0.5)
    target = np.where(rng.random(triples) < 0.5, 1.0, rng.random(triples))
    count: FloatArray | float = rng.integers(1, 5, triples).astype(float) if counted else 1.0
    return Pseudolikelihood(sparse.csr_array(matrix.astype(float)), rng.normal(size=triples), target, l2, count)


problems = st.builds(
    problem,
    seed=st.integers(0, 10_000),
    l2=st.sampled_from([0.0, 0.1, 1.0, 10.0]),
    triples=st.integers(1, 40),
    rules=st.integers(1, 6),
    counted=st.booleans(),
)
penalised = problems.filter(lambda objective: objective.l2 > 0)
weight_seeds = st.integers(0, 10_000)


def value_by_loop(objective: Pseudolikelihood, weights: FloatArray) -> float:
    counts = np.broadcast_to(objective.count, objective.target.shape)
    total = -objective.l2 / 2 * sum(w * w for w in weights)
    rows = zip(objective.matrix.toarray(), objective.base, objective.target, counts, strict=True)
    for x, b, y, count in rows:
        p = 1 / (1 + math.exp(-(b + sum(x * weights))))
        total += count * (y * math.log(p) + (1 - y) * math.log(1 - p))
    return float(total)


@settings(max_examples=60, deadline=None)
@given(problems, weight_seeds)
def test_value(objective: Pseudolikelihood, seed: int) -> None:
    weights = np.random.default_rng(seed).normal(size=objective.matrix.shape[1])
    assert objective.value(weights) == pytest.approx(value_by_loop(objective, weights), rel=1e-9)


def test_value_does_not_overflow() -> None:
    objective = Pseudolikelihood(sparse.csr_array(np.array([[1.0], [-1.0]])), np.zeros(2), np.array([0.0, 1.0]), l2=0.0)
    assert objective.value(np.array([1e4])) == pytest.approx(-2e4)


@settings(max_examples=60, deadline=None)
@given(problems, weight_seeds)
def test_gradient_and_curvature_by_differences(objective: Pseudolikelihood, seed: int) -> None:
    size = objective.matrix.shape[1]
    weights = np.random.default_rng(seed).normal(size=size)
    steps = 1e-5 * np.eye(size)
    slopes = [(value_by_loop(objective, weights + s) - value_by_loop(objective, weights - s)) / 2e-5 for s in steps]
    np.testing.assert_allclose(objective.gradient(weights), slopes, rtol=1e-5, atol=1e-5)
    bends = [(objective.gradient(weights + s) - objective.gradient(weights - s)) / 2e-5 for s in steps]
    matrix = objective.matrix.toarray()
    hessian = matrix.T @ (objective.curvature(weights)[:, None] * matrix) + objective.l2 * np.eye(size)
    np.testing.assert_allclose(-hessian, bends, rtol=1e-5, atol=1e-5)


def ascent(objective: Pseudolikelihood, steps: int) -> FloatArray:
    """Plain gradient ascent in dense arrays, with the largest step that is sure to climb."""
    matrix, weights = objective.matrix.toarray(), np.zeros(objective.matrix.shape[1])
    step = 1 / (np.sum(np.broadcast_to(objective.count, len(matrix))[:, None] * matrix**2) / 4 + objective.l2 + 1e-9)
    for _ in range(steps):
        p = 1 / (1 + np.exp(-(objective.base + matrix @ weights)))
        weights = weights + step * (matrix.T @ (objective.count * (objective.target - p)) - objective.l2 * weights)
    return weights


@pytest.mark.parametrize("dense_up_to", [3_000, 0], ids=["dense", "conjugate gradients"])
@pytest.mark.parametrize("seed", range(4))
def test_newton_is_no_worse_than_10000_steps_of_ascent(
    seed: int, dense_up_to: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "DENSE_UP_TO", dense_up_to)
    objective = problem(seed, l2=(0.0, 0.1, 1.0, 10.0)[seed], counted=bool(seed % 2))
    weights = newton(objective)
    climbed = ascent(objective, 10_000)
    assert np.abs(objective.gradient(weights)).max() <= 1e-6
    assert objective.value(weights) >= objective.value(climbed) - 1e-9
    np.testing.assert_allclose(weights, climbed, atol=1e-2)


@settings(max_examples=60, deadline=None)
@given(penalised)
def test_both_ways_to_newtons_direction_find_the_same_maximum(objective: Pseudolikelihood) -> None:
    found = []
    for dense_up_to in (3_000, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(learning, "DENSE_UP_TO", dense_up_to)
            found.append(learn_weights(objective, config.MLN()))
        assert np.abs(objective.gradient(found[-1])).max(initial=0.0) <= 1e-6
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)


@pytest.mark.parametrize("dense_up_to", [3_000, 0], ids=["dense", "conjugate gradients"])
def test_newton_on_many_triples(dense_up_to: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many triples as a benchmark has: the objective's rounding must not stop the search early."""
    monkeypatch.setattr(learning, "DENSE_UP_TO", dense_up_to)
    objective = problem(0, triples=100_000, rules=40)
    assert np.abs(objective.gradient(newton(objective))).max() <= 1e-6


@pytest.mark.parametrize("dense_up_to", [3_000, 0], ids=["dense", "conjugate gradients"])
@pytest.mark.parametrize("l2", [0.0, 0.001, 1.0])
@pytest.mark.parametrize(
    ("base", "counts"),
    [((-14, -12), (1e6, 1e4)), ((-14, -12), (1e5, 1e4)), ((-14, -8), (1e4, 1e3)), ((-14, -12), (1e3, 1e2))],
)
def test_newton_starts_well_from_rare_relations(
    base: tuple[float, float],
    counts: tuple[float, float],
    l2: float,
    dense_up_to: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unit clauses put the start where all is flat, so that a first step of Newton's goes far beyond the maximum."""
    monkeypatch.setattr(learning, "DENSE_UP_TO", dense_up_to)
    target = np.array([0.99, 0.5])
    objective = Pseudolikelihood(sparse.csr_array(np.eye(2)), np.array(base), target, l2, np.array(counts))
    weights = learn_weights(objective, config.MLN())
    assert np.abs(objective.gradient(weights)).max() <= 1e-6
    if l2 == 0:  # each rule has triples of its own, hence a closed form of its own
        np.testing.assert_allclose(weights, np.log(target / (1 - target)) - base, rtol=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=20).filter(lambda ys: 0.01 < sum(ys) / len(ys) < 0.99),
    st.floats(-3, 3),
    st.integers(1, 3),
    st.integers(0, 5),
)
def test_a_single_rule_has_the_log_odds_of_what_it_concludes(
    targets: list[float], base: float, times: int, unreached: int
) -> None:
    """b + n·w = the log-odds of the mean target, n the groundings of each triple; unreached triples say nothing."""
    share = sum(targets) / len(targets)
    matrix = sparse.csr_array(np.array([[float(times)]] * len(targets) + [[0.0]] * unreached))
    target = np.array(targets + [0.0] * unreached)
    objective = Pseudolikelihood(matrix, np.full(len(target), base), target, l2=0.0)
    [weight] = learn_weights(objective, config.MLN())
    assert weight == pytest.approx((math.log(share / (1 - share)) - base) / times, abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(penalised)
def test_triples_without_a_grounding_change_nothing(objective: Pseudolikelihood) -> None:
    learned = learn_weights(objective, config.MLN())
    np.testing.assert_allclose(learned, newton(objective), atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(penalised)
def test_the_papers_ascent(objective: Pseudolikelihood) -> None:
    chosen = config.MLN(solver="gradient", gradient=config.Gradient(step=0.01, iterations=5))
    weights = np.zeros(objective.matrix.shape[1])
    for _ in range(5):
        weights = weights + 0.01 * objective.gradient(weights)
    np.testing.assert_allclose(learn_weights(objective, chosen), weights, rtol=1e-9, atol=1e-12)


def test_a_rule_that_reaches_nothing_keeps_the_weight_zero() -> None:
    matrix = sparse.csr_array(np.array([[1.0, 0.0], [1.0, 0.0]]))
    for l2 in (0.0, 1.0):
        objective = Pseudolikelihood(matrix, np.zeros(2), np.array([1.0, 0.5]), l2)
        assert learn_weights(objective, config.MLN())[1] == 0


@pytest.mark.parametrize("chosen", [config.MLN(), config.MLN(solver="gradient")], ids=["newton", "gradient"])
def test_no_rules_no_weights(chosen: config.MLN) -> None:
    objective = Pseudolikelihood(sparse.csr_array((3, 0)), np.zeros(3), np.ones(3), l2=1.0)
    assert learn_weights(objective, chosen).shape == (0,)


def test_nothing_grounded_at_all() -> None:
    objective = Pseudolikelihood(sparse.csr_array((3, 2)), np.zeros(3), np.ones(3), l2=1.0)
    assert learn_weights(objective, config.MLN()).tolist() == [0, 0]
