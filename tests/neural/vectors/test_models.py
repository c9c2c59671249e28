"""Tests of every geometry and recipe against its plain formula; a new geometry is covered by all of them."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from interrupting import interrupted_at
from plogicnet.graph import IntArray, Side
from plogicnet.neural.protocol import Checkpoint, Examples
from plogicnet.neural.vectors import MODEL_NAMES
from plogicnet.neural.vectors.geometry import Geometry
from plogicnet.neural.vectors.model import VectorModel
from plogicnet.neural.vectors.models import GEOMETRIES, make_geometry
from plogicnet.neural.vectors.settings import VectorSettings
from plogicnet.support.errors import InputError

SIDES: tuple[Side, Side] = ("head", "tail")
Plain = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Geometry], torch.Tensor]


def as_complex(vector: torch.Tensor) -> torch.Tensor:
    d = len(vector) // 2
    return torch.complex(vector[:d], vector[d:])


def transe(h: torch.Tensor, r: torch.Tensor, t: torch.Tensor, g: Geometry) -> torch.Tensor:
    return g.gamma - sum((abs(h[i] + r[i] - t[i]) for i in range(len(h))), torch.zeros(()))


def rotate(h: torch.Tensor, r: torch.Tensor, t: torch.Tensor, g: Geometry) -> torch.Tensor:
    turn = torch.exp(1j * r * math.pi / ((g.gamma + 2) / g.dim))
    return g.gamma - (as_complex(h) * turn - as_complex(t)).abs().sum()


def distmult(h: torch.Tensor, r: torch.Tensor, t: torch.Tensor, _: Geometry) -> torch.Tensor:
    return sum((h[i] * r[i] * t[i] for i in range(len(h))), torch.zeros(()))


def complex_(h: torch.Tensor, r: torch.Tensor, t: torch.Tensor, _: Geometry) -> torch.Tensor:
    return (as_complex(h) * as_complex(r) * as_complex(t).conj()).sum().real


def hole(h: torch.Tensor, r: torch.Tensor, t: torch.Tensor, _: Geometry) -> torch.Tensor:
    d = len(h)
    return sum((r[k] * h[i] * t[(i + k) % d] for i, k in itertools.product(range(d), range(d))), torch.zeros(()))


def conve(h: torch.Tensor, r: torch.Tensor, t: torch.Tensor, g: Geometry) -> torch.Tensor:
    rows = max(n for n in range(1, g.dim + 1) if g.dim % n == 0 and n * n <= g.dim)
    columns = g.dim // rows
    pixels = {}
    for half, vector in enumerate((h[:-1], r)):
        for i in range(g.dim):
            pixels[half * rows + i // columns, i % columns] = vector[i]
    features = []
    for y, x in itertools.product(range(2 * rows), range(columns)):
        seen = g.extra["filter_bias"]
        for dy, dx in itertools.product((-1, 0, 1), (-1, 0, 1)):
            if (y + dy, x + dx) in pixels:
                seen = seen + pixels[y + dy, x + dx] * g.extra["filters"][:, 0, dy + 1, dx + 1]
        features.append(seen * (seen > 0))
    hidden = g.extra["weight"] @ torch.stack(features, dim=1).flatten()
    deviation = hidden - hidden.mean()
    normal = deviation / torch.sqrt((deviation**2).mean() + 1e-5) * g.extra["scale"] + g.extra["shift"]
    return (normal * (normal > 0) * t[:-1]).sum() + t[-1]


PLAIN: dict[str, Plain] = {
    "TransE": transe,
    "RotatE": rotate,
    "DistMult": distmult,
    "ComplEx": complex_,
    "HolE": hole,
    "ConvE": conve,
}
RECIPES = [
    (name, recipe)
    for name, model in GEOMETRIES.items()
    for recipe in ("sampled", "one_vs_all")
    if recipe == "sampled" or model.kernel == "dot"
]
each_model = pytest.mark.parametrize("name", GEOMETRIES)
each_recipe = pytest.mark.parametrize(("name", "recipe"), RECIPES)


def test_every_model_has_a_plain_formula_and_a_registered_name() -> None:
    assert set(GEOMETRIES) == set(PLAIN) == set(MODEL_NAMES)
    assert {type(make_geometry(VectorSettings(model=name))) for name in GEOMETRIES} == set(GEOMETRIES.values())


def numbers(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def geometry_of(name: str, dim: int, kernels: str = "auto") -> Geometry:
    geometry = GEOMETRIES[name](VectorSettings(model=name, dim=dim, gamma=3.5, kernels=kernels))
    extra = geometry.initial_extra(torch.Generator().manual_seed(5))
    # add noise, because many initial parameters are zero or one
    geometry.extra = {
        key: value.double() + 0.1 * numbers(*value.shape, seed=i) for i, (key, value) in enumerate(extra.items())
    }
    return geometry


def plain_of(
    name: str, g: Geometry, known: torch.Tensor, r: torch.Tensor, answer: torch.Tensor, s: Side
) -> torch.Tensor:
    """Return the plain score; a reciprocal model's formula has the known entity first for both sides."""
    return PLAIN[name](known, r, answer, g) if s == "tail" or g.reciprocal else PLAIN[name](answer, r, known, g)


@each_model
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dim", [1, 2, 6, 7])
def test_pair_of_a_query_is_the_plain_formula(name: str, side: Side, dim: int) -> None:
    g = geometry_of(name, dim)
    width, relation_width = g.widths
    known, relation, answer = (
        numbers(2, 3, width, seed=1),
        numbers(2, 3, relation_width, seed=2),
        numbers(2, 3, width, seed=3),
    )
    query = g.query(known, relation, side)
    assert query.shape == known.shape
    got = g.pair(query, answer)
    assert got.shape == (2, 3)
    for i, j in itertools.product(range(2), range(3)):
        expected = plain_of(name, g, known[i, j], relation[i, j], answer[i, j], side)
        assert got[i, j].item() == pytest.approx(expected.item(), abs=1e-9)


@each_model
@pytest.mark.parametrize("kernels", ["auto", "plain"])
@pytest.mark.parametrize("dim", [1, 2, 33])
def test_cross_is_pair_of_every_query_with_every_candidate(name: str, kernels: str, dim: int) -> None:
    g = geometry_of(name, dim, kernels)
    queries, candidates = numbers(2, 5, g.widths[0], seed=4), numbers(2, 7, g.widths[0], seed=5)
    expected = g.pair(queries[:, :, None, :], candidates[:, None, :, :])
    np.testing.assert_allclose(g.cross(queries, candidates).numpy(), expected.numpy(), atol=1e-12)
    np.testing.assert_allclose(g.cross(queries[0], candidates[0]).numpy(), expected[0].numpy(), atol=1e-12)
    single = g.cross(queries.float(), candidates.float())
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single.numpy(), expected.numpy(), atol=1e-4 * dim)
    same = torch.diagonal(g.cross(queries[0], queries[0]))
    np.testing.assert_allclose(same.numpy(), g.pair(queries[0], queries[0]).numpy(), atol=1e-12)


@each_model
@pytest.mark.parametrize("side", SIDES)
def test_gradients_equal_autograd_of_the_plain_formula(name: str, side: Side) -> None:
    g = geometry_of(name, 6)
    width, relation_width = g.widths
    start = [numbers(2, width, seed=1), numbers(2, relation_width, seed=2), numbers(3, width, seed=3)]
    weight = numbers(2, 3, seed=4)
    grads = []
    for way in ("cross", "pair", "plain"):
        known, relation, answer = leaves = [v.clone().requires_grad_() for v in start]
        g.extra = {key: value.detach().requires_grad_() for key, value in g.extra.items()}
        if way == "plain":
            rows = [[plain_of(name, g, k, r, a, side) for a in answer] for k, r in zip(known, relation, strict=True)]
            scores = torch.stack([torch.stack(row) for row in rows])
        else:
            query = g.query(known, relation, side)
            scores = g.cross(query, answer) if way == "cross" else g.pair(query[:, None, :], answer[None, :, :])
        grads.append(torch.autograd.grad((weight * scores).sum(), [*leaves, *g.extra.values()]))
    for cross, pair, plain in zip(*grads, strict=True):
        np.testing.assert_allclose(cross.numpy(), plain.numpy(), atol=1e-9)
        np.testing.assert_allclose(pair.numpy(), plain.numpy(), atol=1e-9)


@each_model
def test_equal_candidates_have_bit_identical_scores(name: str) -> None:
    """Otherwise ties would not be counted as ties."""
    g = geometry_of(name, 37)
    queries, one = numbers(5, g.widths[0], seed=9).float(), numbers(1, g.widths[0], seed=10).float()
    cross = g.cross(queries, one.expand(101, -1).contiguous())
    assert bool((cross == cross[:, :1]).all())


@each_model
def test_a_query_equal_to_its_candidate_has_a_finite_gradient(name: str) -> None:
    """Distances are not differentiable there."""
    g = geometry_of(name, 4)
    for kernel in (g.pair, g.cross):
        point = numbers(1, g.widths[0], seed=1).requires_grad_()
        kernel(point, point.detach().clone()).sum().backward()  # type: ignore[no-untyped-call]
        assert point.grad is not None
        assert bool(torch.isfinite(point.grad).all())


@each_model
def test_initial_vectors_are_small_and_distinct(name: str) -> None:
    g = geometry_of(name, 50)
    table = g.initial((300, 50), torch.Generator().manual_seed(0))
    assert table.shape == (300, 50)
    assert abs(table.mean().item()) < 0.1 * table.std().item()
    assert 0 < table.std().item() < 1
    assert len(np.unique(table.numpy())) > 14_000


@pytest.mark.parametrize("name", [name for name, model in GEOMETRIES.items() if model.kernel != "dot"])
def test_one_vs_all_needs_a_dot_product(name: str) -> None:
    with pytest.raises(InputError, match=r"one_vs_all.*neural\.vectors\.recipe=sampled") as caught:
        VectorModel(3, 1, VectorSettings(model=name, recipe="one_vs_all"))
    assert name in str(caught.value)


@each_model
def test_dimension_zero_is_an_input_error(name: str) -> None:
    with pytest.raises(InputError, match=r"neural\.vectors\.dim must be at least 1, got 0"):
        VectorModel(3, 1, VectorSettings(model=name, dim=0))


ENTITIES, RELATIONS = 12, 2


def toy() -> IntArray:
    """Return a ring with a forward and a backward relation; its last edge has only the forward relation."""
    forwards = [(i, 0, (i + 1) % ENTITIES) for i in range(ENTITIES)]
    return np.array(forwards + [(t, 1, h) for h, _, t in forwards[:-1]], dtype=np.int64)


def model_of(
    name: str, recipe: str, entities: int = ENTITIES, relations: int = RELATIONS, **values: Any
) -> VectorModel:
    fast: dict[str, Any] = {"dim": 12, "gamma": 6.0, "batch": 8, "negatives": 6, "share_negatives": 3, "steps": 12}
    fast |= {"recipe": recipe, "learning_rate": 0.1 if recipe == "one_vs_all" else 0.02}
    return VectorModel(entities, relations, VectorSettings(model=name, **(fast | values)))


def equal(a: VectorModel, b: VectorModel) -> bool:
    return all(torch.equal(p, b.parameters[name]) for name, p in a.parameters.items())


@each_recipe
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_training_is_deterministic_and_changes_all_parameters(name: str, recipe: str, dropout: float) -> None:
    models = [model_of(name, recipe, dropout=dropout, regularization=0.01) for _ in range(4)]
    for i, (model, seed) in enumerate(zip(models, (3, 3, 4, 3), strict=True)):
        torch.manual_seed(i)  # the global state must not matter
        model.fit(Examples.of(toy()), seed)
    initial = model_of(name, recipe, steps=0, dropout=dropout, regularization=0.01)
    initial.fit(Examples.of(toy()), 3)
    assert equal(models[0], models[1])
    assert not equal(models[0], models[2])
    for parameter, p in models[0].parameters.items():
        assert not torch.equal(p, initial.parameters[parameter]), parameter
        assert not p.requires_grad


@each_recipe
def test_training_learns_the_ring(name: str, recipe: str) -> None:
    """DistMult cannot distinguish the directions without reciprocal relations."""
    model = model_of(name, recipe, dim=16, steps=500, batch=23, negatives=12)
    model.fit(Examples.of(toy()), seed=0)
    worst = 3.0 if name == "DistMult" and recipe == "sampled" else 1.5
    for side in SIDES:
        known, answer = (0, 2) if side == "tail" else (2, 0)
        scores = model.score_all(toy()[:, known], toy()[:, 1], side)
        truth = scores[torch.arange(len(toy())), torch.from_numpy(toy()[:, answer].copy())]
        assert (scores >= truth[:, None]).sum(1).double().mean().item() < worst


@each_recipe
def test_score_and_score_all_equal_the_plain_formula(name: str, recipe: str) -> None:
    model = model_of(name, recipe)
    model.fit(Examples.of(toy()), seed=1)
    wide = {key: p.double() for key, p in model.parameters.items()}
    model.geometry.extra = {key: wide[key] for key in model.geometry.extra}
    plain: dict[Side, list[float]] = {
        side: [
            plain_of(
                name,
                model.geometry,
                wide["entity"][h if side == "tail" or not model.geometry.reciprocal else t],
                wide["relation"][r if side == "tail" or not model.geometry.reciprocal else r + RELATIONS],
                wide["entity"][t if side == "tail" or not model.geometry.reciprocal else h],
                "tail",
            ).item()
            for h, r, t in toy().tolist()
        ]
        for side in SIDES
    }
    model.geometry.extra = {key: model.geometry.extra[key].float() for key in model.geometry.extra}
    single = model.score(toy()).numpy()
    np.testing.assert_allclose(single, np.mean([plain["head"], plain["tail"]], axis=0), atol=1e-4)
    for side in SIDES:
        known, answer = (0, 2) if side == "tail" else (2, 0)
        table = model.score_all(toy()[:, known], toy()[:, 1], side)
        assert table.shape == (len(toy()), ENTITIES)
        of_triples = table[np.arange(len(toy())), toy()[:, answer]].numpy()
        np.testing.assert_allclose(of_triples, plain[side], atol=1e-4)
        if not model.geometry.reciprocal:
            np.testing.assert_allclose(of_triples, single, atol=1e-4)


@each_recipe
@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_an_interrupted_training_resumes_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, recipe: str, optimizer: str
) -> None:
    monkeypatch.setattr("plogicnet.neural.optimization.REPORT_EVERY", 1)
    steps = 23
    values: dict[str, Any] = {
        "steps": steps,
        "optimizer": optimizer,
        "validate_every": 4,
        "dropout": 0.1,
        "regularization": 0.01,
    }
    examples = Examples(toy(), np.linspace(0.1, 1, len(toy())), np.array([[0, 0, 5], [3, 1, 9]], dtype=np.int64))

    def fitted(stop: int | None, error: type[BaseException], path: str) -> VectorModel:
        model = model_of(name, recipe, **values)
        model.fit(
            examples,
            7,
            progress=interrupted_at(stop, error),
            validate=lambda: math.sin(1000 * float(model.score(toy()).sum())),  # any step can be the best
            checkpoint=Checkpoint(tmp_path / path, every_steps=3),
        )
        return model

    whole = fitted(None, RuntimeError, "whole")
    stops = np.random.default_rng([ord(c) for c in name + recipe + optimizer]).integers(1, steps, 2)
    for stop, error in zip(stops.tolist(), (RuntimeError, KeyboardInterrupt), strict=True):
        path = error.__name__
        with pytest.raises(error):
            fitted(stop, error, path)
        assert (tmp_path / path).exists() == (stop > 3 or error is KeyboardInterrupt)
        assert equal(fitted(None, error, path), whole)
    assert equal(fitted(None, RuntimeError, "whole"), whole), "a complete training performs no more steps"


@each_recipe
def test_odd_graphs_train_to_finite_numbers(name: str, recipe: str) -> None:
    one = np.array([[0, 0, 1]], dtype=np.int64)
    loop = np.array([[0, 0, 0]], dtype=np.int64)
    full = np.array([(h, 0, t) for h in range(3) for t in range(3)], dtype=np.int64)
    for triples, entities, relations in ((one, 2, 1), (loop, 1, 1), (full, 3, 1), (one, 40, 7)):
        model = model_of(name, recipe, entities, relations, steps=20, negatives=50)
        initial = model_of(name, recipe, entities, relations, steps=0)
        negatives = np.array([[0, 0, 0]], dtype=np.int64)
        for examples in (Examples.of(triples), Examples(triples, np.ones(len(triples)), negatives)):
            model.fit(examples, seed=0)
            initial.fit(examples, seed=0)
            assert all(bool(torch.isfinite(p).all()) for p in model.parameters.values())
            assert bool(torch.isfinite(model.score_all(triples[:, 0], triples[:, 1], "tail")).all())
        if relations > 1:  # an unused relation keeps its initial vector
            assert torch.equal(model.relation[relations - 1], initial.relation[relations - 1])


@each_recipe
def test_no_training_triples_is_an_input_error(name: str, recipe: str) -> None:
    with pytest.raises(InputError, match="train has no triples"):
        model_of(name, recipe).fit(Examples.of(np.empty((0, 3), dtype=np.int64)), seed=0)


@each_recipe
def test_a_loss_that_is_not_finite_is_an_error_with_a_remedy(name: str, recipe: str) -> None:
    model = model_of(name, recipe, learning_rate=3e37, steps=60)
    with pytest.raises(FloatingPointError, match=r"neural\.learning_rate"):
        model.fit(Examples.of(toy()), seed=0)


@each_recipe
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU available")
def test_a_gpu_gives_the_results_of_a_cpu(tmp_path: Path, name: str, recipe: str) -> None:
    """A few steps with the same batches agree up to rounding."""
    cpu = model_of(name, recipe, steps=4, regularization=0.01)
    gpu = VectorModel(ENTITIES, RELATIONS, cpu.settings, "cuda")
    examples = Examples(toy(), np.ones(len(toy())), np.array([[0, 0, 5]], dtype=np.int64))
    for model in (cpu, gpu):
        model.fit(examples, seed=0, checkpoint=Checkpoint(tmp_path / f"{model.device.type}.safetensors"))
    np.testing.assert_allclose(gpu.score(toy()).cpu().numpy(), cpu.score(toy()).numpy(), atol=1e-2)
    gpu.save(tmp_path / "g.safetensors")
    cpu.load(tmp_path / "g.safetensors")
    table = gpu.score_all(toy()[:, 0], toy()[:, 1], "tail")
    assert table.device.type == "cuda"
    np.testing.assert_allclose(table.cpu().numpy(), cpu.score_all(toy()[:, 0], toy()[:, 1], "tail").numpy(), atol=1e-3)
