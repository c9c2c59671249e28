"""Loads the extensions in tests/toys, here or in the installed program."""

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
    """Import a module of tests/toys without its entry points."""
    spec = importlib.util.spec_from_file_location(name, TOYS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module


DRIVER = """
import contextlib, io, json, sys
from plogicnet import cli
outputs = []
for arguments in json.load(sys.stdin):
    sys.argv, printed = ["plogicnet", *arguments], io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            cli.main()
    except SystemExit as ended:
        assert ended.code == 0, arguments
    outputs.append(printed.getvalue())
json.dump(outputs, sys.stdout)
"""


def run_commands(*commands: Sequence[object]) -> list[str]:
    """Run commands in one process with the extensions installed; return what each command prints."""
    path = os.pathsep.join([str(TOYS), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.run(
        [sys.executable, "-c", DRIVER],
        input=json.dumps([list(map(str, arguments)) for arguments in commands]),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "160"},
        check=False,
    )
    assert process.returncode == 0, process.stderr
    outputs: list[str] = json.loads(process.stdout)
    return outputs
