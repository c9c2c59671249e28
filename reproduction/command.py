"""The commands of `python -m reproduction`; without a command's name, the tables are shown."""

import logging
import sys
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option, Typer
from typer.core import TyperGroup

from plogicnet.cli.options import Assignments, Device, Json, Threads
from plogicnet.cli.settings import given, log_to_stderr
from plogicnet.cli.train import parse_seeds
from reproduction import show, training
from reproduction.page import write_page
from reproduction.results import add_entry, collected
from reproduction.selection import DOCS, RUNS, select

Tables = Annotated[list[str] | None, Argument(help="1, 2, 3, 4, 5, 8, 9, 10, fig2; default: all.")]
Only = Annotated[list[str] | None, Option("--only", help="Only this row; or a run's name: that run alone.")]
Data = Annotated[list[str] | None, Option("--data", help="Only this data set.")]
Graph = Annotated[str | None, Option("--graph", help="The same rows on another graph, as umls.")]
Seeds = Annotated[str | None, Option("--seeds", help="The seeds, as 0,1; default: 0 where no seed has been run.")]
Out = Annotated[Path | None, Option("--out", help=f"The directory of the runs; default: {RUNS}/paper.")]
Results = Annotated[
    Path | None, Option("--results", help="The directory of the result files; default: docs/results/paper.")
]
Commit = Annotated[str | None, Option("--commit", help="The commit of the source, where git does not know it.")]
Places = Annotated[list[Path], Argument(help="Run directories, or result files made elsewhere.")]
Page = Annotated[Path, Argument(help="The page; reproduction-notes.yaml beside it holds the discussion.")]


class ShowsTables(TyperGroup):
    """A group of commands that shows the tables where no command is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Puts the name of the default command before arguments without one."""
        named = bool(args) and args[0] in (*self.commands, "--help")
        return super().parse_args(ctx, args if named else ["tables", *args])


app = Typer(cls=ShowsTables, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def start() -> None:
    """The paper's tables, ours beside theirs; `python -m reproduction 2 --list` is short for `tables 2 --list`."""
    log_to_stderr(logging.WARNING, "plogicnet", "reproduction")


@app.command()
def tables(
    tables: Tables = None,
    as_list: Annotated[bool, Option("--list", help="The state of every row.")] = False,
    only: Only = None,
    data: Data = None,
    graph: Graph = None,
    assignments: Assignments = None,
    results: Results = None,
    as_json: Json = False,
) -> None:
    """Show what has been run beside what the paper prints."""
    selection = select(tables, only, data, graph, assignments, results=results)
    waiting = show.show_tables(selection, as_list, as_json)
    if waiting:
        altered = [*(["--graph", graph] if graph else []), *(f"--set {each}" for each in assignments or [])]
        again = " ".join(["python -m reproduction train", *(tables or []), *altered])
        print(f"{waiting} rows have no result in {selection.results}; `{again}` trains them", file=sys.stderr)


@app.command()
def train(
    tables: Tables = None,
    only: Only = None,
    data: Data = None,
    seeds: Seeds = None,
    graph: Graph = None,
    assignments: Assignments = None,
    out: Out = None,
    results: Results = None,
    commit: Commit = None,
    device: Device = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Train what has not been run, after printing its cost; then show the tables."""
    numbers = None if seeds is None else parse_seeds(seeds)
    selection = select(tables, only, data, graph, assignments, out, results)
    pending = training.pending(selection, numbers, given(device=device, threads=threads))
    training.train(selection, pending, commit)
    show.show_tables(selection, as_list=False, json=as_json)


@app.command()
def collect(
    places: Places,
    graph: Graph = None,
    assignments: Assignments = None,
    results: Results = None,
) -> None:
    """Add runs that were made elsewhere to the results."""
    selection = select(graph=graph, assignments=assignments, results=results)
    for place in places:
        run, entries = collected(place, selection.paper)
        for entry in entries:
            file = add_entry(selection.results, run, entry, selection.paper)
            print(f"{place}: {file}, seed {entry['seed']}", file=sys.stderr)


@app.command()
def page(file: Page = DOCS / "reproduction.md", results: Results = None) -> None:
    """Write the page of all tables, and the plot of Figure 2."""
    selection = select(results=results)
    for row in write_page(file, selection.paper, selection.found()):
        print(f"{row}: far from the printed figures, and not discussed yet", file=sys.stderr)


@app.command()
def together(
    data: Data = None,
    graph: Graph = None,
    assignments: Assignments = None,
    results: Results = None,
    as_json: Json = False,
) -> None:
    """Show all systems of Tables 1 and 2 in one table, on the same rules."""
    show.show_together(select(["1", "2"], None, data, graph, assignments, results=results), data or [], as_json)


@app.command()
def history(
    tables: Tables = None,
    only: Only = None,
    data: Data = None,
    graph: Graph = None,
    assignments: Assignments = None,
    results: Results = None,
    as_json: Json = False,
) -> None:
    """Show every run by EM iteration: what was accepted, and test MRRs."""
    show.show_history(select(tables, only, data, graph, assignments, results=results), as_json)
