"""Parsing of settings: YAML, `a.b=value` assignments, and the names of presets."""

from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

import yaml

from plogicnet.support.errors import InputError

MAX_CHARACTERS, MAX_DEPTH = 1_000_000, 20
"""The maximum length and nesting depth of YAML. Real settings are far below both."""


def parse_assignments(assignments: Sequence[str]) -> dict[str, object]:
    """Parse `a.b=value` assignments into a mapping from dotted keys to values. Later ones override earlier ones.

    Example:
        >>> parse_assignments(["neural.vectors.dim=64", "em.lambda=auto"])
        {'neural.vectors.dim': 64, 'em.lambda': 'auto'}
    """
    values: dict[str, object] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set {text}: expected key=value, for example --set neural.vectors.dim=100")
        values.pop(key.strip(), None)  # an overriding assignment also moves to the end
        try:
            require_simple_yaml(value, f"--set {key}")
            values[key.strip()] = yaml.safe_load(value)
        except (yaml.YAMLError, ValueError) as error:  # PyYAML raises ValueError for invalid dates and numbers
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"--set {text}: {value!r} is not valid YAML. Quote texts with special characters."
            ) from None
    return values


def preset_names() -> list[str]:
    """Return the names of the built-in presets.

    Example:
        >>> "best/family" in preset_names()
        True
    """
    root = Path(str(resources.files("plogicnet.config") / "presets"))
    return sorted(str(file.relative_to(root).with_suffix("")) for file in root.rglob("*.yaml"))


def require_simple_yaml(text: str, source: str) -> None:
    """Raise InputError if YAML contains aliases, is deeply nested or very long.

    Such YAML could take unlimited memory or time: ten lines of aliases can create a list of a billion items.

    Example:
        >>> require_simple_yaml("neural: {steps: 64}", "my.yaml")
    """
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"{source}: settings must have at most {MAX_CHARACTERS:,} characters, got {len(text):,}")
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        location = f"{source}, line {event.start_mark.line + 1}, column {event.start_mark.column + 1}"
        if isinstance(event, yaml.AliasEvent):
            raise InputError(f"{location}: aliases (*{event.anchor}) are not supported. Write the value itself.")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise InputError(
                f"{location}: nested more than {MAX_DEPTH} levels deep. Settings have two or three levels."
            )


def iter_yaml_settings(text: str, source: str) -> Iterator[tuple[str, object, yaml.Mark]]:
    """Yield (dotted key, value, position of the key) for each setting in a YAML text."""
    try:
        require_simple_yaml(text, source)
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError as error:  # an error about an invalid character has no mark
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", str(error).splitlines()[0])
        location = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InputError(f"{source}{location}: invalid YAML: {problem}") from None
    if root is None:
        return
    if not isinstance(root, yaml.MappingNode):
        raise InputError(f"{source}: expected settings as `key: value` lines")
    stack = [("", root)]
    while stack:
        prefix, node = stack.pop()
        for key_node, value_node in node.value:
            key = prefix + str(key_node.value)
            if isinstance(value_node, yaml.MappingNode):
                stack.append((key + ".", value_node))
            else:
                yield (
                    key,
                    _node_value(value_node, f"{source}, line {key_node.start_mark.line + 1}"),
                    key_node.start_mark,
                )


def _node_value(node: yaml.Node, location: str) -> object:
    try:
        return yaml.safe_load(yaml.serialize(node, Dumper=yaml.SafeDumper))
    except (yaml.YAMLError, ValueError) as error:  # PyYAML raises ValueError for invalid dates and numbers
        raise InputError(f"{location}: invalid value: {str(error).splitlines()[0]}") from None
