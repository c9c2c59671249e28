"""Progress displays and timers for long steps."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol


class Advance(Protocol):
    """A callback that reports completed units; `note` is a short text displayed with the progress."""

    def __call__(self, units: int = 1, note: str = "") -> None:
        """Report completed units."""


Progress = Callable[[str, int], AbstractContextManager[Advance]]
"""A function that displays a step: `with progress("training", 1000) as advance:` for a step of 1,000 units."""


def no_progress(step: str, total: int) -> AbstractContextManager[Advance]:  # noqa: ARG001
    """Display nothing. The default of library calls.

    Example:
        >>> with no_progress("training", 3) as advance:
        ...     advance()
    """
    return nullcontext(lambda units=1, note="": None)  # noqa: ARG005


@contextmanager
def displayed_until_end(progress: Progress) -> Iterator[Progress]:
    """Yield a function that displays steps until the block ends, for an object that outlives the block.

    Example:
        >>> with displayed_until_end(progress_lines) as progress:
        ...     pass
        >>> with progress("training", 3):  # displays nothing
        ...     pass
    """
    current = progress

    def display(step: str, total: int) -> AbstractContextManager[Advance]:
        return current(step, total)

    try:
        yield display
    finally:
        current = no_progress


def _rate_text(per_second: float) -> str:
    """Return a rate as text, or an empty string if it is 0.

    Example:
        >>> _rate_text(2000.0), _rate_text(0.05)
        ('2,000/s', '20 s each')
    """
    if per_second >= 1 or not per_second:
        return f"{per_second:,.0f}/s" if per_second else ""
    return f"{1 / per_second:,.0f} s each"


@contextmanager
def progress_lines(step: str, total: int, every_seconds: float = 10.0) -> Iterator[Advance]:
    """Print a line to stderr every `every_seconds`, for logs and pipes.

    Example:
        >>> with progress_lines("training", 3) as advance:
        ...     advance(3, "loss 0.1")
    """
    start = last = time.monotonic()
    done = 0

    def advance(units: int = 1, note: str = "") -> None:
        nonlocal done, last
        done += units
        now = time.monotonic()
        if now - last >= every_seconds:
            last = now
            rate = done / (now - start)
            remaining = (total - done) / rate if rate else 0.0
            parts = (f"{step}: {done:,} of {total:,}", _rate_text(rate), f"{remaining:,.0f} s left", note)
            print(", ".join(part for part in parts if part), file=sys.stderr)

    yield advance
    seconds = time.monotonic() - start
    print(f"{step}: {done:,} in {seconds:.1f} s", file=sys.stderr)


@contextmanager
def progress_bar(step: str, total: int) -> Iterator[Advance]:
    """Display a bar with the rate and the remaining time on stderr.

    Example:
        >>> with progress_bar("training", 3) as advance:
        ...     advance(3, "loss 0.1")
    """
    from rich import progress as rich_progress
    from rich.console import Console

    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TextColumn("{task.fields[rate]}"),
        rich_progress.TimeRemainingColumn(),
        rich_progress.TextColumn("{task.fields[note]}"),
    )
    with rich_progress.Progress(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task(step, total=total, note="", rate="")

        def advance(units: int = 1, note: str = "") -> None:
            speed = display.tasks[0].speed
            display.update(task, advance=units, rate=_rate_text(speed or 0.0), note=note)

        yield advance


def for_stderr() -> Progress:
    """Return a progress bar if stderr is a terminal, otherwise plain lines.

    Example:
        >>> for_stderr() in (progress_bar, progress_lines)
        True
    """
    return progress_bar if sys.stderr.isatty() else progress_lines


@dataclass
class Timer:
    """The seconds spent in each named part of a run.

    Example:
        >>> timer = Timer()
        >>> with timer("mine"):
        ...     pass
        >>> list(timer.seconds)
        ['mine']
    """

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Add the time of the block to a part."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start
