"""Lets atheris drive one target, guided by the branches our code takes: `drive.py TARGET [libFuzzer's options]`."""

import importlib
import logging
import sys
from pathlib import Path

import atheris

SOURCE = Path(__file__).parent.parent / "src"


def compiled() -> list[str]:
    """The modules that numba or triton compile: they must stay as they are written.

    Example:
        >>> "plogicnet.grounding.native" in compiled()
        True
    """
    files = (file for file in SOURCE.rglob("*.py") if any(w in file.read_text() for w in ("njit", "triton.jit")))
    return [".".join(file.relative_to(SOURCE).with_suffix("").parts) for file in files]


def main() -> None:
    """Takes the target's name from the command line; the rest of it is libFuzzer's."""
    target = sys.argv.pop(1)
    with atheris.instrument_imports(include=["plogicnet", "yaml"], exclude=compiled()):
        module = importlib.import_module(target)
        module.one_input(b"0")  # what is imported when it is first needed is guided too
    logging.disable(logging.CRITICAL)
    atheris.Setup(sys.argv, module.one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
