"""The commands of `python -m reproduction`: training on another graph, collecting, and showing results."""

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from calling import Call, call_json
from plogicnet import PLogicNet
from plogicnet.graph import open_graph
from plogicnet.runs.origins import read_origins
from plogicnet.training.hooks import Hooks
from reproduction.inspection import rank_test
from reproduction.results import expected_iterations
from reproduction.tables import paper
from small import write_small_graph
from stopping import StoppedError, files_of, stop_at

DOCS = Path(__file__).parents[2] / "docs"
QUICK = [
    *("--device", "cpu", "--threads", "1"),
    *("--set", "neural.steps=20", "--set", "neural.vectors.dim=16", "--set", "neural.batch=64"),
    *("--set", "neural.vectors.negatives=8", "--set", "neural.vectors.share_negatives=8"),
]
# the smoke run spends most of its time on scoring hidden triples by convolution and on the 1,000 gradient steps of the
# paper's M-step; fewer dimensions, steps and rules are enough for the test
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
    """Smoke run of six neural models inside pLogicNet, BLP, RUGE, NNE-AER, rules alone and each pattern alone."""
    if not (Path(os.environ.get("PLOGICNET_DATA", "no-data")) / "umls").is_dir():
        pytest.skip("PLOGICNET_DATA is not set to a directory with umls")
    monkeypatch.setattr("reproduction.training.cost", lambda *_: "")  # skip eleven trial runs; other tests include one
    # the FB15k rows of these tables include every system; em.rules=true adds rules to the systems without
    words = ("train", "1", "3", "10", "--data", "fb15k", "--graph", "umls", "--set", "em.rules=true", *QUICK, *QUICKER)
    assert {row["state"] for row in rows(call_json(reproduce, *words))} == {"run, 1 seed"}
    results = {f.stem: json.loads(f.read_text()) for f in Path("runs/paper-on-umls/results").glob("*.json")}
    models = {paper().runs[name].config().neural.model for name in results}
    assert models == {"TransE", "DistMult", "HolE", "ComplEx", "ConvE", "RotatE"}
    assert {paper().runs[name].config().system for name in results} == {"plogicnet", "blp", "ruge", "nne_aer"}
    for name, result in results.items():
        iterations = [line["iteration"] for line in result["iterations"]]
        config = paper().runs[name].config().with_values({"em.rules": True})
        assert iterations == list(range(1, expected_iterations(config) + 1))
        for line in result["iterations"]:
            assert line["hidden"] > 0
            assert all(0 < metrics["mrr"] <= 1 for metrics in line["metrics"].values())
    folder = Path("runs/paper-on-umls")
    shared = [run for run in folder.glob("*/seed-0") if "e_step_shared" in read_origins(run)["0001"].seconds]
    assert len(shared) >= 4  # all but the first of the trainings with the same first E-step


def test_content_of_a_result_file(reproduce: Call, small: Path) -> None:
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
    own = json.loads(files_of(Path("runs/paper-on-small/wn18-rotate/seed-0"))["metrics.json"])["test"]
    last = result["by_seed"][0]["iterations"][1]["metrics"]
    for system in ("neural", "rules", "plogicnet", "plogicnet*"):  # the last inspection ranked the final model
        assert last[system]["mrr"] == pytest.approx(own[system]["mrr"], abs=1e-6)
    # existing results are not trained again
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
    config = PLogicNet.load("kept/fb15k-symmetric/seed-0").config
    hooks = Hooks(progress=stop_at("training", time=2), inspect=rank_test(config, None))
    with pytest.raises(StoppedError):
        PLogicNet(config).fit(open_graph(small), out=place / "fb15k-symmetric" / "seed-0", hooks=hooks)
    code, _, err = reproduce(*words)
    assert code == 0, err
    again = json.loads((place / "results" / "fb15k-symmetric.json").read_text())
    assert again["iterations"] == whole["iterations"]
    code, _, err = reproduce(*words, "--set", "neural.vectors.dim=8", "--results", "elsewhere")
    assert (code, "contains a run with other settings" in err) == (2, True), err


def test_results_of_other_settings_or_another_graph_are_ignored(reproduce: Call, small: Path) -> None:
    words = ("2", "--only", "wn18rr-mln", "--graph", small, *QUICK[4:])
    assert reproduce("train", *words, "--device", "cpu", "--out", "here")[0] == 0
    other = (*words, "--set", "rules.min_precision.composition=0.9", "--results", "here/results")
    code, _, err = reproduce("train", *other, "--out", "there")
    assert (code, "of other settings. Use --results with another directory" in err) == (2, True), err
    assert {row["state"] for row in rows(call_json(reproduce, *other))} == {"not run yet"}


def test_command_of_a_result_reproduces_it(reproduce: Call, small: Path) -> None:
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


def test_collect_run_directory_from_another_machine(reproduce: Call, small: Path, tmp_path: Path) -> None:
    words = ("--graph", small, *QUICK[4:])
    assert reproduce("train", "--only", "fb15k-inverse", *words, *QUICK[:4])[0] == 0
    place = Path("runs/paper-on-small")
    made = (place / "results" / "fb15k-inverse.json").read_bytes()
    away, large = tmp_path / "away", ("neural.safetensors", "*.parquet", "*.tsv")
    shutil.copytree(place / "fb15k-inverse" / "seed-0", away, ignore=shutil.ignore_patterns(*large))
    code, _, err = reproduce("collect", away, *words, "--results", tmp_path / "other")
    assert code == 0, err
    assert (tmp_path / "other" / "fb15k-inverse.json").read_bytes() == made
    found = call_json(reproduce, "--only", "fb15k-inverse", *words, "--results", tmp_path / "other")
    assert {row["state"] for row in rows(found)} == {"run, 1 seed"}
    code, _, err = reproduce("collect", away, "--results", tmp_path / "third")  # without the settings
    assert (code, "no row of the paper's tables has these settings" in err) == (2, True), err


def test_list_shows_every_state(reproduce: Call, tmp_path: Path) -> None:
    found = call_json(reproduce, "--list", "--results", tmp_path / "none")
    assert {row["state"] for row in rows(found)} == {"not run yet"}
    code, out, err = reproduce("2", "--list", "--results", tmp_path / "none")
    assert (code, "BLP" in out, "`python -m reproduction train 2` trains them" in err) == (0, True, True), err


def test_committed_results_are_found_from_any_directory_and_nothing_is_trained(
    reproduce: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")  # a narrow terminal shows shorter names of runs
    code, out, err = reproduce("2")
    assert (code, "0.441" in out, "wn18rr-transe" in out, "trains them" in err) == (0, True, True, False), err
    assert reproduce("tables", "2")[1] == out
    code, _, err = reproduce("9", "--set", "neural.steps=3")  # the committed results have other settings
    assert (code, "`python -m reproduction train 9 --set neural.steps=3`" in err) == (0, True), err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("7",), "Tables 6 and 7 of the paper list its data sets and settings"),
        (("1", "--only", "TranE"), "--only TranE: unknown row or run"),
        (("1", "--data", "wn18rr"), "--data wn18rr: not a data set of these tables"),
        (("train", "1", "--set", "neural.dimm=3"), "unknown setting 'neural.dimm'"),
        (("train", "--seeds", "a"), "--seeds a"),
        (("1", "--graph", "umls"), "no results on umls yet"),
        (("collect", "nowhere"), "no run at nowhere: the directory does not exist"),
    ],
)
def test_input_errors(reproduce: Call, words: tuple[str, ...], message: str) -> None:
    code, _, err = reproduce(*words)
    assert (code, message in err) == (2, True), err


def test_graph_without_test_triples_raises_before_training(reproduce: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.tsv").write_text("".join(f"a{i}\tr\ta{i + 1}\n" for i in range(30)))
    code, _, err = reproduce("train", "--only", "fb15k-blp", "--graph", "mine.tsv", *QUICK)
    assert (code, "the graph has no test triples" in err, "data convert mine.tsv DIRECTORY" in err) == (
        2,
        True,
        True,
    ), err
    assert not (tmp_path / "runs").exists()


def test_without_seeds_any_existing_seed_is_enough(reproduce: Call, small: Path) -> None:
    words = ("train", "--only", "fb15k-mln", "--graph", small, *QUICK)
    assert reproduce(*words, "--seeds", "3")[0] == 0
    code, out, err = reproduce(*words)
    assert (code, "trainings to do: none" in err, "1 seed" in out) == (0, True, True), err
    code, out, err = reproduce(*words, "--seeds", "0,3")
    assert (code, "trainings to do: fb15k-mln (seed 0)" in err, "2 seeds" in out) == (0, True, True), err


@pytest.mark.parametrize(("width", "run"), [("80", "nne_aer-same"), ("140", "fb15k-nne_aer-same")])
def test_lines_show_their_runs_at_any_terminal_width(
    width: str, run: str, reproduce: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    code, out, _ = reproduce("9")
    assert (code, f" {run} " in out, "fb15k-nne_aer-same" in out) == (0, True, width == "140")
    assert max(map(len, out.splitlines())) <= int(width)
    code, out, _ = reproduce("9", "--list")
    assert (code, "wn18-nne_aer" in out) == (0, True)


def test_page_command_writes_the_committed_pages(reproduce: Call, tmp_path: Path) -> None:
    shutil.copy(DOCS / "reproduction-notes.yaml", tmp_path)
    assert reproduce("page", tmp_path / "page.md") == (0, "", "")
    assert (tmp_path / "page.md").read_bytes() == (DOCS / "reproduction.md").read_bytes()
    name = "reproduction-appendix.md"
    assert (tmp_path / name).read_bytes() == (DOCS / name).read_bytes()
