"""Plots: ticks enclose the data, markers have the right positions, and all text is escaped."""

import string

from hypothesis import given
from hypothesis import strategies as st
from reading import read

from plogicnet.report.markup import NameFormatter, join, tag
from plogicnet.report.plots import Axis, Plot

numbers = st.floats(-1e6, 1e6).map(lambda x: round(x, 6))


@given(numbers, numbers)
def test_ticks_enclose_the_values(a: float, b: float) -> None:
    low, high = sorted((a, b))
    axis = Axis.from_range(low, high)
    values = [value for value, _ in axis.ticks]
    slack = 1e-6 * max(1.0, abs(low), abs(high))
    assert axis.low <= low + slack
    assert high <= axis.high + slack
    assert 2 <= len(values) <= 12
    assert values == sorted(set(values))
    assert len({text for _, text in axis.ticks}) == len(values)
    assert -1e-6 <= axis.position(low) <= axis.position(high) <= 1 + 1e-6


@given(st.floats(0, 1), st.floats(0, 1))
def test_dots_have_the_positions_of_their_values(x: float, y: float) -> None:
    plot = Plot(Axis.from_range(0, 1), Axis.from_range(0, 1), height=100)
    (dot,) = read(plot.dot("star", x, y, 3)).all("circle")
    assert float((dot.attributes["cx"] or "").rstrip("%")) == round(100 * x, 2)
    assert abs(float(dot.attributes["cy"] or "") - (110 - 100 * y)) <= 0.051


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=80))
def test_text_is_preserved(text: str) -> None:
    element = read(tag("p", text, title=text)).all("p")[0]
    assert element.text == text
    assert element.attributes["title"] == text
    assert read(NameFormatter()(text)).text == text
    assert read(join(text)).text == text


@given(st.text(max_size=30), st.text(string.printable, min_size=1, max_size=30))
def test_no_text_becomes_an_element(name: str, label: str) -> None:
    page = read(NameFormatter({name: label}).fact([name, name, name]))
    assert {e.name for e in page.all("span")} == {"span"}
    assert len(page.all("bdi")) == 3
    tag("p", name).encode("utf-8")  # lone surrogates can be written
