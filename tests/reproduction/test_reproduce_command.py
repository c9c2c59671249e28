"""`plogicnet reproduce` for real: every system of the tables on another graph, collected, and told in words."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from calling import Call
from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.graph import open_graph
from reproduction.results import iterations_of
from reproduction.tables import paper
from reproduction.watching import watching
from small import write_small_graph
from stopping import StoppedError, stop_at

COMMITTED = Path(__file__).parents[2] / "docs" / "results" / "paper"
QUICK = [
    *("--device", "cpu", "--threads", "1"),
    *("--set", "neural.steps=20", "--set", "neural.vectors.dim=16", "--set", "neural.batch=64"),
    *("--set", "neural.vectors.negatives=8", "--set", "neural.vectors.share_negatives=8"),
]
# most of the smoke run's time goes into scoring every hidden triple by convolution, and into the thousand small steps
# of the paper's M-step: it tells as much with fewer coordinates, steps and rules
QUICKER = [
    *("--set", "neural.vectors.dim=6", "--set", "mln.gradient.iterations=50"),
    *("--set", "rules.min_precision={composition: 0.7, inverse: 0.4, symmetric: 0.4, subrelation: 0.4}"),
]


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    return write_small_graph(folder)


def rows(out: str) -> list[dict[str, Any]]:
    return [row | {"table": table["table"]} for table in json.loads(out)["tables"] for row in table["rows"]]


def test_every_system_runs_on_umls(call: Call) -> None:
    """The smoke run: six neural models inside pLogicNet, BLP, RUGE, NNE-AER, rules alone, each pattern alone."""
    if not (Path(os.environ.get("PLOGICNET_DATA", "no-data")) / "umls").is_dir():
        pytest.skip("PLOGICNET_DATA is not set to a directory that holds umls")
    # FB15k's rows have every system; em.rules puts rules beside those that have none
    words = ("reproduce", "--run", "--data", "fb15k", "--graph", "umls", "--set", "em.rules=true", *QUICK, *QUICKER)
    code, out, err = call(*words, "--json")
    assert code == 0, err
    found = rows(out)
    assert {row["state"] for row in found} == {"run, 1 seed"}
    results = {f.stem: json.loads(f.read_text()) for f in Path("runs/paper-on-umls/results").glob("*.json")}
    models = {paper().runs[name].config().kge.model for name in results}
    assert models == {"TransE", "DistMult", "HolE", "ComplEx", "ConvE", "RotatE"}
    assert {paper().runs[name].config().system for name in results} == {"plogicnet", "blp", "ruge", "nne_aer"}
    for name, result in results.items():
        iterations = [line["iteration"] for line in result["iterations"]]
        config = paper().runs[name].config().with_values({"em.rules": True})
        assert iterations == list(range(1, iterations_of(config) + 1))
        for line in result["iterations"]:
            assert line["hidden"] > 0
            assert all(0 < figures["mrr"] <= 1 for figures in line["metrics"].values())
    folder = Path("runs/paper-on-umls")
    shared = [f for f in folder.glob("*/seed-0/timings.json") if "e_step_shared" in json.loads(f.read_text())]
    assert len(shared) >= 7  # of trainings that begin alike, all but the first: of TransE, and of ComplEx


def test_a_result_has_what_it_should(call: Call, small: Path) -> None:
    code, _, err = call("reproduce", "10", "--run", "--data", "wn18", "--graph", small, "--seeds", "0,1", *QUICK)
    assert code == 0, err
    file = Path("runs/paper-on-small/results/wn18-rotate.json")
    result = json.loads(file.read_text())
    assert result["table"] == ["10"]
    assert result["row"] == ["RotatE", "pLogicNet"]
    assert (result["dataset"], result["preset"], result["seeds"]) == (str(small), "paper/wn18-rotate", [0, 1])
    assert result["settings"]["neural.steps"] == 20
    assert set(result["metrics"]["plogicnet*"]) == {"mr", "mrr", "hits_at_1", "hits_at_3", "hits_at_10"}
    each = [entry["iterations"][1]["metrics"]["plogicnet*"]["mrr"] for entry in result["by_seed"]]
    assert result["metrics"]["plogicnet*"]["mrr"] == pytest.approx(sum(each) / 2)
    assert result["sd"]["plogicnet*"]["mrr"] == pytest.approx(abs(each[0] - each[1]) / 2**0.5)
    assert [line["iteration"] for line in result["iterations"]] == [1, 2]
    own = json.loads((Path("runs/paper-on-small/wn18-rotate/seed-0") / "metrics.json").read_text())["test"]
    last = result["by_seed"][0]["iterations"][1]["metrics"]
    for system in ("neural", "rules", "plogicnet", "plogicnet*"):  # what watched the last iteration saw the outcome
        assert last[system]["mrr"] == pytest.approx(own[system]["mrr"], abs=1e-6)
    # what is there is not trained again
    before = file.read_bytes()
    code, _, err = call("reproduce", "10", "--run", "--data", "wn18", "--graph", small, "--seeds", "0,1", *QUICK)
    assert (code, file.read_bytes()) == (0, before)
    assert "trainings to do: none" in err


def test_a_training_that_was_stopped_is_resumed(call: Call, small: Path) -> None:
    words = ("reproduce", "--only", "fb15k-symmetric", "--run", "--graph", small, *QUICK)
    assert call(*words)[0] == 0
    place = Path("runs/paper-on-small")
    whole = json.loads((place / "results" / "fb15k-symmetric.json").read_text())
    shutil.move(place, "kept")
    config = Config().with_file(Path("kept/fb15k-symmetric/seed-0/config.yaml"))
    watch, folder = watching(config, None), place / "fb15k-symmetric" / "seed-0"
    with pytest.raises(StoppedError):
        PLogicNet(config).fit(open_graph(small), stop_at("training", time=2), out=folder, watch=watch)
    code, _, err = call(*words)
    assert code == 0, err
    again = json.loads((place / "results" / "fb15k-symmetric.json").read_text())
    assert again["iterations"] == whole["iterations"]
    code, _, err = call(*words, "--set", "neural.vectors.dim=8", "--results", "elsewhere")
    assert (code, "a run with other settings is there" in err) == (2, True), err


def test_results_of_other_settings_or_another_graph_are_not_taken_for_these(call: Call, small: Path) -> None:
    words = ("reproduce", "2", "--only", "wn18rr-mln", "--run", "--graph", small)
    assert call(*words, *QUICK, "--out", "here")[0] == 0
    other = (*words, *QUICK, "--set", "rules.min_precision.composition=0.9")
    code, _, err = call(*other, "--out", "there", "--results", "here/results")
    assert (code, "of other settings; name another --results" in err) == (2, True), err
    code, out, err = call(*other[:4], *other[5:], "--out", "nowhere", "--results", "here/results", "--json")
    assert code == 0, err
    assert {row["state"] for row in rows(out)} == {"not run yet"}


def test_the_command_of_a_result_makes_it_again(call: Call, small: Path) -> None:
    call("reproduce", "--only", "wn18rr-mln", "--run", "--graph", small, *QUICK)
    file = Path("runs/paper-on-small/results/wn18rr-mln.json")
    first = json.loads(file.read_text())
    shutil.rmtree("runs")
    program, *words = first["command"].split()
    assert program == "plogicnet"
    code, _, err = call(*words, "--device", "cpu")
    assert code == 0, err
    again = json.loads(file.read_text())
    for result in (first, again):
        result["by_seed"][0]["seconds"] = result["seconds"] = None
    assert again == first


def test_results_are_made_of_run_directories_from_elsewhere(call: Call, small: Path, tmp_path: Path) -> None:
    words = ("reproduce", "--only", "fb15k-inverse", "--graph", small, *QUICK)
    assert call(*words, "--run")[0] == 0
    place = Path("runs/paper-on-small")
    made = (place / "results" / "fb15k-inverse.json").read_bytes()
    away = tmp_path / "away"
    away.mkdir()
    for name in ("config.yaml", "history.jsonl", "timings.json"):  # no vectors, no graph
        shutil.copy(place / "fb15k-inverse" / "seed-0" / name, away)
    code, out, err = call(*words, "--collect", away, "--results", tmp_path / "other", "--json")
    assert code == 0, err
    assert (tmp_path / "other" / "fb15k-inverse.json").read_bytes() == made
    assert [row["state"] for row in rows(out)] == ["run, 1 seed"] * len(rows(out))
    code, _, err = call("reproduce", "--collect", away, "--results", tmp_path / "third")  # without the settings
    assert code == 2
    assert "no row of the paper's tables has these settings" in err


def test_the_list_tells_every_state(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("reproduce", "--list", "--json", "--results", tmp_path / "none")
    assert code == 0
    states = {row["state"] for row in rows(out)}
    assert states == {"not run yet"}
    code, out, err = call("reproduce", "2", "--list", "--results", tmp_path / "none")
    assert code == 0
    assert "BLP" in out
    assert "`plogicnet reproduce 2 --run` trains them" in err


def test_nothing_is_trained_unasked(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("reproduce", "2")
    assert code == 0
    assert "0.441" in out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("7",), "no table '7'"),
        (("1", "--only", "TranE"), "--only TranE: no such row or run here"),
        (("1", "--data", "wn18rr"), "--data wn18rr: not a data set of these tables"),
        (("1", "--run", "--set", "kge.dimm=3"), "unknown setting 'kge.dimm'"),
        (("1", "--graph", "umls"), "nothing has been run on umls yet"),
        (("--collect", "nowhere"), "nowhere/config.yaml: no such file"),
    ],
)
def test_mistakes_are_said_in_words(call: Call, words: tuple[str, ...], message: str) -> None:
    code, _, err = call("reproduce", *words)
    assert (code, message in err) == (2, True), err


def test_a_graph_without_test_triples_is_refused_before_training(call: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.tsv").write_text("".join(f"a{i}\tr\ta{i + 1}\n" for i in range(30)))
    code, _, err = call("reproduce", "--run", "--only", "fb15k-blp", "--graph", "mine.tsv", *QUICK)
    assert (code, "there are no test triples" in err, "data convert mine.tsv DIRECTORY" in err) == (2, True, True), err
    assert not (tmp_path / "runs").exists()


def test_without_seeds_one_that_has_been_run_will_do(call: Call, small: Path) -> None:
    words = ("reproduce", "--run", "--only", "fb15k-mln", "--graph", small, *QUICK)
    assert call(*words, "--seeds", "3")[0] == 0
    code, out, err = call(*words)
    assert (code, "trainings to do: none" in err, "1 seed" in out) == (0, True, True), err
    code, out, err = call(*words, "--seeds", "0,3")
    assert (code, "trainings to do: fb15k-mln (seed 0)" in err, "2 seeds" in out) == (0, True, True), err


def test_where_there_are_no_results_it_says_where_they_are(call: Call) -> None:
    code, _, err = call("reproduce", "9", "--set", "neural.steps=3")
    assert code == 0
    assert "docs/results/paper of the repository" in err
    assert "`plogicnet reproduce 9 --set neural.steps=3 --run`" in err


@pytest.mark.parametrize("words", [("--run",), ("fig2",)])
def test_all_systems_together_are_only_shown(words: tuple[str, ...], call: Call) -> None:
    code, _, err = call("reproduce", "--together", *words)
    assert (code, "leave --run and the tables' names out" in err) == (2, True)


def test_seeds_are_looked_at_even_where_nothing_is_trained(call: Call) -> None:
    code, _, err = call("reproduce", "--seeds", "a")
    assert (code, "--seeds a" in err) == (2, True)


def test_a_table_of_no_results_is_named(call: Call) -> None:
    code, _, err = call("reproduce", "7")
    assert (code, "Tables 6 and 7 are of its data sets and settings" in err) == (2, True)


@pytest.mark.parametrize(("width", "run"), [("80", "nne_aer-same"), ("140", "fb15k-nne_aer-same")])
def test_lines_name_their_runs_on_any_screen(width: str, run: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", width)
    code, out, _ = call("reproduce", "9", "--results", COMMITTED)
    assert (code, f" {run} " in out, "fb15k-nne_aer-same" in out) == (0, True, width == "140")
    assert max(map(len, out.splitlines())) <= int(width)
    code, out, _ = call("reproduce", "9", "--list", "--results", COMMITTED)
    assert (code, "wn18-nne_aer" in out) == (0, True)
