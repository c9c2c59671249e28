"""Triples of ids as arrays of shape (n, 3), and sorted indexes of triples.

In this module, the argument `entities` is the number of entities.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from plogicnet.support.errors import InputError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Side = Literal["head", "tail"]
"""The missing part of a query: (?, r, t) has side "head", (h, r, ?) has side "tail"."""
SIDES: tuple[Side, Side] = ("head", "tail")
"""Both sides, in the order of the columns of a triple."""

HEAD, RELATION, TAIL = 0, 1, 2
"""The columns of an array of triples."""
MISSING = -1
"""The id of the missing part of a query."""


def as_triples(rows: object) -> IntArray:
    """Convert rows of three integers to an (n, 3) array.

    Example:
        >>> as_triples([(0, 0, 1)]).shape
        (1, 3)
    """
    return np.asarray(rows, dtype=np.int64).reshape(-1, 3)


def expand_ranges(starts: IntArray, stops: IntArray) -> tuple[IntArray, IntArray]:
    """Concatenate half-open ranges. Return two arrays with one entry per element: its range's index, and the element.

    Example:
        >>> expand_ranges(np.array([5, 0]), np.array([7, 1]))
        (array([0, 0, 1]), array([5, 6, 0]))
    """
    lengths = stops - starts
    range_index = np.repeat(np.arange(len(starts)), lengths)
    n_before = np.cumsum(lengths) - lengths
    return range_index, np.arange(len(range_index)) - n_before[range_index] + starts[range_index]


@dataclass(frozen=True)
class TripleSet:
    """A set of triples sorted by (relation, head, tail), with lookup by binary search.

    Attributes:
        triples: the triples.
        keys: the keys of the triples; see `triple_keys`.
        entities: the number of entities.

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
        """Create a set from rows, which can contain duplicates."""
        triples = as_triples(rows)
        keys, first = np.unique(triple_keys(triples, entities), return_index=True)
        return cls(triples[first], keys, entities)

    @classmethod
    def of_keys(cls, keys: IntArray, entities: int) -> "TripleSet":
        """Create a set from sorted, distinct keys; see `triple_keys`."""
        relation, pair = np.divmod(keys, entities**2)
        return cls(np.stack([pair // entities, relation, pair % entities], axis=1), keys, entities)

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, triples: IntArray) -> IntArray:
        """Return the row of each triple in this set, or -1 if it is not in the set."""
        if not len(self.keys):
            return np.full(len(triples), -1, dtype=np.int64)
        keys = triple_keys(triples, self.entities)
        rows = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[rows] == keys, rows, -1)

    def contains(self, triples: IntArray) -> BoolArray:
        """Return whether each triple is in this set."""
        return self.find(triples) >= 0

    def contains_keys(self, keys: IntArray) -> BoolArray:
        """Return whether each key is in this set."""
        rows = np.minimum(np.searchsorted(self.keys, keys), max(len(self.keys) - 1, 0))
        return np.asarray(self.keys[rows] == keys) if len(self.keys) else np.zeros(len(keys), dtype=bool)


@dataclass(frozen=True)
class AnswerIndex:
    """An index from queries (known entity, relation) of one side to their answers.

    Attributes:
        keys: the sorted keys relation · entities + known entity. Equal keys are the answers of one query.
        answers: the answer at each position of `keys`.
        rows: the row of the indexed triple at each position of `keys`.
        entities: the number of entities.

    Example:
        >>> tails = AnswerIndex.of(as_triples([(0, 0, 1), (0, 0, 2), (1, 0, 2)]), entities=3, side="tail")
        >>> tails.lookup(np.array([1, 0]), np.array([0, 0]))
        (array([0, 1, 1]), array([2, 1, 2]), array([2, 0, 1]))
    """

    keys: IntArray
    answers: IntArray
    rows: IntArray
    entities: int

    @classmethod
    def of(cls, triples: IntArray, entities: int, side: Side) -> "AnswerIndex":
        """Create an index by sorting the triples by (relation, known entity, answer)."""
        known, answer = (HEAD, TAIL) if side == "tail" else (TAIL, HEAD)
        rows = np.lexsort((triples[:, answer], triples[:, known], triples[:, RELATION]))
        ordered = triples[rows]
        return cls(ordered[:, RELATION] * entities + ordered[:, known], ordered[:, answer], rows, entities)

    def lookup(self, known: IntArray, relations: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return three arrays with one entry per answer: index of the query, answer, row of the triple."""
        keys = np.asarray(relations) * self.entities + known
        starts = np.searchsorted(self.keys, keys, "left")
        query_index, positions = expand_ranges(starts, np.searchsorted(self.keys, keys, "right"))
        return query_index, self.answers[positions], self.rows[positions]


def triple_keys(triples: IntArray, entities: int) -> IntArray:
    """Return the key of each triple, an integer. Sorting by key sorts by (relation, head, tail).

    Example:
        >>> triple_keys(as_triples([(1, 0, 2)]), entities=3)
        array([5])
    """
    n_relations = int(triples[:, RELATION].max(initial=0)) + 1
    if n_relations * entities**2 >= 2**63:
        raise InputError(f"{n_relations:,} relations and {entities:,} entities do not fit into 64-bit keys")
    keys: IntArray = (triples[:, RELATION] * entities + triples[:, HEAD]) * entities + triples[:, TAIL]
    return keys
