"""Runs in the real commands: killed and resumed, refitted, trained with several seeds, and errors."""

import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calling import Call, call_json
from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.graph import open_graph
from plogicnet.runs.directory import LOCK_FILE, State, snapshot_folder, state_of
from plogicnet.runs.origins import read_origins
from plogicnet.support.files import lock_directory
from plogicnet.training.hooks import Hooks
from small import write_small_graph
from stopping import StoppedError, different, files_of, leftovers, overwrite, stop_at, tree_of

PROGRAM = Path(sys.executable).with_name("plogicnet")
N_KILLS = int(os.environ.get("PLOGICNET_KILLS", "4"))
"""Number of kills. Twenty take some minutes."""
SETTINGS = {
    "device": "cpu",
    "threads": "1",
    "neural.steps": "300",
    "neural.vectors.dim": "16",
    "neural.vectors.gamma": "6",
    "neural.batch": "32",
    "neural.vectors.negatives": "8",
    "neural.vectors.share_negatives": "8",
    "neural.learning_rate": "0.05",
    "mln.hidden_premises": "sampled",
}
SMALL = [f"--set={key}={value}" for key, value in SETTINGS.items()]
QUICK = [*SMALL, "--set=neural.steps=20"]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_graph(tmp_path_factory.mktemp("graph"))


def error_message(call: Call, *arguments: object) -> str:
    code, out, stderr = call(*arguments)
    assert (code, out) == (2, "")
    return stderr


def config_of(options: list[str]) -> Config:
    return Config().with_assignments([option.removeprefix("--set=") for option in options])


@pytest.fixture(scope="module")
def trained(graph: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run; tests copy it before they change it."""
    out = tmp_path_factory.mktemp("runs") / "run"
    PLogicNet(config_of(QUICK)).fit(open_graph(str(graph)), out=out)
    return out


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def start(*arguments: object, errors: int = subprocess.PIPE) -> subprocess.Popen[str]:
    env = os.environ | {"NO_COLOR": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "140"}
    command = [str(PROGRAM), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, text=True, env=env)


def wait(child: subprocess.Popen[str]) -> tuple[int, str]:
    _, stderr = child.communicate(timeout=120)
    assert "Traceback" not in stderr
    return child.returncode, stderr


SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
FILES = (
    "work/checkpoint/e_step.safetensors",  # the M-step starts
    None,  # any time, mostly in an E-step
    "snapshots/.0001.*.part/rules.tsv",  # the snapshot is being written
    "work/checkpoint/1/manifest.json",  # between two iterations
    "work/checkpoint/.1.*.part/rules.tsv",  # an iteration is being written
    None,
    "snapshots/0001/manifest.json",  # the snapshot is complete, but CURRENT is missing
    "work/checkpoint/start/manifest.json",  # mining starts
    None,
    "work/checkpoint/.2.*.part/hidden.parquet",
)
"""The kill follows the creation of such a file; with None it comes at a random moment."""


def train_and_kill(
    run: Path, arguments: list[object], signal_sent: signal.Signals, delay: Callable[[], float], file: str | None
) -> str:
    """Train, send the signal a moment after the file is created, and return stderr."""
    trigger = file or "work/checkpoint/start/manifest.json"
    for attempt in range(10):
        shutil.rmtree(run, ignore_errors=True)
        child = start(*arguments, run)
        while not any(run.glob(trigger)) and child.poll() is None:
            time.sleep(0.0002)
        time.sleep(delay() / (1 + attempt))
        child.send_signal(signal_sent)
        code, stderr = wait(child)
        if state_of(run) is not State.COMPLETE or leftovers(run):
            break  # otherwise the training was complete before the signal
    assert code in (-signal_sent, 130), stderr
    if code == 130 and state_of(run) is State.UNFINISHED:
        assert f"plogicnet resume {run}" in stderr
    return stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_killed_and_resumed_training_writes_the_same_files(call: Call, graph: Path, tmp_path: Path) -> None:
    uninterrupted, rng, descriptions = tmp_path / "whole", random.Random(0), []
    arguments: list[object] = ["train", graph, *SMALL, "--out"]
    assert call(*arguments, uninterrupted)[0] == 0
    seconds = sum(read_origins(uninterrupted)["0001"].seconds.values())
    for number in range(N_KILLS):
        run, signal_sent, file = tmp_path / str(number), SIGNALS[number % 4], FILES[number % len(FILES)]
        max_wait = 0.003 if file else seconds
        train_and_kill(run, arguments, signal_sent, lambda max_wait=max_wait: rng.uniform(0, max_wait), file)  # type: ignore[misc]
        remaining = ", ".join(sorted(str(p.relative_to(run)) for p in run.rglob("*") if p.is_file()))
        descriptions.append(f"{signal_sent.name} after {file or 'some time'}, left: {remaining}")
        code, _, stderr = call("resume", run)
        if "before anything was saved" in stderr:
            code, _, stderr = call(*arguments, run)
        elif "is complete" in stderr:
            code = 0
        assert code == 0, descriptions[-1] + stderr
        assert different(uninterrupted, run) == [], descriptions[-1]
        assert leftovers(run) == []
    print("\n".join(descriptions))  # shown by pytest -rP


def test_a_complete_run_is_resumed_only_for_more_iterations(call: Call, run: Path, graph: Path, tmp_path: Path) -> None:
    before = tree_of(run)
    (run / "work" / "checkpoint" / "1").mkdir(parents=True)  # left by a kill at the very end
    (run / "snapshots" / ".0002.7.part").mkdir()
    (run / "snapshots" / ".0002.7.part" / "metrics.json").write_text("half of it")
    stderr = error_message(call, "resume", run)
    assert f"{run} is complete, so there is nothing to resume" in stderr
    assert f"Add an EM iteration with `plogicnet resume {run} --set em.iterations=3`" in stderr
    assert tree_of(run) == before
    assert leftovers(run) == []
    for assignment in ("em.iterations=2", "em.iterations=1", "em.patience=3"):
        assert "is complete" in error_message(call, "resume", run, "--set", assignment)
    result = call_json(call, "resume", run, "--set", "em.iterations=3")
    assert result["run"] == str(run)
    assert len(files_of(run)["history.jsonl"].splitlines()) == 3
    code, _, stderr = call("train", graph, "--out", tmp_path / "whole", *QUICK, "--set=em.iterations=3")
    assert code == 0, stderr
    assert "EM iteration 3" in stderr
    assert different(run, tmp_path / "whole") == []


@pytest.mark.parametrize(
    "assignment", ["neural.vectors.dim=7", "seed=3", "em.iterations", "em.rules=false", "em.iterationss=3"]
)
def test_resume_refuses_other_settings(call: Call, run: Path, assignment: str) -> None:
    before = tree_of(run)
    assert f"--set {assignment}: only em.iterations and em.patience can change" in error_message(
        call, "resume", run, "--set", assignment
    )
    assert tree_of(run) == before


def test_resume_needs_a_run(call: Call, tmp_path: Path) -> None:
    assert "nowhere: the directory does not exist" in error_message(call, "resume", tmp_path / "nowhere")
    assert "contains no run, or its training stopped before" in error_message(call, "resume", tmp_path)
    assert not list(tmp_path.iterdir())


def test_every_command_refuses_a_run_of_a_newer_version(call: Call, run: Path) -> None:
    overwrite(snapshot_folder(run) / "manifest.json", json.dumps({"format": 2, "version": "9.9"}))
    before = tree_of(run)
    for command in ("resume", "refit", "rules", "evaluate"):
        stderr = error_message(call, command, run)
        assert "manifest.json has a newer format, written by plogicnet 9.9. This version" in stderr
        assert "Update plogicnet" in stderr
    assert tree_of(run) == before


def test_a_locked_run_can_only_be_read(call: Call, run: Path, graph: Path, tmp_path: Path) -> None:
    unfinished = tmp_path / "unfinished"
    with pytest.raises(StoppedError):
        PLogicNet(config_of(QUICK)).fit(open_graph(str(graph)), out=unfinished, hooks=Hooks(stop_at("training")))
    with lock_directory(unfinished, LOCK_FILE):
        assert "another process is writing here" in error_message(call, "resume", unfinished)
        assert "another process is writing its first snapshot" in error_message(call, "rules", unfinished)
    more = ("resume", run, "--set", "em.iterations=3")
    with lock_directory(run, LOCK_FILE):
        for arguments in (("refit", run), ("resume", run), more, ("runs", "revert", run, "0001")):
            assert "another process is writing here" in error_message(call, *arguments)
        for words in (("rules", run), ("evaluate", run), ("runs", "list", run)):
            assert call(*words)[0] == 0


def test_refit_uses_the_rules_of_the_run_or_of_a_file(call: Call, run: Path, tmp_path: Path) -> None:
    before = files_of(run)
    call_json(call, "refit", run)
    assert files_of(run) == before
    file = tmp_path / "one.rules"
    file.write_text("=0.5: husband(X, Y) => wife(Y, X)\n")
    call_json(call, "refit", run, "--rules", file)
    [row] = call_json(call, "rules", run)["rules"]
    assert (row["rule"], row["weight"], row["standard_error"]) == ("husband(X, Y) => wife(Y, X)", 0.5, None)
    file.write_text("husband(X, Y) => wives(Y, X)\n")
    remaining = tree_of(run)
    assert "wives" in error_message(call, "refit", run, "--rules", file)
    assert tree_of(run) == remaining
    assert files_of(run)["neural.safetensors"] == before["neural.safetensors"]


def test_an_edited_table_is_refused_with_advice(call: Call, run: Path) -> None:
    file = snapshot_folder(run) / "rules.tsv"
    overwrite(file, file.read_text().replace("husband", "wife"))
    for command in ("refit", "rules", "evaluate"):
        stderr = error_message(call, command, run)
        assert stderr.startswith(f"plogicnet: {file} is damaged or was edited: its checksum does not match")
        assert "run `plogicnet refit RUN --rules my.rules`" in stderr


def test_rules_are_shown_with_weight_standard_error_and_groundings(call: Call, run: Path) -> None:
    rows = call_json(call, "rules", run)["rules"]
    learned = [row for row in rows if row["pattern"] != "irreflexive"]
    assert learned
    assert all(row["standard_error"] > 0 and row["groundings"] >= row["support"] for row in learned)
    assert all(row["weight"] is row["standard_error"] is row["groundings"] is None for row in rows[len(learned) :])
    best = max(learned, key=lambda row: abs(row["weight"]) * row["hits"] ** 0.5)
    _, text, _ = call("rules", run, "--top", 1)
    assert f"{best['weight']:.2f} ± {best['standard_error']:.2f}" in text
    assert "groundings" in text
    assert f"{len(rows) - 1} rules not shown." in text


def test_rules_are_filtered_and_the_most_important_of_each_relation_are_shown(
    call: Call, run: Path, tmp_path: Path
) -> None:
    rows = call_json(call, "rules", run)["rules"]

    def relation(row: dict[str, Any]) -> str:
        return str(row["rule"]).partition("=> ")[2].removeprefix("not ").partition("(")[0]

    relations = {relation(row) for row in rows}
    some = call_json(call, "rules", run, "--top", len(relations))
    assert some["total"] == len(rows)
    assert {relation(row) for row in some["rules"]} == relations
    assert some["rules"] == [row for row in rows if row in some["rules"]]
    filters = ("--relation", "wife", "--pattern", "inverse", "--search", "HUSBAND")
    found = call_json(call, "rules", run, *filters)["rules"]
    expected = [row for row in rows if relation(row) == "wife" and row["pattern"] == "inverse"]
    assert found == [row for row in expected if "husband" in row["rule"]] != []
    assert call_json(call, "rules", run, *filters, "--out", tmp_path / "some.rules")["written"] == len(found)
    _, text, _ = call("rules", run, "--top", 0)
    assert "not shown" not in text
    assert f"{len(rows)} rules" in text
    for wrong, message in ((("--relation", "wive"), "Did you mean 'wife'?"), (("--pattern", "no"), "unknown pattern")):
        assert message in error_message(call, "rules", run, *wrong)


def test_several_seeds_train_one_run_each_and_average_the_metrics(call: Call, graph: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    result = call_json(call, "train", graph, "--out", out, "--seeds", "0,1,2", *QUICK)
    assert result["runs"] == {str(s): str(out / f"seed-{s}") for s in range(3)}
    each = [json.loads(files_of(out / f"seed-{s}")["metrics.json"])["test"] for s in range(3)]
    assert set(result["test"]) == {"neural", "rules", "plogicnet", "plogicnet*"}
    for name, summary in result["test"].items():
        for metric in ("mr", "mrr", "hits_at_1", "hits_at_3", "hits_at_10"):
            values = [metrics[name][metric] for metrics in each]
            assert summary[metric]["mean"] == pytest.approx(statistics.mean(values), rel=1e-12)
            assert summary[metric]["sd"] == pytest.approx(statistics.stdev(values), rel=1e-9, abs=1e-12)
    assert len({metrics["neural"]["mrr"] for metrics in each}) > 1, "seeds differ"
    code, _, stderr = call("train", graph, "--out", tmp_path / "one", "--seed", 1, *QUICK)
    assert code == 0, stderr
    assert different(out / "seed-1", tmp_path / "one") == []
    more = call_json(call, "train", graph, "--out", out, "--seeds", "1,3", *QUICK)
    assert set(more["runs"]) == {"1", "3"}
    assert different(out / "seed-1", tmp_path / "one") == [], "a complete run is not trained again"
    stderr = error_message(
        call, "train", graph, "--out", out, "--seeds", "4,1", *QUICK, "--set", "neural.vectors.dim=3"
    )
    assert "other settings" in stderr
    assert not (out / "seed-4").exists()


@pytest.mark.parametrize("seeds", ["", "a", "0,0", "-1", "0,,1", "1.5", "0,99999999999"])
def test_invalid_seeds_are_refused_before_a_directory_is_created(
    call: Call, graph: Path, tmp_path: Path, seeds: str
) -> None:
    assert "seed" in error_message(call, "train", graph, "--out", tmp_path / "runs", f"--seeds={seeds}", *QUICK)
    assert not (tmp_path / "runs").exists()
