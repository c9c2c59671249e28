"""The real program with a fault; forks one child per request on stdin. Only the torture harness starts it.

A child runs `plogicnet.cli.main` with its own arguments until its exit code (`tests/forking.py`).

A fault is a signal: sent by the parent at a moment; sent by the process to itself before a file operation in the run
directory (an audit hook sees each operation); or sent at the rename that publishes a file, which is truncated first, as
by a crash during a write.
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
CAUGHT_SIGNALS = (signal.SIGINT, signal.SIGTERM)
CHECKPOINT_STEPS = 20
"""Steps between checkpoints of an E-step. The runs here take less than a second, so minutes do not apply."""
TIMEOUT_SECONDS = 120.0
"""Seconds after which a child counts as hanging."""


class Fault:
    """An audit hook that counts the file operations in a run directory and sends the signal at the chosen one."""

    def __init__(self, run: Path, request: dict[str, Any]) -> None:
        self.run, self.signal = str(run), int(request.get("signal", 0))
        self.operation, self.rename = request.get("operation"), request.get("rename")
        self.share = float(request.get("share", 0.0))
        self.operations = self.renames = 0

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        """Count one operation; Python calls this before each."""
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
        print_line(f"{state}, {signal.Signals(self.signal).name} at operation {self.operations}, {event} {args[0]}")
        os.kill(os.getpid(), self.signal)

    def _inside(self, event: str, args: tuple[Any, ...]) -> bool:
        path = args[0]
        if event in ("os.remove", "os.rmdir") and args[1] != -1:
            return True  # relative to a directory that is removed
        return isinstance(path, str | os.PathLike) and os.fsdecode(path).startswith(self.run)


def print_line(text: str) -> None:
    """Write a line for the harness to stderr, among the lines of the program."""
    os.write(2, f"torture: {text}\n".encode())


def run_child(request: dict[str, Any]) -> int:
    """Run the requested program in this process and return its exit code."""
    from plogicnet import cli

    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDWR)
    stderr = os.open(request["stderr"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for number, file in ((0, nothing), (1, nothing), (2, stderr)):
        os.dup2(file, number)
    sys.argv = ["plogicnet", *request["arguments"]]
    fault = Fault(Path(request["run"]), request)
    sys.addaudithook(fault)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, CAUGHT_SIGNALS)
    except KeyboardInterrupt:
        return 130  # the signal came before the program started
    try:
        cli.main()
    except SystemExit as end:
        print_line(f"end, {fault.operations} operations, {fault.renames} renames")
        return int(end.code or 0)
    raise AssertionError("the program did not exit with an exit code")


def wait_for_child(pid: int, request: dict[str, Any]) -> dict[str, Any]:
    """Wait for the child, and send the signal `moment` seconds after the run directory exists."""
    moment, run = request.get("moment"), Path(request["run"])
    start, sent_at = time.monotonic(), 0.0
    exists_since = start if run.exists() else None
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        now = time.monotonic()
        if done:
            return {
                "code": os.waitstatus_to_exitcode(status),
                "fault_sent": bool(sent_at),
                "after": now - sent_at if sent_at else 0.0,
                "seconds": now - (now if exists_since is None else exists_since),
            }
        if exists_since is None and run.exists():
            exists_since = now
        if moment is not None and not sent_at and exists_since is not None and now - exists_since >= moment:
            os.kill(pid, request["signal"])  # not reaped yet, so the pid is still this child
            sent_at = now
        if now - start > TIMEOUT_SECONDS:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.0003)


def main() -> None:
    """Write the graph, and serve requests until stdin ends."""
    from forking import serve
    from plogicnet.neural.protocol import Checkpoint
    from plogicnet.runs import lifecycle
    from small import write_small_graph

    write_small_graph(Path(sys.argv[1]))
    vars(lifecycle)["Checkpoint"] = partial(Checkpoint, every_steps=CHECKPOINT_STEPS)
    signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT_SIGNALS)  # until a child runs the program
    serve(run_child, wait_for_child)


if __name__ == "__main__":
    main()
