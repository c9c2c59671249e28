"""Names and their numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from plogicnet.errors import InputError, nearest, shown
from plogicnet.graph.triples import IntArray


@dataclass(frozen=True)
class Vocabulary:
    """The names of entities or of relations; a name's place is its number.

    Example:
        >>> people = Vocabulary("entity", ("anna", "ben"))
        >>> people.id("ben"), people.names[0], len(people)
        (1, 'anna', 2)
    """

    kind: str
    names: tuple[str, ...]

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: str) -> bool:
        return name in self._ids

    def id(self, name: str) -> int:
        """The number of a name; an unknown one is an error that shows the nearest names.

        Example:
            >>> Vocabulary("entity", ("anna", "ben")).id("anna")
            0
        """
        try:
            return self._ids[name]
        except KeyError:
            raise InputError(f"unknown {self.kind} {shown(name)}.{nearest(name, self.names)}") from None

    def ids(self, names: Iterable[str]) -> IntArray:
        """The numbers of many names.

        Example:
            >>> Vocabulary("entity", ("anna", "ben")).ids(["ben", "anna"])
            array([1, 0])
        """
        return np.array([self.id(name) for name in names], dtype=np.int64)

    def take(self, ids: Sequence[int] | IntArray) -> list[str]:
        """The names of many numbers.

        Example:
            >>> Vocabulary("entity", ("anna", "ben")).take([1, 1])
            ['ben', 'ben']
        """
        return [self.names[i] for i in ids]
