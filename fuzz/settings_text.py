"""Fuzzing settings: whatever the text, it gives settings that print and read to themselves, or an InputError."""

from plogicnet.config import Config
from plogicnet.support.errors import InputError


def one_input(data: bytes) -> None:
    """Reads the bytes as a YAML file; and where there is an =, as what follows --set.

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
            raise AssertionError("the settings do not read back as they were")
