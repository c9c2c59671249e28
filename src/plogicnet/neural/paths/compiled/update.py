"""Compiled functions that compute the new states from the products of the statistics, and their gradients."""

from typing import Any

import numpy as np

from plogicnet.neural.paths.layer import MIN_SCALE
from plogicnet.support.compiling import compiled

NORM_EPSILON = np.float32(1e-5)
"""Added to the variance in the layer norm, as PyTorch does."""
ZERO = np.float32(0)


@compiled("contract", "nsz", "reassoc")
def update_states(
    first_row: Any,
    first_source_row: Any,
    states: Any,
    mapped: Any,
    products: Any,
    statistics: Any,
    count: Any,
    mean_log_count: float,
    bias: Any,
    norm_scale: Any,
    norm_shift: Any,
    new_states: Any,
    normal: Any,
    inverse_deviation: Any,
    lanes: Any,
) -> None:
    """Compute the new states of the rows; see `PlainLayer`.

    `mapped` are the old states times the state map, `products` the statistics times the three statistics maps.
    `normal` and `inverse_deviation` are kept for the gradient; the latter is negative if all messages are zero.
    """
    d = len(lanes)
    change, old = np.zeros((2, d), np.float32)
    for q in range(len(first_row) - 1):
        n_old = first_source_row[q + 1] - first_source_row[q]
        for row in range(first_row[q], first_row[q + 1]):
            i = row - first_row[q]
            source = first_source_row[q] + min(i, n_old - 1)
            is_old = np.float32(i < n_old)
            scale = np.float32(np.log(count[row]) / mean_log_count)
            inverse = np.float32(1) / max(scale, np.float32(MIN_SCALE))
            mean = is_reached = ZERO
            for k in range(d):
                old[k] = is_old * states[source, k]
                change[k] = is_old * mapped[source, k] + bias[k] + products[row, k]
                change[k] += scale * products[row, d + k] + inverse * products[row, 2 * d + k]
            for k in range(d):
                mean += change[k]
            mean /= np.float32(d)
            variance = ZERO
            for k in range(d):
                change[k] -= mean
                variance += change[k] * change[k]
            inverse_root = np.float32(1) / np.sqrt(variance / np.float32(d) + NORM_EPSILON)
            for k in range(d):
                is_reached = max(is_reached, statistics[row, d + k], -statistics[row, 2 * d + k])
                is_reached = max(is_reached, -statistics[row, d + k], statistics[row, 2 * d + k])
            for k in range(d):
                normal[row, k] = change[k] * inverse_root
                active = max(normal[row, k] * norm_scale[k] + norm_shift[k], ZERO)
                new_states[row, k] = old[k] + (active if is_reached > ZERO else ZERO)
            inverse_deviation[row] = inverse_root if is_reached > ZERO else -inverse_root


@compiled("contract", "nsz", "reassoc")
def update_gradients(
    first_row: Any,
    first_source_row: Any,
    count: Any,
    mean_log_count: float,
    norm_scale: Any,
    norm_shift: Any,
    normal: Any,
    inverse_deviation: Any,
    d_new: Any,
    d_states: Any,
    d_mapped: Any,
    d_products: Any,
    d_norm: Any,
    lanes: Any,
) -> None:
    """Compute the gradients of the old states, of both kinds of products, and of bias and layer norm for each query.

    `d_norm` has the gradients of norm_scale, norm_shift and bias.
    """
    d = len(lanes)
    d_active, d_normal = np.zeros((2, d), np.float32)
    sums = np.zeros((3, d), np.float32)
    for q in range(len(first_row) - 1):
        n_old = first_source_row[q + 1] - first_source_row[q]
        sums[:] = ZERO
        for row in range(first_row[q], first_row[q + 1]):
            i = row - first_row[q]
            scale = np.float32(np.log(count[row]) / mean_log_count)
            inverse = np.float32(1) / max(scale, np.float32(MIN_SCALE))
            deviation = inverse_deviation[row]
            mean = along = ZERO
            for k in range(d):
                x = normal[row, k]
                is_active = x * norm_scale[k] + norm_shift[k] > ZERO and deviation > ZERO
                d_active[k] = d_new[row, k] if is_active else ZERO
                d_normal[k] = d_active[k] * norm_scale[k]
            for k in range(d):
                mean += d_normal[k]
                along += d_normal[k] * normal[row, k]
            mean /= np.float32(d)
            along /= np.float32(d)
            for k in range(d):
                change = (d_normal[k] - mean - normal[row, k] * along) * abs(deviation)
                sums[0, k] += d_active[k] * normal[row, k]
                sums[1, k] += d_active[k]
                sums[2, k] += change
                d_products[row, k] = change
                d_products[row, d + k] = change * scale
                d_products[row, 2 * d + k] = change * inverse
            if i < n_old:
                source = first_source_row[q] + i
                for k in range(d):
                    d_states[source, k] = d_new[row, k]
                    d_mapped[source, k] = d_products[row, k]
        d_norm[q] = sums
