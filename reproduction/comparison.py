"""Ours beside the paper's: the figures of each line, and whether they are far from the printed ones."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plogicnet.evaluation.metrics import METRICS
from reproduction.results import Json, iterations_over
from reproduction.tables import Line, Row, Run, Table

NEAR = {"mrr": 0.01, "precision": 0.02}
"""A figure further than this from the printed one is discussed."""
NEAR_SHARE = {"accepted": 0.03}
"""The same, as a share of the printed one."""
FIGURE_OF_MARK = (*NEAR, *NEAR_SHARE)
"""A line that is far is marked at the first of these that its table has."""
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


def find(line: Line, results: Mapping[str, Json]) -> Found | None:
    """The figures of a line, from the first of its runs that has them; None if it is not run yet.

    Example:
        >>> find(Line(("a",), "rules", 1, "realistic", True), {}) is None
        True
    """
    for name in line.runs:
        entries = results[name]["by_seed"] if name in results else []
        for at in iterations_over(entries):
            if at["iteration"] != line.iteration:
                continue
            if line.system is None:
                seeds = sum(len(entry["iterations"]) >= line.iteration for entry in entries)
                return Found(name, seeds, {key: at[key] for key in COUNTS if at[key] is not None}, {})
            if line.system in at.get("metrics", {}):
                values, sd = at["metrics"][line.system], at["sd"][line.system]
                if line.ties != "realistic":
                    values, sd = values.get(line.ties), sd.get(line.ties)
                if values is not None:
                    return Found(name, at["seeds"][line.system], values, sd)
    return None


def far(row: Row, line: Line, found: Found) -> bool:
    """Whether a compared line is so far from the printed figures that it has to be discussed.

    Example:
        >>> row = Row("1", "TransE", "fb15k", {"mrr": "0.730"}, ())
        >>> line = Line(("a",), "neural", 1, "realistic", True)
        >>> far(row, line, Found("a", 1, {"mrr": 0.72}, {})), far(row, line, Found("a", 1, {"mrr": 0.719}, {}))
        (False, True)
    """
    if not line.compared:
        return False
    for figure, text in row.printed.items():
        if text == "-" or figure not in FIGURE_OF_MARK or figure not in found.values:
            continue
        printed = float(text) / (100 if figure == "precision" else 1)
        limit = NEAR[figure] if figure in NEAR else NEAR_SHARE[figure] * printed
        if abs(found.values[figure] - printed) > limit + 1e-9:
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
    """The state of a row: run, with how many seeds; not run yet; or not built yet.

    Example:
        >>> state(Row("1", "BLP", "fb15k", {}, ()), {})
        'not built yet'
    """
    if not row.lines:
        return "not built yet"
    compared = [line for line in row.lines if line.compared] or list(row.lines)
    found = [find(line, results) for line in compared]
    seeds = [f.seeds for f in found if f is not None]
    if not seeds:
        return "not run yet"
    return ("" if len(seeds) == len(found) else "partly ") + f"run, {min(seeds)} seed{'s' * (min(seeds) != 1)}"


def needed(rows: Iterable[Row], runs: Mapping[str, Run]) -> list[Run]:
    """The runs that rows are read from, each once.

    Example:
        >>> needed([], {})
        []
    """
    return [runs[name] for name in dict.fromkeys(line.runs[0] for row in rows for line in row.lines)]


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
    if found is None:
        return about | {"seeds": 0}
    figures = {k: v for k, v in found.values.items() if k in TITLES}
    sd = {k: v for k, v in found.sd.items() if k in TITLES}
    far_off = far(row, line, found)
    return about | {"run": found.run, "seeds": found.seeds, "figures": figures, "sd": sd, "far": far_off}
