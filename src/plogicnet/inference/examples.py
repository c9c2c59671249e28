"""Examples of a rule: some of its groundings, in names."""

from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from plogicnet.graph import IntArray, KnowledgeGraph
from plogicnet.grounding.groundings import Groundings
from plogicnet.inference.held_out import HELD_OUT, HeldOut
from plogicnet.support.records import Record

Names = tuple[str, str, str]
"""Head, relation, tail."""


@dataclass(frozen=True)
class Example(Record):
    """One grounding of a rule.

    Attributes:
        known: whether the hypothesis is a training triple.
        held_out: the split that holds the hypothesis back from training.
    """

    hypothesis: Names
    premises: tuple[Names, ...]
    known: bool
    held_out: str | None


def examples_of(
    graph: KnowledgeGraph, groundings: Groundings, rule: int, most: int, held_out: HeldOut
) -> list[Example]:
    """Groundings of a rule with observed premises, new and known hypotheses in turn, evenly spread over all of them."""
    own = np.flatnonzero(groundings.rule == rule)
    observed = np.append(groundings.observed, True)  # row -1, the padding
    own = own[observed[groundings.premises[own]].all(axis=1)]
    known = groundings.observed[groundings.hypothesis[own]]
    of_new = max(most - int(known.sum()), (most + 1) // 2)
    kinds = [_spread(own[~known], of_new), _spread(own[known], most - min(of_new, int((~known).sum())))]
    triples, names = groundings.triples.triples, graph.names
    found = []
    for row in [row for pair in zip_longest(*kinds) for row in pair if row is not None]:
        rows, hypothesis = groundings.premises[row], groundings.hypothesis[row]
        concluded, premises = triples[hypothesis], tuple(names(t) for t in triples[rows[rows >= 0]])
        split = HELD_OUT[held_out.numbers(concluded[None, :])[0]]
        found.append(Example(names(concluded), premises, bool(groundings.observed[hypothesis]), split))
    return found


def _spread(rows: IntArray, most: int) -> list[int]:
    """A few of the rows, evenly spread.

    Example:
        >>> _spread(np.arange(12), 6), _spread(np.arange(2), 6)
        ([0, 2, 4, 6, 8, 10], [0, 1])
    """
    count = min(len(rows), most)
    return [int(rows[i * len(rows) // count]) for i in range(count)]
