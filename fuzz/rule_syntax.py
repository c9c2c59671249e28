"""Fuzz the rule parser: any text must give rules that survive printing and parsing, or an InputError."""

from plogicnet.rules.syntax import parse_rules
from plogicnet.support.errors import InputError


def one_input(data: bytes) -> None:
    """Parse the bytes as a rule file.

    Example:
        >>> one_input(b"2.5: husband(X, Y) => wife(Y, X)")
    """
    text = data.decode("utf-8", errors="replace")
    try:
        statements = parse_rules(text, "fuzz")
    except InputError:
        return
    for statement in statements:
        again = parse_rules(str(statement), "fuzz")
        if [s.rule for s in again] != [statement.rule] or again[0].weight != statement.weight:
            raise AssertionError(f"{statement} changes when it is printed and parsed")
