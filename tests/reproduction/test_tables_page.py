"""docs/reproduction.md is what the command prints from the results, and says something of every figure that is far."""

from pathlib import Path

import pytest

from plogicnet.support.errors import InputError
from reproduction.page import Notes, convergence, draw, page, read_notes, undiscussed, write_page
from reproduction.results import read_results
from reproduction.tables import paper

DOCS = Path(__file__).parents[2] / "docs"
FIGURES = ("mr", "mrr", "hits_at_1", "hits_at_3", "hits_at_10")


def star(values: list[float]) -> dict[str, object]:
    lines = [{"iteration": i, "metrics": {"plogicnet*": dict.fromkeys(FIGURES, v)}} for i, v in enumerate(values, 1)]
    return {"by_seed": [{"seed": 0, "iterations": lines}]}


def test_the_page_is_what_the_command_writes() -> None:
    """If this fails: python -m reproduction page."""
    notes = read_notes(DOCS / "reproduction-notes.yaml", paper())
    written = page(paper(), read_results(DOCS / "results" / "paper"), notes)
    assert (DOCS / "reproduction.md").read_text(encoding="utf-8") == written


def test_every_figure_that_is_far_is_discussed() -> None:
    """If this fails: say why in docs/reproduction-notes.yaml."""
    notes = read_notes(DOCS / "reproduction-notes.yaml", paper())
    assert undiscussed(paper(), read_results(DOCS / "results" / "paper"), notes) == []


def test_the_pages_pictures_are_there() -> None:
    text = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    for part in text.split("](")[1:]:
        target = part.split(")")[0]
        assert "://" in target or (DOCS / target).is_file(), target


def test_a_figure_that_is_far_is_marked_and_asks_for_words() -> None:
    results = {"wn18rr-transe": star([0.3, 0.42])}
    silent = Notes("", {}, {})
    assert undiscussed(paper(), results, silent) == ["2/pLogicNet*/wn18rr", "4/TransE, pLogicNet*/wn18rr"]
    text = page(paper(), results, silent)
    assert "0.420 †" in text
    assert "Not discussed yet" in text
    said = Notes("", {}, dict.fromkeys(undiscussed(paper(), results, silent), "Because."))
    assert undiscussed(paper(), results, said) == []
    assert "**pLogicNet\\*, wn18rr.** Because." in page(paper(), results, said)
    near = page(paper(), {"wn18rr-transe": star([0.3, 0.44])}, silent)
    assert "†" not in near


def test_a_note_on_a_row_that_is_not_there_is_told(tmp_path: Path) -> None:
    file = tmp_path / "notes.yaml"
    file.write_text("discussion: [{cells: [1/TransE/fb15], text: x}]")
    with pytest.raises(InputError, match=r"'1/TransE/fb15' is no row"):
        read_notes(file, paper())
    file.write_text("discussion: [{cells: [1/TransE/fb15k, 1/TransE/fb15k], text: x}]")
    with pytest.raises(InputError, match="discussed twice"):
        read_notes(file, paper())


def test_convergence_is_drawn_the_same_each_time(tmp_path: Path) -> None:
    results = {"wn18-transe": star([0.9, 0.94, 0.95]), "fb15k-transe": star([0.8])}
    curves = convergence(paper().table("fig2"), results)
    assert curves == {"wn18": {"wn18-transe": pytest.approx([90.0, 94.0, 95.0])}}
    pytest.importorskip("matplotlib")
    for name in ("a.svg", "b.svg"):
        draw(curves, tmp_path / "images" / name)
    a, b = (tmp_path / "images" / name for name in ("a.svg", "b.svg"))
    assert a.read_bytes() == b.read_bytes()
    assert a.read_text().count("wn18-transe") >= 1


def test_a_page_is_written_beside_its_notes(tmp_path: Path) -> None:
    (tmp_path / "reproduction-notes.yaml").write_text("opening: How to read it.\ntables: {'2': Of this table.}\n")
    waiting = write_page(tmp_path / "page.md", paper(), {"wn18rr-transe": star([0.3, 0.42])})
    assert waiting == ["2/pLogicNet*/wn18rr", "4/TransE, pLogicNet*/wn18rr"]
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "How to read it." in text
    assert "Of this table." in text
