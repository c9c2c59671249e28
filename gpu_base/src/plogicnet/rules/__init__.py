"""Rule and its text syntax, rule tables, files of written rules."""

from plogicnet.rules.rule import PATTERNS, Atom, Constant, Rule, Step, Variable, chain_rule, irreflexive
from plogicnet.rules.syntax import Statement, parse_rule, parse_rules
from plogicnet.rules.table import RuleTable
from plogicnet.rules.written import read_statements, statements_of

__all__ = [
    "PATTERNS",
    "Atom",
    "Constant",
    "Rule",
    "RuleTable",
    "Statement",
    "Step",
    "Variable",
    "chain_rule",
    "irreflexive",
    "parse_rule",
    "parse_rules",
    "read_statements",
    "statements_of",
]
