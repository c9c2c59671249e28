"""The best answers to many queries against brute force on tiny graphs full of ties."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import special
from test_ranking import COMBINES, World, forbidden, slow_key, worlds

from plogicnet.evaluation.calibration import Calibration
from plogicnet.evaluation.candidates import Queries
from plogicnet.evaluation.orders import ByProbability, Combination
from plogicnet.evaluation.top import highest, highest_in_tensors, top_k
from plogicnet.graph import SIDES, Side

ORDERS: list[Combination | ByProbability] = [
    Combination(constraint=False),
    Combination(),
    Combination(neural=False),
    *(Combination(rule_share=1.0, combine=c, rerank=n) for c in COMBINES for n in (0, 1, 3)),
    ByProbability(Calibration(intercept=-3.0, score=0.5, p_w=2.0, reached=-0.5), Combination(rule_share=1.0)),
    ByProbability(Calibration(intercept=-3.0, score=0.0, p_w=0.0, reached=0.5), Combination(rule_share=2.0)),
]


def slow_top(
    world: World, order: Combination | ByProbability, entity: int, relation: int, side: Side, k: int, filtered: bool
) -> list[int]:
    triples = {
        e: (entity, relation, e) if side == "tail" else (e, relation, entity)
        for e in range(world.entities)
        if not filtered
        or ((entity, relation, e) if side == "tail" else (e, relation, entity)) not in world.splits["train"]
    }
    scores = {e: float(world.score[t[1], t[0], t[2]]) for e, t in triples.items()}

    def key(e: int) -> tuple[float, ...]:
        if isinstance(order, Combination):
            inside = sum(s > scores[e] for s in scores.values()) < order.rerank
            return slow_key(world, order, triples[e], not order.rerank or inside)
        if forbidden(world, triples[e]):
            return 0.0, 0.0, 0.0
        c = order.calibration
        lift = c.p_w * special.expit(world.odds[triples[e]]) + c.reached if triples[e] in world.odds else 0.0
        p = special.expit(c.intercept + c.score * scores[e] + lift)
        return 1.0, p, *slow_key(world, order.ties, triples[e], True)

    return sorted(scores, key=lambda e: (tuple(-x for x in key(e)), e))[:k]


@given(worlds(), st.integers(1, 7), st.booleans(), st.sampled_from(ORDERS), st.booleans())
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_the_best_answers_equal_brute_force(
    world: World, k: int, filtered: bool, order: Combination | ByProbability, little: bool
) -> None:
    entities, relations = (x.ravel() for x in np.indices((world.entities, len(world.base))))
    for side in SIDES:
        with pytest.MonkeyPatch.context() as patch:
            if little:  # one megabyte is then enough for two queries
                patch.setattr("plogicnet.evaluation.batches.BYTES_PER_CANDIDATE", 2**19 // world.entities)
            known = world.graph.known(["train"], side) if filtered else None
            top = top_k(world.neural, world.rules, order, Queries(entities, relations, side), k, known, 1)
        for i, (e, r) in enumerate(zip(entities.tolist(), relations.tolist(), strict=True)):
            best = slow_top(world, order, e, r, side, k, filtered)
            assert top[i].tolist() == best + [-1] * (min(k, world.entities) - len(best))


def test_no_query_has_no_answer() -> None:
    world = World(3, {"train": [(0, 0, 1)], "valid": [], "test": []}, np.zeros((1, 3, 3)), {}, [0.0], [False])
    nothing = np.empty(0, dtype=np.int64)
    assert top_k(world.neural, world.rules, Combination(), Queries(nothing, nothing, "tail"), k=2).shape == (0, 2)


@given(st.data())
@settings(deadline=None, max_examples=200)
def test_the_highest_of_each_row_are_the_first_of_a_stable_sort(data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(0, 3)), data.draw(st.integers(1, 40))
    k = data.draw(st.integers(1, columns))
    values = st.sampled_from([-np.inf, -2.5, -0.0, 0.0, 1.0, 1.5, 7.0])
    drawn = data.draw(st.lists(values, min_size=rows * columns, max_size=rows * columns))
    scores = np.array(drawn, dtype=np.float32).reshape(rows, columns)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    for way in (highest, highest_in_tensors):
        best, place = (x.numpy() for x in way(torch.from_numpy(scores), k))
        np.testing.assert_array_equal(np.sort(place, axis=1), np.sort(expected, axis=1))
        np.testing.assert_array_equal(best, np.take_along_axis(scores, place, axis=1))
