"""`python -m reproduction`: every system of the tables on another graph, collected, and shown."""

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from calling import Call, answer
from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.graph import open_graph
from plogicnet.training.hooks import Hooks
from reproduction.inspection import rank_test
from reproduction.results import iterations_of
from reproduction.tables import paper
from small import write_small_graph
from stopping import StoppedError, stop_at

DOCS = Path(__file__).parents[2] / "docs"
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


def rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for table in found["tables"] for row in table["rows"]]


@pytest.mark.slow
def test_every_system_runs_on_umls(reproduce: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """The smoke run: six neural models inside pLogicNet, BLP, RUGE, NNE-AER, rules alone, each pattern alone."""
    if not (Path(os.environ.get("PLOGICNET_DATA", "no-data")) / "umls").is_dir():
        pytest.skip("PLOGICNET_DATA is not set to a directory that holds umls")
    monkeypatch.setattr("reproduction.training.cost", lambda *_: "")  # eleven trials; other tests have one
    # FB15k's rows of these tables have every system; em.rules puts rules beside those that have none
    words = ("train", "1", "3", "10", "--data", "fb15k", "--graph", "umls", "--set", "em.rules=true", *QUICK, *QUICKER)
    assert {row["state"] for row in rows(answer(reproduce, *words))} == {"run, 1 seed"}
    results = {f.stem: json.loads(f.read_text()) for f in Path("runs/paper-on-umls/results").glob("*.json")}
    models = {paper().runs[name].config().neural.model for name in results}
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
    assert len(shared) >= 4  # of trainings that begin alike, all but the first


def test_a_result_has_what_it_should(reproduce: Call, small: Path) -> None:
    code, _, err = reproduce("train", "10", "--data", "wn18", "--graph", small, "--seeds", "0,1", *QUICK)
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
    code, _, err = reproduce("train", "10", "--data", "wn18", "--graph", small, "--seeds", "0,1", *QUICK)
    assert (code, file.read_bytes()) == (0, before)
    assert "trainings to do: none" in err


def test_a_training_that_was_stopped_is_resumed(reproduce: Call, small: Path) -> None:
    words = ("train", "--only", "fb15k-symmetric", "--graph", small, *QUICK)
    assert reproduce(*words)[0] == 0
    place = Path("runs/paper-on-small")
    whole = json.loads((place / "results" / "fb15k-symmetric.json").read_text())
    shutil.move(place, "kept")
    config = Config().with_file(Path("kept/fb15k-symmetric/seed-0/config.yaml"))
    hooks = Hooks(progress=stop_at("training", time=2), inspect=rank_test(config, None))
    with pytest.raises(StoppedError):
        PLogicNet(config).fit(open_graph(small), out=place / "fb15k-symmetric" / "seed-0", hooks=hooks)
    code, _, err = reproduce(*words)
    assert code == 0, err
    again = json.loads((place / "results" / "fb15k-symmetric.json").read_text())
    assert again["iterations"] == whole["iterations"]
    code, _, err = reproduce(*words, "--set", "neural.vectors.dim=8", "--results", "elsewhere")
    assert (code, "a run with other settings is there" in err) == (2, True), err


def test_results_of_other_settings_or_another_graph_are_not_taken_for_these(reproduce: Call, small: Path) -> None:
    words = ("2", "--only", "wn18rr-mln", "--graph", small, *QUICK[4:])
    assert reproduce("train", *words, "--device", "cpu", "--out", "here")[0] == 0
    other = (*words, "--set", "rules.min_precision.composition=0.9", "--results", "here/results")
    code, _, err = reproduce("train", *other, "--out", "there")
    assert (code, "of other settings; name another --results" in err) == (2, True), err
    assert {row["state"] for row in rows(answer(reproduce, *other))} == {"not run yet"}


def test_the_command_of_a_result_makes_it_again(reproduce: Call, small: Path) -> None:
    reproduce("train", "--only", "wn18rr-mln", "--graph", small, *QUICK)
    file = Path("runs/paper-on-small/results/wn18rr-mln.json")
    first = json.loads(file.read_text())
    shutil.rmtree("runs")
    program, words = shlex.split(first["command"])[:3], shlex.split(first["command"])[3:]
    assert program == ["python", "-m", "reproduction"]
    code, _, err = reproduce(*words, "--device", "cpu")
    assert code == 0, err
    again = json.loads(file.read_text())
    for result in (first, again):
        result["by_seed"][0]["seconds"] = result["seconds"] = None
    assert again == first


def test_results_are_made_from_run_directories_from_elsewhere(reproduce: Call, small: Path, tmp_path: Path) -> None:
    words = ("--graph", small, *QUICK[4:])
    assert reproduce("train", "--only", "fb15k-inverse", *words, *QUICK[:4])[0] == 0
    place = Path("runs/paper-on-small")
    made = (place / "results" / "fb15k-inverse.json").read_bytes()
    away = tmp_path / "away"
    away.mkdir()
    for name in ("config.yaml", "history.jsonl", "timings.json"):  # no vectors, no graph
        shutil.copy(place / "fb15k-inverse" / "seed-0" / name, away)
    code, _, err = reproduce("collect", away, *words, "--results", tmp_path / "other")
    assert code == 0, err
    assert (tmp_path / "other" / "fb15k-inverse.json").read_bytes() == made
    found = answer(reproduce, "--only", "fb15k-inverse", *words, "--results", tmp_path / "other")
    assert {row["state"] for row in rows(found)} == {"run, 1 seed"}
    code, _, err = reproduce("collect", away, "--results", tmp_path / "third")  # without the settings
    assert (code, "no row of the paper's tables has these settings" in err) == (2, True), err


def test_the_list_shows_every_state(reproduce: Call, tmp_path: Path) -> None:
    found = answer(reproduce, "--list", "--results", tmp_path / "none")
    assert {row["state"] for row in rows(found)} == {"not run yet"}
    code, out, err = reproduce("2", "--list", "--results", tmp_path / "none")
    assert (code, "BLP" in out, "`python -m reproduction train 2` trains them" in err) == (0, True, True), err


def test_the_committed_results_are_found_from_anywhere_and_nothing_is_trained(
    reproduce: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")  # a narrow screen shows shorter names of runs
    code, out, err = reproduce("2")
    assert (code, "0.441" in out, "wn18rr-transe" in out, "trains them" in err) == (0, True, True, False), err
    assert reproduce("tables", "2")[1] == out
    code, _, err = reproduce("9", "--set", "neural.steps=3")  # not the settings of the committed results
    assert (code, "`python -m reproduction train 9 --set neural.steps=3`" in err) == (0, True), err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("7",), "Tables 6 and 7 are of its data sets and settings"),
        (("1", "--only", "TranE"), "--only TranE: no such row or run here"),
        (("1", "--data", "wn18rr"), "--data wn18rr: not a data set of these tables"),
        (("train", "1", "--set", "neural.dimm=3"), "unknown setting 'neural.dimm'"),
        (("train", "--seeds", "a"), "--seeds a"),
        (("1", "--graph", "umls"), "nothing has been run on umls yet"),
        (("collect", "nowhere"), "nowhere/config.yaml: no such file"),
    ],
)
def test_mistakes_are_named(reproduce: Call, words: tuple[str, ...], message: str) -> None:
    code, _, err = reproduce(*words)
    assert (code, message in err) == (2, True), err


def test_a_graph_without_test_triples_is_refused_before_training(reproduce: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.tsv").write_text("".join(f"a{i}\tr\ta{i + 1}\n" for i in range(30)))
    code, _, err = reproduce("train", "--only", "fb15k-blp", "--graph", "mine.tsv", *QUICK)
    assert (code, "there are no test triples" in err, "data convert mine.tsv DIRECTORY" in err) == (2, True, True), err
    assert not (tmp_path / "runs").exists()


def test_without_seeds_one_that_has_been_run_will_do(reproduce: Call, small: Path) -> None:
    words = ("train", "--only", "fb15k-mln", "--graph", small, *QUICK)
    assert reproduce(*words, "--seeds", "3")[0] == 0
    code, out, err = reproduce(*words)
    assert (code, "trainings to do: none" in err, "1 seed" in out) == (0, True, True), err
    code, out, err = reproduce(*words, "--seeds", "0,3")
    assert (code, "trainings to do: fb15k-mln (seed 0)" in err, "2 seeds" in out) == (0, True, True), err


@pytest.mark.parametrize(("width", "run"), [("80", "nne_aer-same"), ("140", "fb15k-nne_aer-same")])
def test_lines_name_their_runs_on_any_screen(
    width: str, run: str, reproduce: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    code, out, _ = reproduce("9")
    assert (code, f" {run} " in out, "fb15k-nne_aer-same" in out) == (0, True, width == "140")
    assert max(map(len, out.splitlines())) <= int(width)
    code, out, _ = reproduce("9", "--list")
    assert (code, "wn18-nne_aer" in out) == (0, True)


def test_the_page_command_writes_the_committed_page(reproduce: Call, tmp_path: Path) -> None:
    shutil.copy(DOCS / "reproduction-notes.yaml", tmp_path)
    assert reproduce("page", tmp_path / "page.md") == (0, "", "")
    assert (tmp_path / "page.md").read_bytes() == (DOCS / "reproduction.md").read_bytes()
