"""Run the real program in a forked process, which saves the seconds that importing torch takes.

The server process imports everything but computes nothing, so it has no other threads and can fork safely. Each child
calls `plogicnet.cli.main` with its own arguments, directory, environment and memory limit. The interpreter's shutdown
is not covered: tests of it start a new process.
"""

import functools
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

TIMEOUT_SECONDS = 120.0
"""Seconds after which a child counts as hanging."""


def run_program(
    *arguments: object,
    cwd: Path | None = None,
    memory: int | None = None,
    data: Path | None = None,
    stop: tuple[signal.Signals, Callable[[], bool]] | None = None,
    **env: str,
) -> subprocess.CompletedProcess[str]:
    """Run the program. `memory` limits its address space in bytes; `data` is the directory of benchmark data sets.

    `stop` is a signal to send to the program, and a function that returns whether it is time to.
    """
    server, folder = _server()
    environment = {k: v for k, v in os.environ.items() if k != "PLOGICNET_DATA"} | {
        "NO_COLOR": "1",
        "OMP_NUM_THREADS": "1",
    }
    environment |= env | ({} if data is None else {"PLOGICNET_DATA": str(data)})
    command = [str(word) for word in arguments]
    request = {
        "arguments": command,
        "cwd": str(cwd or Path.cwd()),
        "env": environment,
        "memory": memory,
        "output": folder,
    }
    print(json.dumps(request), file=server.stdin, flush=True)
    if stop is not None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not stop[1]() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(int(Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text()), stop[0])
    assert server.stdout is not None
    code = json.loads(server.stdout.readline())
    out, err = ((Path(folder) / name).read_bytes().decode() for name in ("out", "err"))
    if code == -signal.SIGALRM:
        raise subprocess.TimeoutExpired(command, TIMEOUT_SECONDS, out, err)
    return subprocess.CompletedProcess(command, code, out, err)


@functools.cache
def _server() -> tuple[subprocess.Popen[str], str]:
    folder = tempfile.TemporaryDirectory(prefix="forking-")
    one_thread = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command, pipe = [sys.executable, __file__], subprocess.PIPE
    server = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8", env=one_thread)
    vars(server)["folder"] = folder  # not deleted before the server ends
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    return server, folder.name


def _run(request: dict[str, Any]) -> int:
    """Run the requested command in this process and return its exit code."""
    from plogicnet import cli

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(TIMEOUT_SECONDS))
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    output_files = (os.open(f"{request['output']}/{name}", flags) for name in ("out", "err"))
    for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), *output_files)):
        os.dup2(file, number)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if request["memory"]:
        resource.setrlimit(resource.RLIMIT_AS, (request["memory"], request["memory"]))
    sys.argv = ["plogicnet", *request["arguments"]]
    try:
        cli.main()
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        return int(end.code or 0)
    raise AssertionError("the program did not exit with an exit code")


def serve(run_child: Callable[[dict[str, Any]], int], wait_for: Callable[[int, dict[str, Any]], object]) -> None:
    """Fork one child per request on stdin, until stdin ends.

    The child calls `run_child`, which returns its exit code. The parent prints what `wait_for` returns for the child.
    """
    import filelock  # noqa: F401
    import pyarrow.dataset  # noqa: F401  # otherwise imported when the first Parquet file is read
    import torch._dynamo  # noqa: F401  # otherwise imported by the first optimizer

    import plogicnet.cli.app
    import plogicnet.cli.show
    import plogicnet.model
    import plogicnet.report.page  # noqa: F401

    with suppress(ImportError):  # imported by the first command; some versions of typer do not have it
        import_module("typer._adapters")

    others = [file for file in Path("/proc/self/task").glob("*/comm") if file.parent.name != str(os.getpid())]
    if threads := {file.read_text().strip() for file in others} - {"jemalloc_bg_thd"}:  # safe to fork
        raise SystemExit(f"a process with other threads must not be forked: {threads}")
    gc.freeze()  # so that a child does not copy inherited objects
    print("ready", flush=True)
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        if pid := os.fork():
            print(json.dumps(wait_for(pid, request)), flush=True)
            continue
        try:
            code = run_child(request)
        except BaseException:  # a traceback and exit code 1, as in a normal process
            traceback.print_exc()
            sys.stderr.flush()
            code = 1
        os._exit(code)  # a normal shutdown of the interpreter takes a second
    os._exit(0)


if __name__ == "__main__":
    serve(_run, lambda pid, _: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
