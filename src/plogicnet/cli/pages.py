"""The commands that make pages of a run: report, and serve with its REST interface."""

import re
import sys
from pathlib import Path
from typing import Annotated

from typer import Option

from plogicnet.cli import options
from plogicnet.cli.settings import given, load_run, print_json, require_folder, require_reading
from plogicnet.support.errors import InputError
from plogicnet.support.progress import for_stderr

HOST = re.compile(r"[\w.:\[\]-]+")
TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,200}")
Host = Annotated[
    str, Option("--host", help="The address to listen on; others than this machine's own ask for a token.")
]
Token = Annotated[
    str | None,
    Option("--token", envvar="PLOGICNET_TOKEN", help="What requests must show; made up where it is needed."),
]
AllowHost = Annotated[
    list[str] | None,
    Option("--allow-host", help="A further name of this server, as a proxy's; any number of times. Asks for a token."),
]


def report(
    run: options.Run,
    out: Annotated[Path | None, Option("--out", help="The HTML file; default report.html in the run.")] = None,
    device: options.Device = None,
    threads: options.Threads = None,
    _memory_limit: options.MemoryLimit = None,
    as_json: options.Json = False,
) -> None:
    """One HTML file about a run: figures, rules, surprising predictions and mistakes, each explained."""
    from plogicnet.report import write_report

    require_folder(out)
    if out is not None and out.is_dir():
        raise InputError(f"--out {out}: a directory is there; name a file")
    require_reading(run)
    file = write_report(run, out or run / "report.html", given(device=device, threads=threads), for_stderr())
    if as_json:
        print_json({"report": str(file)})
    else:
        print(f"report written to {file}")


def serve(
    run: options.Run,
    host: Host = "127.0.0.1",
    port: Annotated[int, Option("--port", min=0, max=65535, help="0: any free one.")] = 8000,
    token: Token = None,
    allow_host: AllowHost = None,
    device: options.Device = None,
    threads: options.Threads = None,
    _memory_limit: options.MemoryLimit = None,
) -> None:
    """The page to explore a run, and its REST interface, until Ctrl-C."""
    try:
        from plogicnet.web import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("fastapi", "uvicorn", "starlette", "h11"):
            raise
        raise InputError("serving needs FastAPI and uvicorn; install them with: pip install 'plogicnet[web]'") from None
    if token is not None and not TOKEN.fullmatch(token):
        raise InputError("--token: 16 to 200 letters, digits and any of . _ ~ -")
    for name in allow_host or []:
        if not HOST.fullmatch(name):
            raise InputError(f"--allow-host {name}: a host's name alone, as graphs.example")

    def announce(address: str) -> None:
        print(f"serving {run} at {address}", flush=True)
        print("Ctrl-C ends it", file=sys.stderr)

    server.serve(lambda: load_run(run, device, threads), host, port, token, allow_host or [], announce)
    print("plogicnet: stopped", file=sys.stderr)
