"""Lookup of the held-out split (valid or test) that contains a triple."""

from dataclasses import dataclass

import numpy as np

from plogicnet.graph import IntArray, KnowledgeGraph, TripleSet

HELD_OUT = (None, "valid", "test")
"""The held-out split by code. Code 0 means that the triple is not held out."""


@dataclass(frozen=True)
class HeldOut:
    """The triples of valid and test that are not in train.

    Example:
        >>> graph = KnowledgeGraph.from_names([("a", "r", "b")], [("a", "r", "b")], [("b", "r", "a")])
        >>> [HELD_OUT[code] for code in HeldOut.of(graph).codes(np.concatenate([graph.train, graph.test]))]
        [None, 'test']
    """

    valid: TripleSet
    test: TripleSet

    @classmethod
    def of(cls, graph: KnowledgeGraph) -> "HeldOut":
        """Collect the held-out triples of a graph."""
        kept = [split[~graph.observed.contains(split)] for split in (graph.valid, graph.test)]
        return cls(*(TripleSet.of(split, len(graph.entities)) for split in kept))

    def codes(self, triples: IntArray) -> IntArray:
        """Return the code of each triple, an index into `HELD_OUT`."""
        return np.select([self.valid.contains(triples), self.test.contains(triples)], [1, 2], 0)
