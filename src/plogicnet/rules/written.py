"""Rules that people wrote: a file in the rule syntax or a table of rules, checked against the graph they are for."""

import math
from pathlib import Path

from plogicnet.errors import InputError
from plogicnet.graph import KnowledgeGraph
from plogicnet.rules.rule import Constant, Rule
from plogicnet.rules.syntax import Statement, parse_rules
from plogicnet.rules.table import RuleTable, is_table


def read_statements(path: Path, graph: KnowledgeGraph) -> list[Statement]:
    """Reads a file of rules; `plogicnet mine --out` and a run's rules.tsv are such files too.

    Example:
        >>> read_statements(Path("family.rules"), graph)  # doctest: +SKIP
    """
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InputError(f"{path}: cannot be read as a file of rules: {reason}") from None
    if is_table(text):
        return _of_table(RuleTable.read(path), graph, str(path))
    return statements_of(text, graph, str(path))


def statements_of(text: str, graph: KnowledgeGraph, file: str = "rules") -> list[Statement]:
    """Reads rules in the rule syntax; names that the graph does not have are mistakes, and so is a rule given twice.

    Example:
        >>> graph = KnowledgeGraph.from_names([("a", "husband", "b"), ("b", "wife", "a")])
        >>> [s.fixed for s in statements_of("=2.5: husband(X, Y) => wife(Y, X)", graph)]
        [True]
    """
    vocabularies = {"relation": graph.relations, "entity": graph.entities}

    def objection(kind: str, name: str) -> str | None:
        try:
            vocabularies[kind].id(name)
        except InputError as error:
            return str(error)
        return None

    statements = parse_rules(text, file, objection)
    first: dict[Rule, int] = {}
    for statement in statements:
        earlier = first.setdefault(statement.rule.renamed, statement.line)
        if earlier != statement.line:
            raise InputError(f"{file}, line {statement.line}: the same rule stands in line {earlier}")
    return statements


def _of_table(table: RuleTable, graph: KnowledgeGraph, file: str) -> list[Statement]:
    """The rules of a table; its weights are given ones, else where to start from."""
    statements = []
    for line, rule in enumerate(table.rules, start=2):
        for atom in (*rule.body, rule.head):
            try:
                graph.relations.id(atom.relation)
                graph.entities.ids(term.name for term in (atom.head, atom.tail) if isinstance(term, Constant))
            except InputError as error:
                raise InputError(f"{file}, line {line}: {error}") from None
        row = line - 2
        weight = table.weight[row] if math.isnan(table.given[row]) else table.given[row]
        statements.append(Statement(rule, None if math.isnan(weight) else float(weight), bool(table.fixed[row]), line))
    return statements
