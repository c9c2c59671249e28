"""The best answers to many queries, compared with brute force on tiny graphs with many ties."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import special
from test_ranking import COMBINES, TinyProblem, forbidden, slow_key, tiny_problems

from plogicnet.evaluation.calibration import Calibration
from plogicnet.evaluation.candidates import Queries
from plogicnet.evaluation.orders import CombinedOrder, ProbabilityOrder
from plogicnet.evaluation.top import stable_top_k, stable_top_k_in_tensors, top_k
from plogicnet.graph import SIDES, Side

ORDERS: list[CombinedOrder | ProbabilityOrder] = [
    CombinedOrder(constraint=False),
    CombinedOrder(),
    CombinedOrder(neural=False),
    *(CombinedOrder(lambda_=1.0, combine=c, rerank=n) for c in COMBINES for n in (0, 1, 3)),
    ProbabilityOrder(Calibration(intercept=-3.0, score=0.5, p_w=2.0, reached=-0.5), CombinedOrder(lambda_=1.0)),
    ProbabilityOrder(Calibration(intercept=-3.0, score=0.0, p_w=0.0, reached=0.5), CombinedOrder(lambda_=2.0)),
]


def slow_top(
    problem: TinyProblem,
    order: CombinedOrder | ProbabilityOrder,
    entity: int,
    relation: int,
    side: Side,
    k: int,
    filtered: bool,
) -> list[int]:
    triples = {
        e: (entity, relation, e) if side == "tail" else (e, relation, entity)
        for e in range(problem.entities)
        if not filtered
        or ((entity, relation, e) if side == "tail" else (e, relation, entity)) not in problem.splits["train"]
    }
    scores = {e: float(problem.score[t[1], t[0], t[2]]) for e, t in triples.items()}

    def key(e: int) -> tuple[float, ...]:
        if isinstance(order, CombinedOrder):
            in_top = sum(s > scores[e] for s in scores.values()) < order.rerank
            return slow_key(problem, order, triples[e], not order.rerank or in_top)
        if forbidden(problem, triples[e]):
            return 0.0, 0.0, 0.0
        c = order.calibration
        from_rules = c.p_w * special.expit(problem.odds[triples[e]]) + c.reached if triples[e] in problem.odds else 0.0
        p = special.expit(c.intercept + c.score * scores[e] + from_rules)
        return 1.0, p, *slow_key(problem, order.tie_breaker, triples[e], True)

    return sorted(scores, key=lambda e: (tuple(-x for x in key(e)), e))[:k]


@given(tiny_problems(), st.integers(1, 7), st.booleans(), st.sampled_from(ORDERS), st.booleans())
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_the_best_answers_equal_brute_force(
    problem: TinyProblem, k: int, filtered: bool, order: CombinedOrder | ProbabilityOrder, small_batches: bool
) -> None:
    entities, relations = (x.ravel() for x in np.indices((problem.entities, len(problem.base))))
    for side in SIDES:
        with pytest.MonkeyPatch.context() as patch:
            if small_batches:  # one megabyte is then enough for two queries
                patch.setattr("plogicnet.evaluation.batches.BYTES_PER_CANDIDATE", 2**19 // problem.entities)
            known = problem.graph.answer_index(["train"], side) if filtered else None
            top = top_k(problem.neural, problem.rules, order, Queries(entities, relations, side), k, known, 1)
        for i, (e, r) in enumerate(zip(entities.tolist(), relations.tolist(), strict=True)):
            best = slow_top(problem, order, e, r, side, k, filtered)
            assert top[i].tolist() == best + [-1] * (min(k, problem.entities) - len(best))


def test_without_queries_the_result_is_empty() -> None:
    problem = TinyProblem(3, {"train": [(0, 0, 1)], "valid": [], "test": []}, np.zeros((1, 3, 3)), {}, [0.0], [False])
    empty = np.empty(0, dtype=np.int64)
    assert top_k(problem.neural, problem.rules, CombinedOrder(), Queries(empty, empty, "tail"), k=2).shape == (0, 2)


@given(st.data())
@settings(deadline=None, max_examples=200)
def test_stable_top_k_equals_the_first_of_a_stable_sort(data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(0, 3)), data.draw(st.integers(1, 40))
    k = data.draw(st.integers(1, columns))
    values = st.sampled_from([-np.inf, -2.5, -0.0, 0.0, 1.0, 1.5, 7.0])
    drawn = data.draw(st.lists(values, min_size=rows * columns, max_size=rows * columns))
    scores = np.array(drawn, dtype=np.float32).reshape(rows, columns)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    for select in (stable_top_k, stable_top_k_in_tensors):
        top, column = (x.numpy() for x in select(torch.from_numpy(scores), k))
        np.testing.assert_array_equal(np.sort(column, axis=1), np.sort(expected, axis=1))
        np.testing.assert_array_equal(top, np.take_along_axis(scores, column, axis=1))
