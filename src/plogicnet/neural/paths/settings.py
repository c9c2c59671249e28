"""The settings of the path model: the block `neural.paths`, and its combination with the shared settings."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from plogicnet.config import Choices, Neural, Range, SearchSpace, setting
from plogicnet.neural.settings import TrainingSettings, steps_range


@dataclass(frozen=True)
class PathBlock:
    """The block `neural.paths`."""

    block_description: ClassVar[str] = "settings of the path model"
    dim: int = setting(32, "length of an entity's state", low=1, high=1_024)
    layers: int = setting(6, "rounds of message passing, so the maximum length of a path", low=1, high=100)
    hide: Literal["auto", "edge", "pair"] = setting(
        "auto",
        "facts that a training query cannot use; edge: the fact that it asks for; pair: all facts between the known"
        " entity and the answer; auto: pair if linked pairs are rarer in valid than in train",
    )
    message_graph: Literal["observed", "accepted"] = setting(
        "observed", "facts along which messages travel; observed: train; accepted: also accepted hidden triples"
    )
    frontier: int = setting(
        0,
        "entities that join in each layer, those of highest learned priority; bounds the cost of a query; on a CPU;"
        " 0: all",
        low=0,
    )
    weight_decay: float = setting(0.1, "decoupled weight decay of the optimizer", low=0)
    averaging: float = setting(
        0.998, "decay of the exponential moving average of the parameters; 0: no average", low=0, high=0.999999
    )


@dataclass(frozen=True)
class PathSettings(PathBlock, TrainingSettings):
    """All settings of a path model, its block and the shared settings.

    Example:
        >>> PathSettings.of(Neural(steps=5)).steps, PathSettings.of(Neural()).batch
        (5, 64)
    """

    model: str = "Paths"
    steps: int = 5_000
    batch: int = 64
    learning_rate: float = 0.005

    @classmethod
    def of(cls, neural: Neural) -> "PathSettings":
        """Return the settings of a run with `auto` replaced."""
        return cls.resolved(neural, neural.blocks.get("paths", PathBlock()))


def search_space(n_triples: int) -> SearchSpace:
    """Return the settings that are worth searching on a graph with this number of training triples.

    Example:
        >>> search_space(1_000)["neural.paths.layers"]
        Choices(values=(3, 4, 6), start=4)
    """
    return {
        "neural.learning_rate": Range(0.001, 0.02, True, 0.005),
        "neural.paths.dim": Choices((16, 32, 64), 32),
        "neural.paths.layers": Choices((3, 4, 6), 4),
        "neural.paths.weight_decay": Range(0.001, 0.3, True, 0.1),
        "neural.batch": Choices((16, 32, 64), 64),
        "neural.steps": steps_range(n_triples, 64, 5, 20, 60),
    }
