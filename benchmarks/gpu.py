"""The GPU kernels: checked against float64, timed beside their floors, a training step beside eager and torch.compile.

    python benchmarks/gpu.py --check            every kernel against the plain formula, no timing
    python benchmarks/gpu.py --check --quick    the same for small sizes alone, as compute-sanitizer can bear them
    python benchmarks/gpu.py --quick --out F    kernels and fused steps only
    python benchmarks/gpu.py --out F            all of it, with eager and torch.compile
    python benchmarks/gpu.py --tune --out F     tile shapes of the distance and gradient kernels
    python benchmarks/gpu.py --whole --out F    ranking FB15k's test set, and two EM iterations on WN18RR and FB15k

A part that fails prints its error and the rest goes on. Needs src on PYTHONPATH, or an installed plogicnet.
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
from plogicnet.neural.protocol import Examples
from plogicnet.neural.vectors.geometry import Geometry
from plogicnet.neural.vectors.loss import self_adversarial_loss
from plogicnet.neural.vectors.models import make_geometry
from plogicnet.neural.vectors.settings import VectorSettings

DEVICE = "cuda"
LANES_A_SECOND = 132 * 128 * 1.98e9
"""Float32 instructions of an H200; reciprocal roots are made at an eighth of it."""
MATRIX_UNITS = 400e12
"""Operations a second of its matrix units in TF32, as they come out in large products."""
MODELS = ("TransE", "RotatE", "DistMult", "ComplEx")
BANDWIDTH = 4.3e12
"""Bytes copied a second on one, read and written; measured again below."""


@dataclass(frozen=True)
class Case:
    """Sizes of a data set with its settings; triples are drawn at random."""

    name: str
    entities: int
    relations: int
    triples: int
    settings: VectorSettings

    @property
    def examples(self) -> Examples:
        """Random distinct triples of these sizes."""
        rng = np.random.default_rng(0)
        n, e, r = self.triples, self.entities, self.relations
        keys = np.unique(rng.integers(0, e * r * e, int(n * 1.01) + 10))
        keys = rng.permutation(keys)[:n]
        return Examples.of(np.stack([keys // (r * e), keys // e % r, keys % e], 1).astype(np.int64))

    def tables(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Random vectors as training begins with."""
        generator, geometry = torch.Generator().manual_seed(0), make_geometry(self.settings)
        sizes = zip((self.entities, self.relations), geometry.widths, strict=True)
        entity, relation = (geometry.initial(size, generator).to(DEVICE) for size in sizes)
        return entity, relation


def case(name: str, model: str) -> Case:
    """WN18RR's or FB15k's sizes with the paper's settings: DistMult has twice the dimensions, and both a penalty."""
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
    """Sizes that are multiples of nothing."""
    s = VectorSettings(model=model, dim=37, batch=101, negatives=67, share_negatives=23, gamma=6.0, steps=1000)
    return Case(f"{model} odd sizes", 211, 5, 1_003, s)


@contextmanager
def precision(of: str) -> Iterator[None]:
    """Matrix products in TF32 or in full float32, as a training would have them."""
    torch.backends.cuda.matmul.allow_tf32 = of == "tf32"
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


def graph_time(call: Callable[[], object], inner: int = 10, repeats: int = 20) -> float:
    """Median seconds of a call: so many in a captured graph, so that launching them leaves no gaps."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(inner):
            call()
    return event_time(graph.replay, repeats) / inner


def event_time(call: Callable[[], object], repeats: int = 20, warm: int = 3) -> float:
    """Median seconds between events around a call."""
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


# the plain formula: reference of the checks (float64) and peer of the timings (float32)


def plain_distance(apart: torch.Tensor, modulus: bool) -> torch.Tensor:
    """The distance of given differences."""
    if not modulus:
        return apart.abs().sum(-1)
    re, im = apart.chunk(2, dim=-1)
    return (re * re + im * im).sqrt().sum(-1)


def plain_geometry(s: VectorSettings) -> Geometry:
    """A model's formula."""
    return make_geometry(replace(s, kernels="plain"))


def plain_loss(
    entity: torch.Tensor,
    relation: torch.Tensor,
    known: torch.Tensor,
    between: torch.Tensor,
    answer: torch.Tensor,
    weight: torch.Tensor,
    negative: torch.Tensor,
    usable: torch.Tensor,
    s: VectorSettings,
    geometry: Geometry,
    tail: bool,
    cdist: bool = False,
) -> torch.Tensor:
    """The self-adversarial loss of a batch in chunks, by broadcasting (or cdist), or by matrix products."""
    query = geometry.query(entity[known], relation[between], "tail" if tail else "head")
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
    """A training step by the plain formula, all of it on the device, in eager mode or its loss and gradients compiled.

    Compiled together with the draws, or as CUDA graphs, torch 2.11 stopped with an error of its own on an H200.
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
            torch._dynamo.reset()  # else the shapes of earlier cases use up its limit
            self.loss = torch.compile(plain_loss, dynamic=False)
        self.number = 0

    def keys_of(self, h: torch.Tensor, r: torch.Tensor, t: torch.Tensor, tail: bool) -> torch.Tensor:
        """Sortable keys of triples."""
        known, answer = (h, t) if tail else (t, h)
        return (r * self.entities + known) * self.entities + answer

    def loss_of_batch(self, entity: torch.Tensor, relation: torch.Tensor, tail: bool) -> torch.Tensor:
        """Draws a batch, filters its negatives, and scores it."""
        s = self.s
        chunks = s.batch // s.share_negatives
        rows = torch.randint(len(self.positives), (chunks, s.share_negatives), device=DEVICE)
        h, r, t = self.positives[rows].unbind(-1)
        known, answer = (h, t) if tail else (t, h)
        negative = torch.randint(self.entities, (chunks, s.negatives), device=DEVICE)
        wanted = (r[:, :, None] * self.entities + known[:, :, None]) * self.entities + negative[:, None]
        keys = self.keys[tail]
        usable = keys[torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)] != wanted
        weight = torch.ones(chunks, s.share_negatives, device=DEVICE)
        return self.loss(
            entity, relation, known, r, answer, weight, negative, usable, s, self.geometry, tail, self.cdist
        )

    def __call__(self) -> None:
        """One step."""
        tail = self.number % 2 == 0
        self.number += 1
        self.adam.zero_grad()
        entity, relation = self.parameters
        self.loss_of_batch(entity, relation, tail).backward()  # type: ignore[no-untyped-call]
        self.adam.step()


# checks


def gap(found: torch.Tensor, expected: torch.Tensor) -> float:
    """‖found - expected‖ / ‖expected‖; a number that is none stays none."""
    return float((found.double() - expected).norm() / expected.norm().clamp_min(1e-300))


def check_cross(modulus: bool, lead: tuple[int, ...], n: int, m: int, dim: int) -> str:
    """Values and both gradients against float64, uninitialised memory filled with NaN."""
    from plogicnet.neural.vectors.kernels.cross import l1_cross, modulus_cross

    width = dim * (2 if modulus else 1)
    # on two lattices that never meet: the sign of an exact tie is nobody's
    queries = (torch.randn(*lead, n, width) * 1024).round().to(DEVICE) / 1024
    candidates = (torch.randn(*lead, m, width) * 1024).round().to(DEVICE) / 1024 + 1 / 2048
    slope = torch.randn(*lead, n, m).to(DEVICE)
    torch.use_deterministic_algorithms(True, warn_only=True)
    own = [x.clone().requires_grad_() for x in (queries, candidates)]
    found = (modulus_cross if modulus else l1_cross)(*own)
    found.backward(slope)  # type: ignore[no-untyped-call]
    torch.use_deterministic_algorithms(False)
    wide = (queries.double().requires_grad_(), candidates.double().requires_grad_())
    expected = plain_distance(wide[0][..., :, None, :] - wide[1][..., None, :, :], modulus)
    expected.backward(slope.double())  # type: ignore[no-untyped-call]
    worst = float(((found - expected).abs() / expected.abs()).max().detach())
    gaps = [gap(a.grad, b.grad) for a, b in zip(own, wide, strict=True)]  # type: ignore[arg-type]
    verdict = "ok" if worst < 1e-5 and all(g < 1e-4 for g in gaps) else "WRONG"
    return f"{verdict}  worst value {worst:.1e}, gradients {gaps[0]:.1e} {gaps[1]:.1e}"


def check_step(c: Case, step: int) -> str:
    """Loss and gradients of a drawn batch against float64 autograd, then Adam against torch's."""
    from plogicnet.neural.vectors.kernels.step import FusedSteps

    entity, relation = c.tables()
    s = replace(c.settings, regularization=0.0)  # it is no part of the drawn gradients; `waiting` has it
    trainer = FusedSteps(entity, relation, c.examples, s, seed=1)
    trainer.number.fill_(step)
    trainer.draw()
    trainer.learn()
    shape = (trainer.chunks, trainer.share)
    known, between, answer = (x.long().view(shape) for x in (trainer.known, trainer.between, trainer.answer))
    negative, tail = trainer.negative.long(), step % 2 == 0
    h, r, t = torch.from_numpy(c.examples.positives).to(DEVICE).unbind(1)
    pair = (h, t) if tail else (t, h)
    keys = ((r * c.entities + pair[0]) * c.entities + pair[1]).sort()[0]
    wanted = (between[:, :, None] * c.entities + known[:, :, None]) * c.entities + negative[:, None]
    usable = ~torch.isin(wanted, keys)
    wide = (entity.double().requires_grad_(), relation.double().requires_grad_())
    weight = trainer.weight.double().view(shape)
    loss = plain_loss(*wide, known, between, answer, weight, negative, usable, s, plain_geometry(s), tail)
    loss.backward()  # type: ignore[no-untyped-call]
    gaps = [gap(a, b.grad) for a, b in zip((trainer.d_entity, trainer.d_relation), wide, strict=True)]  # type: ignore[arg-type]
    value = abs(trainer.loss() / loss.item() - 1)
    drawn = set(map(tuple, torch.stack([known, between, answer], -1).view(-1, 3).tolist()))
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
    """How far gradients by the matrix units are from those in full float32, of the same batch."""
    from plogicnet.neural.vectors.kernels.step import FusedSteps

    trainers = [FusedSteps(*c.tables(), c.examples, c.settings, seed=1) for _ in range(2)]
    for trainer, of in zip(trainers, ("float32", "tf32"), strict=True):
        trainer.draw()
        with precision(of):
            trainer.learn()
    full, rounded = trainers
    gaps = [gap(getattr(rounded, x), getattr(full, x).double()) for x in ("d_entity", "d_relation", "losses")]
    verdict = "ok" if all(g < 1e-2 for g in gaps) else "WRONG"
    return f"{verdict}  gradients {gaps[0]:.1e} {gaps[1]:.1e}, losses {gaps[2]:.1e}"


def taken(trainer: Any, steps: int) -> None:
    """Takes so many steps; what number they have matters only for the fall of the rate."""
    for _ in range(steps):
        trainer.step(0)


def check_graph(c: Case) -> str:
    """Replayed steps against the same steps launched one by one."""
    from plogicnet.neural.vectors.kernels.step import FusedSteps

    trainers = [FusedSteps(*c.tables(), c.examples, c.settings, seed=1) for _ in range(2)]
    taken(trainers[0], 33)
    for _ in range(33):
        trainers[1].one()
    steps = [int(t.number) for t in trainers]
    same = [torch.equal(getattr(trainers[0], name), getattr(trainers[1], name)) for name in ("negative", "known")]
    for trainer in trainers:
        trainer.flush()
    far = (trainers[0].entity - trainers[1].entity).abs()
    losses = [t.loss() for t in trainers]
    good = steps == [33, 33] and all(same) and abs(losses[0] / losses[1] - 1) < 1e-3
    return f"{'ok' if good else 'WRONG'}  steps {steps}, losses {losses}, median gap {float(far.median()):.1e}"


def check_waiting(c: Case) -> str:
    """Updates put off against updates made at once, from one gradient on and through a hundred steps without any."""
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
    """The loss falls in training."""
    from plogicnet.neural.vectors.kernels.step import FusedSteps

    trainer = FusedSteps(*c.tables(), c.examples, c.settings, seed=1)
    taken(trainer, 1)
    first = trainer.loss()
    taken(trainer, 1499)
    last = trainer.loss()
    return f"{'ok' if math.isfinite(last) and last < first else 'WRONG'}  loss {first:.4f} then {last:.4f}"


def checks(quick: bool) -> Iterator[tuple[str, Callable[[], object]]]:
    """All checks by name; of small sizes alone, if quick."""
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
    """Bytes a second of a large copy, read and written."""
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
    "spread": ("spread_kernel",),
    "Adam": ("bring_kernel",),
}


def in_situ(trainer: Any, steps: int = 50) -> dict[str, float]:
    """Microseconds a step of each part while whole steps run one after the other, by the profiler."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(steps):
            trainer.one()
        torch.cuda.synchronize()
    spans = sorted(
        (event.time_range.start, event.name, float(event.time_range.elapsed_us()))
        for event in profiler.events()
        if str(event.device_type).endswith("CUDA")
    )
    totals: dict[str, float] = {}
    turn = 0
    for _, kernel, us in spans:
        if kernel.startswith("gradient_kernel"):  # a step's first is the queries'
            part = ("queries' gradients", "negatives' gradients")[turn % 2]
            turn += 1
        else:
            part = next((p for p, names in PARTS.items() if kernel.startswith(names)), "the rest")
        totals[part] = totals.get(part, 0.0) + us / steps
    return totals


def kernel_rows(c: Case) -> Iterator[tuple[str, Callable[[], dict[str, float]]]]:
    """Each kernel of a step: bytes, instructions, floor and time, alone (in a graph of repeats) and in situ."""
    from plogicnet.neural.vectors.kernels.step import FusedSteps

    trainer = FusedSteps(*c.tables(), c.examples, c.settings, seed=1)
    taken(trainer, 200)
    situ = in_situ(trainer)
    trainer.number.sub_(1)  # the last step's draws stand, and may be brought again and again
    fresh = int((trainer.since < trainer.number).sum()), int((trainer.since_relation < trainer.number).sum())
    s, of = c.settings, trainer.comparison
    product, modulus = s.model in ("DistMult", "ComplEx"), s.model == "RotatE"
    w, b, n = trainer.entity.shape[1], trainer.slots, trainer.negative.numel()
    terms = float(b) * s.negatives * s.dim
    splits, back = len(of.out), len(of.d_query)
    root = 8 if modulus else 0  # a reciprocal root is made at an eighth of the rate
    forward_ops, back_ops = (max(5.0, root), max(7.0, root)) if modulus else (2.0, 2.0)
    if product:  # a multiplication and an addition of each coordinate, in the matrix units' own time
        forward_ops = back_ops = 2 * w / s.dim * LANES_A_SECOND / MATRIX_UNITS
    rows: dict[str, tuple[Callable[[], object], float, float]] = {
        "Adam": (trainer.bring, 4.0 * 8 * (fresh[0] * w + fresh[1] * trainer.relation.shape[1]), 0),
        "draw": (trainer.draw, 4.0 * (3 * b + n) * 2, 0),
        "queries": (trainer.make_queries, 4.0 * b * w * 2 + 4.0 * b * s.dim, 0),
        "lay out": (of.lay_out, 4.0 * (n + b * (not product)) * w * 2, 0),
        "compared": (of.compare, 4.0 * ((n + b) * w + splits * b * s.negatives), terms * forward_ops),
        "loss": (trainer.weigh, 4.0 * ((splits + 2) * b * s.negatives), 0),
        "queries' gradients": (
            of.learn_queries,
            4.0 * (n * w + b * w * (1 + back) + b * s.negatives),
            terms * back_ops,
        ),
        "negatives' gradients": (
            of.learn_negatives,
            4.0 * (n * w * (4 if product else 3) + b * w + b * s.negatives),
            terms * back_ops,
        ),
        "spread": (trainer.spread, 4.0 * b * (w * (back + 6) + 2 * s.dim), 0),
    }
    yield "in situ", lambda: {**situ, "sum": sum(situ.values()), "entities_brought": fresh[0]}
    for name, (call, moved, instructions) in rows.items():

        def row(
            name: str = name, call: Callable[[], object] = call, moved: float = moved, ops: float = instructions
        ) -> dict[str, float]:
            floor = max(moved / BANDWIDTH, ops / LANES_A_SECOND)
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
    """A whole step: fused, and (unless quick) by the plain formula, eager and compiled."""

    def fused() -> dict[str, float]:
        from plogicnet.neural.vectors.kernels.step import FusedSteps

        trainer = FusedSteps(*c.tables(), c.examples, c.settings, seed=1)
        taken(trainer, 101)
        seconds = [event_time(lambda: taken(trainer, 200), repeats=5, warm=1) / 200 for _ in range(2)]
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
    """2,048 queries against FB15k's entities at dim 1000; the whole test set has 118,142 queries."""
    from plogicnet.neural.vectors.kernels.cross import l1_cross, modulus_cross

    width = 2000 if modulus else 1000
    queries, entities = torch.randn(2048, width, device=DEVICE), torch.randn(14_951, width, device=DEVICE)
    call = modulus_cross if modulus else l1_cross
    seconds = event_time(lambda: call(queries, entities), repeats=5)
    floor = 2048 * 14_951 * 1000 * (8 if modulus else 2) / LANES_A_SECOND
    return {
        "us": seconds * 1e6,
        "floor_us": floor * 1e6,
        "share": floor / seconds,
        "all_queries_s": seconds * 118_142 / 2048,
    }


def measure_test_set() -> dict[str, float]:
    """All of `evaluate`'s ranking: FB15k's test set, both sides, four systems, rules mined, random vectors of 1000."""
    from plogicnet.evaluation.ranking import rank
    from plogicnet.graph import open_graph
    from plogicnet.grounding.rulebook import find_rules
    from plogicnet.training.em import begin
    from plogicnet.training.hooks import Hooks
    from plogicnet.training.selection import rankings

    graph, settings = open_graph("fb15k"), config.Config(device="cuda").with_preset("paper/fb15k-transe")
    found = find_rules(graph, settings, [])
    start = begin(graph, settings, found.rules, found.constraints, Hooks())
    scores = start.rule_model.scores(graph)
    model: Any = start.neural
    model.entity.uniform_(-0.026, 0.026)
    seconds = {}
    for name, compared in (
        ("neural", {"neural": rankings(settings, 0.5)["neural"]}),
        ("all", rankings(settings, 0.5)),
    ):
        for attempt in ("first", "again"):
            torch.cuda.synchronize()
            began = time.perf_counter()
            rank(graph, "test", model, scores, compared)
            seconds[f"{name}_{attempt}_s"] = time.perf_counter() - began
    return seconds


def measure_whole(name: str) -> dict[str, Any]:
    """Two EM iterations with the paper's preset: reading, mining, training, evaluation on valid and test, all files."""
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
    """Tile shapes of the three heavy kernels."""
    from plogicnet.neural.vectors.kernels.cross import Backward, Forward, Tiling
    from plogicnet.neural.vectors.kernels.step import FusedSteps

    trainer = FusedSteps(*c.tables(), c.examples, c.settings, seed=1)
    trainer.one()
    of: Any = trainer.comparison
    s, modulus, device = c.settings, c.settings.model == "RotatE", trainer.entity.device
    for tile in (32, 64):
        for groups in (2, 4):
            for splits in (8, 16):
                for registers in (None, 128):

                    def forward(a: Any = (tile, groups, splits, registers)) -> dict[str, float]:
                        call = Forward(trainer.chunks, trainer.share, s.negatives, s.dim, modulus, device, Tiling(*a))
                        call.lay_out(trainer.query, None, call.queries, trainer.share)
                        call.lay_out(trainer.entity, trainer.negative, call.candidates, s.negatives)
                        return {"us": graph_time(call.distances, repeats=7) * 1e6}

                    yield f"distances tile {tile} groups {groups} splits {splits} registers {registers}", forward
    for tile in (32, 64):
        for groups in (2, 4):
            for registers in (None, 128):

                def negatives(a: Any = (tile, groups, 1, registers)) -> dict[str, float]:
                    of.to_negatives = Backward(trainer.chunks, s.negatives, trainer.share, s.dim, modulus, Tiling(*a))
                    return {"us": graph_time(of.learn_negatives, repeats=7) * 1e6}

                yield f"negatives' gradients tile {tile} groups {groups} registers {registers}", negatives
                for splits in (8, 16):

                    def queries(a: Any = (tile, groups, splits, registers)) -> dict[str, float]:
                        of.to_queries = Backward(trainer.chunks, trainer.share, s.negatives, s.dim, modulus, Tiling(*a))
                        of.d_query = torch.empty(of.to_queries.splits, *trainer.query.shape, device=device)
                        return {"us": graph_time(of.learn_queries, repeats=7) * 1e6}

                    yield (
                        f"queries' gradients tile {tile} groups {groups} splits {splits} registers {registers}",
                        queries,
                    )


class Results:
    """What was measured so far; a part that fails is written down as its error."""

    def __init__(self, out: Path | None) -> None:
        self.out, self.rows, self.failed = out, dict[str, Any](), 0

    def add(self, name: str, call: Callable[[], Any]) -> Any:
        """Runs one part, prints it, and writes everything so far."""
        start = time.perf_counter()
        try:
            value = call()
        except Exception as error:  # every part is guarded: one card for a short time, many parts
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
        """Runs the parts that an iterator makes; one that cannot even begin is an error too."""

        def begin() -> dict[str, int]:
            count = 0
            for name, call in make():
                self.add(f"{prefix}{name}", call)
                count += 1
            return {"parts": count}

        self.add(f"{prefix}all", begin)


def table(rows: dict[str, Any]) -> None:
    """The timings once more, short."""
    print(f"\n{'':58} {'MB':>8} {'floor µs':>9} {'µs':>9} {'in situ':>9} {'share':>6}")
    for name, row in rows.items():
        if isinstance(row, dict) and "us" in row:
            moved = f"{row['bytes'] / 1e6:8.1f}" if "bytes" in row else " " * 8
            floor = f"{row['floor_us']:9.1f}" if "floor_us" in row else " " * 9
            share = f"{row['share']:6.2f}" if "share" in row else ""
            situ = f"{row['in_situ_us']:9.1f}" if "in_situ_us" in row else " " * 9
            print(f"{name:58} {moved} {floor} {row['us']:9.1f} {situ} {share}")


def main() -> int:
    """Runs what was asked for; the exit code says whether anything failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("check", "quick", "tune", "whole"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device here")
        return 2
    results = Results(asked.out)
    results.rows["device"] = torch.cuda.get_device_name()
    results.rows["torch"] = torch.__version__
    print(results.rows)
    torch.manual_seed(int(time.time()))
    cases = [case(name, model) for model in asked.models for name in ("WN18RR", "FB15k")]
    if asked.check:
        results.all("check: ", partial(checks, asked.quick))
    elif asked.tune:
        for c in (c for c in cases if c.settings.model in ("TransE", "RotatE")):
            results.all(f"tune: {c.name}: ", partial(tune_rows, c))
        for c in (c for c in cases if c.settings.model in ("TransE", "RotatE")):
            for kernel in ("distances", "queries' gradients", "negatives' gradients"):
                prefix = f"tune: {c.name}: {kernel}"
                timed = {k: v["us"] for k, v in results.rows.items() if k.startswith(prefix) and "us" in v}
                for name in sorted(timed, key=timed.__getitem__)[:3]:
                    print(f"best: {name} {timed[name]:.1f} µs")
    elif asked.whole:
        results.add("ranking FB15k's test set", measure_test_set)
        for name, limit in (("wn18rr", 120), ("fb15k", 300)):
            results.add(f"whole {name}, limit {limit} s", partial(measure_whole, name))
    else:
        results.add("copy", measure_copy)
        for c in cases:
            with precision(c.settings.matmul):
                results.all(f"{c.name}: ", partial(kernel_rows, c))
                results.all(f"{c.name}: step, ", partial(step_rows, c, asked.quick))
        for modulus in (False, True)[: len(asked.models)]:
            results.add(f"ranking, {'modulus' if modulus else 'L1'} 2048x14951x1000", partial(measure_ranking, modulus))
        table(results.rows)
    print(f"{results.failed} failed")
    return int(results.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
