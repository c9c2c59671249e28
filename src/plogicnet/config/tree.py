"""Functions that read, replace and print settings in the tree of sections.

Sections are frozen dataclasses. An extensible section also contains blocks: the settings of registered extensions.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from plogicnet.config.fields import valid_names, validate_value, yaml_scalar, yaml_value
from plogicnet.config.registries import block_settings
from plogicnet.support.errors import InputError, did_you_mean, pluralize
from plogicnet.support.registry import Registry

BLOCKS = "blocks"
"""The name of the field in which an extensible section stores its blocks, a mapping from block name to block.

The metadata of the field contains the registry of the extensions.
"""
EMPTY_REGISTRY: Registry[Any] = Registry("extension", "")
"""The registry of a section that is not extensible."""


def setting_key(name: str) -> str:
    """Return the key of a field. The field of `lambda` is `lambda_`, because `lambda` is a Python keyword."""
    return name.rstrip("_")


def iter_settings(section: Any) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """Yield (key, value, metadata) for each setting of a section, including its blocks."""
    for f in fields(section):
        if f.name == BLOCKS:
            for name, block in section.blocks.items():
                default = f"settings of the {f.metadata['registry'].kind} {name}"
                yield name, block, {"description": getattr(block, "block_description", default)}
        else:
            yield setting_key(f.name), getattr(section, f.name), f.metadata


def flat_settings(section: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) for each setting of a section and its subsections.

    Example:
        >>> from plogicnet.config import MLN
        >>> dict(flat_settings(MLN(), "mln."))["mln.gradient.iterations"]
        1000
    """
    for key, value, _ in iter_settings(section):
        if is_dataclass(value):
            yield from flat_settings(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def flat_values(values: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield (dotted key, value) for each value of a mapping, in which values can be mappings.

    Example:
        >>> dict(flat_values({"em.rules": True, "neural": {"vectors": {"dim": 8}}}))
        {'em.rules': True, 'neural.vectors.dim': 8}
    """
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}.{child}", child_value) for child, child_value in flat_values(value))
        else:
            yield key, value


def replace_setting(section: Any, path: list[str], value: object, key: str) -> Any:
    """Return the section with the setting at `path` replaced. `key` is the full dotted key for messages."""
    section_fields = {setting_key(f.name): f for f in fields(section) if f.name != BLOCKS}
    entry = re.fullmatch(r"(\w+)\[(\d{1,4})\]", path[0])
    if entry and entry[1] in section_fields and section_fields[entry[1]].metadata.get("overlays"):
        return _replace_in_overlay(section, entry[1], int(entry[2]), path[1:], value, key)
    if path[0] not in section_fields:
        return _replace_in_block(section, path, value, key, list(section_fields))
    field = section_fields[path[0]]
    current = getattr(section, field.name)
    if is_dataclass(current):
        return dataclasses.replace(section, **{field.name: _replace_in_section(current, path, value, key)})
    if len(path) > 1:
        raise InputError(f"{key}: {'.'.join(key.split('.')[: -len(path) + 1])} is a single value, not a section")
    if field.metadata.get("overlays"):
        return dataclasses.replace(section, **{field.name: _validate_overlays(type(section), value, key)})
    type_hint = get_type_hints(type(section))[field.name]
    return dataclasses.replace(section, **{field.name: validate_value(value, type_hint, field.metadata, key)})


def _validate_overlays(section_class: type, value: object, key: str) -> tuple[Mapping[str, Any], ...]:
    """Return a list of overlays with converted values, or raise InputError."""
    if not isinstance(value, list | tuple) or not all(isinstance(entry, Mapping) for entry in value):
        raise InputError(f"{key} must be a list of mappings such as [{{model: Paths}}, {{steps: 500}}], got {value!r}")
    return tuple(_validate_overlay(section_class(), entry, f"{key}[{i}]") for i, entry in enumerate(value))


def _replace_in_overlay(section: Any, name: str, index: int, path: list[str], value: object, key: str) -> Any:
    """Return the section with a setting of one overlay replaced, or several if `value` is a mapping."""
    overlays = list(getattr(section, name))
    field_key = key.partition("[")[0]
    if index >= len(overlays):
        raise InputError(f"{key}: {field_key} has {pluralize(len(overlays), 'entry', 'entries')}, counted from 0")
    for step in reversed(path):
        value = {step: value}
    overlays[index] = _merged(overlays[index], value)
    return dataclasses.replace(section, **{name: _validate_overlays(type(section), overlays, field_key)})


def _merged(old: object, new: object) -> object:
    """Return `new`, with the other items of `old` if both are mappings."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return new
    return {**old, **{name: _merged(old.get(name), value) for name, value in new.items()}}


def _validate_overlay(section: Any, overlay: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    for name, value in overlay.items():
        if any(f.name == name and f.metadata.get("overlays") for f in fields(section)):
            raise InputError(f"{key}.{name}: an entry of {key.rpartition('[')[0]} cannot contain another {name}")
        section = replace_setting(section, [str(name)], value, f"{key}.{name}")
    return _values_in(section, overlay)


def _values_in(section: Any, names: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings of a section that are named in a nested mapping, as such a mapping."""
    values = {key: value for key, value, _ in iter_settings(section)}
    return {n: _values_in(values[n], names[n]) if is_dataclass(values[n]) else values[n] for n in names}


def _replace_in_section(section: Any, path: list[str], value: object, key: str) -> Any:
    """Return the section with one setting replaced, or several if `value` is a mapping.

    `path[0]` is the key of the section itself, unlike in `replace_setting`.
    """
    if len(path) > 1:
        return replace_setting(section, path[1:], value, key)
    if not isinstance(value, Mapping):
        raise InputError(
            f"{key} is a section. Set one of its settings: {', '.join(k for k, *_ in iter_settings(section))}."
        )
    for child, child_value in value.items():
        section = replace_setting(section, [str(child)], child_value, f"{key}.{child}")
    return section


def _replace_in_block(section: Any, path: list[str], value: object, key: str, section_keys: list[str]) -> Any:
    """Return the section with a setting of a block replaced, or raise InputError if the block does not exist."""
    registry = _block_registry(section)
    block_class = block_settings(registry, path[0])
    if block_class is None:
        prefix = key[: len(key) - len(".".join(path))]
        valid_keys = section_keys + block_names(registry)
        suggestion = did_you_mean(path[0], valid_keys, prefix)
        location = f" in {prefix[:-1]}" if prefix else ""
        raise InputError(f"unknown setting {key!r}.{suggestion} Valid settings{location}: {', '.join(valid_keys)}.")
    block = _replace_in_section(section.blocks.get(path[0], block_class()), path, value, key)
    return dataclasses.replace(section, blocks={**section.blocks, path[0]: block})


def _block_registry(section: Any) -> Registry[Any]:
    """Return the registry of a section's extensions, which is empty if the section is not extensible."""
    return next((f.metadata["registry"] for f in fields(section) if f.name == BLOCKS), EMPTY_REGISTRY)


def block_names(registry: Registry[Any]) -> list[str]:
    """Return the distinct block names of all extensions in a registry."""
    return list(dict.fromkeys(extension.block for extension in registry.values() if extension.block))


def with_default_blocks(section: Any, names: Iterable[str]) -> Any:
    """Return an extensible section with the named blocks, in alphabetical order.

    Blocks that were not set have their default values.
    """
    missing = {n: block_settings(_block_registry(section), n) for n in names if n and n not in section.blocks}
    blocks = {**section.blocks, **{n: cls() for n, cls in missing.items() if cls}}
    return dataclasses.replace(section, blocks=dict(sorted(blocks.items())))


def yaml_lines(section: Any, depth: int, comments: bool) -> Iterator[str]:
    """Yield the settings of a section as lines of YAML, optionally with their descriptions as comments."""
    type_hints = get_type_hints(type(section))
    for key, value, metadata in iter_settings(section):
        comment = metadata["description"] if comments else ""
        if is_dataclass(value):
            child_lines = list(yaml_lines(value, depth + 1, comments))
            yield _yaml_line("  " * depth + (f"{key}:" if child_lines else f"{key}: {{}}"), comment)
            yield from child_lines
            continue
        if comments:
            choices = _choices(type_hints.get(key, type_hints.get(f"{key}_")), metadata)
            comment += f" ({' | '.join(choices)})" if choices else ""
        yield _yaml_line("  " * depth + f"{key}: {yaml_value(value)}", comment)


def _choices(type_hint: Any, metadata: Mapping[str, Any]) -> list[str]:
    """Return the allowed values of a setting, or an empty list if they cannot be listed.

    For a setting that accepts a number or a word such as `auto`, the list is "integer" or "number", then the word.
    """
    if metadata.get("registry") is not None:
        return valid_names(metadata)
    members = (type_hint, *get_args(type_hint))
    words = [yaml_scalar(v) for m in members if get_origin(m) is Literal for v in get_args(m)]
    kinds = [kind for number, kind in ((int, "integer"), (float, "number")) if number in members]
    return [*kinds, *words] if words else []


def _yaml_line(text: str, comment: str) -> str:
    return f"{text:<44} # {comment}" if comment else text
