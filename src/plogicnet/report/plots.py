"""Plots as SVG. x is in percent and y in pixels, so that plots scale with the page and text keeps its size.

Markers, lines, bars and dots have a CSS class that sets their colour (see style.css). The class of pLogicNet* is
`star`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from plogicnet.report.markup import Child, Markup, tag, truncate

PLOT_HEIGHT, MARGIN_TOP, MARGIN_BOTTOM = 200, 10, 26
"""Height of the plot area and its margins in pixels; the bottom margin contains the tick labels."""
MARKER_PATHS = {
    "neural": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "rules": "M-4-4h8v8h-8z",
    "plogicnet": "M0-5l5 9h-10z",
    "star": "M0-6l6 6l-6 6l-6-6z",
}
"""The SVG path of each ranking's marker, by CSS class. The shapes differ, so that plots can be read without colour."""


@dataclass(frozen=True)
class Axis:
    """A map from data values to relative positions. `ticks` are (value, label) pairs.

    Example:
        >>> Axis.from_range(0, 10).position(5), [label for _, label in Axis.from_range(0, 1).ticks]
        (0.5, ['0', '0.2', '0.4', '0.6', '0.8', '1'])
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    label: str = ""

    @classmethod
    def from_range(cls, low: float, high: float, label: str = "", intervals: int = 5, percent: bool = False) -> "Axis":
        """Create an axis that covers [low, high], with about `intervals` intervals between round ticks.

        With `percent`, the label of 0.2 is 20%.
        """
        step = (high - low) / intervals or 1.0
        power = 10.0 ** math.floor(math.log10(step))
        step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= step * 0.999)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        values = [n * step for n in range(first, max(last, first + 1) + 1)]
        labels = [f"{100 * v:g}%" if percent else f"{v + 0.0:,.10g}" for v in (round(v, 10) for v in values)]
        return cls(values[0], values[-1], tuple(zip(values, labels, strict=True)), label)

    def position(self, value: float) -> float:
        """Return the relative position of a value: 0 at `low`, 1 at `high`."""
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Plot:
    """A plot with two axes; its methods return SVG elements at data coordinates.

    Example:
        >>> Plot(Axis.from_range(0, 1), Axis.from_range(0, 1)).marker("star", 0.5, 0.5)
        '<svg x="50.00%" y="110.0" class="mark star"><path d="M0-6l6 6l-6 6l-6-6z"></path></svg>'
    """

    x: Axis
    y: Axis
    height: int = PLOT_HEIGHT

    def marker(self, css_class: str, x: float, y: float, tooltip: str = "") -> Markup:
        """Return the marker of a ranking."""
        return marker(css_class, self._x(x), self._y(y), tooltip)

    def dot(self, css_class: str, x: float, y: float, radius: float, tooltip: str = "") -> Markup:
        """Return a circle with a radius in pixels."""
        return tag(
            "circle",
            _tooltip(tooltip),
            cx=self._x(x),
            cy=self._y(y),
            r=f"{radius:.1f}",
            class_=f"dot {css_class}",
        )

    def line(self, css_class: str, points: Sequence[tuple[float, float]]) -> list[Markup]:
        """Return line segments that connect the points in order."""
        return [
            tag(
                "line",
                x1=self._x(x1),
                y1=self._y(y1),
                x2=self._x(x2),
                y2=self._y(y2),
                class_=f"line {css_class}",
            )
            for (x1, y1), (x2, y2) in pairwise(points)
        ]

    def bar(self, css_class: str, left: float, right: float, y: float, tooltip: str = "") -> Markup:
        """Return a bar between `left` and `right` with its top at `y`.

        Its base is at y = 0, or at the bottom of the y axis if that is above 0.
        """
        top, bottom = float(self._y(y)), float(self._y(max(0.0, self.y.low)))
        width = f"{100 * (self.x.position(right) - self.x.position(left)):.2f}%"
        height = f"{max(bottom - top, 0.0):.1f}"
        return tag(
            "rect",
            _tooltip(tooltip),
            x=self._x(left),
            y=f"{top:.1f}",
            width=width,
            height=height,
            class_=f"bar {css_class}",
        )

    def text(self, x: float, y: float, text: str, offset: float = 6) -> Markup:
        """Return a centred text, `offset` pixels above the point."""
        return tag("text", text, x=self._x(x), y=f"{float(self._y(y)) - offset:.1f}", class_="middle")

    def figure(self, title: str, caption: Child, elements: Child, legend: Child = None) -> Markup:
        """Return a <figure> element with title, legend, axes, elements and caption."""
        bottom, total_height = MARGIN_TOP + self.height, MARGIN_TOP + self.height + MARGIN_BOTTOM
        y_labels = [
            tag("text", label, x=38, y=f"{float(self._y(v)) + 4:.1f}", class_="end") for v, label in self.y.ticks
        ]
        grid = [
            tag("line", x1="0%", x2="100%", y1=self._y(v), y2=self._y(v), class_="zero" if v == 0 else "grid")
            for v, _ in self.y.ticks
        ]
        x_labels = [tag("text", t, x=self._x(v), y=bottom + 18, class_="middle") for v, t in self.x.ticks]
        area = tag("svg", grid, elements, x_labels, class_="area", height=total_height, role="img", aria_label=title)
        y_axis = tag("svg", y_labels, class_="scale", height=total_height, aria_hidden="true")
        x_title = tag("div", self.x.label, class_="axis below")
        parts = (tag("div", self.y.label, class_="axis"), tag("div", y_axis, area, class_="plot"), x_title)
        return tag("figure", tag("h3", title), legend, parts, tag("figcaption", caption))

    def _x(self, value: float) -> str:
        """Return an x position in percent."""
        return f"{100 * self.x.position(value):.2f}%"

    def _y(self, value: float) -> str:
        """Return a y position in pixels."""
        return f"{MARGIN_TOP + (1 - self.y.position(value)) * self.height:.1f}"


def marker(css_class: str, x: str, y: str, tooltip: str = "") -> Markup:
    """Return the marker of a ranking at SVG coordinates.

    Example:
        >>> marker("rules", "0%", "8")
        '<svg x="0%" y="8" class="mark rules"><path d="M-4-4h8v8h-8z"></path></svg>'
    """
    return tag("svg", tag("path", _tooltip(tooltip), d=MARKER_PATHS[css_class]), x=x, y=y, class_=f"mark {css_class}")


def legend(entries: Sequence[tuple[str, str]], with_lines: bool = True) -> Markup:
    """Return a legend with the marker and name of each entry (css_class, name).

    Example:
        >>> legend([("star", "pLogicNet*")]).endswith("</svg></svg>pLogicNet*</span></div>")
        True
    """
    items = []
    for css_class, name in entries:
        line = tag("line", x1=0, x2=26, y1=8, y2=8, class_=f"line {css_class}") if with_lines else None
        swatch = tag("svg", line, marker(css_class, "13", "8"), width=26, height=16, aria_hidden="true")
        items.append(tag("span", swatch, name))
    return tag("div", items, class_="legend")


def strip_plot(values: Sequence[tuple[str, float, str]]) -> Markup:
    """Return markers on one line from 0 to 1. The items of `values` are (css_class, value, tooltip).

    Example:
        >>> '<svg x="25.00%" y="10" class="mark star">' in strip_plot([("star", 0.25, "MRR 0.250")])
        True
    """
    grid = [tag("line", x1=f"{x}%", x2=f"{x}%", y1=0, y2=20, class_="grid") for x in (0, 25, 50, 75, 100)]
    ends = [f"{100 * bound(v for _, v, _ in values):.2f}%" for bound in (min, max)]
    span = tag("line", x1=ends[0], x2=ends[1], y1=10, y2=10, class_="span")
    markers = [marker(css_class, f"{100 * value:.2f}%", "10", tooltip) for css_class, value, tooltip in values]
    label = "; ".join(tooltip for _, _, tooltip in values)
    return tag("svg", grid, span, markers, class_="strip", height=20, role="img", aria_label=label)


def strip_axis() -> Markup:
    """Return the axis labels of a column of strip plots.

    Example:
        >>> '<text x="50%" y="14" class="middle">0.5</text>' in strip_axis()
        True
    """
    labels = ((0, "0", "start"), (50, "0.5", "middle"), (100, "1", "end"))
    return tag(
        "svg",
        [tag("text", text, x=f"{x}%", y=14, class_=anchor) for x, text, anchor in labels],
        class_="strip",
        height=18,
    )


def meter(value: float, css_class: str = "star") -> Markup:
    """Return a small bar, filled up to `value` between 0 and 1.

    Example:
        >>> '<rect width="50.00%"' in meter(0.5)
        True
    """
    track = tag("rect", width="100%", height=8, rx=4, class_="track")
    fill = tag("rect", width=f"{100 * min(max(value, 0.0), 1.0):.2f}%", height=8, rx=4, class_=f"bar {css_class}")
    return tag("svg", track, fill, class_="meter", height=8, aria_hidden="true")


def _tooltip(text: str) -> Markup | None:
    return tag("title", truncate(text, 300)) if text else None
