"""Registries of named components. Other packages add components through entry points."""

from importlib import import_module
from importlib.metadata import entry_points
from typing import Generic, TypeVar, cast

from plogicnet.support.errors import InputError, did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    """A mapping from names to components, in the order of registration.

    A component is an object, or a "module:attribute" string that is imported on first use.

    Attributes:
        kind: the word for a component in messages, for example "neural model".
        group: the entry point group with which other packages add components, for example "plogicnet.models".

    Example:
        >>> registry: Registry[float] = Registry("constant", "demo.constants")
        >>> registry.register("Pi", "math:pi")
        >>> registry.canonical_name("pi"), round(registry.get("pi"), 2)
        ('Pi', 3.14)
    """

    def __init__(self, kind: str, group: str) -> None:
        self.kind, self.group = kind, group
        self._entries: dict[str, object] = {}
        self._entry_points_added = False

    def register(self, name: str, entry: "T | str") -> None:
        """Register a component under a name."""
        self._entries[name] = entry

    def default(self) -> str:
        """Return the name that was registered first."""
        return next(iter(self._entries))

    def names(self) -> list[str]:
        """Return all names, including the ones that other packages add."""
        self._add_entry_points()
        return list(self._entries)

    def canonical_name(self, name: str) -> str | None:
        """Return the registered spelling of a name, ignoring case, or None if the name is not registered."""
        if name not in self._entries:
            self._add_entry_points()
        return next((known for known in self._entries if known.lower() == name.lower()), None)

    def get(self, name: str) -> T:
        """Return the component of a name.

        Raises:
            InputError: The name is not registered, or its component cannot be imported.
        """
        registered = self.canonical_name(name)
        if registered is None:
            raise self.unknown_name_error(name)
        entry = self._entries[registered]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            try:
                entry = self._entries[registered] = getattr(import_module(module), attribute)
            except (ImportError, AttributeError) as error:
                raise InputError(
                    f"{self.kind} {registered!r}: cannot import {entry} (entry point group {self.group}): {error}."
                    " Fix or uninstall the package that declares it."
                ) from error
        return cast("T", entry)

    def unknown_name_error(self, name: str, valid_names: list[str] | None = None) -> InputError:
        """Return the error for a name that is not valid. By default, the valid names are the registered ones."""
        names = self.names() if valid_names is None else valid_names
        return InputError(f"unknown {self.kind} {name!r}.{did_you_mean(name, names)} Available: {', '.join(names)}.")

    def values(self) -> "list[T]":
        """Return all components."""
        return [self.get(name) for name in self.names()]

    def _add_entry_points(self) -> None:
        """Add the components that installed packages declare, without replacing registered ones."""
        if self._entry_points_added:
            return
        self._entry_points_added = True
        for point in entry_points(group=self.group):
            self._entries.setdefault(point.name, point.value)
