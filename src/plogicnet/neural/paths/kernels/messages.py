"""Kernels that reduce the messages to each entity to four statistics, and compute the gradients of the messages.

All tensors are contiguous. A program computes a tile of queries × dimensions of one piece of the layout; the blocks of
queries are the slowest index, so that the states of a block stay in the L2 cache. Hidden edges are recognised by
comparing numbers, so the layout is the same for all queries.

Before the first layer, only the known entities have a state that is not zero (FIRST). Their messages are the only ones
that are read, and only their gradients are computed.

Lower bound of each other layer, with E edges, B queries and d dimensions in two bytes: the forward pass reads a state
per edge, so 2 · E · B · d bytes. The backward pass reads four gradients and two positions per edge, so 12 · E · B · d
bytes. For FB15k-237 (E = 544,230, B = 64, d = 32) these are 2.2 GB and 13.4 GB. The L2 cache serves a part of them.
"""

import triton
import triton.language as tl

from plogicnet.neural.paths import layer

MIN_VARIANCE = tl.constexpr(layer.MIN_VARIANCE)


@triton.jit
def _is_hidden(source, relation, destination, known, answer, asked, inverse, HIDE: tl.constexpr):
    """Return for each query whether an edge is hidden. HIDE is 1 for the asked edge, 2 for all edges of the pair."""
    forward = (source == known) & (destination == answer)
    backward = (source == answer) & (destination == known)
    if HIDE == 1:
        forward = forward & (relation == asked)
        backward = backward & (relation == inverse)
    return forward | backward


@triton.jit
def _store_statistics(
    v, b, d, known, boundary, degree, n_hidden, total, square, top, low, top_at, low_at,
    statistics, positions, log_count, B, D: tl.constexpr, SAVE: tl.constexpr,
):  # fmt: skip
    """Add the boundary to the reduced messages, and store the statistics of one entity.

    A position of -1 means that the boundary is the largest or smallest message.
    """
    tile = b[:, None] * D + d[None, :]
    start = tl.where((v == known)[:, None], tl.load(boundary + tile).to(tl.float32), 0.0)
    count = tl.load(degree + v).to(tl.float32) + 1.0 - n_hidden
    total += start
    square += start * start
    top_at = tl.where(start >= top, -1, top_at)
    low_at = tl.where(start <= low, -1, low_at)
    mean = total / count[:, None]
    deviation = tl.sqrt(tl.maximum(square / count[:, None] - mean * mean, MIN_VARIANCE))
    entity = v.to(tl.int64) * B
    at = (entity + b[:, None]) * (4 * D) + d[None, :]
    kind = statistics.dtype.element_ty
    tl.store(statistics + at, mean.to(kind))
    tl.store(statistics + at + D, tl.maximum(top, start).to(kind))
    tl.store(statistics + at + 2 * D, tl.minimum(low, start).to(kind))
    tl.store(statistics + at + 3 * D, deviation.to(kind))
    tl.store(log_count + entity + b, tl.log(count))
    if SAVE:
        at = (entity + b[:, None]) * (2 * D) + d[None, :]
        tl.store(positions + at, top_at.to(positions.dtype.element_ty))
        tl.store(positions + at + D, low_at.to(positions.dtype.element_ty))


@triton.jit
def reduce_messages(
    states, vector, boundary, pieces, source, relation, degree, known, answer, asked, inverse,
    statistics, positions, log_count, part_values, part_positions, part_hidden, n_pieces, B,
    D: tl.constexpr, BLOCK: tl.constexpr, UNROLL: tl.constexpr, HIDE: tl.constexpr, SAVE: tl.constexpr,
    FIRST: tl.constexpr,
):  # fmt: skip
    """Reduce the messages of one piece. Store the statistics, or a scratch row if the entity has several pieces."""
    program = tl.program_id(0)
    piece = pieces + (program % n_pieces) * 5
    b = (program // n_pieces) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    v = tl.load(piece)
    first = tl.load(piece + 1)
    last = tl.load(piece + 2)
    scratch = tl.load(piece + 3)
    position = tl.load(piece + 4)
    tile = b[:, None] * D + d[None, :]
    known_b = tl.load(known + b)
    answer_b = tl.load(answer + b)
    asked_b = tl.load(asked + b)
    inverse_b = tl.load(inverse + b)
    total = tl.zeros((BLOCK, D), tl.float32)
    square = tl.zeros((BLOCK, D), tl.float32)
    top = tl.full((BLOCK, D), -float("inf"), tl.float32)
    low = tl.full((BLOCK, D), float("inf"), tl.float32)
    top_at = tl.full((BLOCK, D), -1, tl.int32)
    low_at = tl.full((BLOCK, D), -1, tl.int32)
    n_hidden = tl.zeros((BLOCK,), tl.float32)
    is_end = tl.max(((known_b == v) | (answer_b == v)).to(tl.int32), 0) > 0
    for start in range(first, last, UNROLL):
        for i in tl.static_range(UNROLL):
            exists = start + i < last
            edge = tl.minimum(start + i, last - 1)
            u = tl.load(source + edge)
            r = tl.load(relation + edge)
            state_at = states + u.to(tl.int64) * (B * D) + tile
            factor_at = vector + r.to(tl.int64) * (B * D) + tile
            if FIRST:
                is_sender = (u == known_b)[:, None]
                state = tl.load(state_at, mask=is_sender, other=0.0).to(tl.float32)
                factor = tl.load(factor_at, mask=is_sender, other=0.0).to(tl.float32)
            else:
                state = tl.load(state_at).to(tl.float32)
                factor = tl.load(factor_at).to(tl.float32)
            message = tl.where(exists, state * factor, 0.0)
            counts = exists & (b >= 0)[:, None]
            if HIDE > 0:
                if is_end:  # other entities have no hidden edges
                    hidden = exists & _is_hidden(u, r, v, known_b, answer_b, asked_b, inverse_b, HIDE)
                    n_hidden += hidden.to(tl.float32)
                    message = tl.where(hidden[:, None], 0.0, message)
                    counts = counts & ~hidden[:, None]
            total += message
            square += message * message
            at = start + i - first + position
            is_top = counts & (message > top)
            top_at = tl.where(is_top, at, top_at)
            top = tl.where(is_top, message, top)
            is_low = counts & (message < low)
            low_at = tl.where(is_low, at, low_at)
            low = tl.where(is_low, message, low)
    if scratch < 0:
        _store_statistics(
            v, b, d, known_b, boundary, degree, n_hidden, total, square, top, low, top_at, low_at,
            statistics, positions, log_count, B, D, SAVE,
        )  # fmt: skip
    else:
        row = scratch.to(tl.int64)
        at = row * (4 * B * D) + tile
        tl.store(part_values + at, total)
        tl.store(part_values + at + B * D, square)
        tl.store(part_values + at + 2 * B * D, top)
        tl.store(part_values + at + 3 * B * D, low)
        if SAVE:
            tl.store(part_positions + row * (2 * B * D) + tile, top_at)
            tl.store(part_positions + row * (2 * B * D) + B * D + tile, low_at)
        tl.store(part_hidden + row * B + b, n_hidden)


@triton.jit
def combine_pieces(
    combined, boundary, degree, known, statistics, positions, log_count, part_values, part_positions, part_hidden, B,
    D: tl.constexpr, BLOCK: tl.constexpr, SAVE: tl.constexpr,
):  # fmt: skip
    """Combine the scratch rows of an entity with several pieces, in order, and store its statistics."""
    entry = combined + tl.program_id(0) * 3
    b = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    v = tl.load(entry)
    first = tl.load(entry + 1)
    last = tl.load(entry + 2)
    tile = b[:, None] * D + d[None, :]
    total = tl.zeros((BLOCK, D), tl.float32)
    square = tl.zeros((BLOCK, D), tl.float32)
    top = tl.full((BLOCK, D), -float("inf"), tl.float32)
    low = tl.full((BLOCK, D), float("inf"), tl.float32)
    top_at = tl.full((BLOCK, D), -1, tl.int32)
    low_at = tl.full((BLOCK, D), -1, tl.int32)
    n_hidden = tl.zeros((BLOCK,), tl.float32)
    row = first.to(tl.int64)
    for _ in range(first, last):
        at = row * (4 * B * D) + tile
        total += tl.load(part_values + at)
        square += tl.load(part_values + at + B * D)
        best = tl.load(part_values + at + 2 * B * D)
        worst = tl.load(part_values + at + 3 * B * D)
        if SAVE:
            top_at = tl.where(best > top, tl.load(part_positions + row * (2 * B * D) + tile), top_at)
            low_at = tl.where(worst < low, tl.load(part_positions + row * (2 * B * D) + B * D + tile), low_at)
        top = tl.maximum(top, best)
        low = tl.minimum(low, worst)
        n_hidden += tl.load(part_hidden + row * B + b)
        row += 1
    _store_statistics(
        v, b, d, tl.load(known + b), boundary, degree, n_hidden, total, square, top, low, top_at, low_at,
        statistics, positions, log_count, B, D, SAVE,
    )  # fmt: skip


@triton.jit
def message_gradients(
    states, vector, run_pieces, runs, destination, position, known, answer, asked, inverse, gradients, positions,
    d_states, d_vector, n_pieces, n_copies, n_vectors, B, D: tl.constexpr, BLOCK: tl.constexpr, HIDE: tl.constexpr,
    FIRST: tl.constexpr,
):  # fmt: skip
    """Add the gradients of the messages of some runs to those of the states and of the relation vectors.

    The gradient of a message m to v is a + c · m + [m is the largest] · t + [m is the smallest] · l. a, c, t and l are
    the four gradients of v from `update_gradients`. The messages of a run are equal, so these are summed first.
    `d_vector` has several copies, because programs that add to the same address wait for each other.
    """
    program = tl.program_id(0)
    piece = run_pieces + (program % n_pieces) * 4
    b = (program // n_pieces) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    u = tl.load(piece)
    first_run = tl.load(piece + 1)
    last_run = tl.load(piece + 2)
    is_only = tl.load(piece + 3)
    tile = b[:, None] * D + d[None, :]
    state_at = u.to(tl.int64) * (B * D) + tile
    state = tl.load(states + state_at).to(tl.float32)
    four = b[:, None] * (4 * D) + d[None, :]
    two = b[:, None] * (2 * D) + d[None, :]
    known_b = tl.load(known + b)
    answer_b = tl.load(answer + b)
    asked_b = tl.load(asked + b)
    inverse_b = tl.load(inverse + b)
    is_end = tl.max(((known_b == u) | (answer_b == u)).to(tl.int32), 0) > 0
    if FIRST:
        is_sender = tl.max((known_b == u).to(tl.int32), 0) > 0
        last_run = tl.where(is_sender, last_run, first_run)
    copy_at = (program % n_copies).to(tl.int64) * (n_vectors * B * D)
    d_state = tl.zeros((BLOCK, D), tl.float32)
    for run in range(first_run, last_run):
        r = tl.load(runs + run * 3)
        first = tl.load(runs + run * 3 + 1)
        last = tl.load(runs + run * 3 + 2)
        vector_at = r.to(tl.int64) * (B * D) + tile
        factor = tl.load(vector + vector_at).to(tl.float32)
        constant = tl.zeros((BLOCK, D), tl.float32)
        slope = tl.zeros((BLOCK, D), tl.float32)
        for edge in range(first, last):
            v = tl.load(destination + edge).to(tl.int64)
            at = tl.load(position + edge).to(positions.dtype.element_ty)
            gradient = gradients + v * (B * 4 * D) + four
            where = positions + v * (B * 2 * D) + two
            added = tl.load(gradient).to(tl.float32)
            added += tl.where(tl.load(where) == at, tl.load(gradient + 2 * D).to(tl.float32), 0.0)
            added += tl.where(tl.load(where + D) == at, tl.load(gradient + 3 * D).to(tl.float32), 0.0)
            steeper = tl.load(gradient + D).to(tl.float32)
            if HIDE > 0:
                if is_end:  # other entities have no hidden edges
                    hidden = _is_hidden(u, r, v, known_b, answer_b, asked_b, inverse_b, HIDE)
                    added = tl.where(hidden[:, None], 0.0, added)
                    steeper = tl.where(hidden[:, None], 0.0, steeper)
            constant += added
            slope += steeper
        d_message = constant + state * factor * slope
        d_state += factor * d_message
        tl.atomic_add(d_vector + copy_at + vector_at, state * d_message, sem="relaxed")
    if is_only != 0:
        tl.store(d_states + state_at, tl.load(d_states + state_at) + d_state)
    else:
        tl.atomic_add(d_states + state_at, d_state, sem="relaxed")
