"""The objective of queries, compared with a loop, and its maximum."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from plogicnet.graph import FloatArray
from plogicnet.mln.softmax import QueryExamples, SoftmaxObjective, log_odds, maximise_softmax


def random_examples(seed: int, n_dense: int = 2, n_columns: int = 3) -> QueryExamples:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, size=4)
    begin = np.append(0, np.cumsum(sizes))
    counts = rng.integers(0, 3, size=begin[-1])
    n = int(counts.sum())
    return QueryExamples(
        begin=begin,
        answer=begin[:-1] + rng.integers(0, sizes),
        dense=rng.normal(size=(begin[-1], n_dense)).astype(np.float32),
        column_begin=np.append(0, np.cumsum(counts)),
        column=rng.integers(0, n_columns, size=n).astype(np.int32),
        value=rng.random(n).astype(np.float32),
        n_columns=n_columns,
    )


def objective_in_loops(e: QueryExamples, prior: list[float], l2: list[float], weights: list[float]) -> float:
    scores = []
    for i in range(len(e.dense)):
        score = sum(float(x) * w for x, w in zip(e.dense[i], weights, strict=False))
        for k in range(e.column_begin[i], e.column_begin[i + 1]):
            score += float(e.value[k]) * weights[e.dense.shape[1] + int(e.column[k])]
        scores.append(score)
    assert np.allclose(scores, log_odds(e, np.array(weights)))
    loss = sum(p / 2 * (w - m) ** 2 for p, w, m in zip(l2, weights, prior, strict=True))
    for q, answer in enumerate(e.answer):
        rivals = scores[e.begin[q] : e.begin[q + 1]]
        loss -= scores[answer] - float(np.log(np.sum(np.exp(rivals))))
    return loss


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_value_and_gradient(seed: int) -> None:
    e, rng = random_examples(seed), np.random.default_rng(seed + 1)
    prior, l2, weights = rng.normal(size=5), rng.random(5), rng.normal(size=5)
    objective = SoftmaxObjective(e, prior, l2)
    value, gradient = objective.value_and_gradient(weights)
    assert np.isclose(value, objective_in_loops(e, prior.tolist(), l2.tolist(), weights.tolist()))

    def only_value(w: FloatArray) -> float:
        return objective.value_and_gradient(w)[0]

    numeric = optimize.approx_fprime(weights, only_value, 1e-6)
    assert np.allclose(gradient, numeric, atol=1e-4)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_the_maximum_has_no_gradient_and_fixed_weights_stay(seed: int) -> None:
    e, rng = random_examples(seed), np.random.default_rng(seed)
    fixed = np.array([False, True, False, False, True])
    objective = SoftmaxObjective(e, rng.normal(size=5), np.full(5, 0.3), fixed)
    weights = maximise_softmax(objective)
    assert np.abs(objective.value_and_gradient(weights)[1]).max() < 1e-3
    assert np.array_equal(weights[fixed], objective.prior[fixed])
