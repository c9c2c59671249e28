"""The text syntax of rules: a line becomes a Rule with its weight, a mistake a message with a caret."""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from string import hexdigits
from typing import NamedTuple

from plogicnet.errors import InputError
from plogicnet.rules.rule import RESERVED, Atom, Constant, Rule, Term, Variable

_SIGNS = ("=>", *"(),&:=")
_PLAIN_ESCAPES = {"\\": "\\", '"': '"', "n": "\n", "r": "\r", "t": "\t"}
_CODE_ESCAPES = {"x": 2, "u": 4, "U": 8}
Objection = Callable[[str, str], str | None]
LONGEST = 1_000_000
"""The most characters of a line: far more than anyone writes."""
SHOWN = 160
"""A longer line is shown in part, around the mistake."""
_NEGATION = 'negation stands only before the hypothesis, expected "=> not r(X, X)"'


@dataclass(frozen=True)
class Statement:
    """One line of a rule file: the rule, its start weight or fixed weight if it has one, and where it stands.

    Example:
        >>> [statement] = parse_rules("=2.5: husband(X, Y) => wife(Y, X)", "family.rules")
        >>> statement.weight, statement.fixed, statement.line
        (2.5, True, 1)
    """

    rule: Rule
    weight: float | None
    fixed: bool
    line: int

    def __str__(self) -> str:
        given = "" if self.weight is None else f"{'=' if self.fixed else ''}{self.weight!r}: "
        return f"{given}{self.rule}"


def parse_rule(text: str) -> Rule:
    """Reads a single rule, without a weight; `parse_rule(str(rule)) == rule`.

    Raises:
        InputError: The text is no such rule; the message shows where.

    Example:
        >>> parse_rule("husband(X, Y) => wife(Y, X)").pattern
        'inverse'
    """
    statements = parse_rules(text, "rule")
    if len(statements) == 1 and statements[0].weight is None:
        return statements[0].rule
    found = "none" if not statements else "a second one" if len(statements) > 1 else "a weight before it"
    number = statements[-1].line if statements else 1
    line = _Line(text.split("\n")[number - 1], "rule", number)
    raise line.mistake(0, f"expected a single rule and nothing else, found {found}")


def parse_rules(text: str, file: str, objection: Objection = lambda _kind, _name: None) -> list[Statement]:
    """Reads the text of a rule file; the file's name is only for the messages.

    Args:
        text: one rule a line, comments and empty lines.
        file: the name that messages show.
        objection: says what is wrong with the name of a relation or of an entity (a constant), None if nothing is.

    Raises:
        InputError: A line is no rule, or a rule that cannot be used; the message shows where and why.

    Example:
        >>> len(parse_rules("2.5: husband(X, Y) => wife(Y, X)  # marriage", "family.rules"))
        1
    """
    lines = (_Line(source, file, number, objection) for number, source in enumerate(text.split("\n"), start=1))
    return [line.statement() for line in lines if line.read_tokens()]


class _Token(NamedTuple):
    kind: str  # "word", "quoted", "end" or one of the signs
    text: str
    column: int


class _Placed(NamedTuple):
    atom: Atom
    columns: tuple[int, int, int]  # of the relation, the head and the tail


class _Line:
    """One line, read from left to right; columns count from 0 here and from 1 in messages."""

    def __init__(self, source: str, file: str, number: int, objection: Objection = lambda _kind, _name: None) -> None:
        self.source, self.file, self.number = source.removesuffix("\r"), file, number
        self.objection = objection
        self.tokens: list[_Token] = []
        self.at = 0

    def mistake(self, column: int, message: str) -> InputError:
        # Tabs and unprintable characters become single spaces, so that the caret stands where it should.
        start = max(0, column - SHOWN // 2) if len(self.source) > SHOWN else 0
        part = self.source[start : start + SHOWN]
        shown = "".join(c if c.isprintable() else " " for c in part)
        where = f"{self.file}, line {self.number}, column {column + 1}"
        return InputError(f"{where}: {message}\n  {shown}\n  {' ' * (column - start)}^")

    # The tokenizer

    def read_tokens(self) -> bool:
        """Splits the line into tokens; False where there are none."""
        source, at = self.source, 0
        if len(source) > LONGEST:
            raise self.mistake(LONGEST, f"the line has {len(source):,} characters, expected at most {LONGEST:,}")
        while at < len(source) and source[at] != "#":
            start, c = at, source[at]
            if c.isspace():
                at += 1
            elif c == '"':
                text, at = self._quoted(start)
                self.tokens.append(_Token("quoted", text, start))
            elif sign := next((sign for sign in _SIGNS if source.startswith(sign, at)), ""):
                at += len(sign)
                self.tokens.append(_Token(sign, sign, start))
            elif c in RESERVED:
                hint = "an arrow, '=>'" if c == ">" else "a name with a backslash to be in double quotes"
                raise self.mistake(at, f"a stray {c!r}, expected {hint}")
            else:
                while at < len(source) and not (source[at].isspace() or source[at] in RESERVED):
                    at += 1
                self.tokens.append(_Token("word", source[start:at], start))
        self.tokens.append(_Token("end", "", at))
        return len(self.tokens) > 1

    def _quoted(self, start: int) -> tuple[str, int]:
        characters: list[str] = []  # a text that grows by one would be copied each time
        at = start + 1
        while at < len(self.source):
            c = self.source[at]
            if c == '"':
                return "".join(characters), at + 1
            c, at = self._escape(at) if c == "\\" else (c, at + 1)
            characters.append(c)
        raise self.mistake(start, "this quote is never closed, expected '\"' before the end of the line")

    def _escape(self, start: int) -> tuple[str, int]:
        kind = self.source[start + 1 : start + 2]
        if kind in _PLAIN_ESCAPES:
            return _PLAIN_ESCAPES[kind], start + 2
        end = start + 2 + _CODE_ESCAPES.get(kind, 0)
        digits = self.source[start + 2 : end]
        # int() alone would also take signs and underscores.
        is_code = kind in _CODE_ESCAPES and end <= len(self.source) and all(c in hexdigits for c in digits)
        if is_code and int(digits, 16) <= 0x10FFFF:
            return chr(int(digits, 16)), end
        raise self.mistake(start, r"unknown escape, expected one of \\ \" \n \r \t \xHH \uHHHH \UHHHHHHHH")

    # The grammar: [["="] weight ":"] [atom {"&" atom}] "=>" ["not"] atom

    def statement(self) -> Statement:
        weight, fixed = self._weight()
        premises: list[_Placed] = []
        if self._kind() != "=>":
            premises.append(self._atom())
            while self._kind() == "&":
                self.at += 1
                premises.append(self._atom())
        self._take("'&' or '=>'", "=>")
        # `not(X, Y)` falls through to the atom, which says how a relation of that name is written.
        negated = self._kind() == "not" and self._kind(1) != "("
        self.at += negated
        hypothesis = self._atom()
        self._take("the end of the line", "end")
        self._check(premises, hypothesis, negated)
        rule = Rule(tuple(premise.atom for premise in premises), hypothesis.atom, negated)
        return Statement(rule, weight, fixed, self.number)

    def _kind(self, ahead: int = 0) -> str:
        kind, text, _ = self.tokens[min(self.at + ahead, len(self.tokens) - 1)]
        return "not" if kind == "word" and text == "not" else kind

    def _take(self, expected: str, *kinds: str) -> _Token:
        token = self.tokens[self.at]
        if token.kind not in kinds:
            found = "the end of the line" if token.kind == "end" else repr(token.text[:100])
            raise self.mistake(token.column, f"expected {expected}, found {found}")
        self.at += 1
        return token

    def _weight(self) -> tuple[float | None, bool]:
        fixed = self._kind() == "="
        if not fixed and self._kind(1) != ":":
            return None, False
        self.at += fixed
        _, text, column = self._take("a weight", "word")
        try:
            weight = float(text)
        except ValueError:
            hint = f"found {text[:100]!r} (a name with ':' in it is written in double quotes)"
            raise self.mistake(column, f"expected a number before ':', {hint}") from None
        if not math.isfinite(weight):
            raise self.mistake(column, f"the weight {text[:40]} is not finite, expected a finite number")
        self._take("':' after the weight", ":")
        return weight, fixed

    def _atom(self) -> _Placed:
        if self._kind() == "not":
            hint = 'a relation of that name is written "not"'
            raise self.mistake(self.tokens[self.at].column, f"{_NEGATION} ({hint})")
        relation = self._take("a relation", "word", "quoted")
        self._take("'(' after the relation", "(")
        head = self._take("an argument", "word", "quoted")
        self._take("',' between the arguments", ",")
        tail = self._take("an argument", "word", "quoted")
        self._take("')' after the second argument", ")")
        atom = Atom(relation.text, _term(head), _term(tail))
        constants = [("entity", token) for token in (head, tail) if isinstance(_term(token), Constant)]
        for kind, token in [("relation", relation), *constants]:
            wrong = self.objection(kind, token.text)
            if wrong is not None:
                raise self.mistake(token.column, wrong)
        return _Placed(atom, (relation.column, head.column, tail.column))

    # What reads well and still is no rule

    def _check(self, premises: list[_Placed], hypothesis: _Placed, negated: bool) -> None:
        head, (start, *columns) = hypothesis
        body = [premise.atom for premise in premises]
        if negated:
            if body:
                raise self.mistake(start, f"a negated hypothesis with premises: {_NEGATION}")
            if head.head != head.tail or not head.variables:
                raise self.mistake(start, "a negated hypothesis takes one variable twice, expected r(X, X)")
            return
        if not body:
            raise self.mistake(start, "a rule without premises, expected at least one before '=>'")
        if head in body:
            raise self.mistake(start, "the hypothesis is one of the premises, expected it to say something new")
        bound = {variable for atom in body for variable in atom.variables}
        for term, column in zip((head.head, head.tail), columns, strict=True):
            if isinstance(term, Variable) and term not in bound:
                raise self.mistake(column, f"{term.name!r} is in no premise, expected it in at least one")
        loose = _first_loose(body)
        if loose is not None:
            why = "every match of the one would pair with every match of the other, expected connected premises"
            column = premises[loose].columns[0]
            raise self.mistake(column, f"no shared variables tie this premise to the first: {why}")


def _term(token: _Token) -> Term:
    is_variable = token.kind == "word" and token.text[0].isupper()
    return Variable(token.text) if is_variable else Constant(token.text)


def _first_loose(body: list[Atom]) -> int | None:
    """The first atom that no path of shared variables joins to the first one."""
    holders: dict[Variable, list[int]] = defaultdict(list)
    for i, atom in enumerate(body):
        for variable in atom.variables:
            holders[variable].append(i)
    joined = {0}
    queue = [0]
    for i in queue:  # grows while it is walked
        for variable in body[i].variables:
            new = [j for j in holders.pop(variable, []) if j not in joined]
            joined.update(new)
            queue.extend(new)
    return next((i for i in range(len(body)) if i not in joined), None)
