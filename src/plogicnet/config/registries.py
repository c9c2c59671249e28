"""The registries of neural models, systems and engines. Each package registers its built-in components."""

from collections.abc import Mapping
from typing import Any, Protocol

from plogicnet.support.registry import Registry


class Extension(Protocol):
    """The attributes of a registered model or system that the settings use."""

    @property
    def block(self) -> str:
        """The name of its block of settings in the section `neural` or `systems`; empty if it has no block."""

    @property
    def settings(self) -> type | None:
        """The dataclass of the block, with fields created by `setting`; None if it has no block.

        Its optional class attribute `block_description` is the comment that `plogicnet config` prints for the block.
        """

    @property
    def implied_settings(self) -> Mapping[str, object]:
        """Other settings that are set when the extension is selected, by dotted key.

        Later assignments override them.
        """


MODELS: Registry[Any] = Registry("neural model", "plogicnet.models")
SYSTEMS: Registry[Any] = Registry("system", "plogicnet.systems")
ENGINES: Registry[Any] = Registry("engine", "plogicnet.engines")


def block_settings(registry: Registry[Any], block: str) -> type | None:
    """Return the dataclass of a block of settings, or None if no registered component has this block."""
    extensions = map(registry.get, registry.names())  # lazy, so that extensions after the right one are not imported
    return next((extension.settings for extension in extensions if extension.block == block), None)
