"""Counts by compiled code and by tensor operations, compared with loops on numbers with many ties."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet.evaluation.counting import (
    Counts,
    count_keys,
    count_keys_in_tensors,
    count_scores,
    count_scores_in_tensors,
)


def lists(counts: Counts) -> tuple[list[int], list[int]]:
    return counts[0].tolist(), counts[1].tolist()


@given(st.integers(1, 5), st.integers(1, 40), st.integers(0, 150), st.integers(0, 2**31))
@settings(deadline=None, max_examples=40)
def test_counts_of_scores_equal_loops(queries: int, entities: int, targets: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.choice([-np.inf, -1.0, 0.0, 2.5], size=(queries, entities)).astype(np.float32)
    rows, values = rng.integers(queries, size=targets), rng.choice([-1.0, 0.0, 1.0], size=targets).astype(np.float32)
    expected = (
        [sum(bool(s > v) for s in scores[r]) for r, v in zip(rows, values, strict=True)],
        [sum(bool(s == v) for s in scores[r]) for r, v in zip(rows, values, strict=True)],
    )
    arguments = [torch.from_numpy(x) for x in (scores, rows, values)]
    for count in (count_scores, count_scores_in_tensors):
        assert lists(count(*arguments)) == expected


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(0, 150), st.integers(0, 2**31))
@settings(deadline=None, max_examples=40)
def test_counts_of_keys_equal_loops(lengths: list[int], targets: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    starts = np.append(0, np.cumsum(lengths))
    first, second = rng.integers(3, size=(2, starts[-1])).astype(np.float64)
    rows = rng.integers(len(lengths), size=targets)
    target = rng.integers(3, size=(2, targets)).astype(np.float64)
    above, equal = [], []
    for r, one, two in zip(rows, *target, strict=True):
        pairs = list(zip(first[starts[r] : starts[r + 1]], second[starts[r] : starts[r + 1]], strict=True))
        above.append(sum(pair > (one, two) for pair in pairs))
        equal.append(sum(pair == (one, two) for pair in pairs))
    arguments = [torch.from_numpy(x) for x in (starts, first, second, rows, *target)]
    for count in (count_keys, count_keys_in_tensors):
        assert lists(count(*arguments)) == (above, equal)
