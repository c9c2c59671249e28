"""A strict HTML parser for tests: unclosed elements and duplicate attributes are errors."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br", "wbr"}


@dataclass
class Element:
    name: str
    attributes: dict[str, str | None]
    children: "list[Element | str]" = field(default_factory=list)

    def all(self, name: str, class_: str | None = None) -> "list[Element]":
        """Return all elements with a name, in document order."""
        inner = [child for child in self.children if isinstance(child, Element)]
        found = [self] if self.name == name and class_ in (None, self.attributes.get("class")) else []
        return found + [e for child in inner for e in child.all(name, class_)]

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def section(self, anchor: str) -> "Element":
        return next(e for e in self.all("section") if e.attributes.get("id") == anchor)

    def rows(self) -> list[list[str]]:
        """Return the texts of the cells in the table body."""
        return [[cell.text for cell in row.all("td")] for row in self.all("tbody")[0].all("tr")]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Element("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        assert len(element.attributes) == len(attrs), f"{tag} has a duplicate attribute"
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].name == tag, f"</{tag}> closes {self.open[-1].name}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read(page: str) -> Element:
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert len(reader.open) == 1, f"{reader.open[-1].name} is not closed"
    return reader.open[0]


def descendants(element: Element) -> list[Element]:
    inner = [child for child in element.children if isinstance(child, Element)]
    return [*inner, *(e for child in inner for e in descendants(child))]
