"""Batches, negatives and subsampling weights. A batch depends only on seed and step."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from plogicnet.graph import IntArray
from plogicnet.neural.protocol import Examples
from plogicnet.neural.vectors.sampling import Batch, Sampler, subsampling_weights

Triple = tuple[int, int, int]


def random_positives(n: int, entities: int, relations: int, seed: int) -> IntArray:
    rng = np.random.default_rng(seed)
    every = [(h, r, t) for h in range(entities) for r in range(relations) for t in range(entities)]
    return np.array([every[i] for i in rng.choice(len(every), n, replace=False)], dtype=np.int64)


def sampler_of(
    positives: IntArray,
    entities: int = 9,
    batch: int = 4,
    negatives: int = 5,
    chunk_size: int = 2,
    seed: int = 0,
    weights: np.ndarray[tuple[int], np.dtype[np.float64]] | None = None,
) -> Sampler:
    return Sampler(Examples.of(positives, weights), entities, batch, negatives, chunk_size, seed, torch.device("cpu"))


def rows(batch: Batch, size: int) -> list[Triple]:
    """Return the positives of a batch without the padding of the last chunk."""
    parts = torch.stack([batch.known, batch.relation, batch.answer], dim=-1).flatten(0, 1).tolist()
    return [(k, r, a) if batch.side == "tail" else (a, r, k) for k, r, a in parts][:size]


def same(a: Batch, b: Batch) -> bool:
    names = ("known", "relation", "answer", "weight", "negative", "usable")
    return a.side == b.side and all(torch.equal(getattr(a, name), getattr(b, name)) for name in names)


def test_tail_and_head_are_corrupted_in_turn() -> None:
    sampler = sampler_of(random_positives(10, 9, 2, seed=0))
    assert [sampler.batch(step).side for step in range(6)] == ["tail", "head"] * 3


@pytest.mark.parametrize(
    ("n", "batch", "chunk_size"), [(10, 4, 2), (10, 4, 1), (10, 4, 3), (7, 7, 64), (5, 100, 4), (1, 9, 3)]
)
def test_every_epoch_contains_each_positive_once(n: int, batch: int, chunk_size: int) -> None:
    positives = random_positives(n, 9, 2, seed=1)
    sampler = sampler_of(positives, batch=batch, chunk_size=chunk_size)
    size = min(batch, n)
    for parity in (0, 1):
        drawn = [t for number in range(3 * n) for t in rows(sampler.batch(2 * number + parity), size)]
        orders = []
        for start in range(0, len(drawn) - n + 1, n):
            epoch = drawn[start : start + n]
            assert sorted(epoch) == sorted(map(tuple, positives.tolist()))
            orders.append(tuple(epoch))
        if n >= 5:
            assert len(set(orders)) > 1, "every epoch is shuffled differently"


@pytest.mark.parametrize(
    ("n", "batch", "chunk_size", "chunks", "wide"),
    [(20, 8, 1, 8, 1), (20, 8, 4, 2, 4), (20, 8, 3, 3, 3), (20, 8, 64, 1, 8), (3, 8, 2, 2, 2), (1, 8, 2, 1, 1)],
)
def test_shapes_and_padding(n: int, batch: int, chunk_size: int, chunks: int, wide: int) -> None:
    positives = random_positives(n, 9, 2, seed=2)
    sampler = sampler_of(positives, batch=batch, chunk_size=chunk_size, negatives=5)
    size = min(batch, n)
    weight_of = dict(zip(map(tuple, positives.tolist()), slow_weights(positives), strict=True))
    for step in range(8):
        b = sampler.batch(step)
        assert b.known.shape == b.relation.shape == b.answer.shape == b.weight.shape == (chunks, wide)
        assert b.negative.shape == (chunks, 5)
        assert b.usable.shape == (chunks, wide, 5)
        weights = b.weight.flatten().tolist()
        assert weights[size:] == [0.0] * (chunks * wide - size)
        assert weights[:size] == pytest.approx([weight_of[t] for t in rows(b, size)], rel=1e-6)


@given(
    st.integers(1, 30),
    st.integers(1, 12),
    st.integers(1, 8),
    st.integers(1, 5),
    st.integers(0, 40),
    st.integers(0, 2**31),
)
@settings(deadline=None, max_examples=60)
def test_usable_is_false_exactly_for_positives(
    n: int, batch: int, negatives: int, chunk_size: int, step: int, seed: int
) -> None:
    entities = 5
    positives = random_positives(min(n, 50), entities, 2, seed=n)
    known = set(map(tuple, positives.tolist()))
    b = sampler_of(positives, entities, batch, negatives, chunk_size, seed).batch(step)
    assert int(b.negative.min()) >= 0
    assert int(b.negative.max()) < entities
    for c in range(b.known.shape[0]):
        for i in range(b.known.shape[1]):
            k, r = int(b.known[c, i]), int(b.relation[c, i])
            for j in range(negatives):
                e = int(b.negative[c, j])
                corrupted = (k, r, e) if b.side == "tail" else (e, r, k)
                assert bool(b.usable[c, i, j]) == (corrupted not in known)


def test_a_complete_graph_has_no_usable_negatives() -> None:
    full = np.array([(h, 0, t) for h in range(3) for t in range(3)], dtype=np.int64)
    for step in range(4):
        assert not bool(sampler_of(full, entities=3).batch(step).usable.any())


@pytest.mark.parametrize("parity", [0, 1])
def test_usable_negatives_are_uniform_over_other_entities(parity: int) -> None:
    entities = 12
    # entity 0 has the answers 1, 2 and 3 on both sides
    positives = np.array([(0, 0, 1), (0, 0, 2), (0, 0, 3), (1, 0, 0), (2, 0, 0), (3, 0, 0)], dtype=np.int64)
    sampler = sampler_of(positives, entities, batch=6, negatives=50, chunk_size=3, seed=5)
    seen: Counter[int] = Counter()
    for number in range(60):
        b = sampler.batch(2 * number + parity)
        for c in range(b.known.shape[0]):
            for i in range(b.known.shape[1]):
                if int(b.known[c, i]) == 0:
                    seen.update(b.negative[c][b.usable[c, i]].tolist())
                    break  # the whole chunk shares its negatives: count them once
    assert set(seen) == {0, *range(4, entities)}
    assert stats.chisquare([seen[e] for e in sorted(seen)]).pvalue > 1e-3


def test_negatives_of_different_chunks_steps_and_seeds_differ() -> None:
    positives = random_positives(20, 9, 2, seed=3)
    sampler = sampler_of(positives, batch=8, chunk_size=2, negatives=30)
    drawn = [tuple(row) for step in range(10) for row in sampler.batch(step).negative.tolist()]
    drawn += [tuple(row) for row in sampler_of(positives, batch=8, negatives=30, seed=1).batch(0).negative.tolist()]
    assert len(set(drawn)) == len(drawn)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=12), st.integers(1, 20), st.integers(0, 2**40))
@settings(deadline=None, max_examples=40)
def test_a_batch_depends_only_on_seed_and_step(steps: list[int], batch: int, seed: int) -> None:
    positives = random_positives(13, 9, 2, seed=4)
    used = sampler_of(positives, batch=batch, seed=seed)
    for step in steps:
        assert same(used.batch(step), sampler_of(positives, batch=batch, seed=seed).batch(step))


def test_different_seeds_give_different_batches() -> None:
    positives = random_positives(13, 9, 2, seed=4)
    a, b = (sampler_of(positives, batch=13, seed=seed).batch(0) for seed in (0, 1))
    assert not torch.equal(a.known, b.known) or not torch.equal(a.answer, b.answer)
    assert not torch.equal(a.negative, b.negative)


def test_the_global_random_state_is_neither_used_nor_changed() -> None:
    positives = random_positives(13, 9, 2, seed=4)
    torch.manual_seed(1)
    first, state = sampler_of(positives).batch(3), torch.get_rng_state()
    torch.manual_seed(2)
    assert same(first, sampler_of(positives).batch(3))
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state)


def test_example_weights_multiply_the_subsampling_weights() -> None:
    positives = random_positives(6, 9, 2, seed=6)
    weights = np.array([0.0, 0.1, 0.5, 1.0, 0.3, 0.9])
    b = sampler_of(positives, batch=6, chunk_size=4, weights=weights).batch(1)
    expected = {tuple(t): w * s for t, w, s in zip(positives.tolist(), weights, slow_weights(positives), strict=True)}
    assert b.weight.flatten().tolist()[:6] == pytest.approx([expected[t] for t in rows(b, 6)], rel=1e-6)


def slow_weights(triples: IntArray) -> list[float]:
    """Return the recipe's weights; the counts of (h, r) and (r, t) start at 4."""
    listed = [tuple(t) for t in triples.tolist()]
    result = []
    for h, r, t in listed:
        with_head = sum((a, b) == (h, r) for a, b, _ in listed)
        with_tail = sum((b, c) == (r, t) for _, b, c in listed)
        result.append(1 / math.sqrt((with_head + 3) + (with_tail + 3)))
    return result


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1), st.integers(0, 4)), min_size=1, max_size=30, unique=True)
)
@settings(deadline=None, max_examples=60)
def test_subsampling_weights_equal_the_loop(triples: list[Triple]) -> None:
    array = np.array(triples, dtype=np.int64)
    np.testing.assert_allclose(subsampling_weights(array), slow_weights(array), rtol=1e-12)
