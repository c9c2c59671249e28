"""The table of chain shapes: what can be mined. Settings, the names of rules and all engines read it.

A mined rule is a chain of relations from the hypothesis's head to its tail. A pattern is a row of this table.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ChainShape:
    """One mined pattern. A chain has at most one shape.

    Attributes:
        name: the pattern in settings, tables and messages.
        steps: for each step, whether its relation is walked forwards.
        same: True: every step has the hypothesis's relation; False: not every step has it; None: either.
        min_precision: the default of rules.min_precision.
        meaning: the shape in words.
    """

    name: str
    steps: tuple[bool, ...]
    same: bool | None
    min_precision: float
    meaning: str

    def fits(self, steps: Sequence[bool], same: bool) -> bool:
        """Whether a chain with these steps has this shape; `same`: all of them have the hypothesis's relation."""
        return self.steps == tuple(steps) and self.same in (None, same)


CHAIN_SHAPES = (
    ChainShape("composition", (True, True), None, 0.6, "two steps forwards"),
    ChainShape("inverse", (False,), False, 0.1, "one step backwards, another relation"),
    ChainShape("symmetric", (False,), True, 0.1, "one step backwards, the same relation"),
    ChainShape("subrelation", (True,), False, 0.6, "one step forwards, another relation"),
)


def shapes_of(patterns: Sequence[str]) -> list[ChainShape]:
    """The shapes of these patterns, in their order.

    Example:
        >>> [shape.steps for shape in shapes_of(["inverse"])]
        [(False,)]
    """
    rows = {shape.name: shape for shape in CHAIN_SHAPES}
    return [rows[pattern] for pattern in patterns]
