"""A progress display that interrupts a training."""

from collections.abc import Iterator
from contextlib import contextmanager

from plogicnet.support.progress import Advance, Progress


def interrupted_at(stop: int | None, error: type[BaseException]) -> Progress:
    """Return a progress display that raises the error after `stop` steps, or never if `stop` is None."""

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
