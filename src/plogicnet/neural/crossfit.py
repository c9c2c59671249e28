"""Cross-fitted scores: each training triple is scored by a model that was trained without it."""

import copy

import numpy as np
import torch

from plogicnet.graph import IntArray
from plogicnet.neural.protocol import Examples, NeuralModel

FOLDS = 5


def cross_fitted_scores(model: NeuralModel, train: IntArray, seed: int, folds: int = FOLDS) -> torch.Tensor:
    """Score each training triple with a copy of the model, trained from new parameters without the triple's fold.

    Example:
        >>> from plogicnet.config import Config
        >>> from plogicnet.graph import demo_family
        >>> from plogicnet.neural.registry import make_model
        >>> graph = demo_family()
        >>> model = make_model(graph, Config().with_values({"neural.steps": 2, "neural.vectors.dim": 4}))
        >>> len(cross_fitted_scores(model, graph.train, seed=0)) == len(graph.train)
        True
    """
    fold_of_triple = np.random.default_rng([seed, 13]).permutation(len(train)) % folds
    scores = torch.empty(len(train), device=model.device)
    for fold in range(min(folds, len(train))):
        in_fold = fold_of_triple == fold
        copied = copy.deepcopy(model)
        copied.fit(Examples.of(train[~in_fold] if len(train) > 1 else train), seed)
        scores[torch.from_numpy(in_fold).to(model.device)] = copied.score(train[in_fold])
    return scores
