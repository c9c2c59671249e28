"""What the readers and writers of other programs' rules share."""

from typing import NamedTuple

from plogicnet.rules.rule import Atom, Constant, Rule
from plogicnet.rules.syntax import syntax_error
from plogicnet.support.errors import InputError

MAX_LINE_LENGTH = 20_000
"""The largest number of characters in a line. Names can contain separators, so several splits of a line are tried."""
BREAKS_FORMAT = "with a name that breaks the format"
UNKNOWN_NAME = "with a name that the graph does not contain"
NO_PREMISES = "without premises"


class ForeignRule(NamedTuple):
    """A rule of another program.

    Attributes:
        line: the line number.
        rule: the rule.
        counts: its support and hits according to the file, or None.
    """

    line: int
    rule: Rule
    counts: tuple[int, int] | None


class LeftOut(NamedTuple):
    """A valid rule that cannot be used.

    Attributes:
        line: the line number.
        reason: the reason, which continues a sentence that begins with "3 rules".
        detail: what is shown about the first rule with this reason.
    """

    line: int
    reason: str
    detail: str = ""


class NotExpressibleError(Exception):
    """A file format cannot express a rule.

    Attributes:
        reason: the reason, which continues a sentence that begins with "3 rules".
        detail: what is shown about the first rule with this reason.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


class SourceLine(NamedTuple):
    """A line of a rule file.

    Example:
        >>> print(SourceLine("1	x", "rules.txt", 7).error_at(2, "expected a number"))
        rules.txt, line 7, column 3: expected a number
          1 x
            ^
    """

    text: str
    file: str
    number: int

    def error_at(self, column: int, message: str) -> InputError:
        """Return an error with the position and a caret."""
        return syntax_error(self.text, self.file, self.number, column, message)

    def check_length(self) -> None:
        """Raise InputError if the line is too long."""
        if len(self.text) > MAX_LINE_LENGTH:
            message = f"a line must have at most {MAX_LINE_LENGTH:,} characters, got {len(self.text):,}"
            raise self.error_at(MAX_LINE_LENGTH, message)


def names_of(rule: Rule) -> tuple[set[str], set[str]]:
    """Return the names of the relations and of the entities of a rule.

    Example:
        >>> from plogicnet.rules.syntax import parse_rule
        >>> names_of(parse_rule("born_in(X, paris) => speaks(X, french)"))[0] == {"born_in", "speaks"}
        True
    """
    atoms: tuple[Atom, ...] = (*rule.body, rule.head)
    constants = {term.name for atom in atoms for term in (atom.head, atom.tail) if isinstance(term, Constant)}
    return {atom.relation for atom in atoms}, constants
