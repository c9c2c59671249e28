"""All systems of Tables 1 and 2 in one table: on the same rules, by the same ranking, or not at all."""

from collections.abc import Mapping

from plogicnet.config import Config
from plogicnet.reproduction.comparison import TITLES, find, state
from plogicnet.reproduction.results import Json
from plogicnet.reproduction.tables import Line, Paper, Row

TABLES = ("1", "2")
FIGURES = ("mrr", "hits_at_10")
REFERENCE = "pLogicNet*"
"""The row whose rules are the data set's."""
OTHER_RULES = "not on these rules"
ABSENT = "not in the paper"


def overview(paper: Paper, results: Mapping[str, Json]) -> list[Json]:
    """A row a system, with what is printed and what is found on each data set; nothing is shown of other rules.

    Example:
        >>> from plogicnet.reproduction.tables import paper
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
    found = None if line is None else find(line, results)
    if line is None or found is None:
        return {"state": OTHER_RULES if line is None else "not run yet", "paper": dict(row.printed)}
    alone = Row(row.table, row.name, row.dataset, row.printed, (line,))
    figures, sd = ({k: v for k, v in part.items() if k in TITLES} for part in (found.values, found.sd))
    about = {"state": state(alone, results), "paper": dict(row.printed), "run": found.run, "seeds": found.seeds}
    return about | {"figures": figures, "sd": sd}


def same_rules_line(paper: Paper, row: Row) -> Line | None:
    """The line of a row that is made as the compared one is, but on the data set's rules (or on none); None without.

    What stands beside a row by another preset, another tie policy or another way of ranking is not taken.

    Example:
        >>> from plogicnet.reproduction.tables import paper
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
    """Each pattern of rules with all that decides which of them are kept."""
    rules = config.rules
    return {(p, getattr(rules.min_precision, p), rules.min_support, rules.counting) for p in rules.patterns}


def _used(line: Line, config: Config) -> set[tuple[object, ...]]:
    """What of the rules a line's figures hang on: nothing, where vectors have learned from observed triples alone."""
    alone = config.system == "plogicnet" and line.system == "embedding" and line.iteration == 1
    return set() if alone else _mined(config)


def _named(paper: Paper, rows: list[Row]) -> str:
    """The rules of a system in words."""
    for row in rows:
        line = same_rules_line(paper, row)
        if line is not None:
            used = _used(line, paper.runs[line.runs[0]].config())
            whole = used == _mined(_reference(paper, row.dataset))
            return "all" if whole else ", ".join(sorted(str(pattern) for pattern, *_ in used)) or "none"
    return OTHER_RULES
