"""Ways to break off a training at a chosen place, and what a run directory then must hold."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


def without_sums(run: Path) -> Path:
    """The run as an older version would have left it: without checksums, so that files may be changed."""
    for file in (run / "run.json", run / "metrics.json", *run.glob("checkpoint/*/reached.json")):
        if file.exists():
            about = json.loads(file.read_text())
            del about["sha256"]
            file.write_text(json.dumps(about))
    for file in (run / "config.yaml", run / "checkpoint" / "written.rules"):
        if file.exists():
            file.write_text(file.read_text().split("\n", 1)[1])
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
