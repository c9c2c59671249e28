"""Rule files: text in the rule syntax, a rule table, or rules of AMIE and AnyBURL, validated against a graph."""

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from plogicnet.graph import KnowledgeGraph
from plogicnet.rules.amie import HEADER, format_amie, is_amie, read_amie
from plogicnet.rules.anyburl import format_anyburl, is_anyburl, read_anyburl
from plogicnet.rules.foreign import ForeignRule, LeftOut, NotExpressibleError
from plogicnet.rules.rule import Constant, Rule
from plogicnet.rules.syntax import Statement, find_problem, parse_rules
from plogicnet.rules.table import RuleTable, is_table
from plogicnet.support.errors import InputError, pluralize
from plogicnet.support.files import require_file, write_text

log = logging.getLogger(__name__)
MAX_PREMISES = 100
"""The largest number of premises of a written rule. Grounding joins the facts once per premise."""
FOREIGN_FORMATS = ("amie", "anyburl")
"""The formats of other programs."""
Reader = Callable[[str, KnowledgeGraph, str], Iterator[ForeignRule | LeftOut]]


def read_rule_file(path: Path, graph: KnowledgeGraph) -> list[Statement]:
    """Read a rule file: the rule syntax, a rule table (such as a run's rules.tsv), or rules of AMIE or AnyBURL.

    In the rule syntax and in tables, names that the graph does not contain and duplicate rules raise InputError. Rules
    of other programs that cannot be used are left out, with a warning.
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
    reader = _foreign_reader(text)
    if reader is not None:
        return _select_statements(reader(text, graph, str(path)), str(path))
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


def write_statements(path: Path, statements: Sequence[Statement]) -> None:
    """Write a rule table with the given weights and the counts of other programs, for `read_statements`."""
    zeros = [0] * len(statements)
    RuleTable.of(
        [s.rule for s in statements],
        zeros,
        zeros,
        given=[math.nan if s.weight is None else s.weight for s in statements],
        fixed=[s.fixed for s in statements],
        file_counts=[s.file_counts for s in statements],
    ).write(path)


def read_statements(path: Path, graph: KnowledgeGraph) -> list[Statement]:
    """Read a file of `write_statements`."""
    table = RuleTable.read(path)
    return _statements_from_table(table, graph, str(path), list(range(2, len(table) + 2)))


def write_foreign(rules: RuleTable, path: Path, file_format: str) -> dict[str, int]:
    """Write rules for another program. Return the number of rules that its format cannot express, by reason.

    Raises:
        InputError: No rule can be written.
    """
    format_rule = {"amie": format_amie, "anyburl": format_anyburl}[file_format]
    lines = [HEADER] if file_format == "amie" else []
    left_out: list[tuple[str, str]] = []
    for rule, support, hits in zip(rules.rules, rules.support.tolist(), rules.hits.tolist(), strict=True):
        try:
            lines.append(format_rule(rule, support, hits))
        except NotExpressibleError as error:
            left_out.append((error.reason, error.detail or str(rule)))
    if len(left_out) == len(rules):
        raise InputError(f"{path}: no rule can be written in this format. {_summary(left_out)}")
    if left_out:
        n_rules = pluralize(len(rules), "rule")
        log.warning("%s: %s of %s written. %s", path, f"{len(rules) - len(left_out):,}", n_rules, _summary(left_out))
    write_text(path, "".join(f"{line}\n" for line in lines))
    return dict(Counter(reason for reason, _ in left_out))


def _foreign_reader(text: str) -> Reader | None:
    """Return the reader of another program's format, or None. The first line that is a rule decides."""
    for line in text.split("\n"):
        if line.startswith("#"):
            continue
        if is_anyburl(line):
            return read_anyburl
        if is_amie(line.removesuffix("\r")):
            return read_amie
        if "=>" in line:
            return None
    return None


def _select_statements(found: Iterable[ForeignRule | LeftOut], file: str) -> list[Statement]:
    """Return the rules that can be used, and log a warning about the others."""
    statements: list[Statement] = []
    left_out: list[LeftOut] = []
    first_line: dict[Rule, int] = {}
    for each in found:
        if isinstance(each, LeftOut):
            left_out.append(each)
            continue
        problem = find_problem(each.rule.body, each.rule.head)
        if first_line.setdefault(each.rule, each.line) != each.line:
            left_out.append(LeftOut(each.line, "equal to an earlier rule"))
        elif problem is not None:
            left_out.append(LeftOut(each.line, "that no engine can ground", problem.message))
        elif len(each.rule.body) > MAX_PREMISES:
            left_out.append(LeftOut(each.line, f"with more than {MAX_PREMISES} premises"))
        else:
            statements.append(Statement(each.rule, None, False, each.line, each.counts))
    lines = [(each.reason, f"line {each.line}" + (f": {each.detail}" if each.detail else "")) for each in left_out]
    if not statements:
        reason = f"no rule can be used. {_summary(lines)}" if lines else "the file contains no rules"
        raise InputError(f"{file}: {reason}")
    if lines:
        n_rules = pluralize(len(statements) + len(lines), "rule")
        log.warning("%s: %s of %s used. %s", file, f"{len(statements):,}", n_rules, _summary(lines))
    return statements


def _summary(left_out: Sequence[tuple[str, str]]) -> str:
    """Return the number of rules by reason, with the first one. `left_out` has the reason and the text of each rule."""
    first = dict(reversed(left_out))
    counts = Counter(reason for reason, _ in left_out)
    parts = [f"{pluralize(n, 'rule')} {reason} (first: {first[reason]})" for reason, n in counts.items()]
    return f"Left out: {'; '.join(parts)}."


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
        if statement.rule.pattern == "irreflexive" and statement.weight is not None:
            raise InputError(f"{file}, line {statement.line}: a constraint cannot have a weight. Remove the weight.")
    return statements


def _statements_from_table(table: RuleTable, graph: KnowledgeGraph, file: str, lines: list[int]) -> list[Statement]:
    """Return the rules of a table with their given weights. Learned weights are ignored. `lines` are line numbers.

    Formulas are left out: training adds them.
    """
    statements = []
    for row, (rule, line, counts) in enumerate(zip(table.rules, lines, table.file_counts, strict=True)):
        if rule.is_formula:
            continue
        for atom in (*rule.body, rule.head):
            try:
                graph.relations.id(atom.relation)
                graph.entities.ids(term.name for term in (atom.head, atom.tail) if isinstance(term, Constant))
            except InputError as error:
                raise InputError(f"{file}, line {line}: {error}") from None
        weight = table.given[row]
        given = None if math.isnan(weight) else float(weight)
        statements.append(Statement(rule, given, bool(table.fixed[row]), line, counts))
    return statements
