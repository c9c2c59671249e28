"""How many candidates of a query stand above a given key, and how many level with it.

Compiled code on a CPU, which writes no matrix of comparisons; tensors elsewhere.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numba import njit
from torch import Tensor

from plogicnet.graph import BoolArray, FloatArray, IntArray

ROWS_AT_ONCE = 64
Counts = tuple[Tensor, Tensor]


def count_scores(scores: Tensor, rows: Tensor, at: Tensor) -> Counts:
    """For each (row, value): how many scores of the row are greater, and how many equal.

    Example:
        >>> count_scores(torch.tensor([[1.0, 2.0, 2.0, 3.0]]), torch.tensor([0]), torch.tensor([2.0]))
        (tensor([1]), tensor([2]))
    """
    if scores.device.type != "cpu":
        return count_scores_in_tensors(scores, rows, at)
    return _compiled(_count_scores, rows, scores, rows, at)


def count_keys(
    starts: Tensor, first: Tensor, second: Tensor, rows: Tensor, own_first: Tensor, own_second: Tensor
) -> Counts:
    """For each row and its own pair of keys: how many pairs of the row's range are greater, and how many equal.

    The pairs of row i are those from starts[i] to starts[i + 1].

    Example:
        >>> starts, first, second = torch.tensor([0, 3]), torch.tensor([1.0, 1.0, 2.0]), torch.tensor([5.0, 6.0, 0.0])
        >>> count_keys(starts, first, second, torch.tensor([0]), torch.tensor([1.0]), torch.tensor([5.0]))
        (tensor([2]), tensor([1]))
    """
    if first.device.type != "cpu":
        return count_keys_in_tensors(starts, first, second, rows, own_first, own_second)
    return _compiled(_count_keys, rows, starts, first, second, rows, own_first, own_second)


def count_scores_in_tensors(scores: Tensor, rows: Tensor, at: Tensor) -> Counts:
    """`count_scores` where there is no compiled code."""
    own = scores[rows]
    return (own > at[:, None]).sum(1), (own == at[:, None]).sum(1)


def count_keys_in_tensors(
    starts: Tensor, first: Tensor, second: Tensor, rows: Tensor, own_first: Tensor, own_second: Tensor
) -> Counts:
    """`count_keys` where there is no compiled code."""
    lengths = starts.diff()[rows]
    owner = torch.repeat_interleave(lengths)
    place = torch.arange(len(owner), device=owner.device) - (lengths.cumsum(0) - lengths - starts[rows])[owner]
    one, two, own_one, own_two = first[place], second[place], own_first[owner], own_second[owner]
    better = (one > own_one) | ((one == own_one) & (two > own_two))
    level = (one == own_one) & (two == own_two)
    none = torch.zeros_like(rows)
    return none.index_add(0, owner, better.long()), none.index_add(0, owner, level.long())


def _compiled(kernel: Callable[..., None], rows: Tensor, *operands: Tensor) -> Counts:
    above, equal = torch.empty_like(rows), torch.empty_like(rows)
    arrays = [x.numpy() for x in (*operands, above, equal)]
    spread(lambda start: kernel(start, *arrays), len(rows))
    return above, equal


def spread(work: Callable[[int], None], rows: int) -> None:
    """Calls work(start) for every block of rows, on as many threads as torch uses."""
    pieces = range(0, rows, ROWS_AT_ONCE)
    threads = min(torch.get_num_threads(), len(pieces))
    if threads <= 1:  # to start one takes longer than a few rows
        for start in pieces:
            work(start)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, pieces))


@njit(nogil=True, cache=True)
def _count_scores(
    start: int, scores: FloatArray, rows: IntArray, at: FloatArray, above: IntArray, equal: IntArray
) -> None:
    for i in range(start, min(start + ROWS_AT_ONCE, len(rows))):
        row, value = scores[rows[i]], at[i]
        greater, same = np.int32(0), np.int32(0)
        for j in range(len(row)):
            greater += np.int32(row[j] > value)
            same += np.int32(row[j] == value)
        above[i], equal[i] = greater, same


@njit(nogil=True, cache=True)
def _count_keys(
    start: int,
    starts: IntArray,
    first: FloatArray,
    second: FloatArray,
    rows: IntArray,
    own_first: FloatArray,
    own_second: FloatArray,
    above: IntArray,
    equal: IntArray,
) -> None:
    for i in range(start, min(start + ROWS_AT_ONCE, len(rows))):
        one, two = own_first[i], own_second[i]
        greater, same = 0, 0
        for j in range(starts[rows[i]], starts[rows[i] + 1]):
            level: BoolArray = first[j] == one
            greater += (first[j] > one) | (level & (second[j] > two))
            same += level & (second[j] == two)
        above[i], equal[i] = greater, same
