"""Fuzz the settings parser: any text must give settings that survive writing and reading, or an InputError."""

from plogicnet.config import Config
from plogicnet.support.errors import InputError


def one_input(data: bytes) -> None:
    """Parse the bytes as a YAML file, and as an assignment for --set.

    Example:
        >>> one_input(b"neural: {vectors: {dim: 64}}")
    """
    text = data.decode("utf-8", errors="replace")
    for as_file in (True, False):
        try:
            config = Config().with_yaml(text, "fuzz") if as_file else Config().with_assignments([text])
        except InputError:
            continue
        if Config().with_yaml(config.to_yaml(), "fuzz") != config:
            raise AssertionError("the settings change when they are written and read")
