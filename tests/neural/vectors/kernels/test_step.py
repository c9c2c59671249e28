"""Fused training steps against autograd of the plain formula, their draws, deferred updates and resumption."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

pytest.importorskip("triton", reason="the kernels need triton (extra: kernels)")
from plogicnet.graph import IntArray, as_triples
from plogicnet.neural.loss import self_adversarial_loss
from plogicnet.neural.optimization import train
from plogicnet.neural.protocol import Checkpoint, Examples
from plogicnet.neural.vectors.kernels.step import BETA1, BETA2, EPSILON, FusedSteps, unsupported_reason
from plogicnet.neural.vectors.models import make_geometry
from plogicnet.neural.vectors.sampling import subsampling_weights
from plogicnet.neural.vectors.settings import VectorSettings
from plogicnet.support.progress import no_progress

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ENTITIES, RELATIONS = 13, 3
SETTINGS = VectorSettings(
    dim=6, gamma=4.0, batch=8, negatives=7, share_negatives=3, steps=12, learning_rate=0.05, adversarial_temperature=0.7
)
MODELS: list[str] = ["TransE", "RotatE", "DistMult", "ComplEx"]
EACH = pytest.mark.parametrize("settings", [replace(SETTINGS, model=m) for m in MODELS], ids=MODELS)


def some_examples(n: int = 25) -> Examples:
    rng = np.random.default_rng(0)
    every = [(h, r, t) for h in range(ENTITIES) for r in range(RELATIONS) for t in range(ENTITIES)]
    positives: IntArray = np.array([every[i] for i in rng.choice(len(every), n, replace=False)], dtype=np.int64)
    return Examples.of(positives, np.linspace(0.2, 1.0, n))


def trainer_for(
    settings: VectorSettings, examples: Examples | None = None, seed: int = 3, start: int = 0
) -> FusedSteps:
    generator = torch.Generator().manual_seed(5)
    width, relation_width = make_geometry(settings).widths
    entity = torch.randn(ENTITIES, width, generator=generator).to(DEVICE)
    relation = torch.randn(RELATIONS, relation_width, generator=generator).to(DEVICE)
    trainer = FusedSteps(entity, relation, examples or some_examples(), settings, seed)
    trainer.number.fill_(start)
    return trainer


def run(trainer: FusedSteps) -> None:
    tables = {"entity": trainer.entity, "relation": trainer.relation}
    train(tables, trainer, trainer.settings, "", no_progress)


def plain_loss(trainer: FusedSteps, examples: Examples, tail: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the plain loss of the drawn batch in float64, with its leaf tables."""
    s, geometry = trainer.settings, make_geometry(replace(trainer.settings, kernels="plain"))
    entity, relation = (x.detach().cpu().double().requires_grad_() for x in (trainer.entity, trainer.relation))
    known, relation_ids, answer = (x.cpu().long() for x in (trainer.known, trainer.relation_ids, trainer.answer))
    negative = trainer.negative.cpu().long().repeat_interleave(trainer.chunk_size, 0)
    query = geometry.query(entity[known], relation[relation_ids], "tail" if tail else "head")
    positive = geometry.pair(query, entity[answer])
    scores = geometry.pair(query[:, None], entity[negative])
    facts = {tuple(f) for f in examples.positives.tolist()}

    def is_fact(i: int, e: int) -> bool:
        one, r, other = int(known[i]), int(relation_ids[i]), e
        return ((one, r, other) if tail else (other, r, one)) in facts

    usable = torch.tensor([[not is_fact(i, e) for e in row] for i, row in enumerate(negative.tolist())])
    weight = trainer.weight.cpu().double()
    loss = self_adversarial_loss(positive, scores, usable, weight, s.adversarial_temperature)
    return loss, entity, relation


@EACH
@pytest.mark.parametrize("step", [0, 1])
def test_gradients_and_loss_equal_the_plain_formula(settings: VectorSettings, step: int) -> None:
    examples = some_examples()
    trainer = trainer_for(settings, examples, start=step)
    trainer.draw()
    trainer.compute_gradients()
    loss, entity, relation = plain_loss(trainer, examples, tail=step == 0)
    loss.backward()  # type: ignore[no-untyped-call]
    assert trainer.loss() == pytest.approx(loss.item(), rel=1e-5)
    for actual, table in ((trainer.d_entity, entity), (trainer.d_relation, relation)):
        assert table.grad is not None
        torch.testing.assert_close(actual.cpu().double(), table.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("regularization", [0.0, 0.01])
@EACH
def test_steps_equal_those_of_torchs_adam(settings: VectorSettings, regularization: float) -> None:
    """Half-way, the rate falls and the moments restart. Gradients are zero after each step."""
    settings = replace(settings, steps=4, regularization=regularization)
    examples = some_examples()
    trainer, plain = trainer_for(settings, examples), trainer_for(settings, examples)
    parameters = [x.detach().cpu().double().requires_grad_() for x in (plain.entity, plain.relation)]
    for step in range(4):
        if step in (0, 2):
            optimizer = torch.optim.Adam(parameters, lr=settings.learning_rate / (10 if step else 1))
        plain.draw()
        _, entity, relation = (loss_and := plain_loss(plain, examples, tail=step % 2 == 0))
        penalty = regularization * (entity.norm(p=3) ** 3 + relation.norm(p=3) ** 3)
        (loss_and[0] + penalty).backward()
        for parameter, table in zip(parameters, (entity, relation), strict=True):
            parameter.grad = table.grad
        optimizer.step()
        plain.entity.copy_(parameters[0].detach())
        plain.relation.copy_(parameters[1].detach())
        plain.number.add_(1)
    run(trainer)
    # no coordinates are nearly equal, so float32 rounding cannot flip the sign of a gradient
    torch.testing.assert_close(trainer.entity.cpu().double(), parameters[0].detach(), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(trainer.relation.cpu().double(), parameters[1].detach(), rtol=1e-3, atol=1e-4)
    assert trainer.d_entity.abs().max().item() == 0
    assert trainer.d_relation.abs().max().item() == 0


def test_every_epoch_contains_each_example_once_with_its_weight() -> None:
    settings, examples = replace(SETTINGS, batch=5, share_negatives=5), some_examples(n=10)
    trainer = trainer_for(settings, examples)
    expected = examples.weights * subsampling_weights(examples.positives)
    weight_of = {tuple(f): w for f, w in zip(examples.positives.tolist(), expected, strict=True)}
    orders = []
    for number in range(2):
        for tail in (True, False):
            drawn = []
            for batch in range(2):
                trainer.number.fill_(2 * (2 * number + batch) + (not tail))
                trainer.draw()
                rows = zip(*(x.tolist() for x in (trainer.known, trainer.relation_ids, trainer.answer)), strict=True)
                facts = [(k, r, a) if tail else (a, r, k) for k, r, a in rows]
                assert trainer.weight.tolist() == pytest.approx([weight_of[f] for f in facts])
                drawn += facts
            assert sorted(drawn) == sorted(weight_of)
            orders.append(tuple(drawn))
    assert len(set(orders)) == 4


def test_a_batch_can_span_two_epochs() -> None:
    settings = replace(SETTINGS, batch=4, share_negatives=4)
    trainer = trainer_for(settings, Examples.of(as_triples([(i, 0, i + 1) for i in range(6)])))
    drawn = []
    for step in (0, 2, 4):
        trainer.number.fill_(step)
        trainer.draw()
        drawn += trainer.known.tolist()
    assert sorted(drawn[:6]) == sorted(drawn[6:]) == list(range(6))


def test_negatives_are_uniform_and_differ_by_step_chunk_and_seed() -> None:
    settings = replace(SETTINGS, negatives=3000)
    one, other = trainer_for(settings), trainer_for(settings, seed=4)
    one.draw()
    other.draw()
    first = one.negative.clone()
    counts = torch.bincount(first.flatten(), minlength=ENTITIES).double()
    expected = first.numel() / ENTITIES
    assert ((counts - expected) ** 2 / expected).sum().item() < 33  # χ² with 12 degrees of freedom: p = 0.001
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first, other.negative)
    one.number.add_(1)
    one.draw()
    assert not torch.equal(first, one.negative)
    one.number.add_(-1)
    one.draw()
    assert torch.equal(first, one.negative)


SPARSE = replace(SETTINGS, batch=2, negatives=3, share_negatives=2, steps=10)
"""Settings whose steps draw only half of the entities."""
Tables = tuple[torch.Tensor, ...]


def tables(trainer: FusedSteps) -> Tables:
    return tuple(x.clone() for x in (trainer.entity, trainer.relation, *trainer.moments.values()))


def assert_same(actual: Tables, expected: Tables) -> None:
    """Assert equal tables, bit for bit on a CPU; a GPU sums gradients in any order."""
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0 if DEVICE == "cpu" else 1e-3)


@cache
def dense(settings: VectorSettings) -> list[Tables]:
    """Return tables and moments before each step and after the last, with Adam on every row at every step."""
    trainer = trainer_for(settings)
    after = [tables(trainer)]
    for step in range(settings.steps):
        trainer.draw()
        trainer.compute_gradients()
        rate, correction = trainer.rates[step]
        for name, gradient in (("entity", trainer.d_entity), ("relation", trainer.d_relation)):
            if settings.regularization:
                table = getattr(trainer, name)
                gradient += 3.0 * settings.regularization * table * table.abs()
            m, v = trainer.moments[f"{name}.mean"], trainer.moments[f"{name}.square"]
            if step == settings.steps // 2:
                m.zero_()
                v.zero_()
            m.copy_(BETA1 * m + (1 - BETA1) * gradient)
            v.copy_(BETA2 * v + (1 - BETA2) * gradient * gradient)
            root = v.double().sqrt().float()  # a float32 root is not always correctly rounded
            getattr(trainer, name).sub_(rate * m / (root * correction + EPSILON))
            gradient.zero_()
        trainer.number.add_(1)
        after.append(tables(trainer))
    return after


@pytest.mark.slow
@pytest.mark.parametrize(("model", "penalty"), [("TransE", 0.0), ("RotatE", 0.0), ("ComplEx", 0.01), ("DistMult", 0.0)])
@hypothesis_settings(max_examples=2, deadline=None)
@given(pauses=st.dictionaries(st.integers(0, SPARSE.steps - 1), st.booleans(), max_size=4))
def test_deferred_updates_equal_immediate_ones(model: str, penalty: float, pauses: dict[int, bool]) -> None:
    """Neither `flush` nor `restore` at any step changes the result."""
    settings = replace(SPARSE, model=model, regularization=penalty)
    expected, trainer = dense(settings), trainer_for(settings)
    for step in range(settings.steps):
        if step in pauses:
            trainer.flush()
            assert_same(tables(trainer), expected[step])
            if pauses[step]:
                again = FusedSteps(trainer.entity.clone(), trainer.relation.clone(), some_examples(), settings, seed=3)
                again.restore(step, trainer.state())
                trainer = again
        trainer.step(step)
    trainer.flush()
    assert_same(tables(trainer), expected[-1])
    trainer.flush()
    assert_same(tables(trainer), expected[-1])
    assert trainer.d_entity.abs().max().item() == trainer.d_relation.abs().max().item() == 0


def test_updates_are_deferred() -> None:
    trainer = trainer_for(SPARSE)
    for step in range(SPARSE.steps // 2):
        trainer.step(step)
    pending = int(trainer.number) - trainer.applied
    assert pending.min().item() == 1
    assert pending.max().item() > 2


def test_a_vector_longer_than_a_block_is_updated_completely() -> None:
    trainer = trainer_for(replace(SPARSE, dim=1030))
    trainer.d_entity.fill_(1.0)
    trainer.number.fill_(2)
    before, rates = trainer.entity.clone(), trainer.rates[:2].cpu().double()
    trainer.flush()
    m, v = 1 - BETA1, 1 - BETA2
    update = sum(
        rate * m * BETA1**i / ((v * BETA2**i) ** 0.5 * correction)
        for i, (rate, correction) in enumerate(rates.tolist())
    )
    torch.testing.assert_close(before - trainer.entity, torch.full_like(before, update), rtol=0, atol=1e-6)


def test_validation_and_checkpoints_see_no_pending_updates(tmp_path: Path) -> None:
    settings = replace(SPARSE, validate_every=3, steps=7)
    trainer, expected = trainer_for(settings), dense(replace(settings, validate_every=0))
    seen = []

    def validate() -> float:
        seen.append(tables(trainer))
        return float(len(seen))

    named = {"entity": trainer.entity, "relation": trainer.relation}
    train(named, trainer, settings, "", no_progress, validate, Checkpoint(tmp_path / "c.safetensors", every_steps=5))
    for actual, step in zip(seen, (3, 6, 7), strict=True):
        assert_same(actual, expected[step])
    assert_same(tables(trainer), expected[-1])


@pytest.mark.parametrize("batch", [1, 16])
def test_one_or_two_triples_can_be_trained(batch: int) -> None:
    settings = replace(SETTINGS, batch=batch, steps=2)
    for facts in ([(0, 0, 1)], [(0, 0, 0), (1, 0, 2)]):
        trainer = trainer_for(settings, Examples.of(as_triples(facts)))
        run(trainer)
        assert bool(torch.isfinite(trainer.entity).all())


def test_a_batch_whose_weights_underflow_changes_nothing() -> None:
    examples = Examples.of(as_triples([(0, 0, 1)]), np.array([1e-60]))
    trainer = trainer_for(replace(SETTINGS, steps=2), examples)
    before = trainer.entity.clone()
    run(trainer)
    assert torch.equal(trainer.entity, before)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter
def test_a_loss_that_is_not_finite_is_an_error_with_a_remedy() -> None:
    trainer = trainer_for(replace(SETTINGS, learning_rate=3e37, steps=3))
    with pytest.raises(FloatingPointError, match=r"neural\.learning_rate"):
        run(trainer)


def test_unsupported_settings_are_named() -> None:
    examples = some_examples()
    assert unsupported_reason(examples, SETTINGS) is None
    for settings, named in (
        (replace(SETTINGS, model="HolE"), "HolE"),
        (replace(SETTINGS, dropout=0.1), "neural.vectors.dropout"),
        (replace(SETTINGS, recipe="one_vs_all"), "sampled"),
    ):
        assert named in str(unsupported_reason(examples, settings))
    assert "negatives" in str(unsupported_reason(replace(examples, negatives=examples.positives[:1]), SETTINGS))
