"""The settings that all neural models share, with `auto` replaced by the model's defaults."""

from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from plogicnet.config import Neural


@dataclass(frozen=True)
class TrainingSettings:
    """The settings that `train` uses; see `config.Neural` for their meaning.

    The settings of a model inherit from this class. The default of a field replaces the value `auto`.
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
        """Combine the shared settings and those of the model's block, and replace `auto`.

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
        shared = {f.name: getattr(neural, f.name) for f in fields(TrainingSettings)}
        return cls(**{name: value for name, value in shared.items() if value != "auto"}, **asdict(block))
