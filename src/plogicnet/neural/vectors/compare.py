"""Comparison of vectors by L1 distance, sum of complex moduli or dot product, for pairs or for all combinations."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor

from plogicnet.neural.vectors.compiled import L1, Modulus

Kernel = Literal["l1", "modulus", "dot"]
CHUNK_DIFFERENCES = 1 << 26
"""Maximum number of coordinate differences in memory when moduli are compared with PyTorch operations."""
Compare = Callable[[Tensor, Tensor], Tensor]


def choose_cross(kernel: Kernel, kernels: str, device: torch.device) -> Compare:
    """Return the function that compares all queries with all candidates: (..., n, w), (..., m, w) → (..., n, m).

    With `kernels="plain"`, and for dot products, the function uses PyTorch operations. Otherwise it is compiled code on
    a CPU, and a Triton kernel on a GPU if Triton is installed.

    Example:
        >>> cross = choose_cross("l1", "auto", torch.device("cpu"))
        >>> cross(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 1.0], [0.0, 3.0]]))
        tensor([[1., 2.]])
    """
    on_cpu = device.type == "cpu"
    if kernels == "plain" or kernel == "dot" or not (on_cpu or find_spec("triton")):
        return PLAIN[kernel]
    if on_cpu:
        return COMPILED[kernel]
    from plogicnet.neural.vectors.kernels import cross

    return cross.l1_cross if kernel == "l1" else cross.modulus_cross


def _modulus_pair(queries: Tensor, candidates: Tensor) -> Tensor:
    real, imaginary = (queries - candidates).chunk(2, dim=-1)
    # the gradient of the root is infinite at zero; with clamping, the gradient is zero there
    return (real * real + imaginary * imaginary).clamp_min(torch.finfo(real.dtype).tiny).sqrt().sum(-1)


def _modulus_cross(queries: Tensor, candidates: Tensor) -> Tensor:
    rows = max(1, CHUNK_DIFFERENCES // max(1, candidates.numel()))
    parts = [queries[..., at : at + rows, None, :] for at in range(0, max(1, queries.shape[-2]), rows)]
    return torch.cat([_modulus_pair(part, candidates[..., None, :, :]) for part in parts], dim=-2)


def _dot_cross(queries: Tensor, candidates: Tensor) -> Tensor:
    if candidates.requires_grad:  # in this order the gradient has the memory layout of the candidates
        return (candidates @ queries.transpose(-1, -2)).transpose(-1, -2)
    return queries @ candidates.transpose(-1, -2)  # in this order equal candidates have bit-identical scores


PAIRS: Mapping[Kernel, Compare] = {
    "l1": lambda queries, candidates: (queries - candidates).abs().sum(-1),
    "modulus": _modulus_pair,
    "dot": lambda queries, candidates: (queries * candidates).sum(-1),
}
PLAIN: Mapping[Kernel, Compare] = {"l1": partial(torch.cdist, p=1.0), "modulus": _modulus_cross, "dot": _dot_cross}
COMPILED: Mapping[Kernel, Compare] = {"l1": L1.apply, "modulus": Modulus.apply}
