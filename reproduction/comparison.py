"""Ours beside the paper's: the figures of each line, and whether they are far from the printed ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plogicnet.evaluation.metrics import METRICS
from plogicnet.support.errors import many
from reproduction.results import Json, iterations_over
from reproduction.tables import Line, Row, Table

NEAR = {"mrr": 0.01, "precision": 0.02, "accepted": 0.03}
"""A figure further than this from the printed one is discussed; `accepted` is a share of the printed one.

A line that is far is marked at the first of these that its table has.
"""
COUNTS = ("accepted", "precision")
"""What a line without a system shows."""
TITLES = {metric.key: metric.title.replace("Hits", "H") for metric in METRICS.values()}
TITLES |= {"accepted": "triples", "precision": "precision"}
"""The title of each figure, as the paper prints it."""


@dataclass(frozen=True)
class Found:
    """The figures of a line: shares of one (ranks and counts as they are), with their standard deviations."""

    run: str
    seeds: int
    values: Mapping[str, float]
    sd: Mapping[str, float]

    def to_json(self) -> Json:
        """The figures that tables have."""
        figures, sd = ({k: v for k, v in part.items() if k in TITLES} for part in (self.values, self.sd))
        return {"run": self.run, "seeds": self.seeds, "figures": figures, "sd": sd}


def find(line: Line, results: Mapping[str, Json]) -> Found | None:
    """The figures of a line, from the first of its runs that has them; None if it is not run yet.

    Example:
        >>> find(Line(("a",), "rules", 1, "realistic", True), {}) is None
        True
    """
    for name in line.runs:
        entries = results[name]["by_seed"] if name in results else []
        at = next((at for at in iterations_over(entries) if at["iteration"] == line.iteration), None)
        if at is not None and line.system is None:
            seeds = sum(len(entry["iterations"]) >= line.iteration for entry in entries)
            return Found(name, seeds, {key: at[key] for key in COUNTS if at[key] is not None}, {})
        if at is not None and line.system in at.get("metrics", {}):
            values, sd = at["metrics"][line.system], at["sd"][line.system]
            if line.ties == "realistic":
                return Found(name, at["seeds"][line.system], values, sd)
            if line.ties in values:
                return Found(name, at["seeds"][line.system], values[line.ties], sd[line.ties])
    return None


def far(row: Row, line: Line, found: Found) -> bool:
    """Whether a compared line is so far from the printed figures that it has to be discussed.

    Example:
        >>> row = Row("1", "TransE", "fb15k", {"mrr": "0.730"}, ())
        >>> line = Line(("a",), "neural", 1, "realistic", True)
        >>> far(row, line, Found("a", 1, {"mrr": 0.72}, {})), far(row, line, Found("a", 1, {"mrr": 0.719}, {}))
        (False, True)
    """
    for figure, limit in NEAR.items():
        if line.compared and row.printed.get(figure, "-") != "-" and figure in found.values:
            printed = float(row.printed[figure]) / (100 if figure == "precision" else 1)
            if abs(found.values[figure] - printed) > limit * (printed if figure == "accepted" else 1) + 1e-9:
                return True
    return False


def shown(figure: str, value: float | None) -> str:
    """A figure as the paper prints it.

    Example:
        >>> shown("mrr", 0.44), shown("hits_at_1", 0.398), shown("mr", 3408.4), shown("accepted", 64929)
        ('0.440', '39.8', '3408', '64929')
    """
    if value is None:
        return "–"
    if figure in ("mr", "accepted"):
        return f"{value:.0f}"
    return f"{value:.3f}" if figure == "mrr" else f"{100 * value:.{2 if figure == 'precision' else 1}f}"


def state(row: Row, results: Mapping[str, Json]) -> str:
    """The state of a row: run, with how many seeds, or not run yet.

    Example:
        >>> state(Row("1", "BLP", "fb15k", {}, ()), {})
        'not run yet'
    """
    compared = [line for line in row.lines if line.compared] or row.lines
    seeds = [found.seeds for line in compared if (found := find(line, results)) is not None]
    if not seeds:
        return "not run yet"
    return ("" if len(seeds) == len(compared) else "partly ") + f"run, {many(min(seeds), 'seed')}"


def as_json(tables: Sequence[Table], rows: Sequence[Row], results: Mapping[str, Json]) -> list[Json]:
    """The tables as JSON: the printed figures and ours.

    Example:
        >>> as_json([], [], {})
        []
    """
    return [
        {"table": t.key, "title": t.title, "rows": [_row(row, results) for row in rows if row.table == t.key]}
        for t in tables
    ]


def _row(row: Row, results: Mapping[str, Json]) -> Json:
    about = {"row": row.name, "dataset": row.dataset, "state": state(row, results), "paper": dict(row.printed)}
    return about | {"ours": [_line(row, line, find(line, results)) for line in row.lines]}


def _line(row: Row, line: Line, found: Found | None) -> dict[str, Any]:
    about: Json = {"runs": list(line.runs), "system": line.system, "iteration": line.iteration, "ties": line.ties}
    return about | ({"seeds": 0} if found is None else found.to_json() | {"far": far(row, line, found)})
