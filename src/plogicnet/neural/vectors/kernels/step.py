"""A whole training step by the sampled recipe on the device: drawn, scored, learned from, replayed as a CUDA graph.

The mathematics is that of sampling.py, loss.py and vector_model.py; only the random numbers are others, since they are
made on the device from (seed, step) alone, by counters. The step's number lies in device memory and the learning rates
in a table beside it, so that one captured graph serves every step.

Adam moves every row at every step, for its moments outlast its gradient. But a row that nobody reads may wait: its
updates are put off until a step draws it, and then made one after the other, in registers, with the rates of the steps
that they belong to. The L3 penalty moves every row at every step too, but by that row alone: its part of the gradient
is made there as well. Nothing else changes; `flush` brings all rows up to date, for whoever reads the tables.

The floor of a step, in bytes (w the width of an entity's vector, f = 4 bytes a number):
- bringing up to date the rows that a step draws moves 8 · f · w a row (vector, both moments and the gradient, read and
  written): 132 MB at WN18RR's 8,250 distinct rows of 500, 0.03 ms at 4.3 TB/s. Over all 40,943 it was 0.11 ms.
- negatives: each row read once to lay it out and written transposed (2 · f · w), read again by the two gradients (from
  the L2 cache if it holds them), and its gradient added (f · w): about 16 MB a pass at 8 × 1024 × 500.
- arithmetic as cross.py says: 6 instructions a term, 0.05 ms at 512 × 1024 × 500.
"""

import math
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from plogicnet.neural.protocol import Examples
from plogicnet.neural.vectors.kernels.cross import TINY
from plogicnet.neural.vectors.kernels.shared import Distances, Products
from plogicnet.neural.vectors.sampling import subsampling_weights
from plogicnet.neural.vectors.settings import VectorSettings

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
L1, MODULUS, REAL, COMPLEX = (tl.constexpr(kind) for kind in range(4))
KINDS = {"TransE": L1, "RotatE": MODULUS, "DistMult": REAL, "ComplEx": COMPLEX}
"""How a model's vectors are compared: by a distance, or from 2 on by a product; odd ones are of complex numbers."""


@triton.jit
def mixed(x):
    """A number's bits well stirred (an integer hash)."""
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def shuffled_once(x, k0, k1, k2, k3, high, low):
    """A keyed bijection of the numbers of high + low bits: a Feistel network, whose every round can be undone."""
    mask = (1 << high) - 1
    mask_low = (1 << low) - 1
    left = x >> low
    right = x & mask_low
    for r in tl.static_range(2):
        left = left ^ (mixed(right + k0 + r) & mask)
        right = right ^ (mixed(left + k1 + r) & mask_low)
        left = left ^ (mixed(right + k2 + r) & mask)
        right = right ^ (mixed(left + k3 + r) & mask_low)
    return (left << low) | right


@triton.jit
def draw_kernel(
    step, positives, weights, ranges, rows, relation, weight, low, high, since, since_relation, brought,
    brought_relation, seed, examples, entities, size, slots, drawn, high_bits, low_bits,
    POSITIVE_PROGRAMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One step's positives (shuffled passes, tail and head queries in turn) and its negatives.

    rows holds the known entities, the answers and the negatives, one after the other. Each place says that its row is
    brought to this step and notes in `since` to which it had been: of a row's places one alone finds it behind.
    """
    t = tl.load(step)
    now = t.to(tl.int32)
    pid = tl.program_id(0)
    if pid < POSITIVE_PROGRAMS:
        slot = pid * BLOCK + tl.arange(0, BLOCK)
        side = t % 2
        at = (t // 2) * size + slot
        number = (at // examples).to(tl.int32)
        zero = slot * 0
        k0, k1, k2, k3 = tl.philox(seed, number, zero + (2 + side).to(tl.int32), zero, zero)
        x = shuffled_once((at % examples).to(tl.uint32), k0, k1, k2, k3, high_bits, low_bits)
        # the bijection is of a power of two: numbers beyond the examples walk on till they come back among them
        while tl.max((x.to(tl.int64) >= examples).to(tl.int32), 0) > 0:
            x = tl.where(x.to(tl.int64) >= examples, shuffled_once(x, k0, k1, k2, k3, high_bits, low_bits), x)
        real = slot < size
        example = tl.where(real, x.to(tl.int64), 0)
        inside = slot < slots
        first = tl.load(positives + example * 3, mask=inside, other=0)
        between = tl.load(positives + example * 3 + 1, mask=inside, other=0)
        last = tl.load(positives + example * 3 + 2, mask=inside, other=0)
        given = tl.where(side == 0, first, last)
        asked = tl.where(side == 0, last, first)
        tl.store(rows + slot, given, mask=inside)
        tl.store(rows + slots + slot, asked, mask=inside)
        tl.store(relation + slot, between, mask=inside)
        tl.store(since + slot, tl.atomic_xchg(brought + given, now, mask=inside, sem="relaxed"), mask=inside)
        tl.store(since + slots + slot, tl.atomic_xchg(brought + asked, now, mask=inside, sem="relaxed"), mask=inside)
        was = tl.atomic_xchg(brought_relation + between, now, mask=inside, sem="relaxed")
        tl.store(since_relation + slot, was, mask=inside)
        tl.store(weight + slot, tl.where(real, tl.load(weights + example, mask=inside, other=0.0), 0.0), mask=inside)
        bounds = ranges + (side * examples + example) * 2
        tl.store(low + slot, tl.load(bounds, mask=inside, other=0), mask=inside)
        tl.store(high + slot, tl.load(bounds + 1, mask=inside, other=0), mask=inside)
    else:
        place = (pid - POSITIVE_PROGRAMS) * BLOCK + tl.arange(0, BLOCK)
        zero = place * 0
        bits, _, _, _ = tl.philox(seed, place, zero + 1, zero + now, zero)
        entity = ((bits.to(tl.uint64) * entities) >> 32).to(tl.int32)
        inside = place < drawn
        after = 2 * slots + place
        tl.store(rows + after, entity, mask=inside)
        tl.store(since + after, tl.atomic_xchg(brought + entity, now, mask=inside, sem="relaxed"), mask=inside)


@triton.jit
def query_kernel(
    step, entity, relation, known, between, query, phase,
    KIND: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Rows of queries: h + r or t - r; h · r; complex ones times the relation (of modulus one) or its conjugate."""
    PAIRED: tl.constexpr = KIND % 2 == 1
    slot = tl.program_id(0)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = k < DIM
    sign = tl.where(tl.load(step) % 2 == 0, 1.0, -1.0)
    row = tl.load(known + slot).to(tl.int64) * (2 * DIM if PAIRED else DIM)
    row_r = tl.load(between + slot).to(tl.int64) * (2 * DIM if KIND == COMPLEX else DIM)
    x = tl.load(entity + row + k, mask=inside, other=0.0)
    r = tl.load(relation + row_r + k, mask=inside, other=0.0)
    if PAIRED:
        y = tl.load(entity + row + DIM + k, mask=inside, other=0.0)
        if KIND == MODULUS:
            re = tl.cos(r * phase)
            im = tl.sin(r * phase) * sign
        else:
            re = r
            im = tl.load(relation + row_r + DIM + k, mask=inside, other=0.0) * sign
        tl.store(query + slot * (2 * DIM) + k, x * re - y * im, mask=inside)
        tl.store(query + slot * (2 * DIM) + DIM + k, x * im + y * re, mask=inside)
    elif KIND == REAL:
        tl.store(query + slot * DIM + k, x * r, mask=inside)
    else:
        tl.store(query + slot * DIM + k, x + sign * r, mask=inside)


@triton.jit
def softplus(x):
    """log(1 + exp(x)), for any x."""
    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))


@triton.jit
def loss_kernel(
    parts, query, entity, answer, weight, low, high, answers, negative, slope, slope_positive, losses,
    gamma, temperature, slots, share, columns, splits,
    KIND: tl.constexpr, DIM: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_B: tl.constexpr,
):  # fmt: skip
    """One positive's loss and the loss's slope in each distance or product; known positives among negatives count not.

    The slope in a score is f · a_j · σ(s_j) for a negative of adversarial weight a_j, and -f · σ(-s) for the positive,
    where f is half the positive's share of the batch's weight; in a distance it is minus that.
    """
    PAIRED: tl.constexpr = KIND % 2 == 1
    PRODUCT: tl.constexpr = KIND >= 2
    OF_SCORE: tl.constexpr = 1.0 if PRODUCT else -1.0
    slot = tl.program_id(0)
    total = tl.zeros((BLOCK_B,), tl.float32)
    for start in range(0, slots, BLOCK_B):
        i = start + tl.arange(0, BLOCK_B)
        total += tl.load(weight + i, mask=i < slots, other=0.0)
    f = 0.5 * tl.load(weight + slot) / tl.maximum(tl.sum(total, 0), 1.1754943508222875e-38)

    WIDTH: tl.constexpr = 2 * DIM if PAIRED else DIM
    row = tl.load(answer + slot).to(tl.int64) * WIDTH
    compared = tl.zeros((BLOCK_K,), tl.float32)
    for start in range(0, WIDTH if PRODUCT else DIM, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        inside_k = k < (WIDTH if PRODUCT else DIM)
        x = tl.load(query + slot * WIDTH + k, mask=inside_k, other=0.0)
        x1 = tl.load(entity + row + k, mask=inside_k, other=0.0)
        if PRODUCT:
            compared += x * x1
        elif KIND == MODULUS:
            x -= x1
            y = tl.load(query + slot * WIDTH + DIM + k, mask=inside_k, other=0.0)
            y -= tl.load(entity + row + DIM + k, mask=inside_k, other=0.0)
            compared += tl.sqrt(x * x + y * y)
        else:
            compared += tl.abs(x - x1)
    positive = tl.sum(compared, 0)
    if not PRODUCT:
        positive = gamma - positive

    j = tl.arange(0, BLOCK_N)
    inside = j < columns
    score = tl.zeros((BLOCK_N,), tl.float32)
    for split in range(splits):
        score += tl.load(parts + (split * slots + slot).to(tl.int64) * columns + j, mask=inside, other=0.0)
    if not PRODUCT:
        score = gamma - score

    # the query's answers among the examples lie sorted in answers[low:high]
    wanted = tl.load(negative + (slot // share) * columns + j, mask=inside, other=-1)
    start = tl.load(low + slot)
    end = tl.load(high + slot)
    left = tl.zeros((BLOCK_N,), tl.int32) + start
    right = tl.zeros((BLOCK_N,), tl.int32) + end
    length = end - start
    while length > 0:
        middle = (left + right) // 2
        open_ = left < right
        before = open_ & (tl.load(answers + middle, mask=open_, other=0) < wanted)
        left = tl.where(before, middle + 1, left)
        right = tl.where(open_ & ~before, middle, right)
        length = length // 2
    found = (left < end) & (tl.load(answers + left, mask=left < end, other=-1) == wanted)
    usable = inside & ~found

    heat = tl.where(usable, temperature * score, float("-inf"))
    hottest = tl.max(heat, 0)
    hottest = tl.where(hottest == float("-inf"), 0.0, hottest)
    adversarial = tl.where(usable, tl.exp(heat - hottest), 0.0)
    adversarial = adversarial / tl.maximum(tl.sum(adversarial, 0), 1e-30)
    sigmoid = 1.0 / (1.0 + tl.exp(-score))
    tl.store(slope + slot.to(tl.int64) * columns + j, OF_SCORE * f * adversarial * sigmoid, mask=inside)
    tl.store(slope_positive + slot, -OF_SCORE * f / (1.0 + tl.exp(positive)))
    negatives = tl.sum(tl.where(usable, adversarial * softplus(score), 0.0), 0)
    tl.store(losses + slot, f * (softplus(-positive) + negatives))


@triton.jit
def spread_kernel(
    step, parts, query, entity, relation, known, between, answer, weight, slope_positive,
    d_entity, d_relation, slots, splits, phase,
    KIND: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sums a query's gradient, adds the positive's, and adds all to the rows of known entity, relation and answer."""
    PAIRED: tl.constexpr = KIND % 2 == 1
    PRODUCT: tl.constexpr = KIND >= 2
    WIDTH: tl.constexpr = 2 * DIM if PAIRED else DIM
    slot = tl.program_id(0)
    if tl.load(weight + slot) != 0.0:
        k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = k < DIM
        sign = tl.where(tl.load(step) % 2 == 0, 1.0, -1.0)
        g = tl.load(slope_positive + slot)
        row = tl.load(known + slot).to(tl.int64) * WIDTH
        row_r = tl.load(between + slot).to(tl.int64) * (2 * DIM if KIND == COMPLEX else DIM)
        row_a = tl.load(answer + slot).to(tl.int64) * WIDTH
        q = tl.load(query + slot * WIDTH + k, mask=inside, other=0.0)
        a = tl.load(entity + row_a + k, mask=inside, other=0.0)
        if PAIRED:
            q_y = tl.load(query + slot * WIDTH + DIM + k, mask=inside, other=0.0)
            a_y = tl.load(entity + row_a + DIM + k, mask=inside, other=0.0)
        # (x, y): the gradient of the query; the answer's is minus it, or the query itself for products
        if PRODUCT:
            x = g * a
            to_answer = g * q
            if PAIRED:
                y = g * a_y
                to_answer_y = g * q_y
        else:
            x = q - a
            if PAIRED:
                y = q_y - a_y
                g_by_length = g * tl.rsqrt(y * y + (x * x + TINY))
                x = g_by_length * x
                y = g_by_length * y
                to_answer_y = -y
            else:
                x = tl.where(x > 0, g, tl.where(x < 0, -g, 0.0))
            to_answer = -x
        tl.atomic_add(d_entity + row_a + k, to_answer, mask=inside, sem="relaxed")
        if PAIRED:
            tl.atomic_add(d_entity + row_a + DIM + k, to_answer_y, mask=inside, sem="relaxed")
        for split in range(splits):
            part = parts + (split * slots + slot).to(tl.int64) * WIDTH + k
            x += tl.load(part, mask=inside, other=0.0)
            if PAIRED:
                y += tl.load(part + DIM, mask=inside, other=0.0)
        if PAIRED:
            r = tl.load(relation + row_r + k, mask=inside, other=0.0)
            if KIND == MODULUS:
                re = tl.cos(r * phase)
                im = tl.sin(r * phase) * sign
                turn = (y * q - x * q_y) * (sign * phase)
                tl.atomic_add(d_relation + row_r + k, turn, mask=inside, sem="relaxed")
            else:
                re = r
                im = tl.load(relation + row_r + DIM + k, mask=inside, other=0.0) * sign
                e = tl.load(entity + row + k, mask=inside, other=0.0)
                e_y = tl.load(entity + row + DIM + k, mask=inside, other=0.0)
                tl.atomic_add(d_relation + row_r + k, x * e + y * e_y, mask=inside, sem="relaxed")
                tl.atomic_add(d_relation + row_r + DIM + k, (y * e - x * e_y) * sign, mask=inside, sem="relaxed")
            tl.atomic_add(d_entity + row + k, x * re + y * im, mask=inside, sem="relaxed")
            tl.atomic_add(d_entity + row + DIM + k, y * re - x * im, mask=inside, sem="relaxed")
        elif KIND == REAL:
            e = tl.load(entity + row + k, mask=inside, other=0.0)
            r = tl.load(relation + row_r + k, mask=inside, other=0.0)
            tl.atomic_add(d_entity + row + k, x * r, mask=inside, sem="relaxed")
            tl.atomic_add(d_relation + row_r + k, x * e, mask=inside, sem="relaxed")
        else:
            tl.atomic_add(d_entity + row + k, x, mask=inside, sem="relaxed")
            tl.atomic_add(d_relation + row_r + k, x * sign, mask=inside, sem="relaxed")


@triton.jit
def moved(p, m, v, rates, step, EPSILON: tl.constexpr):
    """Vectors after Adam's update of a step, whose moments these are."""
    return p - tl.load(rates + step * 2) * m / (tl.sqrt(v) * tl.load(rates + step * 2 + 1) + EPSILON)


@triton.jit
def bring_kernel(
    step, rates, table, gradient, mean, square, rows, since, penalty,
    ROWS: tl.constexpr, PENALTY: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    BETA1: tl.constexpr, BETA2: tl.constexpr, EPSILON: tl.constexpr,
):  # fmt: skip
    """Adam's updates of one row (of the place's row, with ROWS) from the step in `since` on, up to the present step.

    Only the first of them has a gradient from examples, which is then set to zero again: a row is brought to the step
    that draws it, so what gradient it has is that step's. All have the penalty's, of penalty · |p|³ at each coordinate.
    """
    place = tl.program_id(0)
    now = tl.load(step).to(tl.int32)
    behind = tl.load(since + place)
    row = tl.load(rows + place) if ROWS else place
    if behind < now:
        k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = k < WIDTH
        at = row.to(tl.int64) * WIDTH + k
        g = tl.load(gradient + at, mask=inside, other=0.0)
        m = tl.load(mean + at, mask=inside, other=0.0)
        v = tl.load(square + at, mask=inside, other=0.0)
        p = tl.load(table + at, mask=inside, other=0.0)
        tl.store(gradient + at, tl.zeros((BLOCK,), tl.float32), mask=inside)
        if PENALTY:
            g += 3.0 * penalty * p * tl.abs(p)
        m = BETA1 * m + (1.0 - BETA1) * g
        v = BETA2 * v + (1.0 - BETA2) * g * g
        p = moved(p, m, v, rates, behind, EPSILON)
        for missed in range(behind + 1, now):
            m = BETA1 * m
            v = BETA2 * v
            if PENALTY:
                g = 3.0 * penalty * p * tl.abs(p)
                m += (1.0 - BETA1) * g
                v += (1.0 - BETA2) * g * g
            p = moved(p, m, v, rates, missed, EPSILON)
        tl.store(mean + at, m, mask=inside)
        tl.store(square + at, v, mask=inside)
        tl.store(table + at, p, mask=inside)


class FusedSteps:
    """Tables, moments, buffers and kernels of a training: the steps of `plogicnet.neural.optimization` on a GPU.

    Attributes:
        entity, relation: the tables, updated in place; a row that waits for its updates has them after `settle`.
        moments: Adam's, by name: what a checkpoint needs besides the tables and the step.
        step: the number of the next step, on the device.
    """

    def __init__(
        self, entity: Tensor, relation: Tensor, examples: Examples, settings: VectorSettings, seed: int
    ) -> None:
        s, device = settings, entity.device
        self.settings, self.entity, self.relation, self.kind = s, entity, relation, KINDS[s.model]
        self.seed = seed & (2**31 - 1)
        self.size = min(s.batch, len(examples.positives))
        self.share = min(s.share_negatives, self.size)
        self.chunks = -(-self.size // self.share)
        self.slots = self.chunks * self.share
        self.block = min(1024, int(triton.next_power_of_2(s.dim)))
        self.of_rows = (self.slots, -(-s.dim // self.block))
        self.phase = math.pi * s.dim / (s.gamma + 2.0)
        self.graph: Any = None
        self.number = torch.zeros(1, dtype=torch.int64, device=device)
        self.rates = torch.from_numpy(_rates(s)).to(device)
        self._load(examples)
        tables = {"entity": entity, "relation": relation}
        self.moments = {f"{k}.{of}": torch.zeros_like(v) for k, v in tables.items() for of in ("mean", "square")}
        self.d_entity, self.d_relation = torch.zeros_like(entity), torch.zeros_like(relation)

        def whole(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        def real(*shape: int) -> Tensor:
            return torch.zeros(shape, device=device)

        self.between, self.low, self.high = whole(self.slots), whole(self.slots), whole(self.slots)
        self.rows = whole(2 * self.slots + self.chunks * s.negatives)
        self.known, self.answer = self.rows[: self.slots], self.rows[self.slots : 2 * self.slots]
        self.negative = self.rows[2 * self.slots :].view(self.chunks, s.negatives)
        self.brought, self.brought_relation = whole(len(entity)), whole(len(relation))
        self.since, self.since_relation = whole(len(self.rows)), whole(self.slots)
        self.weight, self.slope_positive, self.losses = real(self.slots), real(self.slots), real(self.slots)
        self.query, self.slope = real(self.slots, entity.shape[1]), real(self.slots, s.negatives)
        make = Distances if s.model in ("TransE", "RotatE") else Products
        self.comparison = make(entity, self.negative, self.query, self.slope, self.d_entity, s.model == "RotatE")

    def _load(self, examples: Examples) -> None:
        """The examples on the device; for each and each side the range of its query's answers among them, sorted."""
        device, n, entities = self.entity.device, len(examples.positives), len(self.entity)
        weights = examples.weights * subsampling_weights(examples.positives)
        self.examples = n
        self.positives = torch.from_numpy(examples.positives.astype(np.int32)).to(device)
        self.weights = torch.from_numpy(weights.astype(np.float32)).to(device)
        h, r, t = torch.from_numpy(examples.positives.copy()).to(device).unbind(1)
        ranges, answers = [], []
        for side, (given, asked) in enumerate([(h, t), (t, h)]):
            query = r * entities + given
            keys = torch.sort(query * entities + asked)[0]
            queries = keys // entities
            bounds = [torch.searchsorted(queries, query, right=right) for right in (False, True)]
            ranges.append(torch.stack(bounds, 1) + side * n)
            answers.append(keys % entities)
        self.ranges = torch.stack(ranges).to(torch.int32)
        self.answers = torch.cat(answers).to(torch.int32)

    def draw(self) -> None:
        """Draws the batch of the present step."""
        block = 128
        programs, drawn = -(-self.slots // block), self.negative.numel()
        bits = max(2, (self.examples - 1).bit_length())
        draw_kernel[(programs + -(-drawn // block),)](
            self.number, self.positives, self.weights, self.ranges, self.rows, self.between, self.weight, self.low,
            self.high, self.since, self.since_relation, self.brought, self.brought_relation, self.seed, self.examples,
            len(self.entity), self.size, self.slots, drawn, bits // 2, bits - bits // 2, POSITIVE_PROGRAMS=programs,
            BLOCK=block, num_warps=4,
        )  # fmt: skip

    def learn(self) -> None:
        """Adds the gradients of the drawn batch's loss to `d_entity` and `d_relation`."""
        of = self.comparison
        before = (self.make_queries, of.lay_out, of.compare, self.weigh)
        for part in (*before, of.learn_queries, of.learn_negatives, self.spread):
            part()

    def make_queries(self) -> None:
        """The query vectors."""
        query_kernel[self.of_rows](
            self.number, self.entity, self.relation, self.known, self.between, self.query, self.phase,
            KIND=self.kind, DIM=self.settings.dim, BLOCK=self.block, num_warps=4,
        )  # fmt: skip

    def weigh(self) -> None:
        """The loss and its slope in each distance or product."""
        s = self.settings
        loss_kernel[(self.slots,)](
            self.comparison.out, self.query, self.entity, self.answer, self.weight, self.low, self.high, self.answers,
            self.negative, self.slope, self.slope_positive, self.losses, s.gamma, s.adversarial_temperature,
            self.slots, self.share, s.negatives, len(self.comparison.out), KIND=self.kind, DIM=s.dim,
            BLOCK_K=self.block, BLOCK_N=int(triton.next_power_of_2(s.negatives)), BLOCK_B=1024, num_warps=4,
        )  # fmt: skip

    def spread(self) -> None:
        """The queries' gradients and the positives', added to the rows of known entities, relations and answers."""
        spread_kernel[self.of_rows](
            self.number, self.comparison.d_query, self.query, self.entity, self.relation, self.known, self.between,
            self.answer, self.weight, self.slope_positive, self.d_entity, self.d_relation, self.slots,
            len(self.comparison.d_query), self.phase, KIND=self.kind, DIM=self.settings.dim, BLOCK=self.block,
            num_warps=4,
        )  # fmt: skip

    def bring(self) -> None:
        """Brings the drawn rows to the present step."""
        self._bring("entity", self.rows, self.since)
        self._bring("relation", self.between, self.since_relation)

    def flush(self) -> None:
        """Brings all rows to the present step."""
        for name, brought in (("entity", self.brought), ("relation", self.brought_relation)):
            self._bring(name, None, brought)
            brought.copy_(self.number)

    def _bring(self, name: str, rows: Tensor | None, since: Tensor) -> None:
        table, gradient = (self.entity, self.d_entity) if name == "entity" else (self.relation, self.d_relation)
        width = table.shape[1]
        block = min(1024, int(triton.next_power_of_2(width)))
        bring_kernel[(len(since), -(-width // block))](
            self.number, self.rates, table, gradient, self.moments[f"{name}.mean"], self.moments[f"{name}.square"],
            since if rows is None else rows, since, self.settings.regularization, ROWS=rows is not None,
            PENALTY=self.settings.regularization > 0, WIDTH=width, BLOCK=block, BETA1=BETA1, BETA2=BETA2,
            EPSILON=EPSILON, num_warps=max(1, block // 256),  # fewer numbers a thread took up to twice as long
        )  # fmt: skip

    def one(self) -> None:
        """One whole step."""
        self.draw()
        self.bring()
        self.learn()
        self.number.add_(1)

    def loss(self) -> float:
        """The last step's loss, the penalty left out; waits for the device."""
        return float(self.losses.sum())

    def step(self, number: int) -> None:
        """The step of this number, without waiting for it; on a GPU the first builds the kernels, replays do the rest.

        The number counts on the device; it is asked for here only to begin Adam anew half-way.
        """
        if number == self.settings.steps // 2 and number > 0:
            self.flush()
            for moment in self.moments.values():
                moment.zero_()
        if self.graph is not None:
            self.graph.replay()
            return
        self.one()
        if self.entity.is_cuda:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.one()
            self.graph = graph

    def state(self) -> dict[str, Tensor]:
        """Adam's moments."""
        return self.moments

    def restore(self, number: int, state: dict[str, Tensor]) -> None:
        """Takes up the moments after so many steps; no row waits for anything."""
        for counter in (self.number, self.brought, self.brought_relation):
            counter.fill_(number)
        self.d_entity.zero_()
        self.d_relation.zero_()
        for name, moment in self.moments.items():
            moment.copy_(state[name])


def _rates(s: VectorSettings) -> "np.typing.NDArray[np.float32]":
    """For each step Adam's rate over its first correction, and one over the root of its second.

    The rate falls to a tenth at half of the steps, where moments and their corrections start anew.
    """
    step, half = np.arange(max(s.steps, 1), dtype=np.float64), s.steps // 2
    late = (step >= half) & (half > 0)
    t = np.where(late, step - half, step) + 1
    rate = np.where(late, s.learning_rate / 10, s.learning_rate)
    return np.stack([rate / (1 - BETA1**t), 1 / np.sqrt(1 - BETA2**t)], 1).astype(np.float32)


def unsupported(examples: Examples, s: VectorSettings) -> str | None:
    """What a training asks for that fused steps do not have; None where they have it all.

    Example:
        >>> unsupported(Examples.of(np.array([[0, 0, 1]])), VectorSettings(model="HolE"))
        'fused steps are for TransE, RotatE, DistMult and ComplEx, not HolE'
    """
    if s.model not in KINDS:
        return f"fused steps are for TransE, RotatE, DistMult and ComplEx, not {s.model}"
    if s.dropout:
        return "fused steps have no neural.vectors.dropout"
    if s.recipe != "sampled" or s.optimizer == "adagrad":
        return "fused steps are for the sampled recipe with Adam"
    return "fused steps take no explicit negatives" if len(examples.negatives) else None
