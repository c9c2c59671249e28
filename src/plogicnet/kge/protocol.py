"""q_θ as a protocol: what the neural half must do, whoever does it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from plogicnet.graph import FloatArray, IntArray, Side, as_triples
from plogicnet.progress import Progress, silent


@dataclass(frozen=True)
class Examples:
    """What an E-step learns from: weighted positives, and explicit negatives beside the sampled ones.

    Example:
        >>> Examples.of(as_triples([(0, 0, 1)])).weights
        array([1.])
    """

    positives: IntArray
    weights: FloatArray
    negatives: IntArray

    @classmethod
    def of(cls, positives: IntArray, weights: FloatArray | None = None) -> "Examples":
        """Positives, of weight one unless told, and no explicit negatives."""
        return cls(positives, np.ones(len(positives)) if weights is None else weights, as_triples([]))


class Embedding(Protocol):
    """The embedding model q_θ: q(v = 1) = σ(score). EM, evaluation and prediction use these methods and no others.

    Tensors stay on the model's own device; a higher score is a more probable triple.
    """

    def fit(self, examples: Examples, seed: int, warm: bool = False, progress: Progress = silent) -> None:
        """Learns from the examples, anew or (warm) from where it stands."""
        ...

    def score(self, triples: IntArray) -> torch.Tensor:
        """The scores of given triples."""
        ...

    def score_all(self, known: IntArray, relations: IntArray, side: Side) -> torch.Tensor:
        """For each query (known entity, relation, asked side) the scores of all entities: (queries, entities)."""
        ...

    def vectors(self) -> torch.Tensor | None:
        """The entities' vectors, for showing which are similar; None where a model has none."""
        ...

    def save(self, path: Path) -> None:
        """Writes the parameters as safetensors."""
        ...

    def load(self, path: Path) -> None:
        """Reads what `save` wrote."""
        ...
