"""The edges along which messages travel, and the queries from which some of them are hidden."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from plogicnet.graph import HEAD, RELATION, TAIL, Hide, IntArray


@dataclass(frozen=True)
class Edges:
    """The facts of a graph and their inverses as directed edges, sorted by destination.

    The inverse of relation r has the number r + n_relations.

    Attributes:
        source: the entity that sends a message.
        relation: the relation.
        destination: the entity that receives the message.
        n_entities: the number of entities.
        n_relations: the number of relations, without inverses.

    Example:
        >>> edges = Edges.of(np.array([[0, 0, 1]]), n_entities=2, n_relations=1, device=torch.device("cpu"))
        >>> torch.stack([edges.source, edges.relation, edges.destination], 1).tolist()
        [[1, 1, 0], [0, 0, 1]]
    """

    source: Tensor
    relation: Tensor
    destination: Tensor
    n_entities: int
    n_relations: int

    @classmethod
    def of(cls, triples: IntArray, n_entities: int, n_relations: int, device: torch.device) -> "Edges":
        """Create the edges of some triples."""
        head, kind, tail = triples[:, HEAD], triples[:, RELATION], triples[:, TAIL]
        both = np.stack([np.r_[head, tail], np.r_[kind, kind + n_relations], np.r_[tail, head]])
        # PyTorch's scatter operations are ten times as fast with a contiguous index
        source, relation, destination = torch.from_numpy(np.ascontiguousarray(both[:, np.lexsort(both)])).to(device)
        return cls(source, relation, destination, n_entities, n_relations)

    def on(self, device: torch.device) -> "Edges":
        """Return the edges on a device."""
        source, relation, destination = (x.to(device) for x in (self.source, self.relation, self.destination))
        return Edges(source, relation, destination, self.n_entities, self.n_relations)

    def __len__(self) -> int:
        return len(self.source)

    def __deepcopy__(self, memo: object) -> "Edges":
        return self  # immutable

    @cached_property
    def degree(self) -> Tensor:
        """The number of edges to each entity."""
        return torch.bincount(self.destination, minlength=self.n_entities)

    @property
    def mean_log_count(self) -> float:
        """The mean over all entities of the logarithm of the number of messages, which are the edges and the boundary.

        It is positive if the graph has an edge.
        """
        return float(torch.log1p(self.degree.double()).mean())


@dataclass(frozen=True)
class PathQueries:
    """A batch of queries (known, relation, ?), with the answers whose edges are hidden.

    A query for the head of (h, r, t) is (t, inverse of r, ?).

    Attributes:
        known: the known entity of each query.
        relation: the relation or inverse relation.
        answer: the answer. It does not matter if nothing is hidden.
        hide: what is hidden.
        seeds: the seed of each query's noise in a frontier, in training; None: no noise.
    """

    known: Tensor
    relation: Tensor
    answer: Tensor
    hide: Hide = "nothing"
    seeds: Tensor | None = None

    def __len__(self) -> int:
        return len(self.known)

    def pad(self, multiple: int) -> "PathQueries":
        """Repeat the first query until the number of queries is a multiple of a number."""
        columns = (self.known, self.relation, self.answer)
        known, relation, answer = (torch.cat([x, x[:1].expand(-len(x) % multiple)]) for x in columns)
        return PathQueries(known, relation, answer, self.hide)

    def split(self, size: int) -> list["PathQueries"]:
        """Split queries without seeds into parts of at most `size` queries."""
        slices = [slice(first, first + size) for first in range(0, len(self), size)]
        return [PathQueries(self.known[s], self.relation[s], self.answer[s], self.hide) for s in slices]

    def inverse(self, n_relations: int) -> Tensor:
        """Return the inverse of each query's relation."""
        return (self.relation + n_relations) % (2 * n_relations)

    def hidden(self, edges: Edges) -> Tensor:
        """Return a mask of shape (edges, queries) of the hidden edges. All copies of an edge are hidden."""
        source, relation, destination = (x[:, None] for x in (edges.source, edges.relation, edges.destination))
        if self.hide == "nothing":
            return torch.zeros(len(edges), len(self), dtype=torch.bool, device=source.device)
        forward = (source == self.known) & (destination == self.answer)
        backward = (source == self.answer) & (destination == self.known)
        if self.hide == "edge":
            forward &= relation == self.relation
            backward &= relation == self.inverse(edges.n_relations)
        return forward | backward
