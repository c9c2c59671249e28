"""The choice of the device, of the number of CPU threads, and of the precision of matrix products on a GPU."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import torch

from plogicnet.support.errors import InputError
from plogicnet.support.threads import map_in_threads

Item = TypeVar("Item")
Result = TypeVar("Result")
MIN_PARALLEL_WORK = 1 << 24
"""Minimum number of coordinate differences per step at which several threads pay off."""


class Map(Protocol):
    """A function like `map`."""

    def __call__(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield work(item) for each item, in order."""


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
def single_threaded() -> Iterator[Map]:
    """Let PyTorch use one thread. Yield a function that calls another one for each item, in as many threads as before.

    PyTorch's own threads wait for each other after each operation. That takes longer than a small operation, and much
    longer on a busy machine.

    Example:
        >>> with single_threaded() as map_in_parallel:
        ...     list(map_in_parallel(abs, [-1, 2, -3]))
        [1, 2, 3]
    """
    threads = torch.get_num_threads()

    def map_in_parallel(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        def work_alone(item: Item) -> Result:
            if torch.get_num_threads() != 1:  # each thread has its own number; setting it also changes the default
                torch.set_num_threads(1)
            return work(item)

        return map_in_threads(work_alone, items, threads)

    torch.set_num_threads(1)
    try:
        yield map_in_parallel
    finally:
        torch.set_num_threads(threads)


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
