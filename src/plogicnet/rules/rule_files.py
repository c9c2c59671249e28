"""Reading rule files: text in the rule syntax or a rule table, validated against a graph."""

import math
from pathlib import Path

from plogicnet.graph import KnowledgeGraph
from plogicnet.rules.rule import Constant, Rule
from plogicnet.rules.syntax import Statement, parse_rules
from plogicnet.rules.table import RuleTable, is_table
from plogicnet.support.errors import InputError
from plogicnet.support.files import require_file

MAX_PREMISES = 100
"""The largest number of premises of a written rule. Grounding joins the facts once per premise."""


def read_rule_file(path: Path, graph: KnowledgeGraph) -> list[Statement]:
    """Read a rule file, in the rule syntax or as a rule table (such as a run's rules.tsv).

    Names that the graph does not contain and duplicate rules raise InputError.
    """
    try:
        if path.exists() and not path.is_dir():
            require_file(path, "a rule file")
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InputError(f"{path}: cannot read the rule file: {reason}") from None
    if is_table(text):
        lines = [number for number, line in enumerate(text.split("\n"), start=1) if line.rstrip("\r")]
        return _validate_statements(
            _statements_from_table(RuleTable.read(path), graph, str(path), lines[1:]), str(path)
        )
    return parse_statements(text, graph, str(path))


def parse_statements(text: str, graph: KnowledgeGraph, file: str = "rules") -> list[Statement]:
    """Parse rules in the rule syntax.

    Names that the graph does not contain and duplicate rules raise InputError.

    Example:
        >>> graph = KnowledgeGraph.from_names([("a", "husband", "b"), ("b", "wife", "a")])
        >>> [s.fixed for s in parse_statements("=2.5: husband(X, Y) => wife(Y, X)", graph)]
        [True]
    """
    vocabularies = {"relation": graph.relations, "entity": graph.entities}

    def check_name(kind: str, name: str) -> str | None:
        try:
            vocabularies[kind].id(name)
        except InputError as error:
            maybe_variable = kind == "entity" and "Did you mean" not in str(error)
            return str(error) + (" A variable begins with a capital letter." if maybe_variable else "")
        return None

    return _validate_statements(parse_rules(text, file, check_name), file)


def _validate_statements(statements: list[Statement], file: str) -> list[Statement]:
    """Raise InputError if there are no rules, duplicates, too many premises, or constraints with a weight."""
    if not statements:
        raise InputError(f"{file}: the file contains no rules")
    first_line: dict[Rule, int] = {}
    for statement in statements:
        earlier = first_line.setdefault(statement.rule.canonical, statement.line)
        if earlier != statement.line:
            raise InputError(f"{file}, line {statement.line}: duplicate of the rule in line {earlier}")
        if len(statement.rule.body) > MAX_PREMISES:
            n_premises = f"{len(statement.rule.body):,}"
            raise InputError(
                f"{file}, line {statement.line}: a rule must have at most {MAX_PREMISES} premises, got {n_premises}"
            )
        if statement.rule.negated and statement.weight is not None:
            raise InputError(f"{file}, line {statement.line}: a constraint cannot have a weight. Remove the weight.")
    return statements


def _statements_from_table(table: RuleTable, graph: KnowledgeGraph, file: str, lines: list[int]) -> list[Statement]:
    """Return the rules of a table with their given weights. Learned weights are ignored. `lines` are line numbers."""
    statements = []
    for row, (rule, line) in enumerate(zip(table.rules, lines, strict=True)):
        for atom in (*rule.body, rule.head):
            try:
                graph.relations.id(atom.relation)
                graph.entities.ids(term.name for term in (atom.head, atom.tail) if isinstance(term, Constant))
            except InputError as error:
                raise InputError(f"{file}, line {line}: {error}") from None
        weight = table.given[row]
        statements.append(Statement(rule, None if math.isnan(weight) else float(weight), bool(table.fixed[row]), line))
    return statements
