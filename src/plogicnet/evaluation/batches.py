"""Batches of queries that fit in memory. Their size depends on the free memory, and is halved if memory runs out."""

from collections.abc import Callable

import torch

from plogicnet.neural.protocol import NeuralModel
from plogicnet.support import memory

MAX_BATCH_BYTES = {"cpu": 256 * 2**20, "cuda": 4 * 2**30}
"""Maximum size of a batch per device type. Larger batches are not faster."""
BYTES_PER_CANDIDATE = 64
"""Two score matrices (8 bytes), and the list of special candidates if rules conclude all candidates."""
MIN_FREE_FACTOR = 4
"""The free memory divided by this is the maximum size of a batch, unless `batch_memory_mb` is set."""


def queries_per_batch(neural: NeuralModel | None, n_entities: int, batch_memory_mb: int = 0) -> int:
    """Return the number of queries in a batch, given the memory that ranking and the model need per query.

    Example:
        >>> queries_per_batch(None, 2**14, batch_memory_mb=3)
        3
    """
    if neural is None:
        return batch_size(BYTES_PER_CANDIDATE * n_entities, torch.device("cpu"), batch_memory_mb)
    return batch_size(max(BYTES_PER_CANDIDATE * n_entities, neural.bytes_per_query), neural.device, batch_memory_mb)


def free_bytes(device: torch.device) -> int:
    """Return the free memory of a device, as reported by the system.

    Example:
        >>> free_bytes(torch.device("cpu")) > 0
        True
    """
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + unused
    return memory.free_bytes()


def batch_size(bytes_per_query: int, device: torch.device, batch_memory_mb: int = 0) -> int:
    """Return the number of queries in a batch, at least one.

    The size is the same whenever enough memory is free, so that scores are bit-identical between runs.

    Example:
        >>> batch_size(2**19, torch.device("cpu"), batch_memory_mb=3)
        6
    """
    budget = batch_memory_mb * 2**20 or min(
        MAX_BATCH_BYTES["cpu" if device.type == "cpu" else "cuda"], free_bytes(device) // MIN_FREE_FACTOR
    )
    if device.type == "cpu":  # a memory limit takes precedence over the setting
        budget = min(budget, max(0, memory.remaining_bytes()) // MIN_FREE_FACTOR)
    return max(1, budget // bytes_per_query)


def run_in_batches(work: Callable[[int, int], None], total: int, size: int) -> None:
    """Call work(start, stop) for each batch. Halve a batch that does not fit in memory, down to single queries.

    Example:
        >>> run_in_batches(lambda start, stop: print(start, stop), total=3, size=2)
        0 2
        2 3
    """
    start = 0
    while start < total:
        stop = min(start + size, total)
        try:
            work(start, stop)
        except (MemoryError, RuntimeError) as error:
            if size == 1 or not is_out_of_memory(error):
                raise
            size = min(size, stop - start) // 2 or 1
        else:
            start = stop
            continue
        if torch.cuda.is_available():  # not inside `except`, where the error still references the batch's tensors
            torch.cuda.empty_cache()


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error means that memory ran out. torch's CPU allocator raises a plain RuntimeError."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)
