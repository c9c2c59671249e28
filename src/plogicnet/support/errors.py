"""The error for invalid input, and helpers for its messages."""

import shlex

MAX_MESSAGE_LENGTH, MAX_NAME_LENGTH = 1_500, 200
"""Longer messages and names are truncated."""


class InputError(ValueError):
    """Invalid input from the user: a file, a name or a setting. Commands exit with code 2.

    The message describes what is wrong, where, and what to do.

    Example:
        >>> raise InputError("family.tsv, line 3: expected three columns, found two")
        Traceback (most recent call last):
        plogicnet.support.errors.InputError: family.tsv, line 3: expected three columns, found two
    """

    def __str__(self) -> str:
        # a file name can be very long or contain terminal control characters
        text = super().__str__()
        text = text if len(text) <= MAX_MESSAGE_LENGTH else f"{text[:MAX_MESSAGE_LENGTH]}…"
        return "".join(c if c == "\n" or c.isprintable() else ascii(c)[1:-1] for c in text)


def quote_name(name: str) -> str:
    """Return a name in quotes for a message, truncated if it is very long.

    Example:
        >>> quote_name("anna"), len(quote_name("a" * 10_000_000)) < 300
        ("'anna'", True)
    """
    suffix = f"… ({len(name):,} characters)" if len(name) > MAX_NAME_LENGTH else ""
    return f"{name[:MAX_NAME_LENGTH]!r}{suffix}"


def pluralize(count: int, singular: str, plural: str | None = None) -> str:
    """Return a count with its noun; `plural` is needed only for irregular nouns.

    Example:
        >>> pluralize(1, "triple"), pluralize(1_000, "triple"), pluralize(2, "entity", "entities")
        ('1 triple', '1,000 triples', '2 entities')
    """
    return f"{count:,} {singular if count == 1 else plural or f'{singular}s'}"


def did_you_mean(name: str, names: "list[str] | tuple[str, ...]", prefix: str = "") -> str:
    """Return a hint with up to three similar names, or an empty string. `prefix` is added to each name.

    Example:
        >>> did_you_mean("husbend", ["husband", "wife"])
        " Did you mean 'husband'?"
    """
    import difflib

    if len(name) > MAX_NAME_LENGTH:  # the comparison takes time proportional to the product of both lengths
        return ""
    matches = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(repr(prefix + match) for match in matches)}?" if matches else ""


def quote_argument(value: object) -> str:
    """Return a value as an argument of a shell command, for commands in messages.

    Example:
        >>> quote_argument("my runs/a")
        "'my runs/a'"
    """
    return shlex.quote(str(value))
