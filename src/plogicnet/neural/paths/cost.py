"""The estimated cost of training a path model, and the memory for scoring."""

from plogicnet.graph import KnowledgeGraph
from plogicnet.neural.paths.settings import PathSettings
from plogicnet.neural.protocol import Cost

PLAIN_COPIES = 14
"""Arrays of the size of all messages that the plain layer and its gradient have at the same time."""
STATE_COPIES = 12
"""Arrays of the size of all states that a layer has at the same time."""
FUSED_SAVED_BYTES, FUSED_BYTES = 14, 24
"""Bytes per state that the kernels keep for each layer, and that one layer needs: states and gradients in two bytes."""


def training_cost(graph: KnowledgeGraph, s: PathSettings, fused: bool, negatives: bool = False) -> Cost:
    """Estimate the cost of an E-step: the states of all layers and, without kernels, the messages of one layer.

    `negatives` tells whether there are explicit negatives.

    Example:
        >>> graph = KnowledgeGraph.from_names([("anna", "knows", "ben")])
        >>> small, large = (training_cost(graph, PathSettings(dim=dim), fused=False) for dim in (8, 800))
        >>> small.bytes < large.bytes
        True
    """
    n, n_edges, n_relations = len(graph.entities), 2 * len(graph.train), 2 * len(graph.relations)
    n_queries = 2 * max(1, s.batch // 2) * (1 + negatives)  # of both sides; at most as many negatives as positives
    size = n_queries * s.dim
    if fused:
        layers = n * size * (FUSED_SAVED_BYTES * s.layers + FUSED_BYTES)
    else:
        layers = 4 * size * (PLAIN_COPIES * n_edges + (s.layers + STATE_COPIES) * n)
    parameters = 8 * s.layers * n_relations * s.dim * (s.dim + n_queries)
    return Cost(
        steps=s.steps,
        bytes=layers + 4 * parameters,
        work=f"{n_queries:,} queries over {n_edges:,} edges, {s.layers} layers of {s.dim} dimensions",
        purpose=f"message passing over {n_edges:,} edges for {n_queries:,} queries",
        remedy="use a smaller neural.batch or neural.paths.dim" + ("" if fused else ", or a GPU"),
        positives=s.batch,
    )


def scoring_bytes(n_entities: int, n_edges: int, dim: int, fused: bool) -> int:
    """Return the memory for scoring one query against all entities.

    Example:
        >>> scoring_bytes(1_000, 10_000, 32, fused=True) < scoring_bytes(1_000, 10_000, 32, fused=False)
        True
    """
    if fused:  # two states, four statistics and the scoring layer in two bytes, and two positions
        return n_entities * (2 * dim * (2 + 4 + 2 + 2) + 16)
    return 4 * dim * (5 * n_edges + STATE_COPIES * n_entities)
