"""Rules that people wrote: a file in the rule syntax or a table of rules, checked against the graph they are for."""

import math
from pathlib import Path

from plogicnet.graph import KnowledgeGraph
from plogicnet.rules.rule import Constant, Rule
from plogicnet.rules.syntax import Statement, parse_rules
from plogicnet.rules.table import RuleTable, is_table
from plogicnet.support.errors import InputError
from plogicnet.support.files import require_file

MOST_PREMISES = 100
"""Each premise is a join; nobody writes so many, and no machine grounds them."""


def read_statements(path: Path, graph: KnowledgeGraph) -> list[Statement]:
    """Reads a file of rules; `plogicnet mine --out` and a run's rules.tsv are such files too."""
    try:
        if path.exists() and not path.is_dir():
            require_file(path, "a file of rules")
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InputError(f"{path}: cannot be read as a file of rules: {reason}") from None
    if is_table(text):
        lines = [number for number, line in enumerate(text.split("\n"), start=1) if line.rstrip("\r")]
        return _checked(_of_table(RuleTable.read(path), graph, str(path), lines[1:]), str(path))
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
            maybe_meant = kind == "entity" and "Did you mean" not in str(error)
            return str(error) + (" A variable begins with a capital." if maybe_meant else "")
        return None

    return _checked(parse_rules(text, file, objection), file)


def _checked(statements: list[Statement], file: str) -> list[Statement]:
    """Raises an InputError for mistakes that no single line shows, and for weights without effect."""
    if not statements:
        raise InputError(f"{file}: there is no rule in it")
    first: dict[Rule, int] = {}
    for statement in statements:
        earlier = first.setdefault(statement.rule.renamed, statement.line)
        if earlier != statement.line:
            raise InputError(f"{file}, line {statement.line}: the same rule stands in line {earlier}")
        if len(statement.rule.body) > MOST_PREMISES:
            found = f"{len(statement.rule.body):,} premises"
            raise InputError(
                f"{file}, line {statement.line}: {found}; a rule that is to be grounded has at most {MOST_PREMISES}"
            )
        if statement.rule.negated and statement.weight is not None:
            raise InputError(f"{file}, line {statement.line}: a constraint takes no weight; leave it out")
    return statements


def _of_table(table: RuleTable, graph: KnowledgeGraph, file: str, lines: list[int]) -> list[Statement]:
    """The rules of a table with their given weights; what was learned is learned again."""
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
