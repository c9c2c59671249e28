"""The choice of the device, of the number of CPU threads, and of the precision of matrix products on a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from plogicnet.support.errors import InputError

MIN_PARALLEL_WORK = 1 << 24
"""Minimum number of coordinate differences per step at which several threads pay off."""


def pick_device(name: str) -> torch.device:
    """Return the device for the setting `auto`, `cpu` or `cuda`.

    Example:
        >>> pick_device("cpu")
        device(type='cpu')
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device: no CUDA device is available. Use --device cpu or auto.")
    return torch.device("cuda" if name == "cuda" or (name == "auto" and torch.cuda.is_available()) else "cpu")


def use_threads(threads: int) -> None:
    """Set the number of torch's threads. 0 keeps the default, which is OMP_NUM_THREADS or all cores.

    Example:
        >>> use_threads(0)
    """
    if threads:
        torch.set_num_threads(threads)


@contextmanager
def threads_for(work: int) -> Iterator[None]:
    """Use one thread if a step has little work. `work` is its number of coordinate differences.

    More threads gain nothing then, and wait for each other on a busy machine.
    """
    before = torch.get_num_threads()
    if work < MIN_PARALLEL_WORK:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Set the precision of matrix products on a GPU, `tf32` or `float32`. TF32 rounds inputs to ten bits."""
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before
