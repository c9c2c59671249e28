"""The parser of the rule syntax. Error messages mark the position of the error with a caret."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from string import hexdigits
from typing import NamedTuple

from plogicnet.config.shapes import NEGATIVE_PATTERNS
from plogicnet.rules.rule import RESERVED_CHARACTERS, Atom, Constant, Rule, Term, Variable
from plogicnet.support.errors import InputError

_PUNCTUATION = ("=>", "!=", *"(),&:=")
_PLAIN_ESCAPES = {"\\": "\\", '"': '"', "n": "\n", "r": "\r", "t": "\t"}
_CODE_ESCAPES = {"x": 2, "u": 4, "U": 8}
NameCheck = Callable[[str, str], str | None]
"""Function from a kind ("relation" or "entity") and a name to an error message or None."""
MAX_LINE_LENGTH = 1_000_000
"""The largest number of characters in a line."""
MAX_SHOWN_LENGTH = 160
"""Error messages show at most this many characters of a line, around the error."""
_PLAIN_ATOM = re.compile(r"({0})\(({0}), ({0})\)".format(r"[^\s(),&=>\"#:\\]+"))
_EXPECTED_NEGATION = 'expected "=> not r(X, X)" or one premise as in "s(X, Y) => not r(X, Y)"'
_EXPECTED_PREMISE = 'expected "s(X, Y)", "s(Y, X)", "r(X, Z) & Z != Y" or "r(Z, Y) & Z != X" before "=> not r(X, Y)"'


@dataclass(frozen=True)
class Statement:
    """One line of a rule file.

    Attributes:
        rule: the rule.
        weight: the weight that the user gave, or None.
        fixed: whether the weight is fixed. Otherwise it is an initial weight.
        line: the line number.
        file_counts: the support and the hits that another program has counted, or None.

    Example:
        >>> [statement] = parse_rules("=2.5: husband(X, Y) => wife(Y, X)", "family.rules")
        >>> statement.weight, statement.fixed, statement.line
        (2.5, True, 1)
    """

    rule: Rule
    weight: float | None
    fixed: bool
    line: int
    file_counts: tuple[int, int] | None = None

    def __str__(self) -> str:
        prefix = "" if self.weight is None else f"{'=' if self.fixed else ''}{self.weight!r}: "
        return f"{prefix}{self.rule}"


def parse_rule(text: str) -> Rule:
    """Parse a single rule without a weight. `parse_rule(str(rule)) == rule`.

    Raises:
        InputError: The text is not a single rule. The message shows the position of the error.

    Example:
        >>> parse_rule("husband(X, Y) => wife(Y, X)").pattern
        'inverse'
    """
    rule = _parse_plain_rule(text)
    if rule is not None:
        return rule
    statements = parse_rules(text, "rule")
    if len(statements) == 1 and statements[0].weight is None:
        return statements[0].rule
    found = "none" if not statements else "another rule" if len(statements) > 1 else "a weight"
    line_number = statements[-1].line if statements else 1
    line = _Line(text.split("\n")[line_number - 1], "rule", line_number)
    raise line.error_at(0, f"expected a single rule, found {found}")


def _parse_plain_rule(text: str) -> Rule | None:
    """Return the rule of a text without quotes, weights, comments and errors; None for any other text.

    Tables have 100,000 rules and more. Their atoms repeat, so parsing is mostly a lookup.

    Example:
        >>> _parse_plain_rule("husband(X, Y) => wife(Y, X)") == parse_rules("husband(X, Y) => wife(Y, X)", "")[0].rule
        True
        >>> _parse_plain_rule('"husband"(X, Y) => wife(Y, X)') is None
        True
    """
    premises, arrow, conclusion = text.partition(" => ")
    if not arrow or len(text) > MAX_LINE_LENGTH:
        return None
    body, head = [_parse_plain_atom(atom) for atom in premises.split(" & ")], _parse_plain_atom(conclusion)
    found = [atom for atom in body if atom is not None]
    if head is None or len(found) < len(body) or find_problem(found, head) is not None:
        return None  # the parser of lines says what is wrong
    return Rule(tuple(found), head)


@lru_cache(maxsize=1 << 16)
def _parse_plain_atom(text: str) -> Atom | None:
    """Return the atom of a text without quotes; None for any other text."""
    match = _PLAIN_ATOM.fullmatch(text)
    if match is None or match[1] == "not":
        return None
    head, tail = (Variable(name) if name[0].isupper() else Constant(name) for name in match.groups()[1:])
    return Atom(match[1], head, tail)


def parse_rules(text: str, file: str, check_name: NameCheck = lambda _kind, _name: None) -> list[Statement]:
    """Parse the text of a rule file.

    Args:
        text: one rule per line, comments and empty lines.
        file: the file name in error messages.
        check_name: see `NameCheck`. Constants are checked as entities.

    Raises:
        InputError: A line is not a valid rule. The message shows the position and the reason.

    Example:
        >>> len(parse_rules("2.5: husband(X, Y) => wife(Y, X)  # marriage", "family.rules"))
        1
    """
    lines = (_Line(source, file, i, check_name) for i, source in enumerate(text.split("\n"), start=1))
    return [line.read_statement() for line in lines if line.read_tokens()]


def syntax_error(source: str, file: str, line_number: int, column: int, message: str) -> InputError:
    """Return an error with the file, the line, the column (from 0 here, from 1 in the message) and a caret."""
    # Tabs and unprintable characters become single spaces, so that the caret is in the right column.
    start = max(0, column - MAX_SHOWN_LENGTH // 2) if len(source) > MAX_SHOWN_LENGTH else 0
    excerpt = source[start : start + MAX_SHOWN_LENGTH]
    printable = "".join(c if c.isprintable() else " " for c in excerpt)
    where = f"{file}, line {line_number}, column {column + 1}"
    return InputError(f"{where}: {message}\n  {printable}\n  {' ' * (column - start)}^")


class RuleProblem(NamedTuple):
    """A reason why a rule cannot be grounded.

    Attributes:
        message: the reason.
        atom: the index of the atom with the problem: of a premise, or the number of premises for the hypothesis.
        part: the part of that atom: 0 for the relation, 1 for the head, 2 for the tail.
    """

    message: str
    atom: int
    part: int = 0


def find_problem(body: Sequence[Atom], hypothesis: Atom) -> RuleProblem | None:
    """Return the first reason why a rule cannot be grounded, or None.

    Example:
        >>> x, y = Variable("X"), Variable("Y")
        >>> find_problem([Atom("knows", x, x)], Atom("knows", x, y)).message
        "the variable 'Y' must also be in a premise"
    """
    last = len(body)
    if not body:
        return RuleProblem("a rule must have at least one premise before '=>'", last)
    if hypothesis in body:
        return RuleProblem("the hypothesis must not be one of the premises", last)
    bound = {variable for atom in body for variable in atom.variables}
    for part, term in enumerate((hypothesis.head, hypothesis.tail), start=1):
        if isinstance(term, Variable) and term not in bound:
            return RuleProblem(f"the variable {term.name!r} must also be in a premise", last, part)
    disconnected = _first_disconnected(body)
    if disconnected is not None:
        remedy = "Connect them, because otherwise every match of one would be combined with every match of the other."
        return RuleProblem(f"no shared variables connect this premise to the first one. {remedy}", disconnected)
    return None


class _Token(NamedTuple):
    kind: str  # "word", "quoted", "end" or the punctuation itself
    text: str
    column: int


class _LocatedAtom(NamedTuple):
    atom: Atom
    columns: tuple[int, int, int]  # of the relation, the head and the tail


class _LocatedPair(NamedTuple):
    variables: tuple[Variable, Variable]
    column: int


class _Line:
    """The parser of one line. Columns start at 0 in the code and at 1 in messages."""

    def __init__(
        self, source: str, file: str, line_number: int, check_name: NameCheck = lambda _kind, _name: None
    ) -> None:
        self.source, self.file, self.line_number = source.removesuffix("\r"), file, line_number
        self.check_name = check_name
        self.tokens: list[_Token] = []
        self.token_index = 0

    def error_at(self, column: int, message: str) -> InputError:
        return syntax_error(self.source, self.file, self.line_number, column, message)

    # The tokenizer

    def read_tokens(self) -> bool:
        """Split the line into tokens. Return whether it has any."""
        source, position = self.source, 0
        if len(source) > MAX_LINE_LENGTH:
            raise self.error_at(
                MAX_LINE_LENGTH, f"a line must have at most {MAX_LINE_LENGTH:,} characters, got {len(source):,}"
            )
        while position < len(source) and source[position] != "#":
            start, c = position, source[position]
            if c.isspace():
                position += 1
            elif c == '"':
                text, position = self._read_quoted(start)
                self.tokens.append(_Token("quoted", text, start))
            elif punctuation := next((p for p in _PUNCTUATION if source.startswith(p, position)), ""):
                position += len(punctuation)
                self.tokens.append(_Token(punctuation, punctuation, start))
            elif c in RESERVED_CHARACTERS:
                hint = "expected '=>'" if c == ">" else "a name with a backslash must be in double quotes"
                raise self.error_at(position, f"unexpected {c!r}: {hint}")
            else:
                while position < len(source) and not (
                    source[position].isspace()
                    or source[position] in RESERVED_CHARACTERS
                    or source.startswith("!=", position)
                ):
                    position += 1
                self.tokens.append(_Token("word", source[start:position], start))
        self.tokens.append(_Token("end", "", position))
        return len(self.tokens) > 1

    def _read_quoted(self, start: int) -> tuple[str, int]:
        characters: list[str] = []  # a list, because appending to a string copies it each time
        position = start + 1
        while position < len(self.source):
            c = self.source[position]
            if c == '"':
                return "".join(characters), position + 1
            c, position = self._read_escape(position) if c == "\\" else (c, position + 1)
            characters.append(c)
        raise self.error_at(start, "unclosed quote, expected '\"' before the end of the line")

    def _read_escape(self, start: int) -> tuple[str, int]:
        kind = self.source[start + 1 : start + 2]
        if kind in _PLAIN_ESCAPES:
            return _PLAIN_ESCAPES[kind], start + 2
        end = start + 2 + _CODE_ESCAPES.get(kind, 0)
        digits = self.source[start + 2 : end]
        # int() also accepts signs and underscores.
        is_code = kind in _CODE_ESCAPES and end <= len(self.source) and all(c in hexdigits for c in digits)
        if is_code and int(digits, 16) <= 0x10FFFF:
            return chr(int(digits, 16)), end
        raise self.error_at(start, r"unknown escape, expected one of \\ \" \n \r \t \xHH \uHHHH \UHHHHHHHH")

    # The grammar: [["="] weight ":"] [condition {"&" condition}] "=>" ["not"] atom
    # A condition is an atom or an inequality: variable "!=" variable.

    def read_statement(self) -> Statement:
        weight, fixed = self._read_weight()
        premises: list[_LocatedAtom] = []
        unequal: list[_LocatedPair] = []
        if self._peek_kind() != "=>":
            self._read_condition(premises, unequal)
            while self._peek_kind() == "&":
                self.token_index += 1
                self._read_condition(premises, unequal)
        self._expect("'&' or '=>'", "=>")
        # `not(X, Y)` is left to _read_atom, which explains how to write a relation with this name.
        negated = self._peek_kind() == "not" and self._peek_kind(1) != "("
        self.token_index += negated
        hypothesis = self._read_atom()
        self._expect("the end of the line", "end")
        body, pairs = tuple(premise.atom for premise in premises), tuple(pair.variables for pair in unequal)
        rule = Rule(body, hypothesis.atom, negated, pairs)
        if negated:
            self._check_negated(rule, premises, unequal, hypothesis)
        else:
            self._check_rule(premises, unequal, hypothesis)
        return Statement(rule, weight, fixed, self.line_number)

    def _peek_kind(self, ahead: int = 0) -> str:
        kind, text, _ = self.tokens[min(self.token_index + ahead, len(self.tokens) - 1)]
        return "not" if kind == "word" and text == "not" else kind

    def _expect(self, expected: str, *kinds: str) -> _Token:
        token = self.tokens[self.token_index]
        if token.kind not in kinds:
            found = "the end of the line" if token.kind == "end" else repr(token.text[:100])
            raise self.error_at(token.column, f"expected {expected}, found {found}")
        self.token_index += 1
        return token

    def _read_weight(self) -> tuple[float | None, bool]:
        fixed = self._peek_kind() == "="
        if not fixed and self._peek_kind(1) != ":":
            return None, False
        self.token_index += fixed
        _, text, column = self._expect("a weight", "word")
        try:
            weight = float(text)
        except ValueError:
            hint = f"found {text[:100]!r}. A name with ':' must be in double quotes."
            raise self.error_at(column, f"expected a number before ':', {hint}") from None
        if not math.isfinite(weight):
            raise self.error_at(column, f"the weight must be finite, got {text[:40]}")
        self._expect("':' after the weight", ":")
        return weight, fixed

    def _read_condition(self, premises: list[_LocatedAtom], unequal: list[_LocatedPair]) -> None:
        """Read an atom or an inequality, and append it to its list."""
        if self._peek_kind(1) != "!=":
            premises.append(self._read_atom())
            return
        left = self._expect("a variable", "word", "quoted")
        self.token_index += 1
        right = self._expect("a variable after '!='", "word", "quoted")
        terms = _term(left), _term(right)
        for term, token in zip(terms, (left, right), strict=True):
            if not isinstance(term, Variable):
                raise self.error_at(token.column, f"expected a variable in an inequality, found {token.text[:100]!r}")
        unequal.append(_LocatedPair(terms, left.column))  # type: ignore[arg-type]

    def _read_atom(self) -> _LocatedAtom:
        if self._peek_kind() == "not":
            hint = "If a relation is called 'not', write its name in double quotes."
            raise self.error_at(
                self.tokens[self.token_index].column,
                f"'not' is allowed only after '=>', {_EXPECTED_NEGATION}. {hint}",
            )
        relation = self._expect("a relation", "word", "quoted")
        self._expect("'(' after the relation", "(")
        head = self._expect("an argument", "word", "quoted")
        self._expect("',' between the arguments", ",")
        tail = self._expect("an argument", "word", "quoted")
        self._expect("')' after the second argument", ")")
        atom = Atom(relation.text, _term(head), _term(tail))
        constants = [("entity", token) for token in (head, tail) if isinstance(_term(token), Constant)]
        for kind, token in [("relation", relation), *constants]:
            problem = self.check_name(kind, token.text)
            if problem is not None:
                raise self.error_at(token.column, problem)
        return _LocatedAtom(atom, (relation.column, head.column, tail.column))

    # Checks of complete rules

    def _check_negated(
        self,
        rule: Rule,
        premises: list[_LocatedAtom],
        unequal: list[_LocatedPair],
        hypothesis: _LocatedAtom,
    ) -> None:
        """Raise InputError if a rule with a negated hypothesis is neither a constraint nor negative evidence."""
        if rule.pattern in ("irreflexive", *NEGATIVE_PATTERNS):
            return
        start = hypothesis.columns[0]
        if not premises:
            start = unequal[0].column if unequal else start
            message = 'a constraint must have the same variable twice, expected "=> not r(X, X)"'
            raise self.error_at(start, message)
        if len(premises) > 1:
            message = f"a rule with a negated hypothesis must have one premise, {_EXPECTED_PREMISE}"
            raise self.error_at(premises[1].columns[0], message)
        if len(set(rule.head.variables)) != 2:
            raise self.error_at(start, 'expected two different variables in "not r(X, Y)"')
        start = unequal[0].column if unequal and rule.body[0].relation == rule.head.relation else premises[0].columns[0]
        raise self.error_at(start, f"a negated hypothesis does not allow this condition, {_EXPECTED_PREMISE}")

    def _check_rule(self, premises: list[_LocatedAtom], unequal: list[_LocatedPair], hypothesis: _LocatedAtom) -> None:
        """Raise InputError if a rule with a positive hypothesis cannot be grounded."""
        if unequal:
            message = f"an inequality is allowed only before a negated hypothesis, {_EXPECTED_PREMISE}"
            raise self.error_at(unequal[0].column, message)
        problem = find_problem([premise.atom for premise in premises], hypothesis.atom)
        if problem is not None:
            columns = [*premises, hypothesis][problem.atom].columns
            raise self.error_at(columns[problem.part], problem.message)


def _term(token: _Token) -> Term:
    is_variable = token.kind == "word" and token.text[0].isupper()
    return Variable(token.text) if is_variable else Constant(token.text)


def _first_disconnected(body: Sequence[Atom]) -> int | None:
    """Return the index of the first atom that shared variables do not connect to the first atom."""
    atoms_with: dict[Variable, list[int]] = defaultdict(list)
    for i, atom in enumerate(body):
        for variable in atom.variables:
            atoms_with[variable].append(i)
    connected = {0}
    queue = [0]
    for i in queue:  # the loop appends to the queue
        for variable in body[i].variables:
            new = [j for j in atoms_with.pop(variable, []) if j not in connected]
            connected.update(new)
            queue.extend(new)
    return next((i for i in range(len(body)) if i not in connected), None)
