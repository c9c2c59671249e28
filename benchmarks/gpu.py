"""Times of GPU kernels, compared with lower bounds, and of a training step, compared with eager mode and torch.compile.

    python benchmarks/gpu.py --check            compare every kernel with the plain formula in float64, without timing
    python benchmarks/gpu.py --check --quick    the same for small sizes only, for compute-sanitizer
    python benchmarks/gpu.py --quick --out F    time only kernels and fused training steps
    python benchmarks/gpu.py --out F            time everything, including eager mode and torch.compile
    python benchmarks/gpu.py --tune --out F     time tile shapes of the distance and gradient kernels
    python benchmarks/gpu.py --whole --out F    time ranking FB15k's test set, and two EM iterations on WN18RR and FB15k

A part that fails prints its error, and the other parts still run.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from plogicnet import config
from plogicnet.neural.loss import self_adversarial_loss
from plogicnet.neural.protocol import Examples
from plogicnet.neural.vectors.geometry import Geometry
from plogicnet.neural.vectors.models import make_geometry
from plogicnet.neural.vectors.settings import VectorSettings

DEVICE = "cuda"
LANES_PER_SECOND = 132 * 128 * 1.98e9
"""Float32 instructions per second of an H200; reciprocal roots have an eighth of this rate."""
MATRIX_UNITS = 400e12
"""Operations per second of its matrix units in TF32, measured on large products."""
MODELS = ("TransE", "RotatE", "DistMult", "ComplEx")
BANDWIDTH = 4.3e12
"""Bytes read and written per second by a copy on an H200; measured again below."""


@dataclass(frozen=True)
class Case:
    """The sizes of a data set, with settings and random triples."""

    name: str
    entities: int
    relations: int
    triples: int
    settings: VectorSettings

    @property
    def examples(self) -> Examples:
        """Distinct random triples of these sizes."""
        rng = np.random.default_rng(0)
        n, e, r = self.triples, self.entities, self.relations
        keys = np.unique(rng.integers(0, e * r * e, int(n * 1.01) + 10))
        keys = rng.permutation(keys)[:n]
        return Examples.of(np.stack([keys // (r * e), keys // e % r, keys % e], 1).astype(np.int64))

    def tables(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return random initial vectors."""
        generator, geometry = torch.Generator().manual_seed(0), make_geometry(self.settings)
        sizes = zip((self.entities, self.relations), geometry.widths, strict=True)
        entity, relation = (geometry.initial(size, generator).to(DEVICE) for size in sizes)
        return entity, relation


def case(name: str, model: str) -> Case:
    """Return WN18RR's or FB15k's sizes with the paper's settings.

    DistMult has twice the dimension. DistMult and ComplEx have a penalty.
    """
    product = model in ("DistMult", "ComplEx")
    dims = 2 if model == "DistMult" else 1
    if name == "WN18RR":
        s = VectorSettings(model=model, dim=500 * dims, batch=512, negatives=1024, steps=100_000, gamma=6.0)
        size = (40_943, 11, 86_835)
    else:
        s = VectorSettings(model=model, dim=1000 * dims, batch=1024, negatives=256, steps=100_000, gamma=24.0)
        size = (14_951, 1_345, 483_142)
    s = replace(s, gamma=500.0, regularization=2e-6, matmul="tf32") if product else s
    return Case(f"{model} {name} {s.batch}x{s.negatives}x{s.dim}", *size, s)


def small(model: str) -> Case:
    """Return small sizes that do not fill tiles."""
    s = VectorSettings(model=model, dim=37, batch=101, negatives=67, share_negatives=23, gamma=6.0, steps=1000)
    return Case(f"{model} odd sizes", 211, 5, 1_003, s)


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Compute matrix products in TF32 or in full float32, as in training."""
    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


def graph_time(call: Callable[[], object], inner: int = 10, repeats: int = 20) -> float:
    """Return the median seconds of a call, from `inner` calls in a CUDA graph without launch gaps."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(inner):
            call()
    return event_time(graph.replay, repeats) / inner


def event_time(call: Callable[[], object], repeats: int = 20, warm: int = 3) -> float:
    """Return the median seconds of a call, from CUDA events."""
    for _ in range(warm):
        call()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return float(statistics.median(times))


# the plain formula: reference of the checks (float64) and baseline of the timings (float32)


def plain_distance(difference: torch.Tensor, modulus: bool) -> torch.Tensor:
    """Return the distances from differences."""
    if not modulus:
        return difference.abs().sum(-1)
    re, im = difference.chunk(2, dim=-1)
    return (re * re + im * im).sqrt().sum(-1)


def plain_geometry(s: VectorSettings) -> Geometry:
    """Return a model's plain geometry."""
    return make_geometry(replace(s, kernels="plain"))


def plain_loss(
    entity: torch.Tensor,
    relation: torch.Tensor,
    known: torch.Tensor,
    relation_ids: torch.Tensor,
    answer: torch.Tensor,
    weight: torch.Tensor,
    negative: torch.Tensor,
    usable: torch.Tensor,
    s: VectorSettings,
    geometry: Geometry,
    tail: bool,
    cdist: bool = False,
) -> torch.Tensor:
    """Return the self-adversarial loss of a batch in chunks, by broadcasting, cdist or matrix products."""
    query = geometry.query(entity[known], relation[relation_ids], "tail" if tail else "head")
    positive = geometry.pair(query, entity[answer])
    candidates = entity[negative]
    if s.model in ("DistMult", "ComplEx"):
        score = query @ candidates.transpose(-1, -2)
    elif cdist and s.model == "TransE":
        score = s.gamma - torch.cdist(query, candidates, p=1.0)
    else:
        score = s.gamma - plain_distance(query[:, :, None] - candidates[:, None], s.model == "RotatE")
    value = self_adversarial_loss(positive, score, usable, weight, s.adversarial_temperature)
    if s.regularization:
        value = value + s.regularization * (entity.norm(p=3) ** 3 + relation.norm(p=3) ** 3)
    return value


class Plain:
    """A training step with the plain formula on the device, in eager mode or with compiled loss and gradients.

    torch 2.11 failed on an H200 when the draws were compiled too, or when CUDA graphs were used.
    """

    def __init__(self, c: Case, compiled: bool) -> None:
        self.s, self.entities, self.cdist = c.settings, c.entities, not compiled
        self.geometry = plain_geometry(c.settings)
        entity, relation = c.tables()
        self.parameters = [entity.requires_grad_(), relation.requires_grad_()]
        self.adam = torch.optim.Adam(self.parameters, lr=1e-4, fused=True)
        examples = c.examples
        self.positives = torch.from_numpy(examples.positives).to(DEVICE)
        h, r, t = self.positives.unbind(1)
        self.keys = {tail: self.keys_of(h, r, t, tail).sort()[0] for tail in (True, False)}
        self.loss: Callable[..., torch.Tensor] = plain_loss
        if compiled:
            torch._dynamo.reset()  # otherwise earlier shapes count towards its recompilation limit
            self.loss = torch.compile(plain_loss, dynamic=False)
        self.number = 0

    def keys_of(self, h: torch.Tensor, r: torch.Tensor, t: torch.Tensor, tail: bool) -> torch.Tensor:
        """Return sortable keys of triples."""
        known, answer = (h, t) if tail else (t, h)
        return (r * self.entities + known) * self.entities + answer

    def loss_of_batch(self, entity: torch.Tensor, relation: torch.Tensor, tail: bool) -> torch.Tensor:
        """Draw a batch, filter its negatives and return its loss."""
        s = self.s
        chunks = s.batch // s.share_negatives
        rows = torch.randint(len(self.positives), (chunks, s.share_negatives), device=DEVICE)
        h, r, t = self.positives[rows].unbind(-1)
        known, answer = (h, t) if tail else (t, h)
        negative = torch.randint(self.entities, (chunks, s.negatives), device=DEVICE)
        candidate_keys = (r[:, :, None] * self.entities + known[:, :, None]) * self.entities + negative[:, None]
        keys = self.keys[tail]
        usable = keys[torch.searchsorted(keys, candidate_keys).clamp(max=len(keys) - 1)] != candidate_keys
        weight = torch.ones(chunks, s.share_negatives, device=DEVICE)
        return self.loss(
            entity, relation, known, r, answer, weight, negative, usable, s, self.geometry, tail, self.cdist
        )

    def __call__(self) -> None:
        """Perform one step."""
        tail = self.number % 2 == 0
        self.number += 1
        self.adam.zero_grad()
        entity, relation = self.parameters
        self.loss_of_batch(entity, relation, tail).backward()  # type: ignore[no-untyped-call]
        self.adam.step()


# checks


def gap(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Return ‖actual - expected‖ / ‖expected‖; NaN stays NaN."""
    return float((actual.double() - expected).norm() / expected.norm().clamp_min(1e-300))


def check_cross(modulus: bool, lead: tuple[int, ...], n: int, m: int, dim: int) -> str:
    """Compare values and both gradients with float64; uninitialised memory is filled with NaN."""
    from plogicnet.neural.vectors.kernels.cross import l1_cross, modulus_cross

    width = dim * (2 if modulus else 1)
    # values on two disjoint grids: the gradient is undefined at exact ties
    queries = (torch.randn(*lead, n, width) * 1024).round().to(DEVICE) / 1024
    candidates = (torch.randn(*lead, m, width) * 1024).round().to(DEVICE) / 1024 + 1 / 2048
    slope = torch.randn(*lead, n, m).to(DEVICE)
    torch.use_deterministic_algorithms(True, warn_only=True)
    tensors = [x.clone().requires_grad_() for x in (queries, candidates)]
    actual = (modulus_cross if modulus else l1_cross)(*tensors)
    actual.backward(slope)  # type: ignore[no-untyped-call]
    torch.use_deterministic_algorithms(False)
    wide = (queries.double().requires_grad_(), candidates.double().requires_grad_())
    expected = plain_distance(wide[0][..., :, None, :] - wide[1][..., None, :, :], modulus)
    expected.backward(slope.double())  # type: ignore[no-untyped-call]
    worst = float(((actual - expected).abs() / expected.abs()).max().detach())
    gaps = [gap(a.grad, b.grad) for a, b in zip(tensors, wide, strict=True)]  # type: ignore[arg-type]
    verdict = "ok" if worst < 1e-5 and all(g < 1e-4 for g in gaps) else "WRONG"
    return f"{verdict}  worst value {worst:.1e}, gradients {gaps[0]:.1e} {gaps[1]:.1e}"


def check_step(c: Case, step: int) -> str:
    """Compare loss and gradients of a drawn batch with float64 autograd, then Adam with its formula."""
    from plogicnet.neural.vectors.kernels.step import FusedSteps

    entity, relation = c.tables()
    s = replace(c.settings, regularization=0.0)  # the gradients do not include the penalty; `check_waiting` covers it
    trainer = FusedSteps(entity, relation, c.examples, s, seed=1)
    trainer.number.fill_(step)
    trainer.draw()
    trainer.compute_gradients()
    shape = (trainer.chunks, trainer.chunk_size)
    known, relation_ids, answer = (x.long().view(shape) for x in (trainer.known, trainer.relation_ids, trainer.answer))
    negative, tail = trainer.negative.long(), step % 2 == 0
    h, r, t = torch.from_numpy(c.examples.positives).to(DEVICE).unbind(1)
    pair = (h, t) if tail else (t, h)
    keys = ((r * c.entities + pair[0]) * c.entities + pair[1]).sort()[0]
    candidate_keys = (relation_ids[:, :, None] * c.entities + known[:, :, None]) * c.entities + negative[:, None]
    usable = ~torch.isin(candidate_keys, keys)
    wide = (entity.double().requires_grad_(), relation.double().requires_grad_())
    weight = trainer.weight.double().view(shape)
    loss = plain_loss(*wide, known, relation_ids, answer, weight, negative, usable, s, plain_geometry(s), tail)
    loss.backward()  # type: ignore[no-untyped-call]
    gaps = [gap(a, b.grad) for a, b in zip((trainer.d_entity, trainer.d_relation), wide, strict=True)]  # type: ignore[arg-type]
    value = abs(trainer.loss() / loss.item() - 1)
    drawn = set(map(tuple, torch.stack([known, relation_ids, answer], -1).view(-1, 3).tolist()))
    facts = set(map(tuple, c.examples.positives.tolist()))
    real = sum(((k, b, a) if tail else (a, b, k)) in facts for k, b, a in drawn) / len(drawn)
    before, gradient = entity.double(), trainer.d_entity.double()
    trainer.number.add_(1)
    trainer.flush()
    rate, correction = trainer.rates[step].double()
    m, v = 0.1 * gradient, 0.001 * gradient**2
    update = gap(entity - before.float(), -rate * m / (v.sqrt() * correction + 1e-8))
    cleared = float(trainer.d_entity.abs().max()) == 0 and float(trainer.d_relation.abs().max()) == 0
    good = value < 1e-5 and all(g < 1e-4 for g in gaps) and real == 1 and cleared and update < 1e-3
    return (
        f"{'ok' if good else 'WRONG'}  loss {value:.1e}, gradients {gaps[0]:.1e} {gaps[1]:.1e}, Adam {update:.1e},"
        f" positives that are facts {real:.3f}, gradients cleared {cleared}, filtered {int((~usable).sum())}"
    )


def check_tf32(c: Case) -> str:
    """Compare gradients in TF32 with those in full float32, for the same batch."""
    from plogicnet.neural.vectors.kernels.step import FusedSteps

    trainers = [FusedSteps(*c.tables(), c.examples, c.settings, seed=1) for _ in range(2)]
    for trainer, name in zip(trainers, ("float32", "tf32"), strict=True):
        trainer.draw()
        with precision(name):
            trainer.compute_gradients()
    full, rounded = trainers
    gaps = [gap(getattr(rounded, x), getattr(full, x).double()) for x in ("d_entity", "d_relation", "losses")]
    verdict = "ok" if all(g < 1e-2 for g in gaps) else "WRONG"
    return f"{verdict}  gradients {gaps[0]:.1e} {gaps[1]:.1e}, losses {gaps[2]:.1e}"


def run_steps(trainer: Any, steps: int) -> None:
    """Perform some steps; the number of a step only matters for the restart half-way."""
    for _ in range(steps):
        trainer.step(0)


def check_graph(c: Case) -> str:
    """Compare replayed steps with the same steps launched one by one."""
    from plogicnet.neural.vectors.kernels.step import FusedSteps

    trainers = [FusedSteps(*c.tables(), c.examples, c.settings, seed=1) for _ in range(2)]
    run_steps(trainers[0], 33)
    for _ in range(33):
        trainers[1].run_kernels()
    steps = [int(t.number) for t in trainers]
    same = [torch.equal(getattr(trainers[0], name), getattr(trainers[1], name)) for name in ("negative", "known")]
    for trainer in trainers:
        trainer.flush()
    far = (trainers[0].entity - trainers[1].entity).abs()
    losses = [t.loss() for t in trainers]
    good = steps == [33, 33] and all(same) and abs(losses[0] / losses[1] - 1) < 1e-3
    return f"{'ok' if good else 'WRONG'}  steps {steps}, losses {losses}, median gap {float(far.median()):.1e}"


def check_waiting(c: Case) -> str:
    """Compare deferred with immediate updates, over a hundred steps after one gradient."""
    from plogicnet.neural.vectors.kernels.step import FusedSteps

    trainers = [FusedSteps(*c.tables(), c.examples, c.settings, seed=1) for _ in range(2)]
    trainers[0].d_entity.normal_()
    trainers[1].d_entity.copy_(trainers[0].d_entity)
    for _ in range(100):
        for trainer in trainers:
            trainer.number.add_(1)
        trainers[1].flush()
    trainers[0].flush()
    names = ("entity", "entity.mean", "entity.square")
    both = [[t.entity, t.moments["entity.mean"], t.moments["entity.square"]] for t in trainers]
    gaps = {name: float((a - b).abs().max()) for name, a, b in zip(names, *both, strict=True)}
    moved = float((trainers[0].entity - c.tables()[0]).abs().mean())
    good = all(g < 1e-6 for g in gaps.values()) and moved > 0
    return f"{'ok' if good else 'WRONG'}  largest gaps {gaps}, moved {moved:.1e}"


def check_learning(c: Case) -> str:
    """Check that the loss falls in training."""
    from plogicnet.neural.vectors.kernels.step import FusedSteps

    trainer = FusedSteps(*c.tables(), c.examples, c.settings, seed=1)
    run_steps(trainer, 1)
    first = trainer.loss()
    run_steps(trainer, 1499)
    last = trainer.loss()
    return f"{'ok' if math.isfinite(last) and last < first else 'WRONG'}  loss {first:.4f} then {last:.4f}"


def checks(quick: bool) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield all checks by name; with `quick`, only for small sizes."""
    for modulus in (False, True):
        for lead, n, m, dim in (
            ((), 1, 1, 1),
            ((3,), 37, 53, 29),
            ((2, 2), 7, 300, 131),
            ((), 100, 5000, 200),
            ((8,), 64, 1024, 500),
            ((16,), 64, 256, 1000),
            ((511,), 1, 64, 50),
        ):
            if quick and n * m * dim > 1_000_000:
                continue
            name = f"{'modulus' if modulus else 'L1'} {lead} {n}x{m}x{dim}"
            yield name, partial(check_cross, modulus, lead, n, m, dim)
    for model in MODELS:
        for c in (small(model),) if quick else (small(model), case("WN18RR", model), case("FB15k", model)):
            for step in (0, 1):
                yield f"step {step} of {c.name}", partial(check_step, c, step)
            if c.settings.matmul == "tf32":
                yield f"in TF32, step 0 of {c.name}", partial(check_tf32, c)
        yield f"graph of {model}", partial(check_graph, small(model) if quick else case("WN18RR", model))
        yield f"waiting of {model}", partial(check_waiting, small(model) if quick else case("FB15k", model))
        if not quick:
            yield f"learning of {model}", partial(check_learning, case("WN18RR", model))


# timings


def measure_copy() -> dict[str, float]:
    """Return the bytes per second read and written by a large copy."""
    source = torch.randn(1 << 28, device=DEVICE)
    target = torch.empty_like(source)
    seconds = event_time(lambda: target.copy_(source))
    return {"seconds": seconds, "bytes": 2 * source.numel() * 4, "bytes_per_second": 2 * source.numel() * 4 / seconds}


PARTS = {
    "draw": ("draw_kernel",),
    "queries": ("query_kernel",),
    "lay out": ("lay_out_kernel",),
    "compared": ("distance_kernel",),
    "loss": ("loss_kernel",),
    "products": ("void cutlass", "sm80", "sm90", "nvjet", "cutlass", "void gemm", "cublas"),
    "gathered, added": ("void at::native",),
    "spread": ("scatter_kernel",),
    "Adam": ("apply_pending_kernel",),
}


def in_situ(trainer: Any, steps: int = 50) -> dict[str, float]:
    """Return the microseconds per step of each part while whole steps run, from the profiler."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(steps):
            trainer.run_kernels()
        torch.cuda.synchronize()
    spans = sorted(
        (event.time_range.start, event.name, float(event.time_range.elapsed_us()))
        for event in profiler.events()
        if str(event.device_type).endswith("CUDA")
    )
    totals: dict[str, float] = {}
    turn = 0
    for _, kernel, us in spans:
        if kernel.startswith("gradient_kernel"):  # a step launches it for the queries first
            part = ("queries' gradients", "negatives' gradients")[turn % 2]
            turn += 1
        else:
            part = next((p for p, names in PARTS.items() if kernel.startswith(names)), "the rest")
        totals[part] = totals.get(part, 0.0) + us / steps
    return totals


def kernel_rows(c: Case) -> Iterator[tuple[str, Callable[[], dict[str, float]]]]:
    """Yield each kernel's bytes, instructions, lower bound and time, isolated (in a graph) and within whole steps."""
    from plogicnet.neural.vectors.kernels.step import FusedSteps

    trainer = FusedSteps(*c.tables(), c.examples, c.settings, seed=1)
    run_steps(trainer, 200)
    situ = in_situ(trainer)
    trainer.number.sub_(1)  # keep the last step's draws, so that their updates can be repeated
    fresh = int((trainer.since < trainer.number).sum()), int((trainer.since_relation < trainer.number).sum())
    s, comparison = c.settings, trainer.comparison
    product, modulus = s.model in ("DistMult", "ComplEx"), s.model == "RotatE"
    w, b, n = trainer.entity.shape[1], trainer.slots, trainer.negative.numel()
    terms = float(b) * s.negatives * s.dim
    splits, back = len(comparison.out), len(comparison.d_query)
    root = 8 if modulus else 0  # a reciprocal root has an eighth of the rate
    forward_ops, back_ops = (max(5.0, root), max(7.0, root)) if modulus else (2.0, 2.0)
    if product:  # a multiplication and an addition per coordinate, on the matrix units
        forward_ops = back_ops = 2 * w / s.dim * LANES_PER_SECOND / MATRIX_UNITS
    rows: dict[str, tuple[Callable[[], object], float, float]] = {
        "Adam": (trainer.apply_pending, 4.0 * 8 * (fresh[0] * w + fresh[1] * trainer.relation.shape[1]), 0),
        "draw": (trainer.draw, 4.0 * (3 * b + n) * 2, 0),
        "queries": (trainer.make_queries, 4.0 * b * w * 2 + 4.0 * b * s.dim, 0),
        "lay out": (comparison.lay_out, 4.0 * (n + b * (not product)) * w * 2, 0),
        "compared": (comparison.compare, 4.0 * ((n + b) * w + splits * b * s.negatives), terms * forward_ops),
        "loss": (trainer.compute_loss, 4.0 * ((splits + 2) * b * s.negatives), 0),
        "queries' gradients": (
            comparison.query_gradients,
            4.0 * (n * w + b * w * (1 + back) + b * s.negatives),
            terms * back_ops,
        ),
        "negatives' gradients": (
            comparison.negative_gradients,
            4.0 * (n * w * (4 if product else 3) + b * w + b * s.negatives),
            terms * back_ops,
        ),
        "spread": (trainer.scatter_gradients, 4.0 * b * (w * (back + 6) + 2 * s.dim), 0),
    }
    yield "in situ", lambda: {**situ, "sum": sum(situ.values()), "entities_brought": fresh[0]}
    for name, (call, moved, instructions) in rows.items():

        def row(
            name: str = name, call: Callable[[], object] = call, moved: float = moved, ops: float = instructions
        ) -> dict[str, float]:
            floor = max(moved / BANDWIDTH, ops / LANES_PER_SECOND)
            seconds = graph_time(call)
            inside = {"in_situ_us": situ[name]} if name in situ else {}
            measured = situ.get(name, seconds * 1e6)
            return {
                "bytes": moved,
                "instructions": ops,
                "floor_us": floor * 1e6,
                "us": seconds * 1e6,
                **inside,
                "share": floor * 1e6 / measured,
            }

        yield name, row


def step_rows(c: Case, quick: bool) -> Iterator[tuple[str, Callable[[], dict[str, float]]]]:
    """Yield the times of a whole step: fused, and unless `quick` also eager and compiled."""

    def fused() -> dict[str, float]:
        from plogicnet.neural.vectors.kernels.step import FusedSteps

        trainer = FusedSteps(*c.tables(), c.examples, c.settings, seed=1)
        run_steps(trainer, 101)
        seconds = [event_time(lambda: run_steps(trainer, 200), repeats=5, warm=1) / 200 for _ in range(2)]
        return {"us": seconds[0] * 1e6, "us_again": seconds[1] * 1e6, "loss": trainer.loss()}

    def plain(compiled: bool) -> dict[str, float]:
        step, start = Plain(c, compiled), time.perf_counter()
        for _ in range(4):
            step()
        torch.cuda.synchronize()
        built = time.perf_counter() - start
        return {"us": event_time(step, repeats=30, warm=4) * 1e6, "build_s": built}

    yield "fused", fused
    if not quick:
        yield "eager", lambda: plain(False)
        yield "torch.compile", lambda: plain(True)


def measure_ranking(modulus: bool) -> dict[str, float]:
    """Time 2,048 queries against FB15k's entities at dimension 1000; the whole test set has 118,142 queries."""
    from plogicnet.neural.vectors.kernels.cross import l1_cross, modulus_cross

    width = 2000 if modulus else 1000
    queries, entities = torch.randn(2048, width, device=DEVICE), torch.randn(14_951, width, device=DEVICE)
    call = modulus_cross if modulus else l1_cross
    seconds = event_time(lambda: call(queries, entities), repeats=5)
    floor = 2048 * 14_951 * 1000 * (8 if modulus else 2) / LANES_PER_SECOND
    return {
        "us": seconds * 1e6,
        "floor_us": floor * 1e6,
        "share": floor / seconds,
        "all_queries_s": seconds * 118_142 / 2048,
    }


def measure_test_set() -> dict[str, float]:
    """Time ranking FB15k's test set as `evaluate` does, with mined rules and random vectors of dimension 1000."""
    from plogicnet.evaluation.ranking import rank
    from plogicnet.graph import open_graph
    from plogicnet.grounding.rulebook import collect_rules
    from plogicnet.training.em import initial_state
    from plogicnet.training.hooks import Hooks
    from plogicnet.training.selection import ranking_orders

    graph, settings = open_graph("fb15k"), config.Config(device="cuda").with_preset("paper/fb15k-transe")
    mined = collect_rules(graph, settings, [])
    start = initial_state(graph, settings, mined.rules, mined.constraints, Hooks())
    scores = start.rule_model.scores(graph)
    model: Any = start.neural
    model.entity.uniform_(-0.026, 0.026)
    seconds = {}
    for name, compared in (
        ("neural", {"neural": ranking_orders(settings, 0.5)["neural"]}),
        ("all", ranking_orders(settings, 0.5)),
    ):
        for attempt in ("first", "again"):
            torch.cuda.synchronize()
            began = time.perf_counter()
            rank(graph, "test", model, scores, compared)
            seconds[f"{name}_{attempt}_s"] = time.perf_counter() - began
    return seconds


def measure_whole(name: str) -> dict[str, Any]:
    """Time two EM iterations with the paper's preset, from loading the graph to writing the run."""
    from plogicnet import PLogicNet
    from plogicnet.graph import open_graph

    settings = config.Config(device="cuda", seed=1).with_preset(f"paper/{name}-transe")
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        model = PLogicNet(settings).fit(open_graph(name), out=f"{folder}/run")
        seconds = time.perf_counter() - began
    test: Any = model.metrics["test"]
    mrr = {system: test[system]["mrr"] for system in ("neural", "rules", "plogicnet", "plogicnet*")}
    return {"seconds": seconds, **{f"{k}_s": v for k, v in model.seconds.items()}, "mrr": mrr, "seed": 1}


def tune_rows(c: Case) -> Iterator[tuple[str, Callable[[], dict[str, float]]]]:
    """Yield the times of tile shapes for the three slowest kernels."""
    from plogicnet.neural.vectors.kernels.cross import Backward, Forward, Tiling
    from plogicnet.neural.vectors.kernels.step import FusedSteps

    trainer = FusedSteps(*c.tables(), c.examples, c.settings, seed=1)
    trainer.run_kernels()
    comparison: Any = trainer.comparison
    s, modulus, device = c.settings, c.settings.model == "RotatE", trainer.entity.device
    for tile in (32, 64):
        for groups in (2, 4):
            for splits in (8, 16):
                for registers in (None, 128):

                    def forward(a: Any = (tile, groups, splits, registers)) -> dict[str, float]:
                        call = Forward(
                            trainer.chunks, trainer.chunk_size, s.negatives, s.dim, modulus, device, Tiling(*a)
                        )
                        call.lay_out(trainer.query, None, call.queries, trainer.chunk_size)
                        call.lay_out(trainer.entity, trainer.negative, call.candidates, s.negatives)
                        return {"us": graph_time(call.distances, repeats=7) * 1e6}

                    yield f"distances tile {tile} groups {groups} splits {splits} registers {registers}", forward
    for tile in (32, 64):
        for groups in (2, 4):
            for registers in (None, 128):

                def negatives(a: Any = (tile, groups, 1, registers)) -> dict[str, float]:
                    comparison.to_negatives = Backward(
                        trainer.chunks, s.negatives, trainer.chunk_size, s.dim, modulus, Tiling(*a)
                    )
                    return {"us": graph_time(comparison.negative_gradients, repeats=7) * 1e6}

                yield f"negatives' gradients tile {tile} groups {groups} registers {registers}", negatives
                for splits in (8, 16):

                    def queries(a: Any = (tile, groups, splits, registers)) -> dict[str, float]:
                        comparison.to_queries = Backward(
                            trainer.chunks, trainer.chunk_size, s.negatives, s.dim, modulus, Tiling(*a)
                        )
                        comparison.d_query = torch.empty(
                            comparison.to_queries.splits, *trainer.query.shape, device=device
                        )
                        return {"us": graph_time(comparison.query_gradients, repeats=7) * 1e6}

                    yield (
                        f"queries' gradients tile {tile} groups {groups} splits {splits} registers {registers}",
                        queries,
                    )


class Results:
    """The results so far; a failed part is recorded with its error."""

    def __init__(self, out: Path | None) -> None:
        self.out, self.rows, self.failed = out, dict[str, Any](), 0

    def add(self, name: str, call: Callable[[], Any]) -> Any:
        """Run one part, print it and write all results so far."""
        start = time.perf_counter()
        try:
            value = call()
        except Exception as error:  # one failed part must not stop the others: GPU time is short
            value = {"error": f"{type(error).__name__}: {error}"[:2000]}
            self.failed += 1
            traceback.print_exc(limit=-4)
        if isinstance(value, dict):
            shown = ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in value.items())
        else:
            shown = str(value)
            self.failed += "WRONG" in shown
        print(f"{name:58} {shown}  ({time.perf_counter() - start:.1f} s)", flush=True)
        self.rows[name] = value
        if self.out:
            self.out.write_text(json.dumps(self.rows, indent=1) + "\n")
        return value

    def all(self, prefix: str, make: Callable[[], Iterator[tuple[str, Callable[[], Any]]]]) -> None:
        """Run all parts of an iterator; an error in the iterator itself is recorded too."""

        def run_all() -> dict[str, int]:
            count = 0
            for name, call in make():
                self.add(f"{prefix}{name}", call)
                count += 1
            return {"parts": count}

        self.add(f"{prefix}all", run_all)


def table(rows: dict[str, Any]) -> None:
    """Print a summary of the timings."""
    print(f"\n{'':58} {'MB':>8} {'bound µs':>9} {'µs':>9} {'in step':>9} {'share':>6}")
    for name, row in rows.items():
        if isinstance(row, dict) and "us" in row:
            moved = f"{row['bytes'] / 1e6:8.1f}" if "bytes" in row else " " * 8
            floor = f"{row['floor_us']:9.1f}" if "floor_us" in row else " " * 9
            share = f"{row['share']:6.2f}" if "share" in row else ""
            situ = f"{row['in_situ_us']:9.1f}" if "in_situ_us" in row else " " * 9
            print(f"{name:58} {moved} {floor} {row['us']:9.1f} {situ} {share}")


def main() -> int:
    """Run the selected parts. Return 1 if any failed, 2 without a CUDA device."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("check", "quick", "tune", "whole"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device is available")
        return 2
    results = Results(args.out)
    results.rows["device"] = torch.cuda.get_device_name()
    results.rows["torch"] = torch.__version__
    print(results.rows)
    torch.manual_seed(int(time.time()))
    cases = [case(name, model) for model in args.models for name in ("WN18RR", "FB15k")]
    if args.check:
        results.all("check: ", partial(checks, args.quick))
    elif args.tune:
        for c in (c for c in cases if c.settings.model in ("TransE", "RotatE")):
            results.all(f"tune: {c.name}: ", partial(tune_rows, c))
        for c in (c for c in cases if c.settings.model in ("TransE", "RotatE")):
            for kernel in ("distances", "queries' gradients", "negatives' gradients"):
                prefix = f"tune: {c.name}: {kernel}"
                timed = {k: v["us"] for k, v in results.rows.items() if k.startswith(prefix) and "us" in v}
                for name in sorted(timed, key=timed.__getitem__)[:3]:
                    print(f"best: {name} {timed[name]:.1f} µs")
    elif args.whole:
        results.add("ranking FB15k's test set", measure_test_set)
        for name, limit in (("wn18rr", 120), ("fb15k", 300)):
            results.add(f"whole {name}, limit {limit} s", partial(measure_whole, name))
    else:
        results.add("copy", measure_copy)
        for c in cases:
            with precision(c.settings.matmul):
                results.all(f"{c.name}: ", partial(kernel_rows, c))
                results.all(f"{c.name}: step, ", partial(step_rows, c, args.quick))
        for modulus in (False, True)[: len(args.models)]:
            results.add(f"ranking, {'modulus' if modulus else 'L1'} 2048x14951x1000", partial(measure_ranking, modulus))
        table(results.rows)
    print(f"{results.failed} failed")
    return int(results.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
