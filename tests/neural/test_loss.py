"""The self-adversarial loss against a float64 loop, and its gradient against the formula with constant shares."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet.neural.loss import self_adversarial_loss


def log_sigmoid(x: float) -> float:
    return min(x, 0.0) - math.log1p(math.exp(-abs(x)))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def slow_shares(scores: list[float], usable: list[bool], temperature: float) -> list[float]:
    """Return softmax(temperature · score) over usable negatives; all zero without any."""
    among = [temperature * s for s, u in zip(scores, usable, strict=True) if u]
    if not among:
        return [0.0] * len(scores)
    top = max(among)
    total = sum(math.exp(a - top) for a in among)
    return [math.exp(temperature * s - top) / total if u else 0.0 for s, u in zip(scores, usable, strict=True)]


def slow_loss(
    positive: list[float],
    negative: list[list[float]],
    usable: list[list[bool]],
    weight: list[float],
    temperature: float,
) -> tuple[float, list[float], list[list[float]]]:
    """Return the loss and its derivatives by positive and negative scores, with constant shares."""
    total, by_positive, by_negative = 0.0, [], []
    for p, ns, us, w in zip(positive, negative, usable, weight, strict=True):
        shares = slow_shares(ns, us, temperature)
        part = -log_sigmoid(p) - sum(s * log_sigmoid(-n) for s, n in zip(shares, ns, strict=True))
        share_of_all = w / sum(weight)
        total += share_of_all * part / 2
        by_positive.append(-share_of_all * sigmoid(-p) / 2)
        by_negative.append([share_of_all * s * sigmoid(n) / 2 for s, n in zip(shares, ns, strict=True)])
    return total, by_positive, by_negative


SCORE = st.floats(-30, 30)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[float], list[list[float]], list[list[bool]], list[float], float]:
    n, m = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    positive = draw(st.lists(SCORE, min_size=n, max_size=n))
    negative = draw(st.lists(st.lists(SCORE, min_size=m, max_size=m), min_size=n, max_size=n))
    usable = draw(st.lists(st.lists(st.booleans(), min_size=m, max_size=m), min_size=n, max_size=n))
    weight = draw(st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0]), min_size=n, max_size=n).filter(any))
    return positive, negative, usable, weight, draw(st.sampled_from([0.0, 0.5, 1.0, 2.0]))


@given(problems())
@settings(deadline=None, max_examples=100)
def test_value_and_gradient_equal_the_loop(
    problem: tuple[list[float], list[list[float]], list[list[bool]], list[float], float],
) -> None:
    positive, negative, usable, weight, temperature = problem
    p = torch.tensor(positive, dtype=torch.float64, requires_grad=True)
    n = torch.tensor(negative, dtype=torch.float64, requires_grad=True)
    loss = self_adversarial_loss(
        p, n, torch.tensor(usable), torch.tensor(weight, dtype=torch.float64), temperature=temperature
    )
    value, by_positive, by_negative = slow_loss(*problem)
    assert loss.item() == pytest.approx(value, rel=1e-10, abs=1e-12)
    got = torch.autograd.grad(loss, [p, n])
    np.testing.assert_allclose(got[0].numpy(), by_positive, atol=1e-12)
    np.testing.assert_allclose(got[1].numpy(), by_negative, atol=1e-12)


def test_gradient_equals_autograd_of_the_plain_formula_through_shared_vectors() -> None:
    """Chunks of positives share negatives. The softmax share has no gradient even if scores depend on each other."""
    generator = torch.Generator().manual_seed(3)
    base = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    usable = torch.rand(2, 3, 4, generator=generator) < 0.7
    usable[0, 0] = False
    weight = torch.rand(2, 3, generator=generator, dtype=torch.float64)
    grads = []
    for plain in (False, True):
        x = base.clone().requires_grad_()
        positive, negative = x.sum(-1), 2 * x
        if plain:
            shares = torch.tensor(
                [
                    [slow_shares(n, u, 0.5) for n, u in zip(ns, us, strict=True)]
                    for ns, us in zip(negative.tolist(), usable.tolist(), strict=True)
                ],
                dtype=torch.float64,
            )
            terms = -torch.log(torch.sigmoid(positive)) - (shares * torch.log(torch.sigmoid(-negative))).sum(-1)
            loss = (weight * terms).sum() / weight.sum() / 2
        else:
            loss = self_adversarial_loss(positive, negative, usable, weight, temperature=0.5)
        grads.append((loss.item(), torch.autograd.grad(loss, x)[0]))
    assert grads[0][0] == pytest.approx(grads[1][0], rel=1e-12)
    np.testing.assert_allclose(grads[0][1].numpy(), grads[1][1].numpy(), atol=1e-12)


def test_a_positive_without_usable_negatives_has_only_the_positive_part() -> None:
    negative = torch.tensor([[5.0, -2.0]], dtype=torch.float64, requires_grad=True)
    positive = torch.tensor([1.5], dtype=torch.float64, requires_grad=True)
    loss = self_adversarial_loss(positive, negative, torch.zeros(1, 2, dtype=torch.bool), torch.ones(1), 1.0)
    assert loss.item() == pytest.approx(-log_sigmoid(1.5) / 2, rel=1e-12)
    by_positive, by_negative = torch.autograd.grad(loss, [positive, negative])
    assert by_positive.item() == pytest.approx(-sigmoid(-1.5) / 2, rel=1e-12)
    assert by_negative.tolist() == [[0.0, 0.0]]


def test_unusable_negatives_do_not_change_the_loss() -> None:
    positive, weight = torch.tensor([0.3, -1.0]), torch.tensor([1.0, 2.0])
    few = torch.tensor([[1.0, 2.0], [-1.0, 0.5]])
    more = torch.tensor([[1.0, 40.0, 2.0], [-1.0, 0.5, 40.0]])
    usable = torch.tensor([[True, False, True], [True, True, False]])
    expected = self_adversarial_loss(positive, few, torch.ones(2, 2, dtype=torch.bool), weight, 1.0)
    assert self_adversarial_loss(positive, more, usable, weight, 1.0).item() == pytest.approx(expected.item())


def test_extreme_scores_stay_finite_in_single_precision() -> None:
    positive = torch.tensor([-1e4, 1e4], requires_grad=True)
    negative = torch.tensor([[1e4, -1e4], [1e4, 1e4]], requires_grad=True)
    loss = self_adversarial_loss(positive, negative, torch.ones(2, 2, dtype=torch.bool), torch.ones(2), 1.0)
    grads = torch.autograd.grad(loss, [positive, negative])
    assert math.isfinite(loss.item())
    assert all(bool(torch.isfinite(g).all()) for g in grads)
