"""Formatting of numbers."""

import math


def format_probability(p: float | None) -> str:
    """Return a probability with three decimals, "<0.001" or ">0.999" near 0 and 1, and "–" for None or NaN.

    Example:
        >>> [format_probability(p) for p in (0.9412, 0.0004, 0.0, 1.0, None)]
        ['0.941', '<0.001', '0.000', '>0.999', '–']
    """
    if p is None or math.isnan(p):
        return "–"
    if 0 < p < 0.0005:
        return "<0.001"
    return ">0.999" if p >= 0.9995 else f"{p:.3f}"
