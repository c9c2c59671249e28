"""One setting: its default, its meaning, its range, and the check of a value against them."""

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
    meaning: str,
    low: float | None = None,
    high: float | None = None,
    names: Registry[Any] | None = None,
) -> Any:
    """A field with its meaning and its range; an open name is one of a registry's, or the default.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Box:
        ...     size: int = setting(3, "how large", low=1)
    """
    about = {"meaning": meaning, "low": low, "high": high, "names": names, "default": default}
    if default is None and names is not None:
        return field(default_factory=names.default, metadata=about)
    return field(default=default, metadata=about)


def checked(value: object, hint: Any, about: Mapping[str, Any], key: str) -> object:
    """The value in the setting's type, within its range."""
    if about["names"] is not None:
        return _name(value, about, key)
    good, converted = _converted(value, hint)
    if not good:
        raise InputError(f"{key}: {value!r} is not allowed; {_allowed(hint, value)}")
    if isinstance(converted, tuple) and len(set(converted)) < len(converted):
        raise InputError(f"{key}: {value!r} gives the same twice")
    if converted == () and about["low"] is not None:
        raise InputError(f"{key}: an empty list; give at least one number")
    for number in converted if isinstance(converted, tuple) else (converted,):
        if isinstance(number, int | float) and not isinstance(number, bool):
            low, high = about["low"], about["high"]
            # written so that a NaN is out of every range
            if not ((low is None or number >= low) and (high is None or number <= high) and abs(number) < float("inf")):
                limits = "finite" if low is None else f"at least {low:g}"
                limits += "" if high is None else f" and at most {high:g}"
                raise InputError(f"{key}: {value!r} is out of range; it is {limits}")
    return converted


def _name(value: object, about: Mapping[str, Any], key: str) -> str:
    """An open name, in its registered spelling."""
    registry: Registry[Any] = about["names"]
    if not isinstance(value, str):
        raise InputError(f"{key}: {value!r} is not allowed; one of {', '.join(registry.names())}")
    if value == about["default"]:
        return value
    found = registry.find(value)
    if found is None:
        raise InputError(f"{key}: {registry.unknown(value)}")
    return found


def _converted(value: object, hint: Any) -> tuple[bool, object]:
    """Whether the value fits the type, and the value in it (1 fits a float, "1e-4" too: YAML reads that as a text)."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        tries = (_converted(value, part) for part in get_args(hint))
        return next((t for t in tries if t[0]), (False, value))
    if origin is Literal:
        return next(((True, v) for v in get_args(hint) if _same(v, value)), (False, value))
    if origin is tuple:
        if not isinstance(value, list | tuple):
            return False, value
        parts = [_converted(v, get_args(hint)[0]) for v in value]
        return all(good for good, _ in parts), tuple(v for _, v in parts)
    if hint is bool or isinstance(value, bool):
        return hint is bool and isinstance(value, bool), value
    if hint is float:
        try:
            return True, float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return False, value
    return isinstance(value, hint), value


def _same(allowed: object, value: object) -> bool:
    if isinstance(allowed, str) and isinstance(value, str):
        return allowed.lower() == value.lower()
    return type(allowed) is type(value) and allowed == value


def _allowed(hint: Any, value: object) -> str:
    """The allowed values in words; of a list, also how the refused value is written as one."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_allowed(part, value) for part in get_args(hint))
    if origin is Literal:
        return "one of " + ", ".join(scalar(v) for v in get_args(hint))
    if origin is tuple:
        inner, items = get_args(hint)[0], [item.strip() for item in str(value).split(",")]
        if not _converted(items, hint)[0]:
            items = [{bool: "true", int: "1", float: "0.5"}.get(inner) or scalar(get_args(inner)[0])]
        return f"a list, as [{', '.join(items)}], each item {_allowed(inner, value)}"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}[hint]


def scalar(value: object) -> str:
    """A value as YAML writes it."""
    if isinstance(value, float):
        # PyYAML reads a float with an exponent only if it has a point: 1.0e-04
        text = repr(int(value)) + ".0" if value == int(value) and abs(value) < 1e15 else repr(value)
        return text if "e" not in text or "." in text else text.replace("e", ".0e")
    if isinstance(value, str) and not _is_plain(value):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_plain(text: str) -> bool:
    """Whether YAML reads a text without quotes as itself."""
    try:
        return bool(yaml.safe_load(text) == text)
    except yaml.YAMLError:
        return False
