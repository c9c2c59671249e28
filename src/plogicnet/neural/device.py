"""Devices: which one a setting means, how many threads a step is worth, how exactly a GPU multiplies."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from plogicnet.support.errors import InputError

WORTH_THREADS = 1 << 24
"""From so many differences of coordinates a step on, several threads are worth their overhead."""


def pick_device(name: str) -> torch.device:
    """The device for a setting `auto`, `cpu` or `cuda`.

    Example:
        >>> pick_device("cpu")
        device(type='cpu')
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device: no CUDA device is available here; use --device cpu or auto")
    return torch.device("cuda" if name == "cuda" or (name == "auto" and torch.cuda.is_available()) else "cpu")


@contextmanager
def threads_for(work: int) -> Iterator[None]:
    """One thread for small steps: more gain nothing, and wait long for each other where a core is busy elsewhere."""
    before = torch.get_num_threads()
    if work < WORTH_THREADS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """A GPU's matrix units, which round inputs to ten bits, for training alone; ranking is done in full float32."""
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before
