"""Batches that do not fit in memory are halved, every query is done exactly once, and other errors propagate."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plogicnet.evaluation import batches
from plogicnet.evaluation.batches import batch_size, run_in_batches

CPU = torch.device("cpu")


@given(st.integers(0, 60), st.integers(1, 70), st.integers(1, 70), st.sampled_from([0, 1, 2]))
def test_every_query_is_done_once_whatever_fits_in_memory(total: int, size: int, fitting: int, kind: int) -> None:
    done: list[int] = []

    def work(start: int, stop: int) -> None:
        if stop - start > fitting:
            raise (MemoryError(), torch.OutOfMemoryError(), RuntimeError("DefaultCPUAllocator: no memory"))[kind]
        done.extend(range(start, stop))

    run_in_batches(work, total, size)
    assert done == list(range(total))


def test_only_failed_allocations_halve_the_batch() -> None:
    sizes: list[int] = []

    def work(start: int, stop: int) -> None:
        sizes.append(stop - start)
        torch.empty(2**60 if stop - start > 1 else 1)

    run_in_batches(work, total=4, size=4)
    assert sizes == [4, 2, 1, 1, 1, 1]

    def fail(start: int, stop: int) -> None:
        raise RuntimeError(f"shapes differ at {start}:{stop}")

    with pytest.raises(RuntimeError, match="shapes differ at 0:4"):
        run_in_batches(fail, total=4, size=4)


def test_a_single_query_that_does_not_fit_in_memory_is_an_error() -> None:
    def work(start: int, stop: int) -> None:
        raise MemoryError(f"{start}:{stop}")

    with pytest.raises(MemoryError, match="0:1"):
        run_in_batches(work, total=4, size=4)


def test_the_batch_size_depends_on_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert batch_size(2**20, CPU, batch_memory_mb=7) == 7
    for free, expected in ((0, 1), (40, 10), (10**6, 256)):
        monkeypatch.setattr(batches, "free_bytes", lambda _, free=free: free * 2**20)
        assert batch_size(2**20, CPU) == expected
