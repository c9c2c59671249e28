"""Functions that count the candidates of a query that rank above a target, or tie with it.

On a CPU, compiled code counts without a matrix of comparisons. Other devices use tensor operations.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from plogicnet.graph import BoolArray, FloatArray, IntArray
from plogicnet.support.compiling import compiled
from plogicnet.support.threads import map_in_threads

CHUNK_ROWS = 64
"""Number of rows that a thread processes at a time."""
Counts = tuple[Tensor, Tensor]
"""For each target, the number of candidates above it, and the number that tie with it."""


def count_scores(scores: Tensor, rows: Tensor, values: Tensor) -> Counts:
    """Count, for each target i, the scores of row rows[i] that are greater than values[i], and the equal ones.

    Example:
        >>> count_scores(torch.tensor([[1.0, 2.0, 2.0, 3.0]]), torch.tensor([0]), torch.tensor([2.0]))
        (tensor([1]), tensor([2]))
    """
    if scores.device.type != "cpu":
        return count_scores_in_tensors(scores, rows, values)
    return _run_compiled(_count_scores, rows, scores, rows, values)


def count_keys(
    starts: Tensor, first: Tensor, second: Tensor, rows: Tensor, target_first: Tensor, target_second: Tensor
) -> Counts:
    """Count, for each target i, the key pairs of row rows[i] that are greater than the target's, and the equal ones.

    Pairs are compared lexicographically. The pairs of row j are at the positions from starts[j] to starts[j + 1].

    Example:
        >>> starts, first, second = torch.tensor([0, 3]), torch.tensor([1.0, 1.0, 2.0]), torch.tensor([5.0, 6.0, 0.0])
        >>> count_keys(starts, first, second, torch.tensor([0]), torch.tensor([1.0]), torch.tensor([5.0]))
        (tensor([2]), tensor([1]))
    """
    if first.device.type != "cpu":
        return count_keys_in_tensors(starts, first, second, rows, target_first, target_second)
    return _run_compiled(_count_keys, rows, starts, first, second, rows, target_first, target_second)


def count_scores_in_tensors(scores: Tensor, rows: Tensor, values: Tensor) -> Counts:
    """Do the same as `count_scores` without compiled code."""
    row_scores = scores[rows]
    return (row_scores > values[:, None]).sum(1), (row_scores == values[:, None]).sum(1)


def count_keys_in_tensors(
    starts: Tensor, first: Tensor, second: Tensor, rows: Tensor, target_first: Tensor, target_second: Tensor
) -> Counts:
    """Do the same as `count_keys` without compiled code."""
    lengths = starts.diff()[rows]
    target = torch.repeat_interleave(lengths)
    pair = torch.arange(len(target), device=target.device) - (lengths.cumsum(0) - lengths - starts[rows])[target]
    one, two, target_one, target_two = first[pair], second[pair], target_first[target], target_second[target]
    greater = (one > target_one) | ((one == target_one) & (two > target_two))
    equal = (one == target_one) & (two == target_two)
    zeros = torch.zeros_like(rows)
    return zeros.index_add(0, target, greater.long()), zeros.index_add(0, target, equal.long())


def _run_compiled(kernel: Callable[..., None], rows: Tensor, *operands: Tensor) -> Counts:
    n_greater, n_equal = torch.empty_like(rows), torch.empty_like(rows)
    arrays = [x.numpy() for x in (*operands, n_greater, n_equal)]
    run_in_threads(lambda start: kernel(start, *arrays), len(rows))
    return n_greater, n_equal


def run_in_threads(work: Callable[[int], None], rows: int) -> None:
    """Call work(start) for every chunk of rows, with as many threads as torch uses."""
    list(map_in_threads(work, range(0, rows, CHUNK_ROWS), torch.get_num_threads()))


@compiled()
def _count_scores(
    start: int, scores: FloatArray, rows: IntArray, values: FloatArray, n_greater: IntArray, n_equal: IntArray
) -> None:
    for i in range(start, min(start + CHUNK_ROWS, len(rows))):
        row, value = scores[rows[i]], values[i]
        greater, equal = np.int32(0), np.int32(0)
        for j in range(len(row)):
            greater += np.int32(row[j] > value)
            equal += np.int32(row[j] == value)
        n_greater[i], n_equal[i] = greater, equal


@compiled()
def _count_keys(
    start: int,
    starts: IntArray,
    first: FloatArray,
    second: FloatArray,
    rows: IntArray,
    target_first: FloatArray,
    target_second: FloatArray,
    n_greater: IntArray,
    n_equal: IntArray,
) -> None:
    for i in range(start, min(start + CHUNK_ROWS, len(rows))):
        one, two = target_first[i], target_second[i]
        greater, equal = 0, 0
        for j in range(starts[rows[i]], starts[rows[i] + 1]):
            tied: BoolArray = first[j] == one
            greater += (first[j] > one) | (tied & (second[j] > two))
            equal += tied & (second[j] == two)
        n_greater[i], n_equal[i] = greater, equal
