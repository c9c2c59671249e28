"""The settings of vector models: the block `neural.vectors`, and its combination with the shared settings."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from plogicnet.config import Choices, Domain, Neural, Range, SearchSpace, setting
from plogicnet.neural.settings import TrainingSettings, steps_range

MANY_TRIPLES = 50_000
"""From this number of training triples on, larger vectors and batches are worth searching."""


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


def search_space(model: str, n_triples: int) -> SearchSpace:
    """Return the settings of a vector model that are worth searching on a graph with this number of training triples.

    The ranges lie around the settings of the presets for graphs of this size.

    Example:
        >>> search_space("ComplEx", 1_000)["neural.batch"]
        Choices(values=(128, 256, 512), start=256)
    """
    many = n_triples >= MANY_TRIPLES
    batch = 1_024 if many else 256
    space: dict[str, Domain] = {
        "neural.vectors.dim": Range(200, 1_000, True, 500) if many else Range(64, 256, True, 128),
        "neural.batch": Choices((batch // 2, batch, 2 * batch), batch),
        "neural.steps": steps_range(n_triples, batch, 15, 50, 100),
    }
    if model in ("TransE", "RotatE"):
        return space | {
            "neural.vectors.recipe": Choices(("sampled",), "sampled"),
            "neural.learning_rate": Range(0.0005, 0.03, True, 0.002 if many else 0.01),
            "neural.vectors.gamma": Range(3.0, 24.0, True, 12.0),
            "neural.vectors.negatives": Choices((32, 64, 128, 256), 256 if many else 64),
        }
    space["neural.vectors.recipe"] = Choices(("one_vs_all",), "one_vs_all")
    if model == "ConvE":
        return space | {
            "neural.optimizer": Choices(("adam",), "adam"),
            "neural.learning_rate": Range(0.0005, 0.01, True, 0.003),
            "neural.vectors.dropout": Range(0.0, 0.5, False, 0.2),
        }
    return space | {
        "neural.learning_rate": Range(0.03, 0.3, True, 0.1),
        "neural.vectors.regularization": Range(0.001, 0.2, True, 0.05 if many else 0.005),
    }
