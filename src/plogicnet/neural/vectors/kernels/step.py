"""Fused training steps of the sampled recipe: draw, score, backpropagate and update on the GPU, as one CUDA graph.

The mathematics is that of sampling.py, loss.py and model.py. Only the random numbers differ: a counter-based generator
computes them on the device from seed and step. The step number is in device memory and the learning rates are in a
table there, so that one captured graph serves every step.

Adam changes every row at every step, because its moments outlast the gradient. Updates of a row are deferred until a
step draws the row. They are then applied in order, in registers, with the learning rates of their steps. The L3 penalty
also changes every row at every step, but its gradient depends only on that row. It is therefore computed in the same
loop. `flush` applies all pending updates before the tables are read. The result is the same as without deferring.

Lower bound of a step, in bytes (w is the width of an entity vector, f = 4 bytes per number):
- pending updates of the drawn rows: 8 · f · w per row (read and write the vector, both moments and the gradient). With
  WN18RR's 8,250 distinct rows of 500 this is 132 MB, 0.03 ms at 4.3 TB/s. For all 40,943 rows it was 0.11 ms.
- negatives: read each row once and write it transposed (2 · f · w), read it again for both gradients (from the L2
  cache if it fits), and add its gradient (f · w). This is about 16 MB per pass at 8 × 1024 × 500.
- arithmetic: 6 instructions per term (see cross.py), 0.05 ms at 512 × 1024 × 500.
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
"""How a model compares vectors: 0 and 1 are distances, 2 and 3 are products; odd kinds have complex vectors."""


@triton.jit
def hash_bits(x):
    """Hash integers by mixing their bits."""
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def permute(x, k0, k1, k2, k3, high, low):
    """Apply a keyed bijection of the integers with high + low bits, a Feistel network."""
    mask = (1 << high) - 1
    mask_low = (1 << low) - 1
    left = x >> low
    right = x & mask_low
    for r in tl.static_range(2):
        left = left ^ (hash_bits(right + k0 + r) & mask)
        right = right ^ (hash_bits(left + k1 + r) & mask_low)
        left = left ^ (hash_bits(right + k2 + r) & mask)
        right = right ^ (hash_bits(left + k3 + r) & mask_low)
    return (left << low) | right


@triton.jit
def draw_kernel(
    step, positives, weights, ranges, rows, relation, weight, low, high, since, since_relation, applied,
    applied_relation, seed, examples, entities, size, slots, drawn, high_bits, low_bits,
    POSITIVE_PROGRAMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Draw one step's positives (from shuffled epochs, with tail and head queries in turn) and negatives.

    `rows` contains the known entities, then the answers, then the negatives. For each entry, an atomic exchange sets
    `applied` of its row to this step and stores the previous value in `since`. If a row has several entries, only one
    of them gets the old value, so that its pending updates are applied once.
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
        x = permute((at % examples).to(tl.uint32), k0, k1, k2, k3, high_bits, low_bits)
        # the bijection is on a power of two: apply it again to numbers beyond the examples until they are in range
        while tl.max((x.to(tl.int64) >= examples).to(tl.int32), 0) > 0:
            x = tl.where(x.to(tl.int64) >= examples, permute(x, k0, k1, k2, k3, high_bits, low_bits), x)
        filled = slot < size
        example = tl.where(filled, x.to(tl.int64), 0)
        inside = slot < slots
        first = tl.load(positives + example * 3, mask=inside, other=0)
        relation_ids = tl.load(positives + example * 3 + 1, mask=inside, other=0)
        last = tl.load(positives + example * 3 + 2, mask=inside, other=0)
        known = tl.where(side == 0, first, last)
        answer = tl.where(side == 0, last, first)
        tl.store(rows + slot, known, mask=inside)
        tl.store(rows + slots + slot, answer, mask=inside)
        tl.store(relation + slot, relation_ids, mask=inside)
        tl.store(since + slot, tl.atomic_xchg(applied + known, now, mask=inside, sem="relaxed"), mask=inside)
        tl.store(since + slots + slot, tl.atomic_xchg(applied + answer, now, mask=inside, sem="relaxed"), mask=inside)
        was = tl.atomic_xchg(applied_relation + relation_ids, now, mask=inside, sem="relaxed")
        tl.store(since_relation + slot, was, mask=inside)
        tl.store(weight + slot, tl.where(filled, tl.load(weights + example, mask=inside, other=0.0), 0.0), mask=inside)
        bounds = ranges + (side * examples + example) * 2
        tl.store(low + slot, tl.load(bounds, mask=inside, other=0), mask=inside)
        tl.store(high + slot, tl.load(bounds + 1, mask=inside, other=0), mask=inside)
    else:
        index = (pid - POSITIVE_PROGRAMS) * BLOCK + tl.arange(0, BLOCK)
        zero = index * 0
        bits, _, _, _ = tl.philox(seed, index, zero + 1, zero + now, zero)
        entity = ((bits.to(tl.uint64) * entities) >> 32).to(tl.int32)
        inside = index < drawn
        entry = 2 * slots + index
        tl.store(rows + entry, entity, mask=inside)
        tl.store(since + entry, tl.atomic_xchg(applied + entity, now, mask=inside, sem="relaxed"), mask=inside)


@triton.jit
def query_kernel(
    step, entity, relation, known, relation_ids, query, phase,
    KIND: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute query vectors: h + r or t - r; h · r; or complex products with the relation or its conjugate."""
    PAIRED: tl.constexpr = KIND % 2 == 1
    slot = tl.program_id(0)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = k < DIM
    sign = tl.where(tl.load(step) % 2 == 0, 1.0, -1.0)
    row = tl.load(known + slot).to(tl.int64) * (2 * DIM if PAIRED else DIM)
    row_r = tl.load(relation_ids + slot).to(tl.int64) * (2 * DIM if KIND == COMPLEX else DIM)
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
    """Return log(1 + exp(x)) without overflow."""
    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))


@triton.jit
def loss_kernel(
    parts, query, entity, answer, weight, low, high, answers, negative, slope, slope_positive, losses,
    gamma, temperature, slots, chunk_size, columns, splits,
    KIND: tl.constexpr, DIM: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_B: tl.constexpr,
):  # fmt: skip
    """Compute one positive's loss and the loss's slope (derivative) with respect to each distance or product.

    Negatives that are positives are ignored. The slope with respect to a score is f · a_j · σ(s_j) for a negative of
    adversarial weight a_j, and -f · σ(-s) for the positive, where f is half the positive's share of the batch's weight.
    The slope with respect to a distance has the opposite sign.
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

    # binary search: the query's known answers are sorted in answers[low:high]
    candidate = tl.load(negative + (slot // chunk_size) * columns + j, mask=inside, other=-1)
    start = tl.load(low + slot)
    end = tl.load(high + slot)
    left = tl.zeros((BLOCK_N,), tl.int32) + start
    right = tl.zeros((BLOCK_N,), tl.int32) + end
    length = end - start
    while length > 0:
        middle = (left + right) // 2
        searching = left < right
        before = searching & (tl.load(answers + middle, mask=searching, other=0) < candidate)
        left = tl.where(before, middle + 1, left)
        right = tl.where(searching & ~before, middle, right)
        length = length // 2
    is_positive = (left < end) & (tl.load(answers + left, mask=left < end, other=-1) == candidate)
    usable = inside & ~is_positive

    logit = tl.where(usable, temperature * score, float("-inf"))
    max_logit = tl.max(logit, 0)
    max_logit = tl.where(max_logit == float("-inf"), 0.0, max_logit)
    adversarial = tl.where(usable, tl.exp(logit - max_logit), 0.0)
    adversarial = adversarial / tl.maximum(tl.sum(adversarial, 0), 1e-30)
    sigmoid = 1.0 / (1.0 + tl.exp(-score))
    tl.store(slope + slot.to(tl.int64) * columns + j, OF_SCORE * f * adversarial * sigmoid, mask=inside)
    tl.store(slope_positive + slot, -OF_SCORE * f / (1.0 + tl.exp(positive)))
    negatives = tl.sum(tl.where(usable, adversarial * softplus(score), 0.0), 0)
    tl.store(losses + slot, f * (softplus(-positive) + negatives))


@triton.jit
def scatter_kernel(
    step, parts, query, entity, relation, known, relation_ids, answer, weight, slope_positive,
    d_entity, d_relation, slots, splits, phase,
    KIND: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sum each query's gradients and add them to the rows of its known entity, relation and answer."""
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
        row_r = tl.load(relation_ids + slot).to(tl.int64) * (2 * DIM if KIND == COMPLEX else DIM)
        row_a = tl.load(answer + slot).to(tl.int64) * WIDTH
        q = tl.load(query + slot * WIDTH + k, mask=inside, other=0.0)
        a = tl.load(entity + row_a + k, mask=inside, other=0.0)
        if PAIRED:
            q_y = tl.load(query + slot * WIDTH + DIM + k, mask=inside, other=0.0)
            a_y = tl.load(entity + row_a + DIM + k, mask=inside, other=0.0)
        # (x, y) is the gradient of the query; the answer's is its negative for distances, g · query for products
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
def adam_step(p, m, v, rates, step, EPSILON: tl.constexpr):
    """Return the vectors after Adam's update of a step with these moments."""
    return p - tl.load(rates + step * 2) * m / (tl.sqrt(v) * tl.load(rates + step * 2 + 1) + EPSILON)


@triton.jit
def apply_pending_kernel(
    step, rates, table, gradient, mean, square, rows, since, penalty,
    ROWS: tl.constexpr, PENALTY: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    BETA1: tl.constexpr, BETA2: tl.constexpr, EPSILON: tl.constexpr,
):  # fmt: skip
    """Apply Adam's pending updates to one row (with ROWS, to row rows[i]), from step `since` up to the current step.

    Only the first update has a gradient from examples, because every draw of a row first applies its pending updates.
    That gradient is then set to zero. All updates have the gradient of the penalty, penalty · |p|³ per coordinate.
    """
    index = tl.program_id(0)
    now = tl.load(step).to(tl.int32)
    first_pending = tl.load(since + index)
    row = tl.load(rows + index) if ROWS else index
    if first_pending < now:
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
        p = adam_step(p, m, v, rates, first_pending, EPSILON)
        for missed in range(first_pending + 1, now):
            m = BETA1 * m
            v = BETA2 * v
            if PENALTY:
                g = 3.0 * penalty * p * tl.abs(p)
                m += (1.0 - BETA1) * g
                v += (1.0 - BETA2) * g * g
            p = adam_step(p, m, v, rates, missed, EPSILON)
        tl.store(mean + at, m, mask=inside)
        tl.store(square + at, v, mask=inside)
        tl.store(table + at, p, mask=inside)


class FusedSteps:
    """A `Stepper` with fused kernels on a GPU.

    Attributes:
        entity, relation: the tables, updated in place; `flush` applies pending updates.
        moments: Adam's moments by name; a checkpoint saves them with the tables and the step.
        number: the index of the next step, as a tensor on the device.
    """

    def __init__(
        self, entity: Tensor, relation: Tensor, examples: Examples, settings: VectorSettings, seed: int
    ) -> None:
        s, device = settings, entity.device
        self.settings, self.entity, self.relation, self.kind = s, entity, relation, KINDS[s.model]
        self.seed = seed & (2**31 - 1)
        self.size = min(s.batch, len(examples.positives))
        self.chunk_size = min(s.share_negatives, self.size)
        self.chunks = -(-self.size // self.chunk_size)
        self.slots = self.chunks * self.chunk_size
        self.block = min(1024, int(triton.next_power_of_2(s.dim)))
        self.row_grid = (self.slots, -(-s.dim // self.block))
        self.phase = math.pi * s.dim / (s.gamma + 2.0)
        self.graph: Any = None
        self.number = torch.zeros(1, dtype=torch.int64, device=device)
        self.rates = torch.from_numpy(_rates(s)).to(device)
        self._load(examples)
        tables = {"entity": entity, "relation": relation}
        self.moments = {f"{k}.{name}": torch.zeros_like(v) for k, v in tables.items() for name in ("mean", "square")}
        self.d_entity, self.d_relation = torch.zeros_like(entity), torch.zeros_like(relation)

        def ints(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        def floats(*shape: int) -> Tensor:
            return torch.zeros(shape, device=device)

        self.relation_ids, self.low, self.high = ints(self.slots), ints(self.slots), ints(self.slots)
        self.rows = ints(2 * self.slots + self.chunks * s.negatives)
        self.known, self.answer = self.rows[: self.slots], self.rows[self.slots : 2 * self.slots]
        self.negative = self.rows[2 * self.slots :].view(self.chunks, s.negatives)
        self.applied, self.applied_relation = ints(len(entity)), ints(len(relation))
        self.since, self.since_relation = ints(len(self.rows)), ints(self.slots)
        self.weight, self.slope_positive, self.losses = floats(self.slots), floats(self.slots), floats(self.slots)
        self.query, self.slope = floats(self.slots, entity.shape[1]), floats(self.slots, s.negatives)
        comparison = Distances if s.model in ("TransE", "RotatE") else Products
        self.comparison = comparison(entity, self.negative, self.query, self.slope, self.d_entity, s.model == "RotatE")

    def _load(self, examples: Examples) -> None:
        """Copy the examples to the device, with the range of each query's sorted known answers."""
        device, n, entities = self.entity.device, len(examples.positives), len(self.entity)
        weights = examples.weights * subsampling_weights(examples.positives)
        self.examples = n
        self.positives = torch.from_numpy(examples.positives.astype(np.int32)).to(device)
        self.weights = torch.from_numpy(weights.astype(np.float32)).to(device)
        h, r, t = torch.from_numpy(examples.positives.copy()).to(device).unbind(1)
        ranges, answers = [], []
        for side, (known, answer) in enumerate([(h, t), (t, h)]):
            query = r * entities + known
            keys = torch.sort(query * entities + answer)[0]
            queries = keys // entities
            bounds = [torch.searchsorted(queries, query, right=right) for right in (False, True)]
            ranges.append(torch.stack(bounds, 1) + side * n)
            answers.append(keys % entities)
        self.ranges = torch.stack(ranges).to(torch.int32)
        self.answers = torch.cat(answers).to(torch.int32)

    def draw(self) -> None:
        """Draw the batch of the current step."""
        block = 128
        programs, drawn = -(-self.slots // block), self.negative.numel()
        bits = max(2, (self.examples - 1).bit_length())
        draw_kernel[(programs + -(-drawn // block),)](
            self.number, self.positives, self.weights, self.ranges, self.rows, self.relation_ids, self.weight, self.low,
            self.high, self.since, self.since_relation, self.applied, self.applied_relation, self.seed, self.examples,
            len(self.entity), self.size, self.slots, drawn, bits // 2, bits - bits // 2, POSITIVE_PROGRAMS=programs,
            BLOCK=block, num_warps=4,
        )  # fmt: skip

    def compute_gradients(self) -> None:
        """Add the gradients of the drawn batch's loss to `d_entity` and `d_relation`."""
        comparison = self.comparison
        forward = (self.make_queries, comparison.lay_out, comparison.compare, self.compute_loss)
        for part in (*forward, comparison.query_gradients, comparison.negative_gradients, self.scatter_gradients):
            part()

    def make_queries(self) -> None:
        """Compute the query vectors."""
        query_kernel[self.row_grid](
            self.number, self.entity, self.relation, self.known, self.relation_ids, self.query, self.phase,
            KIND=self.kind, DIM=self.settings.dim, BLOCK=self.block, num_warps=4,
        )  # fmt: skip

    def compute_loss(self) -> None:
        """Compute the loss and its slope with respect to each distance or product."""
        s = self.settings
        loss_kernel[(self.slots,)](
            self.comparison.out, self.query, self.entity, self.answer, self.weight, self.low, self.high, self.answers,
            self.negative, self.slope, self.slope_positive, self.losses, s.gamma, s.adversarial_temperature,
            self.slots, self.chunk_size, s.negatives, len(self.comparison.out), KIND=self.kind, DIM=s.dim,
            BLOCK_K=self.block, BLOCK_N=int(triton.next_power_of_2(s.negatives)), BLOCK_B=1024, num_warps=4,
        )  # fmt: skip

    def scatter_gradients(self) -> None:
        """Add the gradients of queries and positives to the rows of known entities, relations and answers."""
        scatter_kernel[self.row_grid](
            self.number, self.comparison.d_query, self.query, self.entity, self.relation, self.known, self.relation_ids,
            self.answer, self.weight, self.slope_positive, self.d_entity, self.d_relation, self.slots,
            len(self.comparison.d_query), self.phase, KIND=self.kind, DIM=self.settings.dim, BLOCK=self.block,
            num_warps=4,
        )  # fmt: skip

    def apply_pending(self) -> None:
        """Apply the pending updates of the drawn rows."""
        self._apply_pending("entity", self.rows, self.since)
        self._apply_pending("relation", self.relation_ids, self.since_relation)

    def flush(self) -> None:
        """Apply the pending updates of all rows."""
        for name, applied in (("entity", self.applied), ("relation", self.applied_relation)):
            self._apply_pending(name, None, applied)
            applied.copy_(self.number)

    def _apply_pending(self, name: str, rows: Tensor | None, since: Tensor) -> None:
        table, gradient = (self.entity, self.d_entity) if name == "entity" else (self.relation, self.d_relation)
        width = table.shape[1]
        block = min(1024, int(triton.next_power_of_2(width)))
        apply_pending_kernel[(len(since), -(-width // block))](
            self.number, self.rates, table, gradient, self.moments[f"{name}.mean"], self.moments[f"{name}.square"],
            since if rows is None else rows, since, self.settings.regularization, ROWS=rows is not None,
            PENALTY=self.settings.regularization > 0, WIDTH=width, BLOCK=block, BETA1=BETA1, BETA2=BETA2,
            EPSILON=EPSILON, num_warps=max(1, block // 256),  # fewer numbers per thread took up to twice as long
        )  # fmt: skip

    def run_kernels(self) -> None:
        """Launch the kernels of one step."""
        self.draw()
        self.apply_pending()
        self.compute_gradients()
        self.number.add_(1)

    def loss(self) -> float:
        """Return the last step's loss without the penalty; this waits for the device."""
        return float(self.losses.sum())

    def step(self, number: int) -> None:
        """Perform step `number` without waiting for it. The first call compiles the kernels and captures the graph.

        The device counts the steps. `number` only decides when to restart Adam, half-way.
        """
        if number == self.settings.steps // 2 and number > 0:
            self.flush()
            for moment in self.moments.values():
                moment.zero_()
        if self.graph is not None:
            self.graph.replay()
            return
        self.run_kernels()
        if self.entity.is_cuda:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.run_kernels()
            self.graph = graph

    def state(self) -> dict[str, Tensor]:
        """Return Adam's moments."""
        return self.moments

    def restore(self, number: int, state: dict[str, Tensor]) -> None:
        """Restore the moments after `number` steps, without pending updates."""
        for counter in (self.number, self.applied, self.applied_relation):
            counter.fill_(number)
        self.d_entity.zero_()
        self.d_relation.zero_()
        for name, moment in self.moments.items():
            moment.copy_(state[name])


def _rates(s: VectorSettings) -> "np.typing.NDArray[np.float32]":
    """Return two factors per step: learning rate / (1 - β1^t) and 1 / √(1 - β2^t), where t counts steps from 1.

    At half of the steps, the learning rate falls to a tenth, and the moments and t restart.
    """
    step, half = np.arange(max(s.steps, 1), dtype=np.float64), s.steps // 2
    late = (step >= half) & (half > 0)
    t = np.where(late, step - half, step) + 1
    rate = np.where(late, s.learning_rate / 10, s.learning_rate)
    return np.stack([rate / (1 - BETA1**t), 1 / np.sqrt(1 - BETA2**t)], 1).astype(np.float32)


def unsupported_reason(examples: Examples, s: VectorSettings) -> str | None:
    """Return why fused kernels cannot run a training, or None if they can.

    Example:
        >>> unsupported_reason(Examples.of(np.array([[0, 0, 1]])), VectorSettings(model="HolE"))
        'fused kernels support TransE, RotatE, DistMult and ComplEx, not HolE'
    """
    if s.model not in KINDS:
        return f"fused kernels support TransE, RotatE, DistMult and ComplEx, not {s.model}"
    if s.dropout:
        return "fused kernels do not support neural.vectors.dropout"
    if s.recipe != "sampled" or s.optimizer == "adagrad":
        return "fused kernels support only the sampled recipe with Adam"
    return "fused kernels do not support explicit negatives" if len(examples.negatives) else None
