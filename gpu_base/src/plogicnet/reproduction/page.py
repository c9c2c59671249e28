"""The page of all tables, made of the results and of a discussion that people write; and the plot of Figure 2."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import yaml

from plogicnet.errors import InputError
from plogicnet.files import replacing, write_text
from plogicnet.reproduction.comparison import FIGURE_OF_MARK, TITLES, Found, far, find, shown, state
from plogicnet.reproduction.history import COLUMNS, cells, history
from plogicnet.reproduction.overview import ABSENT, FIGURES, overview
from plogicnet.reproduction.results import Json
from plogicnet.reproduction.tables import Line, Paper, Row, Table

log = logging.getLogger(__name__)
PLOT = "images/convergence.svg"
OVERVIEW = "overview"
"""What the text on all systems together is called among the notes."""
HISTORY = "history"
"""And the text on every run by EM iteration."""
HEADING = """<!-- made by `plogicnet reproduce --write docs/reproduction.md`; edit reproduction-notes.yaml instead -->
# The paper, reproduced

"""


@dataclass(frozen=True)
class Notes:
    """What people say of the figures.

    Attributes:
        opening: how to read the page.
        tables: a text for each table.
        cells: a text for each row, by its key.
    """

    opening: str
    tables: Mapping[str, str]
    cells: Mapping[str, str]


def read_notes(file: Path, paper: Paper) -> Notes:
    """The discussion; none where there is no such file. A row that no table has is an error.

    Example:
        >>> from plogicnet.reproduction.tables import paper
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
    """The rows that are far from the printed figures and of which nothing is said.

    Example:
        >>> from plogicnet.reproduction.tables import paper
        >>> undiscussed(paper(), {}, Notes("", {}, {}))
        []
    """
    return [row.key for row in paper.rows() if row.key not in notes.cells and _is_far(row, results)]


def _is_far(row: Row, results: Mapping[str, Json]) -> bool:
    return any((found := find(line, results)) is not None and far(row, line, found) for line in row.lines)


def page(paper: Paper, results: Mapping[str, Json], notes: Notes) -> str:
    """The page in Markdown.

    Example:
        >>> from plogicnet.reproduction.tables import paper
        >>> page(paper(), {}, Notes("", {}, {})).splitlines()[1]
        '# The paper, reproduced'
    """
    parts = [HEADING + notes.opening, _summary(paper, results)]
    parts += ["## All systems together", *_section(OVERVIEW, notes), _together(overview(paper, results))]
    for table in paper.tables.values():
        parts += [f"## {_title(table)}", *_section(table.key, notes)]
        if table.key == "fig2" and convergence(table, results):
            parts.append(f"![Hits@1 by EM iteration]({PLOT})")
        parts += [_grid(table, dataset, results) for dataset in table.datasets]
        parts += _discussion(table, results, notes)
    parts += ["## Every run, by EM iteration", *_section(HISTORY, notes), _history(history(results))]
    return "\n\n".join(parts) + "\n"


def _section(key: str, notes: Notes) -> list[str]:
    """What is said at the head of a part of the page."""
    return [notes.tables[key].strip()] if key in notes.tables else []


def _history(rows: Sequence[Json]) -> str:
    """A row an iteration of a run."""
    titles = [_text(title) for title in COLUMNS]
    lines = [f"| {' | '.join(titles)} |", "|---|" + "--:|" * (len(titles) - 1)]
    return "\n".join(lines + [f"| {' | '.join(cells(row))} |" for row in rows])


def _title(table: Table) -> str:
    title = _text(table.title)
    return f"Figure 2: {title}" if table.key == "fig2" else f"Table {table.key}: {title}"


def _summary(paper: Paper, results: Mapping[str, Json]) -> str:
    lines = ["| table | rows | run | far, discussed below | not run yet | not built yet |", "|---|--:|--:|--:|--:|--:|"]
    for table in paper.tables.values():
        states = [state(row, results) for row in table.rows]
        missing, unbuilt = states.count("not run yet"), states.count("not built yet")
        counts = (len(states), len(states) - missing - unbuilt, sum(_is_far(row, results) for row in table.rows))
        lines.append(f"| {_title(table)} | " + " | ".join(str(n) for n in (*counts, missing, unbuilt)) + " |")
    return "\n".join(lines)


def _together(rows: Sequence[Json]) -> str:
    """A row a system, a column a data set's figure: ours, and what is printed in brackets."""
    titles = [f"{dataset} {TITLES[figure]}" for dataset in rows[0]["cells"] for figure in FIGURES]
    lines = [f"| | rules | {' | '.join(titles)} |", "|---|---|" + "--:|" * len(titles)]
    for row in rows:
        cells = [beside(cell, figure) for cell in row["cells"].values() for figure in FIGURES]
        lines.append(f"| **{_text(row['system'])}** | {row['rules']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def beside(cell: Json, figure: str) -> str:
    """Ours with the printed figure in brackets; or why there is none of ours.

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


def _grid(table: Table, dataset: str, results: Mapping[str, Json]) -> str:
    """One data set's rows: what is printed, then our lines."""
    titles = [TITLES[figure] for figure in table.figures]
    lines = [f"| {dataset} | | {' | '.join(titles)} | seeds | |", "|---|---|" + "--:|" * (len(titles) + 1) + "---|"]
    for row in (row for row in table.rows if row.dataset == dataset):
        below = []
        if row.printed:
            printed = [row.printed[figure].replace("-", "–") for figure in table.figures]
            below.append(f"printed | {' | '.join(printed)} | | {'' if row.lines else 'not built yet'} |")
        below += [_ours(table.figures, row, line, find(line, results)) for line in row.lines]
        lines += [f"| {f'**{_text(row.name)}**' if line is below[0] else ''} | {line}" for line in below]
    return "\n".join(lines)


def _ours(figures: Sequence[str], row: Row, line: Line, found: Found | None) -> str:
    if found is None:
        return f"{_text(line.name)} | {' | '.join('' for _ in figures)} | | not run yet: {line.runs[0]} |"
    cells = [_cell(figure, found) for figure in figures]
    if far(row, line, found):
        at = next(i for i, figure in enumerate(figures) if figure in FIGURE_OF_MARK)
        cells[at] += " †"
    source = f"[{found.run}](results/paper/{found.run}.json)"
    return f"{_text(line.name)} | {' | '.join(cells)} | {found.seeds} | {source} |"


def _cell(figure: str, found: Found) -> str:
    value = shown(figure, found.values.get(figure))
    return value if found.seeds == 1 or figure not in found.sd else f"{value} ± {shown(figure, found.sd[figure])}"


def _text(name: str) -> str:
    return name.replace("*", "\\*")


def _discussion(table: Table, results: Mapping[str, Json], notes: Notes) -> list[str]:
    """What is said of a table's rows; rows of which the same is said stand together."""
    said: dict[str, list[Row]] = {}
    for row in table.rows:
        text = notes.cells.get(row.key, "† Not discussed yet." if _is_far(row, results) else "")
        if text:
            said.setdefault(text, []).append(row)
    return [
        f"**{'; '.join(f'{_text(row.name)}, {row.dataset}' for row in rows)}.** {text}" for text, rows in said.items()
    ]


def convergence(table: Table, results: Mapping[str, Json]) -> dict[str, dict[str, list[float]]]:
    """Figure 2's curves: of each data set, by run, Hits@1 in % after each EM iteration that has been measured.

    Example:
        >>> from plogicnet.reproduction.tables import paper
        >>> convergence(paper().table("fig2"), {})
        {}
    """
    curves: dict[str, dict[str, list[float]]] = {}
    for row in table.rows:
        for line in row.lines:
            found = find(line, results)
            if found is not None:
                points = curves.setdefault(row.dataset, {}).setdefault(found.run, [])
                points.append(100 * found.values["hits_at_1"])
    return {
        dataset: whole for dataset, runs in curves.items() if (whole := {r: p for r, p in runs.items() if len(p) > 1})
    }


def draw(curves: Mapping[str, Mapping[str, Sequence[float]]], file: Path) -> None:
    """Draws the curves, a panel a data set, as SVG that is the same each time.

    Example:
        >>> draw({"wn18": {"wn18-transe": [90.0, 93.9, 94.0]}}, Path("docs/images/convergence.svg"))  # doctest: +SKIP
    """
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
    """Writes the page, and the plot beside it where matplotlib is; gives back the rows that wait for a discussion.

    The discussion is read from reproduction-notes.yaml beside the page.

    Example:
        >>> write_page(Path("docs/reproduction.md"), paper(), results)  # doctest: +SKIP
    """
    notes = read_notes(file.with_name("reproduction-notes.yaml"), paper)
    write_text(file, page(paper, results, notes))
    curves = convergence(paper.table("fig2"), results)
    if curves and find_spec("matplotlib"):
        draw(curves, file.parent / PLOT)
    elif curves:
        log.warning("%s is not drawn: pip install 'plogicnet[plots]'", file.parent / PLOT)
    return undiscussed(paper, results, notes)
