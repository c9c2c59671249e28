"""The tables are whole: every figure has its place, every row its run, every run its settings."""

from importlib import resources

import pytest

from plogicnet.config import Config
from plogicnet.graph.datasets.registry import DATA_SETS
from plogicnet.support.errors import InputError
from reproduction.tables import Row, paper

ROWS = list(paper().rows())


def row(key: str) -> Row:
    return next(r for r in ROWS if r.key == key)


def test_every_table_is_there() -> None:
    assert set(paper().tables) == {"1", "2", "3", "4", "5", "8", "9", "10", "fig2"}


def test_printed_figures_are_numbers_in_their_range() -> None:
    for r in ROWS:
        for figure, text in r.printed.items():
            if text != "-":
                high = {"mrr": 1.0, "mr": 41_000, "accepted": 100_000}.get(figure, 100.0)
                assert 0 < float(text) <= high, (r.key, figure)


def test_hits_rise_in_every_printed_row() -> None:
    """A figure in the wrong column would mostly show."""
    for r in ROWS:
        hits = [float(r.printed[f"hits_at_{k}"]) for k in (1, 3, 10) if r.printed.get(f"hits_at_{k}", "-") != "-"]
        assert hits == sorted(hits), r.key
        if len(hits) == 3:  # the mean of 1/rank lies between Hits@1 and Hits@1 with all others at rank two
            assert hits[0] - 0.1 <= 100 * float(r.printed["mrr"]) <= (100 + hits[0]) / 2, r.key


@pytest.mark.parametrize(
    ("key", "figures"),
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
def test_some_figures_as_the_paper_prints_them(key: str, figures: str) -> None:
    assert " ".join(row(key).printed.values()) == figures


def test_every_row_of_the_paper_has_a_line_of_ours() -> None:
    assert [r.key for r in ROWS if not r.lines] == []


def test_every_run_is_of_a_known_data_set_and_is_used() -> None:
    used = {name for r in ROWS for line in r.lines for name in line.runs}
    assert used == set(paper().runs)
    for name, run in paper().runs.items():
        assert run.dataset in DATA_SETS
        assert name.startswith(f"{run.dataset}-")
        assert run.preset.split("/")[1].startswith(run.dataset)


def test_every_line_asks_for_an_iteration_that_its_runs_have() -> None:
    for r in ROWS:
        for line in r.lines:
            for name in line.runs:
                config = paper().runs[name].config()
                both = config.em.rules and config.em.neural
                assert line.iteration <= (config.em.iterations if both else 1), (r.key, name)
                assert config.em.neural or str(line.system).startswith("rules")


def test_no_two_runs_are_the_same() -> None:
    """Else a result could not tell which one it is of."""
    assert len({str((run.dataset, run.config())) for run in paper().runs.values()}) == len(paper().runs)


def test_the_paper_presets_quote_the_paper() -> None:
    """The first comment of each preset of a table holds the printed MRR of a row that is made with it."""
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


def test_an_unknown_table_is_told() -> None:
    with pytest.raises(InputError, match=r"no table '6'.*There are: 1, 2"):
        paper().table("6")
