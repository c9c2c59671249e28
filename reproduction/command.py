"""The commands of `python -m reproduction`; the default command shows the tables."""

import logging
import sys
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option, Typer
from typer.core import TyperGroup

from plogicnet.cli.options import Assignments, Device, Json, Threads
from plogicnet.cli.settings import log_to_stderr, without_none
from plogicnet.cli.train import parse_seeds
from reproduction import show, training
from reproduction.page import write_pages
from reproduction.results import add_entry, collect_entries
from reproduction.selection import DOCS, RUNS, select

Tables = Annotated[list[str] | None, Argument(help="1, 2, 3, 4, 5, 8, 9, 10 or fig2. Default: all.")]
Only = Annotated[list[str] | None, Option("--only", help="Only this row, or only the run of this name.")]
Data = Annotated[list[str] | None, Option("--data", help="Only this data set.")]
Graph = Annotated[str | None, Option("--graph", help="Another graph for the same rows, for example umls.")]
Seeds = Annotated[str | None, Option("--seeds", help="Seeds, for example 0,1. Default: 0 if the run has no result.")]
Out = Annotated[Path | None, Option("--out", help=f"Directory of the runs. Default: {RUNS}/paper.")]
Results = Annotated[
    Path | None, Option("--results", help="Directory of the result files. Default: docs/results/paper.")
]
Commit = Annotated[str | None, Option("--commit", help="Commit of the source, if git is not available.")]
Sources = Annotated[list[Path], Argument(help="Run directories, or result files from another machine.")]
Page = Annotated[
    Path, Argument(help="Page to write. The discussion is read from reproduction-notes.yaml in the same directory.")
]


class DefaultTablesGroup(TyperGroup):
    """A group of commands with `tables` as the default command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default command if no command is named."""
        named = bool(args) and args[0] in (*self.commands, "--help")
        return super().parse_args(ctx, args if named else ["tables", *args])


app = Typer(cls=DefaultTablesGroup, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def start() -> None:
    """Reproduce the paper's tables. `python -m reproduction 2 --list` is short for `tables 2 --list`."""
    log_to_stderr(logging.WARNING, "plogicnet", "reproduction")


@app.command()
def tables(
    tables: Tables = None,
    as_list: Annotated[bool, Option("--list", help="Show only the state of every row.")] = False,
    only: Only = None,
    data: Data = None,
    graph: Graph = None,
    assignments: Assignments = None,
    results: Results = None,
    as_json: Json = False,
) -> None:
    """Show our results and the printed ones."""
    selection = select(tables, only, data, graph, assignments, results=results)
    waiting = show.show_tables(selection, as_list, as_json)
    if waiting:
        options = [*(["--graph", graph] if graph else []), *(f"--set {each}" for each in assignments or [])]
        command = " ".join(["python -m reproduction train", *(tables or []), *options])
        print(f"{waiting} rows have no result in {selection.results}. `{command}` trains them.", file=sys.stderr)


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
    """Train the runs without a result, after printing the cost. Then show the tables."""
    numbers = None if seeds is None else parse_seeds(seeds)
    selection = select(tables, only, data, graph, assignments, out, results)
    pending = training.find_pending(selection, numbers, without_none(device=device, threads=threads))
    training.run_trainings(selection, pending, commit)
    show.show_tables(selection, as_list=False, json=as_json)


@app.command()
def collect(
    sources: Sources,
    graph: Graph = None,
    assignments: Assignments = None,
    results: Results = None,
) -> None:
    """Add runs from another machine to the results."""
    selection = select(graph=graph, assignments=assignments, results=results)
    for source in sources:
        run, entries = collect_entries(source, selection.paper)
        for entry in entries:
            file = add_entry(selection.results, run, entry, selection.paper)
            print(f"{source}: {file}, seed {entry['seed']}", file=sys.stderr)


@app.command()
def page(file: Page = DOCS / "reproduction.md", results: Results = None) -> None:
    """Write the summary page, the appendix page with all tables, and the plot of Figure 2."""
    selection = select(results=results)
    for row in write_pages(file, selection.paper, selection.load_results()):
        print(f"{row}: far from the printed metrics, and not discussed yet", file=sys.stderr)


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
    """Show every run by EM iteration: accepted hidden triples and test MRRs."""
    show.show_history(select(tables, only, data, graph, assignments, results=results), as_json)
