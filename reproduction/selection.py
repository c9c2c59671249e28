"""The rows that a command selects, their graph, and the directories of their runs and results."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plogicnet.config import parse_assignments
from plogicnet.support.errors import InputError, did_you_mean
from reproduction.results import Json, matches_run, read_results
from reproduction.tables import Paper, Row, Run, Table, paper

DOCS = Path(__file__).resolve().parents[1] / "docs"
RESULTS = DOCS / "results" / "paper"
"""The directory of the committed results."""
RUNS = Path("runs")
"""The parent directory of trained runs."""


@dataclass(frozen=True)
class Selection:
    """The rows that a command selects.

    Attributes:
        paper: all runs, with the selected graph and settings.
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
        """The rows selected by their own name, without rows selected only by the name of a run."""
        names = {name.lower() for name in self.only if name not in self.paper.runs}
        return [row for row in self.rows if not self.only or row.name.lower() in names]

    @property
    def runs(self) -> list[Run]:
        """The selected runs without duplicates: first those selected by name, then those of the selected rows."""
        by_name = [name for name in self.only if name in self.paper.runs]
        of_rows = [line.runs[0] for row in self.rows_by_name for line in row.lines]
        return [self.paper.runs[name] for name in dict.fromkeys(by_name + of_rows)]

    def load_results(self) -> dict[str, Json]:
        """Return the results that match the paper's runs, by run.

        Raises:
            InputError: The selected graph has no results.
        """
        if self.graph is not None and not self.results.is_dir():
            command = f"python -m reproduction train --graph {self.graph}"
            raise InputError(f"no results on {self.graph} yet. Run `{command}` to train; it prints the cost first.")
        runs = self.paper.runs
        return {n: r for n, r in read_results(self.results).items() if n in runs and matches_run(r, runs[n])}


def select(
    tables: Sequence[str] | None = None,
    only: Sequence[str] | None = None,
    data: Sequence[str] | None = None,
    graph: str | None = None,
    assignments: Sequence[str] | None = None,
    out: Path | None = None,
    results: Path | None = None,
) -> Selection:
    """Return the selection of a command's options; an omitted option selects everything.

    Results on another graph or with other settings are stored next to their runs, not with the committed results.

    Example:
        >>> [row.name for row in select(["10"], data=["wn18"]).rows]
        ['RotatE', 'pLogicNet']
    """
    selected_paper = paper().with_overrides(graph, parse_assignments(assignments or []))
    selected_tables = tuple(selected_paper.table(key) for key in tables or selected_paper.tables)
    all_rows = [row for table in selected_tables for row in table.rows]
    rows = _filter_rows(all_rows, selected_paper, only or (), data or ())
    out = out or RUNS / ("paper" if graph is None else f"paper-on-{Path(graph).name}")
    results = results or (out / "results" if graph or assignments else RESULTS)
    return Selection(selected_paper, selected_tables, rows, tuple(only or ()), graph, out, results)


def _filter_rows(rows: Sequence[Row], paper: Paper, only: Sequence[str], data: Sequence[str]) -> tuple[Row, ...]:
    """Return the rows with one of the given names or runs, and one of the given data sets."""
    known = {row.name.lower() for row in rows} | set(paper.runs)
    for name in only:
        if name.lower() not in known:
            raise InputError(f"--only {name}: unknown row or run.{did_you_mean(name, sorted(known))}")
    datasets = {row.dataset for row in rows}
    for name in data:
        if name not in datasets:
            raise InputError(
                f"--data {name}: not a data set of these tables. Use one of {', '.join(sorted(datasets))}."
            )
    wanted = {name.lower() for name in only}
    if wanted:
        rows = [row for row in rows if wanted & {row.name.lower(), *row.runs}]
    return tuple(row for row in rows if not data or row.dataset in data)
