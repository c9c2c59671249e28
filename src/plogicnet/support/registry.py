"""Registries: names that settings may use, and what they stand for; other packages add to them by entry points."""

from importlib import import_module
from importlib.metadata import entry_points
from typing import Generic, TypeVar, cast

from plogicnet.support.errors import InputError, nearest

T = TypeVar("T")


class Registry(Generic[T]):
    """What each name stands for, in the order of registration; an object, or "module:attribute", imported when needed.

    Attributes:
        kind: what a name is called in messages, as "neural model".
        group: the entry point group in which other packages declare their names, as "plogicnet.models".
    """

    def __init__(self, kind: str, group: str) -> None:
        self.kind, self.group = kind, group
        self._entries: dict[str, object] = {}
        self._loaded = False

    def register(self, name: str, entry: "T | str") -> None:
        """Adds a name."""
        self._entries[name] = entry

    def default(self) -> str:
        """The name that was registered first."""
        return next(iter(self._entries))

    def names(self) -> list[str]:
        """Every name, those of other packages too."""
        self._load()
        return list(self._entries)

    def find(self, name: str) -> str | None:
        """The registered spelling of a name; case does not matter. None where there is no such name."""
        if name not in self._entries:
            self._load()
        return next((known for known in self._entries if known.lower() == name.lower()), None)

    def get(self, name: str) -> T:
        """What a name stands for.

        Raises:
            InputError: No such name is registered; the message lists those that are.
        """
        found = self.find(name)
        if found is None:
            raise self.unknown(name)
        entry = self._entries[found]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            try:
                entry = self._entries[found] = getattr(import_module(module), attribute)
            except (ImportError, AttributeError) as error:
                raise InputError(
                    f"{self.kind} {found!r}: its entry point {entry} ({self.group}) cannot be loaded: {error}; mend or"
                    " uninstall the package that declares it"
                ) from error
        return cast("T", entry)

    def unknown(self, name: str) -> InputError:
        """The error for a name that is not registered."""
        names = self.names()
        return InputError(f"unknown {self.kind} {name!r}.{nearest(name, names)} There are: {', '.join(names)}.")

    def values(self) -> "list[T]":
        """What every name stands for."""
        return [self.get(name) for name in self.names()]

    def _load(self) -> None:
        """Adds the names that installed packages declare; a built-in name is never replaced."""
        if self._loaded:
            return
        self._loaded = True
        for point in entry_points(group=self.group):
            self._entries.setdefault(point.name, point.value)
