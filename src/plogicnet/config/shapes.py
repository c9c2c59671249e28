"""The table of the patterns of mined rules, which settings, rules and engines use.

The premises of a mined rule form a chain: they lead step by step from the head of the hypothesis to its tail.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ChainShape:
    """A pattern of mined rules. A chain matches at most one shape.

    Attributes:
        name: the name of the pattern in settings, tables and messages.
        forward: for each step, True if its relation is followed from head to tail, False if from tail to head.
        repeats_hypothesis: True if all steps have the relation of the hypothesis, False if at least one has another
            relation, None if both are allowed.
        min_precision: the default of the pattern's setting in rules.min_precision.
        description: the description of that setting.
    """

    name: str
    forward: tuple[bool, ...]
    repeats_hypothesis: bool | None
    min_precision: float
    description: str

    def matches(self, forward: Sequence[bool], repeats_hypothesis: bool) -> bool:
        """Return whether a chain with these properties, defined as for the attributes, has this shape."""
        return self.forward == tuple(forward) and self.repeats_hypothesis in (None, repeats_hypothesis)


NEGATIVE_PATTERNS = ("functional", "disjoint")
"""The patterns of mined rules with a negated hypothesis."""
CHAIN_SHAPES = (
    ChainShape("composition", (True, True), None, 0.6, "a(X, Y) & b(Y, Z) => c(X, Z)"),
    ChainShape("inverse", (False,), False, 0.1, "a(X, Y) => b(Y, X), where a is not b"),
    ChainShape("symmetric", (False,), True, 0.1, "a(X, Y) => a(Y, X)"),
    ChainShape("subrelation", (True,), False, 0.6, "a(X, Y) => b(X, Y), where a is not b"),
)


def shapes_of(patterns: Sequence[str]) -> list[ChainShape]:
    """Return the shapes of the named patterns, in the given order.

    Example:
        >>> [shape.forward for shape in shapes_of(["inverse"])]
        [(False,)]
    """
    shapes = {shape.name: shape for shape in CHAIN_SHAPES}
    return [shapes[pattern] for pattern in patterns]
