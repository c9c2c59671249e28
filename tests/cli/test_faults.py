"""Faults in the real command: the message is clear, and no saved data is lost.

Full and read-only disks, removed files, two processes on one run, damaged and truncated files, edited settings, and
runs of other versions.
"""

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calling import Call, call_json
from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.graph import open_graph
from plogicnet.runs.directory import require_complete
from plogicnet.runs.reading import read_rules
from plogicnet.support.progress import Progress, Timer, no_progress
from plogicnet.training.hooks import Hooks
from reproduction.first_e_step import fit_or_load
from small import SMALL, small_graph, write_small_graph
from stopping import StoppedError, different, files_of, stop_at

STEPS = 70
QUERY = ("--head", "man0", "--relation", "husband")
READING_COMMANDS = (("evaluate",), ("predict", *QUERY), ("explain", "man0", "husband", "woman0"), ("doctor",))
THREE_ITERATIONS = SMALL | {"neural.steps": STEPS, "em.iterations": 3}
SETTINGS = [f"--set={key}={value}" for key, value in THREE_ITERATIONS.items()]
QUICK = [*SETTINGS, "--set=neural.steps=20", "--set=em.iterations=2"]


def train(out: Path, graph: Path, values: dict[str, object], progress: Progress = no_progress) -> Path:
    config = Config().with_values(THREE_ITERATIONS | values)
    PLogicNet(config).fit(open_graph(str(graph)), out=out, hooks=Hooks(progress))
    return out


def train_until_stopped(out: Path, graph: Path, values: dict[str, object], progress: Progress) -> Path:
    """Train until `progress` raises, and return the run directory."""
    with pytest.raises((StoppedError, KeyboardInterrupt)):
        train(out, graph, values, progress)
    return out


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_graph(tmp_path_factory.mktemp("graph"))


@pytest.fixture(scope="module")
def reference_run(graph: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run of three iterations; tests copy it before they change it."""
    return train(tmp_path_factory.mktemp("faults") / "run", graph, {})


@pytest.fixture(scope="module")
def stopped_run(graph: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same training, stopped in its third E-step after iterations 1 and 2 were saved."""
    progress = stop_at("training", 3, 50, KeyboardInterrupt)
    return train_until_stopped(tmp_path_factory.mktemp("faults") / "run", graph, {}, progress)


@pytest.fixture
def complete(reference_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(reference_run, tmp_path / "complete"))


@pytest.fixture
def unfinished(stopped_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped_run, tmp_path / "unfinished"))


def error_message(call: Call, *arguments: object) -> str:
    """Run a command that must fail without output or changed files, and return stderr."""
    folder = next((Path(str(word)) for word in arguments if Path(str(word)).is_dir()), None)
    before = files_of(folder) if folder else {}
    code, out, stderr = call(*arguments)
    assert (code, out) == (2, ""), stderr
    if folder and folder.is_dir():
        after = files_of(folder)
        assert {name for name in before | after if before.get(name) != after.get(name)} <= {".lock"}
        assert not list(folder.rglob("*.part"))
    return stderr


def resume(call: Call, run: Path, same_as: Path) -> str:
    """Resume a run, which must write the same files as an uninterrupted training, and return stderr."""
    code, _, stderr = call("resume", run)
    assert code == 0, stderr
    assert set(different(same_as, run)) <= {".lock"}
    assert not list(run.rglob("*.part"))
    assert not (run / "checkpoint").exists()
    return stderr


def flip_bit(file: Path, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def truncate(file: Path, size: int) -> None:
    with file.open("r+b") as opened:
        opened.truncate(size)


CommandResult = tuple[int, str, str]
"""Exit code, stdout, stderr."""
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]
CHILD = """
import contextlib, io, json, subprocess, sys

import plogicnet.cli

results = []
for command, *arguments in json.load(sys.stdin):
    if command.startswith("!"):
        result = subprocess.run([command[1:], *arguments], capture_output=True, text=True)
        results.append((result.returncode, result.stdout, result.stderr))
        continue
    sys.argv, out, err = ["plogicnet", command, *arguments], io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.suppress(SystemExit):
        code = None
        try:
            plogicnet.cli.main()
        except SystemExit as end:
            code = end.code
    results.append((code, out.getvalue(), err.getvalue()))
json.dump(results, sys.stdout)
"""
"""Runs commands in order. A command that starts with ! is a system command."""


def run_in_child(
    commands: Sequence[Sequence[object]], on: Path | None = None, options: str = ""
) -> list[CommandResult]:
    """Run commands in one child process. With `on`, a temporary file system is mounted there for this process only."""
    arguments = [sys.executable, "-c", CHILD]
    if on is not None:
        mount = f'mount -t tmpfs -o {options} none "$0" && exec "$@"'
        arguments = [*NAMESPACE, "sh", "-c", mount, str(on), *arguments]
    requests = json.dumps([list(map(str, command)) for command in commands])
    env = os.environ | {"NO_COLOR": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    child = subprocess.run(arguments, input=requests, capture_output=True, text=True, env=env, timeout=300, check=False)
    assert child.returncode == 0, child.stderr
    results = [(code, out, stderr) for code, out, stderr in json.loads(child.stdout)]
    assert not [stderr for _, _, stderr in results if "Traceback" in stderr]
    return results


@pytest.fixture(scope="module")
def mountable() -> None:
    try:
        allowed = subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        allowed = False
    if not allowed:
        pytest.skip("this system does not allow user mounts")


# Damaged and truncated files

OUTCOME_FILES = ("rules.tsv", "hidden.parquet", "history.jsonl", "neural.safetensors")
RUN_FILES = (
    "config.yaml",
    "graph.parquet",
    "entities.tsv",
    "relations.tsv",
    "run.json",
    "metrics.json",
    *OUTCOME_FILES,
)
DAMAGES: dict[str, Callable[[Path], None]] = {
    "cut in half": lambda file: truncate(file, file.stat().st_size // 2),
    "one byte short": lambda file: truncate(file, file.stat().st_size - 1),
    "emptied": lambda file: truncate(file, 0),
    "a bit flipped": lambda file: flip_bit(file, file.stat().st_size * 4),
    "removed": lambda file: file.unlink(),
}


@pytest.mark.parametrize("damage_kind", DAMAGES)
@pytest.mark.parametrize("name", RUN_FILES)
def test_a_damaged_file_of_a_complete_run_is_reported(call: Call, complete: Path, name: str, damage_kind: str) -> None:
    before = call_json(call, "predict", complete, *QUERY)
    DAMAGES[damage_kind](complete / name)
    if name in ("metrics.json", "run.json") and damage_kind == "one byte short":  # only the final newline is missing
        assert call_json(call, "predict", complete, *QUERY) == before
        return
    for command, *arguments in READING_COMMANDS:
        stderr = error_message(call, command, complete, *arguments)
        assert name in stderr, command
        assert len(stderr) < 1_000


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_bit_is_reported_or_harmless(
    call: Call, reference_run: Path, tmp_path: Path, data: st.DataObject
) -> None:
    run = tmp_path / "run"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(reference_run, run)
    name = data.draw(st.sampled_from(RUN_FILES))
    flip_bit(run / name, data.draw(st.integers(0, (run / name).stat().st_size * 8 - 1)))
    code, out, stderr = call("predict", run, *QUERY, "--json")
    if code == 2:
        assert name in stderr
        assert out == ""
    else:  # for example in the white space of a JSON file
        assert (code, json.loads(out)) == (0, call_json(call, "predict", reference_run, *QUERY))


def test_every_reading_command_reports_damaged_rules(call: Call, complete: Path) -> None:
    truncate(complete / "rules.tsv", (complete / "rules.tsv").read_text().rindex("\n", 0, -1) + 1)  # one rule fewer
    for command, *arguments in (*READING_COMMANDS, ("rules",)):
        assert "rules.tsv was changed after the run was saved (converted line endings" in error_message(
            call, command, complete, *arguments
        )


@pytest.mark.parametrize("damage_kind", DAMAGES)
@pytest.mark.parametrize("name", [*OUTCOME_FILES, "reached.json"])
def test_a_damaged_checkpoint_is_skipped_for_the_previous_one(
    call: Call, reference_run: Path, unfinished: Path, name: str, damage_kind: str
) -> None:
    DAMAGES[damage_kind](unfinished / "checkpoint" / "2" / name)
    stderr = resume(call, unfinished, same_as=reference_run)
    if name != "reached.json" or damage_kind not in (
        "one byte short",
        "removed",
    ):  # harmless, or the iteration counts as unfinished
        assert f"checkpoint/2/{name}" in stderr or f"checkpoint/2 is damaged: its file {name} is missing" in stderr
        assert "EM iteration 2 is skipped: " in stderr
        assert "resuming the training from EM iteration 1" in stderr


def test_without_an_intact_checkpoint_training_starts_from_the_beginning(
    call: Call, reference_run: Path, unfinished: Path
) -> None:
    for iteration in "12":
        flip_bit(unfinished / "checkpoint" / iteration / "hidden.parquet", 999)
    stderr = resume(call, unfinished, same_as=reference_run)
    assert "resuming the training from the beginning" in stderr


@pytest.mark.parametrize("damaged", ["last", "best", "all"])
def test_the_best_and_the_last_iteration_are_saved(call: Call, graph: Path, tmp_path: Path, damaged: str) -> None:
    """With em.patience the result is the best iteration. If its checkpoint is damaged, training starts again."""
    values = {
        "neural.model": "ComplEx",
        "neural.vectors.recipe": "one_vs_all",
        "neural.learning_rate": 0.1,
        "em.iterations": 9,
    }
    values |= {"em.patience": 2, "neural.steps": 30}
    expected_run = train(tmp_path / "whole", graph, values)
    best = json.loads((expected_run / "metrics.json").read_text())["iteration"]
    reached = len((expected_run / "history.jsonl").read_text().splitlines())
    assert reached == best + 2
    run = train_until_stopped(tmp_path / "run", graph, values, stop_at("training", reached))
    saved = sorted(int(p.name) for p in (run / "checkpoint").iterdir() if p.is_dir())
    assert saved == [best, best + 1]
    for iteration in {"last": saved[-1:], "best": saved[:1], "all": saved}[damaged]:
        flip_bit(run / "checkpoint" / str(iteration) / "neural.safetensors", 9999)
    stderr = resume(call, run, same_as=expected_run)
    assert ("resuming the training from the beginning" in stderr) == (damaged != "last")


def test_a_damaged_refit_is_not_trained_from_the_beginning(call: Call, complete: Path) -> None:
    """Training would use other rules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("plogicnet.runs.writing.publish", raise_stopped_error)
        with pytest.raises(StoppedError):
            PLogicNet.load(complete).refit("husband(X, Y) => wife(Y, X)", out=complete)
    (complete / "metrics.json").unlink()  # `publish` starts with this
    flip_bit(complete / "checkpoint" / "3" / "hidden.parquet", 999)
    assert "checkpoint/3/hidden.parquet is damaged" in error_message(call, "resume", complete)


@pytest.mark.parametrize("damaged", ["the checkpoint", "the run too"])
def test_more_iterations_restart_from_the_complete_run_if_the_checkpoint_is_damaged(
    call: Call, graph: Path, complete: Path, tmp_path: Path, damaged: str
) -> None:
    expected_run = train(tmp_path / "whole", graph, {"em.iterations": 4})
    with pytest.raises(StoppedError):
        PLogicNet.resume(complete, {"em.iterations": 4}, Hooks(stop_at("training", 1, 50)))
    flip_bit(complete / "checkpoint" / "3" / "neural.safetensors", 9999)
    if damaged == "the run too":
        flip_bit(complete / "hidden.parquet", 9999)
        assert f"{complete / 'hidden.parquet'} is damaged" in error_message(call, "resume", complete)
        return
    assert "resuming the training from the previously complete run" in resume(call, complete, same_as=expected_run)


def raise_stopped_error(*_: object) -> None:
    raise StoppedError


@pytest.mark.parametrize("name", ["graph.parquet", "entities.tsv", "relations.tsv", "config.yaml", "run.json"])
@pytest.mark.parametrize("damage_kind", ["cut in half", "a bit flipped"])
def test_resume_needs_the_intact_files_of_the_start(call: Call, unfinished: Path, name: str, damage_kind: str) -> None:
    DAMAGES[damage_kind](unfinished / name)
    assert name in error_message(call, "resume", unfinished)


def test_damaged_rules_of_the_user_are_reported(call: Call, tmp_path: Path) -> None:
    run = tmp_path / "run"
    config = Config().with_values(SMALL)
    with pytest.raises(StoppedError):
        PLogicNet(config).fit(small_graph(), "2: husband(X, Y) => wife(Y, X)", run, Hooks(stop_at("mining")))
    file = run / "checkpoint" / "written.rules"
    file.write_text(file.read_text().replace("2.0: ", "3.0: ").replace("2: ", "3: "))
    assert f"{file} is damaged or was edited" in error_message(call, "resume", run)


# Checkpoints inside an E-step


def test_a_damaged_checkpoint_of_an_e_step_is_skipped(
    call: Call, reference_run: Path, unfinished: Path, tmp_path: Path
) -> None:
    """The previous one is used. If that is damaged too, the E-step starts again. The result is the same."""
    first = unfinished
    with pytest.raises(KeyboardInterrupt):
        PLogicNet.resume(first, hooks=Hooks(stop_at("training", 1, STEPS - 50, KeyboardInterrupt)))
    last, before = (first / "checkpoint" / f"e_step{word}.safetensors" for word in ("", ".before"))
    assert last.exists()
    assert before.exists()
    for number, (damage_kind, damage) in enumerate(DAMAGES.items()):
        one, both = (Path(shutil.copytree(first, tmp_path / f"{number}{word}")) for word in ("one", "both"))
        damage(one / "checkpoint" / last.name)
        stderr = resume(call, one, same_as=reference_run)
        if damage_kind != "removed":
            assert f"{last.name} is damaged" in stderr
            assert f"resuming the training from {one / 'checkpoint' / before.name}, after step 50" in stderr
        for file in (last, before):
            damage(both / "checkpoint" / file.name)
        stderr = resume(call, both, same_as=reference_run)
        assert (
            damage_kind == "removed"
            or "no intact checkpoint was found; this training starts from its first step" in stderr
        )


def hooks_with_cache(cache: Path, progress: Progress = no_progress) -> Hooks:
    clock = Timer()
    return Hooks(progress, clock, fit_first=fit_or_load(cache, clock))


def test_a_damaged_shared_first_e_step_is_trained_again(graph: Path, reference_run: Path, tmp_path: Path) -> None:
    cache, model = tmp_path / "cache", PLogicNet(Config().with_values(THREE_ITERATIONS))
    model.fit(open_graph(str(graph)), hooks=hooks_with_cache(cache))
    [vectors] = cache.rglob("*.safetensors")
    for damage_kind, damage in DAMAGES.items():
        damage(vectors)
        model.fit(open_graph(str(graph)), out=tmp_path / damage_kind, hooks=hooks_with_cache(cache))
        assert "e_step_shared" not in model.seconds, damage_kind  # not loaded from the cache
        assert different(reference_run, tmp_path / damage_kind) == []
    flip_bit(vectors, 8 * vectors.stat().st_size - 6)
    with pytest.raises(StoppedError):
        model.fit(open_graph(str(graph)), hooks=hooks_with_cache(cache, stop_at("training", after=10)))
    next(cache.rglob("sha256")).unlink()  # as after a kill between two writes
    model.fit(open_graph(str(graph)), out=tmp_path / "after", hooks=hooks_with_cache(cache))
    assert different(reference_run, tmp_path / "after") == []


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_bit_in_a_checkpoint_does_not_change_the_result(
    call: Call, reference_run: Path, stopped_run: Path, tmp_path: Path, data: st.DataObject
) -> None:
    run = tmp_path / "run"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(stopped_run, run)
    files = sorted(f for f in (run / "checkpoint").rglob("*") if f.is_file() and f.stat().st_size)
    file = data.draw(st.sampled_from([f for f in files if f.name != "written.rules"]))
    flip_bit(file, data.draw(st.integers(0, file.stat().st_size * 8 - 1)))
    resume(call, run, same_as=reference_run)


def test_a_run_without_metrics_or_run_file_is_reported(call: Call, complete: Path) -> None:
    """The advice must not be to run a command that gives the same error."""
    saved = (complete / "metrics.json").read_bytes()
    (complete / "metrics.json").unlink()
    for command in ("evaluate", "resume", "refit"):
        code, _, stderr = call(command, complete)
        assert code == 2
        assert "If the run was complete, restore metrics.json from a copy. Otherwise remove the directory" in stderr, (
            stderr
        )
    (complete / "metrics.json").write_bytes(saved)
    (complete / "run.json").unlink()
    code, _, stderr = call("evaluate", complete)
    assert code == 2
    assert f"{complete} is damaged: its file run.json is missing. Restore the file from a copy" in stderr


def test_files_have_the_permissions_of_new_files(complete: Path, tmp_path: Path) -> None:
    (tmp_path / "new").touch()
    modes = {file.name: file.stat().st_mode for file in complete.iterdir()}
    assert set(modes.values()) == {(tmp_path / "new").stat().st_mode}, modes


# Settings edited by hand


def replace_text(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.parametrize(("old", "new"), [("dim: 8", "dim: 16"), ("iterations: 3", "iterations: 5"), ("seed", "seeed")])
def test_edited_settings_are_reported(call: Call, complete: Path, unfinished: Path, old: str, new: str) -> None:
    for run, commands in ((complete, READING_COMMANDS), (unfinished, [("resume",)])):
        replace_text(run / "config.yaml", old, new)
        for command, *arguments in commands:
            stderr = error_message(call, command, run, *arguments)
            assert f"{run / 'config.yaml'}" in stderr
            if new != "seeed":
                assert "is damaged or was edited" in stderr
                assert "Restore the file, because the run was trained with other settings." in stderr
                assert f"`plogicnet resume {run} --set em.iterations=N`" in stderr
        replace_text(run / "config.yaml", new, old)
    assert call("evaluate", complete)[0] == 0


def test_editing_em_iterations_does_not_add_iterations(call: Call, complete: Path) -> None:
    replace_text(complete / "config.yaml", "iterations: 3", "iterations: 4")
    assert "was edited" in error_message(call, "resume", complete)
    replace_text(complete / "config.yaml", "iterations: 4", "iterations: 3")
    assert "is complete" in error_message(call, "resume", complete)


# Runs of other versions


@pytest.mark.parametrize("version", ["9.9", "", None, "\x1b[31m\n" * 99, {"a": 1}, "x" * 100_000])
@pytest.mark.parametrize("number", [2, 10**30, 1, 0, -1, 1.5, True, None, "../..", [1]])
def test_invalid_versions_of_a_run_are_reported(call: Call, complete: Path, number: object, version: object) -> None:
    (complete / "run.json").write_text(json.dumps({"format": number, "version": version}))
    code, out, stderr = call("rules", complete)
    assert "\x1b[31m" not in stderr
    assert len(stderr) < 1_000
    assert (code, out) == (2, "")
    if number == 1 and not isinstance(number, bool):
        assert "run.json is damaged or was edited" in stderr
    elif isinstance(number, int) and number > 1:
        writer = "plogicnet 9.9" if version == "9.9" else "an unknown version of plogicnet"
        assert f"run.json has a newer format, written by {writer}. This version" in stderr
    else:
        assert "run.json is damaged: the format number is missing or invalid" in stderr


# Removed files


def act_at_step(title: str, time: int, action: Callable[[], object]) -> Progress:
    """Return a progress display that calls `action` when a step with `title` in its title starts."""
    stopping = stop_at(title, time)

    def progress(step: str, total: int):  # type: ignore[no-untyped-def]
        try:
            stopping(step, total).__enter__()
        except StoppedError:
            action()
        return no_progress(step, total)

    return progress


@pytest.fixture
def at_step(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int, Callable[[], object]], None]:
    """Call a function when the command starts a step with this title."""

    def watch(title: str, time: int, action: Callable[[], object]) -> None:
        progress = act_at_step(title, time, action)
        monkeypatch.setattr("plogicnet.cli.train.for_stderr", lambda: progress)

    return watch


AtStep = Callable[[str, int, Callable[[], object]], None]


@pytest.mark.parametrize(("title", "time"), [("training", 1), ("training", 2), ("ranking test", 1)])
def test_removing_the_run_directory_stops_the_training(
    call: Call, graph: Path, at_step: AtStep, tmp_path: Path, title: str, time: int
) -> None:
    run = tmp_path / "run"
    at_step(title, time, lambda: shutil.rmtree(run))
    code, out, stderr = call("train", graph, "--out", run, *QUICK)
    assert (code, out) == (2, "")
    assert str(run) in stderr.splitlines()[-1]
    assert not run.exists(), "an incomplete run was written again"


def test_replacing_the_run_directory_stops_the_training(
    call: Call, graph: Path, reference_run: Path, at_step: AtStep, tmp_path: Path
) -> None:
    """A user removes the directory and starts again while the first training still runs: the new run stays intact."""
    run = tmp_path / "run"

    def replace() -> None:
        shutil.rmtree(run)
        shutil.copytree(reference_run, run)
        (run / ".lock").touch()

    at_step("training", 2, replace)
    code, out, stderr = call("train", graph, "--out", run, *QUICK)
    assert (code, out) == (2, "")
    assert f"{run}: the run directory was removed or replaced" in stderr
    assert {name for name in different(reference_run, run) if not name.startswith("checkpoint/e_step")} <= {".lock"}
    assert call("evaluate", run)[0] == 0


def test_files_removed_during_training_are_written_again(
    call: Call, graph: Path, at_step: AtStep, tmp_path: Path
) -> None:
    assert call("train", graph, "--out", tmp_path / "whole", *QUICK)[0] == 0
    run = tmp_path / "run"

    def remove() -> None:
        for name in ("run.json", "graph.parquet", "entities.tsv", "config.yaml", "log.txt"):
            (run / name).unlink()
        shutil.rmtree(run / "checkpoint" / "1")

    at_step("training", 2, remove)
    code, _, stderr = call("train", graph, "--out", run, *QUICK)
    assert code == 0
    assert "writing missing files again: run.json, graph.parquet, entities.tsv" in stderr
    assert different(tmp_path / "whole", run) == []


@pytest.mark.parametrize("name", RUN_FILES)
def test_a_file_removed_while_a_run_is_loaded_is_reported(
    call: Call, complete: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file exists when the run is checked, and is removed before it is read."""

    def check_and_remove(path: Path) -> None:
        require_complete(path)
        (path / name).unlink()

    monkeypatch.setattr("plogicnet.runs.reading.require_complete", check_and_remove)
    code, out, stderr = call("predict", complete, *QUERY)
    assert (code, out) == (2, "")
    assert name in stderr or "another process is writing here" in stderr


# Two processes on one run


def test_a_second_process_is_refused(call: Call, graph: Path, at_step: AtStep, tmp_path: Path) -> None:
    """During a training, another process runs every command on the same run directory."""
    run = tmp_path / "run"
    commands = [
        ("train", graph, "--out", run, *QUICK),
        *((c, run) for c in ("resume", "refit", "rules", "evaluate")),
    ]
    commands.append(("predict", run, *QUERY))
    results: list[CommandResult] = []
    at_step("training", 2, lambda: results.extend(run_in_child(commands)))
    code, _, stderr = call("train", graph, "--out", run, *QUICK)
    assert code == 0, stderr
    assert len(results) == len(commands)
    for arguments, (status, out, message) in zip(commands, results, strict=True):
        assert (status, out) == (2, ""), arguments
        assert f"{run}: another process is writing here" in message, arguments
    assert call("evaluate", run)[0] == 0
    assert call("train", graph, "--out", tmp_path / "whole", *QUICK)[0] == 0
    assert different(tmp_path / "whole", run) == []


def test_loading_during_a_refit_returns_the_old_or_the_new_run(complete: Path) -> None:
    """Loading never mixes two runs: it returns one of them, or reports the other process."""
    from plogicnet.support.errors import InputError

    model = PLogicNet.load(complete)
    seen: set[str] = set()
    finished = threading.Event()
    written: list[bool] = []

    def write() -> None:
        try:
            for turn in range(6):
                rules = "=2: husband(X, Y) => wife(Y, X)" if turn % 2 else "=1: wife(X, Y) => husband(Y, X)"
                model.refit(rules, out=complete)
            written.append(True)
        finally:
            finished.set()

    before = str(read_rules(complete).rules)
    writer = threading.Thread(target=write)
    writer.start()
    while not finished.is_set():
        try:
            loaded = PLogicNet.load(complete)
        except InputError as error:
            assert "another process is writing here" in str(error)  # noqa: PT017
            continue
        rules = loaded.fitted.outcome.rule_model
        assert len(loaded.fitted.outcome.hidden_q) == len(rules.groundings.hidden)
        seen.add(str([str(rule) for rule in rules.rules.rules]))
    writer.join()
    assert str(read_rules(complete).rules) != before
    assert len(seen) <= 3


# Full and read-only disks

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="uses limits and mounts of Linux")


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Limit the size of files, so that a write fails partway, as on a full disk."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


SIZE_LIMITS = {"config.yaml": 1_000, "graph.parquet": 1_500, "e_step.safetensors": 3_500, "metrics.json": 10_000}
"""Limit in bytes that is too small for this file, and large enough for the files written before it."""


@LINUX
@pytest.mark.parametrize("name", SIZE_LIMITS)
def test_a_file_size_limit_is_reported_and_training_can_resume(
    call: Call, graph: Path, reference_run: Path, tmp_path: Path, name: str
) -> None:
    run = tmp_path / "run"
    with file_size_limit(SIZE_LIMITS[name]):
        code, out, stderr = call("train", graph, "--out", run, *SETTINGS)
    assert (code, out) == (2, ""), stderr
    assert f"{name}: File too large. The file size is limited (see `ulimit -f`)." in stderr
    assert not list(run.rglob("*.part"))
    if (run / "run.json").exists():
        assert (
            f"plogicnet: Failed, but the last checkpoint is kept. To continue, run `plogicnet resume {run}`." in stderr
        )
        resume(call, run, same_as=reference_run)
    else:
        assert call("train", graph, "--out", run, *SETTINGS)[0] == 0


@LINUX
@pytest.mark.usefixtures("mountable")
def test_training_resumes_after_a_full_disk(graph: Path, reference_run: Path, tmp_path: Path) -> None:
    """The disk is enlarged after each failure until the training completes."""
    disk, copy = tmp_path / "disk", tmp_path / "copy"
    disk.mkdir()
    commands: list[tuple[object, ...]] = [("train", graph, "--out", disk / "run", *SETTINGS)]
    for size in (48, 64, 80, 96, 120, 400):
        commands += [("!mount", "-o", f"remount,size={size}k", disk), ("!find", disk, "-name", "*.part")]
        commands += [("resume", disk / "run")]
    commands += [("!cp", "-r", disk / "run", copy)]
    results = run_in_child(commands, on=disk, options="size=32k")
    plogicnet_results = [
        result for arguments, result in zip(commands, results, strict=True) if not str(arguments[0]).startswith("!")
    ]
    parts = [out for arguments, (_, out, _) in zip(commands, results, strict=True) if arguments[0] == "!find"]
    assert set(parts) == {""}
    codes = [code for code, _, _ in plogicnet_results]
    assert 0 in codes, plogicnet_results
    failed = plogicnet_results[: codes.index(0)]
    assert len(failed) >= 3
    for code, out, stderr in failed:
        assert (code, out) == (2, "")
        assert "No space left on device. Free some space" in stderr
        assert f"Failed, but the last checkpoint is kept. To continue, run `plogicnet resume {disk / 'run'}`." in stderr
    assert set(different(reference_run, copy)) <= {".lock"}


@LINUX
@pytest.mark.usefixtures("mountable")
def test_only_reading_commands_work_on_a_read_only_disk(graph: Path, reference_run: Path, tmp_path: Path) -> None:
    """Commands that write print the reason."""
    disk = tmp_path / "disk"
    disk.mkdir()
    commands: list[tuple[object, ...]] = [
        ("!cp", "-r", reference_run, disk / "run"),
        ("!mount", "-o", "remount,ro", disk),
        *(("predict", disk / "run", *QUERY), ("rules", disk / "run"), ("evaluate", disk / "run")),
        *(("refit", disk / "run"), ("resume", disk / "run", "--set", "em.iterations=4")),
        ("train", graph, "--out", disk / "new", *SETTINGS),
    ]
    results = run_in_child(commands, on=disk, options="size=10m")
    assert [code for code, _, _ in results] == [0, 0, 0, 0, 0, 2, 2, 2]
    for _, out, stderr in results[-3:]:
        assert out == ""
        assert "Read-only file system" in stderr


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root can write everywhere")
def test_a_directory_without_write_permission_is_reported(call: Call, complete: Path) -> None:
    (complete / ".lock").unlink(missing_ok=True)
    complete.chmod(0o555)
    try:
        assert call("evaluate", complete)[0] == 0
        assert "Permission denied. Check the permissions, or use another directory" in error_message(
            call, "refit", complete
        )
    finally:
        complete.chmod(0o755)


@LINUX
def test_output_to_a_full_disk_is_reported_once(reference_run: Path) -> None:
    """Python flushes stdout again at exit; this must not add a second message."""
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "plogicnet", "rules", str(reference_run)]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith(
        "plogicnet: cannot access a file or standard output: No space left on device. Free some space"
    )
    assert len(result.stderr.splitlines()) == 1


def test_resume_completes_a_failed_refit(
    call: Call, complete: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refit fails after it has replaced files of the run. Its checkpoint contains everything to complete it."""
    expected_run = Path(shutil.copytree(complete, tmp_path / "same"))
    file = tmp_path / "one.rules"
    file.write_text("=2: husband(X, Y) => wife(Y, X)\n")
    assert call("refit", expected_run, "--rules", file)[0] == 0
    fsync, written = os.fsync, 0

    def fail_fsync(descriptor: int) -> None:
        nonlocal written
        written += 1
        if written > 14:  # five files of the checkpoint and two of the run, each with its directory
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fail_fsync)
        code, _, stderr = call("refit", complete, "--rules", file)
    assert code == 2
    assert f"Failed, but the last checkpoint is kept. To continue, run `plogicnet resume {complete}`." in stderr
    resume(call, complete, same_as=expected_run)


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "Free some space, or use another disk."),
        (errno.EDQUOT, "Free some space, or use another disk."),
        (errno.EIO, "The disk or its connection failed. See the system log."),
        (errno.EACCES, "Check the permissions, or use another directory."),
        (errno.ENOENT, "The file was removed or renamed. Restore it, or use another file."),
        (errno.ENOTDIR, "Not a directory"),
    ],
)
def test_system_errors_are_reported_with_advice(
    call: Call, complete: Path, number: int, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_fsync(*_: object) -> None:
        raise OSError(number, os.strerror(number), "/some/file")

    monkeypatch.setattr("os.fsync", fail_fsync)
    code, _, stderr = call("refit", complete)
    assert code == 2
    assert os.strerror(number) in stderr
    assert advice in stderr
    assert not list(complete.rglob("*.part"))
    assert not list(complete.rglob("checkpoint/*"))
    assert "the last checkpoint is kept" not in stderr, "the run is unchanged, so there is nothing to resume"
    assert call("evaluate", complete)[0] == 0, "the run before the refit was lost"
