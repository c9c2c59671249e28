"""The command `tune`: its table, JSON and best settings, killed and continued, and errors."""

import json
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from calling import Call, call_json
from forking import run_program
from plogicnet.support.files import lock_directory
from small import SMALL, write_small_graph

BASE = [f"--set={key}={value}" for key, value in SMALL.items()]
SEARCH = [
    *("--model", "TransE,ComplEx", "--search", "neural.steps=10,20", "--search", "neural.vectors.dim=4..8"),
    *("--search", "neural.batch=16,32", "--trials", "6"),
]
OPTIONS = [*BASE, *SEARCH]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_graph(tmp_path_factory.mktemp("graph"))


def without_seconds(result: dict[str, Any]) -> dict[str, Any]:
    """Return what must not differ between two equal searches."""
    trials = [{key: value for key, value in trial.items() if key != "seconds"} for trial in result["trials"]]
    return {"trials": trials, "best": result["best"]}


def test_the_table_and_the_json_contain_all_trials(
    call: Call, graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "search"
    result = call_json(call, "tune", graph, "--out", out, *OPTIONS)
    assert list(result) == ["directory", "trials", "best"]
    assert result["directory"] == str(out)
    assert [trial["trial"] for trial in result["trials"]] == list(range(6))
    base, *others = result["trials"]
    assert base["settings"] == {"neural.model": "TransE"}
    assert [trial["settings"]["neural.model"] for trial in others[:2]] == ["TransE", "ComplEx"]
    complete = [trial for trial in result["trials"] if trial["state"] == "complete"]
    best = max(complete, key=lambda trial: (trial["mrr"], -trial["trial"]))
    assert result["best"] == {key: best[key] for key in ("trial", "mrr", "settings")}

    monkeypatch.setenv("COLUMNS", "80")
    code, stdout, stderr = call("tune", graph, "--out", out, *OPTIONS)  # nothing is left to run
    assert code == 0, stderr
    table, next_step = stdout.split("Best settings")
    assert max(map(len, table.splitlines())) <= 80
    assert f"6 trials. Best: trial {best['trial']}, valid MRR {best['mrr']:.4f}" in table
    assert f"Next: plogicnet train {graph} --config {out / 'best.yaml'} --out RUN" in next_step

    trained = call_json(
        call, "train", graph, "--config", out / "best.yaml", "--out", tmp_path / "run", "--device=cpu", "--threads=1"
    )
    assert trained["valid"]["plogicnet*"]["mrr"] == best["mrr"]


def test_the_test_split_is_never_read(call: Call, graph: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for split in ("train", "valid"):
        (other / f"{split}.txt").write_text((graph / f"{split}.txt").read_text())
    (other / "test.txt").write_text("man0\tparent\tman0\nman0\twife\tman1\n")
    options = [*OPTIONS, "--trials", 4]
    results = [
        call_json(call, "tune", g, "--out", tmp_path / name, *options) for g, name in ((graph, "a"), (other, "b"))
    ]
    assert without_seconds(results[0]) == without_seconds(results[1])


def test_a_graph_without_a_valid_split_holds_triples_out(call: Call, graph: Path, tmp_path: Path) -> None:
    options = [*OPTIONS, "--out", tmp_path / "search", "--trials", 2]
    code, _, stderr = call("tune", graph / "train.txt", *options)
    assert code == 0, stderr
    assert "the graph has no valid split, so 4 training triples are held out" in stderr


def test_a_stopped_search_continues_with_the_same_trials(call: Call, graph: Path, tmp_path: Path) -> None:
    options = ["tune", graph, *OPTIONS, "--seed", "5"]
    whole = call_json(call, *options, "--out", tmp_path / "whole")
    out = tmp_path / "stopped"
    file = out / "trials.jsonl"
    for stop, n_finished, code in ((signal.SIGKILL, 1, -signal.SIGKILL), (signal.SIGTERM, 3, 130)):

        def is_time(n: int = n_finished) -> bool:
            return file.exists() and len(file.read_text().splitlines()) >= n

        stopped = run_program(*options, "--out", out, stop=(stop, is_time))
        assert stopped.returncode == code, stopped.stderr
        assert n_finished <= len(file.read_text().splitlines()) < 6
    assert f"Stopped. To continue, run the same command again. Its trials are in {out}." in stopped.stderr
    before = file.read_text()
    continued = call_json(call, *options, "--out", out)
    assert without_seconds(continued) == without_seconds(whole)
    assert (out / "best.yaml").read_bytes() == (tmp_path / "whole" / "best.yaml").read_bytes()
    assert file.read_text().startswith(before)


@pytest.fixture(scope="module")
def searched(graph: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a search with one trial."""
    out = tmp_path_factory.mktemp("search") / "out"
    assert run_program("tune", graph, *OPTIONS, "--trials", 1, "--out", out).returncode == 0
    return out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "neural.steps=11"], "another search (neural.steps: 20, now 11)"),
        (["--seed", "3"], "another search (seed: 0, now 3)"),
        (["--search", "neural.batch=8"], "another search (TransE neural.batch: 16,32, now 8)"),
        (["--model", "TransE"], "another search (ComplEx neural.vectors.dim: 4..8, now none)"),
    ],
)
def test_a_directory_of_another_search_is_refused(
    call: Call, graph: Path, searched: Path, options: list[str], message: str
) -> None:
    before = (searched / "trials.jsonl").read_text()
    code, stdout, stderr = call("tune", graph, "--out", searched, *OPTIONS, *options)
    assert (code, stdout) == (2, "")
    assert message in stderr
    assert "Use another --out, or remove this directory." in stderr
    assert (searched / "trials.jsonl").read_text() == before


def test_a_directory_of_another_graph_is_refused(call: Call, graph: Path, searched: Path, tmp_path: Path) -> None:
    lines = (graph / "train.txt").read_text().splitlines(keepends=True)
    (tmp_path / "train.txt").write_text("".join(lines[1:]))
    (tmp_path / "valid.txt").write_text((graph / "valid.txt").read_text())
    code, _, stderr = call("tune", tmp_path, "--out", searched, *OPTIONS)
    assert code == 2
    assert f"{searched} contains another search (graph checksum: " in stderr


def test_unusable_directories_are_refused(call: Call, graph: Path, searched: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("")
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "search.json").write_text((searched / "search.json").read_text())
    (damaged / "trials.jsonl").write_text((searched / "trials.jsonl").read_text()[:40] + "\n")
    for out, message in (
        (tmp_path / "mine" / "notes.txt", "is a file. Use a new directory."),
        (tmp_path / "mine", "contains other files. Use a new directory."),
        (damaged, "trials.jsonl, line 1: damaged. Remove this and the later lines."),
    ):
        code, _, stderr = call("tune", graph, "--out", out, *OPTIONS)
        assert code == 2
        assert message in stderr
    with lock_directory(searched):
        assert "another process is writing here" in call("tune", graph, "--out", searched, *OPTIONS)[2]


def test_a_model_that_the_user_chose_is_the_only_one(call: Call, graph: Path, tmp_path: Path) -> None:
    for arguments, models in (
        (["--set", "neural.model=TransE"], {"TransE"}),
        (["--model", "DistMult"], {"DistMult"}),
        ([], {"ComplEx", "RotatE", "TransE", "DistMult"}),
    ):
        out = tmp_path / "-".join(arguments or ["default"])
        call_json(call, "tune", graph, "--out", out, *BASE, *arguments, "--trials", 1)
        search = json.loads((out / "search.json").read_text())
        assert {model for model, _, key in (name.partition(" ") for name in search) if "." in key} == models
        first = json.loads((out / "trials.jsonl").read_text())
        assert first["settings"]["neural.model"] == ("DistMult" if models == {"DistMult"} else "TransE")


def test_the_next_command_reads_the_graph_in_the_same_way(call: Call, graph: Path, tmp_path: Path) -> None:
    data, rules, out = tmp_path / "my graph.txt", tmp_path / "my.rules", tmp_path / "my search"
    lines = (line.split("\t") for line in (graph / "train.txt").read_text().splitlines())
    data.write_text("".join(f"{head}\t{tail}\t{relation}\n" for head, relation, tail in lines))
    rules.write_text("wife(A, B) => husband(B, A)\n")
    reading = [data, "--rules", rules, "--columns", "htr", "--split", "0.8,0.1,0.1"]
    code, stdout, stderr = call("tune", *reading, "--out", out, *OPTIONS, "--trials", 1)
    assert code == 0, stderr
    *_, command = stdout.splitlines()[-1].partition("Next: ")
    expected = ["plogicnet", "train", *map(str, reading), "--config", str(out / "best.yaml"), "--out", "RUN"]
    assert shlex.split(command) == expected


def test_invalid_options_exit_with_2(call: Call, graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, stderr = call("tune", graph, "--search", "neural.vectors.dimm=1,2")
    assert code == 2
    assert "Did you mean 'neural.vectors.dim'?" in stderr
    assert "Available: TransE" in call("tune", graph, "--model", "Complexxx")[2]
    assert "nothing to search" in call("tune", graph, "--set", "em.neural=false")[2]
    monkeypatch.setitem(sys.modules, "optuna", None)
    code, _, stderr = call("tune", graph)
    assert code == 2
    assert "`tune` needs Optuna. Install it with: pip install 'plogicnet[tune]'" in stderr
