"""What a training query must not see of its own fact."""

from typing import Literal

import numpy as np

from plogicnet.graph.knowledge_graph import KnowledgeGraph
from plogicnet.graph.triples import HEAD, TAIL, IntArray

Hide = Literal["nothing", "edge", "pair"]
"""Which facts are hidden from a query: none, the asked fact, or all facts between its two entities."""


def choose_hiding(graph: KnowledgeGraph) -> Hide:
    """Return what to hide in training, so that training queries are like those of valid.

    A training triple counts as linked if another training triple has the same two entities. If linked pairs are less
    than half as frequent in valid, a model that learns from links in training expects links that valid does not have.
    All facts between the two entities are hidden then.

    Example:
        >>> choose_hiding(KnowledgeGraph.from_names([("anna", "knows", "ben")]))
        'edge'
    """
    n = len(graph.entities)

    def pairs(triples: IntArray) -> IntArray:
        ends = np.sort(triples[:, [HEAD, TAIL]], axis=1)
        return ends[:, 0] * n + ends[:, 1]

    distinct, pair_of_triple, count = np.unique(pairs(graph.train), return_inverse=True, return_counts=True)
    linked_in_train = np.mean(count[pair_of_triple] > 1)
    linked_in_valid = np.mean(np.isin(pairs(graph.valid), distinct)) if len(graph.valid) else linked_in_train
    return "pair" if linked_in_valid < linked_in_train / 2 else "edge"
