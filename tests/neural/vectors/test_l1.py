"""The compiled L1 distances against the plain formula, and bit-identical results for equal pairs."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet.neural.vectors.compiled import BLOCK, l1_cross


@given(st.integers(0, 5), st.integers(0, 2 * BLOCK + 3), st.integers(0, 21), st.integers(1, 3), st.integers(0, 2**31))
@settings(deadline=None, max_examples=60)
def test_distances_equal_the_plain_formula(n: int, m: int, d: int, threads: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries, candidates = (rng.normal(size=(rows, d)).astype(np.float32) for rows in (n, m))
    plain = np.abs(queries[:, None, :].astype(np.float64) - candidates[None, :, :]).sum(-1)
    np.testing.assert_allclose(l1_cross(queries, candidates, threads), plain, rtol=1e-5, atol=1e-6)


def test_a_distance_does_not_depend_on_the_position_of_the_pair() -> None:
    rng = np.random.default_rng(0)
    queries, one = rng.normal(size=(3, 203)).astype(np.float32), rng.normal(size=(1, 203)).astype(np.float32)
    wide = l1_cross(queries, np.repeat(one, 2 * BLOCK + 5, axis=0), threads=3)
    single = l1_cross(queries[2:], one)
    assert (wide == wide[:, :1]).all()
    assert wide[2, 0] == single[0, 0]


def test_any_memory_layout_is_accepted() -> None:
    rng = np.random.default_rng(1)
    queries, candidates = rng.normal(size=(6, 10)).astype(np.float32), rng.normal(size=(10, 9)).astype(np.float32)
    np.testing.assert_array_equal(
        l1_cross(queries[::2], candidates.T), l1_cross(queries[::2].copy(), candidates.T.copy())
    )
