"""A progress display that breaks off a training."""

from collections.abc import Iterator
from contextlib import contextmanager

from plogicnet.support.progress import Advance, Progress


def interrupted_at(stop: int | None, error: type[BaseException]) -> Progress:
    """Raises the error once so many steps are shown; never for None."""

    @contextmanager
    def progress(step: str, total: int) -> Iterator[Advance]:
        done = 0

        def advance(units: int = 1, note: str = "") -> None:
            nonlocal done
            done += units
            if done == stop:
                raise error(f"{step}, {done} of {total}, {note}")

        yield advance

    return progress
