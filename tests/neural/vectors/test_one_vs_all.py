"""The one_vs_all recipe and explicit negatives: a step's loss and gradient against a loop over triples."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet.graph import IntArray
from plogicnet.neural.loss import explicit_negative_loss, one_vs_all_loss, one_vs_all_negative_losses
from plogicnet.neural.protocol import Examples
from plogicnet.neural.sampling import ShuffledEpochs, explicit_negatives
from plogicnet.neural.vectors.model import VectorModel
from plogicnet.neural.vectors.settings import VectorSettings

ENTITIES, RELATIONS, DIM = 9, 2, 5
CPU = torch.device("cpu")


def some(n: int, seed: int) -> IntArray:
    rng = np.random.default_rng(seed)
    chosen = rng.choice(ENTITIES * RELATIONS * ENTITIES, n, replace=False)
    return np.stack(np.unravel_index(chosen, (ENTITIES, RELATIONS, ENTITIES)), axis=1).astype(np.int64)


EVERY = some(30, seed=0)
EXAMPLES = Examples(EVERY[:20], np.linspace(0.1, 1.0, 20), EVERY[20:])


def model_of(**values: Any) -> VectorModel:
    fast: dict[str, Any] = {
        "model": "ComplEx",
        "recipe": "one_vs_all",
        "dim": DIM,
        "batch": 6,
        "steps": 0,
        "gamma": 4.0,
    }
    return VectorModel(ENTITIES, RELATIONS, VectorSettings(**(fast | values)))


def logits(entity: torch.Tensor, relation: torch.Tensor, known: int, r: int) -> torch.Tensor:
    """Return Re⟨known, r, conj(e)⟩ for every entity e."""
    wide, turn = torch.complex(entity[:, :DIM], entity[:, DIM:]), torch.complex(relation[:, :DIM], relation[:, DIM:])
    return torch.stack([(wide[known] * turn[r] * wide[e].conj()).sum().real for e in range(ENTITIES)])


@pytest.mark.parametrize("step", [0, 1, 2, 5])
@pytest.mark.parametrize("regularization", [0.0, 0.3])
def test_a_step_equals_the_plain_formula(step: int, regularization: float) -> None:
    model = model_of(regularization=regularization)
    model.fit(EXAMPLES, seed=3)
    assert model.relation.shape == (2 * RELATIONS, 2 * DIM)
    parameters = [model.entity.requires_grad_(), model.relation.requires_grad_()]
    value = model._loss(EXAMPLES, seed=3)(step)
    got = torch.autograd.grad(value, parameters)

    entity, relation = wide = [p.detach().double().requires_grad_() for p in parameters]
    batch = ShuffledEpochs(EXAMPLES.positives, EXAMPLES.weights, 6, 3, CPU).queries(step)
    explicit = explicit_negatives(EXAMPLES, 6, 3, CPU)
    assert explicit is not None
    rejected = explicit.queries(step)
    inverse = RELATIONS if batch.side == "head" else 0
    assert batch.side == rejected.side == ("head" if step % 2 else "tail")
    total, weights = torch.zeros((), dtype=torch.float64), 0.0
    for k, r, a, w in zip(
        *(t.tolist() for t in (batch.known, batch.relation, batch.answer, batch.weight)), strict=True
    ):
        loss = -torch.log(torch.softmax(logits(entity, relation, k, r + inverse), 0)[a])
        for vector in (entity[k], relation[r + inverse], entity[a]):
            loss = loss + regularization * (vector[:DIM] ** 2 + vector[DIM:] ** 2).sqrt().pow(3).sum()
        total, weights = total + w * loss, weights + w
    total = total / weights
    for k, r, a in zip(*(t.tolist() for t in (rejected.known, rejected.relation, rejected.answer)), strict=True):
        p = torch.softmax(logits(entity, relation, k, r + inverse), 0)[a]
        total = total - torch.log(1 - p) / len(rejected.known)
    assert value.item() == pytest.approx(total.item(), rel=1e-5)
    for a, b in zip(got, torch.autograd.grad(total, wide), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-6)


def test_explicit_negatives_add_half_their_mean_to_the_sampled_loss() -> None:
    values = {"recipe": "sampled", "model": "TransE", "negatives": 4, "share_negatives": 2}
    model = model_of(**values)
    model.fit(EXAMPLES, seed=1)
    for step in (0, 1):
        explicit = explicit_negatives(EXAMPLES, 6, 1, CPU)
        assert explicit is not None
        q = explicit.queries(step)
        known, answer = (q.known, q.answer) if q.side == "tail" else (q.answer, q.known)
        triples = torch.stack([known, q.relation, answer], dim=1).numpy()
        part = [math.log1p(math.exp(s)) for s in model.score(triples).tolist()]
        without = model._loss(Examples.of(EXAMPLES.positives, EXAMPLES.weights), seed=1)(step)
        both = model._loss(EXAMPLES, seed=1)(step)
        assert both.item() - without.item() == pytest.approx(np.mean(part) / 2, rel=1e-4)


@pytest.mark.parametrize(("recipe", "rate"), [("sampled", 0.02), ("one_vs_all", 0.1)])
def test_explicit_negatives_are_pushed_down(recipe: str, rate: float) -> None:
    values = {"recipe": recipe, "learning_rate": rate, "steps": 150, "negatives": 4, "dim": 8}
    without, with_them = model_of(**values), model_of(**values)
    without.fit(Examples.of(EXAMPLES.positives), seed=0)
    with_them.fit(Examples(EXAMPLES.positives, np.ones(20), EXAMPLES.negatives), seed=0)
    q = [torch.sigmoid(m.score(EXAMPLES.negatives)).mean().item() for m in (without, with_them)]
    assert q[1] < q[0]
    assert with_them.score(EXAMPLES.positives).mean() > with_them.score(EXAMPLES.negatives).max()


@given(st.integers(1, 40), st.integers(1, 60), st.integers(1, 50))
@settings(deadline=None, max_examples=60)
def test_an_epoch_of_explicit_negatives_is_as_long_as_one_of_positives(n: int, negatives: int, batch: int) -> None:
    every = some(100, seed=1)
    examples = Examples(every[:n], np.ones(n), every[n : n + negatives])
    epochs = explicit_negatives(examples, batch, 0, CPU)
    assert epochs is not None
    size = min(batch, n)
    assert 1 <= epochs.size <= size
    steps = -(-n // size)
    if negatives <= n:
        assert epochs.size * steps >= negatives, "each is seen in an epoch"
        assert (epochs.size - 1) * n < negatives * size, "and rarely twice"


def test_explicit_negatives_come_in_shuffled_epochs() -> None:
    epochs = explicit_negatives(EXAMPLES, 4, 0, CPU)
    assert epochs is not None
    assert epochs.size == 2
    for parity in (0, 1):
        batches = [epochs.queries(2 * number + parity) for number in range(5)]
        seen = [
            (k, r, a) if q.side == "tail" else (a, r, k)
            for q in batches
            for k, r, a in zip(q.known.tolist(), q.relation.tolist(), q.answer.tolist(), strict=True)
        ]
        assert sorted(seen) == sorted(map(tuple, EXAMPLES.negatives.tolist()))


def test_losses_of_extreme_scores_stay_finite() -> None:
    scores = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 1e4]], requires_grad=True)
    answer = torch.tensor([0, 0])
    for value in (
        one_vs_all_loss(scores, answer, torch.ones(2)),
        one_vs_all_negative_losses(scores, answer).mean(),
        explicit_negative_loss(scores.flatten()),
    ):
        assert math.isfinite(value.item())
        assert bool(torch.isfinite(torch.autograd.grad(value, scores)[0]).all())


def test_probabilities_are_proportional_to_weights() -> None:
    """A query has two answers. The one with weight three gets three quarters of the probability."""
    triples = np.array([[0, 0, 1], [0, 0, 2]], dtype=np.int64)
    model = model_of(steps=2000, learning_rate=0.1, batch=2)
    model.fit(Examples.of(triples, np.array([3.0, 1.0])), seed=0)
    p = torch.softmax(model.score_all(np.array([0]), np.array([0]), "tail")[0], 0)
    assert p[1].item() == pytest.approx(0.75, abs=0.02)
    assert p[2].item() == pytest.approx(0.25, abs=0.02)
