"""Every run by EM iteration: each figure is the mean over the seeds that the results hold, and a command prints it."""

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from calling import Call, answer
from reproduction.history import RANKINGS, cells, history
from reproduction.page import Notes, page
from reproduction.results import read_results
from reproduction.tables import paper

COMMITTED = Path(__file__).parents[2] / "docs" / "results" / "paper"


def of_seeds(result: Any, iteration: int) -> list[Any]:
    every = [line for entry in result["by_seed"] for line in entry["iterations"]]
    return [line for line in every if line["iteration"] == iteration]


def test_figures_are_means_over_the_seeds() -> None:
    results = read_results(COMMITTED)
    rows = history(results)
    assert {row["run"] for row in rows} == set(results)
    for row in rows:
        lines = of_seeds(results[row["run"]], row["iteration"])
        assert lines, row
        assert row["accepted"] == pytest.approx(fmean(line["accepted"] for line in lines))
        for system, mrr in row["mrr"].items():
            found = [line["metrics"][system]["mrr"] for line in lines if system in line["metrics"]]
            assert mrr == pytest.approx(fmean(found)), (row, system)


def test_what_is_held_out_is_counted() -> None:
    row = next(r for r in history(read_results(COMMITTED)) if (r["run"], r["iteration"]) == ("fb15k-released", 1))
    assert (row["accepted"], row["held_out"]) == (64935, 51470)  # printed: 64,929, and 79.21 % of them
    assert cells(row)[3:8] == ["2,464,902", "64,935", "51,470", "79.26", "0.5"]


def test_a_run_without_rules_accepts_nothing() -> None:
    row = next(r for r in history(read_results(COMMITTED)) if r["run"] == "wn18-conve")
    assert cells(row) == ["wn18-conve", "1", "1", "0", "0", "", "", "", f"{row['mrr']['neural']:.4f}", *[""] * 5]
    assert len(RANKINGS) == 6


def test_the_page_ends_with_it() -> None:
    text = page(paper(), read_results(COMMITTED), Notes("", {"history": "Of every run."}, {}))
    end = text[text.index("## Every run, by EM iteration") :]
    assert "Of every run." in end
    assert len([line for line in end.splitlines() if line.startswith("| wn18-transe |")]) == 3


def test_the_command_prints_it(reproduce: Call, tmp_path: Path) -> None:
    rows = answer(reproduce, "history")["history"]
    assert {row["run"] for row in rows} == set(read_results(COMMITTED))
    code, out, err = reproduce("history", "--only", "fb15k-released")
    assert (code, "64,935" in out, "0.7976" in out, "fb15k-transe" in out) == (0, True, True, False), err
    rows = answer(reproduce, "history", "4", "--data", "wn18rr")["history"]
    assert {row["run"] for row in rows} == {"wn18rr-transe", "wn18rr-distmult", "wn18rr-complex"}
    rows = answer(reproduce, "history", "--only", "RotatE")["history"]
    assert {row["run"] for row in rows} == {"fb15k-rotate", "wn18-rotate"}
    assert answer(reproduce, "history", "--results", tmp_path / "none")["history"] == []
