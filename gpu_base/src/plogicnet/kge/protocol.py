"""q_θ as a protocol: what the neural half must do, whoever does it."""

from collections.abc import Callable
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


Validate = Callable[[], float]
"""Judges the model as it stands; higher is better. It decides nothing but when to stop and which parameters to keep."""


@dataclass(frozen=True)
class Checkpoint:
    """Where training keeps its place, and how often: every so many seconds, and every so many steps (0: not so).

    Example:
        >>> Checkpoint(Path("runs/family/checkpoint/embedding.safetensors"), every_seconds=30.0).every_steps
        0
    """

    path: Path
    every_seconds: float = 60.0
    every_steps: int = 0


class Embedding(Protocol):
    """The embedding model q_θ: q(v = 1) = σ(score). EM, evaluation and prediction use these methods and no others.

    Tensors stay on the model's own device; a higher score is a more probable triple.
    """

    def fit(
        self,
        examples: Examples,
        seed: int,
        warm: bool = False,
        progress: Progress = silent,
        *,
        validate: Validate | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """Learns from the examples, anew or (warm) from where it stands.

        With `validate` it may stop early and keeps the best parameters. With a checkpoint of the same training it goes
        on from there, and ends as if it had never stopped.
        """
        ...

    def rescale(self, slope: float, offset: float) -> None:
        """From now on scores are slope · (the model's own) + offset, until the next fit: q is σ of that."""
        ...

    def score(self, triples: IntArray) -> torch.Tensor:
        """The scores of given triples."""
        ...

    def score_all(self, known: IntArray, relations: IntArray, side: Side) -> torch.Tensor:
        """For each query (known entity, relation, asked side) the scores of all entities: (queries, entities).

        The tensor is the caller's own, to overwrite.
        """
        ...

    def score_answers(
        self, known: IntArray, relations: IntArray, side: Side, candidates: IntArray | None = None
    ) -> torch.Tensor:
        """As `score_all`, for all entities or some, but with what `score` says of each whole triple, up to rounding.

        It is something else only for a model that asks for heads in another way than for tails.
        """
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
