"""The history of every run: each value is the mean over the seeds of the results, and a command prints it."""

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from calling import Call, call_json
from reproduction.history import RANKINGS, format_row, history_rows
from reproduction.results import read_results

COMMITTED = Path(__file__).parents[2] / "docs" / "results" / "paper"


def lines_of_seeds(result: Any, iteration: int) -> list[Any]:
    every = [line for entry in result["by_seed"] for line in entry["iterations"]]
    return [line for line in every if line["iteration"] == iteration]


def test_values_are_means_over_the_seeds() -> None:
    results = read_results(COMMITTED)
    rows = history_rows(results)
    assert {row["run"] for row in rows} == set(results)
    for row in rows:
        lines = lines_of_seeds(results[row["run"]], row["iteration"])
        assert lines, row
        assert row["accepted"] == pytest.approx(fmean(line["accepted"] for line in lines))
        for system, mrr in row["mrr"].items():
            found = [line["metrics"][system]["mrr"] for line in lines if system in line["metrics"]]
            assert mrr == pytest.approx(fmean(found)), (row, system)


def test_held_out_triples_are_counted() -> None:
    row = next(r for r in history_rows(read_results(COMMITTED)) if (r["run"], r["iteration"]) == ("fb15k-released", 1))
    assert (row["accepted"], row["held_out"]) == (64935, 51470)  # printed: 64,929 and 79.21%
    assert format_row(row)[3:8] == ["2,464,902", "64,935", "51,470", "79.26", "0.5"]


def test_a_run_without_rules_accepts_nothing() -> None:
    row = next(r for r in history_rows(read_results(COMMITTED)) if r["run"] == "wn18-conve")
    assert format_row(row) == ["wn18-conve", "1", "1", "0", "0", "", "", "", f"{row['mrr']['neural']:.4f}", *[""] * 5]
    assert len(RANKINGS) == 6


def test_history_command(reproduce: Call, tmp_path: Path) -> None:
    rows = call_json(reproduce, "history")["history"]
    assert {row["run"] for row in rows} == set(read_results(COMMITTED))
    code, out, err = reproduce("history", "--only", "fb15k-released")
    assert (code, "64,935" in out, "0.7976" in out, "fb15k-transe" in out) == (0, True, True, False), err
    rows = call_json(reproduce, "history", "4", "--data", "wn18rr")["history"]
    assert {row["run"] for row in rows} == {"wn18rr-transe", "wn18rr-distmult", "wn18rr-complex"}
    rows = call_json(reproduce, "history", "--only", "RotatE")["history"]
    assert {row["run"] for row in rows} == {"fb15k-rotate", "wn18-rotate"}
    assert call_json(reproduce, "history", "--results", tmp_path / "none")["history"] == []
