"""The dataclass field of a setting, and the validation of its values."""

import json
import types
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal, Union, get_args, get_origin

import yaml

from plogicnet.support.errors import InputError
from plogicnet.support.registry import Registry


def setting(
    default: Any,
    description: str,
    low: float | None = None,
    high: float | None = None,
    registry: Registry[Any] | None = None,
) -> Any:
    """Create a dataclass field for a setting, with its description and range.

    With `registry`, the value is a name in that registry, or the default. None means the first name as default.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Box:
        ...     size: int = setting(3, "size of the box", low=1)
    """
    metadata = {"description": description, "low": low, "high": high, "registry": registry, "default": default}
    if default is None and registry is not None:
        return field(default_factory=registry.default, metadata=metadata)
    return field(default=default, metadata=metadata)


def overlays(description: str) -> Any:
    """Create a dataclass field for a list of mappings, each with other values for settings of the same section."""
    return field(default=(), metadata={"description": description, "overlays": True})


def validate_value(value: object, type_hint: Any, metadata: Mapping[str, Any], key: str) -> object:
    """Return the value converted to the type of the setting, or raise InputError."""
    if metadata["registry"] is not None:
        return _validate_name(value, metadata, key)
    valid, converted = _convert(value, type_hint)
    if not valid:
        raise InputError(f"{key} must be {_describe_type(type_hint, value)}, got {value!r}")
    if isinstance(converted, tuple) and len(set(converted)) < len(converted):
        raise InputError(f"{key} must not contain an item twice, got {value!r}")
    if converted == () and metadata["low"] is not None:
        raise InputError(f"{key} must contain at least one number, got an empty list")
    for number in converted if isinstance(converted, tuple) else (converted,):
        if isinstance(number, int | float) and not isinstance(number, bool):
            low, high = metadata["low"], metadata["high"]
            # in this form, NaN is out of range
            if not ((low is None or number >= low) and (high is None or number <= high) and abs(number) < float("inf")):
                limits = "finite" if low is None else f"at least {low:,}"
                limits += "" if high is None else f" and at most {high:,}"
                raise InputError(f"{key} must be {limits}, got {value!r}")
    return converted


def _validate_name(value: object, metadata: Mapping[str, Any], key: str) -> str:
    """Return the registered spelling of a name, or raise InputError."""
    registry: Registry[Any] = metadata["registry"]
    if not isinstance(value, str):
        raise InputError(f"{key} must be one of {', '.join(valid_names(metadata))}, got {value!r}")
    if value == metadata["default"]:
        return value
    registered = registry.canonical_name(value)
    if registered is None:
        raise InputError(f"{key}: {registry.unknown_name_error(value, valid_names(metadata))}")
    return registered


def valid_names(metadata: Mapping[str, Any]) -> list[str]:
    """Return the default of a setting with a registry, such as "auto", and the names in the registry."""
    default = [metadata["default"]] if metadata["default"] else []
    return list(dict.fromkeys([*default, *metadata["registry"].names()]))


def _convert(value: object, type_hint: Any) -> tuple[bool, object]:
    """Return whether the value fits the type, and the converted value; a string such as "1e-4" fits a float.

    PyYAML parses 1e-4 as a string.
    """
    origin = get_origin(type_hint)
    if origin in (Union, types.UnionType):
        attempts = (_convert(value, member) for member in get_args(type_hint))
        return next((attempt for attempt in attempts if attempt[0]), (False, value))
    if origin is Literal:
        return next(((True, v) for v in get_args(type_hint) if _equals(v, value)), (False, value))
    if origin is tuple:
        if not isinstance(value, list | tuple):
            return False, value
        items = [_convert(v, get_args(type_hint)[0]) for v in value]
        return all(valid for valid, _ in items), tuple(v for _, v in items)
    if type_hint is bool or isinstance(value, bool):
        return type_hint is bool and isinstance(value, bool), value
    if type_hint is float:
        try:
            return True, float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return False, value
    return isinstance(value, type_hint), value


def _equals(allowed: object, value: object) -> bool:
    if isinstance(allowed, str) and isinstance(value, str):
        return allowed.lower() == value.lower()
    return type(allowed) is type(value) and allowed == value


def _describe_type(type_hint: Any, value: object) -> str:
    """Describe the allowed values. For a list, include an example, derived from the rejected value if possible."""
    origin = get_origin(type_hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_describe_type(member, value) for member in get_args(type_hint))
    if origin is Literal:
        values = [yaml_scalar(v) for v in get_args(type_hint)]
        return values[0] if len(values) == 1 else f"one of {', '.join(values)}"
    if origin is tuple:
        item_type, items = get_args(type_hint)[0], [item.strip() for item in str(value).split(",")]
        if not _convert(items, type_hint)[0]:
            items = [{bool: "true", int: "1", float: "0.5"}.get(item_type) or yaml_scalar(get_args(item_type)[0])]
        return f"a list such as [{', '.join(items)}], each item {_describe_type(item_type, value)}"
    return {bool: "true or false", int: "an integer", float: "a number", str: "a string"}[type_hint]


def yaml_value(value: object) -> str:
    """Return a value, a list or a mapping as one line of YAML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {yaml_value(v)}" for key, v in value.items()) + "}"
    return f"[{', '.join(map(yaml_value, value))}]" if isinstance(value, tuple) else yaml_scalar(value)


def yaml_scalar(value: object) -> str:
    """Return a value as YAML."""
    if isinstance(value, float):
        # PyYAML requires a decimal point in a float with an exponent: 1.0e-04
        text = repr(int(value)) + ".0" if value == int(value) and abs(value) < 1e15 else repr(value)
        return text if "e" not in text or "." in text else text.replace("e", ".0e")
    if isinstance(value, str) and not _is_plain(value):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_plain(text: str) -> bool:
    """Return whether YAML parses the text without quotes as the same string."""
    try:
        return bool(yaml.safe_load(text) == text)
    except yaml.YAMLError:
        return False
