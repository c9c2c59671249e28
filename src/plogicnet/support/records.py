"""Records: frozen dataclasses with one JSON form."""

from dataclasses import fields
from typing import Any


class Record:
    """A dataclass that is one object in JSON."""

    def to_json(self) -> dict[str, Any]:
        """The fields by name, in JSON's own types."""
        return {field.name: json_of(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


def json_of(value: Any) -> Any:
    """A value in JSON's own types: a record becomes an object of its fields, a tuple an array.

    Example:
        >>> json_of({"a": (1, (2, 3))})
        {'a': [1, [2, 3]]}
    """
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, dict):
        return {key: json_of(item) for key, item in value.items()}
    return [json_of(item) for item in value] if isinstance(value, tuple | list) else value
