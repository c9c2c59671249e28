"""The commands `runs list` and `runs revert`."""

from dataclasses import asdict
from typing import Annotated

from typer import Argument, Option, Typer

from plogicnet.cli import options, show
from plogicnet.cli.settings import print_json
from plogicnet.support.errors import pluralize, quote_argument

runs = Typer(help="List the snapshots of a run, and go back to an earlier one.", no_args_is_help=True)


@runs.command("list")
def list_runs(run: options.Run, as_json: options.Json = False) -> None:
    """List the snapshots of a run, oldest first."""
    from plogicnet.runs.directory import LOCK_FILE, has_unfinished_training
    from plogicnet.runs.snapshots import list_snapshots
    from plogicnet.support.files import is_locked

    snapshots, unfinished = list_snapshots(run), has_unfinished_training(run)
    if as_json:
        current = next((s.name for s in snapshots if s.current), None)
        rows_json = [asdict(s) for s in snapshots]
        print_json({"current": current, "unfinished_training": unfinished, "snapshots": rows_json})
        return
    rows = [
        [
            f"{s.name} *" if s.current else s.name,
            "" if s.published is None else s.published[:16].replace("T", " "),
            s.command or "",
            "" if s.rules is None else f"{s.rules:,}",
            "" if s.mrr is None else f"{s.mrr:.3f} ({s.split})",
            f"{s.bytes / 2**20:,.1f}",
        ]
        for s in snapshots
    ]
    columns = ["snapshot", "published (UTC)", "command", "rules", "MRR", "MB"]
    show.console().print(show.table(f"{pluralize(len(rows), 'snapshot')}, * current", columns, rows))
    if is_locked(run, LOCK_FILE):
        print("Another process is writing to this run.")
    elif unfinished:
        print(f"The run contains an unfinished training. Continue with: plogicnet resume {quote_argument(run)}")


@runs.command("revert")
def revert_run(
    run: options.Run,
    name: Annotated[str, Argument(help="Name of a snapshot, as `runs list` shows it.")],
    keep: Annotated[int | None, Option("--keep", min=1, help="Number of snapshots to keep. Default: all.")] = None,
    as_json: options.Json = False,
) -> None:
    """Publish the content of an earlier snapshot again. An unfinished training is discarded."""
    from plogicnet.runs.lifecycle import revert

    current = revert(run, name, keep)
    if as_json:
        print_json({"run": str(run), "current": current})
    elif current == name:
        print(f"Snapshot {name} is the current one.")
    else:
        print(f"Snapshot {current} of {run} is the current one, with the content of {name}.")
