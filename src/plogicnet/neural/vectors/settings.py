"""The settings of vector models: the block `neural.vectors`, and its combination with the shared settings."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from plogicnet.config import Neural, setting
from plogicnet.neural.settings import TrainingSettings


@dataclass(frozen=True)
class VectorBlock:
    """The block `neural.vectors`."""

    block_description: ClassVar[str] = "settings of vector models"
    dim: int = setting(200, "length of the vectors; in complex numbers for RotatE and ComplEx", low=1, high=100_000)
    recipe: Literal["sampled", "one_vs_all"] = setting(
        "sampled",
        "training method; sampled: self-adversarial negative sampling (paper); one_vs_all: cross-entropy over all"
        " entities with reciprocal relations, for DistMult, ComplEx, HolE and ConvE",
    )
    gamma: float = setting(
        12.0,
        "TransE and RotatE: margin in q = sigmoid(gamma - distance); all but ConvE: initial coordinates are between"
        " -(gamma + 2)/dim and (gamma + 2)/dim",
        low=0,
    )
    adversarial_temperature: float = setting(
        1.0, "only with recipe sampled: temperature of the weights of the negatives; 0: equal weights", low=0
    )
    negatives: int = setting(256, "only with recipe sampled: negatives per positive", low=1)
    share_negatives: int = setting(
        64, "only with recipe sampled: positives that share one set of negatives; 1: no sharing", low=1
    )
    regularization: float = setting(
        0.0,
        "with recipe sampled: weight of the L3 penalty on all vectors; with recipe one_vs_all: weight of the N3 penalty"
        " (nuclear 3-norm) on the vectors of the batch",
        low=0,
    )
    dropout: float = setting(
        0.0,
        "fraction of coordinates of a query's vectors set to 0 in training",
        low=0,
        high=0.9,
    )
    matmul: Literal["tf32", "float32"] = setting(
        "tf32", "precision of dot products in training on a GPU; tf32: faster and less precise, on tensor cores"
    )


@dataclass(frozen=True)
class VectorSettings(VectorBlock, TrainingSettings):
    """All settings of a vector model, its block and the shared settings.

    Example:
        >>> VectorSettings.of(Neural(steps=5)).steps, VectorSettings.of(Neural()).batch
        (5, 1024)
    """

    @classmethod
    def of(cls, neural: Neural) -> "VectorSettings":
        """Return the settings of a run with `auto` replaced."""
        return cls.resolved(neural, neural.blocks.get("vectors", VectorBlock()))
