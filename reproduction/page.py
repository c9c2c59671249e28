"""The page of all tables, made from the results and a written discussion; and the plot of Figure 2."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import yaml

from plogicnet.support.errors import InputError
from plogicnet.support.files import replacing, write_text
from reproduction.comparison import NEAR, TITLES, Found, far, find, shown, state
from reproduction.history import COLUMNS, cells, history
from reproduction.overview import overview, side_by_side
from reproduction.results import Json
from reproduction.tables import Line, Paper, Row, Table

log = logging.getLogger(__name__)
PLOT = "images/convergence.svg"
OVERVIEW = "overview"
"""The key of the note on all systems together."""
HISTORY = "history"
"""The key of the note on every run by EM iteration."""
HEADING = """<!-- made by `python -m reproduction page`; edit reproduction-notes.yaml instead -->
# The paper, reproduced

"""


@dataclass(frozen=True)
class Notes:
    """The written discussion of the figures.

    Attributes:
        opening: how to read the page.
        tables: a text for each table.
        cells: a text for each row, by its key.
    """

    opening: str
    tables: Mapping[str, str]
    cells: Mapping[str, str]


def read_notes(file: Path, paper: Paper) -> Notes:
    """Reads the discussion; empty where there is no such file. A row that no table has is an error.

    Example:
        >>> from reproduction.tables import paper
        >>> read_notes(Path("nowhere.yaml"), paper()).cells
        {}
    """
    content = yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else {}
    known = {row.key for row in paper.rows()}
    cells: dict[str, str] = {}
    for note in content.get("discussion", []):
        for cell in note["cells"]:
            if cell not in known or cell in cells:
                raise InputError(f"{file}: {cell!r} {'is discussed twice' if cell in cells else 'is no row'}")
            cells[cell] = note["text"].strip()
    return Notes(content.get("opening", "").strip(), content.get("tables", {}), cells)


def undiscussed(paper: Paper, results: Mapping[str, Json], notes: Notes) -> list[str]:
    """The rows that are far from the printed figures and not discussed.

    Example:
        >>> from reproduction.tables import paper
        >>> undiscussed(paper(), {}, Notes("", {}, {}))
        []
    """
    return [row.key for row in paper.rows() if row.key not in notes.cells and _is_far(row, results)]


def _is_far(row: Row, results: Mapping[str, Json]) -> bool:
    return any((found := find(line, results)) is not None and far(row, line, found) for line in row.lines)


def page(paper: Paper, results: Mapping[str, Json], notes: Notes) -> str:
    """The page in Markdown.

    Example:
        >>> from reproduction.tables import paper
        >>> page(paper(), {}, Notes("", {}, {})).splitlines()[1]
        '# The paper, reproduced'
    """
    rows = overview(paper, results)
    titles, lines = side_by_side(rows, list(rows[0]["cells"]))
    systems = [[f"**{_text(name)}**", *line] for name, *line in lines]
    together = _markdown(["", *titles[1:]], systems, words=2)
    every = _markdown([_text(title) for title in COLUMNS], map(cells, history(results)))
    parts = [HEADING + notes.opening, _summary(paper, results)]
    parts += ["## All systems together", *_section(OVERVIEW, notes), together]
    for table in paper.tables.values():
        parts += [f"## {_text(table.heading)}", *_section(table.key, notes)]
        if table.key == "fig2" and convergence(table, results):
            parts.append(f"![Hits@1 by EM iteration]({PLOT})")
        parts += [_grid(table, dataset, results) for dataset in table.datasets]
        parts += _discussion(table, results, notes)
    parts += ["## Every run, by EM iteration", *_section(HISTORY, notes), every]
    return "\n\n".join(parts) + "\n"


def _section(key: str, notes: Notes) -> list[str]:
    """The note at the head of a part of the page."""
    return [notes.tables[key].strip()] if key in notes.tables else []


def _markdown(titles: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """A table whose first columns hold words, and the others numbers."""
    marks = "|" + "---|" * words + "--:|" * (len(titles) - words)
    head, *lines = [f"| {' | '.join(cells)} |" for cells in (titles, *rows)]
    return "\n".join([head, marks, *lines])


def _summary(paper: Paper, results: Mapping[str, Json]) -> str:
    rows = []
    for table in paper.tables.values():
        missing = sum(state(row, results) == "not run yet" for row in table.rows)
        counts = (len(table.rows), len(table.rows) - missing, sum(_is_far(row, results) for row in table.rows), missing)
        rows.append([_text(table.heading), *map(str, counts)])
    return _markdown(["table", "rows", "run", "far, discussed below", "not run yet"], rows)


def _grid(table: Table, dataset: str, results: Mapping[str, Json]) -> str:
    """The rows of one data set: the printed figures, then our lines."""
    titles = [TITLES[figure] for figure in table.figures]
    lines = [f"| {dataset} | | {' | '.join(titles)} | seeds | |", "|---|---|" + "--:|" * (len(titles) + 1) + "---|"]
    for row in (row for row in table.rows if row.dataset == dataset):
        below = []
        if row.printed:
            printed = [row.printed[figure].replace("-", "–") for figure in table.figures]
            below.append(f"printed | {' | '.join(printed)} | |  |")
        below += [_ours(table.figures, row, line, find(line, results)) for line in row.lines]
        lines += [f"| {f'**{_text(row.name)}**' if line is below[0] else ''} | {line}" for line in below]
    return "\n".join(lines)


def _ours(figures: Sequence[str], row: Row, line: Line, found: Found | None) -> str:
    if found is None:
        return f"{_text(line.name)} | {' | '.join('' for _ in figures)} | | not run yet: {line.runs[0]} |"
    cells = [_cell(figure, found) for figure in figures]
    if far(row, line, found):
        at = next(i for i, figure in enumerate(figures) if figure in NEAR)
        cells[at] += " †"
    source = f"[{found.run}](results/paper/{found.run}.json)"
    return f"{_text(line.name)} | {' | '.join(cells)} | {found.seeds} | {source} |"


def _cell(figure: str, found: Found) -> str:
    value = shown(figure, found.values.get(figure))
    return value if found.seeds == 1 or figure not in found.sd else f"{value} ± {shown(figure, found.sd[figure])}"


def _text(name: str) -> str:
    return name.replace("*", "\\*")


def _discussion(table: Table, results: Mapping[str, Json], notes: Notes) -> list[str]:
    """The discussion of a table's rows; rows with the same text share a paragraph."""
    texts: dict[str, list[Row]] = {}
    for row in table.rows:
        text = notes.cells.get(row.key, "† Not discussed yet." if _is_far(row, results) else "")
        if text:
            texts.setdefault(text, []).append(row)
    return [
        f"**{'; '.join(f'{_text(row.name)}, {row.dataset}' for row in rows)}.** {text}" for text, rows in texts.items()
    ]


def convergence(table: Table, results: Mapping[str, Json]) -> dict[str, dict[str, list[float]]]:
    """The curves of Figure 2: for each data set and run, Hits@1 in % after each measured EM iteration.

    Example:
        >>> from reproduction.tables import paper
        >>> convergence(paper().table("fig2"), {})
        {}
    """
    curves: dict[str, dict[str, list[float]]] = {}
    for row in table.rows:
        for line in row.lines:
            if (found := find(line, results)) is not None:
                points = curves.setdefault(row.dataset, {}).setdefault(found.run, [])
                points.append(100 * found.values["hits_at_1"])
    whole = {dataset: {run: p for run, p in runs.items() if len(p) > 1} for dataset, runs in curves.items()}
    return {dataset: runs for dataset, runs in whole.items() if runs}


def draw(curves: Mapping[str, Mapping[str, Sequence[float]]], file: Path) -> None:
    """Draws the curves, one panel for each data set, as SVG; the same curves give the same bytes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context({"svg.hashsalt": "plogicnet", "font.size": 9}):
        figure, panels = pyplot.subplots(1, len(curves), figsize=(3.6 * len(curves), 2.7), squeeze=False)
        for panel, (dataset, runs) in zip(panels[0], curves.items(), strict=True):
            for run, points in runs.items():
                panel.plot(range(1, len(points) + 1), points, marker="o", label=run)
            panel.set(title=dataset, xlabel="EM iteration", ylabel="Hits@1 of pLogicNet*, %")
            panel.set_xticks(range(1, max(len(points) for points in runs.values()) + 1))
            panel.legend(frameon=False)
        figure.tight_layout()
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as beside:
            figure.savefig(beside, format="svg", metadata={"Date": None})
        pyplot.close(figure)


def write_page(file: Path, paper: Paper, results: Mapping[str, Json]) -> list[str]:
    """Writes the page, and its plot where matplotlib is installed; returns the rows that have to be discussed.

    The discussion is read from reproduction-notes.yaml beside the page.
    """
    notes = read_notes(file.with_name("reproduction-notes.yaml"), paper)
    write_text(file, page(paper, results, notes))
    curves = convergence(paper.table("fig2"), results)
    if curves and find_spec("matplotlib"):
        draw(curves, file.parent / PLOT)
    elif curves:
        log.warning("%s is not drawn: pip install 'plogicnet[plots]'", file.parent / PLOT)
    return undiscussed(paper, results, notes)
