"""VectorModel: a training step against a loop over triples, determinism, scores, files and errors."""

import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plogicnet.graph import IntArray, Side
from plogicnet.neural.protocol import Examples
from plogicnet.neural.vectors import model as model_module
from plogicnet.neural.vectors.model import VectorModel
from plogicnet.neural.vectors.sampling import Batch, Sampler
from plogicnet.neural.vectors.settings import VectorSettings
from plogicnet.support.errors import InputError

ENTITIES, RELATIONS = 11, 3
SETTINGS = VectorSettings(
    dim=6, gamma=4.0, batch=8, negatives=7, share_negatives=3, steps=12, learning_rate=0.05, adversarial_temperature=0.7
)
SIDES: tuple[Side, Side] = ("head", "tail")


def some_triples(n: int = 25, seed: int = 0) -> IntArray:
    rng = np.random.default_rng(seed)
    every = [(h, r, t) for h in range(ENTITIES) for r in range(RELATIONS) for t in range(ENTITIES)]
    return np.array([every[i] for i in rng.choice(len(every), n, replace=False)], dtype=np.int64)


def some_examples() -> Examples:
    positives = some_triples()
    return Examples.of(positives, np.linspace(0.2, 1.0, len(positives)))


def settings_with(**values: object) -> VectorSettings:
    return replace(SETTINGS, **values)  # type: ignore[arg-type]


def model_with(**values: object) -> VectorModel:
    return VectorModel(ENTITIES, RELATIONS, settings_with(**values))


def test_scores_are_computed_in_full_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = model_with(model="ConvE"), []
    query = model.geometry.query

    def recorded(*arguments: Any) -> torch.Tensor:
        seen.append((torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32))
        return query(*arguments)

    monkeypatch.setattr(model.geometry, "query", recorded)
    one = np.zeros(1, dtype=np.int64)
    model.score(some_triples(2))
    model.score_all(one, one, "tail")
    model.score_answers(one, one, "head")
    assert len(seen) >= 4
    assert set(seen) == {(False, False)}
    assert torch.backends.cudnn.allow_tf32, "the setting is restored"


def sampler_for(examples: Examples, settings: VectorSettings, seed: int) -> Sampler:
    return Sampler(
        examples,
        ENTITIES,
        settings.batch,
        settings.negatives,
        settings.share_negatives,
        seed,
        torch.device("cpu"),
    )


def plain_score(
    entity: torch.Tensor, relation: torch.Tensor, triple: tuple[int, int, int], gamma: float
) -> torch.Tensor:
    h, r, t = triple
    return gamma - (entity[h] + relation[r] - entity[t]).abs().sum()


def log_sigmoid(x: torch.Tensor) -> torch.Tensor:
    return -torch.log1p(torch.exp(-x))


def plain_loss(
    entity: torch.Tensor, relation: torch.Tensor, batch: Batch, positives: IntArray, s: VectorSettings
) -> torch.Tensor:
    """Compute the loss of the paper's appendix in a loop over triples, in float64."""
    known = set(map(tuple, positives.tolist()))
    total, weights = torch.zeros((), dtype=torch.float64), 0.0
    for c in range(batch.known.shape[0]):
        for i in range(batch.known.shape[1]):
            weight = float(batch.weight[c, i])
            if weight == 0:
                continue
            k, r, a = int(batch.known[c, i]), int(batch.relation[c, i]), int(batch.answer[c, i])
            triple = (k, r, a) if batch.side == "tail" else (a, r, k)
            corrupted = [(k, r, e) if batch.side == "tail" else (e, r, k) for e in batch.negative[c].tolist()]
            scores = [plain_score(entity, relation, n, s.gamma) for n in corrupted if n not in known]
            part = -log_sigmoid(plain_score(entity, relation, triple, s.gamma))
            raw = [math.exp(s.adversarial_temperature * float(x.detach())) for x in scores]
            for x, share in zip(scores, raw, strict=True):
                part = part - share / sum(raw) * log_sigmoid(-x)
            total, weights = total + weight * part / 2, weights + weight
    loss = total / weights
    if s.regularization:
        loss = loss + s.regularization * ((entity.abs() ** 3).sum() + (relation.abs() ** 3).sum())
    return loss


@pytest.mark.parametrize("regularization", [0.0, 0.01])
@pytest.mark.parametrize("step", [0, 1, 4, 5])
def test_loss_and_gradient_of_a_step_equal_the_plain_formula(step: int, regularization: float) -> None:
    settings, examples = settings_with(steps=0, regularization=regularization), some_examples()
    model = VectorModel(ENTITIES, RELATIONS, settings)
    model.fit(examples, seed=3)
    sampler = sampler_for(examples, settings, seed=3)
    parameters = [model.entity.requires_grad_(), model.relation.requires_grad_()]
    loss = model._loss(examples, seed=3)(step)
    got = torch.autograd.grad(loss, parameters)
    wide = [p.detach().double().requires_grad_() for p in parameters]
    expected = plain_loss(wide[0], wide[1], sampler.batch(step), examples.positives, settings)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    for a, b in zip(got, torch.autograd.grad(expected, wide), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-6)


@pytest.mark.parametrize("warm", [False, True])
def test_fit_equals_adam_that_restarts_half_way_with_a_tenth_of_the_rate(warm: bool) -> None:
    steps, examples = 6, some_examples()
    start = model_with(steps=0)
    start.fit(examples, seed=1)
    if warm:
        start = model_with(steps=4)
        start.fit(examples, seed=9)
    settings = settings_with(steps=steps)
    model = VectorModel(ENTITIES, RELATIONS, settings)
    model.entity.copy_(start.entity)
    model.relation.copy_(start.relation)
    model.fit(examples, seed=1, warm=warm)

    wide = [p.double().clone().requires_grad_() for p in (start.entity, start.relation)]
    sampler = sampler_for(examples, settings, seed=1)
    first = [torch.zeros_like(p) for p in wide]
    second = [torch.zeros_like(p) for p in wide]
    for step in range(steps):
        rate = settings.learning_rate if step < steps // 2 else settings.learning_rate / 10
        age = step % (steps // 2) + 1
        if age == 1:
            first, second = [torch.zeros_like(p) for p in wide], [torch.zeros_like(p) for p in wide]
        loss = plain_loss(wide[0], wide[1], sampler.batch(step), examples.positives, settings)
        grads = torch.autograd.grad(loss, wide)
        for p, g, m, v in zip(wide, grads, first, second, strict=True):
            m.mul_(0.9).add_(0.1 * g)
            v.mul_(0.999).add_(0.001 * g * g)
            with torch.no_grad():
                p.sub_(rate * (m / (1 - 0.9**age)) / ((v / (1 - 0.999**age)).sqrt() + 1e-8))
    for p, q in zip(wide, (model.entity, model.relation), strict=True):
        np.testing.assert_allclose(q.numpy(), p.detach().numpy(), atol=2e-4)


def test_steps_in_the_second_half_are_small() -> None:
    """Adam's steps are at most about the rate, which falls to a tenth half-way."""
    examples = some_examples()
    before, after = model_with(steps=0), model_with(steps=2)
    before.fit(examples, seed=2)
    after.fit(examples, seed=2)
    moved = (after.entity - before.entity).abs().max().item()
    assert 0.9 * SETTINGS.learning_rate <= moved <= 1.11 * SETTINGS.learning_rate


@pytest.mark.parametrize("threads", [1, 2])
def test_fit_is_deterministic(threads: int) -> None:
    torch.set_num_threads(threads)
    models: list[VectorModel] = []
    for _ in range(2):
        model = VectorModel(ENTITIES, RELATIONS, settings_with(steps=15, dim=33))
        torch.manual_seed(len(models))  # the global state must not matter
        model.fit(some_examples(), seed=7)
        models.append(model)
    assert torch.equal(models[0].entity, models[1].entity)
    assert torch.equal(models[0].relation, models[1].relation)


def test_a_warm_start_continues_from_the_vectors() -> None:
    model = model_with(steps=12)
    model.fit(some_examples(), seed=1)
    entity, relation = model.entity.clone(), model.relation.clone()
    still = model_with(steps=0)
    still.entity.copy_(entity)
    still.relation.copy_(relation)
    still.fit(some_examples(), seed=5, warm=True)
    assert torch.equal(still.entity, entity)
    assert torch.equal(still.relation, relation)
    model.fit(some_examples(), seed=2, warm=True)
    moved = (model.entity - entity).abs().max().item()
    assert 0 < moved <= 12 * 1.5 * SETTINGS.learning_rate


def test_initial_vectors_are_uniform_within_the_bound() -> None:
    model = VectorModel(200, 50, settings_with(steps=0))
    model.fit(Examples.of(some_triples()), seed=0)
    bound = (SETTINGS.gamma + 2) / SETTINGS.dim
    for table in (model.entity, model.relation):
        assert table.abs().max().item() <= bound
        assert table.abs().max().item() > 0.95 * bound
        assert abs(table.mean().item()) < 0.1 * bound
        assert table.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)


def test_positives_rank_first_after_training() -> None:
    chain = np.array([(i, 0, i + 1) for i in range(ENTITIES - 1)], dtype=np.int64)
    model = model_with(steps=400, negatives=20)
    model.fit(Examples.of(chain), seed=0)
    scores = model.score_all(chain[:, 0], chain[:, 1], "tail")
    true = scores[torch.arange(len(chain)), torch.from_numpy(chain[:, 2])]
    assert (scores >= true[:, None]).sum(1).double().mean().item() < 1.5


def test_vectors_have_no_gradient_after_training() -> None:
    model = model_with()
    model.fit(some_examples(), seed=0)
    assert not model.entity.requires_grad
    assert model.entity.grad is None
    assert not model.score(some_triples()).requires_grad


@pytest.mark.parametrize("side", SIDES)
def test_score_equals_the_entry_of_score_all_and_the_formula(side: Side) -> None:
    model = model_with()
    model.fit(some_examples(), seed=4)
    every = np.array(
        [(h, r, t) for h in range(ENTITIES) for r in range(RELATIONS) for t in range(ENTITIES)], dtype=np.int64
    )
    single = model.score(every)
    known, answer = (every[:, 0], every[:, 2]) if side == "tail" else (every[:, 2], every[:, 0])
    table = model.score_all(known, every[:, 1], side)
    assert table.shape == (len(every), ENTITIES)
    np.testing.assert_allclose(table[np.arange(len(every)), answer].numpy(), single.numpy(), atol=1e-5)
    wide = (model.entity.double(), model.relation.double())
    expected = [plain_score(*wide, (h, r, t), SETTINGS.gamma).item() for h, r, t in every.tolist()]
    np.testing.assert_allclose(single.numpy(), expected, atol=1e-5)


def test_scores_in_chunks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_with()
    model.fit(some_examples(), seed=4)
    whole = model.score(some_triples())
    monkeypatch.setitem(model_module.CHUNK_TRIPLES, "cpu", 3)
    np.testing.assert_allclose(model.score(some_triples()).numpy(), whole.numpy(), atol=1e-6)
    assert model.score(np.empty((0, 3), dtype=np.int64)).shape == (0,)
    assert model.score_all(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), "head").shape == (0, ENTITIES)


def test_one_triple_can_be_trained() -> None:
    one = Examples.of(np.array([[0, 0, 1]], dtype=np.int64))
    model = VectorModel(2, 1, settings_with(batch=16, share_negatives=4, steps=20))
    model.fit(one, seed=0)
    assert bool(torch.isfinite(model.entity).all())
    assert bool(torch.isfinite(model.score(one.positives)).all())


def test_one_entity_without_negatives_can_be_trained() -> None:
    one = Examples.of(np.array([[0, 0, 0]], dtype=np.int64))
    model = VectorModel(1, 1, settings_with(steps=20))
    model.fit(one, seed=0)
    assert bool(torch.isfinite(model.score(one.positives)).all())


def test_a_batch_whose_weights_underflow_keeps_vectors_finite() -> None:
    """Soft targets can be arbitrarily small."""
    examples = Examples.of(np.array([[0, 0, 1], [1, 0, 2]], dtype=np.int64), np.array([1.0, 1e-60]))
    model = model_with(batch=1, steps=8)
    model.fit(examples, seed=0)
    assert bool(torch.isfinite(model.entity).all())


def test_read_only_triples_cause_no_warning() -> None:
    triples = some_triples()
    triples.flags.writeable = False
    model = model_with()
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.score_all(triples[:, 0], triples[:, 1], "tail")
            model.fit(Examples.of(triples), seed=0)
            model.score(triples)
    finally:
        torch.set_warn_always(always)


@pytest.mark.parametrize("steps", [2, 3, 60, 120])
def test_a_loss_that_is_not_finite_is_an_error_with_a_remedy(steps: int) -> None:
    model = model_with(steps=steps, learning_rate=3e37, dim=40)
    with pytest.raises(FloatingPointError, match=r"neural\.learning_rate"):
        model.fit(some_examples(), seed=0)
    assert not model.entity.requires_grad


@pytest.mark.parametrize(
    ("entities", "relations", "dim", "named"),
    [
        (ENTITIES - 1, RELATIONS, 6, "entity"),
        (ENTITIES, RELATIONS + 1, 6, "relation"),
        (ENTITIES, RELATIONS, 7, "entity"),
    ],
)
def test_wrong_shapes_are_an_input_error(tmp_path: Path, entities: int, relations: int, dim: int, named: str) -> None:
    model_with().save(tmp_path / "e.safetensors")
    other = VectorModel(entities, relations, settings_with(dim=dim))
    with pytest.raises(InputError, match=named) as caught:
        other.load(tmp_path / "e.safetensors")
    expected = (entities, dim) if named == "entity" else (relations, dim)
    assert str(expected) in str(caught.value)
    assert "e.safetensors" in str(caught.value)


def test_a_failed_load_does_not_change_the_vectors(tmp_path: Path) -> None:
    """The shapes of all tables are checked before any is copied."""
    model_with().save(tmp_path / "e.safetensors")
    other = VectorModel(ENTITIES, RELATIONS + 1, settings_with())
    other.fit(some_examples(), seed=0)
    before = other.entity.clone()
    with pytest.raises(InputError):
        other.load(tmp_path / "e.safetensors")
    assert torch.equal(other.entity, before)


def test_a_missing_cuda_device_is_an_input_error() -> None:
    if torch.cuda.is_available():
        pytest.skip("a GPU is available")
    with pytest.raises(InputError, match="cpu"):
        VectorModel(2, 1, SETTINGS, device="cuda")
