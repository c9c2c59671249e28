"""The command that writes the report of a run."""

from pathlib import Path
from typing import Annotated

import typer

from plogicnet.cli.settings import (
    Device,
    Json,
    MemoryLimit,
    Run,
    Threads,
    on_this_machine,
    print_json,
    require_folder,
    require_reading,
)
from plogicnet.support.errors import InputError
from plogicnet.support.memory import limit_memory


def report(
    run: Run,
    out: Annotated[Path | None, typer.Option("--out", help="The HTML file; default report.html in the run.")] = None,
    device: Device = None,
    threads: Threads = None,
    memory_limit: MemoryLimit = None,
    as_json: Json = False,
) -> None:
    """One HTML file about a run: figures, rules, surprising predictions and mistakes, each explained."""
    limit_memory(memory_limit)
    from plogicnet.report import write_report
    from plogicnet.support.progress import for_stderr

    require_folder(out)
    if out is not None and out.is_dir():
        raise InputError(f"--out {out}: a directory is there; name a file")
    require_reading(run)
    file = write_report(run, out or run / "report.html", on_this_machine(device, threads), for_stderr())
    if as_json:
        print_json({"report": str(file)})
    else:
        print(f"report written to {file}")
