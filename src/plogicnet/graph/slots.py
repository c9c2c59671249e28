"""Which relations probably apply to an entity, judged by the relations it has."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from plogicnet.graph.knowledge_graph import KnowledgeGraph
from plogicnet.graph.triples import HEAD, RELATION, TAIL, FloatArray, IntArray, Side

PRIOR = 2.0
"""Number of imaginary entities that behave like the average, added to each count so that small counts say little."""


@dataclass(frozen=True)
class Slots:
    """The slots of the entities. Slot r is to be head of relation r, slot R + r is to be tail of it.

    Attributes:
        filled: 1 for each entity (row) and slot that the entity fills, as a sparse matrix.
        together: the number of entities that fill both of two slots.
        again: for each slot, the share of its entities that fill it by several facts.
    """

    filled: sparse.csr_array
    together: sparse.csc_array
    again: FloatArray

    @classmethod
    def of(cls, graph: KnowledgeGraph) -> "Slots":
        """Return the slots of a graph's training triples."""
        n, m, train = len(graph.entities), len(graph.relations), graph.train
        entity = np.concatenate([train[:, HEAD], train[:, TAIL]])
        slot = np.concatenate([train[:, RELATION], train[:, RELATION] + m])
        counts = sparse.csr_array((np.ones(len(entity)), (entity, slot)), (n, 2 * m))
        counts.sum_duplicates()
        filled = sparse.csr_array((np.ones(counts.nnz), counts.indices, counts.indptr), counts.shape)
        several = np.bincount(counts.indices[counts.data > 1], minlength=2 * m)
        share = several.sum() / max(counts.nnz, 1)
        again = (several + PRIOR * share) / (np.bincount(counts.indices, minlength=2 * m) + PRIOR)
        return cls(filled, sparse.csc_array(filled.T @ filled), again)

    @property
    def n_relations(self) -> int:
        """The number of relations."""
        return self.filled.shape[1] // 2

    def evidence(self, relation: int, side: Side) -> FloatArray:
        """Estimate for each entity the probability that it has an unknown fact of a relation, as head or as tail.

        If the entity fills the slot, this is the share of such entities with several facts. Otherwise it is the largest
        share, over the slots that the entity fills, of entities that fill this slot too.

        Example:
            >>> rows = [("anna", "born_in", "ulm"), ("anna", "works_at", "uni"), ("ben", "works_at", "uni")]
            >>> slots = Slots.of(KnowledgeGraph.from_names(rows))
            >>> slots.evidence(0, "head").round(2)  # anna, ulm, uni, ben
            array([0.13, 0.  , 0.  , 0.38])
        """
        n, n_slots = self.filled.shape
        slot = relation if side == "head" else n_slots // 2 + relation
        size = self.together.diagonal()
        both = np.zeros(n_slots)
        column = slice(self.together.indptr[slot], self.together.indptr[slot + 1])
        both[self.together.indices[column]] = self.together.data[column]
        base = size[slot] / max(n, 1)
        share = np.where(both > 0, (both + PRIOR * base) / (size + PRIOR), 0.0)
        best = _largest(share[self.filled.indices], self.filled.indptr.astype(np.int64))
        best[self._entities(slot)] = self.again[slot]
        return best

    def evidence_of(self, entity: int) -> FloatArray:
        """Return the evidence of one entity for each slot; see `evidence`.

        Example:
            >>> rows = [("anna", "born_in", "ulm"), ("anna", "works_at", "uni"), ("ben", "works_at", "uni")]
            >>> slots = Slots.of(KnowledgeGraph.from_names(rows))
            >>> slots.evidence_of(3).round(2)  # ben, as head of both relations, then as tail
            array([0.38, 0.1 , 0.  , 0.  ])
        """
        n, size, best = self.filled.shape[0], self.together.diagonal(), np.zeros(self.filled.shape[1])
        own = self.filled.indices[self.filled.indptr[entity] : self.filled.indptr[entity + 1]]
        for slot in own.tolist():
            column = slice(self.together.indptr[slot], self.together.indptr[slot + 1])
            others, both = self.together.indices[column], self.together.data[column]
            share = (both + PRIOR * size[others] / n) / (size[slot] + PRIOR)
            best[others] = np.maximum(best[others], share)
        best[own] = self.again[own]
        return best

    def _entities(self, slot: int) -> IntArray:
        """Return the entities that fill a slot."""
        entity = np.repeat(np.arange(self.filled.shape[0]), np.diff(self.filled.indptr))
        return np.asarray(entity[self.filled.indices == slot])


def _largest(values: FloatArray, starts: IntArray) -> FloatArray:
    """Return the largest value of each row, 0 for a row without values.

    Example:
        >>> _largest(np.array([0.5, 0.25]), np.array([0, 0, 2]))
        array([0. , 0.5])
    """
    padded = np.append(values, 0.0)
    largest = np.maximum.reduceat(padded, starts[:-1]) if len(starts) > 1 else padded[:0]
    return np.where(np.diff(starts) > 0, largest, 0.0)
