"""All systems of Tables 1 and 2 in one table: on the same rules, by the same ranking, or not at all."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from plogicnet.config import Config
from plogicnet.systems.system import NEURAL, system_of
from reproduction.comparison import TITLES, find, shown, state
from reproduction.results import Json
from reproduction.tables import Line, Paper, Row

TABLES = ("1", "2")
FIGURES = ("mrr", "hits_at_10")
REFERENCE = "pLogicNet*"
"""The row whose rules define those of the data set."""
OTHER_RULES = "not on these rules"
ABSENT = "not in the paper"


def overview(paper: Paper, results: Mapping[str, Json]) -> list[Json]:
    """One row for each system: the printed figures and ours on each data set, on the data set's rules only.

    Example:
        >>> from reproduction.tables import paper
        >>> [row["system"] for row in overview(paper(), {})][:3]
        ['TransE', 'DistMult', 'HolE']
    """
    rows = {(row.name, row.dataset): row for row in paper.rows(*TABLES)}
    systems, datasets = (list(dict.fromkeys(key[i] for key in rows)) for i in (0, 1))
    return [
        {
            "system": system,
            "rules": _named(paper, [rows[system, d] for d in datasets if (system, d) in rows]),
            "cells": {d: _cell(paper, rows.get((system, d)), results) for d in datasets},
        }
        for system in systems
    ]


def _cell(paper: Paper, row: Row | None, results: Mapping[str, Json]) -> Json:
    if row is None:
        return {"state": ABSENT, "paper": {}}
    line = same_rules_line(paper, row)
    if line is None:
        return {"state": OTHER_RULES, "paper": dict(row.printed)}
    found = find(line, results)
    about = {"state": state(replace(row, lines=(line,)), results), "paper": dict(row.printed)}
    return about if found is None else about | found.to_json()


def side_by_side(rows: Sequence[Json], datasets: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """The titles and the lines of a table of some data sets: ours, with the printed figures in brackets."""
    places = [(dataset, figure) for dataset in datasets for figure in FIGURES]
    titles = ["system", "rules", *(f"{dataset} {TITLES[figure]}" for dataset, figure in places)]
    return titles, [[row["system"], row["rules"], *(beside(row["cells"][d], f) for d, f in places)] for row in rows]


def beside(cell: Json, figure: str) -> str:
    """Ours, or why there is none, with the printed figure in brackets.

    Example:
        >>> beside({"state": "run, 1 seed", "paper": {"mrr": "0.730"}, "figures": {"mrr": 0.737}}, "mrr")
        '0.737 (0.730)'
        >>> beside({"state": "not run yet", "paper": {"mrr": "0.524"}}, "mrr")
        'not run yet (0.524)'
    """
    if cell["state"] == ABSENT:
        return "–"
    ours = shown(figure, cell["figures"].get(figure)) if "figures" in cell else cell["state"]
    return f"{ours} ({cell['paper'][figure].replace('-', '–')})" if cell["paper"] else str(ours)


def same_rules_line(paper: Paper, row: Row) -> Line | None:
    """The line of a row with the preset, ranking and ties of the compared one, on the data set's rules or on none.

    None where the row has no such line.

    Example:
        >>> from reproduction.tables import paper
        >>> row = next(r for r in paper().rows("1") if r.name == "RUGE")
        >>> [line.runs[0] for line in row.lines], same_rules_line(paper(), row).runs[0]
        (['fb15k-ruge', 'fb15k-ruge-same'], 'fb15k-ruge-same')
    """
    compared = next((line for line in row.lines if line.compared), None)
    if compared is None:
        return None
    presets = {paper.runs[name].preset for name in compared.runs}
    mined = _mined(_reference(paper, row.dataset))
    for line in row.lines:
        alike = (line.system, line.iteration, line.ties) == (compared.system, compared.iteration, compared.ties)
        runs = [paper.runs[name] for name in line.runs]
        if alike and all(run.preset in presets and _used(line, run.config()) <= mined for run in runs):
            return line
    return None


def _reference(paper: Paper, dataset: str) -> Config:
    row = next(row for row in paper.rows(*TABLES) if (row.name, row.dataset) == (REFERENCE, dataset))
    return paper.runs[next(line for line in row.lines if line.compared).runs[0]].config()


def _mined(config: Config) -> set[tuple[object, ...]]:
    """Each pattern of rules with the settings that decide which of them are kept."""
    rules = config.rules
    return {(p, getattr(rules.min_precision, p), rules.min_support, rules.counting) for p in rules.patterns}


def _used(line: Line, config: Config) -> set[tuple[object, ...]]:
    """The rules that decide a line's figures; none, where a neural model learned from the observed triples alone."""
    alone = not system_of(config).guides and line.system == NEURAL and line.iteration == 1
    return set() if alone else _mined(config)


def _named(paper: Paper, rows: list[Row]) -> str:
    """The rule patterns of a system, for the table."""
    for row in rows:
        line = same_rules_line(paper, row)
        if line is not None:
            used = _used(line, paper.runs[line.runs[0]].config())
            whole = used == _mined(_reference(paper, row.dataset))
            return "all" if whole else ", ".join(sorted(str(pattern) for pattern, *_ in used)) or "none"
    return OTHER_RULES
