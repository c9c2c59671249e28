"""The tree of settings: frozen dataclasses, some of them open for blocks that registered names own."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from plogicnet.config.fields import checked, scalar
from plogicnet.config.registries import block_settings
from plogicnet.support.errors import InputError, nearest
from plogicnet.support.registry import Registry

BLOCKS = "blocks"
"""The field of an open section that holds its blocks, by name; its metadata name the registry of their owners."""


NO_OWNERS: Registry[Any] = Registry("owner", "")


def key_of(name: str) -> str:
    """A field's key: `lambda` is a word of the language, so its field is `lambda_`."""
    return name.rstrip("_")


def children(node: Any) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """The settings of a section, its blocks among them: key, value, what is known of it."""
    for f in fields(node):
        if f.name == BLOCKS:
            for name, block in node.blocks.items():
                yield name, block, {"meaning": f"settings of {name}"}
        else:
            yield key_of(f.name), getattr(node, f.name), f.metadata


def replaced(node: Any, path: list[str], value: object, key: str) -> Any:
    """The section with the setting at `path` replaced by the checked value."""
    names = {key_of(f.name): f for f in fields(node) if f.name != BLOCKS}
    if path[0] not in names:
        return _block_replaced(node, path, value, key, list(names))
    found = names[path[0]]
    current = getattr(node, found.name)
    if is_dataclass(current):
        return dataclasses.replace(node, **{found.name: _section_replaced(current, path, value, key)})
    if len(path) > 1:
        raise InputError(f"{key}: {'.'.join(key.split('.')[: -len(path) + 1])} is one value and holds no settings")
    hint = get_type_hints(type(node))[found.name]
    return dataclasses.replace(node, **{found.name: checked(value, hint, found.metadata, key)})


def _section_replaced(section: Any, path: list[str], value: object, key: str) -> Any:
    """A section with one setting replaced, or with several where a mapping is given for it as a whole."""
    if len(path) > 1:
        return replaced(section, path[1:], value, key)
    if not isinstance(value, Mapping):
        raise InputError(f"{key} holds the settings {', '.join(k for k, *_ in children(section))}; set one of them")
    for inner, inner_value in value.items():
        section = replaced(section, [str(inner)], inner_value, f"{key}.{inner}")
    return section


def _block_replaced(node: Any, path: list[str], value: object, key: str, names: list[str]) -> Any:
    """An open section with a setting of one of its blocks replaced; an error where there is no such block."""
    registry = _registry(node)
    settings = block_settings(registry, path[0])
    if settings is None:
        prefix = key[: len(key) - len(".".join(path))]
        names = names + block_names(registry)
        hint = nearest(path[0], names, prefix)
        where = f" in {prefix[:-1]}" if prefix else ""
        raise InputError(f"unknown setting {key!r}.{hint} Known{where}: {', '.join(names)}.")
    block = _section_replaced(node.blocks.get(path[0], settings()), path, value, key)
    return dataclasses.replace(node, blocks={**node.blocks, path[0]: block})


def _registry(node: Any) -> Registry[Any]:
    """The owners of a section's blocks; a section that is not open has none."""
    return next((f.metadata["registry"] for f in fields(node) if f.name == BLOCKS), NO_OWNERS)


def block_names(registry: Registry[Any]) -> list[str]:
    """The names of all blocks that registered names own."""
    return list(dict.fromkeys(owner.block for owner in registry.values() if owner.block))


def with_blocks(node: Any, names: Iterable[str]) -> Any:
    """An open section in which these blocks stand, with their defaults where they were not set."""
    new = {name: block_settings(_registry(node), name) for name in names if name and name not in node.blocks}
    return dataclasses.replace(node, blocks={**node.blocks, **{name: kind() for name, kind in new.items() if kind}})


def yaml_lines(node: Any, depth: int, comments: bool) -> Iterator[str]:
    """The settings of a section as lines of YAML, with their meanings as comments if asked for."""
    hints = get_type_hints(type(node))
    for key, value, about in children(node):
        note = about["meaning"] if comments else ""
        if is_dataclass(value):
            inner = list(yaml_lines(value, depth + 1, comments))
            yield _line("  " * depth + (f"{key}:" if inner else f"{key}: {{}}"), note)
            yield from inner
            continue
        if comments:
            choices = _choices(hints.get(key, hints.get(f"{key}_")), about)
            note += f" ({' | '.join(choices)})" if choices else ""
        text = "[" + ", ".join(scalar(v) for v in value) + "]" if isinstance(value, tuple) else scalar(value)
        yield _line("  " * depth + f"{key}: {text}", note)


def _choices(hint: Any, about: Mapping[str, Any]) -> list[str]:
    """The values that a setting is chosen from, where it has a list of them."""
    if about.get("names") is not None:
        return list(dict.fromkeys([*([about["default"]] if about["default"] else []), *about["names"].names()]))
    return [scalar(v) for part in (hint, *get_args(hint)) if get_origin(part) is Literal for v in get_args(part)]


def _line(text: str, note: str) -> str:
    return f"{text:<44} # {note}" if note else text
