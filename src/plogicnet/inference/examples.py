"""Examples of a rule: some of its groundings, with names."""

from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from plogicnet.graph import IntArray, KnowledgeGraph
from plogicnet.grounding.groundings import InMemoryGroundNetwork
from plogicnet.inference.held_out import HELD_OUT, HeldOut
from plogicnet.support.records import Record

NameTriple = tuple[str, str, str]
"""Names of head, relation and tail."""


@dataclass(frozen=True)
class Example(Record):
    """One grounding of a rule.

    Attributes:
        known: whether the hypothesis is a training triple.
        held_out: the split, valid or test, that contains the hypothesis; None if neither does.
    """

    hypothesis: NameTriple
    premises: tuple[NameTriple, ...]
    known: bool
    held_out: str | None


def examples_of(
    graph: KnowledgeGraph, groundings: InMemoryGroundNetwork, rule: int, max_examples: int, held_out: HeldOut
) -> list[Example]:
    """Return groundings of the rule with index `rule` that have only observed premises.

    The groundings are evenly spaced among all groundings of the rule. Known and new (unobserved) hypotheses alternate.
    """
    rows = np.flatnonzero(groundings.rule == rule)
    observed = np.append(groundings.observed, True)  # premise -1 is padding
    rows = rows[observed[groundings.premises[rows]].all(axis=1)]
    known = groundings.observed[groundings.hypothesis[rows]]
    max_new = max(max_examples - int(known.sum()), (max_examples + 1) // 2)
    new_and_known = [
        _evenly_spaced(rows[~known], max_new),
        _evenly_spaced(rows[known], max_examples - min(max_new, int((~known).sum()))),
    ]
    triples, names = groundings.triples.triples, graph.names
    examples = []
    for row in [row for pair in zip_longest(*new_and_known) for row in pair if row is not None]:
        premise_rows, hypothesis = groundings.premises[row], groundings.hypothesis[row]
        concluded, premises = triples[hypothesis], tuple(names(t) for t in triples[premise_rows[premise_rows >= 0]])
        split = HELD_OUT[held_out.codes(concluded[None, :])[0]]
        examples.append(Example(names(concluded), premises, bool(groundings.observed[hypothesis]), split))
    return examples


def _evenly_spaced(rows: IntArray, max_rows: int) -> list[int]:
    """Return at most `max_rows` of the rows, evenly spaced.

    Example:
        >>> _evenly_spaced(np.arange(12), 6), _evenly_spaced(np.arange(2), 6)
        ([0, 2, 4, 6, 8, 10], [0, 1])
    """
    count = min(len(rows), max_rows)
    return [int(rows[i * len(rows) // count]) for i in range(count)]
