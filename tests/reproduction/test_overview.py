"""All systems in one table: each cell is of the data set's rules or of none, and says so where there is nothing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calling import Call, answer
from reproduction.overview import ABSENT, OTHER_RULES, beside, overview, same_rules_line
from reproduction.page import Notes, page
from reproduction.results import read_results
from reproduction.tables import Paper, Row, paper

FIGURES = ("mr", "mrr", "hits_at_1", "hits_at_3", "hits_at_10")
SYSTEMS = ["TransE", "DistMult", "HolE", "ComplEx", "ConvE", "BLP", "MLN", "RUGE", "NNE-AER", "pLogicNet", "pLogicNet*"]
COMMITTED = Path(__file__).parents[2] / "docs" / "results" / "paper"


def row(key: str, of: Paper | None = None) -> Row:
    return next(r for r in (of or paper()).rows() if r.key == key)


def result(system: str, value: float, iterations: int = 1) -> dict[str, Any]:
    metrics = {system: dict.fromkeys(FIGURES, value)}
    lines = [{"iteration": i + 1, "metrics": metrics} for i in range(iterations)]
    return {"by_seed": [{"seed": 0, "iterations": lines}]}


def cell(results: dict[str, Any], system: str, dataset: str) -> Any:
    return next(r for r in overview(paper(), results) if r["system"] == system)["cells"][dataset]


def test_every_system_and_every_data_set_has_its_place() -> None:
    rows = overview(paper(), {})
    assert [r["system"] for r in rows] == SYSTEMS
    for r in rows:
        assert list(r["cells"]) == ["fb15k", "wn18", "fb15k-237", "wn18rr"]
        for dataset, about in r["cells"].items():
            printed = any((x.name, x.dataset) == (r["system"], dataset) for x in paper().rows("1", "2"))
            assert about["state"] == ("not run yet" if printed else ABSENT)
            assert "figures" not in about


def test_rules_are_named() -> None:
    rules = {r["system"]: r["rules"] for r in overview(paper(), {})}
    assert rules == dict.fromkeys(SYSTEMS[:5], "none") | dict.fromkeys(
        ("BLP", "MLN", "pLogicNet", "pLogicNet*"), "all"
    ) | {
        "RUGE": "composition, inverse",
        "NNE-AER": "inverse, subrelation",
    }


def test_every_line_that_learns_from_rules_has_the_data_sets() -> None:
    """By the settings themselves, not by the names of runs."""
    for r in paper().rows("1", "2"):
        line = same_rules_line(paper(), r)
        assert line is not None, r.key
        assert line.ties == "realistic"
        if r.name in SYSTEMS[:5]:
            assert (line.system, line.iteration) == ("neural", 1)
            continue
        theirs = paper().runs[f"{r.dataset}-transe"].config().rules
        for name in line.runs:
            ours = paper().runs[name].config().rules
            assert ours.counting == theirs.counting
            assert set(ours.patterns) <= set(theirs.patterns)
            for pattern in ours.patterns:
                assert getattr(ours.min_precision, pattern) == getattr(theirs.min_precision, pattern), (name, pattern)


def test_what_was_reached_otherwise_does_not_slip_in() -> None:
    """Other rules, our own best settings, other thresholds: all of them run, none of them shown."""
    results = {name: result("plogicnet*", 0.99, 3) for name in ("fb15k-best", "fb15k-sum", "fb15k-everything")}
    results |= {"fb15k-ruge": result("neural", 0.99), "fb15k-mln-wide": result("rules", 0.99)}
    for system in ("pLogicNet*", "RUGE", "MLN"):
        assert cell(results, system, "fb15k")["state"] == "not run yet"
    results["fb15k-ruge-same"] = result("neural", 0.5)
    assert cell(results, "RUGE", "fb15k")["figures"]["mrr"] == 0.5


def test_a_row_without_a_run_on_these_rules_says_so() -> None:
    runs = dict(paper().runs)
    runs["fb15k-ruge-same"] = replace(runs["fb15k-ruge-same"], settings={"rules.counting": "paths"})
    altered = replace(paper(), runs=runs)
    assert same_rules_line(altered, row("1/RUGE/fb15k")) is None
    about = next(r for r in overview(altered, {}) if r["system"] == "RUGE")
    assert about["rules"] == about["cells"]["fb15k"]["state"] == OTHER_RULES


def test_figures_are_those_of_the_table() -> None:
    results = read_results(COMMITTED)
    about = cell(results, "pLogicNet*", "wn18")
    assert about["run"] == "wn18-transe"
    assert f"{about['figures']['mrr']:.3f}" == "0.945"
    text = page(paper(), results, Notes("", {"overview": "Of all."}, {}))
    assert "Of all." in text
    line = next(x for x in text.splitlines() if x.startswith("| **pLogicNet\\*** | all |"))
    assert "| 0.945 (0.945) | 95.8 (95.8) |" in line


@pytest.mark.parametrize(
    ("about", "shown"),
    [
        ({"state": ABSENT, "paper": {}}, "–"),
        ({"state": "not run yet", "paper": {"mrr": "0.768"}}, "not run yet (0.768)"),
        ({"state": "run, 1 seed", "paper": {"mrr": "-"}, "figures": {"mrr": 0.5}}, "0.500 (–)"),
        ({"state": "run, 1 seed", "paper": {}, "figures": {"mrr": 0.5}}, "0.500"),
    ],
)
def test_a_cell_in_words(about: dict[str, Any], shown: str) -> None:
    assert beside(about, "mrr") == shown


@pytest.mark.parametrize("width", ["80", "140"])
def test_the_command_prints_it(width: str, reproduce: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", width)
    found = answer(reproduce, "together")["together"]
    assert [r["system"] for r in found] == SYSTEMS
    code, out, err = reproduce("together", "--data", "wn18")
    assert (code, "0.945 (0.945)" in out, "fb15k" in out) == (0, True, False), err
    code, out, _ = reproduce("together", "--results", tmp_path / "none")
    assert (code, "0.945 (0.945)" in out, "not run yet" in out) == (0, False, True)
