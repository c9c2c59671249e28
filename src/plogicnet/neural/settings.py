"""The settings that every neural model shares, with `auto` replaced by the model's own defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from plogicnet.config import Neural


@dataclass(frozen=True)
class TrainingSettings:
    """What `train` needs of any model's settings; see `config.Neural` for the meaning of each."""

    model: str
    steps: int
    batch: int
    optimizer: str
    learning_rate: float
    validate_every: int
    patience: int
    kernels: str


def shared_settings(neural: Neural, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The shared settings as keywords; `auto` stands for the model's default, where it has one.

    Example:
        >>> shared_settings(Neural(), {"steps": 100})["steps"]
        100
    """
    given = {f.name: getattr(neural, f.name) for f in fields(TrainingSettings)}
    return {name: defaults[name] if value == "auto" and name in defaults else value for name, value in given.items()}
