"""Functions that create HTML elements. Only this module turns text into markup, and it escapes all text."""

import html
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from plogicnet.rules import Atom, Constant, Rule

EMPTY = frozenset(("meta", "br", "wbr"))
"""Elements without an end tag."""
MAX_NAME = 90
"""Maximum length of a name. Longer names are truncated."""
MAX_TOOLTIP = 400
"""Maximum length of the full name in a tooltip."""
MAX_UNBROKEN = 16
"""Maximum length of a name without possible line breaks. Longer names can break after separators."""
CONTROLS = dict.fromkeys({*range(0x20), *range(0x7F, 0xA0)} - set(b"\t\n"), "\N{REPLACEMENT CHARACTER}")


class Markup(str):
    """Text that is already HTML. All other text is escaped when it is added to an element.

    Example:
        >>> tag("b", Markup("<i>"), "<i>")
        '<b><i>&lt;i&gt;</b>'
    """

    __slots__ = ()


Child = str | float | None | Iterable["Child"]
"""Content of an element: text, a number, None for nothing, or an iterable of these."""


def tag(name: str, /, *children: Child, **attributes: object) -> Markup:
    """Return an element. Attributes that are None are skipped. `class_` becomes class, `http_equiv` http-equiv.

    Example:
        >>> tag("a", "R&D", href="#top", class_=None)
        '<a href="#top">R&amp;D</a>'
    """
    attribute_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_printable(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{attribute_text}>" + ("" if name in EMPTY else f"{join(*children)}</{name}>"))


def join(*children: Child) -> Markup:
    """Concatenate children, and escape those that are not markup.

    Example:
        >>> join("a < b, ", [tag("br"), 3, None])
        'a &lt; b, <br>3'
    """
    parts: list[str] = []
    for child in children:
        if isinstance(child, Markup):
            parts.append(child)
        elif isinstance(child, str | int | float):
            parts.append(html.escape(_printable(str(child)), quote=False))
        elif child is not None:
            parts.append(join(*child))
    return Markup("".join(parts))


def separated(separator: Child, children: Iterable[Child]) -> Markup:
    """Concatenate children with a separator between them.

    Example:
        >>> separated(tag("br"), ["a", "<b"])
        'a<br>&lt;b'
    """
    return Markup(join(separator).join(join(child) for child in children))


def _printable(text: str) -> str:
    """Replace control characters, which HTML does not allow, and lone surrogates, which UTF-8 cannot encode."""
    return text.translate(CONTROLS).encode("utf-8", "replace").decode("utf-8")


def truncate(text: str, max_length: int = MAX_NAME) -> str:
    """Truncate a text to a maximum length.

    Example:
        >>> truncate("abcdef", 4)
        'abc…'
    """
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def breakable(text: str) -> Markup:
    """Return a text with possible line breaks if it is long. Names such as /people/person have no spaces to break at.

    Example:
        >>> breakable("/people/person/nationality")
        '/<wbr>people/<wbr>person/<wbr>nationality'
    """
    return separated(tag("wbr"), re.split(r"(?<=[/._:#-])(?=\w)", text) if len(text) > MAX_UNBROKEN else [text])


@dataclass(frozen=True)
class NameFormatter:
    """A formatter of names as HTML. It shows labels, isolates right-to-left text, and truncates long names.

    Attributes:
        labels: labels by name.
        rules: rules of the run by their text.

    Example:
        >>> NameFormatter({"Q1": "Anna"})("Q1")
        '<bdi title="Q1">Anna</bdi>'
        >>> NameFormatter().fact(["anna", "knows", "ben"]).count("bdi")
        6
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, Rule] = field(default_factory=dict)

    def __call__(self, name: str) -> Markup:
        """Return a name as HTML, with its label if it has one."""
        label = truncate(self.text(name))
        return tag("bdi", breakable(label), title=None if label == name else truncate(name, MAX_TOOLTIP))

    def text(self, name: str) -> str:
        """Return the label of a name, or the name itself, as plain text."""
        return self.labels.get(name) or name

    def fact(self, triple: Iterable[str], missing: str = "") -> Markup:
        """Return a triple as HTML. If `missing` is "head" or "tail", that part is a question mark."""
        head, relation, tail = triple
        ends = [tag("b", "?") if side == missing else self(name) for side, name in (("head", head), ("tail", tail))]
        between = tag("span", " ", tag("i", self(relation)), " ", class_="relation")
        return tag("span", ends[0], between, ends[1], class_="fact")

    def facts(self, triples: Iterable[Iterable[str]]) -> Markup:
        """Return triples as HTML, joined by "and"."""
        return separated(tag("span", " and ", class_="and"), map(self.fact, triples))

    def rule(self, text: str) -> Markup:
        """Return a rule of the run as HTML, given its text."""
        rule = self.rules[text]
        unequal = [tag("span", f"{a} ≠ {b}", class_="atom") for a, b in rule.unequal]
        body = separated(tag("span", " ∧ ", class_="and"), [*map(self._atom, rule.body), *unequal])
        hypothesis = join("not " if rule.negated else "", self._atom(rule.head))
        return tag("span", body, tag("span", " ⇒ " if body else "⇒ ", class_="and"), hypothesis, class_="rule")

    def _atom(self, atom: Atom) -> Markup:
        ends = [self(end.name) if isinstance(end, Constant) else str(end) for end in (atom.head, atom.tail)]
        return tag("span", tag("i", self(atom.relation)), "(", separated(", ", ends), ")", class_="atom")
