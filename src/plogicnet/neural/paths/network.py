"""The parameters of the path model, and its scores of all entities as answers of a batch of queries."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import embedding

from plogicnet.neural.checkpoint import Tensors
from plogicnet.neural.paths.edges import PathQueries
from plogicnet.neural.paths.layer import Layer, LayerInputs

UPDATE_PARAMETERS = ("state_map", "statistics_map", "bias", "norm_scale", "norm_shift")
LAYER_PARAMETERS = ("relation_map", "relation_offset", *UPDATE_PARAMETERS)
"""The parameters that each layer has its own values of. Their first axis is the layer."""


class Scorer(Protocol):
    """A function that scores all entities as answers of each query, as a tensor of shape (queries, entities)."""

    def __call__(self, parameters: Tensors, queries: PathQueries, mean_log_count: float) -> Tensor:
        """Return the scores. `mean_log_count` is the unit of the degree scale; see `LayerInputs`."""


@dataclass(frozen=True)
class LayerScorer:
    """A scorer that computes all entities in each layer.

    Attributes:
        layer: computes one round of message passing.
        n_entities: the number of entities.
        dtype: the type of the states.
        multiple: the number of queries must be a multiple of this for the layer.
    """

    layer: Layer
    n_entities: int
    dtype: torch.dtype = torch.float32
    multiple: int = 1

    def __call__(self, parameters: Tensors, queries: PathQueries, mean_log_count: float) -> Tensor:
        """Return the scores."""
        asked = queries.pad(self.multiple)
        scores = score_queries(parameters, self.layer, asked, self.n_entities, mean_log_count, self.dtype)
        return scores[: len(queries)]


def initial_parameters(
    n_relations: int, dim: int, layers: int, generator: torch.Generator, has_frontier: bool = False
) -> Tensors:
    """Draw parameters. No parameter belongs to an entity, so the model works for entities that it has not seen.

    With a frontier, `priority` has the factors of a message's entries and of the logarithm of the degree.

    Example:
        >>> parameters = initial_parameters(n_relations=3, dim=4, layers=2, generator=torch.Generator())
        >>> parameters["relation"].shape, parameters["relation_map"].shape
        (torch.Size([6, 4]), torch.Size([2, 4, 24]))
    """

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    def uniform(fan_in: int, *shape: int) -> Tensor:
        limit: float = fan_in**-0.5
        return torch.empty(shape).uniform_(-limit, limit, generator=generator)

    priority = {"priority": torch.zeros(layers, dim + 1)} if has_frontier else {}
    return priority | {
        "relation": normal(2 * n_relations, dim),
        "relation_map": normal(layers, dim, 2 * n_relations * dim) / (2 * dim**0.5),
        "relation_offset": normal(layers, 2 * n_relations, dim) / 2,
        "state_map": uniform(13 * dim, layers, dim, dim),
        "statistics_map": uniform(13 * dim, layers, 3, 4 * dim, dim),
        "bias": uniform(13 * dim, layers, dim),
        "norm_scale": torch.ones(layers, dim),
        "norm_shift": torch.zeros(layers, dim),
        "score_state": uniform(dim, dim, 2 * dim),
        "score_relation": uniform(dim, dim, 2 * dim),
        "score_bias": uniform(dim, 2 * dim),
        "score_map": uniform(2 * dim, 2 * dim),
    }


def score_queries(
    parameters: Tensors,
    layer: Layer,
    queries: PathQueries,
    n_entities: int,
    mean_log_count: float,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Score all entities as answers of each query, as a tensor of shape (queries, entities).

    The state of the known entity starts as the vector of the query's relation, and all others as zero.

    Args:
        parameters: see `initial_parameters`.
        layer: computes one round of message passing.
        queries: the queries.
        n_entities: the number of entities.
        mean_log_count: see `LayerInputs`.
        dtype: the type of the states.
    """
    boundary = embedding(queries.relation, parameters["relation"])
    b, d = boundary.shape
    column = torch.arange(b, device=boundary.device)
    states = torch.zeros(n_entities, b, d, dtype=dtype, device=boundary.device)
    states = states.index_put((queries.known, column), boundary.to(dtype))
    by_layer = zip(*(parameters[name].unbind(0) for name in LAYER_PARAMETERS), strict=True)
    is_first = True
    for relation_map, relation_offset, state_map, statistics_map, bias, norm_scale, norm_shift in by_layer:
        # a relation's factor depends on the relation that is asked for
        vector = (boundary @ relation_map).view(b, -1, d).transpose(0, 1) + relation_offset[:, None, :]
        update = (state_map, statistics_map, bias, norm_scale, norm_shift)
        states = layer(states, LayerInputs(boundary, vector, *update, mean_log_count, is_first), queries)
        is_first = False
    return score_states(parameters, states, queries.relation).T


def score_states(parameters: Tensors, states: Tensor, relations: Tensor, query: Tensor | None = None) -> Tensor:
    """Score final states, whose last axis is the dimension.

    `relations` are those of the queries, and `query` is the query of each state. Without it, the queries are the last
    axis but one of the states.
    """
    boundary, dtype = embedding(relations, parameters["relation"]), states.dtype
    asked = (boundary @ parameters["score_relation"] + parameters["score_bias"]).to(dtype)
    asked = asked if query is None else embedding(query, asked)
    combined = (states @ parameters["score_state"].to(dtype) + asked).relu()
    # candidates whose scores differ little would be tied in bfloat16
    return combined.to(boundary.dtype) @ parameters["score_map"]
