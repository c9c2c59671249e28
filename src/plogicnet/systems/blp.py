"""BLP: a Bayesian logic program, in which each grounding of a rule may bring its hypothesis about (noisy-or).

K. Kersting and L. De Raedt, Towards Combining Inductive Logic Programming with Bayesian Networks, ILP 2001.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from plogicnet.config import Config, setting
from plogicnet.graph import BoolArray, FloatArray, IntArray
from plogicnet.mln import RuleModel
from plogicnet.rules import RuleTable
from plogicnet.support.errors import InputError
from plogicnet.systems.system import MORE_RULES, RuleUser

ENOUGH = 1e-6
"""EM ends where no probability changes by more."""


@dataclass(frozen=True)
class BlpSettings:
    """The block `systems.blp`."""

    prior: float = setting(1.0, "groundings that fire, and as many that do not, that each rule begins with", low=1e-6)
    iterations: int = setting(1000, "steps of its EM, at most", low=0)


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


def expectation_maximisation(
    matrix: sparse.csr_array,
    leak: FloatArray,
    target: FloatArray,
    count: FloatArray,
    start: FloatArray,
    fixed: BoolArray,
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


@dataclass(frozen=True)
class Blp(RuleUser):
    """BLP: rules alone, taken together by a noisy-or."""

    def contradictions(self, config: Config) -> Iterator[tuple[bool, str]]:
        """It has no neural model, and a sum of groundings with a base rate."""
        yield from super().contradictions(config)
        yield config.em.neural, "has no vectors: set em.neural=false"
        yield config.mln.aggregate != "sum", "counts every grounding: set mln.aggregate=sum"
        yield not config.mln.unit_clauses, "has each relation's base rate for its leak: set mln.unit_clauses=true"

    def learn(self, model: RuleModel, hidden_q: FloatArray, config: Config, seed: int) -> RuleModel:  # noqa: ARG002
        """The conditional probabilities that O and H make most probable, by EM: y = 1 on O, y = 0 on H."""
        settings, rules = self.own_settings(config), model.rules
        rows = model.rows.merged(model.observed.astype(np.float64))
        shares = (rows.matrix, np.logaddexp(0.0, rows.base), rows.total / rows.count, rows.count)
        given = _given(rules)
        start = (rules.hits + settings.prior) / (rules.support + 2 * settings.prior)
        start = np.where(np.isnan(given), start, given)
        c = expectation_maximisation(*shares, start, rules.fixed, settings.prior, settings.iterations)
        return replace(model, rules=rules.with_weights(np.where(rules.fixed, rules.given, -np.log1p(-c))))

    def report(self, model: RuleModel, hidden_q: FloatArray, config: Config) -> RuleTable:  # noqa: ARG002
        """The weights have no standard errors."""
        unknown = np.full(len(model.rules), np.nan)
        return model.rules.reported(unknown, model.grounded.rule_counts)


BLP = Blp(
    "BLP",
    own_figures="rules",
    weight_setting="systems.blp.prior",
    standard_errors=False,
    kind=NoisyOr,
    instead_of_rules_alone=f"{MORE_RULES}; system=plogicnet has vectors too",
    block="blp",
    settings=BlpSettings,
    implied={"em.neural": False},
)
