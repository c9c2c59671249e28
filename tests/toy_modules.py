"""The toys of tests/toys, which stand for another package's extensions: imported here, or found by the real program."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

TOYS = Path(__file__).parent / "toys"


def toy(name: str) -> ModuleType:
    """A toy's module, without its folder on the path: its entry points stay unknown to this process."""
    spec = importlib.util.spec_from_file_location(name, TOYS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


DRIVER = """
import contextlib, io, json, sys
from plogicnet import cli
outputs = []
for words in json.load(sys.stdin):
    sys.argv, printed = ["plogicnet", *words], io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            cli.main()
    except SystemExit as ended:
        assert ended.code == 0, words
    outputs.append(printed.getvalue())
json.dump(outputs, sys.stdout)
"""


def programs(*commands: Sequence[object]) -> list[str]:
    """What the real program prints where the toys are installed, command by command, in one process."""
    path = os.pathsep.join([str(TOYS), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        input=json.dumps([list(map(str, words)) for words in commands]),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "160"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outputs: list[str] = json.loads(done.stdout)
    return outputs
