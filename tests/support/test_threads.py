"""Work in threads is interrupted without a deadlock."""

import subprocess
import sys

import pytest

from plogicnet.support.interrupts import is_interrupt
from plogicnet.support.threads import map_in_threads

INTERRUPTED_CALLS = """
import faulthandler, random, signal
from plogicnet.support.threads import map_in_threads

faulthandler.dump_traceback_later(60, exit=True)  # a deadlock
signal.signal(signal.SIGINT, signal.default_int_handler)  # background processes ignore SIGINT
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
draw, interrupted = random.Random(0), 0
while interrupted < 3000:
    try:
        signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-6, 5e-4))
        try:
            assert list(map_in_threads(abs, range(20), threads=2)) == list(range(20))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
assert list(map_in_threads(abs, range(20), threads=2)) == list(range(20))
"""


def test_interrupts_at_any_moment_leave_no_lock_locked() -> None:
    # with the context manager and the map of ThreadPoolExecutor instead, it deadlocks in the first second
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED_CALLS], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_an_error_is_raised_in_its_place_and_running_work_ends_first(threads: int) -> None:
    started: list[int] = []
    ended: list[int] = []

    def work(item: int) -> int:
        started.append(item)
        if item == 2:
            raise ValueError(item)
        ended.append(item)
        return item

    results = map_in_threads(work, range(1000), threads)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="2"):
        next(results)
    assert set(started) == {*ended, 2}
    assert list(map_in_threads(abs, [-1, -2], threads)) == [1, 2]


def test_an_interrupt_inside_compiled_code_is_an_interrupt() -> None:
    error = SystemError("returned a result with an exception set")
    error.__cause__ = KeyboardInterrupt()
    assert is_interrupt(error)
    assert not is_interrupt(SystemError())
    assert not is_interrupt(OSError())
