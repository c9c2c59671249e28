"""The paper's printed tables and the training of each row, read from `tables.yaml`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from plogicnet.config import Config
from plogicnet.support.errors import InputError, did_you_mean


@dataclass(frozen=True)
class Run:
    """A training that provides the metrics of one or more rows.

    Example:
        >>> paper().runs["wn18rr-mln"].config().em.neural
        False
    """

    name: str
    dataset: str
    preset: str
    settings: Mapping[str, object]

    def config(self, seed: int = 0) -> Config:
        """Return the preset with the run's own settings."""
        return replace(preset(self.preset), seed=seed).with_values(self.settings)


@cache
def preset(name: str) -> Config:
    """Return a preset's settings, cached because runs are often compared by their settings.

    Example:
        >>> preset("paper/wn18-rotate").neural.model
        'RotatE'
    """
    return Config().with_preset(name)


@dataclass(frozen=True)
class Line:
    """One of our lines under a printed row.

    Attributes:
        runs: names of the runs that can provide it; the first one with a result is used.
        system: the ranking that it shows; None for counts of triples, as in Table 5.
        ties: the tie policy of the ranks.
        compared: whether it is compared with the printed metrics.
    """

    runs: tuple[str, ...]
    system: str | None
    iteration: int
    ties: str
    compared: bool

    @property
    def name(self) -> str:
        """The line's name, unique within its row; EM iteration 1 is not mentioned."""
        iteration = "" if self.iteration == 1 else f", iteration {self.iteration}"
        ties = "" if self.ties == "realistic" else f", {self.ties} ties"
        return f"{self.system or 'rules'}{iteration}{ties}"


@dataclass(frozen=True)
class Row:
    """A row of a table on one data set: the printed metrics as text, and our lines.

    Example:
        >>> next(row for row in paper().rows("10") if row.name == "RotatE").printed["mrr"]
        '0.797'
    """

    table: str
    name: str
    dataset: str
    printed: Mapping[str, str]
    lines: tuple[Line, ...]

    @property
    def key(self) -> str:
        """The row's unique key: table, name and data set."""
        return f"{self.table}/{self.name}/{self.dataset}"

    @property
    def runs(self) -> set[str]:
        """The names of the runs that can provide the row's lines."""
        return {name for line in self.lines for name in line.runs}


@dataclass(frozen=True)
class Table:
    """A table of the paper: its title, its metrics, and its rows sorted by data set."""

    key: str
    title: str
    metrics: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def heading(self) -> str:
        """The table's number and title."""
        return f"{'Figure 2' if self.key == 'fig2' else f'Table {self.key}'}: {self.title}"

    @property
    def datasets(self) -> list[str]:
        """The table's data sets, in order."""
        return list(dict.fromkeys(row.dataset for row in self.rows))


@dataclass(frozen=True)
class Paper:
    """All runs and all tables.

    Attributes:
        runs: runs by name, with the graph and settings of the user if these are given.
        original_runs: the same runs with the paper's data sets and settings.
    """

    runs: Mapping[str, Run]
    original_runs: Mapping[str, Run]
    tables: Mapping[str, Table]

    def with_overrides(self, graph: str | None, settings: Mapping[str, object]) -> "Paper":
        """Return the same tables with runs on another graph or with additional settings."""
        runs = {
            name: replace(run, dataset=graph or run.dataset, settings={**run.settings, **settings})
            for name, run in self.runs.items()
        }
        return replace(self, runs=runs)

    def rows(self, *tables: str) -> Iterator[Row]:
        """Yield the rows of the named tables, or of all tables if none is named."""
        for key in tables or self.tables:
            yield from self.table(key).rows

    def table(self, key: str) -> Table:
        """Return a table by its number, or Figure 2 by `fig2`.

        Raises:
            InputError: The table does not exist.
        """
        if key not in self.tables:
            raise InputError(
                f"unknown table {key!r}.{did_you_mean(key, list(self.tables))} Use one of {', '.join(self.tables)}."
                " Tables 6 and 7 of the paper list its data sets and settings and have no results."
            )
        return self.tables[key]

    def rows_using(self, run: str) -> list[Row]:
        """Return the rows that show metrics of a run."""
        return [row for row in self.rows() if run in row.runs]


@cache
def paper() -> Paper:
    """Return the paper's tables and runs.

    Example:
        >>> paper().table("1").datasets
        ['fb15k', 'wn18']
    """
    content = yaml.safe_load(Path(__file__).with_name("tables.yaml").read_text(encoding="utf-8"))
    runs = {
        name: Run(name, about["dataset"], about["preset"], about.get("settings", {}))
        for name, about in content["runs"].items()
    }
    return Paper(runs, runs, {key: _parse_table(key, about, runs) for key, about in content["tables"].items()})


def _parse_table(key: str, about: Mapping[str, Any], runs: Mapping[str, Run]) -> Table:
    metrics = tuple(about["metrics"])
    rows = []
    for dataset in about["datasets"]:
        for entry in about["rows"]:
            printed = entry.get("paper", {}).get(dataset)
            if printed is None and "paper" in entry:
                continue  # the paper has no results of this system on this data set
            values = dict(zip(metrics, printed.split(), strict=True)) if printed else {}
            lines = [_parse_line(dataset, line, runs) for line in entry.get("ours", [])]
            rows.append(Row(key, entry["row"], dataset, values, tuple(line for line in lines if line.runs)))
    return Table(key, about["title"], metrics, tuple(rows))


def _parse_line(dataset: str, about: Mapping[str, Any], runs: Mapping[str, Run]) -> Line:
    names = tuple(name for suffix in about["run"] if (name := f"{dataset}-{suffix}") in runs)
    not_compared = about.get("not_compared", False)
    compared = not (dataset in not_compared if isinstance(not_compared, list) else not_compared)
    return Line(names, about.get("system"), about["iteration"], about.get("ties", "realistic"), compared)
