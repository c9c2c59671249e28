"""Rules in the format of AnyBURL and PyClause: predictions, correct predictions, confidence and `head <= body`.

Names are written as they are. They can contain commas, spaces and parentheses, so the reader looks for the split of a
line for which the graph contains all names. An argument that is one capital letter is a variable.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from string import ascii_uppercase

from plogicnet.graph import KnowledgeGraph
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

_NUMBERS, _HYPOTHESIS_END = re.compile(r"\d+\t\d+\t[^\t]*\t"), re.compile(r"\) <=(?: |$)")
_ARROW, _SEPARATOR = " <= ", ", "
_SAME = "me_myself_i"
"""AnyBURL's argument that stands for the other argument of the same atom."""
_VARIABLES = "XABCDEFGHIJKLMNOPQRSTUVWY"
"""The variables in PyClause's order. A path begins at X and ends at Y, or begins at Y if X is a constant."""
_VARIABLE_TERMS: dict[str, Term] = {letter: Variable(letter) for letter in ascii_uppercase}
_UNKNOWN_LENGTH = 1_000
"""The largest number of characters of an atom with a name that the graph does not contain."""
Accept = Callable[[str, str, str], bool]
"""Function that returns whether a relation and two arguments are allowed."""


def is_anyburl(line: str) -> bool:
    r"""Return whether a line is a rule in this format, with or without its numbers.

    Example:
        >>> is_anyburl("20\t10\t0.5\tknows(X,Y) <= knows(Y,X)"), is_anyburl("knows(X, Y) => knows(Y, X)")
        (True, False)
    """
    if _NUMBERS.match(line):
        return True
    # one expression for the hypothesis would take quadratic time on a line of parentheses
    start = line.find("(")
    end = _HYPOTHESIS_END.search(line, start + 1)
    if start < 0 or end is None:
        return False
    return not set('"#') & set(line[:start]) and '"' not in line[start : end.start()]


def read_anyburl(text: str, graph: KnowledgeGraph, file: str) -> Iterator[ForeignRule | LeftOut]:
    r"""Parse a rule file of AnyBURL or PyClause.

    Example:
        >>> graph = KnowledgeGraph.from_names([("Anna, sr.", "knows", "ben")])
        >>> [str(found.rule) for found in read_anyburl("9\t4\t0.4\tknows(X,ben) <= knows(Anna, sr.,X)", graph, "f")]
        ['knows("Anna, sr.", X) => knows(X, ben)']
    """
    reader = _Reader(graph)
    for number, line in enumerate(text.split("\n"), start=1):
        source = SourceLine(line.rstrip(), file, number)
        if source.text:
            yield reader.read(source)


@dataclass(frozen=True)
class _Reader:
    """The parser of lines whose names are in a graph."""

    graph: KnowledgeGraph

    def read(self, source: SourceLine) -> ForeignRule | LeftOut:
        source.check_length()
        *numbers, text = source.text.split("\t")
        counts = _read_counts(source, numbers)
        column = len(source.text) - len(text)
        if text.endswith(_ARROW.rstrip()):
            if next(_readings(text.removesuffix(_ARROW.rstrip())), None) is None:
                raise source.error_at(column, "expected a hypothesis such as r(X,name) before '<='")
            return LeftOut(source.number, NO_PREMISES)
        atoms = _split_rule(text, self._is_known)
        if atoms is not None:
            head, *body = atoms
            return ForeignRule(source.number, Rule(tuple(body), head).canonical, counts)
        atoms = _split_rule(text, _is_plausible)
        if atoms is None:
            raise source.error_at(column + _error_column(text), "expected 'head <= body' with atoms such as r(X,Y)")
        head, *body = atoms
        relations, entities = names_of(Rule(tuple(body), head))
        unknown = sorted(name for name in relations if name not in self.graph.relations)
        unknown += sorted(name for name in entities if name not in self.graph.entities)
        return LeftOut(source.number, UNKNOWN_NAME, quote_name(unknown[0]))

    def _is_known(self, relation: str, *arguments: str) -> bool:
        if relation not in self.graph.relations:
            return False
        return all(name in _VARIABLE_TERMS or name in self.graph.entities for name in arguments)


def _read_counts(source: SourceLine, cells: list[str]) -> tuple[int, int] | None:
    """Return support and hits. PyClause also reads rules without numbers."""
    if not cells:
        return None
    if len(cells) != 3:
        expected = "expected predictions, correct predictions, confidence and a rule, separated by tabs"
        raise source.error_at(0, f"{expected}, found {len(cells) + 1} columns")
    column, counts = 0, []
    for cell in cells[:2]:
        if not (cell.isascii() and cell.isdecimal() and len(cell) < 19):
            raise source.error_at(column, f"expected a count, found {quote_name(cell)}")
        counts.append(int(cell))
        column += len(cell) + 1
    support, hits = counts
    if hits > support:
        raise source.error_at(len(cells[0]) + 1, f"expected at most {support:,} correct predictions, found {hits:,}")
    try:
        float(cells[2])
    except ValueError:
        raise source.error_at(column, f"expected a confidence, found {quote_name(cells[2])}") from None
    return support, hits


def _is_plausible(*names: str) -> bool:
    """Return whether unknown names look like names. One that contains the end of an atom is more likely a mistake."""
    return all(")" + _SEPARATOR not in name for name in names)


def _split_rule(text: str, accept: Accept) -> list[Atom] | None:
    """Return the hypothesis and the premises, or None if no split of the text is accepted."""
    arrow = text.find(_ARROW)
    while arrow >= 0:
        head = next((reading for reading in _readings(text[:arrow]) if accept(*reading)), None)
        body = None if head is None else _split_body(text, arrow + len(_ARROW), accept)
        if head is not None and body is not None:
            return [_atom(*head), *body]
        arrow = text.find(_ARROW, arrow + 1)
    return None


def _split_body(text: str, start: int, accept: Accept) -> list[Atom] | None:
    """Return the premises, or None. Shorter atoms are tried first."""
    atoms: list[Atom] = []
    choices, tried = [_atoms_at(text, start, accept)], {start}
    while choices:
        atom, following = next(choices[-1], (None, 0))
        if atom is None:
            choices.pop()
            atoms = atoms[:-1]
        elif following > len(text):
            return [*atoms, atom]
        elif following not in tried:
            tried.add(following)
            atoms.append(atom)
            choices.append(_atoms_at(text, following, accept))
    return None


def _atoms_at(text: str, start: int, accept: Accept) -> Iterator[tuple[Atom, int]]:
    """Yield the atoms that can begin at a position, and the positions of the next atoms."""
    end = start
    while 0 <= end < len(text) and end - start <= _UNKNOWN_LENGTH:
        end = text.find(")" + _SEPARATOR, end) + 1 or len(text)
        for reading in _readings(text[start:end]):
            if accept(*reading):
                yield _atom(*reading), end + len(_SEPARATOR)


def _readings(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the ways to read a text as a relation and two arguments."""
    if not text.endswith(")"):
        return
    opening = text.find("(")
    while opening > 0:
        arguments = text[opening + 1 : -1]
        first, last = arguments.find(","), arguments.rfind(",")
        for comma in (last, first) if first < last else (last,):
            head, tail = arguments[:comma], arguments[comma + 1 :]
            tail = tail.lstrip() if tail.lstrip() in _VARIABLE_TERMS else tail  # some programs write r(X, Y)
            if comma > 0 and tail and (first == last or head in _VARIABLE_TERMS or tail in _VARIABLE_TERMS):
                if head == _SAME and tail in _VARIABLE_TERMS:
                    head = tail
                elif tail == _SAME and head in _VARIABLE_TERMS:
                    tail = head
                yield text[:opening], head, tail
        opening = text.find("(", opening + 1)


def _atom(relation: str, head: str, tail: str) -> Atom:
    return Atom(relation, _term(head), _term(tail))


def _term(argument: str) -> Term:
    return _VARIABLE_TERMS.get(argument) or Constant(argument)


def _error_column(text: str) -> int:
    """Return the position of the first atom that cannot be read."""
    arrow = text.find(_ARROW)
    if arrow < 0:
        return len(text)
    if next(_readings(text[:arrow]), None) is None:
        return 0
    start = arrow + len(_ARROW)
    while (found := next(_atoms_at(text, start, _is_plausible), None)) is not None and found[1] < len(text):
        start = found[1]
    return start


# Writing


def format_anyburl(rule: Rule, support: int, hits: int) -> str:
    r"""Return a line in this format. Raise NotExpressibleError if AnyBURL and PyClause have no such rules.

    Example:
        >>> from plogicnet.rules.syntax import parse_rule
        >>> format_anyburl(parse_rule("husband(X, Y) => wife(Y, X)"), 4, 3)
        '4\t3\t0.75\twife(X,Y) <= husband(Y,X)'
    """
    if rule.negated or rule.is_formula:
        raise NotExpressibleError(f"with the pattern {rule.pattern}")
    _check_names(rule)
    ends = (rule.head.head, rule.head.tail)
    variables = [term for term in dict.fromkeys(ends) if isinstance(term, Variable)]
    is_loop = ends[0] == ends[1]
    path = _path_of(rule, variables[0], 1 if is_loop else len(_VARIABLES) - 2) if variables else None
    if path is None or (len(variables) == 2 and path[-1][1] != ends[1]):
        raise NotExpressibleError("whose premises are not a path")
    atom, end = path[0]
    if is_loop and isinstance(end, Constant) and atom.head == end and end.name.startswith("X"):
        raise NotExpressibleError(BREAKS_FORMAT, quote_name(end.name))  # PyClause takes it for the variable X
    names = {term: name for (_, term), name in zip(path, _VARIABLES[1:], strict=False) if isinstance(term, Variable)}
    names |= {term: "X" if term == ends[0] else "Y" for term in variables}

    def atom_text(atom: Atom) -> str:
        head, tail = (names[t] if isinstance(t, Variable) else t.name for t in (atom.head, atom.tail))
        return f"{atom.relation}({head},{tail})"

    body = _SEPARATOR.join(atom_text(atom) for atom, _ in path)
    return f"{support}\t{hits}\t{hits / max(support, 1)}\t{atom_text(rule.head)}{_ARROW}{body}"


def _path_of(rule: Rule, start: Variable, max_length: int) -> list[tuple[Atom, Term]] | None:
    """Return the premises as a path of new terms that begins at a variable, each with its end, or None."""
    if len(rule.body) > max_length:
        return None
    remaining, path = list(rule.body), []
    current: Term = start
    visited: set[Term] = {start}
    while remaining:
        touching = [atom for atom in remaining if current in (atom.head, atom.tail)]
        if len(touching) != 1 or isinstance(current, Constant):
            return None
        atom = touching[0]
        current = atom.tail if atom.head == current else atom.head
        if current in visited:
            return None
        visited.add(current)
        remaining.remove(atom)
        path.append((atom, current))
    return path


_AMBIGUOUS = re.compile(r"[A-Z],|.*,[A-Z]$", re.DOTALL)
"""Names that, next to a variable, could be read as two arguments."""


def _check_names(rule: Rule) -> None:
    relations, entities = names_of(rule)
    for name in relations | entities:
        is_plain = name.isprintable() and name == name.strip() and _SEPARATOR not in name and _ARROW not in name
        is_clear = name not in relations or "(" not in name
        # AnyBURL ignores entities with one character. PyClause takes any part of its list of variables for a variable.
        is_variable = len(name) == 1 or name in _VARIABLES or name == _SAME
        is_constant = name not in entities or not (is_variable or _AMBIGUOUS.match(name))
        if not (name and is_plain and is_clear and is_constant):
            raise NotExpressibleError(BREAKS_FORMAT, quote_name(name))
