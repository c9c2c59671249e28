"""Stop a training at a chosen step, and compare run directories."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plogicnet.runs.directory import CHECKPOINT_DIR, snapshot_folder
from plogicnet.runs.integrity import MANIFEST_FILE, write_manifest
from plogicnet.support.progress import Advance, Progress

CHANGING_FILES = ("log.txt", "timings.json", "lock")
"""Files in work/ that differ between two equal runs."""


class StoppedError(Exception):
    """Raised to stop a training."""


def files_of(run: Path) -> dict[str, bytes]:
    """Return the bytes of each file of the current snapshot. The manifest is left out: it follows from the others."""
    return {file.name: file.read_bytes() for file in snapshot_folder(run).iterdir() if file.name != MANIFEST_FILE}


def tree_of(path: Path) -> dict[str, bytes]:
    """Return the bytes of every file in a directory, except those that differ between two equal runs."""
    files = (p for p in path.rglob("*") if p.is_file() and p.name not in CHANGING_FILES)
    return {str(p.relative_to(path)): p.read_bytes() for p in files}


def different(a: Path, b: Path) -> list[str]:
    """Return the names of files that differ between the current snapshots of two runs."""
    first, second = files_of(a), files_of(b)
    return sorted(name for name in first | second if first.get(name) != second.get(name))


def leftovers(run: Path) -> list[str]:
    """Return partial files, and the checkpoint of a training, which a complete run does not have."""
    found = [*run.rglob("*.part"), *([run / CHECKPOINT_DIR] if (run / CHECKPOINT_DIR).exists() else [])]
    return [str(path.relative_to(run)) for path in found]


def overwrite(file: Path, content: bytes | str) -> None:
    """Change a file of a snapshot, although it is read-only. Its other hard links keep their content."""
    mode = file.stat().st_mode
    file.unlink()
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    file.chmod(mode)


def update_checksums(run: Path) -> Path:
    """Make the checksums of the current snapshot match its files, as in a malicious run."""
    folder = snapshot_folder(run)
    (folder / MANIFEST_FILE).unlink(missing_ok=True)
    write_manifest(folder, {})
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
