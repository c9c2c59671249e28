"""Result files: means and standard deviations against numpy, merging of seeds, and the committed files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plogicnet.support.errors import InputError
from reproduction.comparison import LineMetrics, find_metrics, format_metric, is_far, row_state
from reproduction.results import (
    add_entry,
    average_iterations,
    build_result,
    collect_entries,
    count_measured,
    format_json,
    read_results,
)
from reproduction.tables import Line, Row, paper

COMMITTED = Path(__file__).parents[2] / "docs" / "results" / "paper"
METRIC_KEYS = ("mr", "mrr", "hits_at_1", "hits_at_3", "hits_at_10")
RUN = paper().runs["wn18rr-transe"]


def entry(seed: int, values: list[float]) -> dict[str, Any]:
    """Return the entry of a seed with one iteration per value."""
    return {
        "seed": seed,
        "commit": "abc1234",
        "device": "CPU",
        "seconds": {"e_step": 2.0},
        "iterations": [
            {
                "iteration": i,
                "accepted": 10 * i,
                "hidden": 100,
                "precision": None,
                "lambda": 0.5,
                "metrics": {"neural": dict.fromkeys(METRIC_KEYS, value)},
            }
            for i, value in enumerate(values, start=1)
        ],
    }


@given(st.lists(st.lists(st.floats(0, 1), min_size=2, max_size=2), min_size=1, max_size=5))
def test_mean_and_sd_equal_numpy(values: list[list[float]]) -> None:
    entries = [entry(seed, each) for seed, each in enumerate(values)]
    for i, line in enumerate(average_iterations(entries)):
        column = np.array(values)[:, i]
        assert line["metrics"]["neural"]["mrr"] == pytest.approx(column.mean())
        assert line["sd"]["neural"]["mrr"] == pytest.approx(column.std(ddof=1) if len(column) > 1 else 0.0, abs=1e-9)
        assert (line["seeds"], line["accepted"]) == ({"neural": len(values)}, 10 * (i + 1))


def test_seeds_are_merged_in_any_order_and_replaced(tmp_path: Path) -> None:
    for seed, value in ((1, 0.4), (0, 0.9), (0, 0.2)):
        add_entry(tmp_path, RUN, entry(seed, [0.1, value]), paper())
    result = read_results(tmp_path)["wn18rr-transe"]
    assert result["seeds"] == [0, 1]
    assert result["iteration"] == 2
    assert result["metrics"]["neural"]["mrr"] == pytest.approx(0.3)
    assert result["command"] == "python -m reproduction train --only wn18rr-transe --seeds 0,1"
    assert result == json.loads(json.dumps(build_result(RUN, result["by_seed"], paper())))


def test_files_of_further_seeds_are_merged(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    add_entry(here, RUN, entry(0, [0.1, 0.2]), paper())
    file = add_entry(there, RUN, entry(1, [0.1, 0.4]), paper())
    run, entries = collect_entries(file, paper())
    assert (run, [e["seed"] for e in entries]) == (RUN, [1])
    for each in entries:
        add_entry(here, run, each, paper())
    assert read_results(here)["wn18rr-transe"]["metrics"]["neural"]["mrr"] == pytest.approx(0.3)
    other = json.loads(file.read_text()) | {"settings": {"neural.vectors.dim": 7}}
    file.write_text(json.dumps(other))
    with pytest.raises(InputError, match="no row of the paper's tables has these settings"):
        collect_entries(file, paper())


def test_result_is_matched_by_settings_not_by_name(tmp_path: Path) -> None:
    file = add_entry(tmp_path, RUN, entry(0, [0.1]), paper())
    content = json.loads(file.read_text())
    content["settings"] = {"em.rules": False}
    file.write_text(json.dumps(content))
    assert collect_entries(file, paper())[0].name == "wn18rr-transe-alone"


def test_name_decides_between_runs_with_equal_settings(tmp_path: Path) -> None:
    small = paper().with_overrides(
        "umls", {"neural.vectors.dim": 8, "neural.batch": 16, "neural.vectors.negatives": 4, "em.iterations": 1}
    )
    for name in ("fb15k-everything", "fb15k-released"):
        file = add_entry(tmp_path, small.runs[name], entry(0, [0.1]), small)
        assert collect_entries(file, small)[0].name == name


def test_result_of_another_graph_raises(tmp_path: Path) -> None:
    file = add_entry(tmp_path, RUN, entry(0, [0.1]), paper())
    file.write_text(json.dumps(json.loads(file.read_text()) | {"dataset": "umls"}))
    with pytest.raises(InputError, match="on umls"):
        collect_entries(file, paper())
    with pytest.raises(InputError, match="another graph"):
        add_entry(tmp_path, RUN, entry(1, [0.1]), paper())


def test_a_shorter_training_does_not_replace_a_longer_one(tmp_path: Path) -> None:
    file = add_entry(tmp_path, RUN, entry(0, [0.1, 0.2]), paper())
    before = file.read_text()
    add_entry(tmp_path, RUN, entry(0, [0.9]), paper())
    assert file.read_text() == before


@pytest.mark.parametrize("text", ['{"run": "wn18rr-mln", "by_seed": [{"seed": 0}]}', "[]"])
def test_invalid_result_file_raises(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"bad\.json: not a result file"):
        collect_entries(file, paper())
    with pytest.raises(InputError, match=r"bad\.json: not a result file"):
        read_results(tmp_path)


def test_average_uses_only_seeds_with_the_system() -> None:
    more = entry(1, [0.4])
    more["iterations"][0]["metrics"]["rules"] = {"mrr": 0.5}
    (line,) = average_iterations([entry(0, [0.2]), more])
    assert line["seeds"] == {"neural": 2, "rules": 1}
    assert line["metrics"]["rules"] == {"mrr": 0.5}


def test_average_uses_only_seeds_with_the_iteration() -> None:
    lines = average_iterations([entry(0, [0.2]), entry(1, [0.4, 0.5])])
    assert [line["seeds"]["neural"] for line in lines] == [2, 1]
    assert lines[1]["metrics"]["neural"]["mrr"] == 0.5


def test_count_measured() -> None:
    seed = entry(0, [0.1, 0.2])
    assert count_measured(seed) == 2
    del seed["iterations"][0]["metrics"]
    assert count_measured(seed) == 1


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_format_json_is_valid_json(value: Any) -> None:
    assert json.loads(format_json(value)) == value


@pytest.mark.parametrize(("name", "result"), sorted(read_results(COMMITTED).items()))
def test_committed_results_are_derived_from_their_seeds(name: str, result: dict[str, Any]) -> None:
    """Check that everything before `by_seed` is computed from it."""
    made = build_result(paper().runs[name], result["by_seed"], paper())
    assert (COMMITTED / f"{name}.json").read_text(encoding="utf-8") == format_json(made) + "\n"


def test_a_line_is_found_in_the_first_run_that_has_it() -> None:
    line = Line(("a", "b"), "neural", 1, "realistic", True)
    results = {"b": {"by_seed": [entry(0, [0.5])]}}
    assert find_metrics(line, results) == LineMetrics(
        "b", 1, dict.fromkeys(METRIC_KEYS, 0.5), dict.fromkeys(METRIC_KEYS, 0.0)
    )
    results["a"] = {"by_seed": [entry(0, [0.25]), entry(1, [0.75])]}
    found = find_metrics(line, results)
    assert found is not None
    assert (found.run, found.seeds, found.values["mrr"]) == ("a", 2, 0.5)
    assert find_metrics(Line(("a",), "rules", 1, "realistic", True), results) is None
    assert find_metrics(Line(("a",), None, 1, "realistic", True), results) == LineMetrics("a", 2, {"accepted": 10}, {})


@pytest.mark.parametrize(
    ("metric", "printed", "ours", "expected"),
    [
        ("mrr", "0.441", 0.4311, False),
        ("mrr", "0.441", 0.4309, True),
        ("mrr", "0.441", 0.4512, True),
        ("mrr", "-", 0.9, False),
        ("hits_at_1", "39.8", 0.9, False),
        ("accepted", "64929", 64929 * 1.029, False),
        ("accepted", "64929", 64929 * 1.031, True),
        ("precision", "79.21", 0.7722, False),
        ("precision", "79.21", 0.7720, True),
    ],
)
def test_is_far(metric: str, printed: str, ours: float, expected: bool) -> None:
    row = Row("1", "r", "wn18", {metric: printed}, ())
    compared, other = (Line(("a",), "rules", 1, "realistic", c) for c in (True, False))
    found = LineMetrics("a", 1, {metric: ours}, {})
    assert is_far(row, compared, found) is expected
    assert not is_far(row, other, found)


def test_format_metric() -> None:
    pairs = [("mrr", 0.2237), ("mr", 3399.8), ("hits_at_10", 0.52904), ("precision", 0.79213), ("accepted", 96427.5)]
    assert [format_metric(*pair) for pair in pairs] == ["0.224", "3400", "52.9", "79.21", "96,428"]


def test_the_state_of_a_row_is_that_of_its_compared_lines() -> None:
    row = next(r for r in paper().rows("2") if r.key == "2/pLogicNet*/wn18rr")
    assert row_state(row, {}) == "not run yet"
    done = entry(0, [0.1, 0.2])
    done["iterations"][1]["metrics"]["plogicnet*"] = dict.fromkeys(METRIC_KEYS, 0.4)
    assert row_state(row, {"wn18rr-transe": {"by_seed": [done]}}) == "run, 1 seed"
