"""Similar entities with the same fact: the reasons that vectors can give for a score."""

import numpy as np
import torch

from plogicnet.graph import HEAD, RELATION, TAIL, IntArray, KnowledgeGraph, Side
from plogicnet.neural.protocol import Neighbour

NEIGHBOURS = 5
"""So many similar entities are named on either side."""


def neighbours(vectors: torch.Tensor, graph: KnowledgeGraph, triple: IntArray) -> tuple[Neighbour, ...]:
    """The entities most similar to the head (tail) that are known to have the same fact with the tail (head)."""
    found: list[Neighbour] = []
    sides: tuple[tuple[int, int, Side], ...] = ((HEAD, TAIL, "head"), (TAIL, HEAD, "tail"))
    for column, other, side in sides:
        own = int(triple[column])
        if own >= len(vectors):
            continue
        _, entities, _ = graph.observed_answers[side].lookup(triple[[other]], triple[[RELATION]])
        entities = entities[(entities != own) & (entities < len(vectors))]
        rows = vectors[torch.from_numpy(entities).to(vectors.device)]
        similarity = torch.cosine_similarity(rows, vectors[own][None, :]).cpu().numpy()
        for at in np.argsort(-similarity, kind="stable")[:NEIGHBOURS]:
            fact = triple.copy()
            fact[column] = entities[at]
            found.append(Neighbour(int(entities[at]), own, float(similarity[at]), fact))
    return tuple(found)
