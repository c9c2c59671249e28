"""Ctrl-C and SIGTERM, which Python raises as KeyboardInterrupt between any two instructions of the main thread."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C.

    Example:
        >>> with sigterm_as_interrupt():
        ...     pass
    """
    previous_handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


@contextmanager
def deferred_interrupts() -> Iterator[Callable[[], None]]:
    """Defer SIGINT and SIGTERM until the yielded function is called or the block ends.

    A second signal interrupts at once. Signals that do not raise KeyboardInterrupt are not changed.

    Example:
        >>> with deferred_interrupts() as raise_if_interrupted:
        ...     raise_if_interrupted()
    """
    received: list[int] = []
    in_main_thread = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGINT, signal.SIGTERM) if in_main_thread else ()
    handled = [number for number in signals if signal.getsignal(number) is signal.default_int_handler]

    def defer(number: int, frame: object) -> None:  # noqa: ARG001
        received.append(number)
        restore()

    def restore() -> None:
        for number in handled:
            signal.signal(number, signal.default_int_handler)

    def raise_if_interrupted() -> None:
        if received:
            received.clear()
            raise KeyboardInterrupt

    for number in handled:
        signal.signal(number, defer)
    try:
        yield raise_if_interrupted
    finally:
        restore()
        raise_if_interrupted()


def is_interrupt(error: BaseException) -> bool:
    """Return whether an error is an interrupt, or was caused by one.

    Compiled code that is interrupted in Python code that it calls raises SystemError.

    Example:
        >>> is_interrupt(ValueError())
        False
    """
    return isinstance(error, KeyboardInterrupt) or (
        isinstance(error, SystemError) and error.__cause__ is not None and is_interrupt(error.__cause__)
    )
