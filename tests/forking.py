"""The real program in a process of its own, without the seconds that importing torch takes: forked from one that has.

The server that forks has imported everything and computed nothing, so it has no other threads; each child goes through
`plogicnet.cli.main` with arguments, directory, environment and memory of its own. How a process ends after that, its
exit code aside, is for tests that start the program afresh.
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
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

LONGEST = 120.0
"""Seconds after which a child is taken for hanging."""


def program(
    *words: object, cwd: Path | None = None, memory: int | None = None, data: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """The program with these words; `memory` bounds its addresses, in bytes, and `data` is where benchmarks are."""
    server, folder = _server()
    given = {k: v for k, v in os.environ.items() if k != "PLOGICNET_DATA"} | {"NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
    given |= env | ({} if data is None else {"PLOGICNET_DATA": str(data)})
    asked = [str(word) for word in words]
    request = {"words": asked, "cwd": str(cwd or Path.cwd()), "env": given, "memory": memory, "said": folder}
    print(json.dumps(request), file=server.stdin, flush=True)
    assert server.stdout is not None
    code = json.loads(server.stdout.readline())
    out, err = ((Path(folder) / name).read_bytes().decode() for name in ("out", "err"))
    if code == -signal.SIGALRM:
        raise subprocess.TimeoutExpired(asked, LONGEST, out, err)
    return subprocess.CompletedProcess(asked, code, out, err)


@functools.cache
def _server() -> tuple[subprocess.Popen[str], str]:
    folder = tempfile.TemporaryDirectory(prefix="forking-")
    one_thread = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command, pipe = [sys.executable, __file__], subprocess.PIPE
    server = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8", env=one_thread)
    vars(server)["folder"] = folder  # kept as long as the server is
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    return server, folder.name


def _become(request: dict[str, Any]) -> int:
    """Makes this process the program that was asked for; gives its exit code."""
    from plogicnet import cli

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(LONGEST))
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    said = (os.open(f"{request['said']}/{name}", flags) for name in ("out", "err"))
    for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), *said)):
        os.dup2(file, number)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if request["memory"]:
        resource.setrlimit(resource.RLIMIT_AS, (request["memory"], request["memory"]))
    sys.argv = ["plogicnet", *request["words"]]
    try:
        cli.main()
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        return int(end.code or 0)
    raise AssertionError("the program ends by an exit code")


def serve(become: Callable[[dict[str, Any]], int], attend: Callable[[int, dict[str, Any]], object]) -> None:
    """Forks a child for each request on stdin, until that ends; the answer is what `attend` gives with its number.

    A child becomes the program: what `become` gives is its exit code.
    """
    import filelock  # noqa: F401
    import torch._dynamo  # noqa: F401  # which the first optimiser would import

    import plogicnet.cli.app
    import plogicnet.cli.show
    import plogicnet.model
    import plogicnet.report.page  # noqa: F401

    others = [file for file in Path("/proc/self/task").glob("*/comm") if file.parent.name != str(os.getpid())]
    if threads := {file.read_text().strip() for file in others} - {"jemalloc_bg_thd"}:  # that one knows of forks
        raise SystemExit(f"a process with other threads must not be forked: {threads}")
    gc.freeze()  # a child need not copy what it only inherits
    print("ready", flush=True)
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        if pid := os.fork():
            print(json.dumps(attend(pid, request)), flush=True)
            continue
        try:
            code = become(request)
        except BaseException:  # what escapes the program ends in a traceback, as it would
            traceback.print_exc()
            sys.stderr.flush()
            code = 1
        os._exit(code)  # an interpreter with all this in it takes a second to take itself apart
    os._exit(0)


if __name__ == "__main__":
    serve(_become, lambda pid, _: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
