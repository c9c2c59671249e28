"""Numbers as text."""

import math

import pytest

from plogicnet.support.numbers import format_probability


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (0.0, "0.000"),
        (0.000499, "<0.001"),
        (0.0005, "0.001"),
        (0.5, "0.500"),
        (0.94149, "0.941"),
        (0.9994, "0.999"),
        (0.9996, ">0.999"),
        (1.0, ">0.999"),
        (None, "–"),
        (math.nan, "–"),
    ],
)
def test_a_probability_has_three_decimals(p: float | None, text: str) -> None:
    assert format_probability(p) == text


def test_no_probability_is_rounded_to_zero_or_one() -> None:
    shown = {format_probability(i / 100_000) for i in range(1, 100_001)}
    assert not shown & {"0.000", "1.000"}
