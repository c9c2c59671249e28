"""Runs through the real commands: killed and resumed, refitted, over several seeds; and what is refused in words."""

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

import pytest

from calling import Call, answer
from plogicnet.support.files import locked
from small import write_small_graph
from stopping import different, files_of

PROGRAM = Path(sys.executable).with_name("plogicnet")
KILLS = int(os.environ.get("PLOGICNET_KILLS", "4"))
"""How often the program is killed; twenty take some minutes."""
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


def refused(call: Call, *words: object) -> str:
    code, out, said = call(*words)
    assert (code, out) == (2, "")
    return said


@pytest.fixture(scope="module")
def trained(graph: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run; tests copy it before they change it."""
    from plogicnet import PLogicNet
    from plogicnet.config import Config
    from plogicnet.graph import open_graph

    out = tmp_path_factory.mktemp("runs") / "run"
    config = Config().with_assignments([s.removeprefix("--set=") for s in QUICK])
    PLogicNet(config).fit(open_graph(str(graph)), out=out)
    return out


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def start(*words: object, errors: int = subprocess.PIPE) -> subprocess.Popen[str]:
    env = os.environ | {"NO_COLOR": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "140"}
    command = [str(PROGRAM), *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, text=True, env=env)


def ended(child: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = child.communicate(timeout=120)
    assert "Traceback" not in said
    return child.returncode, said


SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
PARTS = (
    "checkpoint/e_step.safetensors",  # the M-step begins
    None,  # any time, most of it in E-steps
    "rules.tsv",  # the complete run is being saved
    "checkpoint/1/reached.json",  # between two iterations
    "checkpoint/1/rules.tsv",  # an iteration is being saved
    None,
    "neural.safetensors",
    "run.json",  # mining begins
    None,
    "checkpoint/2/hidden.parquet",
)
"""The files whose appearance says what the program is about to do."""


def killed(run: Path, words: list[object], kind: signal.Signals, wait: Callable[[], float], part: str | None) -> str:
    """Trains, and sends the signal a moment after the file has appeared; gives what was said until then."""
    appears = run / (part or "config.yaml")
    for late in range(10):
        shutil.rmtree(run, ignore_errors=True)
        child = start(*words, run)
        while not appears.exists() and child.poll() is None:
            time.sleep(0.0002)
        time.sleep(wait() / (1 + late))
        child.send_signal(kind)
        code, said = ended(child)
        if not (run / "metrics.json").exists() or (run / "checkpoint").exists():
            break  # else the signal came too late to break off anything
    assert code in (-kind, 130), said
    if code == 130 and (run / "run.json").exists():
        assert f"plogicnet resume {run}" in said
    return said


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_killed_at_any_moment_and_resumed_it_ends_with_the_same_files(call: Call, graph: Path, tmp_path: Path) -> None:
    whole, moment, places = tmp_path / "whole", random.Random(0), []
    words: list[object] = ["train", graph, *SMALL, "--out"]
    assert call(*words, whole)[0] == 0
    seconds = sum(json.loads((whole / "timings.json").read_text()).values())
    for number in range(KILLS):
        run, kind, part = tmp_path / str(number), SIGNALS[number % 4], PARTS[number % len(PARTS)]
        longest = 0.003 if part else seconds
        killed(run, words, kind, lambda longest=longest: moment.uniform(0, longest), part)  # type: ignore[misc]
        left = ", ".join(sorted(str(p.relative_to(run)) for p in run.rglob("*") if p.is_file()))
        places.append(f"{kind.name} after {part or 'some time'}, left: {left}")
        code, _, said = call("resume", run)
        if "before anything was saved" in said:
            code, _, said = call(*words, run)
        elif "is complete" in said:
            code = 0
        assert code == 0, places[-1] + said
        assert different(whole, run) == [], places[-1]
        assert not list(run.rglob("*.part"))
        assert not (run / "checkpoint").exists()
    print("\n".join(places))  # shown by pytest -rP


def test_resume_of_a_complete_run(call: Call, run: Path, graph: Path, tmp_path: Path) -> None:
    before = files_of(run)
    (run / "checkpoint").mkdir()  # left where a kill came in the very last moment
    (run / ".metrics.json.7.part").mkdir()
    (run / ".metrics.json.7.part" / "metrics.json").write_text("half of it")
    said = refused(call, "resume", run)
    assert f"{run} is complete; there is nothing to resume" in said
    assert f"`plogicnet resume {run} --set em.iterations=3` adds an EM iteration" in said
    assert files_of(run) == before | {".lock": b""}
    assert not (run / "checkpoint").exists()
    for words in ("em.iterations=2", "em.iterations=1", "em.patience=3"):
        assert "is complete" in refused(call, "resume", run, "--set", words)
    result = answer(call, "resume", run, "--set", "em.iterations=3")
    assert result["run"] == str(run)
    assert len((run / "history.jsonl").read_text().splitlines()) == 3
    code, _, said = call("train", graph, "--out", tmp_path / "whole", *QUICK, "--set=em.iterations=3")
    assert code == 0, said
    assert "EM iteration 3" in said
    assert different(run, tmp_path / "whole") == []


@pytest.mark.parametrize(
    "words", ["neural.vectors.dim=7", "seed=3", "em.iterations", "em.rules=false", "em.iterationss=3"]
)
def test_resume_takes_no_other_setting(call: Call, run: Path, words: str) -> None:
    before = files_of(run)
    assert f"--set {words}: a run keeps its own settings" in refused(call, "resume", run, "--set", words)
    assert files_of(run) == before


def test_resume_of_no_run(call: Call, tmp_path: Path) -> None:
    assert "nowhere: no such directory" in refused(call, "resume", tmp_path / "nowhere")
    assert "no run is here, or its training was stopped before" in refused(call, "resume", tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_newer_run_says_so_to_every_command(call: Call, run: Path) -> None:
    (run / "run.json").write_text(json.dumps({"format": 2, "version": "9.9"}))
    before = files_of(run)
    for command in ("resume", "refit", "rules", "evaluate"):
        said = refused(call, command, run)
        assert "was written by plogicnet 9.9, newer than this" in said
        assert "update plogicnet" in said
    assert files_of(run) == before


def test_a_second_writer_is_kept_out(call: Call, run: Path) -> None:
    (run / "metrics.json").rename(run / "metrics.away")  # a run in the making
    with locked(run):
        assert "another process is writing here" in refused(call, "resume", run)
    (run / "metrics.away").rename(run / "metrics.json")
    with locked(run):
        for words in (("refit", run), ("resume", run), ("resume", run, "--set", "em.iterations=3")):
            assert "another process is writing here" in refused(call, *words)


def test_refit_from_the_edited_table_and_from_a_file(call: Call, run: Path, tmp_path: Path) -> None:
    before, rows = files_of(run), answer(call, "rules", run)["rules"]
    answer(call, "refit", run)
    assert {name for name in before if files_of(run)[name] != before[name]} == set()
    lines = (run / "rules.tsv").read_text().splitlines()
    (run / "rules.tsv").write_text("\n".join([lines[0], *lines[2:]]) + "\n")
    answer(call, "refit", run)
    assert len(answer(call, "rules", run)["rules"]) == len(rows) - 1
    file = tmp_path / "one.rules"
    file.write_text("=0.5: husband(X, Y) => wife(Y, X)\n")
    answer(call, "refit", run, "--rules", file)
    [row] = answer(call, "rules", run)["rules"]
    assert (row["rule"], row["weight"], row["standard_error"]) == ("husband(X, Y) => wife(Y, X)", 0.5, None)
    file.write_text("husband(X, Y) => wives(Y, X)\n")
    left = files_of(run)
    assert "wives" in refused(call, "refit", run, "--rules", file)
    assert files_of(run) == left
    assert left["neural.safetensors"] == before["neural.safetensors"]


def test_rules_are_shown_with_their_report(call: Call, run: Path) -> None:
    rows = answer(call, "rules", run)["rules"]
    learned = [row for row in rows if row["pattern"] != "irreflexive"]
    assert learned
    assert all(row["standard_error"] > 0 and row["groundings"] >= row["support"] for row in learned)
    assert all(row["weight"] is row["standard_error"] is row["groundings"] is None for row in rows[len(learned) :])
    _, text, _ = call("rules", run, "--top", 1)
    assert f"{rows[0]['weight']:.2f} ± {rows[0]['standard_error']:.2f}" in text
    assert "groundings" in text


def test_several_seeds(call: Call, graph: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    result = answer(call, "train", graph, "--out", out, "--seeds", "0,1,2", *QUICK)
    assert result["runs"] == {str(s): str(out / f"seed-{s}") for s in range(3)}
    each = [json.loads((out / f"seed-{s}" / "metrics.json").read_text())["test"] for s in range(3)]
    assert set(result["test"]) == {"neural", "rules", "plogicnet", "plogicnet*"}
    for name, figures in result["test"].items():
        for figure in ("mr", "mrr", "hits_at_1", "hits_at_3", "hits_at_10"):
            values = [metrics[name][figure] for metrics in each]
            assert figures[figure]["mean"] == pytest.approx(statistics.mean(values), rel=1e-12)
            assert figures[figure]["sd"] == pytest.approx(statistics.stdev(values), rel=1e-9, abs=1e-12)
    assert len({metrics["neural"]["mrr"] for metrics in each}) > 1, "seeds differ"
    code, _, said = call("train", graph, "--out", tmp_path / "one", "--seed", 1, *QUICK)
    assert code == 0, said
    assert different(out / "seed-1", tmp_path / "one") == []
    more = answer(call, "train", graph, "--out", out, "--seeds", "1,3", *QUICK)
    assert set(more["runs"]) == {"1", "3"}
    assert different(out / "seed-1", tmp_path / "one") == [], "what is done is not trained again"
    said = refused(call, "train", graph, "--out", out, "--seeds", "4,1", *QUICK, "--set", "neural.vectors.dim=3")
    assert "other settings" in said
    assert not (out / "seed-4").exists()


@pytest.mark.parametrize("seeds", ["", "a", "0,0", "-1", "0,,1", "1.5", "0,99999999999"])
def test_bad_seeds_are_refused_before_anything_is_made(call: Call, graph: Path, tmp_path: Path, seeds: str) -> None:
    assert "seed" in refused(call, "train", graph, "--out", tmp_path / "runs", f"--seeds={seeds}", *QUICK)
    assert not (tmp_path / "runs").exists()
