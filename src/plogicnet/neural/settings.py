"""The settings that all neural models share, with `auto` replaced by the model's defaults."""

from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from plogicnet.config import Neural, Range


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


TINY_GRAPH_STEPS = (100, 400, 1_500)
"""On tiny graphs, a search over `neural.steps` has at least this many steps: smallest, first and largest value."""


def steps_range(n_triples: int, batch: int, low: float, start: float, high: float) -> Range:
    """Return the range of `neural.steps` for a search, given as passes over the triples.

    Example:
        >>> str(steps_range(50_000, batch=100, low=1, start=5, high=10))
        '500..5000:log'
    """
    passes = (epochs * n_triples / batch for epochs in (low, start, high))
    steps = [max(least, round(n)) for least, n in zip(TINY_GRAPH_STEPS, passes, strict=True)]
    return Range(steps[0], steps[2], True, steps[1])
