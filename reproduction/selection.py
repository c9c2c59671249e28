"""What a command is about: which rows of the tables, on which graph, and where their runs and results are."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plogicnet.config import parse_assignments
from plogicnet.support.errors import InputError, nearest
from reproduction.results import Json, is_of, read_results
from reproduction.tables import Paper, Row, Run, Table, paper

DOCS = Path(__file__).resolve().parents[1] / "docs"
RESULTS = DOCS / "results" / "paper"
"""The committed results."""
RUNS = Path("runs")
"""The parent directory of trained runs."""


@dataclass(frozen=True)
class Selection:
    """The rows that a command is about.

    Attributes:
        paper: all runs, on the selected graph and with the selected settings.
        tables: the selected tables.
        rows: their rows that match the selected names and data sets.
        only: the selected names of rows and runs; empty for all.
        graph: the graph that replaces the paper's data sets, if any.
        out: the directory of the runs.
        results: the directory of the result files.
    """

    paper: Paper
    tables: tuple[Table, ...]
    rows: tuple[Row, ...]
    only: tuple[str, ...]
    graph: str | None
    out: Path
    results: Path

    @property
    def rows_by_name(self) -> list[Row]:
        """The rows that are selected by their own name, not by the name of a run that they show."""
        names = {name.lower() for name in self.only if name not in self.paper.runs}
        return [row for row in self.rows if not self.only or row.name.lower() in names]

    @property
    def runs(self) -> list[Run]:
        """The selected runs, each once: those selected by name, then those that selected rows are read from."""
        named = [name for name in self.only if name in self.paper.runs]
        read = [line.runs[0] for row in self.rows_by_name for line in row.lines]
        return [self.paper.runs[name] for name in dict.fromkeys(named + read)]

    def found(self) -> dict[str, Json]:
        """The results of the paper's runs, by run.

        Raises:
            InputError: Nothing has been run on the selected graph.
        """
        if self.graph is not None and not self.results.is_dir():
            again = f"python -m reproduction train --graph {self.graph}"
            raise InputError(f"nothing has been run on {self.graph} yet; `{again}` prints the cost and trains")
        runs = self.paper.runs
        return {n: r for n, r in read_results(self.results).items() if n in runs and is_of(r, runs[n])}


def select(
    tables: Sequence[str] | None = None,
    only: Sequence[str] | None = None,
    data: Sequence[str] | None = None,
    graph: str | None = None,
    assignments: Sequence[str] | None = None,
    out: Path | None = None,
    results: Path | None = None,
) -> Selection:
    """The selection of a command's options; what is not given selects all.

    Results of another graph or other settings are kept beside their runs, not among the committed results.

    Example:
        >>> [row.name for row in select(["10"], data=["wn18"]).rows]
        ['RotatE', 'pLogicNet']
    """
    altered = paper().altered(graph, parse_assignments(assignments or []))
    chosen = tuple(altered.table(key) for key in tables or altered.tables)
    rows = _matching([row for table in chosen for row in table.rows], altered, only or (), data or ())
    out = out or RUNS / ("paper" if graph is None else f"paper-on-{Path(graph).name}")
    results = results or (out / "results" if graph or assignments else RESULTS)
    return Selection(altered, chosen, rows, tuple(only or ()), graph, out, results)


def _matching(rows: Sequence[Row], whole: Paper, only: Sequence[str], data: Sequence[str]) -> tuple[Row, ...]:
    """The rows with one of these names or runs, and one of these data sets."""
    known = {row.name.lower() for row in rows} | set(whole.runs)
    for name in only:
        if name.lower() not in known:
            raise InputError(f"--only {name}: no such row or run here.{nearest(name, sorted(known))}")
    sets = {row.dataset for row in rows}
    for name in data:
        if name not in sets:
            raise InputError(f"--data {name}: not a data set of these tables; there are {', '.join(sorted(sets))}")
    wanted = {name.lower() for name in only}
    if wanted:
        rows = [row for row in rows if wanted & {row.name.lower(), *row.runs}]
    return tuple(row for row in rows if not data or row.dataset in data)
