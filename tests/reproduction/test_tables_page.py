"""The two pages on the reproduction equal the output of the command, and discuss every row that is far."""

import re
from pathlib import Path

import pytest

from plogicnet.support.errors import InputError
from reproduction.comparison import row_is_far
from reproduction.page import (
    Notes,
    appendix_page,
    convergence_curves,
    draw_curves,
    find_undiscussed,
    read_notes,
    summary_page,
    write_pages,
)
from reproduction.results import read_results
from reproduction.tables import paper

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"reproduction.md": summary_page, "reproduction-appendix.md": appendix_page}
METRIC_KEYS = ("mr", "mrr", "hits_at_1", "hits_at_3", "hits_at_10")


def star(values: list[float]) -> dict[str, object]:
    """Return a result with one pLogicNet* iteration per value."""
    lines = [
        {"iteration": i, "metrics": {"plogicnet*": dict.fromkeys(METRIC_KEYS, v)}} for i, v in enumerate(values, 1)
    ]
    return {"by_seed": [{"seed": 0, "iterations": lines}]}


@pytest.mark.parametrize("name", PAGES)
def test_page_is_the_output_of_the_command(name: str) -> None:
    """Run `python -m reproduction page` if this fails."""
    notes = read_notes(DOCS / "reproduction-notes.yaml", paper())
    written = PAGES[name](paper(), read_results(DOCS / "results" / "paper"), notes)
    assert (DOCS / name).read_text(encoding="utf-8") == written


def test_every_row_that_is_far_has_a_discussion() -> None:
    """Add a discussion to docs/reproduction-notes.yaml if this fails."""
    notes = read_notes(DOCS / "reproduction-notes.yaml", paper())
    assert find_undiscussed(paper(), read_results(DOCS / "results" / "paper"), notes) == []


def test_appendix_discusses_every_row_that_is_far_under_its_table() -> None:
    text = (DOCS / "reproduction-appendix.md").read_text(encoding="utf-8")
    sections = dict(zip(paper().tables, text.split("\n## ")[1:], strict=True))
    results = read_results(DOCS / "results" / "paper")
    for table in paper().tables.values():
        section = sections[table.key]
        named = "; ".join(re.findall(r"^\*\*(.+?)\.\*\* \w", section, flags=re.MULTILINE))
        far = [row for row in table.rows if row_is_far(row, results)]
        assert section.count(" †") == len(far)
        for row in far if "Every marked row is discussed under Table 1." not in section else []:
            assert f"{row.name}, {row.dataset}".replace("*", "\\*") in named, row.key


def test_appendix_shows_every_row_and_every_run() -> None:
    text = (DOCS / "reproduction-appendix.md").read_text(encoding="utf-8")
    rows = list(paper().rows())
    assert text.count("\n| **") == len(rows)
    assert len(re.findall(r"\]\(results/paper/.+\.json\)", text)) == sum(len(row.lines) for row in rows)


def test_summary_is_short() -> None:
    assert len((DOCS / "reproduction.md").read_text(encoding="utf-8").split()) <= 1500


@pytest.mark.parametrize("name", PAGES)
def test_link_targets_exist(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    for part in text.split("](")[1:]:
        target = part.split(")")[0]
        assert "://" in target or (DOCS / target).exists(), target


def test_row_that_is_far_is_marked_and_needs_a_discussion() -> None:
    results = {"wn18rr-transe": star([0.3, 0.42])}
    far = ["2/pLogicNet*/wn18rr", "4/TransE, pLogicNet*/wn18rr"]
    assert find_undiscussed(paper(), results, Notes()) == far
    text = appendix_page(paper(), results, Notes())
    assert "| 0.420 (0.441) † |" in text
    assert text.count("Not discussed yet") == 2
    notes = Notes(by_row=dict.fromkeys(far, "Because."))
    assert find_undiscussed(paper(), results, notes) == []
    text = appendix_page(paper(), results, notes)
    assert "**pLogicNet\\*, wn18rr.** Because." in text
    assert "**TransE, pLogicNet\\*, wn18rr.** Discussed under Table 2." in text
    near = appendix_page(paper(), {"wn18rr-transe": star([0.3, 0.44])}, Notes())
    assert "†" not in near


def test_rows_without_a_result() -> None:
    text = appendix_page(paper(), {}, Notes())
    assert "| **TransE** | neural | – (3410) | – (0.223) | – (1.3) | – (40.1) | – (53.1) | not run yet:" in text


def test_invalid_discussions_raise(tmp_path: Path) -> None:
    file = tmp_path / "notes.yaml"
    file.write_text("discussions: [{rows: [1/TransE/fb15], text: x}]")
    with pytest.raises(InputError, match=r"'1/TransE/fb15' is not a row"):
        read_notes(file, paper())
    file.write_text("discussions: [{rows: [1/TransE/fb15k, 1/TransE/fb15k], text: x}]")
    with pytest.raises(InputError, match="discussed twice"):
        read_notes(file, paper())


def test_convergence_plot_is_deterministic(tmp_path: Path) -> None:
    results = {"wn18-transe": star([0.9, 0.94, 0.95]), "fb15k-transe": star([0.8])}
    curves = convergence_curves(paper().table("fig2"), results)
    assert curves == {"wn18": {"wn18-transe": pytest.approx([90.0, 94.0, 95.0])}}
    pytest.importorskip("matplotlib")
    for name in ("a.svg", "b.svg"):
        draw_curves(curves, tmp_path / "images" / name)
    a, b = (tmp_path / "images" / name for name in ("a.svg", "b.svg"))
    assert a.read_bytes() == b.read_bytes()
    assert a.read_text().count("wn18-transe") >= 1


def test_pages_contain_the_notes(tmp_path: Path) -> None:
    notes = "opening: Read this first.\nappendix: Read this second.\nby_table: {'2': About this table.}\n"
    (tmp_path / "reproduction-notes.yaml").write_text(notes)
    undiscussed = write_pages(tmp_path / "page.md", paper(), {"wn18rr-transe": star([0.3, 0.42])})
    assert undiscussed == ["2/pLogicNet*/wn18rr", "4/TransE, pLogicNet*/wn18rr"]
    summary = (tmp_path / "page.md").read_text(encoding="utf-8")
    appendix = (tmp_path / "reproduction-appendix.md").read_text(encoding="utf-8")
    assert "Read this first." in summary
    assert "Read this second." in appendix
    assert "About this table." in appendix
