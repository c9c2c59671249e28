"""Settings as text: YAML, `a.b=value` assignments, and the presets that come with the program."""

from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

import yaml

from plogicnet.support.errors import InputError

LONGEST, DEEPEST = 1_000_000, 20
"""The most characters of a text of settings, and the deepest nesting; real ones are far below both."""


def parse_assignments(assignments: Sequence[str]) -> dict[str, object]:
    """`a.b=value` texts as dotted keys and values; later ones win.

    Example:
        >>> parse_assignments(["neural.vectors.dim=64", "em.lambda=auto"])
        {'neural.vectors.dim': 64, 'em.lambda': 'auto'}
    """
    values: dict[str, object] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set {text}: expected key=value, as in --set neural.vectors.dim=100")
        values.pop(key.strip(), None)  # of two, the later stands where it was said
        try:
            require_plain(value, f"--set {key}")
            values[key.strip()] = yaml.safe_load(value)
        except (yaml.YAMLError, ValueError) as error:  # PyYAML's dates and numbers raise the latter
            if isinstance(error, InputError):
                raise
            raise InputError(f"--set {text}: {value!r} is no value in YAML") from None
    return values


def preset_names() -> list[str]:
    """The presets that come with the program.

    Example:
        >>> "best/family" in preset_names()
        True
    """
    root = Path(str(resources.files("plogicnet.config") / "presets"))
    return sorted(str(file.relative_to(root).with_suffix("")) for file in root.rglob("*.yaml"))


def require_plain(text: str, source: str) -> None:
    """An error where a YAML text has what no settings need: aliases, deep nesting or great length.

    Reading such a text can take all memory, or all time: ten lines of aliases make a list of a billion items.

    Example:
        >>> require_plain("neural: {steps: 64}", "my.yaml")
    """
    if len(text) > LONGEST:
        raise InputError(f"{source}: {len(text):,} characters; settings have at most {LONGEST:,}")
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        place = f"{source}, line {event.start_mark.line + 1}, column {event.start_mark.column + 1}"
        if isinstance(event, yaml.AliasEvent):
            raise InputError(f"{place}: an alias (*{event.anchor}); write the value itself")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise InputError(f"{place}: nested more than {DEEPEST} deep; settings are two or three deep")


def yaml_leaves(text: str, source: str) -> Iterator[tuple[str, object, yaml.Mark]]:
    """Each setting in a YAML text as (dotted key, value, place)."""
    try:
        require_plain(text, source)
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError as error:  # without a place for a character that YAML does not have
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", str(error).splitlines()[0])
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InputError(f"{source}{place}: not YAML: {problem}") from None
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
                yield key, _value(value_node, f"{source}, line {key_node.start_mark.line + 1}"), key_node.start_mark


def _value(node: yaml.Node, place: str) -> object:
    try:
        return yaml.safe_load(yaml.serialize(node, Dumper=yaml.SafeDumper))
    except (yaml.YAMLError, ValueError) as error:  # PyYAML's dates and numbers raise the latter
        raise InputError(f"{place}: no value: {str(error).splitlines()[0]}") from None
