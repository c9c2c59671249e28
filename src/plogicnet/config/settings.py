"""Config: all settings of a run, and the ways of changing them."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Literal

from plogicnet.config.fields import setting
from plogicnet.config.registries import MODELS, SYSTEMS
from plogicnet.config.sections import EM, MLN, Evaluation, Grounding, Neural, Rules, Systems
from plogicnet.config.text import parse_assignments, preset_names, yaml_leaves
from plogicnet.config.tree import block_names, replaced, with_blocks, yaml_lines
from plogicnet.support.errors import InputError, nearest
from plogicnet.support.files import require_file

OPEN_NAMES = {"system": SYSTEMS, "neural.model": MODELS}
"""The settings that name what may imply other settings."""


@dataclass(frozen=True)
class Config:
    """All settings of a run; frozen, so change them by `with_values` or `dataclasses.replace`.

    Example:
        >>> Config().with_values({"neural.steps": 64}).neural.steps
        64
    """

    seed: int = setting(0, "one seed for everything random", low=0, high=2**31 - 1)
    system: str = setting(None, "what is trained; a system also sets what it needs", names=SYSTEMS)
    device: Literal["auto", "cpu", "cuda"] = setting("auto", "auto: a GPU if there is one")
    threads: int = setting(0, "0: all cores", low=0, high=1024)
    rules: Rules = field(default_factory=Rules, metadata={"meaning": "which rules"})
    grounding: Grounding = field(default_factory=Grounding, metadata={"meaning": "from rules to groundings"})
    mln: MLN = field(default_factory=MLN, metadata={"meaning": "the rule model p_w"})
    neural: Neural = field(default_factory=Neural, metadata={"meaning": "the neural model q"})
    em: EM = field(default_factory=EM, metadata={"meaning": "the EM loop"})
    evaluation: Evaluation = field(default_factory=Evaluation, metadata={"meaning": "ranking"})
    systems: Systems = field(default_factory=Systems, metadata={"meaning": "what each system needs besides"})

    def with_values(self, values: Mapping[str, object]) -> "Config":
        """A copy with dotted keys set; later ones win; a model or a system also sets what it implies.

        Example:
            >>> Config().with_values({"em.lambda": 0.5}).em.lambda_
            0.5
        """
        config = self
        for key, value in values.items():
            config = replaced(config, key.split("."), value, key)
            chosen = OPEN_NAMES.get(key)
            if chosen is not None:
                config = config.with_values(chosen.get(str(value)).implied)
        return config

    def with_assignments(self, assignments: Sequence[str]) -> "Config":
        """A copy with `a.b=value` texts applied, as `--set` gives them.

        Example:
            >>> Config().with_assignments(["neural.steps=64", "em.lambda=auto"]).neural.steps
            64
        """
        return self.with_values(parse_assignments(assignments))

    def with_yaml(self, text: str, source: str) -> "Config":
        """A copy with the settings of a YAML text applied; a mistake is reported with its line and column.

        Example:
            >>> Config().with_yaml("neural: {steps: 64}", "my.yaml").neural.steps
            64
        """
        config = self
        for key, value, mark in yaml_leaves(text, source):
            try:
                config = config.with_values({key: value})
            except InputError as error:
                raise InputError(f"{source}, line {mark.line + 1}, column {mark.column + 1}: {error}") from None
        return config

    def with_file(self, path: Path) -> "Config":
        """A copy with the settings of a YAML file applied.

        Example:
            >>> Config().with_file(Path("my.yaml"))  # doctest: +SKIP
        """
        require_file(path, "a settings file")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise InputError(f"{path}: cannot be read as a settings file: {reason}") from None
        return self.with_yaml(text, str(path))

    def with_preset(self, name: str) -> "Config":
        """A copy with the settings of a preset that comes with the program applied.

        Example:
            >>> Config().with_preset("best/family").neural.steps
            1500
        """
        file, names = resources.files("plogicnet.config") / "presets" / f"{name}.yaml", preset_names()
        if name not in names:
            raise InputError(f"unknown preset {name!r}.{nearest(name, names)} There are: {', '.join(names)}.")
        return self.with_yaml(file.read_text(encoding="utf-8"), f"preset {name}")

    def to_yaml(self, comments: bool = False) -> str:
        """The complete tree as YAML, with each setting's meaning as a comment if asked for.

        Example:
            >>> print(Config().to_yaml().splitlines()[0])
            seed: 0
        """
        return "\n".join(yaml_lines(self, 0, comments)) + "\n"

    @property
    def completed(self) -> "Config":
        """The same with the blocks of its neural model and its system, so that every setting it uses stands in it."""
        neural = with_blocks(self.neural, [MODELS.get(self.neural.model).block])
        systems = with_blocks(self.systems, [SYSTEMS.get(self.system).block])
        return dataclasses.replace(self, neural=neural, systems=systems)

    @property
    def with_all_blocks(self) -> "Config":
        """The same with the blocks of every registered model and system: for showing what there is."""
        neural, systems = with_blocks(self.neural, block_names(MODELS)), with_blocks(self.systems, block_names(SYSTEMS))
        return dataclasses.replace(self, neural=neural, systems=systems)
