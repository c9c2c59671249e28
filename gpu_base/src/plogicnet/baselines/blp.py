"""BLP: a Bayesian logic program, in which each grounding of a rule may bring its hypothesis about (noisy-or).

K. Kersting and L. De Raedt, Towards Combining Inductive Logic Programming with Bayesian Networks, ILP 2001.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from plogicnet.config import Baselines
from plogicnet.errors import InputError
from plogicnet.graph import RELATION, FloatArray, IntArray
from plogicnet.mln import RuleModel
from plogicnet.mln.parts import merge
from plogicnet.rules import RuleTable

ENOUGH = 1e-6
"""EM ends where no probability changes by more."""


@dataclass(frozen=True)
class NoisyOr(RuleModel):
    """p(v) = 1 - (1 - leak) Π (1 - c_l)^n_l over the rules l with n_l groundings that conclude v.

    A rule's weight is -log(1 - c_l), so that -log(1 - p) is a sum over groundings, as the log-odds of a Markov logic
    network are. The leak, which keeps log-odds finite, is the base rate of the relation.
    """

    def log_odds_of(self, sums: FloatArray, relations: IntArray) -> FloatArray:
        """log(p / (1 - p)) = log(e^a - 1) with a = -log(1 - p)."""
        a = np.logaddexp(0.0, self.base[relations]) + sums
        return np.asarray(a + np.log(-np.expm1(-a)))

    def learned(self, settings: Baselines) -> "NoisyOr":
        """The same with the conditional probabilities that O and H make most probable: y = 1 on O, y = 0 on H."""
        observed, relations = self.groundings.observed, self.groundings.triples.triples[:, RELATION]
        leak = np.logaddexp(0.0, self.base[relations])
        rows = merge(self.matrix, leak, observed.astype(np.float64), np.ones(len(observed)))
        given = _given(self.rules)
        start = (self.rules.hits + settings.blp_prior) / (self.rules.support + 2 * settings.blp_prior)
        start = np.where(np.isnan(given), start, given)
        c = expectation_maximisation(*rows, start, self.rules.fixed, settings.blp_prior, settings.blp_iterations)
        weights = np.where(self.rules.fixed, self.rules.given, -np.log1p(-c))
        return NoisyOr(self.rules.with_weights(weights), self.constraints, self.evidence, self.base)


def expectation_maximisation(
    matrix: sparse.csr_array,
    leak: FloatArray,
    target: FloatArray,
    count: FloatArray,
    start: FloatArray,
    fixed: "np.ndarray[tuple[int], np.dtype[np.bool_]]",
    prior: float,
    iterations: int,
) -> FloatArray:
    """The conditional probabilities c by EM: which of a triple's groundings brought it about is what is not seen.

    A grounding of rule l fired with probability c_l / p(v) where v is true, and did not where v is false. The new c_l
    is the share of its groundings that fired, with `prior` more of either kind, which keeps it within (0, 1). The
    objective Σ y log p + (1 - y) log(1 - p) is concave in -log(1 - c), and no step lowers it.

    Example:
        >>> one, n = sparse.csr_array(np.ones((4, 1))), np.zeros(4)
        >>> free, y = np.array([False]), np.array([1.0, 1, 1, 0])
        >>> expectation_maximisation(one, n, y, np.ones(4), np.array([0.5]), free, 1.0, 100).round(3)  # (3 + 1)/(4 + 2)
        array([0.667])
    """
    groundings, transposed = matrix.T @ count, sparse.csr_array(matrix.T)
    c = start
    for _ in range(iterations):
        p = -np.expm1(matrix @ np.log1p(-c) - leak)
        fired = c * (transposed @ (count * target / p))
        new = np.where(fixed, start, (fired + prior) / (groundings + 2 * prior))
        change, c = np.abs(new - c).max(initial=0.0), new
        if change < ENOUGH:
            break
    return c


def _given(rules: RuleTable) -> FloatArray:
    """The conditional probabilities of the weights that a person gave; NaN without one."""
    negative = np.flatnonzero(rules.given < 0)
    if len(negative):
        rule = rules.rules[int(negative[0])]
        raise InputError(f"{rule}: a weight of BLP is -log(1 - probability) and not negative; give one of at least 0")
    return np.clip(-np.expm1(-rules.given), 1e-12, 1 - 1e-12)
