"""The paths behind a score of the mixture, each with its effect on the score."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from plogicnet.graph import IntArray, KnowledgeGraph, TripleSet
from plogicnet.neural.protocol import NeuralModel, ScoredPath

MAX_PATHS = 5
"""Maximum number of paths."""


def paths_with_shares(
    model: NeuralModel, graph: KnowledgeGraph, triple: IntArray, candidates: Sequence[IntArray]
) -> tuple[ScoredPath, ...]:
    """Return the candidates that carry the score of a triple, at most `MAX_PATHS`, with their shares.

    The path whose facts alone have the largest effect comes first. Candidates are left out if the score does not fall
    without their facts. Each candidate, and each path after the first, costs one score of a model that is bound to a
    smaller graph.

    Args:
        model: the model, bound to the graph.
        graph: the graph.
        triple: the triple.
        candidates: the facts of each path, of shape (steps, 3). A path can occur twice.
    """

    def score_without(paths: Sequence[IntArray]) -> float:
        removed = TripleSet.of(np.concatenate(paths), len(graph.entities))
        smaller = replace(graph, train=graph.train[~removed.contains(graph.train)])
        return float(model.bind(smaller).score(triple[None, :])[0])

    distinct = {path.tobytes(): path for path in candidates}.values()
    if not distinct:
        return ()
    score = float(model.score(triple[None, :])[0])
    alone = [(score_without([path]), path) for path in distinct]
    supporting = sorted(((value, path) for value, path in alone if value < score), key=lambda pair: pair[0])[:MAX_PATHS]
    paths = [path for _, path in supporting]
    scores = [score, *(value for value, _ in supporting[:1])]
    scores += [score_without(paths[:n]) for n in range(2, len(paths) + 1)]
    return tuple(
        ScoredPath(path, before - after) for path, (before, after) in zip(paths, pairwise(scores), strict=True)
    )
