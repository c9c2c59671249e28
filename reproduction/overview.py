"""All systems of Tables 1 and 2 in one table, restricted to results on the same rules and with the same ranking."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from plogicnet.config import Config
from plogicnet.systems.system import NEURAL, system_of
from reproduction.comparison import TITLES, find_metrics, format_metric, row_state
from reproduction.results import Json
from reproduction.tables import Line, Paper, Row

TABLES = ("1", "2")
OVERVIEW_METRICS = ("mrr", "hits_at_10")
REFERENCE = "pLogicNet*"
"""The row that defines the rules of a data set."""
OTHER_RULES = "not on these rules"
ABSENT = "not in the paper"


def overview_rows(paper: Paper, results: Mapping[str, Json]) -> list[Json]:
    """Return one row per system: the printed metrics and ours on each data set, only on the data set's rules.

    Example:
        >>> from reproduction.tables import paper
        >>> [row["system"] for row in overview_rows(paper(), {})][:3]
        ['TransE', 'DistMult', 'HolE']
    """
    rows = {(row.name, row.dataset): row for row in paper.rows(*TABLES)}
    systems, datasets = (list(dict.fromkeys(key[i] for key in rows)) for i in (0, 1))
    return [
        {
            "system": system,
            "rules": _pattern_names(paper, [rows[system, d] for d in datasets if (system, d) in rows]),
            "cells": {d: _cell(paper, rows.get((system, d)), results) for d in datasets},
        }
        for system in systems
    ]


def _cell(paper: Paper, row: Row | None, results: Mapping[str, Json]) -> Json:
    if row is None:
        return {"state": ABSENT, "paper": {}}
    line = find_same_rules_line(paper, row)
    if line is None:
        return {"state": OTHER_RULES, "paper": dict(row.printed)}
    ours = find_metrics(line, results)
    about = {"state": row_state(replace(row, lines=(line,)), results), "paper": dict(row.printed)}
    return about if ours is None else about | ours.to_json()


def format_overview(rows: Sequence[Json], datasets: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Return the titles and lines of a table of the given data sets: ours, with the printed metrics in brackets."""
    columns = [(dataset, metric) for dataset in datasets for metric in OVERVIEW_METRICS]
    titles = ["system", "rules", *(f"{dataset} {TITLES[metric]}" for dataset, metric in columns)]
    cells = [[format_cell(row["cells"][dataset], metric) for dataset, metric in columns] for row in rows]
    return titles, [[row["system"], row["rules"], *line] for row, line in zip(rows, cells, strict=True)]


def format_cell(cell: Json, metric: str) -> str:
    """Return our metric, or the state of a cell without one, with the printed metric in brackets.

    Example:
        >>> format_cell({"state": "run, 1 seed", "paper": {"mrr": "0.730"}, "figures": {"mrr": 0.737}}, "mrr")
        '0.737 (0.730)'
        >>> format_cell({"state": "not run yet", "paper": {"mrr": "0.524"}}, "mrr")
        'not run yet (0.524)'
    """
    if cell["state"] == ABSENT:
        return "–"
    ours = format_metric(metric, cell["figures"].get(metric)) if "figures" in cell else cell["state"]
    return f"{ours} ({cell['paper'][metric].replace('-', '–')})" if cell["paper"] else str(ours)


def find_same_rules_line(paper: Paper, row: Row) -> Line | None:
    """Return the line like the compared one (same preset, ranking and ties) that uses the data set's rules or none.

    Return None if the row has no such line.

    Example:
        >>> from reproduction.tables import paper
        >>> row = next(r for r in paper().rows("1") if r.name == "RUGE")
        >>> [line.runs[0] for line in row.lines], find_same_rules_line(paper(), row).runs[0]
        (['fb15k-ruge', 'fb15k-ruge-same'], 'fb15k-ruge-same')
    """
    compared = next((line for line in row.lines if line.compared), None)
    if compared is None:
        return None
    presets = {paper.runs[name].preset for name in compared.runs}
    mined = _mined_rules(_reference_config(paper, row.dataset))
    for line in row.lines:
        same = (line.system, line.iteration, line.ties) == (compared.system, compared.iteration, compared.ties)
        runs = [paper.runs[name] for name in line.runs]
        if same and all(run.preset in presets and _used_rules(line, run.config()) <= mined for run in runs):
            return line
    return None


def _reference_config(paper: Paper, dataset: str) -> Config:
    row = next(row for row in paper.rows(*TABLES) if (row.name, row.dataset) == (REFERENCE, dataset))
    return paper.runs[next(line for line in row.lines if line.compared).runs[0]].config()


def _mined_rules(config: Config) -> set[tuple[object, ...]]:
    """Return each rule pattern with the settings that decide which rules are kept."""
    rules = config.rules
    return {(p, getattr(rules.min_precision, p), rules.min_support, rules.counting) for p in rules.patterns}


def _used_rules(line: Line, config: Config) -> set[tuple[object, ...]]:
    """Return the rules that influence a line's metrics: none if its neural model learned only from observed triples."""
    without_rules = not system_of(config).guides and line.system == NEURAL and line.iteration == 1
    return set() if without_rules else _mined_rules(config)


def _pattern_names(paper: Paper, rows: list[Row]) -> str:
    """Return the names of a system's rule patterns, for the table."""
    for row in rows:
        line = find_same_rules_line(paper, row)
        if line is not None:
            used = _used_rules(line, paper.runs[line.runs[0]].config())
            uses_all = used == _mined_rules(_reference_config(paper, row.dataset))
            return "all" if uses_all else ", ".join(sorted(str(pattern) for pattern, *_ in used)) or "none"
    return OTHER_RULES
