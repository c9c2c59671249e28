"""The estimated cost of training a path model, and the memory for scoring."""

import torch

from plogicnet.graph import KnowledgeGraph
from plogicnet.neural.paths.backend import Backend
from plogicnet.neural.paths.settings import PathSettings
from plogicnet.neural.protocol import Cost

PLAIN_COPIES = 14
"""Arrays of the size of all messages that the plain layer and its gradient have at the same time."""
STATE_COPIES = 12
"""Arrays of the size of all states that a layer has at the same time."""
FUSED_SAVED_BYTES, FUSED_BYTES = 14, 24
"""Bytes per state that the kernels keep for each layer, and that one layer needs: states and gradients in two bytes."""
COMPILED_SAVED_BYTES, COMPILED_BYTES, MESSAGE_BYTES = 36, 60, 8
"""Bytes per state that compiled code keeps for each layer, and that one layer needs, and bytes per message."""
ENTITY_BYTES, MASK_BYTES = 40, 2
"""Bytes per entity and query: for positions, scores and their gradients while compiled code computes the query, and for
the masks of known answers."""
PARAMETER_COPIES, VECTOR_COPIES = 6, 3
"""Copies of all parameters: trained and averaged ones, two of the optimizer, and gradients. Each part of a batch has
gradients of its own. Copies of the vectors of relations, which each query has in each layer."""
PART_QUERIES = 8
"""The number of queries that compiled code computes at a time in each thread, so that their states fit in caches."""
FRONTIER_DEGREE = 4
"""A frontier prefers entities with many edges. Assumed ratio of their mean number of edges to that of all entities."""


def training_cost(graph: KnowledgeGraph, s: PathSettings, backend: Backend, negatives: bool = False) -> Cost:
    """Estimate the cost of an E-step: the states of all layers and, without kernels, the messages of one layer.

    `negatives` tells whether there are explicit negatives.

    Example:
        >>> graph = KnowledgeGraph.from_names([("anna", "knows", "ben")])
        >>> small, large = (training_cost(graph, PathSettings(dim=dim), "plain") for dim in (8, 800))
        >>> small.bytes < large.bytes
        True
    """
    n, n_edges, n_relations = len(graph.entities), 2 * len(graph.train), 2 * len(graph.relations)
    n_queries = 2 * max(1, s.batch // 2) * (1 + negatives)  # of both sides; at most as many negatives as positives
    computed, n_parts = n_queries, 1
    if backend == "compiled":
        computed = min(n_queries, PART_QUERIES * torch.get_num_threads())
        n_parts = -(-n_queries // PART_QUERIES)
    if backend == "fused":
        layers = n * n_queries * s.dim * (FUSED_SAVED_BYTES * s.layers + FUSED_BYTES)
    elif backend == "compiled":
        rows, messages = _reached(n, n_edges, s)
        states = rows * s.dim * (COMPILED_SAVED_BYTES * s.layers + COMPILED_BYTES)
        layers = (
            computed * (states + MESSAGE_BYTES * s.layers * messages + ENTITY_BYTES * n) + MASK_BYTES * n_queries * n
        )
    else:
        layers = 4 * n_queries * s.dim * (PLAIN_COPIES * n_edges + (s.layers + STATE_COPIES) * n)
    parameters = 4 * s.layers * n_relations * s.dim * s.dim  # most of them are the maps of relations
    vectors = 4 * s.layers * n_relations * s.dim * computed
    is_plain = backend == "plain"
    return Cost(
        steps=s.steps,
        bytes=layers + (PARAMETER_COPIES + n_parts) * parameters + VECTOR_COPIES * vectors,
        work=f"{n_queries:,} queries over {n_edges:,} edges, {s.layers} layers of {s.dim} dimensions",
        purpose=f"message passing over {n_edges:,} edges for {n_queries:,} queries",
        remedy="use a smaller neural.batch or neural.paths.dim"
        + (", or neural.kernels=auto" if is_plain else ", or neural.paths.frontier" if backend == "compiled" else ""),
        positives=s.batch,
    )


def scoring_bytes(n_entities: int, n_edges: int, s: PathSettings, backend: Backend) -> int:
    """Return the memory for scoring one query against all entities.

    Example:
        >>> fused, plain = (scoring_bytes(1_000, 10_000, PathSettings(), b) for b in ("fused", "plain"))
        >>> fused < plain
        True
    """
    if backend == "fused":  # two states, four statistics and the scoring layer in two bytes, and two positions
        return n_entities * (2 * s.dim * (2 + 4 + 2 + 2) + 16)
    if backend == "compiled":
        rows, messages = _reached(n_entities, n_edges, s)
        return rows * s.dim * COMPILED_BYTES + MESSAGE_BYTES * messages + 12 * n_entities
    return 4 * s.dim * (5 * n_edges + STATE_COPIES * n_entities)


def _reached(n_entities: int, n_edges: int, s: PathSettings) -> tuple[int, int]:
    """Return how many entities a query reaches, and the number of messages in a layer, at most or on average."""
    rows = min(n_entities, 1 + s.layers * s.frontier) if s.frontier else n_entities
    return rows, min(n_edges, FRONTIER_DEGREE * rows * n_edges // max(1, n_entities))
