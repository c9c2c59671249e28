"""HTML that cannot be broken by what stands in it: every text becomes markup here, escaped, and nowhere else."""

import html
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from plogicnet.rules import Atom, Constant, Rule

EMPTY = frozenset(("meta", "br", "wbr"))
"""Elements without an end tag."""
LONGEST = 90
"""A longer name is cut; its beginning is enough to know it by."""
LONGEST_TITLE = 400
UNBROKEN = 16
"""A longer name may be broken at its separators."""
CONTROLS = dict.fromkeys({*range(0x20), *range(0x7F, 0xA0)} - set(b"\t\n"), "\N{REPLACEMENT CHARACTER}")


class Markup(str):
    """Text that is HTML already; every other text is escaped when it is put in a tag.

    Example:
        >>> tag("b", Markup("<i>"), "<i>")
        '<b><i>&lt;i&gt;</b>'
    """

    __slots__ = ()


Child = str | float | None | Iterable["Child"]
"""A text, a number, nothing, or any number of them."""


def tag(name: str, /, *children: Child, **attributes: object) -> Markup:
    """An element; attributes that are None are left out, and `class_` and `http_equiv` stand for class and http-equiv.

    Example:
        >>> tag("a", "R&D", href="#top", class_=None)
        '<a href="#top">R&amp;D</a>'
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_legible(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{shown}>" + ("" if name in EMPTY else f"{join(*children)}</{name}>"))


def join(*children: Child) -> Markup:
    """Children one after the other, escaped where they are no markup.

    Example:
        >>> join("a < b, ", [tag("br"), 3, None])
        'a &lt; b, <br>3'
    """
    parts: list[str] = []
    for child in children:
        if isinstance(child, Markup):
            parts.append(child)
        elif isinstance(child, str | int | float):
            parts.append(html.escape(_legible(str(child)), quote=False))
        elif child is not None:
            parts.append(join(*child))
    return Markup("".join(parts))


def separated(separator: Child, children: Iterable[Child]) -> Markup:
    """Children with a separator between them.

    Example:
        >>> separated(tag("br"), ["a", "<b"])
        'a<br>&lt;b'
    """
    return Markup(join(separator).join(join(child) for child in children))


def _legible(text: str) -> str:
    """The same without control characters, which HTML does not have, and lone surrogates, which no file has."""
    return text.translate(CONTROLS).encode("utf-8", "replace").decode("utf-8")


def shortened(text: str, most: int = LONGEST) -> str:
    """The text, or its beginning where it is longer.

    Example:
        >>> shortened("abcdef", 4)
        'abc…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def breakable(text: str) -> Markup:
    """The text with places at which a line may break, where it is long: names such as /people/person have no spaces.

    Example:
        >>> breakable("/people/person/nationality")
        '/<wbr>people/<wbr>person/<wbr>nationality'
    """
    return separated(tag("wbr"), re.split(r"(?<=[/._:#-])(?=\w)", text) if len(text) > UNBROKEN else [text])


@dataclass(frozen=True)
class Names:
    """How names are shown: under their labels, isolated (a name may run from right to left), and cut where too long.

    Attributes:
        labels: readable names of names.
        rules: the run's rules by their text, as explanations name them.

    Example:
        >>> Names({"Q1": "Anna"})("Q1")
        '<bdi title="Q1">Anna</bdi>'
        >>> Names().fact(["anna", "knows", "ben"]).count("bdi")
        6
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, Rule] = field(default_factory=dict)

    def __call__(self, name: str) -> Markup:
        """One name."""
        label = shortened(self.text(name))
        return tag("bdi", breakable(label), title=None if label == name else shortened(name, LONGEST_TITLE))

    def text(self, name: str) -> str:
        """One name's label, or itself."""
        return self.labels.get(name) or name

    def fact(self, triple: Iterable[str], asked: str = "") -> Markup:
        """A triple: head, relation, tail; the end that is asked for is left open."""
        head, relation, tail = triple
        ends = [tag("b", "?") if end == asked else self(name) for end, name in (("head", head), ("tail", tail))]
        between = tag("span", " ", tag("i", self(relation)), " ", class_="relation")
        return tag("span", ends[0], between, ends[1], class_="fact")

    def facts(self, triples: Iterable[Iterable[str]]) -> Markup:
        """Triples that hold together."""
        return separated(tag("span", " and ", class_="and"), map(self.fact, triples))

    def rule(self, text: str) -> Markup:
        """A rule of the run: premises, arrow, hypothesis."""
        rule = self.rules[text]
        body = separated(tag("span", " ∧ ", class_="and"), map(self._atom, rule.body))
        hypothesis = join("not " if rule.negated else "", self._atom(rule.head))
        return tag("span", body, tag("span", " ⇒ " if body else "⇒ ", class_="and"), hypothesis, class_="rule")

    def _atom(self, atom: Atom) -> Markup:
        ends = [self(end.name) if isinstance(end, Constant) else str(end) for end in (atom.head, atom.tail)]
        return tag("span", tag("i", self(atom.relation)), "(", separated(", ", ends), ")", class_="atom")
