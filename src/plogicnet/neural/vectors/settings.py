"""The settings of vectors: the block `neural.vectors`, and all that a vector model needs in one object."""

from dataclasses import dataclass
from typing import Literal

from plogicnet.config import Neural, setting
from plogicnet.neural.settings import TrainingSettings


@dataclass(frozen=True)
class VectorBlock:
    """The block `neural.vectors`."""

    dim: int = setting(200, "length of the vectors; for RotatE and ComplEx of complex numbers", low=1, high=100_000)
    recipe: Literal["sampled", "one_vs_all"] = setting(
        "sampled",
        "sampled: self-adversarial negatives (the paper's); one_vs_all: cross-entropy over all entities with reciprocal"
        " relations, for DistMult, ComplEx, HolE and ConvE",
    )
    gamma: float = setting(12.0, "margin in q = sigmoid(gamma - distance); vectors begin within (gamma + 2)/dim", low=0)
    adversarial_temperature: float = setting(1.0, "sampled: how much harder negatives weigh more", low=0)
    negatives: int = setting(256, "sampled: negatives a positive", low=1)
    share_negatives: int = setting(64, "sampled: positives that share one set of negatives; 1: none", low=1)
    regularization: float = setting(
        0.0, "sampled: weight of the L3 penalty on all vectors; one_vs_all: of N3 on the batch's", low=0
    )
    dropout: float = setting(0.0, "share of each query's input coordinates that a step leaves out", low=0, high=0.9)
    matmul: Literal["tf32", "float32"] = setting(
        "tf32", "dot products in training on a GPU: its matrix units, or in full float32"
    )


@dataclass(frozen=True)
class VectorSettings(VectorBlock, TrainingSettings):
    """All settings of a vector model.

    Example:
        >>> VectorSettings.of(Neural(steps=5)).steps, VectorSettings.of(Neural()).batch
        (5, 1024)
    """

    @classmethod
    def of(cls, neural: Neural) -> "VectorSettings":
        """The settings of a run, `auto` resolved."""
        return cls.resolved(neural, neural.blocks.get("vectors", VectorBlock()))
