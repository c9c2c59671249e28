"""Rule and its text syntax, rule tables."""

from plogicnet.rules.rule import PATTERNS, Atom, Constant, Rule, Step, Variable, chain_rule, irreflexive
from plogicnet.rules.syntax import parse_rule, parse_rules
from plogicnet.rules.table import RuleTable

__all__ = [
    "PATTERNS",
    "Atom",
    "Constant",
    "Rule",
    "RuleTable",
    "Step",
    "Variable",
    "chain_rule",
    "irreflexive",
    "parse_rule",
    "parse_rules",
]
