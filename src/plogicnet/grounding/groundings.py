"""The ground network: the triples O ∪ H and all groundings, in memory or in a file."""

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
from plogicnet.grounding.rows import DistinctRows, MergedRows

BATCH_SIZE = 1 << 20
"""The number of groundings per record batch."""


@dataclass(frozen=True)
class GroundNetwork(ABC):
    """The result of `Engine.ground`. The variables are the triples of O ∪ H, the factors are the groundings.

    Attributes:
        triples: O ∪ H, the observed and the hidden triples.
        observed: whether each triple is in O.
        n_rules: the number of rules.
    """

    triples: TripleSet
    observed: BoolArray
    n_rules: int

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of groundings."""

    @abstractmethod
    def record_batches(self) -> pa.RecordBatchReader:
        """Return all groundings, sorted by hypothesis, rule and premises, with the columns of `grounding_schema`."""

    @abstractmethod
    def load(self) -> "InMemoryGroundNetwork":
        """Return the network in memory.

        mln.blanket=full, mln.hidden_premises=sampled and the selection of example groundings need it.
        """

    @property
    def hidden(self) -> IntArray:
        """H, the hidden triples."""
        return self.triples.triples[~self.observed]

    @cached_property
    def multisets(self) -> DistinctRows:
        """The distinct rule multisets.

        The rule multiset of a triple is its row of the triples × rules matrix. An entry is the number of groundings of
        the rule that conclude the triple.
        """
        return _collect_multisets(self.record_batches(), len(self.triples), self.n_rules)

    def merge(self, targets: FloatArray) -> MergedRows:
        """Return the distinct rule multisets, each with the number of its triples and the sum of their targets."""
        return self.multisets.merge(targets)

    @property
    def groundings_per_rule(self) -> IntArray:
        """The number of groundings of each rule."""
        merged = self.merge(np.zeros(len(self.triples)))
        return np.asarray(merged.matrix.T @ merged.count).astype(np.int64)


def grounding_schema(n_premises: int) -> pa.Schema:
    """Return the schema of `GroundNetwork.record_batches`, with one row per grounding.

    `rule` is the index of the rule. `hypothesis` is the row of the concluded triple in `triples`, and head, relation,
    tail are that triple. premise0, premise1, … are the rows of the premises in `triples`. If a grounding has the same
    triple as two premises, the triple is listed once. Unused columns are -1.

    Example:
        >>> grounding_schema(1).names
        ['rule', 'hypothesis', 'head', 'relation', 'tail', 'premise0']
    """
    names = ["rule", "hypothesis", "head", "relation", "tail", *(f"premise{i}" for i in range(n_premises))]
    return pa.schema([(name, pa.int64()) for name in names])


@dataclass(frozen=True)
class InMemoryGroundNetwork(GroundNetwork):
    """A ground network in arrays with one entry per grounding, in the order of the engine.

    Attributes:
        rule: the index of the rule.
        hypothesis: the row of the hypothesis in `triples`.
        premises: the rows of the premises in `triples`, with -1 for repeated premises and unused columns.
    """

    rule: IntArray
    hypothesis: IntArray
    premises: IntArray

    @property
    def size(self) -> int:
        """The number of groundings."""
        return len(self.rule)

    def load(self) -> "InMemoryGroundNetwork":
        """Return the network itself."""
        return self

    def groundings_of(self, row: int) -> IntArray:
        """Return the indices of the groundings that conclude the triple in this row."""
        return np.flatnonzero(self.hypothesis == row)

    @cached_property
    def multisets(self) -> DistinctRows:
        """The distinct rule multisets; see `GroundNetwork.multisets`."""
        return DistinctRows.of(_count_matrix(self.hypothesis, self.rule, len(self.triples), self.n_rules))

    @property
    def groundings_per_rule(self) -> IntArray:
        """The number of groundings of each rule."""
        return np.bincount(self.rule, minlength=self.n_rules)

    def record_batches(self) -> pa.RecordBatchReader:
        """Return all groundings, sorted; see `grounding_schema`."""
        schema = grounding_schema(self.premises.shape[1])
        order = np.lexsort((*self.premises.T[::-1], self.rule, self.hypothesis))

        def batches() -> Iterator[pa.RecordBatch]:
            for start in range(0, self.size, BATCH_SIZE):
                rows = order[start : start + BATCH_SIZE]
                hypothesis = self.hypothesis[rows]
                columns = [self.rule[rows], hypothesis, *self.triples.triples[hypothesis].T, *self.premises[rows].T]
                yield pa.record_batch([np.ascontiguousarray(c) for c in columns], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())

    @classmethod
    def concat(
        cls, networks: Sequence[tuple[list[int], "InMemoryGroundNetwork"]], observed: TripleSet
    ) -> "InMemoryGroundNetwork":
        """Merge the networks of several engines. The groundings are sorted by rule.

        Each item of `networks` is a pair: the indices of the network's rules among all rules, and the network.
        """
        keys = np.unique(np.concatenate([network.triples.keys for _, network in networks]))
        triples = TripleSet.of_keys(keys, observed.entities)
        width = max(network.premises.shape[1] for _, network in networks)
        columns = []
        for rule_indices, network in networks:
            # the appended -1 keeps the padding: premise -1 selects the last element
            rows = np.append(np.searchsorted(keys, network.triples.keys), -1)
            n_missing = width - network.premises.shape[1]
            premises = np.pad(rows[network.premises], ((0, 0), (0, n_missing)), constant_values=-1)
            columns.append((np.array(rule_indices, dtype=np.int64)[network.rule], rows[network.hypothesis], premises))
        rule, hypothesis, premises = (np.concatenate(column) for column in zip(*columns, strict=True))
        order = np.argsort(rule, kind="stable")
        is_observed, n_rules = observed.contains_keys(keys), sum(len(rule_indices) for rule_indices, _ in networks)
        return cls(triples, is_observed, n_rules, rule[order], hypothesis[order], premises[order])


@dataclass(frozen=True)
class StoredGroundNetwork(GroundNetwork):
    """A ground network with its groundings in a Parquet file. The file's directory is deleted with the object.

    Attributes:
        file: the sorted groundings, with the columns of `grounding_schema`.
    """

    file: Path

    def __post_init__(self) -> None:
        weakref.finalize(self, shutil.rmtree, self.file.parent, ignore_errors=True)

    @property
    def size(self) -> int:
        """The number of groundings."""
        return int(pq.read_metadata(self.file).num_rows)

    def record_batches(self) -> pa.RecordBatchReader:
        """Return all groundings, sorted; see `grounding_schema`."""
        stored = pq.ParquetFile(self.file)
        schema = grounding_schema(stored.metadata.num_columns - len(grounding_schema(0)))
        batches = (pa.record_batch(batch.columns, schema=schema) for batch in stored.iter_batches(BATCH_SIZE))
        return pa.RecordBatchReader.from_batches(schema, batches)

    def load(self) -> InMemoryGroundNetwork:
        """Return the network in memory, sorted by rule, hypothesis and premises."""
        table = self.record_batches().read_all()
        rule, hypothesis, _, _, _, *premises = (column.to_numpy() for column in table.columns)
        order = np.lexsort((*premises[::-1], hypothesis, rule))
        columns = (rule[order], hypothesis[order], np.column_stack(premises)[order])
        return InMemoryGroundNetwork(self.triples, self.observed, self.n_rules, *columns)


def _count_matrix(triple: IntArray, rule: IntArray, n_triples: int, n_rules: int) -> sparse.csr_array:
    """Return the triples × rules matrix with the number of occurrences of each pair (triple, rule)."""
    dtype = np.int32 if max(n_triples, n_rules, len(rule)) < 2**31 else np.int64  # int32 halves the memory
    pairs: Any = (triple.astype(dtype), rule.astype(dtype))
    return sparse.csr_array(sparse.coo_array((np.ones(len(rule)), pairs), (n_triples, n_rules)))


def _collect_multisets(batches: Iterable[pa.RecordBatch], n_triples: int, n_rules: int) -> DistinctRows:
    """Collect the distinct rule multisets of groundings sorted by hypothesis, one batch at a time."""
    row_of_triple, distinct = np.full(n_triples, -1, dtype=np.int64), DistinctRows.of(sparse.csr_array((0, n_rules)))
    for hypothesis, rule in _split_between_triples(batches):
        triple_rows, row = np.unique(hypothesis, return_inverse=True)
        n_known = distinct.matrix.shape[0]
        counts = _count_matrix(row, rule, len(triple_rows), n_rules)
        distinct = DistinctRows.of(sparse.csr_array(sparse.vstack([distinct.matrix, counts], format="csr")))
        row_of_triple[triple_rows] = distinct.row_of_triple[n_known:]
    return DistinctRows(distinct.matrix, distinct.base, row_of_triple)


def _split_between_triples(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield (hypotheses, rules) of consecutive groundings, in chunks that never split the groundings of a triple."""
    pending = np.empty((2, 0), dtype=np.int64)
    for batch in itertools.chain(batches, [None]):
        if batch is None:
            end = pending.shape[1]
        else:
            new = np.stack([batch.column(name).to_numpy() for name in ("hypothesis", "rule")])
            pending = np.concatenate([pending, new], axis=1)
            end = int(np.searchsorted(pending[0], pending[0, -1])) if pending.shape[1] else 0
        if end:
            yield pending[0, :end], pending[1, :end]
        pending = pending[:, end:]
