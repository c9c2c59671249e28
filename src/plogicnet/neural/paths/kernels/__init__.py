"""Triton kernels of the path model. Only this module and `kernels.layer` are used from outside."""

from importlib.util import find_spec

import torch

from plogicnet.neural.paths.settings import PathSettings

DIMS = (16, 32, 64, 128)
"""The lengths of states that the kernels support: blocks of Triton are powers of two."""


def unsupported_reason(settings: PathSettings, device: torch.device) -> str | None:
    """Return why the kernels cannot be used, with advice, or None.

    Example:
        >>> unsupported_reason(PathSettings(), torch.device("cpu"))
        'fused kernels need a GPU. Use --device cuda'
    """
    if device.type != "cuda":
        return "fused kernels need a GPU. Use --device cuda"
    if find_spec("triton") is None:
        return "fused kernels need Triton. Install it: pip install 'plogicnet[kernels]'"
    if settings.dim not in DIMS:
        return f"fused kernels need neural.paths.dim to be one of {', '.join(map(str, DIMS))}"
    return None


def use_kernels(settings: PathSettings, device: torch.device) -> bool:
    """Return whether the kernels are used.

    Example:
        >>> use_kernels(PathSettings(), torch.device("cpu"))
        False
    """
    return settings.kernels != "plain" and unsupported_reason(settings, device) is None
