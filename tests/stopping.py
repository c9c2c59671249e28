"""Stop a training at a chosen step, and compare run directories."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from plogicnet.runs.directory import GRAPH_FILES, OUTCOME_FILES
from plogicnet.runs.integrity import CHECKSUM_PREFIX, write_json_with_checksums, write_text_with_checksum
from plogicnet.support.progress import Advance, Progress


class StoppedError(Exception):
    """Raised to stop a training."""


def files_of(path: Path) -> dict[str, bytes]:
    """Return the bytes of every file, except the two with times."""
    files = (p for p in path.rglob("*") if p.is_file() and p.name not in ("log.txt", "timings.json"))
    return {str(p.relative_to(path)): p.read_bytes() for p in files}


def different(a: Path, b: Path) -> list[str]:
    """Return the names of files that differ between two runs."""
    first, second = files_of(a), files_of(b)
    return sorted(name for name in first | second if first.get(name) != second.get(name))


def update_checksums(run: Path) -> Path:
    """Make the checksums match the current files, as in a malicious run."""
    for file, names in ((run / "run.json", GRAPH_FILES), (run / "metrics.json", OUTCOME_FILES)):
        with suppress(ValueError, TypeError, RecursionError):
            content = dict(json.loads(file.read_bytes()))
            write_json_with_checksums(file, {key: value for key, value in content.items() if key != "sha256"}, names)
    lines = (run / "config.yaml").read_text().splitlines(keepends=True)
    write_text_with_checksum(
        run / "config.yaml", "".join(line for line in lines if not line.startswith(CHECKSUM_PREFIX))
    )
    return run


def stop_at(name: str, time: int = 1, after: int = 0, error: type[BaseException] = StoppedError) -> Progress:
    """Return a progress display that raises an error in a step with `name` in its title.

    Args:
        name: part of the title of the step.
        time: which of these steps: 1 is the first.
        after: how many units are done before the error; 0: none, it is raised as the step starts.
        error: the type of the error.
    """
    started = 0

    @contextmanager
    def progress(step: str, total: int) -> Iterator[Advance]:
        nonlocal started
        started += name in step
        is_chosen, done = name in step and started == time, 0
        if is_chosen and not after:
            raise error(f"{step}, {total}")

        def advance(units: int = 1, note: str = "") -> None:
            nonlocal done
            done += units
            if is_chosen and done >= after:
                raise error(f"{step}, {done} of {total}, {note}")

        yield advance

    return progress
