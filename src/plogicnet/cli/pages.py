"""The commands `report` and `serve`."""

import re
import sys
from pathlib import Path
from typing import Annotated

from typer import Option

from plogicnet.cli import options
from plogicnet.cli.settings import load_run, print_json, require_folder
from plogicnet.support.errors import InputError
from plogicnet.support.progress import for_stderr

HOST = re.compile(r"[\w.:\[\]-]+")
TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,200}")
Host = Annotated[str, Option("--host", help="Address to listen on. Addresses other than loopback need a token.")]
Token = Annotated[
    str | None,
    Option("--token", envvar="PLOGICNET_TOKEN", help="Access token. Generated if a token is required but not given."),
]
AllowHost = Annotated[
    list[str] | None,
    Option(
        "--allow-host",
        help="Additional host name, such as that of a proxy. Needs a token. Can be repeated.",
    ),
]


def report(
    run: options.Run,
    out: Annotated[Path | None, Option("--out", help="HTML file. Default: report.html in the run directory.")] = None,
    snapshot: options.Snapshot = None,
    device: options.Device = None,
    threads: options.Threads = None,
    _memory_limit: options.MemoryLimit = None,
    as_json: options.Json = False,
) -> None:
    """Write an HTML report: metrics, rules, predictions and errors, with explanations."""
    from plogicnet.report import write_report

    require_folder(out)
    if out is not None and out.is_dir():
        raise InputError(f"--out {out}: this is a directory. Use a file name.")
    model = load_run(run, device, threads, snapshot)
    file = write_report(model, run, out or run / "report.html", for_stderr())
    if as_json:
        print_json({"report": str(file)})
    else:
        print(f"Report written to {file}.")


def serve(
    run: options.Run,
    host: Host = "127.0.0.1",
    port: Annotated[int, Option("--port", min=0, max=65535, help="Port to listen on. 0: any free port.")] = 8000,
    token: Token = None,
    allow_host: AllowHost = None,
    snapshot: options.Snapshot = None,
    device: options.Device = None,
    threads: options.Threads = None,
    _memory_limit: options.MemoryLimit = None,
) -> None:
    """Serve a page to explore a run, and a REST API, until Ctrl-C.

    When another snapshot of the run is published, it is served from then on, except with --snapshot.
    """
    from plogicnet.runs.snapshots import current_snapshot

    try:
        from plogicnet.web import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("fastapi", "uvicorn", "starlette", "h11"):
            raise
        raise InputError("`serve` needs FastAPI and uvicorn. Install them with: pip install 'plogicnet[web]'") from None
    if token is not None and not TOKEN.fullmatch(token):
        raise InputError("--token must have 16 to 200 characters: letters, digits, and . _ ~ -")
    for name in allow_host or []:
        if not HOST.fullmatch(name):
            raise InputError(f"--allow-host {name}: expected only a host name, such as graphs.example")

    def announce(address: str) -> None:
        print(f"Serving {run} at {address}", flush=True)
        print("Press Ctrl-C to stop.", file=sys.stderr)

    follow = snapshot is None
    source = server.ModelSource(
        lambda: load_run(run, device, threads, snapshot), (lambda: current_snapshot(run)) if follow else None
    )
    server.serve(source, host, port, token, allow_host or [], announce)
    print("plogicnet: stopped", file=sys.stderr)
