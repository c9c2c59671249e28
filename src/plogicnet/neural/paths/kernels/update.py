"""Kernels that compute new states from old states and statistics, and the gradients of this update.

A row is an entity and a query. A program computes ROWS rows. Lower bound: the forward pass reads 5 · d and writes d
numbers per row; the backward pass reads 6 · d numbers and writes 8 · d. With 14,541 × 64 rows of 32 numbers of two
bytes, this is 0.36 GB and 0.83 GB per layer, so 0.07 ms and 0.17 ms at 4.8 TB/s.
"""

import triton
import triton.language as tl

from plogicnet.neural.paths import layer

MIN_SCALE = tl.constexpr(layer.MIN_SCALE)
NORM_EPSILON = tl.constexpr(1e-5)
MIN_DEVIATION = tl.constexpr(layer.MIN_VARIANCE**0.5 * (1 + 5e-7))
"""Deviations up to this are those of the smallest variance, rounded, and have no gradient."""


@triton.jit
def _normalised(
    state, statistic, scale, inverse_scale, state_map, statistics_map, bias, d, D: tl.constexpr,
):  # fmt: skip
    """Return the normalised change of the states, before scale and shift, and the inverse deviation."""
    k = tl.arange(0, 4 * D)
    map_at = k[:, None] * D + d[None, :]
    change = tl.dot(state, tl.load(state_map + d[:, None] * D + d[None, :]), input_precision="ieee")
    change += tl.dot(statistic, tl.load(statistics_map + map_at), input_precision="ieee")
    multiplied = tl.dot(statistic, tl.load(statistics_map + 4 * D * D + map_at), input_precision="ieee")
    divided = tl.dot(statistic, tl.load(statistics_map + 8 * D * D + map_at), input_precision="ieee")
    change += scale[:, None] * multiplied + inverse_scale[:, None] * divided + tl.load(bias + d)[None, :]
    centred = change - (tl.sum(change, 1) / D)[:, None]
    inverse_deviation = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / D + NORM_EPSILON)
    return centred * inverse_deviation[:, None], inverse_deviation


@triton.jit
def _is_reached(statistic, k, D: tl.constexpr):
    """Return whether a row has a message that is not zero: then its largest or its smallest message is not zero."""
    is_extreme = (k >= D) & (k < 3 * D)
    return tl.max(tl.where(is_extreme[None, :], tl.abs(statistic.to(tl.float32)), 0.0), 1) > 0


@triton.jit
def update_states(
    states, statistics, log_count, state_map, statistics_map, bias, norm_scale, norm_shift, new_states, n_rows,
    inverse_mean_log, D: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Compute the new states of some rows."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = row < n_rows
    d = tl.arange(0, D)
    k = tl.arange(0, 4 * D)
    state = tl.load(states + row[:, None] * D + d[None, :], mask=exists[:, None], other=0.0)
    statistic = tl.load(statistics + row[:, None] * (4 * D) + k[None, :], mask=exists[:, None], other=0.0)
    scale = tl.load(log_count + row, mask=exists, other=1.0) * inverse_mean_log
    inverse_scale = 1.0 / tl.maximum(scale, MIN_SCALE)
    normal, _ = _normalised(state, statistic, scale, inverse_scale, state_map, statistics_map, bias, d, D)
    activated = tl.maximum(normal * tl.load(norm_scale + d)[None, :] + tl.load(norm_shift + d)[None, :], 0.0)
    activated = tl.where(_is_reached(statistic, k, D)[:, None], activated, 0.0)
    new = (state.to(tl.float32) + activated).to(new_states.dtype.element_ty)
    tl.store(new_states + row[:, None] * D + d[None, :], new, mask=exists[:, None])


@triton.jit
def _back(p1, p2, p3, statistics_map, part, d, D: tl.constexpr):
    """Return the gradient of one of the four statistics, given those of the three products."""
    at = part * D * D + d[:, None] * D + d[None, :]
    gradient = tl.dot(p1, tl.trans(tl.load(statistics_map + at)), input_precision="ieee")
    gradient += tl.dot(p2, tl.trans(tl.load(statistics_map + 4 * D * D + at)), input_precision="ieee")
    return gradient + tl.dot(p3, tl.trans(tl.load(statistics_map + 8 * D * D + at)), input_precision="ieee")


@triton.jit
def update_gradients(
    states, statistics, log_count, state_map, statistics_map, bias, norm_scale, norm_shift, d_new, gradients,
    d_products, d_states, partial, n_rows, inverse_mean_log, D: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of the states, of the three products of the statistics, and of the messages.

    `gradients` gets the four terms of a message's gradient; see `message_gradients`. `partial` gets the gradients of
    norm_scale, norm_shift and bias, summed over the rows of the program.
    """
    program = tl.program_id(0)
    row = program.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = (row < n_rows)[:, None]
    d = tl.arange(0, D)
    k = tl.arange(0, 4 * D)
    at = row[:, None] * D + d[None, :]
    four = row[:, None] * (4 * D) + d[None, :]
    state = tl.load(states + at, mask=exists, other=0.0)
    statistic = tl.load(statistics + row[:, None] * (4 * D) + k[None, :], mask=exists, other=0.0)
    log_d = tl.load(log_count + row, mask=row < n_rows, other=1.0)
    scale = log_d * inverse_mean_log
    inverse_scale = 1.0 / tl.maximum(scale, MIN_SCALE)
    normal, inverse_deviation = _normalised(
        state, statistic, scale, inverse_scale, state_map, statistics_map, bias, d, D
    )
    gamma = tl.load(norm_scale + d)[None, :]
    d_out = tl.load(d_new + at, mask=exists, other=0.0).to(tl.float32)
    is_active = (normal * gamma + tl.load(norm_shift + d)[None, :] > 0) & _is_reached(statistic, k, D)[:, None]
    d_active = tl.where(is_active, d_out, 0.0)
    d_normal = d_active * gamma
    mean = (tl.sum(d_normal, 1) / D)[:, None]
    along = (tl.sum(d_normal * normal, 1) / D)[:, None]
    d_change = (d_normal - mean - normal * along) * inverse_deviation[:, None]
    tl.store(partial + program * (3 * D) + d, tl.sum(d_active * normal, 0))
    tl.store(partial + program * (3 * D) + D + d, tl.sum(d_active, 0))
    tl.store(partial + program * (3 * D) + 2 * D + d, tl.sum(d_change, 0))
    kind = statistics.dtype.element_ty
    p1 = d_change.to(kind)
    p2 = (d_change * scale[:, None]).to(kind)
    p3 = (d_change * inverse_scale[:, None]).to(kind)
    three = row[:, None] * (3 * D) + d[None, :]
    tl.store(d_products + three, p1, mask=exists)
    tl.store(d_products + three + D, p2, mask=exists)
    tl.store(d_products + three + 2 * D, p3, mask=exists)
    square = d[:, None] * D + d[None, :]
    d_state = d_out + tl.dot(p1, tl.trans(tl.load(state_map + square)), input_precision="ieee")
    tl.store(d_states + at, d_state, mask=exists)
    # with the mean μ and the deviation σ of n messages, dμ/dm = 1/n and dσ/dm = (m - μ) / (σ n)
    count = tl.exp(log_d)[:, None]
    mean = tl.load(statistics + four, mask=exists, other=0.0).to(tl.float32)
    deviation = tl.load(statistics + four + 3 * D, mask=exists, other=1.0).to(tl.float32)
    d_deviation = _back(p1, p2, p3, statistics_map, 3, d, D)
    slope = tl.where(deviation > MIN_DEVIATION, d_deviation / deviation, 0.0) / count
    constant = _back(p1, p2, p3, statistics_map, 0, d, D) / count - mean * slope
    tl.store(gradients + four, constant.to(kind), mask=exists)
    tl.store(gradients + four + D, slope.to(kind), mask=exists)
    tl.store(gradients + four + 2 * D, _back(p1, p2, p3, statistics_map, 1, d, D).to(kind), mask=exists)
    tl.store(gradients + four + 3 * D, _back(p1, p2, p3, statistics_map, 2, d, D).to(kind), mask=exists)
