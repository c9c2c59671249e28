"""Memory of a batch of queries: chosen from what is free, and halved where it still was too much."""

from collections.abc import Callable

import torch

from plogicnet.neural.protocol import NeuralModel
from plogicnet.support import memory

MOST = {"cpu": 256 * 2**20, "cuda": 4 * 2**30}
"""More makes nothing faster."""
BYTES_PER_CANDIDATE = 64
"""Two score matrices while they are made (8), and the list of special candidates were rules to reach them all."""
SHARE = 4
"""So many times what a batch takes must be free; else the batch is smaller."""


def queries_at_once(neural: NeuralModel | None, entities: int, batch_memory_mb: int = 0) -> int:
    """How many queries make a batch: by what each takes while its candidates are ordered, the model's part included.

    Example:
        >>> queries_at_once(None, 2**14, batch_memory_mb=3)
        3
    """
    if neural is None:
        return batch_size(BYTES_PER_CANDIDATE * entities, torch.device("cpu"), batch_memory_mb)
    return batch_size(max(BYTES_PER_CANDIDATE * entities, neural.bytes_per_query), neural.device, batch_memory_mb)


def free_bytes(device: torch.device) -> int:
    """The memory that is free on a device, as far as the system tells.

    Example:
        >>> free_bytes(torch.device("cpu")) > 0
        True
    """
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + unused
    return memory.free_bytes()


def batch_size(bytes_each: int, device: torch.device, batch_memory_mb: int = 0) -> int:
    """How many queries of so many bytes make a batch: at least one.

    Where memory is plentiful the size depends on nothing else, so that scores are the same bits from run to run.

    Example:
        >>> batch_size(2**19, torch.device("cpu"), batch_memory_mb=3)
        6
    """
    budget = batch_memory_mb * 2**20 or min(
        MOST["cpu" if device.type == "cpu" else "cuda"], free_bytes(device) // SHARE
    )
    if device.type == "cpu":  # a memory limit stands above the setting
        budget = min(budget, max(0, memory.left_bytes()) // SHARE)
    return max(1, budget // bytes_each)


def in_batches(work: Callable[[int, int], None], total: int, size: int) -> None:
    """Calls work(start, stop) until all is done; a batch that memory does not hold is halved, down to single queries.

    Example:
        >>> in_batches(lambda start, stop: print(start, stop), total=3, size=2)
        0 2
        2 3
    """
    start = 0
    while start < total:
        stop = min(start + size, total)
        try:
            work(start, stop)
        except (MemoryError, RuntimeError) as error:
            if size == 1 or not _is_out_of_memory(error):
                raise
            size = min(size, stop - start) // 2 or 1
        else:
            start = stop
            continue
        if torch.cuda.is_available():  # not within `except`, where the error still holds the batch's tensors
            torch.cuda.empty_cache()


def _is_out_of_memory(error: Exception) -> bool:
    """Torch's allocator for the CPU has no exception of its own."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)
