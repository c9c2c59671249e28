"""The command that serves a run: the page and the REST interface."""

import re
import sys
from typing import Annotated

import typer

from plogicnet.cli.settings import Device, MemoryLimit, Run, Threads
from plogicnet.errors import InputError
from plogicnet.memory import limit_memory

HOST = re.compile(r"[\w.:\[\]-]+")
TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,200}")


def serve(
    run: Run,
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on; others than this machine's own ask for a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option("--token", envvar="PLOGICNET_TOKEN", help="What requests must show; made up where it is needed."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", help="A further name of this server, as a proxy's; any number of times. Asks for a token."
        ),
    ] = None,
    device: Device = None,
    threads: Threads = None,
    memory_limit: MemoryLimit = None,
) -> None:
    """The page to explore a run, and its REST interface, until Ctrl-C."""
    limit_memory(memory_limit)
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

    from plogicnet.cli.train import load_run

    def announce(address: str) -> None:
        print(f"serving {run} at {address}", flush=True)
        print("Ctrl-C ends it", file=sys.stderr)

    server.serve(lambda: load_run(run, device, threads), host, port, token, allow_host or [], announce)
    print("plogicnet: stopped", file=sys.stderr)
