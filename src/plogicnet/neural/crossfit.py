"""Scores as if each triple were not in the graph, for models that can only forget by being trained without it."""

import copy

import numpy as np
import torch

from plogicnet.graph import IntArray
from plogicnet.neural.protocol import Examples, NeuralModel

FOLDS = 5


def cross_fitted_scores(model: NeuralModel, train: IntArray, seed: int, folds: int = FOLDS) -> torch.Tensor:
    """The score of each training triple by a copy of the model that is fitted, from new parameters, without its fold.

    Example:
        >>> from plogicnet.config import Config
        >>> from plogicnet.graph import demo_family
        >>> from plogicnet.neural.protocol import make_model
        >>> graph = demo_family()
        >>> model = make_model(graph, Config().with_values({"neural.steps": 2, "neural.vectors.dim": 4}))
        >>> len(cross_fitted_scores(model, graph.train, seed=0)) == len(graph.train)
        True
    """
    fold = np.random.default_rng([seed, 13]).permutation(len(train)) % folds
    scores = torch.empty(len(train), device=model.device)
    for number in range(min(folds, len(train))):
        inside = fold == number
        part = copy.deepcopy(model)
        part.fit(Examples.of(train[~inside] if len(train) > 1 else train), seed)
        scores[torch.from_numpy(inside).to(model.device)] = part.score(train[inside])
    return scores
