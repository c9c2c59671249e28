"""What training vectors takes, known before any is made."""

import torch

from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.neural.protocol import Cost
from plogicnet.neural.vectors.models import make_geometry
from plogicnet.neural.vectors.settings import VectorSettings

EXAMPLE_BYTES = 100
"""What a triple takes that is learned from: with its weight, and among the known ones that negatives are held to."""


def training_cost(graph: KnowledgeGraph, config: Config, s: VectorSettings) -> Cost:
    """About what an E-step takes on a CPU: vectors, gradients and the optimizer's state, and a batch.

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
    copies = 7 + bool(s.validate_every) + bool(config.em.patience)  # the tables, and gradients as large as they
    if s.recipe == "sampled":
        sets, compared = -(-s.batch // s.share_negatives), s.negatives
        batch = 10 * s.batch * s.negatives + 4 * sets * s.negatives * width + 12 * s.batch * width
    else:
        compared, batch = n, 5 * s.batch * n
    return Cost(
        steps=s.steps,
        bytes=4 * (copies * vectors + batch) + EXAMPLE_BYTES * len(graph.train),
        work=f"{s.batch:,} × {compared:,} comparisons in {s.dim} dimensions",
        what=f"training vectors of {s.dim} dimensions for {n:,} entities",
        remedy="take a smaller neural.vectors.dim or neural.batch",
        positives=s.batch,
    )
