"""The names that settings leave open: neural models, systems, engines. Their packages register the built-in ones."""

from collections.abc import Mapping
from typing import Any, Protocol

from plogicnet.support.registry import Registry


class Extension(Protocol):
    """What the settings ask of a registered model or system.

    Attributes:
        block: the name of its block of settings, in the section `neural` or `systems`; empty where it has none.
        settings: the dataclass that checks the block; its fields are made by `setting`.
        implied: settings that choosing it sets besides; later ones win.
    """

    block: str
    settings: type | None
    implied: Mapping[str, object]


MODELS: Registry[Any] = Registry("neural model", "plogicnet.models")
SYSTEMS: Registry[Any] = Registry("system", "plogicnet.systems")
ENGINES: Registry[Any] = Registry("engine", "plogicnet.engines")


def block_settings(registry: Registry[Any], block: str) -> type | None:
    """The dataclass that checks a block of settings; None where no registered name has such a block."""
    owners = map(registry.get, registry.names())  # one by one: those after the owner need not be imported
    return next((owner.settings for owner in owners if owner.block == block), None)
