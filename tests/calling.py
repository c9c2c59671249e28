"""Helpers for tests that run commands in this process."""

import json
from collections.abc import Callable
from typing import Any

Call = Callable[..., tuple[int, str, str]]
"""Runs a command and returns the exit code, stdout and stderr. The fixture `call` has this type."""


def call_json(call: Call, *arguments: object) -> dict[str, Any]:
    """Run a command with --json and return the object that it prints."""
    code, out, stderr = call(*arguments, "--json")
    assert code == 0, stderr
    value = json.loads(out)
    assert isinstance(value, dict)
    return value
