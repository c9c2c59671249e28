"""All-with-all distances in compiled code for a CPU: no n × m × width tensor is ever written, forwards or backwards.

Each cell of the result, and each row of a gradient, is added up by one thread in one order, so that results do not
depend on how many threads there are.
"""

import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

WORTH_THREADS = 1 << 20
"""From so many differences on, several threads are worth their start."""
BLOCK = 128
"""Candidates that are turned on their side at a time: their coordinates stay in a core's cache for all queries."""


def l1_cross(queries: NDArray[np.float32], candidates: NDArray[np.float32], threads: int = 1) -> NDArray[np.float32]:
    """The L1 distance of every query to every candidate: (n, d) and (m, d) give (n, m), without gradient.

    Several times as fast as a plain loop over pairs: neighbouring lanes of a vector register hold neighbouring
    candidates, not neighbouring coordinates. So each pair's coordinates are added up in one fixed order, wherever the
    pair stands and however many threads there are, and equal vectors have equal distances to the last bit.

    Example:
        >>> l1_cross(np.array([[0, 1]], dtype=np.float32), np.array([[1, 1], [0, 3]], dtype=np.float32))
        array([[1., 2.]], dtype=float32)
    """
    out = np.empty((len(queries), len(candidates)), dtype=np.float32)
    queries, candidates = np.ascontiguousarray(queries), np.ascontiguousarray(candidates)
    _each(lambda start: _fill(queries, candidates, start, out), range(0, len(candidates), BLOCK), threads)
    return out


@njit(nogil=True, cache=True)
def _fill(queries: NDArray[np.float32], candidates: NDArray[np.float32], start: int, out: NDArray[np.float32]) -> None:
    """The distances to one block of candidates."""
    n, d = queries.shape
    wide = min(BLOCK, len(candidates) - start)
    sideways = np.empty((d, wide), dtype=np.float32)
    for j in range(wide):
        for k in range(d):
            sideways[k, j] = candidates[start + j, k]
    whole = d // 4 * 4
    row = np.empty(wide, dtype=np.float32)
    for i in range(n):
        row[:] = 0
        for k in range(0, whole, 4):  # four at a time: the sums so far are read and written a quarter as often
            q0, q1, q2, q3 = queries[i, k], queries[i, k + 1], queries[i, k + 2], queries[i, k + 3]
            c0, c1, c2, c3 = sideways[k], sideways[k + 1], sideways[k + 2], sideways[k + 3]
            for j in range(wide):
                row[j] += (abs(q0 - c0[j]) + abs(q1 - c1[j])) + (abs(q2 - c2[j]) + abs(q3 - c3[j]))
        for k in range(whole, d):
            q0, c0 = queries[i, k], sideways[k]
            for j in range(wide):
                row[j] += abs(q0 - c0[j])
        out[i, start : start + wide] = row


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz", "arcp"})
def _l1_forward(q: Any, c: Any, out: Any) -> None:
    for b in range(q.shape[0]):
        for i in range(q.shape[1]):
            for j in range(c.shape[1]):
                total = np.float32(0)
                for k in range(q.shape[2]):
                    total += abs(q[b, i, k] - c[b, j, k])
                out[b, i, j] = total


@njit(nogil=True, cache=True, fastmath={"contract", "nsz", "arcp"})
def _l1_backward(q: Any, c: Any, g: Any, gq: Any, gc: Any) -> None:
    for b in range(q.shape[0]):
        for i in range(q.shape[1]):
            for j in range(c.shape[1]):
                up = g[b, i, j]
                for k in range(q.shape[2]):
                    x = q[b, i, k] - c[b, j, k]
                    slope = up if x > 0 else (-up if x < 0 else np.float32(0))
                    gq[b, i, k] += slope
                    gc[b, j, k] -= slope


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz", "arcp"})
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


@njit(nogil=True, cache=True, fastmath={"contract", "nsz", "arcp"})
def _modulus_backward(q: Any, c: Any, g: Any, gq: Any, gc: Any) -> None:
    d = q.shape[2] // 2
    # kept apart from the sums, so that the compiler can take several coordinates at once
    slope = np.empty(d, q.dtype)
    for b in range(q.shape[0]):
        for i in range(q.shape[1]):
            for j in range(c.shape[1]):
                up = g[b, i, j]
                for k in range(d):
                    x, y = q[b, i, k] - c[b, j, k], q[b, i, d + k] - c[b, j, d + k]
                    # a modulus has no slope at zero: there x and y are zero, and so is the gradient
                    slope[k] = up / math.sqrt(x * x + y * y + np.float32(1e-30))
                for half in (0, d):
                    for k in range(d):
                        part = slope[k] * (q[b, i, half + k] - c[b, j, half + k])
                        gq[b, i, half + k] += part
                        gc[b, j, half + k] -= part


@cache
def _workers(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="plogicnet-compare")


def _cuts(length: int, work: int) -> list[slice]:
    """One slice of the length for each thread; a single one where the work is not worth more."""
    threads = min(torch.get_num_threads(), length) if work >= WORTH_THREADS else 1
    return [slice(length * i // threads, length * (i + 1) // threads) for i in range(threads)]


def _run(kernel: Callable[..., None], pieces: list[tuple[Any, ...]]) -> None:
    _each(lambda piece: kernel(*piece), pieces, len(pieces))


def _each(work: Callable[[Any], None], items: Iterable[Any], threads: int) -> None:
    """Calls work(item) for each item, on so many threads."""
    list(map(work, items) if threads == 1 else _workers(threads).map(work, items))


class _Cross(torch.autograd.Function):
    """Flattens what stands before the last two axes, and calls compiled code."""

    alone: Callable[..., Any] | None = None
    """A quicker way forwards where there is one set of candidates for all queries."""
    forward_kernel: Callable[..., None]
    backward_kernel: Callable[..., None]

    @classmethod
    def forward(cls, ctx: Any, queries: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """The distances."""
        ctx.save_for_backward(queries, candidates)
        q, c = _arrays(queries, candidates)
        out = np.empty((q.shape[0], q.shape[1], c.shape[1]), dtype=q.dtype)
        work = out.size * q.shape[2]
        if q.shape[0] == 1 and cls.alone is not None and q.dtype == np.float32:
            out = cls.alone(q[0], c[0], len(_cuts(c.shape[1], work)))
        elif q.shape[0] == 1:  # one set of candidates for all queries: the queries are shared out
            _run(cls.forward_kernel, [(q[:, s], c, out[:, s]) for s in _cuts(q.shape[1], work)])
        else:
            _run(cls.forward_kernel, [(q[s], c[s], out[s]) for s in _cuts(q.shape[0], work)])
        return torch.from_numpy(out).view(*queries.shape[:-1], candidates.shape[-2])

    @classmethod
    def backward(cls, ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradients of both."""
        q, c, g = _arrays(*ctx.saved_tensors, grad)
        gq, gc = np.zeros_like(q), np.zeros_like(c)
        cuts = _cuts(q.shape[0], g.size * q.shape[2])
        _run(cls.backward_kernel, [(q[s], c[s], g[s], gq[s], gc[s]) for s in cuts])
        queries, candidates = ctx.saved_tensors
        return torch.from_numpy(gq).view(queries.shape), torch.from_numpy(gc).view(candidates.shape)


def _arrays(*tensors: torch.Tensor) -> list[Any]:
    """The tensors as arrays of three axes."""
    return [t.detach().reshape(math.prod(t.shape[:-2]), *t.shape[-2:]).contiguous().numpy() for t in tensors]


class L1(_Cross):
    """L1 distances."""

    alone = staticmethod(l1_cross)
    forward_kernel, backward_kernel = staticmethod(_l1_forward), staticmethod(_l1_backward)


class Modulus(_Cross):
    """Sums of the moduli of complex differences; real parts, then imaginary ones."""

    forward_kernel, backward_kernel = staticmethod(_modulus_forward), staticmethod(_modulus_backward)
