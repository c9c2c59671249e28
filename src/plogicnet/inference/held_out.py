"""Which split holds a triple back from training."""

from dataclasses import dataclass

import numpy as np

from plogicnet.graph import IntArray, KnowledgeGraph, TripleSet

HELD_OUT = (None, "valid", "test")
"""The splits by number; 0: no split holds the triple out."""


@dataclass(frozen=True)
class HeldOut:
    """The facts of valid and of test that train does not hold.

    Example:
        >>> graph = KnowledgeGraph.from_names([("a", "r", "b")], [("a", "r", "b")], [("b", "r", "a")])
        >>> [HELD_OUT[number] for number in HeldOut.of(graph).numbers(np.concatenate([graph.train, graph.test]))]
        [None, 'test']
    """

    valid: TripleSet
    test: TripleSet

    @classmethod
    def of(cls, graph: KnowledgeGraph) -> "HeldOut":
        """Those of a graph."""
        kept = [split[~graph.observed.contains(split)] for split in (graph.valid, graph.test)]
        return cls(*(TripleSet.of(split, len(graph.entities)) for split in kept))

    def numbers(self, triples: IntArray) -> IntArray:
        """For each triple, the number in `HELD_OUT` of the split that holds it."""
        return np.select([self.valid.contains(triples), self.test.contains(triples)], [1, 2], 0)
