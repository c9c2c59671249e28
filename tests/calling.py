"""What tests of the commands share: the program called in this process, and its JSON."""

import json
from collections.abc import Callable
from typing import Any

Call = Callable[..., tuple[int, str, str]]
"""Words give the exit code, stdout and stderr; the fixture `call` is one."""


def answer(call: Call, *words: object) -> dict[str, Any]:
    """The JSON object of a command that succeeds."""
    code, out, said = call(*words, "--json")
    assert code == 0, said
    value = json.loads(out)
    assert isinstance(value, dict)
    return value
