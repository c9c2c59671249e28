"""Work that runs in several threads and can be interrupted."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

from plogicnet.support.interrupts import deferred_interrupts

Item = TypeVar("Item")
Result = TypeVar("Result")
POLL_SECONDS = 0.1
"""Longest time between two checks for a signal."""


def map_in_threads(work: Callable[[Item], Result], items: Iterable[Item], threads: int = 0) -> Iterator[Result]:
    """Yield work(item) for each item, in order. `threads` threads compute ahead; 0: one thread per core.

    Signals are deferred until no lock is held: an interrupt inside ThreadPoolExecutor can leave a lock locked, and then
    its threads never end. `work` must not call this function.

    Example:
        >>> list(map_in_threads(abs, [-1, 2, -3], threads=2))
        [1, 2, 3]
    """
    items = list(items)
    threads = min(threads or os.cpu_count() or 1, len(items))
    if threads <= 1:  # handing over the work to a thread would take longer
        yield from map(work, items)
        return
    with deferred_interrupts() as raise_if_interrupted:
        futures = [_pool(threads).submit(work, item) for item in items]
        try:
            for future in futures:
                while not (future.done() or wait((future,), POLL_SECONDS).done):
                    raise_if_interrupted()
                raise_if_interrupted()
                yield future.result()
        except BaseException:  # also if the caller stops early
            for future in futures:
                future.cancel()
            wait(futures)
            raise


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Return a pool that is kept, because starting threads takes longer than many calls."""
    return ThreadPoolExecutor(threads, thread_name_prefix="plogicnet")
