"""Weight learning, compared with loops, finite differences and other solvers."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, sparse, special

from plogicnet import config
from plogicnet.graph import BoolArray, FloatArray, KnowledgeGraph
from plogicnet.grounding.native.grounding import ground_network
from plogicnet.grounding.native.walks import Chain
from plogicnet.grounding.rows import DistinctRows
from plogicnet.mln import Pseudolikelihood, features, learning, newton
from plogicnet.mln.components import split_into_components
from plogicnet.mln.conditional import Aggregate, Blanket
from reference import graphs_and_chains


def problem(seed: int, l2: float = 1.0, triples: int = 30, rules: int = 4, counted: bool = False) -> Pseudolikelihood:
    """Return a random objective with small, possibly negative counts, as with the full blanket. Rows can be empty."""
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-1, 4, (triples, rules)) * (rng.random((triples, rules)) < 0.5)
    target = np.where(rng.random(triples) < 0.5, 1.0, rng.random(triples))
    count: FloatArray | float = rng.integers(1, 5, triples).astype(float) if counted else 1.0
    return Pseudolikelihood(sparse.csr_array(matrix.astype(float)), rng.normal(size=triples), target, l2, count)


def to_rows(objective: Pseudolikelihood) -> tuple[DistinctRows, FloatArray]:
    """Return the triples of an objective, repeated by their counts, and their targets."""
    triples = np.repeat(
        np.arange(len(objective.base)), np.broadcast_to(objective.count, objective.base.shape).astype(int)
    )
    return DistinctRows.of(objective.matrix[triples], objective.base[triples]), objective.target[triples]


def learn_weights(
    objective: Pseudolikelihood,
    mln_settings: config.MLN,
    start: FloatArray | None = None,
    fixed: BoolArray | None = None,
    threads: int = 0,
) -> FloatArray:
    rows, targets = to_rows(objective)
    return learning.learn_weights(rows, targets, replace(mln_settings, l2=objective.l2), start, fixed, threads)


def standard_errors(
    objective: Pseudolikelihood, weights: FloatArray, fixed: BoolArray | None = None, threads: int = 0
) -> FloatArray:
    return learning.standard_errors(to_rows(objective)[0], weights, objective.l2, fixed, threads)


def curvature(objective: Pseudolikelihood, weights: FloatArray) -> FloatArray:
    """Return the diagonal D of the negative Hessian Xᵀ D X + l2·I."""
    p = special.expit(objective.base + objective.matrix @ weights)
    return np.asarray(objective.count * p * (1 - p))


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
def test_value_as_by_a_loop(objective: Pseudolikelihood, seed: int) -> None:
    weights = np.random.default_rng(seed).normal(size=objective.matrix.shape[1])
    assert objective.value(weights) == pytest.approx(value_by_loop(objective, weights), rel=1e-9)


def test_value_does_not_overflow() -> None:
    objective = Pseudolikelihood(sparse.csr_array(np.array([[1.0], [-1.0]])), np.zeros(2), np.array([0.0, 1.0]), l2=0.0)
    assert objective.value(np.array([1e4])) == pytest.approx(-2e4)


@settings(max_examples=60, deadline=None)
@given(problems, weight_seeds)
def test_gradient_and_curvature_equal_finite_differences(objective: Pseudolikelihood, seed: int) -> None:
    size = objective.matrix.shape[1]
    weights = np.random.default_rng(seed).normal(size=size)
    steps = 1e-5 * np.eye(size)
    differences = [
        (value_by_loop(objective, weights + s) - value_by_loop(objective, weights - s)) / 2e-5 for s in steps
    ]
    np.testing.assert_allclose(objective.gradient(weights), differences, rtol=1e-5, atol=1e-5)
    second_differences = [(objective.gradient(weights + s) - objective.gradient(weights - s)) / 2e-5 for s in steps]
    matrix = objective.matrix.toarray()
    hessian = matrix.T @ (curvature(objective, weights)[:, None] * matrix) + objective.l2 * np.eye(size)
    np.testing.assert_allclose(-hessian, second_differences, rtol=1e-5, atol=1e-5)


def ascent(objective: Pseudolikelihood, steps: int) -> FloatArray:
    """Run gradient ascent with dense arrays and the largest step that always increases the objective."""
    matrix, weights = objective.matrix.toarray(), np.zeros(objective.matrix.shape[1])
    step = 1 / (np.sum(np.broadcast_to(objective.count, len(matrix))[:, None] * matrix**2) / 4 + objective.l2 + 1e-9)
    for _ in range(steps):
        p = 1 / (1 + np.exp(-(objective.base + matrix @ weights)))
        weights = weights + step * (matrix.T @ (objective.count * (objective.target - p)) - objective.l2 * weights)
    return weights


@pytest.mark.parametrize("max_dense", [3_000, 0], ids=["dense", "conjugate gradients"])
@pytest.mark.parametrize("seed", range(4))
def test_newton_reaches_at_least_10000_steps_of_gradient_ascent(
    seed: int, max_dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "MAX_DENSE_RULES", max_dense)
    objective = problem(seed, l2=(0.0, 0.1, 1.0, 10.0)[seed], counted=bool(seed % 2))
    weights = newton(objective)
    climbed = ascent(objective, 10_000)
    assert np.abs(objective.gradient(weights)).max() <= 1e-6
    assert objective.value(weights) >= objective.value(climbed) - 1e-9
    np.testing.assert_allclose(weights, climbed, atol=1e-2)


@settings(max_examples=60, deadline=None)
@given(penalised)
def test_dense_and_conjugate_gradient_solvers_find_the_same_maximum(objective: Pseudolikelihood) -> None:
    found = []
    for max_dense in (3_000, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(learning, "MAX_DENSE_RULES", max_dense)
            found.append(learn_weights(objective, config.MLN()))
        assert np.abs(objective.gradient(found[-1])).max(initial=0.0) <= 1e-6
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)


@pytest.mark.parametrize("max_dense", [3_000, 0], ids=["dense", "conjugate gradients"])
def test_newton_converges_on_many_triples(max_dense: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding of the objective must not stop the search early."""
    monkeypatch.setattr(learning, "MAX_DENSE_RULES", max_dense)
    objective = problem(0, triples=100_000, rules=40)
    assert np.abs(objective.gradient(newton(objective))).max() <= 1e-6


@pytest.mark.parametrize("max_dense", [3_000, 0], ids=["dense", "conjugate gradients"])
@pytest.mark.parametrize("l2", [0.0, 0.001, 1.0])
@pytest.mark.parametrize(
    ("base", "counts"),
    [((-14, -12), (1e6, 1e4)), ((-14, -12), (1e5, 1e4)), ((-14, -8), (1e4, 1e3)), ((-14, -12), (1e3, 1e2))],
)
def test_newton_converges_for_rare_relations(
    base: tuple[float, float],
    counts: tuple[float, float],
    l2: float,
    max_dense: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With unit clauses the start is so flat that a plain Newton step goes far beyond the maximum."""
    monkeypatch.setattr(learning, "MAX_DENSE_RULES", max_dense)
    target = np.array([0.99, 0.5])
    objective = Pseudolikelihood(sparse.csr_array(np.eye(2)), np.array(base), target, l2, np.array(counts))
    weights = newton(objective)
    assert np.abs(objective.gradient(weights)).max() <= 1e-6
    if l2 == 0:  # the rules share no triples, so each weight has a closed form
        np.testing.assert_allclose(weights, np.log(target / (1 - target)) - base, rtol=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=20).filter(lambda ys: 0.01 < sum(ys) / len(ys) < 0.99),
    st.floats(-3, 3),
    st.integers(1, 3),
    st.integers(0, 5),
)
def test_a_single_rule_learns_the_log_odds_of_its_mean_target(
    targets: list[float], base: float, times: int, unreached: int
) -> None:
    """b + n·w is the log-odds of the mean target, with n groundings per triple. Other triples have no effect."""
    share = sum(targets) / len(targets)
    matrix = sparse.csr_array(np.array([[float(times)]] * len(targets) + [[0.0]] * unreached))
    target = np.array(targets + [0.0] * unreached)
    objective = Pseudolikelihood(matrix, np.full(len(target), base), target, l2=0.0)
    [weight] = learn_weights(objective, config.MLN())
    assert weight == pytest.approx((math.log(share / (1 - share)) - base) / times, abs=1e-5)


def learn_with_limits(
    max_dense: int, steps: int, objective: Pseudolikelihood, start: FloatArray | None = None
) -> FloatArray:
    """Return the weights after at most this number of Newton steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning, "MAX_DENSE_RULES", max_dense)
        patch.setattr(learning, "MAX_NEWTON_STEPS", steps)
        return newton(objective, start)


max_dense_rules = st.sampled_from([3_000, 0])


def hard_problem(seed: int, l2: float) -> Pseudolikelihood:
    """Return an objective with rare relations and large counts. Targets in (0, 1) ensure a maximum."""
    rng = np.random.default_rng(seed)
    triples, rules = int(rng.integers(1, 200)), int(rng.integers(1, 12))
    matrix = rng.integers(-1, 4, (triples, rules)) * (rng.random((triples, rules)) < 0.5)
    matrix = matrix * rng.choice([1, 1, 1, 1, 50], matrix.shape)
    base = rng.normal(size=triples) * rng.choice([1, 5]) + rng.choice([0, -5, -14])
    count = rng.choice([1.0, 10.0, 1000.0], triples) if seed % 2 else 1.0
    target = rng.uniform(0.001, 0.999, triples)
    return Pseudolikelihood(sparse.csr_array(matrix.astype(float)), base, target, l2, count)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 100_000), st.sampled_from([0.0, 1e-4, 0.01, 1.0]), max_dense_rules)
def test_newton_converges_in_fifty_steps(seed: int, l2: float, max_dense: int) -> None:
    objective = hard_problem(seed, l2)
    found = learn_with_limits(max_dense, 50, objective)
    assert np.abs(objective.gradient(found)).max() <= 1e-6


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 100_000), st.sampled_from([0.0, 0.01, 1.0]), max_dense_rules)
def test_the_objective_never_decreases(seed: int, l2: float, max_dense: int) -> None:
    objective = hard_problem(seed, l2)
    values = [objective.value(learn_with_limits(max_dense, steps, objective)) for steps in range(15)]
    assert values[0] == objective.value(np.zeros(objective.matrix.shape[1]))
    assert (np.diff(values) >= -1e-12 * np.abs(values[:-1])).all()


@settings(max_examples=25, deadline=None)
@given(
    st.data(),
    graphs_and_chains(max_triples=12),
    st.sampled_from(["sum", "mean"]),
    st.sampled_from(["hypothesis", "full"]),
    st.sampled_from([0.0, 1.0]),
    max_dense_rules,
)
def test_newton_on_ground_networks(
    data: st.DataObject,
    case: tuple[KnowledgeGraph, list[Chain]],
    aggregate: Aggregate,
    blanket: Blanket,
    l2: float,
    max_dense: int,
) -> None:
    graph, chains = case
    network = ground_network(graph.observed, chains, "distinct", hidden_premises=True)
    n = len(network.triples)
    truth = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=bool)
    target = np.array(data.draw(st.lists(st.floats(0.05, 0.95), min_size=n, max_size=n)))
    objective = Pseudolikelihood(features(network, truth, blanket, aggregate), np.full(n, -2.0), target, l2)
    found = learn_with_limits(max_dense, 50, objective)
    weights = np.random.default_rng(n).normal(size=len(chains))
    steps = 1e-5 * np.eye(len(chains))
    differences = [
        (value_by_loop(objective, weights + s) - value_by_loop(objective, weights - s)) / 2e-5 for s in steps
    ]
    np.testing.assert_allclose(objective.gradient(weights), differences, rtol=1e-5, atol=1e-5)
    assert np.abs(objective.gradient(found)).max(initial=0.0) <= 1e-6
    assert objective.value(found) >= objective.value(ascent(objective, 10_000)) - 1e-9


@settings(max_examples=60, deadline=None)
@given(problems)
def test_merged_rows_are_distinct_and_keep_the_objective(objective: Pseudolikelihood) -> None:
    """Up to a constant."""
    merged = learning.merge_equal_rows(objective)
    zero, ones = np.zeros(objective.matrix.shape[1]), np.ones(objective.matrix.shape[1])
    constant = objective.value(zero) - merged.value(zero)
    assert objective.value(ones) == pytest.approx(merged.value(ones) + constant, abs=1e-9)
    rows = [(b, *x) for b, x in zip(merged.base, merged.matrix.toarray().tolist(), strict=True)]
    assert len(set(rows)) == len(rows)
    reached = [(b, *x) for b, x in zip(objective.base, objective.matrix.toarray().tolist(), strict=True) if any(x)]
    assert list(dict.fromkeys(reached)) == rows


def block_problem(seed: int, blocks: int) -> Pseudolikelihood:
    """Return blocks of rules that share no triples, with many equal rows, in random order."""
    rng = np.random.default_rng(seed)
    block_matrices = [rng.integers(0, 2, (40, int(rng.integers(1, 4)))).astype(float) for _ in range(blocks)]
    matrix = sparse.block_diag(block_matrices).toarray()
    matrix = matrix[rng.permutation(len(matrix))][:, rng.permutation(matrix.shape[1])]
    target = rng.random(len(matrix)) ** 2
    return Pseudolikelihood(sparse.csr_array(matrix), rng.choice([-3.0, -1.0], len(matrix)), target, l2=0.5)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_components_are_the_connected_components(seed: int, blocks: int) -> None:
    objective = learning.merge_equal_rows(block_problem(seed, blocks))
    components = split_into_components(objective.matrix, objective.base, objective.target, np.ones(len(objective.base)))
    shared = abs(objective.matrix.T @ objective.matrix).toarray() + np.eye(objective.matrix.shape[1])
    connected = np.linalg.matrix_power(shared, 4) > 0  # components have at most three rules
    for component in components:
        assert np.flatnonzero(connected[component.rules[0]]).tolist() == component.rules.tolist()
    assert sorted(np.concatenate([component.rules for component in components])) == list(
        range(objective.matrix.shape[1])
    )
    assert sum(len(component.base) for component in components) == len(objective.base)


def test_results_are_identical_with_any_number_of_threads() -> None:
    objective = block_problem(0, 40)
    once = learn_weights(objective, config.MLN(), threads=1)
    assert all((learn_weights(objective, config.MLN(), threads=n) == once).all() for n in (2, 3, 8))
    assert (standard_errors(objective, once, threads=1) == standard_errors(objective, once, threads=3)).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5), st.sampled_from([0.0, 0.3, 1.0]))
def test_rules_without_common_triples_are_learned_independently(seed: int, rules: int, l2: float) -> None:
    """Each weight solves Σ n (y - σ(b + n w)) = l2·w, here by bisection."""
    rng = np.random.default_rng(seed)
    rule = rng.integers(0, rules, 12 * rules)
    times, base, target = (
        rng.integers(1, 4, len(rule)).astype(float),
        rng.normal(-2, 2, len(rule)),
        rng.random(len(rule)),
    )
    matrix = sparse.csr_array((times, (np.arange(len(rule)), rule)), shape=(len(rule), rules))
    found = learn_weights(Pseudolikelihood(matrix, base, target, l2), config.MLN())

    def slope(w: float, mask: BoolArray) -> float:
        n = times[mask]
        return float(n @ (target[mask] - special.expit(base[mask] + n * w)) - l2 * w)

    for j in range(rules):
        mask = rule == j
        expected = optimize.bisect(slope, -1e3, 1e3, args=(mask,), xtol=1e-12) if mask.any() else 0.0
        assert found[j] == pytest.approx(expected, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(penalised, weight_seeds)
def test_fixed_weights_stay_and_the_others_are_at_the_maximum(objective: Pseudolikelihood, seed: int) -> None:
    """The slope of the objective in each free weight is zero."""
    rng = np.random.default_rng(seed)
    size = objective.matrix.shape[1]
    start, fixed = rng.normal(size=size), rng.random(size) < 0.5
    found = learn_weights(objective, config.MLN(), start, fixed)
    assert (found[fixed] == start[fixed]).all()
    for j in np.flatnonzero(~fixed):
        h = 1e-4 * np.eye(size)[j]
        slope = (value_by_loop(objective, found + h) - value_by_loop(objective, found - h)) / 2e-4
        assert slope == pytest.approx(0, abs=1e-5)


@settings(max_examples=20, deadline=None)
@given(penalised, weight_seeds)
def test_gradient_ascent_with_fixed_weights(objective: Pseudolikelihood, seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = objective.matrix.shape[1]
    start, fixed = rng.normal(size=size), rng.random(size) < 0.5
    mln_settings = config.MLN(solver="gradient", gradient=config.Gradient(step=0.01, iterations=5))
    weights = start
    for _ in range(5):
        weights = weights + np.where(fixed, 0.0, 0.01 * objective.gradient(weights))
    np.testing.assert_allclose(learn_weights(objective, mln_settings, start, fixed), weights, rtol=1e-9, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(penalised, weight_seeds)
def test_the_maximum_does_not_depend_on_the_start(objective: Pseudolikelihood, seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = objective.matrix.shape[1]
    start = np.where(rng.random(size) < 0.3, np.nan, rng.normal(scale=3, size=size))
    learned = learn_weights(objective, config.MLN())
    np.testing.assert_allclose(learn_weights(objective, config.MLN(), start), learned, atol=1e-6)
    assert (learn_weights(objective, config.MLN(), learned) == learned).all()  # already at the maximum
    no_steps = config.MLN(solver="gradient", gradient=config.Gradient(iterations=0))
    assert (learn_weights(objective, no_steps, start) == np.where(np.isnan(start), 0, start)).all()


@settings(max_examples=80, deadline=None)
@given(problems, weight_seeds)
def test_standard_errors_equal_those_of_the_dense_hessian(objective: Pseudolikelihood, seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = objective.matrix.shape[1]
    weights, fixed = rng.normal(size=size), rng.random(size) < 0.3
    matrix = objective.matrix.toarray()[:, ~fixed]
    hessian = matrix.T @ (curvature(objective, weights)[:, None] * matrix) + objective.l2 * np.eye(matrix.shape[1])
    found = standard_errors(objective, weights, fixed)
    assert np.isnan(found[fixed]).all()
    if len(hessian) and np.linalg.cond(hessian) < 1e8:
        np.testing.assert_allclose(found[~fixed], np.sqrt(np.diag(np.linalg.inv(hessian))), rtol=1e-6)


def test_standard_errors_of_undetermined_weights_are_infinite() -> None:
    twins = np.array([[1.0, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 1, 0]])
    objective = Pseudolikelihood(sparse.csr_array(twins), np.zeros(6), np.full(6, 0.5), l2=0.0)
    assert standard_errors(objective, np.zeros(4)).tolist() == pytest.approx([math.inf, math.inf, 1.0, math.inf])
    penalty = Pseudolikelihood(sparse.csr_array(twins), np.zeros(6), np.full(6, 0.5), l2=4.0)
    assert standard_errors(penalty, np.zeros(4))[3] == pytest.approx(0.5)


def test_standard_errors_of_too_large_components_are_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "MAX_DENSE_RULES", 1)
    matrix = sparse.csr_array(np.array([[1.0, 1, 0], [0, 0, 1]]))
    found = standard_errors(Pseudolikelihood(matrix, np.zeros(2), np.ones(2), l2=1.0), np.zeros(3))
    assert np.isnan(found).tolist() == [True, True, False]


@settings(max_examples=40, deadline=None)
@given(penalised)
def test_triples_without_groundings_have_no_effect(objective: Pseudolikelihood) -> None:
    learned = learn_weights(objective, config.MLN())
    np.testing.assert_allclose(learned, newton(objective), atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(penalised)
def test_gradient_ascent_as_in_the_paper(objective: Pseudolikelihood) -> None:
    mln_settings = config.MLN(solver="gradient", gradient=config.Gradient(step=0.01, iterations=5))
    weights = np.zeros(objective.matrix.shape[1])
    for _ in range(5):
        weights = weights + 0.01 * objective.gradient(weights)
    np.testing.assert_allclose(learn_weights(objective, mln_settings), weights, rtol=1e-9, atol=1e-12)


def test_a_rule_without_groundings_has_weight_zero() -> None:
    matrix = sparse.csr_array(np.array([[1.0, 0.0], [1.0, 0.0]]))
    for l2 in (0.0, 1.0):
        objective = Pseudolikelihood(matrix, np.zeros(2), np.array([1.0, 0.5]), l2)
        assert learn_weights(objective, config.MLN())[1] == 0


@pytest.mark.parametrize("mln_settings", [config.MLN(), config.MLN(solver="gradient")], ids=["newton", "gradient"])
def test_without_rules_there_are_no_weights(mln_settings: config.MLN) -> None:
    objective = Pseudolikelihood(sparse.csr_array((3, 0)), np.zeros(3), np.ones(3), l2=1.0)
    assert learn_weights(objective, mln_settings).shape == (0,)


def test_without_groundings_all_weights_are_zero() -> None:
    objective = Pseudolikelihood(sparse.csr_array((3, 2)), np.zeros(3), np.ones(3), l2=1.0)
    assert learn_weights(objective, config.MLN()).tolist() == [0, 0]
