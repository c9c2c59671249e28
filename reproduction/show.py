"""Terminal output: the comparison with the paper, the state of each row, all systems together, every iteration."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from plogicnet.cli.settings import print_json
from plogicnet.cli.show import console, table
from plogicnet.support.errors import pluralize
from reproduction.comparison import TITLES, format_metric, format_printed, tables_to_json
from reproduction.history import COLUMNS, COUNT_COLUMNS, RUN_COLUMNS, format_row, history_rows
from reproduction.overview import format_overview, overview_rows
from reproduction.selection import Selection
from reproduction.tables import Table

Json = Mapping[str, Any]
WIDE = 110
"""Width of a terminal, in columns, that can show the full names of runs."""


def show_tables(selection: Selection, as_list: bool, json: bool) -> int:
    """Print the selected rows, or only their states; return the number of rows that have not been run yet."""
    tables = tables_to_json(selection.tables, selection.rows, selection.load_results())
    rows, screen = [row for about in tables for row in about["rows"]], console()
    if json:
        print_json({"tables": tables})
    else:
        for about, of in zip(tables, selection.tables, strict=True):
            wide = screen.width >= WIDE
            parts = [_state_table(about, of)] if as_list else _comparison_tables(about, of, selection.graph, wide)
            if about["rows"]:
                screen.print(*parts, sep="\n")
        if not as_list and selection.graph is None and any(line.get("far") for row in rows for line in row["ours"]):
            limits = "more than 0.01 MRR from the printed metric (Table 5: 3% of triples, 2 points of their percentage)"
            print(f"far: {limits}", file=sys.stderr)
    return sum(row["state"] == "not run yet" for row in rows)


def show_together(selection: Selection, data: Sequence[str], json: bool) -> None:
    """Print all systems in one table, with the printed metrics only for the paper's own data sets."""
    rows = overview_rows(selection.paper, selection.load_results())
    for row in rows:
        cells = {d: cell for d, cell in row["cells"].items() if not data or d in data}
        row["cells"] = cells if selection.graph is None else {d: cell | {"paper": {}} for d, cell in cells.items()}
    if json:
        print_json({"together": rows})
        return
    screen, names = console(), list(rows[0]["cells"])
    # one table per data set if the terminal is too narrow for all
    for group in [names] if screen.width >= 24 + 34 * len(names) else [[name] for name in names]:
        title = "All systems of Tables 1 and 2 on the same rules: ours (the paper's)"
        screen.print(table(title, *format_overview(rows, group)))


def show_history(selection: Selection, json: bool) -> None:
    """Print every iteration of the selected runs: a table of accepted triples and a table of test MRRs."""
    runs = {run for row in selection.rows_by_name for line in row.lines for run in line.runs} | set(selection.only)
    rows = history_rows({name: result for name, result in selection.load_results().items() if name in runs})
    if json:
        print_json({"history": rows})
        return
    lines, names = [format_row(row) for row in rows], len(RUN_COLUMNS)
    first_mrr = names + len(COUNT_COLUMNS)
    # one table with all columns is too wide for most terminals
    parts = {"Hidden triples that were accepted": slice(names, first_mrr), "Test MRR": slice(first_mrr, None)}
    for title, part in parts.items():
        cells = [[*line[:names], *line[part]] for line in lines]
        console().print(table(f"{title}, by EM iteration", [*RUN_COLUMNS, *COLUMNS[part]], cells))


def _state_table(about: Json, of: Table) -> Any:
    """Return a table of the state and the runs of each row."""
    lines = []
    for row in about["rows"]:
        runs = dict.fromkeys(line["run"] if line["seeds"] else line["runs"][0] for line in row["ours"])
        lines.append([row["dataset"], row["row"], row["state"], ", ".join(runs)])
    return table(of.heading, ["data set", "row", "state", "runs"], lines)


def _comparison_tables(about: Json, of: Table, graph: str | None, wide: bool) -> Iterator[Any]:
    """Yield one table per data set: for each row the printed line (only on the paper's data sets), then our lines."""
    for dataset in dict.fromkeys(row["dataset"] for row in about["rows"]):
        lines: list[list[str]] = []
        for row in (row for row in about["rows"] if row["dataset"] == dataset):
            has_printed = graph is None and bool(row["paper"])
            if has_printed:
                printed = [format_printed(metric, row["paper"][metric]) for metric in of.metrics]
                lines.append([row["row"], "printed", *printed, ""])
            for line in row["ours"]:
                prefix = "" if wide else f"{dataset}-"
                lines.append(["" if has_printed else row["row"], *_format_line(line, of.metrics, prefix)])
                lines[-1][-1] += " (far)" if has_printed and line.get("far") else ""
        source = dataset if graph is None else f"{graph}, settings of {dataset}"
        yield table(f"{of.heading}: {source}", ["row", "", *(TITLES[m] for m in of.metrics), ""], lines)


def _format_line(line: Json, metrics: Sequence[str], prefix: str) -> list[str]:
    """Return the name of a line, its metrics, and its seeds with the run's name without a prefix."""
    name = ", ".join(filter(None, [line["system"], f"iteration {line['iteration']}"]))
    name += "" if line["ties"] == "realistic" else f", {line['ties']} ties"
    seeds, run = (
        ("not run yet", line["runs"][0]) if not line["seeds"] else (pluralize(line["seeds"], "seed"), line["run"])
    )
    values = [format_metric(m, line["figures"].get(m)) if line["seeds"] else "" for m in metrics]
    return [name, *values, f"{seeds}, {run.removeprefix(prefix)}"]
