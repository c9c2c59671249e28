"""Compiled CPU code for the distances of all queries to all candidates, and their gradients.

No n × m × width tensor is created. One thread sums each cell of the result and each row of a gradient in a fixed order,
so that results do not depend on the number of threads.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from plogicnet.support.compiling import compiled
from plogicnet.support.threads import map_in_threads

MIN_PARALLEL_WORK = 1 << 20
"""Minimum number of coordinate differences at which several threads pay off."""
BLOCK = 128
"""The number of candidates that are transposed at a time, so that they stay in a core's cache for all queries."""


def l1_cross(queries: NDArray[np.float32], candidates: NDArray[np.float32], threads: int = 1) -> NDArray[np.float32]:
    """Return the L1 distance of every query to every candidate: (n, d) and (m, d) give (n, m), without gradient.

    SIMD lanes contain neighbouring candidates, not neighbouring coordinates. This is several times as fast as a loop
    over pairs. The coordinates of each pair are summed in a fixed order, so that equal vectors have bit-identical
    distances.

    Example:
        >>> l1_cross(np.array([[0, 1]], dtype=np.float32), np.array([[1, 1], [0, 3]], dtype=np.float32))
        array([[1., 2.]], dtype=float32)
    """
    out = np.empty((len(queries), len(candidates)), dtype=np.float32)
    queries, candidates = np.ascontiguousarray(queries), np.ascontiguousarray(candidates)
    blocks = range(0, len(candidates), BLOCK)
    list(map_in_threads(lambda start: _fill(queries, candidates, start, out), blocks, threads))
    return out


@compiled()
def _fill(queries: NDArray[np.float32], candidates: NDArray[np.float32], start: int, out: NDArray[np.float32]) -> None:
    """Write the distances to one block of candidates."""
    n, d = queries.shape
    wide = min(BLOCK, len(candidates) - start)
    transposed = np.empty((d, wide), dtype=np.float32)
    for j in range(wide):
        for k in range(d):
            transposed[k, j] = candidates[start + j, k]
    whole = d // 4 * 4
    row = np.empty(wide, dtype=np.float32)
    for i in range(n):
        row[:] = 0
        for k in range(0, whole, 4):  # four at a time, to read and write the sums a quarter as often
            q0, q1, q2, q3 = queries[i, k], queries[i, k + 1], queries[i, k + 2], queries[i, k + 3]
            c0, c1, c2, c3 = transposed[k], transposed[k + 1], transposed[k + 2], transposed[k + 3]
            for j in range(wide):
                row[j] += (abs(q0 - c0[j]) + abs(q1 - c1[j])) + (abs(q2 - c2[j]) + abs(q3 - c3[j]))
        for k in range(whole, d):
            q0, c0 = queries[i, k], transposed[k]
            for j in range(wide):
                row[j] += abs(q0 - c0[j])
        out[i, start : start + wide] = row


@compiled("reassoc", "contract", "nsz", "arcp")
def _l1_forward(q: Any, c: Any, out: Any) -> None:
    for b in range(q.shape[0]):
        for i in range(q.shape[1]):
            for j in range(c.shape[1]):
                total = np.float32(0)
                for k in range(q.shape[2]):
                    total += abs(q[b, i, k] - c[b, j, k])
                out[b, i, j] = total


@compiled("contract", "nsz", "arcp")
def _l1_backward(q: Any, c: Any, g: Any, gq: Any, gc: Any) -> None:
    for b in range(q.shape[0]):
        for i in range(q.shape[1]):
            for j in range(c.shape[1]):
                upstream = g[b, i, j]
                for k in range(q.shape[2]):
                    x = q[b, i, k] - c[b, j, k]
                    slope = upstream if x > 0 else (-upstream if x < 0 else np.float32(0))
                    gq[b, i, k] += slope
                    gc[b, j, k] -= slope


@compiled("reassoc", "contract", "nsz", "arcp")
def _modulus_forward(q: Any, c: Any, out: Any) -> None:
    d = q.shape[2] // 2
    for b in range(q.shape[0]):
        for i in range(q.shape[1]):
            for j in range(c.shape[1]):
                total = np.float32(0)
                for k in range(d):
                    x, y = q[b, i, k] - c[b, j, k], q[b, i, d + k] - c[b, j, d + k]
                    total += math.sqrt(x * x + y * y)
                out[b, i, j] = total


@compiled("contract", "nsz", "arcp")
def _modulus_backward(q: Any, c: Any, g: Any, gq: Any, gc: Any) -> None:
    d = q.shape[2] // 2
    # separate from the sums, so that the compiler can vectorise both loops
    slope = np.empty(d, q.dtype)
    for b in range(q.shape[0]):
        for i in range(q.shape[1]):
            for j in range(c.shape[1]):
                upstream = g[b, i, j]
                for k in range(d):
                    x, y = q[b, i, k] - c[b, j, k], q[b, i, d + k] - c[b, j, d + k]
                    # at zero, x and y are zero, so the gradient is zero too
                    slope[k] = upstream / math.sqrt(x * x + y * y + np.float32(1e-30))
                for half in (0, d):
                    for k in range(d):
                        part = slope[k] * (q[b, i, half + k] - c[b, j, half + k])
                        gq[b, i, half + k] += part
                        gc[b, j, half + k] -= part


def _thread_slices(length: int, work: int) -> list[slice]:
    """Split range(length) into one slice per thread. Little work is one slice."""
    threads = min(torch.get_num_threads(), length) if work >= MIN_PARALLEL_WORK else 1
    return [slice(length * i // threads, length * (i + 1) // threads) for i in range(threads)]


def _run_kernel(kernel: Callable[..., None], pieces: list[tuple[Any, ...]]) -> None:
    list(map_in_threads(lambda piece: kernel(*piece), pieces, len(pieces)))


class _Cross(torch.autograd.Function):
    """An autograd function that flattens all axes before the last two and calls compiled code."""

    shared_forward: Callable[..., Any] | None = None
    """A faster forward pass for one set of candidates that all queries share."""
    forward_kernel: Callable[..., None]
    backward_kernel: Callable[..., None]

    @classmethod
    def forward(cls, ctx: Any, queries: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """Compute the distances."""
        ctx.save_for_backward(queries, candidates)
        q, c = _arrays(queries, candidates)
        out = np.empty((q.shape[0], q.shape[1], c.shape[1]), dtype=q.dtype)
        work = out.size * q.shape[2]
        if q.shape[0] == 1 and cls.shared_forward is not None and q.dtype == np.float32:
            out = cls.shared_forward(q[0], c[0], len(_thread_slices(c.shape[1], work)))
        elif q.shape[0] == 1:  # all queries share one set of candidates: split the queries
            _run_kernel(cls.forward_kernel, [(q[:, s], c, out[:, s]) for s in _thread_slices(q.shape[1], work)])
        else:
            _run_kernel(cls.forward_kernel, [(q[s], c[s], out[s]) for s in _thread_slices(q.shape[0], work)])
        return torch.from_numpy(out).view(*queries.shape[:-1], candidates.shape[-2])

    @classmethod
    def backward(cls, ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the gradients of queries and candidates."""
        q, c, g = _arrays(*ctx.saved_tensors, grad)
        gq, gc = np.zeros_like(q), np.zeros_like(c)
        slices = _thread_slices(q.shape[0], g.size * q.shape[2])
        _run_kernel(cls.backward_kernel, [(q[s], c[s], g[s], gq[s], gc[s]) for s in slices])
        queries, candidates = ctx.saved_tensors
        return torch.from_numpy(gq).view(queries.shape), torch.from_numpy(gc).view(candidates.shape)


def _arrays(*tensors: torch.Tensor) -> list[Any]:
    """Return the tensors as arrays with three axes."""
    return [t.detach().reshape(math.prod(t.shape[:-2]), *t.shape[-2:]).contiguous().numpy() for t in tensors]


class L1(_Cross):
    """L1 distances."""

    shared_forward = staticmethod(l1_cross)
    forward_kernel, backward_kernel = staticmethod(_l1_forward), staticmethod(_l1_backward)


class Modulus(_Cross):
    """Sums of the moduli of complex differences. Vectors contain all real parts, then all imaginary parts."""

    forward_kernel, backward_kernel = staticmethod(_modulus_forward), staticmethod(_modulus_backward)
