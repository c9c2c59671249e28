"""The paper's printed tables and the training behind each row, read from `tables.yaml`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from plogicnet.config import Config
from plogicnet.support.errors import InputError, nearest


@dataclass(frozen=True)
class Run:
    """A training that rows are read from.

    Example:
        >>> paper().runs["wn18rr-mln"].config().em.neural
        False
    """

    name: str
    dataset: str
    preset: str
    settings: Mapping[str, object]

    def config(self, seed: int = 0) -> Config:
        """The preset, then the run's own settings."""
        return replace(preset(self.preset), seed=seed).with_values(self.settings)


@cache
def preset(name: str) -> Config:
    """A preset's settings, cached: runs are often compared by their settings.

    Example:
        >>> preset("paper/wn18-rotate").neural.model
        'RotatE'
    """
    return Config().with_preset(name)


@dataclass(frozen=True)
class Line:
    """A line of ours under a printed row.

    Attributes:
        runs: the runs that it may be read from; the first that has been run is used.
        system: the ranking that it shows; None for figures without ranks, as in Table 5.
        ties: the tie policy of the ranks.
        compared: whether it is compared with the printed figures.
    """

    runs: tuple[str, ...]
    system: str | None
    iteration: int
    ties: str
    compared: bool

    @property
    def name(self) -> str:
        """Its name among the lines of its row."""
        ties = "" if self.ties == "realistic" else f", {self.ties} ties"
        return f"{self.system or 'rules'}, iteration {self.iteration}{ties}"


@dataclass(frozen=True)
class Row:
    """A row of a table on one data set: the printed figures as text, and our lines.

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
        """Its name among all rows."""
        return f"{self.table}/{self.name}/{self.dataset}"

    @property
    def runs(self) -> set[str]:
        """The names of the runs that its lines may be read from."""
        return {name for line in self.lines for name in line.runs}


@dataclass(frozen=True)
class Table:
    """A table of the paper: its title, the figures it shows, and its rows, data set by data set."""

    key: str
    title: str
    figures: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def heading(self) -> str:
        """Its number and title."""
        return f"{'Figure 2' if self.key == 'fig2' else f'Table {self.key}'}: {self.title}"

    @property
    def datasets(self) -> list[str]:
        """Its data sets, in order."""
        return list(dict.fromkeys(row.dataset for row in self.rows))


@dataclass(frozen=True)
class Paper:
    """All runs and all tables.

    Attributes:
        runs: by name, on another graph or with further settings where those are given.
        own: the same runs as the paper has them.
    """

    runs: Mapping[str, Run]
    own: Mapping[str, Run]
    tables: Mapping[str, Table]

    def altered(self, graph: str | None, settings: Mapping[str, object]) -> "Paper":
        """The same runs on another graph, and with further settings."""
        runs = {
            name: replace(run, dataset=graph or run.dataset, settings={**run.settings, **settings})
            for name, run in self.runs.items()
        }
        return replace(self, runs=runs)

    def rows(self, *tables: str) -> Iterator[Row]:
        """The rows of some tables; of all, if none is named."""
        for key in tables or self.tables:
            yield from self.table(key).rows

    def table(self, key: str) -> Table:
        """A table by its number, or fig2."""
        if key not in self.tables:
            raise InputError(
                f"no table {key!r}.{nearest(key, list(self.tables))} There are: {', '.join(self.tables)};"
                " the paper's Tables 6 and 7 are of its data sets and settings."
            )
        return self.tables[key]

    def rows_of(self, run: str) -> list[Row]:
        """The rows that show something of a run."""
        return [row for row in self.rows() if run in row.runs]


@cache
def paper() -> Paper:
    """The tables that come with the program.

    Example:
        >>> paper().table("1").datasets
        ['fb15k', 'wn18']
    """
    content = yaml.safe_load(Path(__file__).with_name("tables.yaml").read_text(encoding="utf-8"))
    runs = {
        name: Run(name, about["dataset"], about["preset"], about.get("settings", {}))
        for name, about in content["runs"].items()
    }
    return Paper(runs, runs, {key: _table(key, about, runs) for key, about in content["tables"].items()})


def _table(key: str, about: Mapping[str, Any], runs: Mapping[str, Run]) -> Table:
    figures = tuple(about["figures"])
    rows = []
    for dataset in about["datasets"]:
        for entry in about["rows"]:
            printed = entry.get("paper", {}).get(dataset)
            if printed is None and "paper" in entry:
                continue  # the paper has no such cell
            values = dict(zip(figures, printed.split(), strict=True)) if printed else {}
            lines = [_line(dataset, line, runs) for line in entry.get("ours", [])]
            rows.append(Row(key, entry["row"], dataset, values, tuple(line for line in lines if line.runs)))
    return Table(key, about["title"], figures, tuple(rows))


def _line(dataset: str, about: Mapping[str, Any], runs: Mapping[str, Run]) -> Line:
    names = tuple(name for part in about["run"] if (name := f"{dataset}-{part}") in runs)
    beside = about.get("beside", False)
    compared = not (dataset in beside if isinstance(beside, list) else beside)
    return Line(names, about.get("system"), about["iteration"], about.get("ties", "realistic"), compared)
