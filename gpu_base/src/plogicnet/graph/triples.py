"""Sets of triples as integer arrays of shape (n, 3), and the sorted-array indexes over them."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from plogicnet.errors import InputError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Side = Literal["head", "tail"]
"""Which end of a triple is asked for: (?, r, t) is side "head", (h, r, ?) is side "tail"."""

HEAD, RELATION, TAIL = 0, 1, 2
OPEN = -1
"""Stands in a query for the part that is asked for."""


def as_triples(rows: object) -> IntArray:
    """Any rows of three numbers as an (n, 3) array.

    Example:
        >>> as_triples([(0, 0, 1)]).shape
        (1, 3)
    """
    return np.asarray(rows, dtype=np.int64).reshape(-1, 3)


def expand_ranges(starts: IntArray, stops: IntArray) -> tuple[IntArray, IntArray]:
    """All positions of many half-open ranges, each with the number of its range.

    Example:
        >>> expand_ranges(np.array([5, 0]), np.array([7, 1]))
        (array([0, 0, 1]), array([5, 6, 0]))
    """
    lengths = stops - starts
    owners = np.repeat(np.arange(len(starts)), lengths)
    first = np.cumsum(lengths) - lengths
    return owners, np.arange(len(owners)) - first[owners] + starts[owners]


@dataclass(frozen=True)
class TripleSet:
    """A set of triples, sorted by (relation, head, tail), in which membership is a binary search.

    Example:
        >>> facts = TripleSet.of([(0, 0, 1), (1, 0, 2), (0, 0, 1)], entities=3)
        >>> len(facts), facts.contains(as_triples([(1, 0, 2), (2, 0, 1)]))
        (2, array([ True, False]))
    """

    triples: IntArray
    keys: IntArray
    entities: int

    @classmethod
    def of(cls, rows: object, entities: int) -> "TripleSet":
        """The distinct triples among the rows."""
        triples = as_triples(rows)
        keys, first = np.unique(triple_keys(triples, entities), return_index=True)
        return cls(triples[first], keys, entities)

    @classmethod
    def of_keys(cls, keys: IntArray, entities: int) -> "TripleSet":
        """The set with these sorted, distinct keys."""
        relation, pair = np.divmod(keys, entities**2)
        return cls(np.stack([pair // entities, relation, pair % entities], axis=1), keys, entities)

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, triples: IntArray) -> IntArray:
        """The row of each triple in this set, -1 where it is not in it."""
        if not len(self.keys):
            return np.full(len(triples), -1, dtype=np.int64)
        wanted = triple_keys(triples, self.entities)
        rows = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[rows] == wanted, rows, -1)

    def contains(self, triples: IntArray) -> BoolArray:
        """Which of the triples are in this set."""
        return self.find(triples) >= 0

    def contains_keys(self, keys: IntArray) -> BoolArray:
        """Which of the triples with these keys are in this set."""
        at = np.minimum(np.searchsorted(self.keys, keys), max(len(self.keys) - 1, 0))
        return np.asarray(self.keys[at] == keys) if len(self.keys) else np.zeros(len(keys), dtype=bool)


@dataclass(frozen=True)
class Answers:
    """The answers of every query (entity, relation) on one side, as ranges of one sorted array.

    Example:
        >>> tails = Answers.of(as_triples([(0, 0, 1), (0, 0, 2), (1, 0, 2)]), entities=3, side="tail")
        >>> tails.lookup(np.array([1, 0]), np.array([0, 0]))
        (array([0, 1, 1]), array([2, 1, 2]), array([2, 0, 1]))
    """

    keys: IntArray
    answers: IntArray
    rows: IntArray
    entities: int

    @classmethod
    def of(cls, triples: IntArray, entities: int, side: Side) -> "Answers":
        """Sorts the triples by (relation, known entity, answer)."""
        known, asked = (HEAD, TAIL) if side == "tail" else (TAIL, HEAD)
        rows = np.lexsort((triples[:, asked], triples[:, known], triples[:, RELATION]))
        ordered = triples[rows]
        return cls(ordered[:, RELATION] * entities + ordered[:, known], ordered[:, asked], rows, entities)

    def lookup(self, known: IntArray, relations: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """For many queries at once: the query's number, the answer, and the triple's row, one entry per answer."""
        wanted = np.asarray(relations) * self.entities + known
        starts = np.searchsorted(self.keys, wanted, "left")
        owners, at = expand_ranges(starts, np.searchsorted(self.keys, wanted, "right"))
        return owners, self.answers[at], self.rows[at]


def triple_keys(triples: IntArray, entities: int) -> IntArray:
    """One number per triple, which sorts by (relation, head, tail).

    Example:
        >>> triple_keys(as_triples([(1, 0, 2)]), entities=3)
        array([5])
    """
    highest = int(triples[:, RELATION].max(initial=0)) + 1
    if highest * entities**2 >= 2**63:
        raise InputError(f"{highest:,} relations over {entities:,} entities are more than 64-bit keys can tell apart")
    keys: IntArray = (triples[:, RELATION] * entities + triples[:, HEAD]) * entities + triples[:, TAIL]
    return keys
