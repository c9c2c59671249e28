"""The ground network: O ∪ H, and every grounding; as arrays in memory, or as links that may be larger than it."""

import itertools
import shutil
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from plogicnet.graph import BoolArray, FloatArray, IntArray, TripleSet
from plogicnet.grounding.rows import Merged, Rows

AT_ONCE = 1 << 20
"""The number of groundings in one batch."""


@dataclass(frozen=True)
class Grounded(ABC):
    """What an engine's `ground` returns. Variables are the triples of O ∪ H, factors are groundings over them.

    Attributes:
        triples: O ∪ H.
        observed: for each of them, whether it is in O.
        rules: the number of rules.
    """

    triples: TripleSet
    observed: BoolArray
    rules: int

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of groundings."""

    @abstractmethod
    def links(self) -> pa.RecordBatchReader:
        """Every grounding, ordered by hypothesis, rule and premises; see `link_schema`."""

    @abstractmethod
    def arrays(self) -> "Groundings":
        """The unmerged form in memory; the full blanket, sampled premises and examples need it."""

    @property
    def hidden(self) -> IntArray:
        """H, the hidden triples."""
        return self.triples.triples[~self.observed]

    @cached_property
    def multisets(self) -> Rows:
        """For each triple, how often each rule concludes it: the distinct rule multisets."""
        return _multisets(self.links(), len(self.triples), self.rules)

    def merged(self, targets: FloatArray) -> Merged:
        """For each distinct rule multiset, the number of triples that have it and the sum of their targets."""
        return self.multisets.merged(targets)

    @property
    def rule_counts(self) -> IntArray:
        """The number of groundings of each rule."""
        merged = self.merged(np.zeros(len(self.triples)))
        return np.asarray(merged.matrix.T @ merged.count).astype(np.int64)


def link_schema(premises: int) -> pa.Schema:
    """The columns of links: rule, the row of the hypothesis in `triples` and its triple, the rows of the premises.

    Each premise is given once; -1 fills the rest.

    Example:
        >>> link_schema(1).names
        ['rule', 'hypothesis', 'head', 'relation', 'tail', 'premise0']
    """
    names = ["rule", "hypothesis", "head", "relation", "tail", *(f"premise{i}" for i in range(premises))]
    return pa.schema([(name, pa.int64()) for name in names])


@dataclass(frozen=True)
class Groundings(Grounded):
    """The ground network in arrays, in the order in which the engine found the groundings.

    Attributes:
        rule: for each grounding, its rule's number.
        hypothesis: for each grounding, the row of its hypothesis in `triples`.
        premises: for each grounding, the rows of its premises, each once; -1 fills the rest.
    """

    rule: IntArray
    hypothesis: IntArray
    premises: IntArray

    @property
    def size(self) -> int:
        """The number of groundings."""
        return len(self.rule)

    def arrays(self) -> "Groundings":
        """Itself."""
        return self

    def of(self, row: int) -> IntArray:
        """The numbers of the groundings that conclude one triple."""
        return np.flatnonzero(self.hypothesis == row)

    @cached_property
    def multisets(self) -> Rows:
        """For each triple, how often each rule concludes it: the distinct rule multisets."""
        return Rows.of(_counted(self.hypothesis, self.rule, len(self.triples), self.rules))

    @property
    def rule_counts(self) -> IntArray:
        """The number of groundings of each rule."""
        return np.bincount(self.rule, minlength=self.rules)

    def links(self) -> pa.RecordBatchReader:
        """Every grounding, ordered by hypothesis, rule and premises."""
        schema = link_schema(self.premises.shape[1])
        order = np.lexsort((*self.premises.T[::-1], self.rule, self.hypothesis))

        def batches() -> Iterator[pa.RecordBatch]:
            for at in range(0, self.size, AT_ONCE):
                rows = order[at : at + AT_ONCE]
                hypothesis = self.hypothesis[rows]
                columns = [self.rule[rows], hypothesis, *self.triples.triples[hypothesis].T, *self.premises[rows].T]
                yield pa.record_batch([np.ascontiguousarray(c) for c in columns], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())

    @classmethod
    def joined(cls, parts: Sequence[tuple[list[int], "Groundings"]], observed: TripleSet) -> "Groundings":
        """The groundings of several engines over all their triples, in the order of rules, with the rules' numbers."""
        keys = np.unique(np.concatenate([part.triples.keys for _, part in parts]))
        triples = TripleSet.of_keys(keys, observed.entities)
        width = max(part.premises.shape[1] for _, part in parts)
        columns = []
        for numbers, part in parts:
            rows = np.append(np.searchsorted(keys, part.triples.keys), -1)  # the padding stays -1
            missing = width - part.premises.shape[1]
            premises = np.pad(rows[part.premises], ((0, 0), (0, missing)), constant_values=-1)
            columns.append((np.array(numbers, dtype=np.int64)[part.rule], rows[part.hypothesis], premises))
        rule, hypothesis, premises = (np.concatenate(column) for column in zip(*columns, strict=True))
        order = np.argsort(rule, kind="stable")
        is_observed, rules = observed.contains_keys(keys), sum(len(numbers) for numbers, _ in parts)
        return cls(triples, is_observed, rules, rule[order], hypothesis[order], premises[order])


@dataclass(frozen=True)
class StoredGroundings(Grounded):
    """The ground network with its links in a Parquet file, in a folder of its own that goes with this object.

    Attributes:
        file: the links, with the columns of `link_schema` in its order.
    """

    file: Path

    def __post_init__(self) -> None:
        weakref.finalize(self, shutil.rmtree, self.file.parent, ignore_errors=True)

    @property
    def size(self) -> int:
        """The number of groundings."""
        return int(pq.read_metadata(self.file).num_rows)

    def links(self) -> pa.RecordBatchReader:
        """Every grounding, ordered by hypothesis, rule and premises."""
        stored = pq.ParquetFile(self.file)
        schema = link_schema(stored.metadata.num_columns - len(link_schema(0)))
        batches = (pa.record_batch(batch.columns, schema=schema) for batch in stored.iter_batches(AT_ONCE))
        return pa.RecordBatchReader.from_batches(schema, batches)

    def arrays(self) -> Groundings:
        """The unmerged form in memory, ordered by rule, hypothesis and premises."""
        found = self.links().read_all()
        rule, hypothesis, _, _, _, *premises = (column.to_numpy() for column in found.columns)
        order = np.lexsort((*premises[::-1], hypothesis, rule))
        columns = (rule[order], hypothesis[order], np.column_stack(premises)[order])
        return Groundings(self.triples, self.observed, self.rules, *columns)


def _counted(triple: IntArray, rule: IntArray, triples: int, rules: int) -> sparse.csr_array:
    """Triples × rules: how often each pair occurs."""
    small = np.int32 if max(triples, rules, len(rule)) < 2**31 else np.int64  # half the memory where it fits
    pairs: Any = (triple.astype(small), rule.astype(small))
    return sparse.csr_array(sparse.coo_array((np.ones(len(rule)), pairs), (triples, rules)))


def _multisets(links: Iterable[pa.RecordBatch], triples: int, rules: int) -> Rows:
    """The distinct rule multisets by links that are ordered by hypothesis; a batch is held at a time."""
    number, found = np.full(triples, -1, dtype=np.int64), Rows.of(sparse.csr_array((0, rules)))
    for hypothesis, rule in _whole_triples(links):
        own, row = np.unique(hypothesis, return_inverse=True)
        known = found.matrix.shape[0]
        counted = _counted(row, rule, len(own), rules)
        found = Rows.of(sparse.csr_array(sparse.vstack([found.matrix, counted], format="csr")))
        number[own] = found.number[known:]
    return Rows(found.matrix, found.base, number)


def _whole_triples(links: Iterable[pa.RecordBatch]) -> Iterator[tuple[IntArray, IntArray]]:
    """Hypotheses and rules in pieces that end where a triple's links end."""
    waiting = np.empty((2, 0), dtype=np.int64)
    for batch in itertools.chain(links, [None]):
        if batch is None:
            end = waiting.shape[1]
        else:
            new = np.stack([batch.column(name).to_numpy() for name in ("hypothesis", "rule")])
            waiting = np.concatenate([waiting, new], axis=1)
            end = int(np.searchsorted(waiting[0], waiting[0, -1])) if waiting.shape[1] else 0
        if end:
            yield waiting[0, :end], waiting[1, :end]
        waiting = waiting[:, end:]
