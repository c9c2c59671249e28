"""Similar entities that have the same fact, as reasons for a vector model's score."""

import numpy as np
import torch

from plogicnet.graph import HEAD, RELATION, TAIL, IntArray, KnowledgeGraph, Side
from plogicnet.neural.protocol import Neighbour

NEIGHBOURS = 5
"""Maximum number of similar entities per side."""


def neighbours(vectors: torch.Tensor, graph: KnowledgeGraph, triple: IntArray) -> tuple[Neighbour, ...]:
    """Return similar entities that have the same known fact as the triple, most similar first.

    For the head, these are entities e with a known fact (e, r, tail). For the tail, entities with (head, r, e).
    """
    result: list[Neighbour] = []
    sides: tuple[tuple[int, int, Side], ...] = ((HEAD, TAIL, "head"), (TAIL, HEAD, "tail"))
    for column, other, side in sides:
        entity = int(triple[column])
        if entity >= len(vectors):
            continue
        _, entities, _ = graph.observed_answers[side].lookup(triple[[other]], triple[[RELATION]])
        entities = entities[(entities != entity) & (entities < len(vectors))]
        rows = vectors[torch.from_numpy(entities).to(vectors.device)]
        similarity = torch.cosine_similarity(rows, vectors[entity][None, :]).cpu().numpy()
        for i in np.argsort(-similarity, kind="stable")[:NEIGHBOURS]:
            fact = triple.copy()
            fact[column] = entities[i]
            result.append(Neighbour(int(entities[i]), entity, float(similarity[i]), fact))
    return tuple(result)
