"""TransE's query, pair and cross against loops over coordinates."""

import itertools

import numpy as np
import pytest
import torch

from plogicnet.graph import Side
from plogicnet.kge.transe import TransE

SIDES: tuple[Side, Side] = ("head", "tail")


def slow_score(head: torch.Tensor, relation: torch.Tensor, tail: torch.Tensor, gamma: float) -> float:
    """γ - ‖h + r - t‖₁, one coordinate after the other."""
    distance = 0.0
    for h, r, t in zip(head.tolist(), relation.tolist(), tail.tolist(), strict=True):
        distance += abs(h + r - t)
    return gamma - distance


def vectors(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("side", SIDES)
def test_pair_of_a_query_is_the_score_of_the_triple(side: Side) -> None:
    model = TransE(gamma=3.5)
    known, relation, asked = vectors(4, 5, 7, seed=1), vectors(4, 5, 7, seed=2), vectors(4, 5, 7, seed=3)
    got = model.pair(model.query(known, relation, side), asked)
    assert got.shape == (4, 5)
    for i, j in itertools.product(range(4), range(5)):
        head, tail = (known[i, j], asked[i, j]) if side == "tail" else (asked[i, j], known[i, j])
        assert got[i, j].item() == pytest.approx(slow_score(head, relation[i, j], tail, 3.5), abs=1e-12)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dim", [1, 2, 33])
def test_cross_compares_every_query_with_every_candidate(side: Side, dim: int) -> None:
    model = TransE(gamma=12.0)
    known, relation, asked = vectors(2, 3, dim, seed=4), vectors(2, 3, dim, seed=5), vectors(2, 6, dim, seed=6)
    got = model.cross(model.query(known, relation, side), asked)
    assert got.shape == (2, 3, 6)
    for c, i, j in itertools.product(range(2), range(3), range(6)):
        head, tail = (known[c, i], asked[c, j]) if side == "tail" else (asked[c, j], known[c, i])
        assert got[c, i, j].item() == pytest.approx(slow_score(head, relation[c, i], tail, 12.0), abs=1e-12)


def test_cross_and_pair_agree_in_single_precision() -> None:
    model = TransE(gamma=12.0)
    queries, candidates = vectors(9, 50, seed=7).float(), vectors(11, 50, seed=8).float()
    cross = model.cross(queries, candidates)
    for i, j in itertools.product(range(9), range(11)):
        assert cross[i, j].item() == pytest.approx(model.pair(queries[i], candidates[j]).item(), abs=1e-4)


def test_equal_candidates_have_equal_scores_wherever_they_stand() -> None:
    """Ties must be ties: the same vector scores the same in every column."""
    model = TransE(gamma=12.0)
    queries, one = vectors(5, 37, seed=9).float(), vectors(1, 37, seed=10).float()
    cross = model.cross(queries, one.expand(101, 37).contiguous())
    assert bool((cross == cross[:, :1]).all())


def test_gradients_of_cross_and_pair_agree() -> None:
    model = TransE(gamma=1.0)
    queries, candidates = vectors(4, 6, seed=11), vectors(5, 6, seed=12)
    weight = vectors(4, 5, seed=13)
    grads = []
    for kernel in ("cross", "pair"):
        q, c = queries.clone().requires_grad_(), candidates.clone().requires_grad_()
        scores = model.cross(q, c) if kernel == "cross" else model.pair(q[:, None, :], c[None, :, :])
        grads.append(torch.autograd.grad((weight * scores).sum(), [q, c]))
    for a, b in zip(*grads, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-12)
