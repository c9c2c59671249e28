"""Learning from queries: weights with which the answer of a query is the best of its candidates.

The objective is the conditional log-likelihood Σ log p(answer | query) - l2/2·‖w - prior‖², where p is a softmax of the
candidates' log-odds. It is concave, and L-BFGS maximises it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from plogicnet.graph import BoolArray, FloatArray, IntArray
from plogicnet.support.compiling import compiled

MAX_STEPS = 200
"""The largest number of L-BFGS steps."""


@dataclass(frozen=True)
class QueryExamples:
    """Queries with known answers. The log-odds of a candidate are dense · w_dense + Σ value · w_column.

    Attributes:
        begin: the first candidate of each query, and the end of the last.
        answer: the index of each query's answer among all candidates.
        dense: the values of the dense formulas, (candidates, formulas).
        column_begin: the first sparse value of each candidate, and the end of the last.
        column: the column of each sparse value.
        value: the sparse values.
        n_columns: the number of columns.
    """

    begin: IntArray
    answer: IntArray
    dense: NDArray[np.float32]
    column_begin: IntArray
    column: NDArray[np.int32]
    value: NDArray[np.float32]
    n_columns: int

    def __len__(self) -> int:
        return len(self.answer)


@dataclass(frozen=True)
class SoftmaxObjective:
    """The negative objective, for minimisation.

    Attributes:
        examples: the queries.
        prior: the weights to which the penalty pulls, dense formulas first.
        l2: the weight of the penalty, per weight.
        is_fixed: which weights keep the value in `prior`; None: none of them.
    """

    examples: QueryExamples
    prior: FloatArray
    l2: FloatArray
    is_fixed: BoolArray | None = None

    def value_and_gradient(self, weights: FloatArray) -> tuple[float, FloatArray]:
        """Return the negative objective and its gradient.

        Example:
            >>> one = QueryExamples(np.array([0, 2]), np.array([0]), np.array([[1], [0]], np.float32),
            ...     np.zeros(3, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 0)
            >>> value, gradient = SoftmaxObjective(one, np.zeros(1), np.zeros(1)).value_and_gradient(np.zeros(1))
            >>> round(value, 3), gradient  # log 2, and 1/2 - 1
            (0.693, array([-0.5]))
        """
        e, n_dense = self.examples, self.examples.dense.shape[1]
        gradient = np.zeros(len(weights))
        loss = _loss_and_gradient(
            e.begin, e.answer, e.dense, e.column_begin, e.column, e.value, weights[:n_dense], weights[n_dense:],
            gradient[:n_dense], gradient[n_dense:],
        )  # fmt: skip
        distance = weights - self.prior
        gradient += self.l2 * distance
        if self.is_fixed is not None:
            gradient[self.is_fixed] = 0.0
        return float(loss + 0.5 * (self.l2 * distance**2).sum()), gradient


def maximise_softmax(objective: SoftmaxObjective) -> FloatArray:
    """Return the weights with the highest objective, found from the prior on."""
    if not len(objective.examples):
        return objective.prior.copy()
    result: Any = minimize(
        objective.value_and_gradient,
        objective.prior,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": MAX_STEPS, "maxcor": 20},
    )
    return np.asarray(result.x)


def log_odds(examples: QueryExamples, weights: FloatArray) -> FloatArray:
    """Return the log-odds of each candidate."""
    n_dense = examples.dense.shape[1]
    return np.asarray(
        _log_odds(
            examples.dense, examples.column_begin, examples.column, examples.value, weights[:n_dense], weights[n_dense:]
        )
    )


@compiled()
def _log_odds(dense, column_begin, column, value, w_dense, w_column):  # type: ignore[no-untyped-def]
    result = np.empty(len(dense))
    for i in range(len(dense)):
        total = 0.0
        for j in range(len(w_dense)):
            total += dense[i, j] * w_dense[j]
        for k in range(column_begin[i], column_begin[i + 1]):
            total += value[k] * w_column[column[k]]
        result[i] = total
    return result


@compiled()
def _loss_and_gradient(begin, answer, dense, column_begin, column, value, w_dense, w_column, g_dense, g_column):  # type: ignore[no-untyped-def]
    """Add the gradient of the queries' negative log-likelihood to `g_dense` and `g_column`, and return its value."""
    scores = _log_odds(dense, column_begin, column, value, w_dense, w_column)
    loss = 0.0
    for q in range(len(answer)):
        low, high = begin[q], begin[q + 1]
        largest = scores[low:high].max()
        total = 0.0
        for i in range(low, high):
            total += np.exp(scores[i] - largest)
        loss += np.log(total) + largest - scores[answer[q]]
        for i in range(low, high):
            error = np.exp(scores[i] - largest) / total
            if i == answer[q]:
                error -= 1.0
            for j in range(len(w_dense)):
                g_dense[j] += error * dense[i, j]
            for k in range(column_begin[i], column_begin[i + 1]):
                g_column[column[k]] += error * value[k]
    return loss
