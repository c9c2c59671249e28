"""The class Config: all settings of a run."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Literal

from plogicnet.config.fields import setting
from plogicnet.config.registries import MODELS, SYSTEMS
from plogicnet.config.sections import EM, MLN, Evaluation, Grounding, Neural, Rules, Systems
from plogicnet.config.text import iter_yaml_settings, parse_assignments, preset_names
from plogicnet.config.tree import (
    block_names,
    flat_settings,
    flat_values,
    replace_setting,
    with_default_blocks,
    yaml_lines,
)
from plogicnet.support.errors import InputError, did_you_mean
from plogicnet.support.files import require_file

EXTENSION_SETTINGS = {"system": SYSTEMS, "neural.model": MODELS}
"""The settings that select an extension. A selected extension can imply other settings."""
UPDATE_STEPS = 100
"""Default number of steps in which `update` trains new entities. It is not a setting of a run."""


@dataclass(frozen=True)
class Config:
    """All settings of a run. Frozen: `with_values` and the other methods return changed copies.

    Example:
        >>> Config().with_values({"neural.steps": 64}).neural.steps
        64
    """

    seed: int = setting(0, "seed of all random numbers", low=0, high=2**31 - 1)
    system: str = setting(None, "system to train; some systems also set other settings", registry=SYSTEMS)
    device: Literal["auto", "cpu", "cuda"] = setting(
        "auto", "device of the neural model; auto: a GPU if one is available"
    )
    threads: int = setting(0, "number of CPU threads; 0: one per core", low=0, high=1024)
    rules: Rules = field(default_factory=Rules, metadata={"description": "rule mining"})
    grounding: Grounding = field(default_factory=Grounding, metadata={"description": "grounding of rules"})
    mln: MLN = field(default_factory=MLN, metadata={"description": "rule model p_w"})
    neural: Neural = field(default_factory=Neural, metadata={"description": "neural model q"})
    em: EM = field(default_factory=EM, metadata={"description": "EM loop"})
    evaluation: Evaluation = field(default_factory=Evaluation, metadata={"description": "ranking"})
    systems: Systems = field(default_factory=Systems, metadata={"description": "settings of individual systems"})

    def with_values(self, values: Mapping[str, object]) -> "Config":
        """Return a copy with values set by dotted key, in order. Selecting a model or system also sets what it implies.

        Example:
            >>> Config().with_values({"em.lambda": 0.5}).em.lambda_
            0.5
        """
        config = self
        for key, value in values.items():
            config = replace_setting(config, key.split("."), value, key)
            registry = EXTENSION_SETTINGS.get(key)
            if registry is not None:
                config = config.with_values(registry.get(str(value)).implied_settings)
        return config

    def with_assignments(self, assignments: Sequence[str]) -> "Config":
        """Return a copy with `a.b=value` assignments applied, as with `--set`.

        Raise InputError if an assignment has no effect, because every part of the mixture has its own value.

        Example:
            >>> Config().with_assignments(["neural.steps=64", "em.lambda=auto"]).neural.steps
            64
        """
        values = parse_assignments(assignments)
        config = self.with_values(values)
        config._require_effect([key for key, _ in flat_values(values)])
        return config

    def _require_effect(self, keys: Sequence[str]) -> None:
        """Raise InputError if no part of the mixture uses the shared value of a setting."""
        if not self.neural.mixture:
            return
        shared, parts = dict(flat_settings(self.neural, "neural.")), [c._own_settings for c in self.model_configs]
        for key in keys:
            values = {i: part[key] for i, part in enumerate(parts) if key in part}
            if values and shared[key] not in values.values():
                entry_key = f"neural.mixture[{min(values)}].{key.partition('.')[2]}"
                raise InputError(
                    f"{key} has no effect, because the entries of neural.mixture have their own values. Set those, such"
                    f" as {entry_key}, or neural.mixture=[] for one model."
                )

    @property
    def _own_settings(self) -> dict[str, object]:
        """The settings that the neural model has, by dotted key."""
        block = MODELS.get(self.neural.model).block
        own = dataclasses.replace(self.neural, blocks={k: v for k, v in self.neural.blocks.items() if k == block})
        return {key: value for key, value in flat_settings(own, "neural.") if key != "neural.mixture"}

    def with_yaml(self, text: str, source: str) -> "Config":
        """Return a copy with the settings of a YAML text applied. Errors contain the line and column.

        Example:
            >>> Config().with_yaml("neural: {steps: 64}", "my.yaml").neural.steps
            64
        """
        config = self
        for key, value, mark in iter_yaml_settings(text, source):
            try:
                config = config.with_values({key: value})
            except InputError as error:
                raise InputError(f"{source}, line {mark.line + 1}, column {mark.column + 1}: {error}") from None
        return config

    def with_file(self, path: Path) -> "Config":
        """Return a copy with the settings of a YAML file applied."""
        require_file(path, "a settings file")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise InputError(f"{path}: cannot read the settings file: {reason}") from None
        return self.with_yaml(text, str(path))

    def with_preset(self, name: str) -> "Config":
        """Return a copy with the settings of a built-in preset applied.

        Example:
            >>> Config().with_preset("best/family").neural.steps
            1500
        """
        file, names = resources.files("plogicnet.config") / "presets" / f"{name}.yaml", preset_names()
        if name not in names:
            raise InputError(f"unknown preset {name!r}.{did_you_mean(name, names)} Available: {', '.join(names)}.")
        return self.with_yaml(file.read_text(encoding="utf-8"), f"preset {name}")

    def to_yaml(self, comments: bool = False) -> str:
        """Return all settings as YAML, optionally with their descriptions as comments.

        Example:
            >>> print(Config().to_yaml().splitlines()[0])
            seed: 0
        """
        return "\n".join(yaml_lines(self, 0, comments)) + "\n"

    @property
    def model_configs(self) -> tuple["Config", ...]:
        """The settings for each neural model: one copy per entry of `neural.mixture`, or the settings themselves.

        Example:
            >>> config = Config().with_assignments(["neural.mixture=[{model: Paths}, {steps: 64}]"])
            >>> [(c.neural.model, c.neural.steps) for c in config.model_configs]
            [('Paths', 'auto'), ('TransE', 64)]
        """
        if not self.neural.mixture:
            return (self,)
        shared = self.with_values({"neural.mixture": []})
        # the model is set first, since it can imply other settings
        overlays = (sorted(entry.items(), key=lambda item: item[0] != "model") for entry in self.neural.mixture)
        return tuple(shared.with_values({f"neural.{name}": value for name, value in entry}) for entry in overlays)

    @property
    def completed(self) -> "Config":
        """A copy with the blocks of the selected neural model and system, so that it contains every setting in use."""
        neural = with_default_blocks(self.neural, [MODELS.get(c.neural.model).block for c in self.model_configs])
        systems = with_default_blocks(self.systems, [SYSTEMS.get(self.system).block])
        return dataclasses.replace(self, neural=neural, systems=systems)

    @property
    def with_all_blocks(self) -> "Config":
        """A copy with the blocks of all registered models and systems."""
        neural, systems = (
            with_default_blocks(self.neural, block_names(MODELS)),
            with_default_blocks(self.systems, block_names(SYSTEMS)),
        )
        return dataclasses.replace(self, neural=neural, systems=systems)
