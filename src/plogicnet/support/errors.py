"""The one exception that means: the input is wrong, and here is what to do about it."""

LONGEST_MESSAGE, LONGEST_SHOWN = 1_500, 200
"""Of a longer message or name a part is shown; and nothing is near to such a name."""


class InputError(ValueError):
    """A mistake in what the user gave (a file, a name, a setting); the commands end with exit code 2.

    The message says what is wrong, where, and what to do. A library user catches it as a ValueError.

    Example:
        >>> raise InputError("family.tsv, line 3: two columns where three are meant")
        Traceback (most recent call last):
        plogicnet.support.errors.InputError: family.tsv, line 3: two columns where three are meant
    """

    def __str__(self) -> str:
        # the name of a stranger's file may hold what a terminal would obey, or be longer than any screen
        text = super().__str__()
        text = text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}…"
        return "".join(c if c == "\n" or c.isprintable() else ascii(c)[1:-1] for c in text)


def shown(name: str) -> str:
    """A name for a message: in quotes, and not all of it where it is very long.

    Example:
        >>> shown("anna"), len(shown("a" * 10_000_000)) < 300
        ("'anna'", True)
    """
    more = f"… ({len(name):,} characters)" if len(name) > LONGEST_SHOWN else ""
    return f"{name[:LONGEST_SHOWN]!r}{more}"


def many(count: int, one: str, more: str | None = None) -> str:
    """A count for a message, with its noun, whose plural may be given.

    Example:
        >>> many(1, "triple"), many(1_000, "triple"), many(2, "entity", "entities")
        ('1 triple', '1,000 triples', '2 entities')
    """
    return f"{count:,} {one if count == 1 else more or f'{one}s'}"


def nearest(name: str, names: "list[str] | tuple[str, ...]", prefix: str = "") -> str:
    """A hint with the known names nearest to a mistyped one, or an empty string.

    Example:
        >>> nearest("husbend", ["husband", "wife"])
        " Did you mean 'husband'?"
    """
    import difflib

    if len(name) > LONGEST_SHOWN:  # comparing takes the product of both lengths
        return ""
    found = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(repr(prefix + f) for f in found)}?" if found else ""
