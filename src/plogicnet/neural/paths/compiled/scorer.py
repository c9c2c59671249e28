"""The path model on a CPU: message passing among the entities that each query has reached."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding

from plogicnet.graph import BoolArray, IntArray
from plogicnet.neural.checkpoint import Tensors
from plogicnet.neural.paths.compiled import messages, reach, update
from plogicnet.neural.paths.edges import Edges, PathQueries
from plogicnet.neural.paths.network import LAYER_PARAMETERS, score_states

NO_SEED = -1


@dataclass(frozen=True)
class Messages:
    """The messages of a layer for a batch of queries, from rows of the layer before to rows of this one.

    A row is an entity that a query has reached; the rows of query q are first_row[q] … first_row[q + 1].

    Attributes:
        first_source_row: the first row of each query in the layer before.
        first_row: the first row of each query in this layer.
        start: the first message to each row.
        source_row: the row of each message's source.
        relation: the relation of each message.
        count: the number of messages to each row, with those that are zero, and the boundary.
        contribution: None, or an array for the product of each message and its gradient. The backward pass fills it.
        stay: None, or an array for the product of each old state and the gradient that does not pass through messages.
    """

    first_source_row: IntArray
    first_row: IntArray
    start: IntArray
    source_row: IntArray
    relation: IntArray
    count: IntArray
    contribution: NDArray[np.float32] | None = None
    stay: NDArray[np.float32] | None = None

    @property
    def arrays(self) -> tuple[IntArray, ...]:
        """The arrays that describe the messages to each row."""
        return self.first_row, self.start, self.source_row, self.relation, self.count


class Graph(NamedTuple):
    """The edges of a graph by destination; those to v are starts[v] … starts[v + 1]."""

    starts: IntArray
    source: NDArray[np.int32]
    relation: NDArray[np.int32]
    n_relations: int


class Tables(NamedTuple):
    """The members and positions of a batch of queries; see `reach`."""

    members: NDArray[np.int32]
    position: NDArray[np.int32]


@dataclass(frozen=True)
class Reach:
    """The entities that a batch of queries has reached, in one layer.

    Attributes:
        asked: known entity, relation, answer and inverse relation of each query.
        hide: the code of what is hidden; see `reach.HIDE_CODES`.
        tables: the members of each query.
        size: the number of members of each query before the layer.
        reached: the number of members after it.
    """

    asked: IntArray
    hide: int
    tables: Tables
    size: IntArray
    reached: IntArray

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The arguments that the functions of `reach` share."""
        return self.asked, self.hide, *self.tables, self.size, self.reached


@dataclass(frozen=True)
class Rows:
    """The entities that each query of a batch has reached after a layer, and their states.

    Attributes:
        first: the first row of each query, and the number of rows.
        entity: the entity of each row.
        states: the state of each row.
        messages: the messages of the layer; None before the first layer.
    """

    first: IntArray
    entity: IntArray
    states: Tensor
    messages: Messages | None = None

    @property
    def query(self) -> IntArray:
        """The query of each row."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))


class CompiledScorer:
    """A `Scorer` like a `LayerScorer` with a `PlainLayer`, in which only entities that a message has reached exist.

    With a frontier, at most `frontier` entities join in each layer. A call uses one thread, but several threads can
    call it at the same time.
    """

    def __init__(self, edges: Edges, frontier: int = 0) -> None:
        source, relation, destination = (x.numpy() for x in (edges.source, edges.relation, edges.destination))
        order = np.lexsort((relation, source, destination))
        starts = np.searchsorted(destination[order], np.arange(edges.n_entities + 1))
        self.graph = Graph(starts, source[order].astype(np.int32), relation[order].astype(np.int32), edges.n_relations)
        self.n_entities, self.n_relations, self.frontier = edges.n_entities, edges.n_relations, frontier
        self.spare_tables: SimpleQueue[Tables] = SimpleQueue()

    def without(self, facts: IntArray) -> "CompiledScorer":
        """Return a scorer whose graph does not have some facts."""
        starts, source, relation, n_relations = self.graph
        removed = np.zeros(len(source), dtype=bool)
        for head, kind, tail in facts:
            for u, r, v in ((head, kind, tail), (tail, kind + n_relations, head)):
                to_v = slice(starts[v], starts[v + 1])
                removed[to_v] |= (source[to_v] == u) & (relation[to_v] == r)
        less = copy(self)
        n_removed = np.concatenate([[0], np.cumsum(removed)])
        less.graph = Graph(starts - n_removed[starts], source[~removed], relation[~removed], n_relations)
        return less

    def __deepcopy__(self, memo: object) -> "CompiledScorer":
        return self  # only the tables change, and they are left as they were

    def __call__(self, parameters: Tensors, queries: PathQueries, mean_log_count: float) -> Tensor:
        """Return the scores, of shape (queries, entities).

        If a frontier has not reached the answer of a query, its scores have no gradients. Otherwise, training would
        raise the scores of all entities that are not reached.
        """
        *_, rows = self.layers(parameters, queries, mean_log_count)
        query = torch.from_numpy(rows.query)
        unreached = torch.zeros(len(queries), rows.states.shape[1])
        scores = score_states(parameters, unreached, queries.relation)[:, None].expand(-1, self.n_entities)
        reached = score_states(parameters, rows.states, queries.relation, query)
        scores = scores.index_put((query, torch.from_numpy(rows.entity)), reached)
        if not (self.frontier and torch.is_grad_enabled()):
            return scores
        is_answer = torch.from_numpy(rows.entity) == queries.answer[query]
        has_answer = torch.zeros(len(queries), dtype=torch.bool).index_fill(0, query[is_answer], True)
        return torch.where(has_answer[:, None], scores, scores.detach())

    def layers(
        self,
        parameters: Tensors,
        queries: PathQueries,
        mean_log_count: float,
        needed: BoolArray | None = None,
        explained: bool = False,
    ) -> Iterator[Rows]:
        """Yield the rows before the first layer and after each layer.

        Args:
            parameters: see `initial_parameters`.
            queries: the queries.
            mean_log_count: see `LayerInputs`.
            needed: a mask of shape (layers, entities). The states of other entities are not computed in a layer.
            explained: whether the backward pass computes contributions; see `Messages`.
        """
        n = len(queries)
        boundary = embedding(queries.relation, parameters["relation"])
        seeds = np.full(n, NO_SEED) if queries.seeds is None else queries.seeds.numpy()
        asked = torch.stack(
            [queries.known, queries.relation, queries.answer, queries.inverse(self.n_relations)], 1
        ).numpy()
        hide, one = reach.HIDE_CODES[queries.hide], np.ones(n, np.int64)
        rows = Rows(_offsets(one), asked[:, 0], boundary)
        yield rows
        with self._borrowed_tables(asked[:, 0], len(parameters["bias"])) as tables:
            state = Reach(asked, hide, tables, np.zeros(n, np.int64), one)
            by_layer = zip(*(parameters[name].unbind(0) for name in LAYER_PARAMETERS), strict=True)
            for i, (relation_map, relation_offset, *weights) in enumerate(by_layer):
                vector = (boundary @ relation_map).view(n, -1, boundary.shape[1]) + relation_offset
                before, gate = state.size, None
                state = replace(state, size=state.reached, reached=np.zeros(n, np.int64))
                if self.frontier:
                    noise = seeds if queries.seeds is None else seeds + i
                    gate = self._propose(state, rows, vector, parameters["priority"][i], noise)
                else:
                    reach.reach_all(self.graph, *state.arrays, before)
                found = self._messages(state, None if needed is None else needed[i], explained)
                states: Tensor = _CompiledLayer.apply(  # type: ignore[no-untyped-call]
                    rows.states, vector, boundary, *weights, found, mean_log_count
                )
                if gate is not None:
                    states = states * gate(found.first_row)
                entity = np.concatenate([tables.members[q, : state.reached[q]] for q in range(n)])
                rows = Rows(found.first_row, entity.astype(np.int64), states, found)
                yield rows

    def _propose(
        self, state: Reach, rows: Rows, vector: Tensor, priority: Tensor, seeds: IntArray
    ) -> Callable[[IntArray], Tensor] | None:
        """Add entities to the frontier. Return a function that gives the gate of each row if gradients are needed.

        A gate is 1, and its gradient is that of σ(priority), so that training learns the priorities (straight-through
        estimator).
        """
        n, vector, sent, weight = len(state.asked), vector.detach(), rows.states.detach(), priority.detach()
        n_columns = min(self.frontier, self.n_entities)
        via_row, via_relation = np.full((2, n, n_columns), -1)
        log_degree = np.zeros((n, n_columns), np.float32)
        reach.propose(
            *(self.graph, *state.arrays, rows.first, sent.numpy()),
            *((vector * weight[:-1]).numpy(), float(weight[-1])),
            *(self.frontier, seeds, via_row, via_relation, log_degree),
        )
        if not torch.is_grad_enabled():
            return None

        def gate(first_row: IntArray) -> Tensor:
            query, added = np.nonzero(via_row >= 0)
            row = first_row[query] + state.size[query] + added
            degree = torch.from_numpy(log_degree[query, added])
            message = sent[via_row[query, added]] * vector[query, via_relation[query, added]]
            value = torch.sigmoid(message @ priority[:-1] + priority[-1] * degree)
            ones = torch.ones(int(first_row[-1]), 1)
            return ones.index_add(0, torch.from_numpy(row), (value - value.detach())[:, None])

        return gate

    def _messages(self, state: Reach, needed: BoolArray | None, explained: bool) -> Messages:
        """List the messages to all rows."""
        first_source_row, first_row = _offsets(state.size), _offsets(state.reached)
        start = np.zeros(first_row[-1] + 1, np.int64)
        count = np.empty(first_row[-1], np.int64)
        where = (self.graph, *state.arrays, needed, first_source_row, first_row, start, count)
        nothing = np.empty(0, np.int32)
        reach.list_messages(*where, nothing, nothing)
        np.cumsum(start, out=start)
        source_row, relation = np.empty((2, start[-1]), np.int32)
        if start[-1]:
            reach.list_messages(*where, source_row, relation)
        gained = (
            [np.empty(len(source_row), np.float32), np.empty(first_source_row[-1], np.float32)] if explained else []
        )
        return Messages(first_source_row, first_row, start, source_row, relation, count, *gained)

    @contextmanager
    def _borrowed_tables(self, known: IntArray, layers: int) -> Iterator[Tables]:
        """Lend tables in which the only member of each query is its known entity.

        They are kept, since filling them takes long for large graphs. All positions are -1 before and after.
        """
        n, n_members = len(known), self.n_entities
        if self.frontier:
            n_members = min(n_members, 1 + layers * self.frontier)
        try:
            tables = self.spare_tables.get_nowait()
        except Empty:
            tables = Tables(np.empty((0, 0), np.int32), np.empty((0, 0), np.int32))
        if len(tables.members) < n or tables.members.shape[1] < n_members:
            tables = Tables(np.empty((n, n_members), np.int32), np.full((n, self.n_entities), -1, np.int32))
        tables.members[:n] = -1
        tables.members[:n, 0] = known
        tables.position[np.arange(n), known] = 0
        try:
            yield tables
        finally:
            reach.forget(*tables, n)
            self.spare_tables.put(tables)


def _offsets(sizes: IntArray) -> IntArray:
    return np.concatenate([[0], np.cumsum(sizes)])


class _CompiledLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, vector: Tensor, boundary: Tensor, *rest: Any) -> Tensor:
        """Reduce the messages, then update the states."""
        *weights, found, mean_log_count = rest
        state_map, statistics_map, bias, norm_scale, norm_shift = weights
        d, n_rows = boundary.shape[1], int(found.first_row[-1])
        lanes = (0,) * d
        statistics, normal, new = (torch.empty(n_rows, width) for width in (4 * d, d, d))
        position = np.empty((n_rows, 2, d), np.int32) if any(ctx.needs_input_grad) else None
        deviation = torch.empty(n_rows)
        x, w, b = (_array(t) for t in (states, vector, boundary))
        messages.reduce_messages(*found.arrays, x, w, b, _array(statistics), position, lanes)
        products = statistics @ statistics_map.transpose(0, 1).reshape(4 * d, 3 * d)
        inputs = (states, states @ state_map, products, statistics)
        update.update_states(
            *(found.first_row, found.first_source_row, *(_array(t) for t in inputs), found.count, mean_log_count),
            *(_array(t) for t in (bias, norm_scale, norm_shift, new, normal, deviation)),
            lanes,
        )
        ctx.save_for_backward(states, vector, boundary, *weights, statistics, normal, deviation)
        ctx.others = found, position, mean_log_count
        return new

    @staticmethod
    def backward(ctx: Any, d_new: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients in the opposite order."""
        states, vector, boundary, *weights, statistics, normal, deviation = ctx.saved_tensors
        state_map, statistics_map, _, norm_scale, norm_shift = weights
        found, position, mean_log_count = ctx.others
        (n, d), n_rows = boundary.shape, int(found.first_row[-1])
        lanes = (0,) * d
        d_states, d_mapped = torch.empty_like(states), torch.empty_like(states)
        d_products, d_norm = torch.empty(n_rows, 3 * d), torch.empty(n, 3, d)
        update.update_gradients(
            *(found.first_row, found.first_source_row, found.count, mean_log_count),
            *(_array(t) for t in (norm_scale, norm_shift, normal, deviation, d_new)),
            *(_array(t) for t in (d_states, d_mapped, d_products, d_norm)),
            lanes,
        )
        maps = statistics_map.transpose(0, 1).reshape(4 * d, 3 * d)
        d_statistics = d_products @ maps.T
        d_states += d_mapped @ state_map.T
        d_vector, d_boundary = torch.zeros_like(vector), torch.zeros_like(boundary)
        if found.stay is not None:
            found.stay[:] = (d_states * states).sum(1).numpy()
        messages.message_gradients(
            *(*found.arrays, *(_array(t) for t in (states, vector, boundary, statistics)), position),
            *(_array(t) for t in (d_statistics, d_states, d_vector, d_boundary)),
            found.contribution,
            lanes,
        )
        d_maps = (statistics.T @ d_products).view(4 * d, 3, d).transpose(0, 1)
        d_norm_scale, d_norm_shift, d_bias = d_norm.sum(0)
        d_weights = (states.T @ d_mapped, d_maps, d_bias, d_norm_scale, d_norm_shift)
        return (d_states, d_vector, d_boundary, *d_weights, None, None)


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()
