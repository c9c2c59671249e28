"""Formulas beside the rules, for mln.objective: query.

A formula is a rule with a built-in predicate as its premise, such as `$best_rule(X, Y) => hypernym(X, Y)`. The
predicate has a value for each pair of entities, and the rule has a weight per relation. So the log-odds of a triple
remain a sum of weight · value, as in any Markov logic network.
"""

from collections.abc import Collection, Sequence
from types import MappingProxyType

import numpy as np

from plogicnet.graph import FloatArray, IntArray, Vocabulary
from plogicnet.rules import Atom, Rule, RuleTable, Variable
from plogicnet.rules.rule import FORMULA_PREFIX, FORMULAS

ALWAYS = "reached"
"""The formula that is true for every triple that a rule concludes. Its weight makes log-odds of the scores."""
GROUPS = MappingProxyType(
    {
        "best": ("best_rule", "second_rule", "noisy_or", "best_chain", "best_tail_constant", "best_head_constant"),
        "popularity": ("tail_in_relation", "tail_facts", "head_in_relation", "head_facts"),
        "other": ("other_head", "other_tail"),
        "linked": ("linked",),
    }
)
"""The formulas of each value of `mln.query.formulas`."""


def formula_columns(groups: Collection[str]) -> IntArray:
    """Return the columns of the formulas of some groups, and of ALWAYS.

    Example:
        >>> [FORMULAS[column] for column in formula_columns(["other"])]
        ['reached', 'other_head', 'other_tail']
    """
    names = {ALWAYS, *(name for group in groups for name in GROUPS[group])}
    return np.array([i for i, name in enumerate(FORMULAS) if name in names], dtype=np.int64)


def formula_rules(relations: Sequence[str], groups: Collection[str]) -> RuleTable:
    """Return the formulas of all relations as rules without counts.

    Example:
        >>> [str(rule) for rule in formula_rules(["knows"], []).rules]
        ['$reached(X, Y) => knows(X, Y)']
    """
    x, y = Variable("X"), Variable("Y")
    names = [FORMULAS[column] for column in formula_columns(groups)]
    rules = [Rule((Atom(FORMULA_PREFIX + f, x, y),), Atom(r, x, y)) for r in relations for f in names]
    return RuleTable.of(rules, [0] * len(rules), [0] * len(rules))


def formula_weights(rules: RuleTable, relations: Vocabulary) -> FloatArray:
    """Return the weights of formulas as an array, relations × FORMULAS. Weights that are not learned yet are 0."""
    weights = np.zeros((len(relations), len(FORMULAS)))
    for rule, weight in zip(rules.rules, np.nan_to_num(rules.weight).tolist(), strict=True):
        column = FORMULAS.index(rule.body[0].relation.removeprefix(FORMULA_PREFIX))
        weights[relations.id(rule.head.relation), column] = weight
    return weights
