"""Ways to break off a training at a chosen place, and what a run directory then must hold."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from plogicnet.runs.directory import GRAPH, OUTCOME
from plogicnet.runs.integrity import SUM_LINE, write_sealed, write_summed
from plogicnet.support.progress import Advance, Progress


class StoppedError(Exception):
    """What breaks off a training."""


def files_of(path: Path) -> dict[str, bytes]:
    """Every file's bytes, but for the two that tell the time."""
    files = (p for p in path.rglob("*") if p.is_file() and p.name not in ("log.txt", "timings.json"))
    return {str(p.relative_to(path)): p.read_bytes() for p in files}


def different(a: Path, b: Path) -> list[str]:
    """The files that two runs do not share, byte for byte."""
    mine, other = files_of(a), files_of(b)
    return sorted(name for name in mine | other if mine.get(name) != other.get(name))


def resealed(run: Path) -> Path:
    """Makes the checksums match the files as they are now, as in a stranger's run that was made to do harm."""
    for file, names in ((run / "run.json", GRAPH), (run / "metrics.json", OUTCOME)):
        with suppress(ValueError, TypeError, RecursionError):
            content = dict(json.loads(file.read_bytes()))
            write_sealed(file, {key: value for key, value in content.items() if key != "sha256"}, names)
    lines = (run / "config.yaml").read_text().splitlines(keepends=True)
    write_summed(run / "config.yaml", "".join(line for line in lines if not line.startswith(SUM_LINE)))
    return run


def stop_at(words: str, time: int = 1, after: int = 0, error: type[BaseException] = StoppedError) -> Progress:
    """Raises the error the given time that such a step is shown, once it has shown so many units; 0: as it begins."""
    begun = 0

    @contextmanager
    def progress(step: str, total: int) -> Iterator[Advance]:
        nonlocal begun
        begun += words in step
        ours, done = words in step and begun == time, 0
        if ours and not after:
            raise error(f"{step}, {total}")

        def advance(units: int = 1, note: str = "") -> None:
            nonlocal done
            done += units
            if ours and done >= after:
                raise error(f"{step}, {done} of {total}, {note}")

        yield advance

    return progress
