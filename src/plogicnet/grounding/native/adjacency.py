"""The facts as edges that can be followed in both directions, for walks from entity to entity."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from plogicnet.graph import HEAD, RELATION, TAIL, IntArray, TripleSet
from plogicnet.support.compiling import compiled

MAX_GROUPS = 1 << 26
"""The largest number of pairs of an entity and a step whose edges are found in a table instead of by search."""
Ids = Any
"""An array of int32 ids in compiled code."""


class Edges(NamedTuple):
    """Both directions of each fact, as arrays with one entry per edge.

    A step is a relation r followed from head to tail, or r + `n_relations` for r followed from tail to head.

    Attributes:
        begin: the first edge of each entity, and the end of the last.
        step: the step of each edge. The edges of an entity are sorted by step, then by target.
        target: the entity to which each edge leads.
        fact: the row of each edge's fact.
        near_begin, near_target, near_step, near_fact: the same edges, with those of an entity sorted by target.
        step_begin: the first edge of each step, and the end of the last.
        step_source: the entity at which each edge begins, sorted by step.
        step_target, step_fact: the target and the fact of these edges.
        group_begin: the first edge of each pair of an entity and a step, and the end of the last, if there are at most
            MAX_GROUPS pairs; otherwise empty.
    """

    begin: Ids
    step: Ids
    target: Ids
    fact: Ids
    near_target: Ids
    near_step: Ids
    near_fact: Ids
    step_begin: Ids
    step_source: Ids
    step_target: Ids
    step_fact: Ids
    group_begin: Ids


@dataclass(frozen=True)
class Adjacency:
    """A graph's edges, with the numbers of entities and relations.

    Example:
        >>> adjacency = Adjacency.of(TripleSet.of([(0, 0, 1)], entities=2), n_relations=1)
        >>> adjacency.edges.step.tolist(), adjacency.edges.target.tolist()
        ([0, 1], [1, 0])
    """

    edges: Edges
    facts: TripleSet
    n_entities: int
    n_relations: int

    @classmethod
    def of(cls, facts: TripleSet, n_relations: int) -> "Adjacency":
        """Create the adjacency of a set of facts."""
        triples, n = facts.triples, facts.entities
        source = np.concatenate([triples[:, HEAD], triples[:, TAIL]])
        step = np.concatenate([triples[:, RELATION], triples[:, RELATION] + n_relations])
        target = np.concatenate([triples[:, TAIL], triples[:, HEAD]])
        fact = np.tile(np.arange(len(triples)), 2)

        def ids(column: IntArray, order: IntArray) -> Ids:
            return column[order].astype(np.int32)

        by_step = np.lexsort((target, step, source))
        by_target = np.lexsort((step, target, source))
        of_step = np.lexsort((target, source, step))
        edges = Edges(
            begin=np.searchsorted(source[by_step], np.arange(n + 1)),
            step=ids(step, by_step),
            target=ids(target, by_step),
            fact=ids(fact, by_step),
            near_target=ids(target, by_target),
            near_step=ids(step, by_target),
            near_fact=ids(fact, by_target),
            step_begin=np.searchsorted(step[of_step], np.arange(2 * n_relations + 1)),
            step_source=ids(source, of_step),
            step_target=ids(target, of_step),
            step_fact=ids(fact, of_step),
            group_begin=_group_begin(source * 2 * n_relations + step, n * 2 * n_relations),
        )
        return cls(edges, facts, n, n_relations)

    @property
    def n_steps(self) -> int:
        """The number of steps: each relation in both directions."""
        return 2 * self.n_relations

    @property
    def degree(self) -> IntArray:
        """The number of edges of each entity."""
        return np.asarray(np.diff(self.edges.begin))

    def inverse(self, step: int) -> int:
        """Return the same relation followed in the other direction."""
        return step - self.n_relations if step >= self.n_relations else step + self.n_relations


def _group_begin(groups: IntArray, n_groups: int) -> Ids:
    """Return the first edge of each group and the end of the last, or an empty array if there are too many groups."""
    if n_groups > MAX_GROUPS:
        return np.empty(0, dtype=np.int32)
    return np.append(0, np.cumsum(np.bincount(groups, minlength=n_groups))).astype(np.int32)


@compiled()
def lower_bound(values, low, high, value):  # type: ignore[no-untyped-def]
    """Return the first position from `low` to `high` of a sorted slice whose value is not less than `value`."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@compiled()
def edges_of(edges, entity, step):  # type: ignore[no-untyped-def]
    """Return the first edge of an entity's edges with this step, and their end."""
    if len(edges.group_begin):
        group = np.int64(entity) * (len(edges.step_begin) - 1) + step
        return np.int64(edges.group_begin[group]), np.int64(edges.group_begin[group + 1])
    low = lower_bound(edges.step, edges.begin[entity], edges.begin[entity + 1], step)
    return low, lower_bound(edges.step, low, edges.begin[entity + 1], step + 1)
