"""Run one fuzzing target with atheris, guided by code coverage: `drive.py TARGET [libFuzzer options]`."""

import importlib
import logging
import sys
from pathlib import Path

import atheris

SOURCE = Path(__file__).parent.parent / "src"


def compiled_modules() -> list[str]:
    """Return the modules that numba or triton compile; they must not be instrumented.

    Example:
        >>> "plogicnet.grounding.native.compositions" in compiled_modules()
        True
    """
    files = (file for file in SOURCE.rglob("*.py") if any(w in file.read_text() for w in ("njit", "triton.jit")))
    return [".".join(file.relative_to(SOURCE).with_suffix("").parts) for file in files]


def main() -> None:
    """Run the target named by the first argument; the other arguments are libFuzzer options."""
    target = sys.argv.pop(1)
    with atheris.instrument_imports(include=["plogicnet", "yaml"], exclude=compiled_modules()):
        module = importlib.import_module(target)
        module.one_input(b"0")  # also instrument modules that are imported on first use
    logging.disable(logging.CRITICAL)
    atheris.Setup(sys.argv, module.one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
