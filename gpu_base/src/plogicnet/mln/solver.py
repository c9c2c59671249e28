"""Newton's method on one part of the pseudolikelihood, compiled: the same bits on any number of threads."""

import math

import numpy as np
from numba import njit

CHORD_FALLS = 0.1
"""The chord's share of the curvature falls to this much of itself after a full step, and rises so after a short one."""


@njit(nogil=True, cache=True)
def maximise(begin, rule, times, base, count, target, l2, start, dense_up_to, steps, enough):  # type: ignore[no-untyped-def]
    """The weights that maximise Σ c [y log p + (1 - y) log(1 - p)] - l2/2·‖w‖², p = σ(b + X w); and the steps taken.

    Newton's direction, and the best place along it: each step climbs. Far from the maximum a rare relation's p(1 - p)
    is tiny and Newton's direction a poor one, so the first steps use the slope of the chord from p to the row's own
    target, with which one row alone would land there; Newton's own curvature takes over as steps come out right.
    """
    weights = start.copy()
    odds, curvature, change = np.empty(len(base)), np.empty(len(base)), np.empty(len(base))
    gradient = np.empty(len(start))
    size = len(start) if len(start) <= dense_up_to else 0
    hessian = np.empty((size, size))
    enough = max(enough, 1e-15 * _largest_sum(begin, rule, times, count, gradient))  # below that is rounding
    chord = 1.0
    for taken in range(steps):
        _product(begin, rule, times, weights, odds)
        _add(1.0, base, odds)
        steepest = _gradient(begin, rule, times, odds, target, count, weights, l2, gradient)
        if steepest <= enough:
            return weights, taken
        _curvature(odds, target, count, chord, curvature)
        if size:
            step = gradient.copy()
            _fill(begin, rule, times, curvature, l2, hessian)
            _factor(hessian, 1e-10)
            _solve(hessian, step)
        else:  # few inner steps far away, Newton's convergence near the maximum
            tolerance = min(0.1, math.sqrt(steepest))
            step = _conjugate_gradients(begin, rule, times, curvature, l2, gradient, tolerance)
        _product(begin, rule, times, step, change)
        along = _search(odds, change, target, count, weights, step, l2, _dot(gradient, step))
        _add(along, step, weights)
        if along > 0.75:
            chord *= CHORD_FALLS
        elif along < 0.35:
            chord = min(1.0, max(chord, 1e-4) / CHORD_FALLS)
    return weights, steps


@njit(nogil=True, cache=True)
def variances(begin, rule, times, base, count, l2, weights):  # type: ignore[no-untyped-def]
    """The diagonal of H⁻¹, H the negative Hessian at some weights; infinite where H is singular."""
    odds, curvature = np.empty(len(base)), np.empty(len(base))
    _product(begin, rule, times, weights, odds)
    _add(1.0, base, odds)
    _curvature(odds, odds, count, 0.0, curvature)
    lower = np.empty((len(weights), len(weights)))
    _fill(begin, rule, times, curvature, l2, lower)
    result, column = np.full(len(weights), np.inf), np.empty(len(weights))
    total = np.empty(len(weights))
    for j in range(len(weights)):
        total[j] = lower[j, j]
    _factor(lower, 1e-300)
    for j in range(len(weights)):
        if not lower[j, j] ** 2 > 1e-11 * total[j] + 1e-290:
            return result
    for j in range(len(weights)):  # the columns of L⁻¹
        column[j] = 1 / lower[j, j]
        for i in range(j + 1, len(weights)):
            column[i] = -_dot(lower[i, j:i], column[j:i]) / lower[i, i]
        result[j] = _dot(column[j:], column[j:])
    return result


@njit(nogil=True, cache=True)
def _search(odds, change, target, count, weights, step, l2, first):  # type: ignore[no-untyped-def]
    """How far to go along a step: to where a tenth of the first slope is left, by Newton's method in a bracket.

    The objective is concave, so while it still rises there, it has risen all the way; where it falls, either the step
    is too short for the curvature to have changed much, or the gain is looked at.
    """
    longest = _largest(change)
    low, high, at = 0.0, np.inf, 1.0
    for turn in range(60):
        slope, bend = 0.0, 0.0
        for row in range(len(odds)):
            p = _logistic(odds[row] + at * change[row])
            slope += count[row] * (target[row] - p) * change[row]
            bend += count[row] * p * (1 - p) * change[row] ** 2
        for j in range(len(step)):
            slope -= l2 * (weights[j] + at * step[j]) * step[j]
            bend += l2 * step[j] ** 2
        if abs(slope) <= 0.1 * first and (
            slope >= 0 or at * longest <= 1 or _gain(odds, change, target, count, weights, step, l2, at) > 0
        ):
            return at
        if slope > 0:
            low = at
        else:
            high = at
        guess = min(at + slope / max(bend, 1e-300), 4 * at)
        if not low < guess < high or turn % 4 == 3:
            guess = (low + high) / 2 if high < np.inf else 4 * at
        at = guess
    return low


@njit(nogil=True, cache=True)
def _gain(odds, change, target, count, weights, step, l2, at):  # type: ignore[no-untyped-def]
    """What the objective gains by going so far along a step."""
    gain = 0.0
    for row in range(len(odds)):
        moved = at * change[row]
        gain += count[row] * (target[row] * moved - _softplus(odds[row] + moved) + _softplus(odds[row]))
    for j in range(len(step)):
        gain -= l2 * at * step[j] * (weights[j] + at * step[j] / 2)
    return gain


@njit(nogil=True, cache=True)
def _product(begin, rule, times, weights, result):  # type: ignore[no-untyped-def]
    for row in range(len(result)):
        total = 0.0
        for k in range(begin[row], begin[row + 1]):
            total += times[k] * weights[rule[k]]
        result[row] = total


# loops rather than array expressions: they compile in a fraction of the time


@njit(nogil=True, cache=True)
def _add(times, a, result):  # type: ignore[no-untyped-def]
    for k in range(len(a)):
        result[k] += times * a[k]


@njit(nogil=True, cache=True)
def _largest(a):  # type: ignore[no-untyped-def]
    largest = 0.0
    for k in range(len(a)):
        largest = max(largest, abs(a[k]))
    return largest


@njit(nogil=True, cache=True)
def _softplus(o):  # type: ignore[no-untyped-def]
    return max(o, 0.0) + math.log1p(math.exp(-abs(o)))


@njit(nogil=True, cache=True)
def _logistic(o):  # type: ignore[no-untyped-def]
    e = math.exp(-abs(o))
    return 1 / (1 + e) if o >= 0 else e / (1 + e)


@njit(nogil=True, cache=True)
def _gradient(begin, rule, times, odds, target, count, weights, l2, gradient):  # type: ignore[no-untyped-def]
    """Fills in Xᵀ c (y - p) - l2·w and gives its largest entry."""
    for j in range(len(gradient)):
        gradient[j] = -l2 * weights[j]
    for row in range(len(odds)):
        pull = count[row] * (target[row] - _logistic(odds[row]))
        for k in range(begin[row], begin[row + 1]):
            gradient[rule[k]] += pull * times[k]
    return _largest(gradient)


@njit(nogil=True, cache=True)
def _largest_sum(begin, rule, times, count, work):  # type: ignore[no-untyped-def]
    """The largest Σ c |x| of a rule: the size of what its gradient is summed from."""
    for j in range(len(work)):
        work[j] = 0.0
    for row in range(len(count)):
        for k in range(begin[row], begin[row + 1]):
            work[rule[k]] += count[row] * abs(times[k])
    return _largest(work)


@njit(nogil=True, cache=True)
def _curvature(odds, target, count, chord, curvature):  # type: ignore[no-untyped-def]
    """Fills in the diagonal D of the negative Hessian Xᵀ D X + l2·I, moved towards the chords' slopes by a share."""
    for row in range(len(odds)):
        o = odds[row]
        p = _logistic(o)
        own = p * (1 - p)
        if chord > 0:
            y = min(max(target[row], 0.01), 0.99)
            goal = math.log(y / (1 - y))
            if abs(o - goal) > 1e-3:
                own += chord * max((p - y) / (o - goal) - own, 0.0)
        curvature[row] = count[row] * own


@njit(nogil=True, cache=True)
def _fill(begin, rule, times, curvature, l2, hessian):  # type: ignore[no-untyped-def]
    """Fills in the lower triangle of Xᵀ D X + l2·I."""
    for i in range(len(hessian)):
        for j in range(i + 1):
            hessian[i, j] = 0.0
        hessian[i, i] = l2
    for row in range(len(curvature)):
        low, high = begin[row], begin[row + 1]
        for a in range(low, high):
            i = rule[a]
            scaled = curvature[row] * times[a]
            for b in range(low, a + 1):
                hessian[i, rule[b]] += scaled * times[b]


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _dot(a, b):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(len(a)):
        total += a[k] * b[k]
    return total


@njit(nogil=True, cache=True)
def _factor(lower, least):  # type: ignore[no-untyped-def]
    """Cholesky in place, on the lower triangle; a trace of ridge keeps it from being singular."""
    for i in range(len(lower)):
        ridge = 1e-14 * lower[i, i] + least
        for j in range(i):
            lower[i, j] = (lower[i, j] - _dot(lower[i, :j], lower[j, :j])) / lower[j, j]
        lower[i, i] = math.sqrt(max(lower[i, i] + ridge - _dot(lower[i, :i], lower[i, :i]), ridge))


@njit(nogil=True, cache=True)
def _solve(lower, x):  # type: ignore[no-untyped-def]
    """Solves L Lᵀ x = x in place."""
    for i in range(len(x)):
        x[i] = (x[i] - _dot(lower[i, :i], x[:i])) / lower[i, i]
    for i in range(len(x) - 1, -1, -1):
        x[i] /= lower[i, i]
        for j in range(i):
            x[j] -= lower[i, j] * x[i]


@njit(nogil=True, cache=True)
def _conjugate_gradients(begin, rule, times, curvature, l2, gradient, tolerance):  # type: ignore[no-untyped-def]
    """Solves (Xᵀ D X + l2·I) step = gradient to a relative tolerance, scaled by the diagonal."""
    ridge = l2 + 1e-10
    size = len(gradient)
    diagonal, step = np.full(size, ridge), np.zeros(size)
    residual, scaled, direction, image = gradient.copy(), np.empty(size), np.zeros(size), np.empty(size)
    for row in range(len(curvature)):
        for k in range(begin[row], begin[row + 1]):
            diagonal[rule[k]] += curvature[row] * times[k] ** 2
    goal, last = tolerance**2 * _dot(gradient, gradient), np.inf
    for _ in range(1000):
        for j in range(size):
            scaled[j] = residual[j] / diagonal[j]
        product = _dot(residual, scaled)
        for j in range(size):
            direction[j] = scaled[j] + product / last * direction[j]
            image[j] = ridge * direction[j]
        for row in range(len(curvature)):
            total = 0.0
            for k in range(begin[row], begin[row + 1]):
                total += times[k] * direction[rule[k]]
            total *= curvature[row]
            for k in range(begin[row], begin[row + 1]):
                image[rule[k]] += times[k] * total
        along = product / _dot(direction, image)
        _add(along, direction, step)
        _add(-along, image, residual)
        last = product
        if _dot(residual, residual) <= goal:
            break
    return step
