"""Plots drawn as SVG: x in percent of the width and y in pixels, so that text keeps its size on a phone, on paper."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from plogicnet.report.markup import Child, Markup, shortened, tag

HEIGHT, ABOVE, BELOW = 200, 10, 26
"""Of the plotted area, and the room above it and below it for the ticks."""
SHAPES = {
    "neural": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "rules": "M-4-4h8v8h-8z",
    "plogicnet": "M0-5l5 9h-10z",
    "star": "M0-6l6 6l-6 6l-6-6z",
}
"""The mark of each system: colours alone do not print."""


@dataclass(frozen=True)
class Axis:
    """From values to places; ticks are values with their texts.

    Example:
        >>> Axis.of(0, 10).at(5), [text for _, text in Axis.of(0, 1).ticks]
        (0.5, ['0', '0.2', '0.4', '0.6', '0.8', '1'])
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    label: str = ""

    @classmethod
    def of(cls, low: float, high: float, label: str = "", steps: int = 5, percent: bool = False) -> "Axis":
        """An axis with round ticks that reaches at least from low to high."""
        size = (high - low) / steps or 1.0
        power = 10.0 ** math.floor(math.log10(size))
        size = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= size * 0.999)
        first, last = math.floor(low / size + 1e-9), math.ceil(high / size - 1e-9)
        values = [n * size for n in range(first, max(last, first + 1) + 1)]
        texts = [f"{100 * v:g} %" if percent else f"{v + 0.0:,.10g}" for v in (round(v, 10) for v in values)]
        return cls(values[0], values[-1], tuple(zip(values, texts, strict=True)), label)

    def at(self, value: float) -> float:
        """Where a value stands: 0 at the low end, 1 at the high."""
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Plane:
    """Two axes, and what can be drawn between them.

    Example:
        >>> Plane(Axis.of(0, 1), Axis.of(0, 1)).mark("star", 0.5, 0.5)
        '<svg x="50.00%" y="110.0" class="mark star"><path d="M0-6l6 6l-6 6l-6-6z"></path></svg>'
    """

    x: Axis
    y: Axis
    height: int = HEIGHT

    def mark(self, kind: str, x: float, y: float, title: str = "") -> Markup:
        """A system's mark."""
        return mark(kind, self._x(x), self._y(y), title)

    def dot(self, kind: str, x: float, y: float, radius: float, title: str = "") -> Markup:
        """A dot of any size."""
        return tag("circle", _title(title), cx=self._x(x), cy=self._y(y), r=f"{radius:.1f}", class_=f"dot {kind}")

    def line(self, kind: str, points: Sequence[tuple[float, float]]) -> list[Markup]:
        """A line through points."""
        return [
            tag("line", x1=self._x(a), y1=self._y(b), x2=self._x(c), y2=self._y(d), class_=f"line {kind}")
            for (a, b), (c, d) in pairwise(points)
        ]

    def bar(self, kind: str, left: float, right: float, y: float, title: str = "") -> Markup:
        """A bar that stands on the axis."""
        top, bottom = float(self._y(y)), float(self._y(max(0.0, self.y.low)))
        width = f"{100 * (self.x.at(right) - self.x.at(left)):.2f}%"
        height = f"{max(bottom - top, 0.0):.1f}"
        return tag(
            "rect", _title(title), x=self._x(left), y=f"{top:.1f}", width=width, height=height, class_=f"bar {kind}"
        )

    def text(self, x: float, y: float, text: str, above: float = 6) -> Markup:
        """A text above a place."""
        return tag("text", text, x=self._x(x), y=f"{float(self._y(y)) - above:.1f}", class_="middle")

    def figure(self, title: str, about: Child, marks: Child, legend: Child = None) -> Markup:
        """The whole: title, legend, axes, marks, and what is to be seen in it."""
        bottom, whole = ABOVE + self.height, ABOVE + self.height + BELOW
        scale = [tag("text", text, x=38, y=f"{float(self._y(v)) + 4:.1f}", class_="end") for v, text in self.y.ticks]
        grid = [
            tag("line", x1="0%", x2="100%", y1=self._y(v), y2=self._y(v), class_="zero" if v == 0 else "grid")
            for v, _ in self.y.ticks
        ]
        ticks = [tag("text", text, x=self._x(v), y=bottom + 18, class_="middle") for v, text in self.x.ticks]
        drawn = tag("svg", grid, marks, ticks, class_="area", height=whole, role="img", aria_label=title)
        axis = tag("svg", scale, class_="scale", height=whole, aria_hidden="true")
        below = tag("div", self.x.label, class_="axis below")
        parts = (tag("div", self.y.label, class_="axis"), tag("div", axis, drawn, class_="plot"), below)
        return tag("figure", tag("h3", title), legend, parts, tag("figcaption", about))

    def _x(self, value: float) -> str:
        return f"{100 * self.x.at(value):.2f}%"

    def _y(self, value: float) -> str:
        return f"{ABOVE + (1 - self.y.at(value)) * self.height:.1f}"


def mark(kind: str, x: str, y: str, title: str = "") -> Markup:
    """A system's mark at a place in percent and pixels.

    Example:
        >>> mark("rules", "0%", "8")
        '<svg x="0%" y="8" class="mark rules"><path d="M-4-4h8v8h-8z"></path></svg>'
    """
    return tag("svg", tag("path", _title(title), d=SHAPES[kind]), x=x, y=y, class_=f"mark {kind}")


def legend(kinds: Sequence[tuple[str, str]], lines: bool = True) -> Markup:
    """The marks with their names.

    Example:
        >>> legend([("star", "pLogicNet*")]).count("<svg")
        2
    """
    items = []
    for kind, name in kinds:
        stroke = tag("line", x1=0, x2=26, y1=8, y2=8, class_=f"line {kind}") if lines else None
        swatch = tag("svg", stroke, mark(kind, "13", "8"), width=26, height=16, aria_hidden="true")
        items.append(tag("span", swatch, name))
    return tag("div", items, class_="legend")


def strip(values: Sequence[tuple[str, float, str]]) -> Markup:
    """Marks on one line from 0 to 1: (kind, value, its title).

    Example:
        >>> strip([("star", 0.25, "MRR 0.25")]).count("25.00%")
        3
    """
    grid = [tag("line", x1=f"{at}%", x2=f"{at}%", y1=0, y2=20, class_="grid") for at in (0, 25, 50, 75, 100)]
    ends = [f"{100 * end(v for _, v, _ in values):.2f}%" for end in (min, max)]
    span = tag("line", x1=ends[0], x2=ends[1], y1=10, y2=10, class_="span")
    marks = [mark(kind, f"{100 * value:.2f}%", "10", title) for kind, value, title in values]
    label = "; ".join(title for _, _, title in values)
    return tag("svg", grid, span, marks, class_="strip", height=20, role="img", aria_label=label)


def strip_scale() -> Markup:
    """The numbers above a column of strips.

    Example:
        >>> strip_scale().count("<text")
        3
    """
    ends = ((0, "0", "start"), (50, "0.5", "middle"), (100, "1", "end"))
    return tag("svg", [tag("text", t, x=f"{at}%", y=14, class_=a) for at, t, a in ends], class_="strip", height=18)


def meter(value: float, kind: str = "star") -> Markup:
    """A share as a small bar.

    Example:
        >>> meter(0.5).count("<rect")
        2
    """
    whole = tag("rect", width="100%", height=8, rx=4, class_="track")
    part = tag("rect", width=f"{100 * min(max(value, 0.0), 1.0):.2f}%", height=8, rx=4, class_=f"bar {kind}")
    return tag("svg", whole, part, class_="meter", height=8, aria_hidden="true")


def _title(text: str) -> Markup | None:
    return tag("title", shortened(text, 300)) if text else None
