"""Rules, their text syntax, rule tables and rule files, also those of AMIE and AnyBURL."""

from plogicnet.rules.rule import PATTERNS, Atom, Constant, Rule, Step, Variable, chain_rule, irreflexive_constraint
from plogicnet.rules.rule_files import (
    FOREIGN_FORMATS,
    parse_statements,
    read_rule_file,
    read_statements,
    write_foreign,
    write_statements,
)
from plogicnet.rules.selection import RuleIndex
from plogicnet.rules.syntax import Statement, parse_rule, parse_rules
from plogicnet.rules.table import RuleTable

__all__ = [
    "FOREIGN_FORMATS",
    "PATTERNS",
    "Atom",
    "Constant",
    "Rule",
    "RuleIndex",
    "RuleTable",
    "Statement",
    "Step",
    "Variable",
    "chain_rule",
    "irreflexive_constraint",
    "parse_rule",
    "parse_rules",
    "parse_statements",
    "read_rule_file",
    "read_statements",
    "write_foreign",
    "write_statements",
]
