"""Compiled functions that reduce the messages to each row to four statistics, and compute their gradients.

A row is an entity that a query has reached. `lanes` is a tuple whose length is the dimension: a constant for the
compiler, which then uses vector instructions. Sums and extremes of a row are kept in arrays of their own, so that the
compiler need not consider that they could overlap with others.
"""

from typing import Any

import numpy as np

from plogicnet.neural.paths.layer import MIN_VARIANCE
from plogicnet.support.compiling import compiled

BOUNDARY, NO_MESSAGE = -1, -2
"""Codes instead of the number of the message that is the largest or the smallest one."""
MIN_DEVIATION = np.float32(np.sqrt(np.float32(MIN_VARIANCE)))
ZERO = np.float32(0)


@compiled("contract", "nsz")
def reduce_messages(
    first_row: Any,
    message_start: Any,
    source_row: Any,
    relation: Any,
    count: Any,
    states: Any,
    vector: Any,
    boundary: Any,
    statistics: Any,
    position: Any,
    lanes: Any,
) -> None:
    """Compute mean, maximum, minimum and standard deviation of the messages to each row.

    Messages that are not listed are zero. `position` gets the largest and the smallest message, for the gradient. It
    can be None.
    """
    d = len(lanes)
    total, square, largest, smallest = np.zeros((4, d), np.float32)
    at_largest, at_smallest = np.zeros((2, d), np.int32)
    for q in range(len(boundary)):
        for row in range(first_row[q], first_row[q + 1]):
            start, end = message_start[row], message_start[row + 1]
            is_known = row == first_row[q]  # the known entity is the first member
            has_zero = not is_known or end - start < count[row] - 1
            for k in range(d):
                first = boundary[q, k] if is_known else ZERO
                total[k] = first
                square[k] = first * first
                at_largest[k] = NO_MESSAGE if has_zero and first <= ZERO else BOUNDARY
                at_smallest[k] = NO_MESSAGE if has_zero and first >= ZERO else BOUNDARY
                largest[k] = ZERO if has_zero and first <= ZERO else first
                smallest[k] = ZERO if has_zero and first >= ZERO else first
            for j in range(start, end):
                s, r = source_row[j], relation[j]
                for k in range(d):
                    message = states[s, k] * vector[q, r, k]
                    total[k] += message
                    square[k] += message * message
                    if position is not None:
                        at_largest[k] = j - start if message > largest[k] else at_largest[k]
                        at_smallest[k] = j - start if message < smallest[k] else at_smallest[k]
                    largest[k] = message if message > largest[k] else largest[k]
                    smallest[k] = message if message < smallest[k] else smallest[k]
            n = np.float32(count[row])
            for k in range(d):
                mean = total[k] / n
                variance = square[k] / n - mean * mean
                statistics[row, k] = mean
                statistics[row, d + k] = largest[k]
                statistics[row, 2 * d + k] = smallest[k]
                statistics[row, 3 * d + k] = np.sqrt(max(variance, np.float32(MIN_VARIANCE)))
                if position is not None:
                    position[row, 0, k] = at_largest[k]
                    position[row, 1, k] = at_smallest[k]


@compiled("contract", "nsz")
def message_gradients(
    first_row: Any,
    message_start: Any,
    source_row: Any,
    relation: Any,
    count: Any,
    states: Any,
    vector: Any,
    boundary: Any,
    statistics: Any,
    position: Any,
    d_statistics: Any,
    d_states: Any,
    d_vector: Any,
    d_boundary: Any,
    contribution: Any,
    lanes: Any,
) -> None:
    """Add the gradients of the states, the relation vectors and the boundary, given those of the statistics.

    With the mean μ and the deviation σ of n messages, dμ/dm = 1/n and dσ/dm = (m - μ) / (σ n). The gradient of an
    extreme belongs to the first message that has it. `contribution` gets the product of each message and its gradient;
    it can be None.
    """
    d = len(lanes)
    constant, slope, d_largest, d_smallest = np.zeros((4, d), np.float32)
    at_largest, at_smallest = np.zeros((2, d), np.int32)
    for q in range(len(boundary)):
        for row in range(first_row[q], first_row[q + 1]):
            n = np.float32(count[row])
            for k in range(d):
                mean, deviation = statistics[row, k], statistics[row, 3 * d + k]
                slope[k] = d_statistics[row, 3 * d + k] / (deviation * n) if deviation > MIN_DEVIATION else ZERO
                constant[k] = d_statistics[row, k] / n - mean * slope[k]
                d_largest[k] = d_statistics[row, d + k]
                d_smallest[k] = d_statistics[row, 2 * d + k]
                at_largest[k] = position[row, 0, k]
                at_smallest[k] = position[row, 1, k]
            if row == first_row[q]:
                for k in range(d):
                    gradient = constant[k] + slope[k] * boundary[q, k]
                    gradient += d_largest[k] if at_largest[k] == BOUNDARY else ZERO
                    gradient += d_smallest[k] if at_smallest[k] == BOUNDARY else ZERO
                    d_boundary[q, k] += gradient
            start = message_start[row]
            for j in range(start, message_start[row + 1]):
                s, r = source_row[j], relation[j]
                product = ZERO
                for k in range(d):
                    x, w = states[s, k], vector[q, r, k]
                    gradient = constant[k] + slope[k] * (x * w)
                    gradient += d_largest[k] if at_largest[k] == j - start else ZERO
                    gradient += d_smallest[k] if at_smallest[k] == j - start else ZERO
                    d_states[s, k] += w * gradient
                    d_vector[q, r, k] += x * gradient
                    if contribution is not None:
                        product += x * w * gradient
                if contribution is not None:
                    contribution[j] = product
