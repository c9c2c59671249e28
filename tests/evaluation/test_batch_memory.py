"""Batches that memory does not hold are halved, nothing is left out or done twice, and other errors pass."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plogicnet.evaluation import batches
from plogicnet.evaluation.batches import batch_size, in_batches

CPU = torch.device("cpu")


@given(st.integers(0, 60), st.integers(1, 70), st.integers(1, 70), st.sampled_from([0, 1, 2]))
def test_all_is_done_once_however_little_memory_holds(total: int, size: int, held: int, kind: int) -> None:
    done: list[int] = []

    def work(start: int, stop: int) -> None:
        if stop - start > held:
            raise (MemoryError(), torch.OutOfMemoryError(), RuntimeError("DefaultCPUAllocator: no memory"))[kind]
        done.extend(range(start, stop))

    in_batches(work, total, size)
    assert done == list(range(total))


def test_real_allocations_that_fail_are_told_apart_from_other_errors() -> None:
    sizes: list[int] = []

    def work(start: int, stop: int) -> None:
        sizes.append(stop - start)
        torch.empty(2**60 if stop - start > 1 else 1)

    in_batches(work, total=4, size=4)
    assert sizes == [4, 2, 1, 1, 1, 1]

    def wrong(start: int, stop: int) -> None:
        raise RuntimeError(f"shapes differ at {start}:{stop}")

    with pytest.raises(RuntimeError, match="shapes differ at 0:4"):
        in_batches(wrong, total=4, size=4)


def test_one_query_that_memory_does_not_hold_is_an_error() -> None:
    def work(start: int, stop: int) -> None:
        raise MemoryError(f"{start}:{stop}")

    with pytest.raises(MemoryError, match="0:1"):
        in_batches(work, total=4, size=4)


def test_little_free_memory_makes_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    assert batch_size(2**20, CPU, batch_memory_mb=7) == 7
    for free, expected in ((0, 1), (40, 10), (10**6, 256)):
        monkeypatch.setattr(batches, "free_bytes", lambda _, free=free: free * 2**20)
        assert batch_size(2**20, CPU) == expected
