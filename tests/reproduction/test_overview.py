"""The table of all systems: each cell uses the data set's rules or none, or shows why it has no metric."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calling import Call, call_json
from reproduction.overview import ABSENT, OTHER_RULES, find_same_rules_line, format_cell, overview_rows
from reproduction.page import Notes, summary_page
from reproduction.results import read_results
from reproduction.tables import Paper, Row, paper

METRIC_KEYS = ("mr", "mrr", "hits_at_1", "hits_at_3", "hits_at_10")
SYSTEMS = ["TransE", "DistMult", "HolE", "ComplEx", "ConvE", "BLP", "MLN", "RUGE", "NNE-AER", "pLogicNet", "pLogicNet*"]
COMMITTED = Path(__file__).parents[2] / "docs" / "results" / "paper"


def row(key: str, source: Paper | None = None) -> Row:
    return next(r for r in (source or paper()).rows() if r.key == key)


def result(system: str, value: float, iterations: int = 1) -> dict[str, Any]:
    metrics = {system: dict.fromkeys(METRIC_KEYS, value)}
    lines = [{"iteration": i + 1, "metrics": metrics} for i in range(iterations)]
    return {"by_seed": [{"seed": 0, "iterations": lines}]}


def cell(results: dict[str, Any], system: str, dataset: str) -> Any:
    return next(r for r in overview_rows(paper(), results) if r["system"] == system)["cells"][dataset]


def test_every_system_has_a_cell_for_every_data_set() -> None:
    rows = overview_rows(paper(), {})
    assert [r["system"] for r in rows] == SYSTEMS
    for r in rows:
        assert list(r["cells"]) == ["fb15k", "wn18", "fb15k-237", "wn18rr"]
        for dataset, about in r["cells"].items():
            printed = any((x.name, x.dataset) == (r["system"], dataset) for x in paper().rows("1", "2"))
            assert about["state"] == ("not run yet" if printed else ABSENT)
            assert "figures" not in about


def test_rule_patterns_of_each_system() -> None:
    rules = {r["system"]: r["rules"] for r in overview_rows(paper(), {})}
    assert rules == dict.fromkeys(SYSTEMS[:5], "none") | dict.fromkeys(
        ("BLP", "MLN", "pLogicNet", "pLogicNet*"), "all"
    ) | {
        "RUGE": "composition, inverse",
        "NNE-AER": "inverse, subrelation",
    }


def test_every_line_with_rules_uses_the_rules_of_the_data_set() -> None:
    """Check the settings, not the names of runs."""
    for r in paper().rows("1", "2"):
        line = find_same_rules_line(paper(), r)
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


def test_results_on_other_rules_are_not_shown() -> None:
    """Results with other rules, our best settings or other thresholds exist but are not shown."""
    results = {name: result("plogicnet*", 0.99, 3) for name in ("fb15k-best", "fb15k-sum", "fb15k-everything")}
    results |= {"fb15k-ruge": result("neural", 0.99), "fb15k-mln-wide": result("rules", 0.99)}
    for system in ("pLogicNet*", "RUGE", "MLN"):
        assert cell(results, system, "fb15k")["state"] == "not run yet"
    results["fb15k-ruge-same"] = result("neural", 0.5)
    assert cell(results, "RUGE", "fb15k")["figures"]["mrr"] == 0.5


def test_row_without_a_run_on_these_rules() -> None:
    runs = dict(paper().runs)
    runs["fb15k-ruge-same"] = replace(runs["fb15k-ruge-same"], settings={"rules.counting": "paths"})
    changed = replace(paper(), runs=runs)
    assert find_same_rules_line(changed, row("1/RUGE/fb15k")) is None
    about = next(r for r in overview_rows(changed, {}) if r["system"] == "RUGE")
    assert about["rules"] == about["cells"]["fb15k"]["state"] == OTHER_RULES


def test_metrics_equal_those_of_the_table() -> None:
    results = read_results(COMMITTED)
    about = cell(results, "pLogicNet*", "wn18")
    assert about["run"] == "wn18-transe"
    assert f"{about['figures']['mrr']:.3f}" == "0.945"
    text = summary_page(paper(), results, Notes(overview="All systems are ranked."))
    assert "All systems are ranked." in text
    line = next(x for x in text.splitlines() if x.startswith("| **pLogicNet\\*** | all |"))
    assert "| 0.945 (0.945) | 95.8 (95.8) |" in line


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ({"state": ABSENT, "paper": {}}, "–"),
        ({"state": "not run yet", "paper": {"mrr": "0.768"}}, "not run yet (0.768)"),
        ({"state": "run, 1 seed", "paper": {"mrr": "-"}, "figures": {"mrr": 0.5}}, "0.500 (–)"),
        ({"state": "run, 1 seed", "paper": {}, "figures": {"mrr": 0.5}}, "0.500"),
    ],
)
def test_format_cell(about: dict[str, Any], text: str) -> None:
    assert format_cell(about, "mrr") == text


@pytest.mark.parametrize("width", ["80", "140"])
def test_together_command(width: str, reproduce: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", width)
    found = call_json(reproduce, "together")["together"]
    assert [r["system"] for r in found] == SYSTEMS
    code, out, err = reproduce("together", "--data", "wn18")
    assert (code, "0.945 (0.945)" in out, "fb15k" in out) == (0, True, False), err
    code, out, _ = reproduce("together", "--results", tmp_path / "none")
    assert (code, "0.945 (0.945)" in out, "not run yet" in out) == (0, False, True)
