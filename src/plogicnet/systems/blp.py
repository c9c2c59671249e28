"""BLP: a Bayesian logic program, in which each grounding of a rule can cause its hypothesis (noisy-or).

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
from plogicnet.systems.system import MORE_RULES, RuleBasedSystem

TOLERANCE = 1e-6
"""EM stops if no probability changes by more than this."""


@dataclass(frozen=True)
class BlpSettings:
    """The block `systems.blp`."""

    prior: float = setting(1.0, "pseudo-count added to true and to false conclusions of each rule", low=1e-6)
    iterations: int = setting(1000, "maximum number of EM steps", low=0)


@dataclass(frozen=True)
class NoisyOr(RuleModel):
    """p(v) = 1 - (1 - leak) Π (1 - c_l)^n_l for a triple v that rule l concludes in n_l groundings.

    c_l is the probability that a grounding of rule l causes its hypothesis. A rule's weight is -log(1 - c_l). So
    -log(1 - p) is a sum over groundings, like the log-odds of a Markov logic network. The leak is the base rate of the
    relation. It keeps the log-odds finite.
    """

    def log_odds_of(self, sums: FloatArray, relations: IntArray) -> FloatArray:
        """Compute log(p / (1 - p)) = log(e^a - 1) with a = -log(1 - p)."""
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
    """Learn the conditional probabilities c by EM. The latent variables are which groundings fired.

    A grounding of rule l that concludes v fired with probability c_l / p(v) if v is true, and did not fire if v is
    false. The new c_l is the share of the rule's groundings that fired. `prior` is added to both counts, so that c_l
    stays within (0, 1). The objective Σ y log p + (1 - y) log(1 - p) is concave in -log(1 - c), and no step lowers it.

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
        if change < TOLERANCE:
            break
    return c


def _given_probabilities(rules: RuleTable) -> FloatArray:
    """Return the conditional probabilities for the weights in a rule file; NaN for rules without a weight."""
    negative = np.flatnonzero(rules.given < 0)
    if len(negative):
        rule = rules.rules[int(negative[0])]
        raise InputError(f"{rule}: the weight must be at least 0, because a BLP weight is -log(1 - probability)")
    return np.clip(-np.expm1(-rules.given), 1e-12, 1 - 1e-12)


@dataclass(frozen=True)
class Blp(RuleBasedSystem):
    """BLP: rules alone, combined by a noisy-or."""

    def contradictions(self, config: Config) -> Iterator[tuple[bool, str]]:
        """Require no neural model, a sum over groundings, and base rates."""
        yield from super().contradictions(config)
        yield config.em.neural, "has no neural model: set em.neural=false"
        yield config.mln.aggregate != "sum", "sums over all groundings: set mln.aggregate=sum"
        yield not config.mln.unit_clauses, "needs the base rate of each relation: set mln.unit_clauses=true"

    def m_step(self, model: RuleModel, hidden_q: FloatArray, config: Config, seed: int) -> RuleModel:  # noqa: ARG002
        """Learn the conditional probabilities by EM, from observed triples (y = 1) and hidden triples (y = 0)."""
        settings, rules = self.own_settings(config), model.rules
        rows = model.rows.merge(model.observed.astype(np.float64))
        data = (rows.matrix, np.logaddexp(0.0, rows.base), rows.total / rows.count, rows.count)
        given = _given_probabilities(rules)
        start = (rules.hits + settings.prior) / (rules.support + 2 * settings.prior)
        start = np.where(np.isnan(given), start, given)
        c = expectation_maximisation(*data, start, rules.fixed, settings.prior, settings.iterations)
        return replace(model, rules=rules.with_weights(np.where(rules.fixed, rules.given, -np.log1p(-c))))

    def report(self, model: RuleModel, hidden_q: FloatArray, config: Config) -> RuleTable:  # noqa: ARG002
        """Return the rules with their numbers of groundings. The weights have no standard errors."""
        unknown = np.full(len(model.rules), np.nan)
        return model.rules.with_report(unknown, model.network.groundings_per_rule)


BLP = Blp(
    "BLP",
    main_ranking="rules",
    weight_setting="systems.blp.prior",
    standard_errors=False,
    rule_model_class=NoisyOr,
    ties_advice=f"{MORE_RULES}, or use system=plogicnet",
    block="blp",
    settings=BlpSettings,
    implied_settings={"em.neural": False},
)
