"""The tables on the screen: ours beside the paper's, the state of each row, all systems together, every iteration."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from plogicnet.cli.settings import print_json
from plogicnet.cli.show import console, table
from plogicnet.support.errors import many
from reproduction.comparison import TITLES, as_json, shown
from reproduction.history import COLUMNS, COUNTS, NAMES, cells, history
from reproduction.overview import overview, side_by_side
from reproduction.selection import Selection
from reproduction.tables import Table

Json = Mapping[str, Any]
WIDE = 110
"""Columns of a screen on which a line has room for the full name of its run."""


def show_tables(selection: Selection, as_list: bool, json: bool) -> int:
    """Shows the selected rows, or only their states; returns how many have not been run yet."""
    tables = as_json(selection.tables, selection.rows, selection.found())
    rows, screen = [row for about in tables for row in about["rows"]], console()
    if json:
        print_json({"tables": tables})
    else:
        for about, of in zip(tables, selection.tables, strict=True):
            parts = [_states(about, of)] if as_list else _beside(about, of, selection.graph, screen.width >= WIDE)
            if about["rows"]:
                screen.print(*parts, sep="\n")
        if not as_list and selection.graph is None and any(line.get("far") for row in rows for line in row["ours"]):
            far = "more than .01 MRR from the printed figure (3 % of triples, 2 points of precision)"
            print(f"far: {far}", file=sys.stderr)
    return sum(row["state"] == "not run yet" for row in rows)


def show_together(selection: Selection, data: Sequence[str], json: bool) -> None:
    """Shows all systems in one table; the printed figures only for the paper's own data sets."""
    rows = overview(selection.paper, selection.found())
    for row in rows:
        own = {d: cell for d, cell in row["cells"].items() if not data or d in data}
        row["cells"] = own if selection.graph is None else {d: cell | {"paper": {}} for d, cell in own.items()}
    if json:
        print_json({"together": rows})
        return
    screen, names = console(), list(rows[0]["cells"])
    # side by side where the screen is wide enough, else one below the other
    for group in [names] if screen.width >= 24 + 34 * len(names) else [[name] for name in names]:
        title = "All systems of Tables 1 and 2 on the same rules: ours (the paper's)"
        screen.print(table(title, *side_by_side(rows, group)))


def show_history(selection: Selection, json: bool) -> None:
    """Shows every iteration of the selected runs: what was accepted, and below it the test MRRs."""
    runs = {run for row in selection.rows_by_name for line in row.lines for run in line.runs} | set(selection.only)
    rows = history({name: result for name, result in selection.found().items() if name in runs})
    if json:
        print_json({"history": rows})
        return
    lines, names, first = [cells(row) for row in rows], len(NAMES), len(NAMES) + len(COUNTS)
    # together they are too wide for most screens
    parts = {"Hidden triples that were accepted": slice(names, first), "Test MRR": slice(first, None)}
    for title, part in parts.items():
        kept = [[*line[:names], *line[part]] for line in lines]
        console().print(table(f"{title}, by EM iteration", [*NAMES, *COLUMNS[part]], kept))


def _states(about: Json, of: Table) -> Any:
    """The state and the runs of each row."""
    lines = []
    for row in about["rows"]:
        runs = dict.fromkeys(line["run"] if line["seeds"] else line["runs"][0] for line in row["ours"])
        lines.append([row["dataset"], row["row"], row["state"], ", ".join(runs)])
    return table(of.heading, ["data set", "row", "state", "runs"], lines)


def _beside(about: Json, of: Table, graph: str | None, wide: bool) -> Iterator[Any]:
    """One table for each data set: the printed row (there is none for another graph), then ours, marked where far."""
    for dataset in dict.fromkeys(row["dataset"] for row in about["rows"]):
        lines: list[list[str]] = []
        for row in (row for row in about["rows"] if row["dataset"] == dataset):
            theirs = graph is None and bool(row["paper"])
            if theirs:
                printed = [row["paper"].get(figure, "") for figure in of.figures]
                lines.append([row["row"], "printed", *printed, ""])
            for line in row["ours"]:
                lines.append(["" if theirs else row["row"], *_line(line, of.figures, "" if wide else f"{dataset}-")])
                lines[-1][-1] += " (far)" if theirs and line.get("far") else ""
        where = dataset if graph is None else f"{graph}, as {dataset}"
        yield table(f"{of.heading}: {where}", ["row", "", *(TITLES[f] for f in of.figures), ""], lines)


def _line(line: Json, figures: Sequence[str], prefix: str) -> list[str]:
    """The name of a line, its figures, its seeds and its run, whose name is shown without a prefix."""
    name = ", ".join(filter(None, [line["system"], f"iteration {line['iteration']}"]))
    name += "" if line["ties"] == "realistic" else f", {line['ties']} ties"
    seeds, run = ("not run yet", line["runs"][0]) if not line["seeds"] else (many(line["seeds"], "seed"), line["run"])
    values = [shown(f, line["figures"].get(f)) if line["seeds"] else "" for f in figures]
    return [name, *values, f"{seeds}, {run.removeprefix(prefix)}"]
