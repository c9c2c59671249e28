"""The code that computes the path model."""

from importlib.util import find_spec
from typing import Literal

import torch

from plogicnet.neural.device import pick_device
from plogicnet.neural.paths.settings import PathSettings
from plogicnet.support.errors import InputError

Backend = Literal["plain", "compiled", "fused"]
"""Operations of PyTorch, functions compiled for a CPU, or Triton kernels for a GPU."""
FUSED_DIMS = (16, 32, 64, 128)
"""The lengths of states that the Triton kernels support: their blocks are powers of two."""


def device_for(settings: PathSettings, name: str) -> torch.device:
    """Return the device for the setting `auto`, `cpu` or `cuda`. With a frontier, `auto` is the CPU.

    Example:
        >>> device_for(PathSettings(frontier=100), "auto")
        device(type='cpu')
    """
    return pick_device("cpu" if name == "auto" and settings.frontier else name)


def choose_backend(settings: PathSettings, device: torch.device) -> Backend:
    """Return the fastest backend for a device that the settings permit.

    Example:
        >>> choose_backend(PathSettings(), torch.device("cpu"))
        'compiled'
    """
    reason = fused_unsupported_reason(settings, device)
    if settings.kernels == "fused" and reason:
        raise InputError(f"neural.kernels: {reason}, or set neural.kernels=auto.")
    backend: Backend = "plain"
    if settings.kernels != "plain":
        backend = "compiled" if device.type == "cpu" else "plain" if reason else "fused"
    if settings.frontier and backend != "compiled":
        raise InputError(
            "neural.paths.frontier needs compiled code. Use --device cpu and neural.kernels=auto, or set it to 0."
        )
    return backend


def fused_unsupported_reason(settings: PathSettings, device: torch.device) -> str | None:
    """Return why the Triton kernels cannot be used, with advice, or None.

    Example:
        >>> fused_unsupported_reason(PathSettings(), torch.device("cpu"))
        'fused kernels need a GPU. Use --device cuda'
    """
    if device.type != "cuda":
        return "fused kernels need a GPU. Use --device cuda"
    if find_spec("triton") is None:
        return "fused kernels need Triton. Install it: pip install 'plogicnet[kernels]'"
    if settings.dim not in FUSED_DIMS:
        return f"fused kernels need neural.paths.dim to be one of {', '.join(map(str, FUSED_DIMS))}"
    return None
