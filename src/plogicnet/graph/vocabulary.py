"""The mapping between names and integer ids."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from plogicnet.graph.triples import IntArray
from plogicnet.support.errors import InputError, did_you_mean, quote_name


@dataclass(frozen=True)
class Vocabulary:
    """The names of all entities or of all relations. The id of a name is its index in `names`.

    Example:
        >>> people = Vocabulary("entity", ("anna", "ben"))
        >>> people.id("ben"), people.names[0], len(people)
        (1, 'anna', 2)
    """

    kind: str
    names: tuple[str, ...]

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: id_ for id_, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: str) -> bool:
        return name in self._ids

    def id(self, name: str) -> int:
        """Return the id of a name. Raise InputError with similar names if the name is unknown.

        Example:
            >>> Vocabulary("entity", ("anna", "ben")).id("anna")
            0
        """
        try:
            return self._ids[name]
        except KeyError:
            raise InputError(f"unknown {self.kind} {quote_name(name)}.{did_you_mean(name, self.names)}") from None

    def ids(self, names: Iterable[str]) -> IntArray:
        """Return the ids of many names.

        Example:
            >>> Vocabulary("entity", ("anna", "ben")).ids(["ben", "anna"])
            array([1, 0])
        """
        return np.array([self.id(name) for name in names], dtype=np.int64)

    def take(self, ids: Sequence[int] | IntArray) -> list[str]:
        """Return the names of many ids.

        Example:
            >>> Vocabulary("entity", ("anna", "ben")).take([1, 1])
            ['ben', 'ben']
        """
        return [self.names[i] for i in ids]
