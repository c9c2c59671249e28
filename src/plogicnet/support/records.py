"""Dataclasses that can be converted to JSON."""

from dataclasses import fields
from typing import Any


class Record:
    """A base class for dataclasses that become JSON objects."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with the fields by name."""
        return {field.name: to_jsonable(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


def to_jsonable(value: Any) -> Any:
    """Convert a value to what `json.dumps` accepts: records become dicts, tuples become lists.

    Example:
        >>> to_jsonable({"a": (1, (2, 3))})
        {'a': [1, [2, 3]]}
    """
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, dict):
        return {key: to_jsonable(item) for key, item in value.items()}
    return [to_jsonable(item) for item in value] if isinstance(value, tuple | list) else value
