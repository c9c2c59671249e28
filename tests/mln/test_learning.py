"""Weight learning: the objective by a loop, its gradient by differences, and the maximum by other means."""

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
from plogicnet.grounding.rows import Rows
from plogicnet.mln import Pseudolikelihood, features, learning, newton
from plogicnet.mln.conditional import Aggregate, Blanket
from plogicnet.mln.parts import cut
from reference import graphs_and_chains


def problem(seed: int, l2: float = 1.0, triples: int = 30, rules: int = 4, counted: bool = False) -> Pseudolikelihood:
    """Small counts of groundings, some of them negative as under the full blanket; some triples have none."""
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-1, 4, (triples, rules)) * (rng.random((triples, rules)) < 0.5)
    target = np.where(rng.random(triples) < 0.5, 1.0, rng.random(triples))
    count: FloatArray | float = rng.integers(1, 5, triples).astype(float) if counted else 1.0
    return Pseudolikelihood(sparse.csr_array(matrix.astype(float)), rng.normal(size=triples), target, l2, count)


def rows_of(objective: Pseudolikelihood) -> tuple[Rows, FloatArray]:
    """The triples of an objective, as many of each as it counts, and their targets."""
    each = np.repeat(np.arange(len(objective.base)), np.broadcast_to(objective.count, objective.base.shape).astype(int))
    return Rows.of(objective.matrix[each], objective.base[each]), objective.target[each]


def learn_weights(
    objective: Pseudolikelihood,
    chosen: config.MLN,
    start: FloatArray | None = None,
    fixed: BoolArray | None = None,
    threads: int = 0,
) -> FloatArray:
    rows, targets = rows_of(objective)
    return learning.learn_weights(rows, targets, replace(chosen, l2=objective.l2), start, fixed, threads)


def standard_errors(
    objective: Pseudolikelihood, weights: FloatArray, fixed: BoolArray | None = None, threads: int = 0
) -> FloatArray:
    return learning.standard_errors(rows_of(objective)[0], weights, objective.l2, fixed, threads)


def curvature(objective: Pseudolikelihood, weights: FloatArray) -> FloatArray:
    """The diagonal D of the negative Hessian Xᵀ D X + l2·I."""
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
    hessian = matrix.T @ (curvature(objective, weights)[:, None] * matrix) + objective.l2 * np.eye(size)
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
    weights = newton(objective)
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


def within(dense_up_to: int, steps: int, objective: Pseudolikelihood, start: FloatArray | None = None) -> FloatArray:
    """Newton's weights after at most so many steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning, "DENSE_UP_TO", dense_up_to)
        patch.setattr(learning, "NEWTON_STEPS", steps)
        return newton(objective, start)


dense_or_not = st.sampled_from([3_000, 0])


def hard_problem(seed: int, l2: float) -> Pseudolikelihood:
    """Rare relations, large counts, long sums; targets strictly between 0 and 1, so that there is a maximum."""
    rng = np.random.default_rng(seed)
    triples, rules = int(rng.integers(1, 200)), int(rng.integers(1, 12))
    matrix = rng.integers(-1, 4, (triples, rules)) * (rng.random((triples, rules)) < 0.5)
    matrix = matrix * rng.choice([1, 1, 1, 1, 50], matrix.shape)
    base = rng.normal(size=triples) * rng.choice([1, 5]) + rng.choice([0, -5, -14])
    count = rng.choice([1.0, 10.0, 1000.0], triples) if seed % 2 else 1.0
    target = rng.uniform(0.001, 0.999, triples)
    return Pseudolikelihood(sparse.csr_array(matrix.astype(float)), base, target, l2, count)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 100_000), st.sampled_from([0.0, 1e-4, 0.01, 1.0]), dense_or_not)
def test_fifty_steps_are_enough(seed: int, l2: float, dense_up_to: int) -> None:
    objective = hard_problem(seed, l2)
    found = within(dense_up_to, 50, objective)
    assert np.abs(objective.gradient(found)).max() <= 1e-6


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 100_000), st.sampled_from([0.0, 0.01, 1.0]), dense_or_not)
def test_the_objective_never_falls(seed: int, l2: float, dense_up_to: int) -> None:
    objective = hard_problem(seed, l2)
    values = [objective.value(within(dense_up_to, steps, objective)) for steps in range(15)]
    assert values[0] == objective.value(np.zeros(objective.matrix.shape[1]))
    assert (np.diff(values) >= -1e-12 * np.abs(values[:-1])).all()


@settings(max_examples=25, deadline=None)
@given(
    st.data(),
    graphs_and_chains(max_triples=12),
    st.sampled_from(["sum", "mean"]),
    st.sampled_from(["hypothesis", "full"]),
    st.sampled_from([0.0, 1.0]),
    dense_or_not,
)
def test_newton_on_ground_networks(
    data: st.DataObject,
    case: tuple[KnowledgeGraph, list[Chain]],
    aggregate: Aggregate,
    blanket: Blanket,
    l2: float,
    dense_up_to: int,
) -> None:
    graph, chains = case
    grounded = ground_network(graph.observed, chains, "distinct", hidden_premises=True)
    n = len(grounded.triples)
    truth = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=bool)
    target = np.array(data.draw(st.lists(st.floats(0.05, 0.95), min_size=n, max_size=n)))
    objective = Pseudolikelihood(features(grounded, truth, blanket, aggregate), np.full(n, -2.0), target, l2)
    found = within(dense_up_to, 50, objective)
    weights = np.random.default_rng(n).normal(size=len(chains))
    steps = 1e-5 * np.eye(len(chains))
    slopes = [(value_by_loop(objective, weights + s) - value_by_loop(objective, weights - s)) / 2e-5 for s in steps]
    np.testing.assert_allclose(objective.gradient(weights), slopes, rtol=1e-5, atol=1e-5)
    assert np.abs(objective.gradient(found)).max(initial=0.0) <= 1e-6
    assert objective.value(found) >= objective.value(ascent(objective, 10_000)) - 1e-9


@settings(max_examples=60, deadline=None)
@given(problems)
def test_equal_triples_are_one_row(objective: Pseudolikelihood) -> None:
    """The merged objective differs by a constant, and no two of its rows are equal."""
    merged = learning.merged(objective)
    zero, ones = np.zeros(objective.matrix.shape[1]), np.ones(objective.matrix.shape[1])
    constant = objective.value(zero) - merged.value(zero)
    assert objective.value(ones) == pytest.approx(merged.value(ones) + constant, abs=1e-9)
    rows = [(b, *x) for b, x in zip(merged.base, merged.matrix.toarray().tolist(), strict=True)]
    assert len(set(rows)) == len(rows)
    reached = [(b, *x) for b, x in zip(objective.base, objective.matrix.toarray().tolist(), strict=True) if any(x)]
    assert list(dict.fromkeys(reached)) == rows


def repeated(seed: int, blocks: int) -> Pseudolikelihood:
    """Blocks of rules with triples of their own, many of them alike; rules and triples in random order."""
    rng = np.random.default_rng(seed)
    parts = [rng.integers(0, 2, (40, int(rng.integers(1, 4)))).astype(float) for _ in range(blocks)]
    matrix = sparse.block_diag(parts).toarray()
    matrix = matrix[rng.permutation(len(matrix))][:, rng.permutation(matrix.shape[1])]
    target = rng.random(len(matrix)) ** 2
    return Pseudolikelihood(sparse.csr_array(matrix), rng.choice([-3.0, -1.0], len(matrix)), target, l2=0.5)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_parts_share_no_triple_and_cannot_be_cut_further(seed: int, blocks: int) -> None:
    objective = learning.merged(repeated(seed, blocks))
    parts = cut(objective.matrix, objective.base, objective.target, np.ones(len(objective.base)))
    meeting = abs(objective.matrix.T @ objective.matrix).toarray() + np.eye(objective.matrix.shape[1])
    linked = np.linalg.matrix_power(meeting, 4) > 0  # no part has more than three rules
    for part in parts:
        assert np.flatnonzero(linked[part.rules[0]]).tolist() == part.rules.tolist()
    assert sorted(np.concatenate([part.rules for part in parts])) == list(range(objective.matrix.shape[1]))
    assert sum(len(part.base) for part in parts) == len(objective.base)


def test_the_same_bits_on_any_number_of_threads() -> None:
    objective = repeated(0, 40)
    once = learn_weights(objective, config.MLN(), threads=1)
    assert all((learn_weights(objective, config.MLN(), threads=n) == once).all() for n in (2, 3, 8))
    assert (standard_errors(objective, once, threads=1) == standard_errors(objective, once, threads=3)).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5), st.sampled_from([0.0, 0.3, 1.0]))
def test_rules_with_triples_of_their_own_have_weights_of_their_own(seed: int, rules: int, l2: float) -> None:
    """Each weight solves Σ n (y - σ(b + n w)) = l2·w, by bisection."""
    rng = np.random.default_rng(seed)
    rule = rng.integers(0, rules, 12 * rules)
    times, base, target = (
        rng.integers(1, 4, len(rule)).astype(float),
        rng.normal(-2, 2, len(rule)),
        rng.random(len(rule)),
    )
    matrix = sparse.csr_array((times, (np.arange(len(rule)), rule)), shape=(len(rule), rules))
    found = learn_weights(Pseudolikelihood(matrix, base, target, l2), config.MLN())

    def slope(w: float, own: BoolArray) -> float:
        n = times[own]
        return float(n @ (target[own] - special.expit(base[own] + n * w)) - l2 * w)

    for j in range(rules):
        own = rule == j
        expected = optimize.bisect(slope, -1e3, 1e3, args=(own,), xtol=1e-12) if own.any() else 0.0
        assert found[j] == pytest.approx(expected, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(penalised, weight_seeds)
def test_fixed_weights_stay_and_the_others_are_learned_beside_them(objective: Pseudolikelihood, seed: int) -> None:
    """The objective's slope in each free weight, by differences, is zero where all the fixed ones are as given."""
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
def test_the_papers_ascent_beside_fixed_weights(objective: Pseudolikelihood, seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = objective.matrix.shape[1]
    start, fixed = rng.normal(size=size), rng.random(size) < 0.5
    chosen = config.MLN(solver="gradient", gradient=config.Gradient(step=0.01, iterations=5))
    weights = start
    for _ in range(5):
        weights = weights + np.where(fixed, 0.0, 0.01 * objective.gradient(weights))
    np.testing.assert_allclose(learn_weights(objective, chosen, start, fixed), weights, rtol=1e-9, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(penalised, weight_seeds)
def test_a_start_changes_the_way_but_not_the_maximum(objective: Pseudolikelihood, seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = objective.matrix.shape[1]
    start = np.where(rng.random(size) < 0.3, np.nan, rng.normal(scale=3, size=size))
    learned = learn_weights(objective, config.MLN())
    np.testing.assert_allclose(learn_weights(objective, config.MLN(), start), learned, atol=1e-6)
    assert (learn_weights(objective, config.MLN(), learned) == learned).all()  # nothing left to do
    none = config.MLN(solver="gradient", gradient=config.Gradient(iterations=0))
    assert (learn_weights(objective, none, start) == np.where(np.isnan(start), 0, start)).all()


@settings(max_examples=80, deadline=None)
@given(problems, weight_seeds)
def test_standard_errors_are_those_of_the_dense_hessian(objective: Pseudolikelihood, seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = objective.matrix.shape[1]
    weights, fixed = rng.normal(size=size), rng.random(size) < 0.3
    matrix = objective.matrix.toarray()[:, ~fixed]
    hessian = matrix.T @ (curvature(objective, weights)[:, None] * matrix) + objective.l2 * np.eye(matrix.shape[1])
    found = standard_errors(objective, weights, fixed)
    assert np.isnan(found[fixed]).all()
    if len(hessian) and np.linalg.cond(hessian) < 1e8:
        np.testing.assert_allclose(found[~fixed], np.sqrt(np.diag(np.linalg.inv(hessian))), rtol=1e-6)


def test_standard_errors_of_what_the_triples_do_not_tell() -> None:
    twins = np.array([[1.0, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 1, 0]])
    objective = Pseudolikelihood(sparse.csr_array(twins), np.zeros(6), np.full(6, 0.5), l2=0.0)
    assert standard_errors(objective, np.zeros(4)).tolist() == pytest.approx([math.inf, math.inf, 1.0, math.inf])
    penalty = Pseudolikelihood(sparse.csr_array(twins), np.zeros(6), np.full(6, 0.5), l2=4.0)
    assert standard_errors(penalty, np.zeros(4))[3] == pytest.approx(0.5)


def test_no_standard_errors_for_a_part_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "DENSE_UP_TO", 1)
    matrix = sparse.csr_array(np.array([[1.0, 1, 0], [0, 0, 1]]))
    found = standard_errors(Pseudolikelihood(matrix, np.zeros(2), np.ones(2), l2=1.0), np.zeros(3))
    assert np.isnan(found).tolist() == [True, True, False]


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
