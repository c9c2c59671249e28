"""The tables are complete: printed metrics are plausible, every row has a run, and every run has settings."""

from importlib import resources

import pytest

from plogicnet.config import Config
from plogicnet.graph.datasets.registry import DATA_SETS
from plogicnet.support.errors import InputError
from reproduction.tables import Row, paper

ROWS = list(paper().rows())


def row(key: str) -> Row:
    return next(r for r in ROWS if r.key == key)


def test_all_tables_exist() -> None:
    assert set(paper().tables) == {"1", "2", "3", "4", "5", "8", "9", "10", "fig2"}


def test_printed_metrics_are_in_range() -> None:
    for r in ROWS:
        for metric, text in r.printed.items():
            if text != "-":
                high = {"mrr": 1.0, "mr": 41_000, "accepted": 100_000}.get(metric, 100.0)
                assert 0 < float(text) <= high, (r.key, metric)


def test_hits_rise_in_every_printed_row() -> None:
    """Detect most values in a wrong column."""
    for r in ROWS:
        hits = [float(r.printed[f"hits_at_{k}"]) for k in (1, 3, 10) if r.printed.get(f"hits_at_{k}", "-") != "-"]
        assert hits == sorted(hits), r.key
        if len(hits) == 3:  # MRR is between Hits@1 and the value with all other ranks equal to 2
            assert hits[0] - 0.1 <= 100 * float(r.printed["mrr"]) <= (100 + hits[0]) / 2, r.key


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("1/pLogicNet*/fb15k", "33 0.844 81.2 86.2 90.2"),
        ("2/TransE/wn18rr", "3410 0.223 1.3 40.1 53.1"),
        ("3/Inverse/fb15k", "39 0.813 77.7 83.1 88.1"),
        ("4/ComplEx, pLogicNet*/fb15k", "45 0.788 73.5 82.1 88.5"),
        ("5/Iteration 3/wn18", "11432 82.09"),
        ("8/pLogicNet/fb15k", "0.786 73.3 82.0 88.2"),
        ("9/pLogicNet/wn18", "0.950 94.3 95.6 96.3"),
        ("10/pLogicNet/wn18", "256 0.950 94.5 95.3 96.1"),
    ],
)
def test_some_printed_metrics(key: str, values: str) -> None:
    assert " ".join(row(key).printed.values()) == values


def test_every_row_of_the_paper_has_a_line_of_ours() -> None:
    assert [r.key for r in ROWS if not r.lines] == []


def test_every_run_has_a_known_data_set_and_is_used() -> None:
    used = {name for r in ROWS for line in r.lines for name in line.runs}
    assert used == set(paper().runs)
    for name, run in paper().runs.items():
        assert run.dataset in DATA_SETS
        assert name.startswith(f"{run.dataset}-")
        assert run.preset.split("/")[1].startswith(run.dataset)


def test_every_line_shows_an_iteration_of_its_runs() -> None:
    for r in ROWS:
        for line in r.lines:
            for name in line.runs:
                config = paper().runs[name].config()
                both = config.em.rules and config.em.neural
                assert line.iteration <= (config.em.iterations if both else 1), (r.key, name)
                assert config.em.neural or str(line.system).startswith("rules")


def test_no_two_runs_are_the_same() -> None:
    """Equal runs would make the run of a result ambiguous."""
    assert len({str((run.dataset, run.config())) for run in paper().runs.values()}) == len(paper().runs)


def test_the_paper_presets_quote_the_paper() -> None:
    """The first comment of each preset contains the printed MRR of a row that uses the preset."""
    presets = {run.preset for run in paper().runs.values() if run.preset.startswith("paper/")}
    for name in presets - {"paper/fb15k-everything-transe"}:
        text = (resources.files("plogicnet.config") / "presets" / f"{name}.yaml").read_text(encoding="utf-8")
        comment = "\n".join(line for line in text.splitlines() if line.startswith("#"))
        printed = {
            r.printed["mrr"].removeprefix("0")
            for r in ROWS
            for line in r.lines
            if "mrr" in r.printed and any(paper().runs[run].preset == name for run in line.runs)
        }
        assert any(mrr in comment for mrr in printed), name
        config = Config().with_preset(name)
        assert config.em.iterations == 2 or config.system != "plogicnet"


def test_unknown_table_raises() -> None:
    with pytest.raises(InputError, match=r"unknown table '6'.*Use one of 1, 2"):
        paper().table("6")
