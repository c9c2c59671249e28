"""The other systems of the paper's tables, BLP, RUGE and NNE-AER: on the same rules, vectors, ranking and run files."""

from plogicnet.baselines.choice import (
    MORE_RULES,
    learn,
    make_guide,
    make_rule_model,
    report,
    require_sense,
    vectors_alone,
    warn_of_no_rules,
    without_rules,
)

__all__ = [
    "MORE_RULES",
    "learn",
    "make_guide",
    "make_rule_model",
    "report",
    "require_sense",
    "vectors_alone",
    "warn_of_no_rules",
    "without_rules",
]
