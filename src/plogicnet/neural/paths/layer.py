"""One round of message passing in plain PyTorch. It is the reference of the GPU kernels."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import embedding, layer_norm
from torch.utils.checkpoint import checkpoint

from plogicnet.neural.paths.edges import Edges, PathQueries

MIN_VARIANCE = 1e-6
"""Lower bound of the variance, below which its square root has no gradient."""
MIN_SCALE = 0.01
"""Lower bound of the degree scale as a divisor."""


@dataclass(frozen=True)
class LayerInputs:
    """What a layer needs besides the states.

    Attributes:
        boundary: (queries, dim), the first state of the known entity, which it receives as a message in every layer.
        relation_vector: (2 · relations, queries, dim), the factors of the messages.
        state_map: (dim, dim), maps the old state.
        statistics_map: (3, 4 · dim, dim), maps the statistics, and those multiplied and divided by the degree scale.
        bias: (dim,), the bias of both maps.
        norm_scale: (dim,), the scale of the layer norm.
        norm_shift: (dim,), the shift of the layer norm.
        mean_log_count: the unit of the degree scale; see `Edges.mean_log_count`.
        is_first: whether only the known entities have a state that is not zero. Then a layer can omit the gradients of
            the other states.
    """

    boundary: Tensor
    relation_vector: Tensor
    state_map: Tensor
    statistics_map: Tensor
    bias: Tensor
    norm_scale: Tensor
    norm_shift: Tensor
    mean_log_count: float
    is_first: bool = False


class Layer(Protocol):
    """A function that computes the states after a layer from those before it, of shape (entities, queries, dim)."""

    def __call__(self, states: Tensor, inputs: LayerInputs, queries: PathQueries) -> Tensor:
        """Return the new states."""


class PlainLayer:
    """The layer of the edges of a graph, by scatter operations.

    With x_v the state of v, q the query and u → v an edge of relation r, the messages to v are w_r(q) ⊙ x_u and, if v
    is the known entity, the boundary. With f_v the mean, maximum, minimum and standard deviation of the messages, D_v
    their number and s_v = log D_v / mean log D, the new state is

        x_v + ReLU(LayerNorm(A x_v + B f_v + s_v C f_v + D f_v / s_v + b))

    An entity whose messages are all zero keeps its state. So the state stays zero until a path from the known entity
    reaches the entity.

    Hidden edges send no message and are not counted. If they were counted, the model could recognise the answer by its
    missing message.
    """

    def __init__(self, edges: Edges) -> None:
        self.edges = edges

    def __call__(self, states: Tensor, inputs: LayerInputs, queries: PathQueries) -> Tensor:
        """Return the new states. The messages are computed again for the gradient, because they need much memory."""
        if torch.is_grad_enabled():
            arguments = (states, inputs, queries)
            new: Tensor = checkpoint(self._update, *arguments, use_reentrant=False, preserve_rng_state=False)
            return new
        return self._update(states, inputs, queries)

    def _update(self, states: Tensor, inputs: LayerInputs, queries: PathQueries) -> Tensor:
        statistics, count = self.statistics(states, inputs, queries)
        scale = (count.log() / inputs.mean_log_count)[:, :, None]
        plain, multiplied, divided = (statistics @ m for m in inputs.statistics_map)
        change = states @ inputs.state_map + plain + scale * multiplied + divided / scale.clamp_min(MIN_SCALE)
        width = (states.shape[-1],)
        change = layer_norm(change + inputs.bias, width, inputs.norm_scale, inputs.norm_shift).relu()
        _, largest, smallest, _ = statistics.chunk(4, -1)
        is_reached = ((largest != 0) | (smallest != 0)).any(-1, keepdim=True)
        return states + change * is_reached

    def statistics(self, states: Tensor, inputs: LayerInputs, queries: PathQueries) -> tuple[Tensor, Tensor]:
        """Return the statistics of the messages to each entity, (entities, queries, 4 · dim), and their number."""
        edges, (n, b, d) = self.edges, states.shape
        hidden = queries.hidden(edges)
        # unlike indexing, `embedding` sums gradients in the same order on any number of threads
        sent = embedding(edges.source, states.reshape(n, b * d)).view(-1, b, d)
        message = sent * embedding(edges.relation, inputs.relation_vector.reshape(-1, b * d)).view(-1, b, d)
        column = torch.arange(b, device=states.device)
        boundary = torch.zeros_like(states).index_put((queries.known, column), inputs.boundary)
        index = edges.destination[:, None, None].expand(-1, b, d)

        def reduce(values: Tensor, how: str, start: Tensor, hidden_value: float) -> Tensor:
            shown = values if queries.hide == "nothing" else values.masked_fill(hidden[:, :, None], hidden_value)
            return start.scatter_reduce(0, index, shown, how)

        count = self.count_messages(hidden).to(states.dtype)
        mean = reduce(message, "sum", boundary, 0.0) / count[:, :, None]
        mean_square = reduce(message * message, "sum", boundary * boundary, 0.0) / count[:, :, None]
        deviation = (mean_square - mean * mean).clamp_min(MIN_VARIANCE).sqrt()
        largest = reduce(message, "amax", boundary, -torch.inf)
        smallest = reduce(message, "amin", boundary, torch.inf)
        return torch.cat([mean, largest, smallest, deviation], -1), count

    def count_messages(self, hidden: Tensor) -> Tensor:
        """Return the number of messages to each entity, (entities, queries): the edges that are not hidden, and one."""
        one = torch.ones(self.edges.n_entities, hidden.shape[1], dtype=torch.int64, device=hidden.device)
        return one.index_add(0, self.edges.destination, (~hidden).to(torch.int64))
