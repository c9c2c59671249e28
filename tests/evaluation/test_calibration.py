"""Calibration: sampling, recovery of known coefficients, and reliability compared with a loop."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from plogicnet.evaluation.calibration import (
    Calibration,
    Sample,
    calibrate,
    calibrate_with_fallback,
    calibration_features,
    reliability,
    sample,
)
from plogicnet.evaluation.orders import CandidateScores, CombinedOrder, ProbabilityOrder
from plogicnet.graph import KnowledgeGraph, TripleSet, Vocabulary, as_triples
from plogicnet.mln import RuleScores


def random_graph(entities: int, sizes: Sequence[int], seed: int = 0) -> KnowledgeGraph:
    rng = np.random.default_rng(seed)
    triples = np.unique(
        np.column_stack([rng.integers(m, size=4 * sum(sizes)) for m in (entities, 3, entities)]), axis=0
    )
    triples = triples[rng.permutation(len(triples))[: sum(sizes)]]
    return KnowledgeGraph.from_ids(
        Vocabulary("entity", tuple(map(str, range(entities)))),
        Vocabulary("relation", ("a", "b", "c")),
        np.split(triples, np.cumsum(sizes)[:-1]),
        "random",
    )


@pytest.mark.parametrize("entities", [12, 100, 101, 400])
@pytest.mark.parametrize("splits", [("train", "valid"), ("train", "valid", "test")])
def test_known_triples_are_never_negatives(entities: int, splits: tuple[str, ...]) -> None:
    graph = random_graph(entities, (60, 20, 20))
    got = sample(graph, "valid", splits, seed=1)
    known = {tuple(t) for s in splits for t in graph.split(s).tolist()}
    positives, negatives = got.triples[got.label == 1], got.triples[got.label == 0]
    assert len(positives) + len(negatives) == len(got.triples)
    assert sorted(map(tuple, positives.tolist())) == sorted(map(tuple, graph.valid.tolist()))
    assert not known & set(map(tuple, negatives.tolist()))
    # each negative differs from some positive only in its head or only in its tail
    ends = {(h, r) for h, r, _ in graph.valid.tolist()}, {(r, t) for _, r, t in graph.valid.tolist()}
    assert all((h, r) in ends[0] or (r, t) in ends[1] for h, r, t in negatives.tolist())


@pytest.mark.parametrize("entities", [5, 12, 100])
def test_with_few_entities_each_is_a_candidate_once_per_query_with_count_one(entities: int) -> None:
    graph = random_graph(entities, (20, 8, 8))
    got = sample(graph, "test", ("train", "valid", "test"), seed=1)
    known = {tuple(t) for s in ("train", "valid", "test") for t in graph.split(s).tolist()}
    expected: Counter[tuple[int, ...]] = Counter()
    for h, r, t in graph.test.tolist():
        expected.update(c for e in range(entities) if (c := (e, r, t)) not in known)
        expected.update(c for e in range(entities) if (c := (h, r, e)) not in known)
    assert Counter(map(tuple, got.triples[got.label == 0].tolist())) == expected
    assert set(got.count[got.label == 0].tolist()) == {1.0}
    # a positive is the answer to two queries
    assert set(got.count[got.label == 1].tolist()) == {2.0}


def test_sampled_negatives_are_weighted_to_represent_all_candidates() -> None:
    entities = 700
    graph = random_graph(entities, (300, 60, 10))
    got = sample(graph, "valid", ("train", "valid"), seed=3)
    known = {tuple(t) for s in ("train", "valid") for t in graph.split(s).tolist()}
    competitors = 0
    for h, r, t in graph.valid.tolist():
        competitors += sum((e, r, t) not in known for e in range(entities))
        competitors += sum((h, r, e) not in known for e in range(entities))
    assert float(got.count[got.label == 0].sum()) == pytest.approx(competitors, rel=0.01)
    assert float(got.count[got.label == 1].sum()) == 2 * len(graph.valid)


def test_the_sample_depends_only_on_the_seed() -> None:
    graph = random_graph(400, (60, 20, 20))
    a, b, c = (sample(graph, "valid", ("train", "valid"), seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(a.triples, b.triples)
    assert a.triples.tolist() != c.triples.tolist()


def test_a_large_split_is_subsampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plogicnet.evaluation.calibration.MAX_TRIPLES", 7)
    graph = random_graph(30, (60, 20, 20))
    got = sample(graph, "valid", ("train", "valid"), seed=0)
    positives = list(map(tuple, got.triples[got.label == 1].tolist()))
    assert len(positives) == len(set(positives)) == 7
    assert set(positives) <= set(map(tuple, graph.valid.tolist()))


def synthetic(true: Calibration, n: int, seed: int) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.float64]], Sample]:
    rng = np.random.default_rng(seed)
    reached = (rng.random(n) < 0.4).astype(float)
    features = np.column_stack([rng.normal(0, 2, n), reached * rng.normal(1, 1.5, n), reached])
    odds = true.intercept + true.score * features[:, 0] + true.p_w * features[:, 1] + true.reached * features[:, 2]
    label = (rng.random(n) < 1 / (1 + np.exp(-odds))).astype(float)
    return features, Sample(np.zeros((n, 3), dtype=np.int64), label, np.ones(n))


def test_calibrate_recovers_the_coefficients() -> None:
    true = Calibration(intercept=-1.0, score=0.8, p_w=0.5, reached=1.2)
    got = calibrate(*synthetic(true, 20_000, seed=0))
    for name, value in true.to_json().items():
        assert got.to_json()[name] == pytest.approx(value, abs=0.1), name
    assert Calibration.from_json(got.to_json()) == got


def test_triples_without_a_score_use_the_regression_without_the_score() -> None:
    """It is at its own maximum: probabilities add up to the labels, with and without a rule."""
    true = Calibration(intercept=-1.0, score=0.8, p_w=0.5, reached=1.2)
    features, labels = synthetic(true, 20_000, seed=0)
    got = calibrate_with_fallback(features, labels)
    assert got == replace(calibrate(features, labels), alone=got.alone) == Calibration.from_json(got.to_json())
    unscored = features.copy()
    unscored[:, 0] = np.nan
    predicted = got.probability(np.concatenate([features, unscored]))
    np.testing.assert_array_equal(predicted[:20_000], got.probability(features))
    for rows in (features[:, 2] == 0, features[:, 2] == 1):
        assert float(predicted[20_000:][rows].mean()) == pytest.approx(float(labels.label[rows].mean()), abs=1e-3)
    assert got.alone is not None
    assert got.alone.intercept != pytest.approx(got.intercept, abs=0.05)


def test_tensors_and_arrays_get_the_same_probabilities() -> None:
    """Bit-identical, with and without a score and rules, so that the first answer is the most probable one."""
    rng = np.random.default_rng(0)
    reached = rng.random(200) < 0.5
    evidence, base = rng.normal(0, 3, 200), np.full(200, -2.5)
    score = np.where(rng.random(200) < 0.2, np.nan, rng.normal(0, 3, 200))
    calibration = Calibration(-1.0, 0.8, 0.5, 1.2, alone=Calibration(-2.0, 0.0, 0.7, 0.9))
    features = np.column_stack([score, np.where(reached, special.expit(base + evidence), 0.0), reached])
    candidates = CandidateScores(*map(torch.from_numpy, (score, base, evidence, reached)))
    by_probability = ProbabilityOrder(calibration, CombinedOrder(lambda_=1.0)).sort_keys(candidates)[0]
    np.testing.assert_array_equal(by_probability.numpy(), calibration.probability(features))


def test_a_count_is_equivalent_to_repeated_rows() -> None:
    true = Calibration(intercept=-1.0, score=0.8, p_w=0.5, reached=1.2)
    features, labels = synthetic(true, 300, seed=1)
    count = np.random.default_rng(2).integers(1, 5, size=300)
    weighted = calibrate(features, Sample(labels.triples, labels.label, count.astype(float)))
    repeated = calibrate(
        np.repeat(features, count, axis=0),
        Sample(np.repeat(labels.triples, count, axis=0), np.repeat(labels.label, count), np.ones(int(count.sum()))),
    )
    assert weighted.to_json() == pytest.approx(repeated.to_json(), abs=1e-7)


def test_calibrate_finds_the_maximum() -> None:
    """No small change of a coefficient increases the likelihood with the ridge penalty."""
    features, labels = synthetic(Calibration(0.3, 1.0, 0.4, -0.5), 500, seed=3)
    got = np.array(list(calibrate(features, labels).to_json().values()))

    def objective(weights: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        total = 0.0
        for row, y in zip(features.tolist(), labels.label.tolist(), strict=True):
            odds = weights[0] + float(np.dot(weights[1:], row))
            total += y * odds - np.logaddexp(0, odds)
        return float(total - 0.005 * weights @ weights)

    for i in range(4):
        for change in (-1e-3, 1e-3):
            moved = got.copy()
            moved[i] += change
            assert objective(moved) < objective(got)


def test_a_higher_score_or_p_w_never_lowers_the_probability() -> None:
    features, labels = synthetic(Calibration(0.3, -1.0, 0.5, -0.5), 500, seed=4)
    got = calibrate(features, labels)
    assert got.score == 0
    assert got.p_w > 0
    without = calibrate(features * [0, 1, 1], labels)
    assert got.to_json() == pytest.approx(without.to_json(), abs=1e-9)


def test_calibrate_of_separable_or_constant_data_is_finite() -> None:
    features = np.array([[5.0, 0.0, 0.0], [-5.0, 0.0, 0.0]])
    for labels in ([1.0, 0.0], [0.0, 0.0], [1.0, 1.0]):
        got = calibrate(features, Sample(np.zeros((2, 3), dtype=np.int64), np.array(labels), np.array([2.0, 50.0])))
        assert np.isfinite(list(got.to_json().values())).all()


def test_probability_is_the_logistic_function_of_the_features() -> None:
    rng = np.random.default_rng(0)
    features, c = rng.normal(size=(20, 3)), Calibration(0.1, -0.7, 2.0, 0.4)
    for row, p in zip(features.tolist(), c.probability(features).tolist(), strict=True):
        assert p == pytest.approx(1 / (1 + np.exp(-(0.1 - 0.7 * row[0] + 2.0 * row[1] + 0.4 * row[2]))), rel=1e-12)


def test_features_without_a_neural_model() -> None:
    reached = TripleSet.of([(0, 0, 1), (1, 1, 2)], 3)
    rules = RuleScores(
        reached, np.array([1.5, -4.0]), np.array([-2.0, -3.0]), np.zeros(2, dtype=bool), TripleSet.of([(0, 0, 1)], 3)
    )
    got = calibration_features(None, rules, as_triples([(1, 1, 2), (2, 1, 2), (0, 0, 1)]))
    assert got == pytest.approx(np.array([[0, 1 / (1 + np.exp(4.0)), 1], [0, 0, 0], [0, 1 / (1 + np.exp(-1.5)), 1]]))


@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans(), st.sampled_from([0.5, 1.0, 2.0, 7.0])), min_size=1, max_size=40)
)
@settings(deadline=None, max_examples=100)
def test_reliability_equals_a_loop(rows: list[tuple[float, bool, float]]) -> None:
    p = np.array([row[0] for row in rows])
    labels = Sample(
        np.zeros((len(rows), 3), dtype=np.int64),
        np.array([float(row[1]) for row in rows]),
        np.array([row[2] for row in rows]),
    )
    got = reliability(p, labels)
    total = sum(count for _, _, count in rows)
    brier = sum(count / total * (x - y) ** 2 for x, y, count in rows)
    curve, error = [], 0.0
    for number in range(10):
        inside = [row for row in rows if (int(row[0] * 10) if row[0] < 1 else 9) == number]
        if inside:
            weight = sum(count for _, _, count in inside)
            predicted = sum(x * count for x, _, count in inside) / weight
            true = sum(y * count for _, y, count in inside) / weight
            error += weight / total * abs(predicted - true)
            curve.append({"predicted": predicted, "true": true, "share": weight / total})
    assert got.brier == pytest.approx(brier, abs=1e-12)
    assert got.ece == pytest.approx(error, abs=1e-12)
    for a, b in zip(got.to_json()["curve"], curve, strict=True):
        assert a == pytest.approx(b, abs=1e-12)


def test_true_probabilities_have_a_low_calibration_error() -> None:
    rng = np.random.default_rng(0)
    p = special.expit(rng.normal(0, 2, 20_000))
    labels = Sample(np.zeros((len(p), 3), dtype=np.int64), (rng.random(len(p)) < p).astype(float), np.ones(len(p)))
    assert reliability(p, labels).ece < 0.02
