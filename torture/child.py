"""The real program with a fault; forks one child per request on stdin. Only the torture harness starts it.

A child runs `plogicnet.cli.main` with its own arguments until its exit code (`tests/forking.py`), or `PLogicNet.save`,
for which there is no command.

A fault is a signal: sent by the parent at a moment after the first change of the run directory; sent by the process to
itself before a file operation that changes the run directory (an audit hook sees each operation); or sent at the rename
that gives a file or a directory its name. In the last case, the file or a new file in the directory is truncated first,
as by a crash during a write. The rename itself does not take place: the program syncs a file before it renames it.
"""

import faulthandler
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
OPERATIONS = {"open", "os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir"}
WRITING_FLAGS = os.O_WRONLY | os.O_RDWR
CAUGHT_SIGNALS = (signal.SIGINT, signal.SIGTERM)
CHECKPOINT_STEPS = 20
"""Steps between checkpoints of an E-step. The runs here take less than a second, so minutes do not apply."""
TIMEOUT_SECONDS = 120.0
"""Seconds after which a child counts as hanging."""


class Fault:
    """An audit hook that counts the changes of a run directory and sends the signal before the chosen one."""

    def __init__(self, run: Path, request: dict[str, Any]) -> None:
        self.run, self.signal = str(run), int(request.get("signal", 0))
        self.operation, self.rename = request.get("operation"), request.get("rename")
        self.share, self.started = float(request.get("share", 0.0)), request.get("started")
        self.operations = self.renames = 0
        self.current = self._current()

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        """Count one operation; Python calls this before each."""
        if event not in OPERATIONS or not self._changes(event, args):
            return
        if self.started and not self.operations:
            Path(self.started).touch()
        names_written = event == "os.rename" and not os.fsdecode(args[1]).endswith(".part")
        self.operations += 1
        self.renames += names_written
        if names_written and self.renames == self.rename:
            truncate_written(Path(os.fsdecode(args[0])), self.share)
        elif self.operations != self.operation:
            return
        self.operation = self.rename = None
        state = "unpublished" if self._current() == self.current else "published"
        print_line(f"{state}, {signal.Signals(self.signal).name} at operation {self.operations}, {event} {args[0]}")
        os.kill(os.getpid(), self.signal)

    def _changes(self, event: str, args: tuple[Any, ...]) -> bool:
        """Return whether an operation changes the run directory, or syncs it (`os.open`, also to read)."""
        if event in ("os.remove", "os.rmdir") and args[1] != -1:
            return True  # relative to a directory that is removed
        if event == "open" and args[1] is not None and not args[2] & WRITING_FLAGS:
            return False
        paths = args[:2] if event in ("os.rename", "os.link") else args[:1]
        return any(isinstance(path, str | os.PathLike) and os.fsdecode(path).startswith(self.run) for path in paths)

    def _current(self) -> bytes:
        file = Path(self.run) / "CURRENT"
        return file.read_bytes() if file.is_file() else b""


def truncate_written(written: Path, share: float) -> None:
    """Truncate a file, or a new file in a directory. Files with a second name in another directory stay intact."""
    files = [written] if written.is_file() else sorted(f for f in written.iterdir() if f.stat().st_nlink == 1)
    file = files[int(share * len(files))]
    file.chmod(0o600)
    os.truncate(file, int(share * file.stat().st_size))


def print_line(text: str) -> None:
    """Write a line for the harness to stderr, among the lines of the program."""
    os.write(2, f"torture: {text}\n".encode())


def save(source: str, run: str) -> None:
    """Load a run, save it over another one, and exit."""
    from plogicnet.model import PLogicNet

    try:
        PLogicNet.load(source).save(run)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)


def run_child(request: dict[str, Any]) -> int:
    """Run the requested program in this process and return its exit code."""
    from plogicnet import cli

    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.register(signal.SIGUSR1, file=2)
    flags, arguments = os.O_WRONLY | os.O_CREAT | os.O_TRUNC, request["arguments"]
    output = [os.open(request[name], flags, 0o600) for name in ("stdout", "stderr")]
    for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), *output)):
        os.dup2(file, number)
    sys.argv = ["plogicnet", *arguments]
    fault = Fault(Path(request["run"]), request)
    sys.addaudithook(fault)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, CAUGHT_SIGNALS)
    except KeyboardInterrupt:
        return 130  # the signal came before the program started
    try:
        save(*arguments[1:]) if arguments[0] == "save" else cli.main()
    except SystemExit as end:
        sys.stdout.flush()
        print_line(f"end, {fault.operations} operations, {fault.renames} renames")
        return int(end.code or 0)
    raise AssertionError("the program did not exit with an exit code")


def wait_for_child(pid: int, request: dict[str, Any]) -> dict[str, Any]:
    """Wait for the child, and send the signal `moment` seconds after it first changed the run directory."""
    moment, started = request.get("moment"), Path(request["started"])
    start, started_at, sent_at = time.monotonic(), 0.0, 0.0
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        now = time.monotonic()
        if done:
            return {
                "code": os.waitstatus_to_exitcode(status),
                "fault_sent": bool(sent_at),
                "after": now - sent_at if sent_at else 0.0,
                "seconds": now - started_at if started_at else 0.0,
            }
        if not started_at and started.exists():
            started_at = now
        if moment is not None and not sent_at and started_at and now - started_at >= moment:
            os.kill(pid, request["signal"])  # not reaped yet, so the pid is still this child
            sent_at = now
        if now - start > TIMEOUT_SECONDS:
            os.kill(pid, signal.SIGUSR1)  # prints where each thread hangs
            time.sleep(1)
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
