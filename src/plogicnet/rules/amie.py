"""Rules in the format of AMIE: tab-separated columns, and rules such as `?a  husband  ?b   => ?b  wife  ?a`."""

import itertools
import re
from collections.abc import Iterator, Sequence

from plogicnet.graph import KnowledgeGraph, Vocabulary
from plogicnet.rules.foreign import (
    BREAKS_FORMAT,
    NO_PREMISES,
    UNKNOWN_NAME,
    ForeignRule,
    LeftOut,
    NotExpressibleError,
    SourceLine,
    names_of,
)
from plogicnet.rules.rule import Atom, Constant, Rule, Term, Variable
from plogicnet.support.errors import quote_name

COLUMNS = (
    *("Rule", "Head Coverage", "Std Confidence", "PCA Confidence"),
    *("Positive Examples", "Body size", "PCA Body size", "Functional variable"),
)
"""AMIE's columns. With -ostd it leaves out two of them, with -verbose it adds three."""
VERBOSE_COLUMNS = ("Std. Lower Bound", "PCA Lower Bound", "PCA Conf estimation")
HEADER = "\t".join(COLUMNS)
_GAP, _ARROW = "  ", "   => "
_VARIABLE = re.compile(r"\?\w+")
_GAPS = re.compile("   *")
_INEQUALITY = re.compile(r"(?:^|  )\?\w+!=\S+ ")


def is_amie(line: str) -> bool:
    """Return whether a line is a rule or the header of a table in this format.

    Example:
        >>> is_amie("?a  husband  ?b   => ?b  wife  ?a"), is_amie("husband(X, Y) => wife(Y, X)")
        (True, False)
    """
    if line.startswith(f"{COLUMNS[0]}\t{COLUMNS[1]}"):
        return True
    _, arrow, head = _split_rule(line.split("\t", 1)[0])
    parts = _split_parts(head)
    return bool(arrow) and len(parts) == 3 and any(_VARIABLE.fullmatch(part) for part in (parts[0], parts[2]))


def read_amie(text: str, graph: KnowledgeGraph, file: str) -> Iterator[ForeignRule | LeftOut]:
    r"""Parse a table of AMIE. Other lines without a tab and an arrow are AMIE's messages and are ignored.

    Example:
        >>> graph = KnowledgeGraph.from_names([("a", "husband", "b"), ("b", "wife", "a")])
        >>> text = "Using 2 threads\n?a  <husband>  ?b   => ?b  <wife>  ?a\t0.5\t0.4\t0.4\t2\t5\t5\t?a"
        >>> [(str(found.rule), found.counts) for found in read_amie(text, graph, "f")]
        [('husband(X, Y) => wife(Y, X)', (5, 2))]
    """
    columns: Sequence[str] = ()
    for number, line in enumerate(text.split("\n"), start=1):
        source = SourceLine(line.removesuffix("\r"), file, number)
        cells = source.text.split("\t")
        if cells[0] == COLUMNS[0] and len(cells) > 1:
            columns = cells
        elif "=>" in cells[0] or len(cells) > 1:
            source.check_length()
            yield _read_line(source, cells, columns or (*COLUMNS, *VERBOSE_COLUMNS)[: len(cells)], graph)


def _read_line(
    source: SourceLine, cells: Sequence[str], columns: Sequence[str], graph: KnowledgeGraph
) -> ForeignRule | LeftOut:
    if len(cells) != len(columns):
        raise source.error_at(0, f"expected {len(columns)} columns separated by tabs, found {len(cells)}")
    counts = _read_counts(source, cells, columns)
    body_text, arrow, head_text = _split_rule(cells[0])
    if not arrow:
        raise source.error_at(0, "expected a rule such as '?a  r  ?b   => ?a  s  ?b'")
    if _INEQUALITY.search(body_text):
        return LeftOut(source.number, "with an inequality")
    body = _read_atoms(body_text, graph)
    head = _read_atoms(head_text, graph)
    if body is None:
        raise source.error_at(0, "expected premises of three parts (head, relation, tail), separated by two spaces")
    if head is None or len(head) != 1:
        column = len(body_text) + len(arrow)
        raise source.error_at(column, "expected one hypothesis of three parts (head, relation, tail) after '=>'")
    if not body:
        return LeftOut(source.number, NO_PREMISES)
    rule = Rule(tuple(body), head[0])
    relations, entities = names_of(rule)
    unknown = sorted(name for name in relations if name not in graph.relations)
    unknown += sorted(name for name in entities if name not in graph.entities)
    if unknown:
        return LeftOut(source.number, UNKNOWN_NAME, quote_name(unknown[0]))
    return ForeignRule(source.number, rule.canonical, counts)


def _read_counts(source: SourceLine, cells: Sequence[str], columns: Sequence[str]) -> tuple[int, int] | None:
    """Return support and hits, or None if a column is missing or not counted."""
    by_name = dict(zip(columns, cells, strict=True))
    counts = []
    for name in ("Body size", "Positive Examples"):
        cell = by_name.get(name, "NaN")
        try:
            value = float(cell.replace(",", "."))  # AMIE uses the decimal mark of its user's language
        except ValueError:
            column = sum(len(c) + 1 for c in cells[: columns.index(name)])
            raise source.error_at(column, f"expected a count, found {quote_name(cell)}") from None
        if not 0 <= value < 2**63:
            return None
        counts.append(int(value))
    return counts[0], counts[1]


def _split_rule(text: str) -> tuple[str, str, str]:
    """Return the premises, the arrow and the hypothesis. The arrow is empty if there is none."""
    return text.partition(_ARROW if _ARROW in text else "=> ")


def _split_parts(text: str) -> list[str]:
    """Split at two spaces, because names can contain one. If that fails, split at every space."""
    parts = _GAPS.split(text.strip())
    return text.split() if len(parts) % 3 else parts


def _read_atoms(text: str, graph: KnowledgeGraph) -> list[Atom] | None:
    """Return the atoms, or None if the number of parts is not a multiple of three."""
    parts = _split_parts(text)
    if len(parts) % 3:
        return None

    def term(name: str) -> Term:
        is_variable = _VARIABLE.fullmatch(name) is not None
        return Variable("V" + name[1:]) if is_variable else Constant(_find_name(name, graph.entities))

    return [
        Atom(_find_name(relation, graph.relations), term(head), term(tail))
        for head, relation, tail in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    ]


def _find_name(name: str, vocabulary: Vocabulary) -> str:
    """Return the name without angle brackets if the graph has it only without, as after reading an RDF file."""
    is_bracketed = name[:1] == "<" and name[-1:] == ">" and name not in vocabulary
    return name[1:-1] if is_bracketed and name[1:-1] in vocabulary else name


# Writing


def format_amie(rule: Rule, support: int, hits: int) -> str:
    r"""Return a line in this format. Numbers that are not in a rule table are NaN.

    Example:
        >>> from plogicnet.rules.syntax import parse_rule
        >>> format_amie(parse_rule("husband(X, Y) => wife(Y, X)"), 4, 3)
        '?b  husband  ?a   => ?a  wife  ?b\tNaN\t0.75\tNaN\t3\t4\tNaN\t?a'
    """
    if rule.negated or rule.is_formula:
        raise NotExpressibleError(f"with the pattern {rule.pattern}")
    relations, entities = names_of(rule)
    for name in relations | entities:
        is_plain = name.isprintable() and name == name.strip() and _GAP not in name
        if not name or not is_plain or name.startswith("?"):
            raise NotExpressibleError(BREAKS_FORMAT, quote_name(name))
    variables = dict.fromkeys(variable for atom in (rule.head, *rule.body) for variable in atom.variables)
    numbers = itertools.chain([""], map(str, range(100)))
    names = (f"?{letter}{number}" for number in numbers for letter in "abcdefghijklmnopqrstuvwxyz")
    name_of: dict[Term, str] = dict(zip(variables, names, strict=False))

    def atom_text(atom: Atom) -> str:
        head, tail = (name_of[t] if isinstance(t, Variable) else t.name for t in (atom.head, atom.tail))
        return _GAP.join((head, atom.relation, tail))

    text = _GAP.join(map(atom_text, rule.body)) + _ARROW + atom_text(rule.head)
    precision = f"{hits / max(support, 1):.9g}"
    return "\t".join((text, "NaN", precision, "NaN", str(hits), str(support), "NaN", next(iter(name_of.values()), "")))
