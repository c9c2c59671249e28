"""The command that writes the report of a run."""

from pathlib import Path
from typing import Annotated

import typer

from plogicnet.cli.settings import Device, Json, MemoryLimit, Run, Threads, print_json, require_folder, require_reading
from plogicnet.errors import InputError
from plogicnet.memory import limit_memory


def report(
    run: Run,
    out: Annotated[
        Path | None, typer.Option("--out", help="The HTML file; report.html in the run, unless told.")
    ] = None,
    device: Device = None,
    threads: Threads = None,
    memory_limit: MemoryLimit = None,
    as_json: Json = False,
) -> None:
    """One HTML file about a run: figures, rules, surprising predictions and mistakes, each explained."""
    limit_memory(memory_limit)
    from plogicnet.progress import for_stderr
    from plogicnet.report import write_report

    require_folder(out)
    if out is not None and out.is_dir():
        raise InputError(f"--out {out}: a directory is there; name a file")
    require_reading(run)
    options = {"device": device, "threads": threads}
    given = {key: value for key, value in options.items() if value is not None}
    file = write_report(run, out or run / "report.html", given, for_stderr())
    if as_json:
        print_json({"report": str(file)})
    else:
        print(f"report written to {file}")
