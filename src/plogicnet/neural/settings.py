"""The settings that every neural model shares, with `auto` replaced by the model's own defaults."""

from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from plogicnet.config import Neural


@dataclass(frozen=True)
class TrainingSettings:
    """What `train` needs of any model's settings; see `config.Neural` for the meaning of each.

    A model's own settings inherit from it. The default of a field is what `auto` stands for.
    """

    model: str = "TransE"
    steps: int = 20_000
    batch: int = 1_024
    optimizer: str = "auto"
    learning_rate: float = 0.001
    validate_every: int = 0
    patience: int = 10
    kernels: str = "auto"

    @classmethod
    def resolved(cls, neural: Neural, block: Any) -> Self:
        """The settings of a run: the shared ones, and those of the model's block.

        Example:
            >>> @dataclass(frozen=True)
            ... class Block:
            ...     width: int = 4
            >>> @dataclass(frozen=True)
            ... class Settings(Block, TrainingSettings):
            ...     steps: int = 100
            >>> Settings.resolved(Neural(batch=8), Block()).steps
            100
        """
        given = {f.name: getattr(neural, f.name) for f in fields(TrainingSettings)}
        return cls(**{name: value for name, value in given.items() if value != "auto"}, **asdict(block))
