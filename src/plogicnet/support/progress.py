"""Progress and time of long steps: a bar in a terminal, plain lines elsewhere, silence in a library."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol


class Advance(Protocol):
    """Tells that so many units are done; `note` is a short text shown beside the bar."""

    def __call__(self, units: int = 1, note: str = "") -> None:
        """Counts the units."""


Progress = Callable[[str, int], AbstractContextManager[Advance]]
"""`with progress("training", 1000) as advance:` opens the display of one step of 1,000 units."""


def silent(step: str, total: int) -> AbstractContextManager[Advance]:  # noqa: ARG001
    """Shows nothing: the default of library calls.

    Example:
        >>> with silent("training", 3) as advance:
        ...     advance()
    """
    return nullcontext(lambda units=1, note="": None)  # noqa: ARG005


@contextmanager
def lines(step: str, total: int, every_seconds: float = 10.0) -> Iterator[Advance]:
    """Prints a plain line on stderr now and then: for logs and pipes.

    Example:
        >>> with lines("training", 3) as advance:
        ...     advance(3, "loss 0.1")  # doctest: +SKIP
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
            left = (total - done) / rate if rate else 0.0
            parts = (f"{step}: {done:,} of {total:,}", f"{rate:,.0f}/s", f"{left:,.0f} s left", note)
            print(", ".join(part for part in parts if part), file=sys.stderr)

    yield advance
    seconds = time.monotonic() - start
    print(f"{step}: {done:,} in {seconds:.1f} s", file=sys.stderr)


@contextmanager
def bar(step: str, total: int) -> Iterator[Advance]:
    """A bar with rate and time left, on stderr.

    Example:
        >>> with bar("training", 3) as advance:
        ...     advance(3, "loss 0.1")  # doctest: +SKIP
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
            display.update(task, advance=units, rate=f"{speed:,.0f}/s" if speed else "", note=note)

        yield advance


def for_stderr() -> Progress:
    """The display that suits where stderr goes.

    Example:
        >>> progress = for_stderr()
    """
    return bar if sys.stderr.isatty() else lines


@dataclass
class Clock:
    """Seconds spent in each named part of a run.

    Example:
        >>> clock = Clock()
        >>> with clock("mine"):
        ...     pass
        >>> list(clock.seconds)
        ['mine']
    """

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Adds the time of the block to a part."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start
