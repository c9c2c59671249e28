"""Comparison of our metrics with the printed ones, line by line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plogicnet.evaluation.metrics import METRICS
from plogicnet.support.errors import pluralize
from reproduction.results import Json, average_iterations
from reproduction.tables import Line, Row, Table

TOLERANCES = {"mrr": 0.01, "precision": 0.02, "accepted": 0.03}
"""The largest difference from a printed metric that needs no discussion; for `accepted`, relative to the printed count.

A line that is far from the printed metrics is marked at the first of these metrics that its table has.
"""
COUNTS = ("accepted", "precision")
"""The metrics of a line without a ranking."""
TITLES = {metric.key: metric.title.replace("Hits", "H") for metric in METRICS.values()}
TITLES |= {"accepted": "triples", "precision": "held out (%)"}
"""The title of each metric in tables."""


@dataclass(frozen=True)
class LineMetrics:
    """The metrics of a line as fractions of one (ranks and counts unchanged), and their standard deviations."""

    run: str
    seeds: int
    values: Mapping[str, float]
    sd: Mapping[str, float]

    def to_json(self) -> Json:
        """Return the metrics that tables show as JSON."""
        metrics, sd = ({k: v for k, v in part.items() if k in TITLES} for part in (self.values, self.sd))
        return {"run": self.run, "seeds": self.seeds, "figures": metrics, "sd": sd}


def find_metrics(line: Line, results: Mapping[str, Json]) -> LineMetrics | None:
    """Return the metrics of a line from the first of its runs that has them, or None if none has been run.

    Example:
        >>> find_metrics(Line(("a",), "rules", 1, "realistic", True), {}) is None
        True
    """
    for name in line.runs:
        entries = results[name]["by_seed"] if name in results else []
        at = next((at for at in average_iterations(entries) if at["iteration"] == line.iteration), None)
        if at is not None and line.system is None:
            seeds = sum(len(entry["iterations"]) >= line.iteration for entry in entries)
            return LineMetrics(name, seeds, {key: at[key] for key in COUNTS if at[key] is not None}, {})
        if at is not None and line.system in at.get("metrics", {}):
            values, sd = at["metrics"][line.system], at["sd"][line.system]
            if line.ties == "realistic":
                return LineMetrics(name, at["seeds"][line.system], values, sd)
            if line.ties in values:
                return LineMetrics(name, at["seeds"][line.system], values[line.ties], sd[line.ties])
    return None


def is_far(row: Row, line: Line, ours: LineMetrics) -> bool:
    """Return whether a compared line differs from the printed metrics by more than the tolerance.

    Example:
        >>> row = Row("1", "TransE", "fb15k", {"mrr": "0.730"}, ())
        >>> line = Line(("a",), "neural", 1, "realistic", True)
        >>> [is_far(row, line, LineMetrics("a", 1, {"mrr": mrr}, {})) for mrr in (0.72, 0.719)]
        [False, True]
    """
    for metric, tolerance in TOLERANCES.items():
        if line.compared and row.printed.get(metric, "-") != "-" and metric in ours.values:
            printed = float(row.printed[metric]) / (100 if metric == "precision" else 1)
            if abs(ours.values[metric] - printed) > tolerance * (printed if metric == "accepted" else 1) + 1e-9:
                return True
    return False


def row_is_far(row: Row, results: Mapping[str, Json]) -> bool:
    """Return whether one of a row's lines differs from the printed metrics by more than the tolerance.

    Example:
        >>> row_is_far(Row("1", "BLP", "fb15k", {}, ()), {})
        False
    """
    return any((ours := find_metrics(line, results)) is not None and is_far(row, line, ours) for line in row.lines)


def format_metric(metric: str, value: float | None) -> str:
    """Return a metric's value with the digits that the paper prints.

    Example:
        >>> values = {"mrr": 0.44, "hits_at_1": 0.398, "mr": 3408.4, "accepted": 64929}
        >>> [format_metric(metric, value) for metric, value in values.items()]
        ['0.440', '39.8', '3408', '64,929']
    """
    if value is None:
        return "–"
    if metric in ("mr", "accepted"):
        return f"{value:.0f}" if metric == "mr" else f"{value:,.0f}"
    return f"{value:.3f}" if metric == "mrr" else f"{100 * value:.{2 if metric == 'precision' else 1}f}"


def format_printed(metric: str, text: str) -> str:
    """Return a printed value for a table: a dash if the paper has none, and counts with separators.

    Example:
        >>> format_printed("accepted", "64929"), format_printed("mr", "-")
        ('64,929', '–')
    """
    if text == "-":
        return "–"
    return f"{int(text):,}" if metric == "accepted" else text


def row_state(row: Row, results: Mapping[str, Json]) -> str:
    """Return the state of a row: run (with the number of seeds), partly run, or not run yet.

    Example:
        >>> row_state(Row("1", "BLP", "fb15k", {}, ()), {})
        'not run yet'
    """
    compared = [line for line in row.lines if line.compared] or row.lines
    seeds = [ours.seeds for line in compared if (ours := find_metrics(line, results)) is not None]
    if not seeds:
        return "not run yet"
    return ("" if len(seeds) == len(compared) else "partly ") + f"run, {pluralize(min(seeds), 'seed')}"


def tables_to_json(tables: Sequence[Table], rows: Sequence[Row], results: Mapping[str, Json]) -> list[Json]:
    """Return the tables as JSON: the printed metrics and ours.

    Example:
        >>> tables_to_json([], [], {})
        []
    """
    return [
        {"table": t.key, "title": t.title, "rows": [_row_to_json(row, results) for row in rows if row.table == t.key]}
        for t in tables
    ]


def _row_to_json(row: Row, results: Mapping[str, Json]) -> Json:
    about = {"row": row.name, "dataset": row.dataset, "state": row_state(row, results), "paper": dict(row.printed)}
    return about | {"ours": [_line_to_json(row, line, find_metrics(line, results)) for line in row.lines]}


def _line_to_json(row: Row, line: Line, ours: LineMetrics | None) -> dict[str, Any]:
    about: Json = {"runs": list(line.runs), "system": line.system, "iteration": line.iteration, "ties": line.ties}
    return about | ({"seeds": 0} if ours is None else ours.to_json() | {"far": is_far(row, line, ours)})
