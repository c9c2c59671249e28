"""Distances of every query to every candidate, and their gradients, without a tensor of n × m × d differences.

Arithmetic is the bottleneck, because matrix units cannot compute L1. A term |a - b| costs two instructions in the
forward pass (a subtraction, and an addition with absolute value) and two in each gradient. On an H200, n · m · d terms
take at least 6 · n · m · d / (132 · 128 · 1.98e9) s. A modulus also needs one reciprocal root per term and kernel. A
multiprocessor computes 16 of them per clock, which is the bottleneck of moduli.

Each thread keeps a tile of results in registers, so that a loaded number is used many times:
- forward: 8 queries × 8 candidates (4 for moduli). The loop runs over coordinates. Operands are transposed (`lay_out`)
  and padded with zeros to whole tiles, so that the loop needs no masks. If there are few tiles, the coordinates are
  split among programs.
- backward: 8 rows × 4 coordinates (2 complex ones). The loop runs over the rows of the other operand. Operands keep
  their layout and can be gathered from a table by ids. Each gradient is a separate launch of the same kernel. The sums
  stay in registers and need no atomic addition among programs, at the cost of one more subtraction per term.
Tiles have three dimensions, (groups, rows, 32 lanes): Triton then assigns rows to warps and groups to registers.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

LANES = 32
ROWS = 64
"""Maximum number of rows in a program's tile; each warp processes 8."""
UNROLL = 4
TARGET_PROGRAMS = 264
"""Programs that fill the GPU: two of 8 warps on each of an H200's 132 multiprocessors."""
STEEP = tl.constexpr(2.0**60)
"""STEEP · (a - b) clamped to [0, 1] is 1 if a > b and 0 otherwise, in one instruction, for |a - b| ≥ 2⁻⁶⁰."""
TINY = tl.constexpr(1e-30)


@triton.jit
def lay_out_kernel(
    source, ids, out, copy, rows, pad_rows, dim, pad_dim, row_stride,
    PARTS: tl.constexpr, IDS: tl.constexpr, COPY: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute out[b, part, k, i] = source[row i of batch b, part · dim + k], with zero padding.

    With COPY, also copy the rows to `copy`.
    """
    b = tl.program_id(2) // PARTS
    part = tl.program_id(2) % PARTS
    i = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    offset = (b * rows + i).to(tl.int64)
    row = offset
    if IDS:
        row = tl.load(ids + offset, mask=i < rows, other=0).to(tl.int64)
    inside = (i < rows)[:, None] & (k < dim)[None, :]
    tile = tl.load(source + row[:, None] * row_stride + (part * dim + k)[None, :], mask=inside, other=0.0)
    if COPY:
        tl.store(copy + offset[:, None] * row_stride + (part * dim + k)[None, :], tile, mask=inside)
    offset = (tl.program_id(2).to(tl.int64) * pad_dim + k[:, None]) * pad_rows + i[None, :]
    tl.store(out + offset, tl.trans(tile), mask=(k < pad_dim)[:, None] & (i < pad_rows)[None, :])


@triton.jit(do_not_specialize=["pad_columns"])
def distance_kernel(
    queries, candidates, out, batches, rows, columns, pad_rows, pad_columns, pad_dim, per_split,
    MODULUS: tl.constexpr, ROWS: tl.constexpr, GROUPS: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Compute out[split, b, i, j] = a split's part of the distance, from the operands that `lay_out` writes.

    The columns are two tiles of GROUPS · 32. Loads of fewer numbers than threads keep the layout of the sums and do not
    use shared memory. For the same reason Triton must not specialise pad_columns as a multiple of 16.
    """
    PARTS: tl.constexpr = 2 if MODULUS else 1
    b = (tl.program_id(2) % batches).to(tl.int64)
    split = tl.program_id(2) // batches
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(1) * (GROUPS * 64) + tl.arange(0, GROUPS)[:, None] * 32 + tl.arange(0, 32)[None, :]
    first = b * (PARTS * pad_dim) + split * per_split
    at_q = queries + first * pad_rows + i
    at_c = candidates + first * pad_columns + j
    total = tl.zeros((GROUPS, ROWS, 32), tl.float32)
    total2 = tl.zeros((GROUPS, ROWS, 32), tl.float32)
    for _ in range(0, per_split, UNROLL):
        for u in tl.static_range(UNROLL):
            q = tl.load(at_q + u * pad_rows)[None, :, None]
            x = q - tl.load(at_c + u * pad_columns)[:, None, :]
            x2 = q - tl.load(at_c + GROUPS * 32 + u * pad_columns)[:, None, :]
            if MODULUS:
                q = tl.load(at_q + (pad_dim + u) * pad_rows)[None, :, None]
                y = q - tl.load(at_c + (pad_dim + u) * pad_columns)[:, None, :]
                y2 = q - tl.load(at_c + GROUPS * 32 + (pad_dim + u) * pad_columns)[:, None, :]
                total += tl.sqrt(x * x + y * y)
                total2 += tl.sqrt(x2 * x2 + y2 * y2)
            else:
                total += tl.abs(x)
                total2 += tl.abs(x2)
        at_q += UNROLL * pad_rows
        at_c += UNROLL * pad_columns
    target = out + (tl.program_id(2).to(tl.int64) * rows + i)[None, :, None] * columns + j[:, None, :]
    tl.store(target, total, mask=(i < rows)[None, :, None] & (j < columns)[:, None, :])
    tl.store(target + GROUPS * 32, total2, mask=(i < rows)[None, :, None] & (j + GROUPS * 32 < columns)[:, None, :])


@triton.jit
def gradient_kernel(
    own, own_ids, other, other_ids, slope, out, batches, rows, others, dim, row_step, other_step, per_split,
    MODULUS: tl.constexpr, OWN_IDS: tl.constexpr, OTHER_IDS: tl.constexpr, ADD: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, GROUPS: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Compute out[split, b, i, :] = Σ_j slope_ij · ∂ distance(own_i, other_j) / ∂ own_i over the j of a split.

    slope_ij is at offset (b · rows · others + i · row_step + j · other_step), so that both gradients read the same
    array. With ids, operands are rows of a table. With ADD, the sums are added to the rows own_ids of out.
    EVEN means that rows and others fill their tiles and need no masks.
    """
    PARTS: tl.constexpr = 2 if MODULUS else 1
    width = PARTS * dim
    b = (tl.program_id(2) % batches).to(tl.int64)
    split = tl.program_id(2) // batches
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.program_id(1) * (GROUPS * 32) + tl.arange(0, GROUPS)[:, None] * 32 + tl.arange(0, 32)[None, :]
    # rows beyond the last one read the last row, and their results are not stored
    i_read = i if EVEN else tl.minimum(i, rows - 1)
    row = b * rows + i_read
    if OWN_IDS:
        row = tl.load(own_ids + row).to(tl.int64)
    slopes = slope + b * rows * others + i_read * row_step
    x0 = tl.load(own + row[:, None, None] * width + k[None, :, :], mask=(k < dim)[None, :, :], other=0.0)
    first = split * per_split
    last = tl.minimum(first + per_split, others)
    total = tl.zeros((ROWS, GROUPS, 32), tl.float32)
    if MODULUS:
        y0 = tl.load(own + row[:, None, None] * width + dim + k[None, :, :], mask=(k < dim)[None, :, :], other=0.0)
        total_y = tl.zeros((ROWS, GROUPS, 32), tl.float32)
    else:
        x0 = x0 * STEEP
        weight = tl.zeros((ROWS,), tl.float32)
    for j0 in range(first, last, UNROLL):
        for u in tl.static_range(UNROLL):
            j = j0 + u
            if not EVEN:
                j = tl.minimum(j, others - 1)
            from_row = b * others + j
            if OTHER_IDS:
                from_row = tl.load(other_ids + from_row).to(tl.int64)
            vector = other + from_row * width + k
            g = tl.load(slopes + j * other_step)
            if not EVEN:
                g = tl.where(j0 + u < last, g, 0.0)
            x1 = tl.load(vector, mask=k < dim, other=0.0)
            if MODULUS:
                y1 = tl.load(vector + dim, mask=k < dim, other=0.0)
                x = x0 - x1[None, :, :]
                y = y0 - y1[None, :, :]
                g_by_length = g[:, None, None] * tl.rsqrt(y * y + (x * x + TINY))
                total += g_by_length * x
                total_y += g_by_length * y
            else:
                # Σ g · sign(x) = 2 · Σ g · [x > 0] - Σ g
                larger = tl.minimum(tl.maximum(x0 - x1[None, :, :] * STEEP, 0.0), 1.0)
                total += g[:, None, None] * larger
                weight += g
    if not MODULUS:
        total = 2.0 * total - weight[:, None, None]
    inside = (i < rows)[:, None, None] & (k < dim)[None, :, :]
    if ADD:
        target = out + row[:, None, None] * width + k[None, :, :]
        tl.atomic_add(target, total, mask=inside, sem="relaxed")
        if MODULUS:
            tl.atomic_add(target + dim, total_y, mask=inside, sem="relaxed")
    else:
        target = out + (tl.program_id(2).to(tl.int64) * rows + i)[:, None, None] * width + k[None, :, :]
        tl.store(target, total, mask=inside)
        if MODULUS:
            tl.store(target + dim, total_y, mask=inside)


def round_up(number: int, multiple: int) -> int:
    """Round up to the next multiple.

    Example:
        >>> round_up(5, 4)
        8
    """
    return -(-number // multiple) * multiple


def tile_rows(rows: int) -> int:
    """Return the rows of a program's tile: a power of two from 8 to `ROWS`.

    Example:
        >>> tile_rows(1), tile_rows(37), tile_rows(1000)
        (8, 64, 64)
    """
    return min(ROWS, max(8, int(triton.next_power_of_2(rows))))


def choose_splits(tiles: int, length: int, min_length: int) -> int:
    """Return the number of parts to split a loop into: enough to fill the GPU, each of at least `min_length`.

    Example:
        >>> choose_splits(tiles=32, length=500, min_length=32), choose_splits(tiles=1000, length=500, min_length=32)
        (8, 1)
    """
    return max(1, min(TARGET_PROGRAMS // max(tiles, 1), length // min_length))


class Tiling(NamedTuple):
    """The tiling of a kernel: rows and groups per tile, splits of its loop (0: automatic), registers per thread."""

    tile: int = 0
    groups: int = 0
    splits: int = 0
    registers: int | None = 128


AUTO = Tiling()


class Forward:
    """The shapes and buffers of one forward call. `out` has partial distances, to be summed over splits.

    Example:
        >>> call = Forward(batches=1, rows=2, columns=3, dim=5, modulus=False, device=torch.device("cpu"))
        >>> call.out.shape
        torch.Size([1, 1, 2, 3])
    """

    def __init__(
        self,
        batches: int,
        rows: int,
        columns: int,
        dim: int,
        modulus: bool,
        device: torch.device,
        tiling: Tiling = AUTO,
    ) -> None:
        self.batches, self.rows, self.columns, self.dim, self.modulus = batches, rows, columns, dim, modulus
        # a thread has 2 · groups columns; moduli need twice as many numbers per column, so half the groups
        self.registers, self.groups = tiling.registers, tiling.groups or (2 if modulus else 4)
        self.tile, wide = tiling.tile or tile_rows(rows), 2 * self.groups * LANES
        self.parts = 2 if modulus else 1
        self.pad_rows, self.pad_columns = round_up(rows, max(self.tile, 16)), round_up(columns, wide)
        self.tiles = (-(-rows // self.tile), -(-columns // wide))
        splits = tiling.splits or choose_splits(batches * self.tiles[0] * self.tiles[1], dim, 32)
        self.per_split = round_up(-(-dim // splits), UNROLL)
        self.splits = -(-dim // self.per_split)
        self.pad_dim = self.splits * self.per_split
        self.queries = torch.empty(batches, self.parts, self.pad_dim, self.pad_rows, device=device)
        self.candidates = torch.empty(batches, self.parts, self.pad_dim, self.pad_columns, device=device)
        self.out = torch.empty(self.splits, batches, rows, columns, device=device)

    def lay_out(self, source: Tensor, ids: Tensor | None, out: Tensor, rows: int, copy: Tensor | None = None) -> None:
        """Transpose rows (with ids, rows of a table) into the buffer `out`. With `copy`, also copy them as they are."""
        pad_rows = out.shape[-1]
        lay_out_kernel[(-(-pad_rows // 64), -(-self.pad_dim // 32), self.batches * self.parts)](
            source, source if ids is None else ids, out, out if copy is None else copy, rows, pad_rows, self.dim,
            self.pad_dim, source.stride(0), PARTS=self.parts, IDS=ids is not None, COPY=copy is not None, BLOCK_R=64,
            BLOCK_K=32, num_warps=4,
        )  # fmt: skip

    def distances(self) -> None:
        """Fill `out` from the transposed operands."""
        distance_kernel[(*self.tiles, self.splits * self.batches)](
            self.queries, self.candidates, self.out, self.batches, self.rows, self.columns, self.pad_rows,
            self.pad_columns, self.pad_dim, self.per_split, MODULUS=self.modulus, ROWS=self.tile, GROUPS=self.groups,
            UNROLL=UNROLL, num_warps=self.tile // 8, maxnreg=self.registers,
        )  # fmt: skip


class Backward:
    """The shapes of one gradient, Σ_j slope_ij · ∂ distance(own_i, other_j) / ∂ own_i, in parts to be summed.

    Example:
        >>> Backward(batches=1, rows=2, others=3, dim=5, modulus=False).splits
        1
    """

    def __init__(self, batches: int, rows: int, others: int, dim: int, modulus: bool, tiling: Tiling = AUTO) -> None:
        self.batches, self.rows, self.others, self.dim, self.modulus = batches, rows, others, dim, modulus
        self.registers, self.groups = tiling.registers, tiling.groups or (2 if modulus else 4)
        self.tile = tiling.tile or tile_rows(rows)
        self.tiles = (-(-rows // self.tile), -(-dim // (self.groups * LANES)))
        splits = tiling.splits or choose_splits(batches * self.tiles[0] * self.tiles[1], others, 32)
        self.per_split = round_up(-(-others // splits), UNROLL)
        self.splits = -(-others // self.per_split)

    def __call__(
        self, own: Tensor, other: Tensor, slope: Tensor, steps: tuple[int, int], out: Tensor, ids: Tensor | None = None
    ) -> None:
        """Fill `out` (splits, batches, rows, width). With ids, `own` is a table, and add to these rows of `out`."""
        gradient_kernel[(*self.tiles, self.splits * self.batches)](
            own, own if ids is None else ids, other, other, slope, out, self.batches, self.rows, self.others, self.dim,
            *steps, self.per_split, MODULUS=self.modulus, OWN_IDS=ids is not None, OTHER_IDS=False,
            ADD=ids is not None, EVEN=self.rows % self.tile == 0 and self.others % UNROLL == 0, ROWS=self.tile,
            GROUPS=self.groups, UNROLL=UNROLL, num_warps=self.tile // 8, maxnreg=self.registers,
        )  # fmt: skip


class Cross(torch.autograd.Function):
    """Distances (batches, n, d) × (batches, m, d) → (batches, n, m), with gradients."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, candidates: Tensor, modulus: bool) -> Tensor:
        """Compute the distances and sum the splits."""
        batches, rows, width = queries.shape
        columns, dim = candidates.shape[1], width // (2 if modulus else 1)
        ctx.save_for_backward(queries, candidates)
        ctx.modulus = modulus
        if not (batches and rows and columns and dim):
            return queries.new_zeros(batches, rows, columns)
        call = Forward(batches, rows, columns, dim, modulus, queries.device)
        call.lay_out(queries.view(-1, width), None, call.queries, rows)
        call.lay_out(candidates.view(-1, width), None, call.candidates, columns)
        call.distances()
        return call.out[0] if call.splits == 1 else call.out.sum(0)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """Compute the gradients that are needed."""
        queries, candidates = ctx.saved_tensors
        (batches, rows, width), columns = queries.shape, candidates.shape[1]
        dim, slope = width // (2 if ctx.modulus else 1), slope.contiguous()
        if not (batches and rows and columns and dim):
            return torch.zeros_like(queries), torch.zeros_like(candidates), None

        def gradient(own: Tensor, other: Tensor, steps: tuple[int, int]) -> Tensor:
            call = Backward(batches, own.shape[1], other.shape[1], dim, ctx.modulus)
            out = torch.empty(call.splits, *own.shape, device=own.device)
            call(own, other, slope, steps, out)
            return out[0] if call.splits == 1 else out.sum(0)

        d_queries = gradient(queries, candidates, (columns, 1)) if ctx.needs_input_grad[0] else None
        d_candidates = gradient(candidates, queries, (1, columns)) if ctx.needs_input_grad[1] else None
        return d_queries, d_candidates, None


def _cross(queries: Tensor, candidates: Tensor, modulus: bool) -> Tensor:
    lead = torch.broadcast_shapes(queries.shape[:-2], candidates.shape[:-2])
    shared = [x.float().expand(*lead, *x.shape[-2:]) for x in (queries, candidates)]
    flat = [x.reshape(lead.numel(), *x.shape[-2:]).contiguous() for x in shared]
    out: Tensor = Cross.apply(*flat, modulus)
    return out.view(*lead, queries.shape[-2], candidates.shape[-2])


def l1_cross(queries: Tensor, candidates: Tensor) -> Tensor:
    """Return ‖q - c‖₁ of every query and candidate: (..., n, d) and (..., m, d) give (..., n, m), in float32.

    Example:
        >>> device = "cuda" if torch.cuda.is_available() else "cpu"  # a CPU needs TRITON_INTERPRET=1
        >>> l1_cross(torch.zeros(1, 2, device=device), torch.ones(3, 2, device=device)).tolist()
        [[2.0, 2.0, 2.0]]
    """
    return _cross(queries, candidates, modulus=False)


def modulus_cross(queries: Tensor, candidates: Tensor) -> Tensor:
    """Return Σ |q_k - c_k| over complex coordinates; vectors have real parts first, then imaginary parts.

    Example:
        >>> device = "cuda" if torch.cuda.is_available() else "cpu"  # a CPU needs TRITON_INTERPRET=1
        >>> modulus_cross(torch.zeros(1, 2, device=device), torch.tensor([[3.0, 4.0]], device=device)).tolist()
        [[5.0]]
    """
    return _cross(queries, candidates, modulus=True)
