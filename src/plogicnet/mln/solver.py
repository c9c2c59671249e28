"""Newton's method for one component of the pseudolikelihood, in compiled code.

The functions share these arguments. begin, rule and value are the CSR arrays (indptr, indices, data) of X, the rows ×
rules matrix. base, count and target are b, c and y of each row; see `plogicnet.mln.learning.Pseudolikelihood`.
"""

import math

import numpy as np

from plogicnet.support.compiling import compiled

CHORD_DECAY = 0.1
"""The factor by which `chord_share` (see `maximise`) falls after a long step and grows after a short step."""


@compiled()
def maximise(begin, rule, value, base, count, target, l2, start, max_dense, max_steps, tolerance):  # type: ignore[no-untyped-def]
    """Maximise Σ c [y log p + (1 - y) log(1 - p)] - l2/2·‖w‖² with p = σ(b + X w). Return w and the number of steps.

    Each step is a line search along Newton's direction. Far from the maximum, the curvature p(1 - p) of a rare relation
    is tiny and the direction is poor. So the first steps use the slope of the chord of σ between the row's current
    log-odds and the log-odds of its target instead. `chord_share` is the weight of this slope. It shrinks as steps
    succeed.

    Args:
        begin: the beginning of each row's entries of X, and the end of the last (indptr).
        rule: the column of each entry (indices).
        value: the value of each entry (data).
        base: b of each row.
        count: c of each row.
        target: y of each row.
        l2: the weight of the penalty.
        start: the initial weights w.
        max_dense: the largest number of rules for which a dense Hessian is used instead of conjugate gradients.
        max_steps: the largest number of Newton steps.
        tolerance: the largest absolute entry of the gradient at which the search ends.
    """
    weights = start.copy()
    log_odds, curvature, log_odds_change = np.empty(len(base)), np.empty(len(base)), np.empty(len(base))
    gradient = np.empty(len(start))
    dense_size = len(start) if len(start) <= max_dense else 0  # 0: no dense Hessian
    hessian = np.empty((dense_size, dense_size))
    # smaller gradients are rounding errors
    tolerance = max(tolerance, 1e-15 * _max_abs_sum(begin, rule, value, count, gradient))
    chord_share = 1.0
    for n_steps in range(max_steps):
        _product(begin, rule, value, weights, log_odds)
        _add(1.0, base, log_odds)
        largest = _gradient(begin, rule, value, log_odds, target, count, weights, l2, gradient)
        if largest <= tolerance:
            return weights, n_steps
        _curvature(log_odds, target, count, chord_share, curvature)
        if dense_size:
            step = gradient.copy()
            _fill_hessian(begin, rule, value, curvature, l2, hessian)
            _cholesky(hessian, 1e-10)
            _solve_cholesky(hessian, step)
        else:  # a loose tolerance far from the maximum, a tight one near it
            cg_tolerance = min(0.1, math.sqrt(largest))
            step = _conjugate_gradients(begin, rule, value, curvature, l2, gradient, cg_tolerance)
        _product(begin, rule, value, step, log_odds_change)
        step_size = _line_search(log_odds, log_odds_change, target, count, weights, step, l2, _dot(gradient, step))
        _add(step_size, step, weights)
        if step_size > 0.75:
            chord_share *= CHORD_DECAY
        elif step_size < 0.35:
            chord_share = min(1.0, max(chord_share, 1e-4) / CHORD_DECAY)
    return weights, max_steps


@compiled()
def variances(begin, rule, value, base, count, l2, weights):  # type: ignore[no-untyped-def]
    """Return the diagonal of H⁻¹, where H is the negative Hessian at the weights, or infinity if H is singular."""
    log_odds, curvature = np.empty(len(base)), np.empty(len(base))
    _product(begin, rule, value, weights, log_odds)
    _add(1.0, base, log_odds)
    _curvature(log_odds, log_odds, count, 0.0, curvature)  # with chord_share 0, the second argument is not used
    lower = np.empty((len(weights), len(weights)))
    _fill_hessian(begin, rule, value, curvature, l2, lower)
    result, column = np.full(len(weights), np.inf), np.empty(len(weights))
    diagonal = np.empty(len(weights))
    for j in range(len(weights)):
        diagonal[j] = lower[j, j]
    _cholesky(lower, 1e-300)
    for j in range(len(weights)):
        # the pivot is only rounding error: H is numerically singular
        if not lower[j, j] ** 2 > 1e-11 * diagonal[j] + 1e-290:
            return result
    for j in range(len(weights)):  # the columns of L⁻¹
        column[j] = 1 / lower[j, j]
        for i in range(j + 1, len(weights)):
            column[i] = -_dot(lower[i, j:i], column[j:i]) / lower[i, i]
        result[j] = _dot(column[j:], column[j:])
    return result


@compiled()
def _line_search(log_odds, change, target, count, weights, step, l2, first_slope):  # type: ignore[no-untyped-def]
    """Return a step size at which the slope along the step is at most a tenth of `first_slope`, the slope at 0.

    `change` is the change of the log-odds for step size 1. The step size is found by Newton's method, safeguarded by
    bisection. The objective is concave, so it has increased if the slope is still positive. A negative slope means that
    the step went past the maximum along the line. The step is then accepted if no log-odds change by more than 1, or if
    the objective has increased.
    """
    max_change = _max_abs(change)
    low, high, step_size = 0.0, np.inf, 1.0
    for iteration in range(60):
        slope, curvature = 0.0, 0.0
        for row in range(len(log_odds)):
            p = _logistic(log_odds[row] + step_size * change[row])
            slope += count[row] * (target[row] - p) * change[row]
            curvature += count[row] * p * (1 - p) * change[row] ** 2
        for j in range(len(step)):
            slope -= l2 * (weights[j] + step_size * step[j]) * step[j]
            curvature += l2 * step[j] ** 2
        if abs(slope) <= 0.1 * first_slope and (
            slope >= 0
            or step_size * max_change <= 1
            or _gain(log_odds, change, target, count, weights, step, l2, step_size) > 0
        ):
            return step_size
        if slope > 0:
            low = step_size
        else:
            high = step_size
        guess = min(step_size + slope / max(curvature, 1e-300), 4 * step_size)
        if not low < guess < high or iteration % 4 == 3:  # every fourth guess bisects, so that the bracket shrinks
            guess = (low + high) / 2 if high < np.inf else 4 * step_size
        step_size = guess
    return low


@compiled()
def _gain(log_odds, change, target, count, weights, step, l2, step_size):  # type: ignore[no-untyped-def]
    """Return the increase of the objective for a step size."""
    gain = 0.0
    for row in range(len(log_odds)):
        delta = step_size * change[row]
        gain += count[row] * (target[row] * delta - _softplus(log_odds[row] + delta) + _softplus(log_odds[row]))
    for j in range(len(step)):
        gain -= l2 * step_size * step[j] * (weights[j] + step_size * step[j] / 2)
    return gain


@compiled()
def _product(begin, rule, value, weights, result):  # type: ignore[no-untyped-def]
    """Fill `result` with X · weights."""
    for row in range(len(result)):
        total = 0.0
        for k in range(begin[row], begin[row + 1]):
            total += value[k] * weights[rule[k]]
        result[row] = total


# vector operations as loops, which compile much faster than array expressions


@compiled()
def _add(factor, a, result):  # type: ignore[no-untyped-def]
    """Add factor · a to `result`."""
    for k in range(len(a)):
        result[k] += factor * a[k]


@compiled()
def _max_abs(a):  # type: ignore[no-untyped-def]
    result = 0.0
    for k in range(len(a)):
        result = max(result, abs(a[k]))
    return result


@compiled()
def _softplus(x):  # type: ignore[no-untyped-def]
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@compiled()
def _logistic(x):  # type: ignore[no-untyped-def]
    e = math.exp(-abs(x))
    return 1 / (1 + e) if x >= 0 else e / (1 + e)


@compiled()
def _gradient(begin, rule, value, log_odds, target, count, weights, l2, gradient):  # type: ignore[no-untyped-def]
    """Fill `gradient` with Xᵀ c (y - p) - l2·w. Return its largest absolute entry."""
    for j in range(len(gradient)):
        gradient[j] = -l2 * weights[j]
    for row in range(len(log_odds)):
        residual = count[row] * (target[row] - _logistic(log_odds[row]))
        for k in range(begin[row], begin[row + 1]):
            gradient[rule[k]] += residual * value[k]
    return _max_abs(gradient)


@compiled()
def _max_abs_sum(begin, rule, value, count, sums):  # type: ignore[no-untyped-def]
    """Return the largest column sum of c · |X|, an upper bound of a gradient entry without the penalty.

    `sums` is scratch space.
    """
    for j in range(len(sums)):
        sums[j] = 0.0
    for row in range(len(count)):
        for k in range(begin[row], begin[row + 1]):
            sums[rule[k]] += count[row] * abs(value[k])
    return _max_abs(sums)


@compiled()
def _curvature(log_odds, target, count, chord_share, curvature):  # type: ignore[no-untyped-def]
    """Fill `curvature` with the diagonal of D in the negative Hessian Xᵀ D X + l2·I.

    An entry is c·p(1 - p). With `chord_share` > 0, p(1 - p) is moved by this share towards the chord's slope, if that
    is larger.
    """
    for row in range(len(log_odds)):
        current = log_odds[row]
        p = _logistic(current)
        slope = p * (1 - p)
        if chord_share > 0:
            y = min(max(target[row], 0.01), 0.99)
            target_log_odds = math.log(y / (1 - y))
            if abs(current - target_log_odds) > 1e-3:
                slope += chord_share * max((p - y) / (current - target_log_odds) - slope, 0.0)
        curvature[row] = count[row] * slope


@compiled()
def _fill_hessian(begin, rule, value, curvature, l2, hessian):  # type: ignore[no-untyped-def]
    """Fill the lower triangle of `hessian` with Xᵀ D X + l2·I, where `curvature` is the diagonal of D."""
    for i in range(len(hessian)):
        for j in range(i + 1):
            hessian[i, j] = 0.0
        hessian[i, i] = l2
    for row in range(len(curvature)):
        low, high = begin[row], begin[row + 1]
        for a in range(low, high):
            i = rule[a]
            scaled = curvature[row] * value[a]
            for b in range(low, a + 1):
                hessian[i, rule[b]] += scaled * value[b]


@compiled("reassoc", "contract")
def _dot(a, b):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(len(a)):
        total += a[k] * b[k]
    return total


@compiled()
def _cholesky(lower, min_ridge):  # type: ignore[no-untyped-def]
    """Replace the lower triangle of a matrix by its Cholesky factor L. A small ridge keeps L nonsingular."""
    for i in range(len(lower)):
        ridge = 1e-14 * lower[i, i] + min_ridge
        for j in range(i):
            lower[i, j] = (lower[i, j] - _dot(lower[i, :j], lower[j, :j])) / lower[j, j]
        lower[i, i] = math.sqrt(max(lower[i, i] + ridge - _dot(lower[i, :i], lower[i, :i]), ridge))


@compiled()
def _solve_cholesky(lower, x):  # type: ignore[no-untyped-def]
    """Overwrite x with the solution z of L Lᵀ z = x."""
    for i in range(len(x)):
        x[i] = (x[i] - _dot(lower[i, :i], x[:i])) / lower[i, i]
    for i in range(len(x) - 1, -1, -1):
        x[i] /= lower[i, i]
        for j in range(i):
            x[j] -= lower[i, j] * x[i]


@compiled()
def _conjugate_gradients(begin, rule, value, curvature, l2, gradient, tolerance):  # type: ignore[no-untyped-def]
    """Solve (Xᵀ D X + l2·I) step = gradient to a relative tolerance, preconditioned by the diagonal."""
    ridge = l2 + 1e-10
    size = len(gradient)
    diagonal, step = np.full(size, ridge), np.zeros(size)
    residual, scaled, direction, image = gradient.copy(), np.empty(size), np.zeros(size), np.empty(size)
    for row in range(len(curvature)):
        for k in range(begin[row], begin[row + 1]):
            diagonal[rule[k]] += curvature[row] * value[k] ** 2
    max_squared_residual, last_product = tolerance**2 * _dot(gradient, gradient), np.inf
    for _ in range(1000):
        for j in range(size):
            scaled[j] = residual[j] / diagonal[j]
        product = _dot(residual, scaled)
        for j in range(size):
            direction[j] = scaled[j] + product / last_product * direction[j]
            image[j] = ridge * direction[j]
        for row in range(len(curvature)):
            total = 0.0
            for k in range(begin[row], begin[row + 1]):
                total += value[k] * direction[rule[k]]
            total *= curvature[row]
            for k in range(begin[row], begin[row + 1]):
                image[rule[k]] += value[k] * total
        step_size = product / _dot(direction, image)
        _add(step_size, direction, step)
        _add(-step_size, image, residual)
        last_product = product
        if _dot(residual, residual) <= max_squared_residual:
            break
    return step
