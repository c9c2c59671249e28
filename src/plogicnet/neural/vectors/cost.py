"""The estimated cost of training a vector model."""

import torch

from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.neural.protocol import Cost
from plogicnet.neural.vectors.models import make_geometry
from plogicnet.neural.vectors.settings import VectorSettings

EXAMPLE_BYTES = 100
"""Memory per training triple: the triple, its weight, and the keys for filtering negatives."""


def training_cost(graph: KnowledgeGraph, config: Config, s: VectorSettings) -> Cost:
    """Estimate the cost of an E-step on a CPU: vectors, gradients, optimizer state and one batch.

    Example:
        >>> graph = KnowledgeGraph.from_names([("anna", "knows", "ben")])
        >>> small, large = (training_cost(graph, Config(), VectorSettings(dim=dim)) for dim in (200, 20_000))
        >>> small.bytes < large.bytes
        True
    """
    n = len(graph.entities)
    geometry = make_geometry(s, torch.device("cpu"))
    width, relation_width = geometry.widths
    vectors = n * width + len(graph.relations) * relation_width * (1 + geometry.reciprocal)
    copies = 7 + bool(s.validate_every) + bool(config.em.patience)  # tables, gradients and optimizer state
    if s.recipe == "sampled":
        n_chunks, compared_with = -(-s.batch // s.share_negatives), f"{s.negatives:,} negatives each"
        batch = 10 * s.batch * s.negatives + 4 * n_chunks * s.negatives * width + 12 * s.batch * width
    else:
        compared_with, batch = f"all {n:,} entities as candidates", 5 * s.batch * n
    return Cost(
        steps=s.steps,
        bytes=4 * (copies * vectors + batch) + EXAMPLE_BYTES * len(graph.train),
        work=f"{s.batch:,} triples with {compared_with}, in {s.dim} dimensions",
        purpose=f"training vectors of {s.dim} dimensions for {n:,} entities",
        remedy="use a smaller neural.vectors.dim or neural.batch",
        positives=s.batch,
    )
