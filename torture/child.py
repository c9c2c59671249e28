"""The real program with a fault in it: forks one for each request on stdin; only the torture harness starts it.

A child goes through `plogicnet.cli.main` with arguments of its own, up to its exit code (`tests/forking.py`).

A fault is a signal at a moment, sent from outside; at a file operation in the run directory, sent by the process to
itself before the operation (Python tells an audit hook of each); or at the rename that puts a finished file in its
place, with the file cut first, as a crash in the middle of a write would leave it.
"""

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
OPERATIONS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir", "os.utime"}
HEARD = (signal.SIGINT, signal.SIGTERM)
OFTEN = 20
"""Steps after which an E-step keeps its place here: a minute's work, in a training that takes less than a second."""
LONGEST = 120.0
"""Seconds after which a child is taken for hanging."""


class Fault:
    """Counts the file operations in a run directory and strikes at the chosen one.

    Example:
        >>> sys.addaudithook(Fault(Path("runs/family"), {"signal": 9, "operation": 3}))  # doctest: +SKIP
    """

    def __init__(self, run: Path, request: dict[str, Any]) -> None:
        self.run, self.signal = str(run), int(request.get("signal", 0))
        self.operation, self.rename = request.get("operation"), request.get("rename")
        self.share = float(request.get("share", 0.0))
        self.operations = self.renames = 0

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        """What Python calls before each operation."""
        if event not in OPERATIONS or not self._inside(event, args):
            return
        self.operations += 1
        self.renames += event == "os.rename"
        if event == "os.rename" and self.renames == self.rename:
            written = str(args[0])
            os.truncate(written, int(self.share * Path(written).stat().st_size))
        elif self.operations != self.operation:
            return
        self.operation = self.rename = None
        state = "complete" if (Path(self.run) / "metrics.json").exists() else "unfinished"
        say(f"{state}, {signal.Signals(self.signal).name} at operation {self.operations}, {event} {args[0]}")
        os.kill(os.getpid(), self.signal)

    def _inside(self, event: str, args: tuple[Any, ...]) -> bool:
        path = args[0]
        if event in ("os.remove", "os.rmdir") and args[1] != -1:
            return True  # relative to a directory that is being removed
        return isinstance(path, str | os.PathLike) and os.fsdecode(path).startswith(self.run)


def say(text: str) -> None:
    """A line that the harness reads between those of the program."""
    os.write(2, f"torture: {text}\n".encode())


def become(request: dict[str, Any]) -> int:
    """Makes this process the program that was asked for; gives its exit code."""
    from plogicnet import cli

    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDWR)
    said = os.open(request["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for number, file in ((0, nothing), (1, nothing), (2, said)):
        os.dup2(file, number)
    sys.argv = ["plogicnet", *request["words"]]
    fault = Fault(Path(request["run"]), request)
    sys.addaudithook(fault)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
    except KeyboardInterrupt:
        return 130  # it came before the program had begun
    try:
        cli.main()
    except SystemExit as end:
        say(f"end, {fault.operations} operations, {fault.renames} renames")
        return int(end.code or 0)
    raise AssertionError("the program ends by an exit code")


def ended(pid: int, request: dict[str, Any]) -> dict[str, Any]:
    """Waits for the child, and strikes at its moment: so many seconds after the run directory is there."""
    moment, run = request.get("moment"), Path(request["run"])
    began, struck = time.monotonic(), 0.0
    there = began if run.exists() else None
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        now = time.monotonic()
        if done:
            return {
                "code": os.waitstatus_to_exitcode(status),
                "struck": bool(struck),
                "after": now - struck if struck else 0.0,
                "seconds": now - (now if there is None else there),
            }
        if there is None and run.exists():
            there = now
        if moment is not None and not struck and there is not None and now - there >= moment:
            os.kill(pid, request["signal"])  # not reaped yet, so it is still this child
            struck = now
        if now - began > LONGEST:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.0003)


def main() -> None:
    """Makes the graph, and serves requests until stdin ends."""
    from forking import serve
    from plogicnet.neural.protocol import Checkpoint
    from plogicnet.runs import lifecycle
    from small import write_small_graph

    write_small_graph(Path(sys.argv[1]))
    vars(lifecycle)["Checkpoint"] = partial(Checkpoint, every_steps=OFTEN)
    signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)  # until a child is the program
    serve(become, ended)


if __name__ == "__main__":
    main()
