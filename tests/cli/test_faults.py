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
from plogicnet.runs.checkpoints import iteration_folder, saved_iterations
from plogicnet.runs.directory import (
    CHECKPOINT_DIR,
    E_STEP_FILE,
    LOCK_FILE,
    LOG_FILE,
    SNAPSHOTS_DIR,
    START_DIR,
    has_unfinished_training,
    snapshot_folder,
)
from plogicnet.runs.integrity import verify_checksums
from plogicnet.support.errors import InputError
from plogicnet.support.progress import Progress, Timer, no_progress
from plogicnet.training.hooks import Hooks
from reproduction.first_e_step import fit_or_load
from small import SMALL, small_graph, write_small_graph
from stopping import StoppedError, different, files_of, leftovers, overwrite, stop_at, tree_of

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
    before = tree_of(folder) if folder else {}
    code, out, stderr = call(*arguments)
    assert (code, out) == (2, ""), stderr
    if folder and folder.is_dir():
        assert tree_of(folder) == before
        assert not list(folder.rglob("*.part"))
    return stderr


def resume(call: Call, run: Path, same_as: Path) -> str:
    """Resume a run, which must publish the same snapshot as an uninterrupted training, and return stderr."""
    code, _, stderr = call("resume", run)
    assert code == 0, stderr
    assert different(same_as, run) == []
    assert leftovers(run) == []
    return stderr


def flip_bit(file: Path, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    overwrite(file, bytes(content))


def truncate(file: Path, size: int) -> None:
    overwrite(file, file.read_bytes()[:size])


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
    "metrics.json",
    "manifest.json",
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
    DAMAGES[damage_kind](snapshot_folder(complete) / name)
    if name == "manifest.json" and damage_kind == "one byte short":  # only the final newline is missing
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
    file = snapshot_folder(run) / name
    flip_bit(file, data.draw(st.integers(0, file.stat().st_size * 8 - 1)))
    code, out, stderr = call("predict", run, *QUERY, "--json")
    if code == 2:
        assert name in stderr
        assert out == ""
    else:  # for example in the white space of a JSON file
        assert (code, json.loads(out)) == (0, call_json(call, "predict", reference_run, *QUERY))


def test_every_reading_command_reports_damaged_rules(call: Call, complete: Path) -> None:
    file = snapshot_folder(complete) / "rules.tsv"
    truncate(file, file.read_text().rindex("\n", 0, -1) + 1)  # one rule fewer
    for command, *arguments in (*READING_COMMANDS, ("rules",), ("refit",)):
        stderr = error_message(call, command, complete, *arguments)
        assert f"{file} is damaged or was edited: its checksum does not match (converted line endings" in stderr
        assert (
            "To change the rules, write them to a file of your own with `plogicnet rules RUN --out my.rules`" in stderr
        )


@pytest.mark.parametrize("damage_kind", DAMAGES)
@pytest.mark.parametrize("name", [*OUTCOME_FILES, "metrics.json", "manifest.json"])
def test_a_damaged_checkpoint_is_skipped_for_the_previous_one(
    call: Call, reference_run: Path, unfinished: Path, name: str, damage_kind: str
) -> None:
    DAMAGES[damage_kind](iteration_folder(unfinished, 2) / name)
    stderr = resume(call, unfinished, same_as=reference_run)
    if name != "manifest.json" or damage_kind not in (
        "one byte short",
        "removed",
    ):  # harmless, or the iteration counts as unfinished
        assert f"checkpoint/2/{name}" in stderr or f"checkpoint/2 is damaged: its file {name} is missing" in stderr
        assert "EM iteration 2 is skipped: " in stderr
        assert "resuming the training from EM iteration 1" in stderr


def test_a_flipped_bit_in_the_format_of_a_checkpoint_is_damage(
    call: Call, reference_run: Path, unfinished: Path
) -> None:
    replace_text(iteration_folder(unfinished, 2) / "manifest.json", '"format": 1', '"format": 3')
    assert "resuming the training from EM iteration 1" in resume(call, unfinished, same_as=reference_run)


def test_without_an_intact_checkpoint_training_starts_from_the_beginning(
    call: Call, reference_run: Path, unfinished: Path
) -> None:
    for iteration in (1, 2):
        flip_bit(iteration_folder(unfinished, iteration) / "hidden.parquet", 999)
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
    expected = snapshot_folder(expected_run)
    best = json.loads((expected / "metrics.json").read_text())["iteration"]
    reached = len((expected / "history.jsonl").read_text().splitlines())
    assert reached == best + 2
    run = train_until_stopped(tmp_path / "run", graph, values, stop_at("training", reached))
    saved = saved_iterations(run)
    assert saved == [best, best + 1]
    for iteration in {"last": saved[-1:], "best": saved[:1], "all": saved}[damaged]:
        flip_bit(iteration_folder(run, iteration) / "neural.safetensors", 9999)
    stderr = resume(call, run, same_as=expected_run)
    assert ("resuming the training from the beginning" in stderr) == (damaged != "last")


@pytest.mark.parametrize("damaged", ["the checkpoint", "the snapshot too"])
def test_more_iterations_restart_from_the_snapshot_if_the_checkpoint_is_damaged(
    call: Call, graph: Path, complete: Path, tmp_path: Path, damaged: str
) -> None:
    expected_run = train(tmp_path / "whole", graph, {"em.iterations": 5})
    with pytest.raises(StoppedError):
        PLogicNet.resume(complete, {"em.iterations": 5}, Hooks(stop_at("training", 2)))
    flip_bit(iteration_folder(complete, 4) / "neural.safetensors", 9999)
    if damaged == "the snapshot too":
        file = snapshot_folder(complete) / "hidden.parquet"
        flip_bit(file, 9999)
        assert f"{file} is damaged" in error_message(call, "resume", complete)
        return
    stderr = resume(call, complete, same_as=expected_run)
    assert "EM iteration 4 is skipped: " in stderr
    assert "resuming the training from snapshot 0001" in stderr


@pytest.mark.parametrize("name", ["graph.parquet", "entities.tsv", "relations.tsv", "config.yaml", "manifest.json"])
@pytest.mark.parametrize("damage_kind", ["cut in half", "a bit flipped"])
def test_resume_needs_the_intact_files_of_the_start(call: Call, unfinished: Path, name: str, damage_kind: str) -> None:
    DAMAGES[damage_kind](unfinished / START_DIR / name)
    assert name in error_message(call, "resume", unfinished)


def test_damaged_rules_of_the_user_are_reported(call: Call, tmp_path: Path) -> None:
    run = tmp_path / "run"
    config = Config().with_values(SMALL)
    with pytest.raises(StoppedError):
        PLogicNet(config).fit(small_graph(), "2: husband(X, Y) => wife(Y, X)", run, Hooks(stop_at("mining")))
    file = run / START_DIR / "written.rules"
    rules = file.read_text()
    assert "\t2" in rules
    overwrite(file, rules.replace("\t2", "\t3"))
    assert f"{file} is damaged or was edited" in error_message(call, "resume", run)


# Checkpoints inside an E-step


def test_a_damaged_checkpoint_of_an_e_step_is_skipped(
    call: Call, reference_run: Path, unfinished: Path, tmp_path: Path
) -> None:
    """The previous one is used. If that is damaged too, the E-step starts again. The result is the same."""
    first = unfinished
    with pytest.raises(KeyboardInterrupt):
        PLogicNet.resume(first, hooks=Hooks(stop_at("training", 1, STEPS - 50, KeyboardInterrupt)))
    last, before = (first / CHECKPOINT_DIR / f"e_step{word}.safetensors" for word in ("", ".before"))
    assert last.exists()
    assert before.exists()
    for number, (damage_kind, damage) in enumerate(DAMAGES.items()):
        one, both = (Path(shutil.copytree(first, tmp_path / f"{number}{word}")) for word in ("one", "both"))
        damage(one / CHECKPOINT_DIR / last.name)
        stderr = resume(call, one, same_as=reference_run)
        if damage_kind != "removed":
            assert f"{last.name} is damaged" in stderr
            assert f"resuming the training from {one / CHECKPOINT_DIR / before.name}, after step 50" in stderr
        for file in (last, before):
            damage(both / CHECKPOINT_DIR / file.name)
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
    files = [run / E_STEP_FILE, *(file for i in saved_iterations(run) for file in iteration_folder(run, i).iterdir())]
    file = data.draw(st.sampled_from(sorted(files)))
    flip_bit(file, data.draw(st.integers(0, file.stat().st_size * 8 - 1)))
    resume(call, run, same_as=reference_run)


def test_files_have_the_permissions_of_new_files(complete: Path, tmp_path: Path) -> None:
    """The files of a snapshot are read-only."""
    (tmp_path / "new").touch()
    mode = (tmp_path / "new").stat().st_mode
    modes = {file: file.stat().st_mode for file in complete.rglob("*") if file.is_file()}
    snapshot = {file for file in modes if file.parent == snapshot_folder(complete)}
    assert modes == {file: mode & ~0o222 if file in snapshot else mode for file in modes}


# Damaged or missing snapshots


@pytest.fixture(scope="module")
def refitted_run(reference_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two snapshots; tests copy it before they change it."""
    run = Path(shutil.copytree(reference_run, tmp_path_factory.mktemp("faults") / "run"))
    PLogicNet.load(run).refit("=2: husband(X, Y) => wife(Y, X)", out=run)
    return run


@pytest.fixture
def refitted(refitted_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(refitted_run, tmp_path / "refitted"))


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\x00", b"latest\n", b"../0001\n", b"0002\n0001\n"])
def test_a_missing_or_damaged_current_file_is_reported(
    call: Call, graph: Path, refitted: Path, content: bytes | None
) -> None:
    """Nothing is changed, and the advice restores the run."""
    file = refitted / "CURRENT"
    before = call_json(call, "predict", refitted, *QUERY)
    file.unlink() if content is None else file.write_bytes(content)
    commands = [(command, refitted, *arguments) for command, *arguments in READING_COMMANDS]
    commands += [(command, refitted) for command in ("rules", "refit", "resume")]
    commands += [("runs", "list", refitted)]
    advice = f"Restore it with `plogicnet runs revert {refitted} 0002`."
    for command in commands:
        stderr = error_message(call, *command)
        assert "CURRENT is missing. " in stderr if content is None else f"{file} is damaged: " in stderr, command
        assert advice in stderr, command
    tree = tree_of(refitted)
    code, _, stderr = call("train", graph, "--out", refitted, *QUICK)
    assert (code, advice in stderr) == (2, True)
    assert tree_of(refitted) == tree
    assert call("runs", "revert", refitted, "0002")[0] == 0
    assert call_json(call, "predict", refitted, *QUERY) == before


@pytest.mark.parametrize("unfinished_training", [False, True])
def test_every_command_reports_a_missing_current_file(
    call: Call, graph: Path, refitted: Path, unfinished_training: bool
) -> None:
    if unfinished_training:
        with pytest.raises(StoppedError):
            PLogicNet.resume(refitted, {"em.iterations": 4}, Hooks(stop_at("training")))
    (refitted / "CURRENT").unlink()
    tree = tree_of(refitted)
    for command in (("doctor", refitted), ("resume", refitted), ("train", graph, "--out", refitted, *QUICK)):
        code, out, stderr = call(*command)
        assert (code, out) == (2, "")
        assert f"CURRENT is missing. Restore it with `plogicnet runs revert {refitted} 0002`." in stderr
        assert tree_of(refitted) == tree


def test_a_flipped_bit_in_the_current_file_is_reported_or_harmless(call: Call, refitted: Path) -> None:
    """The other snapshot is never read by mistake."""
    file = refitted / "CURRENT"
    content, expected = file.read_bytes(), call_json(call, "rules", refitted)
    for bit in range(8 * len(content)):
        flip_bit(file, bit)
        code, out, stderr = call("rules", refitted, "--json")
        name = file.read_bytes().decode(errors="replace").strip()
        if code == 0:
            assert json.loads(out) == expected, name
        else:
            assert (
                f"{file} is damaged" in stderr or f"{refitted} is damaged: its snapshot {name} is missing" in stderr
            ), name
        file.write_bytes(content)


@pytest.mark.parametrize("removed", ["0002", "0001 and 0002", "snapshots"])
def test_a_missing_snapshot_is_reported(call: Call, refitted: Path, removed: str) -> None:
    for name in removed.split(" and "):
        shutil.rmtree(refitted / name if name == SNAPSHOTS_DIR else refitted / SNAPSHOTS_DIR / name)
    for command, *arguments in (*READING_COMMANDS, ("rules",), ("refit",), ("resume",)):
        stderr = error_message(call, command, refitted, *arguments)
        assert f"{refitted} is damaged: its snapshot 0002 is missing" in stderr
        assert (f"`plogicnet runs revert {refitted} 0001`" in stderr) == (removed == "0002")
    if removed == "0002":
        assert call("runs", "revert", refitted, "0001")[0] == 0
        assert call("evaluate", refitted)[0] == 0


def test_a_damaged_snapshot_can_be_replaced_by_an_older_one(call: Call, refitted: Path, reference_run: Path) -> None:
    flip_bit(snapshot_folder(refitted) / "hidden.parquet", 999)
    stderr = error_message(call, "evaluate", refitted)
    assert f"Or go back to snapshot 0001: `plogicnet runs revert {refitted} 0001`." in stderr
    assert "hidden.parquet is damaged" in error_message(call, "runs", "revert", refitted, "0002")
    assert call("evaluate", refitted, "--snapshot", "0001")[0] == 0
    assert call("runs", "revert", refitted, "0001")[0] == 0
    assert different(reference_run, refitted) == []


def test_a_complete_run_stays_usable_while_its_training_is_unfinished(call: Call, complete: Path) -> None:
    """`refit` and `save` would supersede the training, so they are refused until it is completed or discarded."""
    before, files = call_json(call, "predict", complete, *QUERY), files_of(complete)
    with pytest.raises(KeyboardInterrupt):
        PLogicNet.resume(complete, {"em.iterations": 5}, Hooks(stop_at("training", 2, 50, KeyboardInterrupt)))
    assert saved_iterations(complete) == [4]
    assert call_json(call, "predict", complete, *QUERY) == before
    tree, message = (
        tree_of(complete),
        (
            f"{complete} contains an unfinished training. Complete it with `plogicnet resume {complete}`, or discard it"
            f" with `plogicnet runs revert {complete} 0001`."
        ),
    )
    assert message in error_message(call, "refit", complete)
    with pytest.raises(InputError) as refused:
        PLogicNet.load(complete).save(complete)
    assert str(refused.value) == message
    assert tree_of(complete) == tree
    code, _, stderr = call("runs", "revert", complete, "0001")
    assert code == 0
    assert f"{complete}: the unfinished training is discarded" in stderr
    assert (files_of(complete), leftovers(complete)) == (files, [])
    assert "is complete, so there is nothing to resume" in error_message(call, "resume", complete)
    assert call("refit", complete)[0] == 0


# Settings edited by hand


def replace_text(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    overwrite(file, text.replace(old, new))


@pytest.mark.parametrize(("old", "new"), [("dim: 8", "dim: 16"), ("iterations: 3", "iterations: 5"), ("seed", "seeed")])
def test_edited_settings_are_reported(call: Call, complete: Path, unfinished: Path, old: str, new: str) -> None:
    for file, commands in (
        (snapshot_folder(complete) / "config.yaml", READING_COMMANDS),
        (unfinished / START_DIR / "config.yaml", [("resume",)]),
    ):
        replace_text(file, old, new)
        for command, *arguments in commands:
            stderr = error_message(call, command, complete if complete in file.parents else unfinished, *arguments)
            assert f"{file} is damaged or was edited" in stderr
            assert "Restore the file, because the run was trained with other settings." in stderr
            assert "`plogicnet resume RUN --set em.iterations=N`" in stderr
        replace_text(file, new, old)
    assert call("evaluate", complete)[0] == 0


def test_editing_em_iterations_does_not_add_iterations(call: Call, complete: Path) -> None:
    file = snapshot_folder(complete) / "config.yaml"
    replace_text(file, "iterations: 3", "iterations: 4")
    assert "was edited" in error_message(call, "resume", complete)
    replace_text(file, "iterations: 4", "iterations: 3")
    assert "is complete" in error_message(call, "resume", complete)


# Runs of other versions


@pytest.mark.parametrize("version", ["9.9", "", None, "\x1b[31m\n" * 99, {"a": 1}, "x" * 100_000])
@pytest.mark.parametrize("number", [2, 10**30, 1, 0, -1, 1.5, True, None, "../..", [1]])
def test_invalid_versions_of_a_run_are_reported(call: Call, complete: Path, number: object, version: object) -> None:
    overwrite(snapshot_folder(complete) / "manifest.json", json.dumps({"format": number, "version": version}))
    code, out, stderr = call("rules", complete)
    assert "\x1b[31m" not in stderr
    assert len(stderr) < 1_000
    assert (code, out) == (2, "")
    if number == 1 and not isinstance(number, bool):
        assert "manifest.json is damaged or was edited" in stderr
    elif isinstance(number, int) and number > 1:
        writer = "plogicnet 9.9" if version == "9.9" else "an unknown version of plogicnet"
        assert f"manifest.json has a newer format, written by {writer}. This version" in stderr
    else:
        assert "manifest.json is damaged: the format number is missing or invalid" in stderr


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
        (run / LOCK_FILE).touch()

    at_step("training", 2, replace)
    code, out, stderr = call("train", graph, "--out", run, *QUICK)
    assert (code, out) == (2, "")
    assert f"{run}: the run directory was removed or replaced" in stderr
    assert {name: content for name, content in tree_of(run).items() if name != E_STEP_FILE} == tree_of(reference_run)
    assert call("evaluate", run)[0] == 0


@pytest.mark.parametrize("removed", [[START_DIR], [f"{START_DIR}/graph.parquet", f"{START_DIR}/config.yaml"]], ids=str)
def test_files_removed_during_training_are_written_again(
    call: Call, graph: Path, at_step: AtStep, tmp_path: Path, removed: list[str]
) -> None:
    assert call("train", graph, "--out", tmp_path / "whole", *QUICK)[0] == 0
    run = tmp_path / "run"

    def remove() -> None:
        for path in [run / LOG_FILE, iteration_folder(run, 1), *(run / name for name in removed)]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    at_step("training", 2, remove)
    code, _, stderr = call("train", graph, "--out", run, *QUICK)
    assert code == 0, stderr
    assert different(tmp_path / "whole", run) == []
    assert leftovers(run) == []


@pytest.mark.parametrize("name", RUN_FILES)
def test_a_file_removed_while_a_run_is_loaded_is_reported(
    call: Call, complete: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file exists when it is verified, and is removed before it is read."""

    def check_and_remove(folder: Path, checksums: dict[str, str], advice: dict[str, str]) -> None:
        verify_checksums(folder, checksums, advice)
        if name in (*checksums, "manifest.json"):
            (folder / name).unlink()

    monkeypatch.setattr("plogicnet.runs.files.verify_checksums", check_and_remove)
    code, out, stderr = call("predict", complete, *QUERY)
    assert (code, out) == (2, "")
    assert str(snapshot_folder(complete) / name) in stderr or f"{snapshot_folder(complete)} is damaged" in stderr
    assert name in stderr


# Two processes on one run


def test_a_second_process_is_refused(call: Call, graph: Path, at_step: AtStep, tmp_path: Path) -> None:
    """During a training, another process runs every command on the same run directory.

    While the run has no snapshot, all are refused. While more iterations are trained, the snapshot is read.
    """
    run = tmp_path / "run"
    writing = [("train", graph, "--out", run, *QUICK), ("resume", run)]
    reading = [("refit", run), ("rules", run), ("evaluate", run), ("predict", run, *QUERY), ("runs", "list", run)]
    results: list[CommandResult] = []
    at_step("training", 2, lambda: results.extend(run_in_child([*writing, *reading])))
    code, _, stderr = call("train", graph, "--out", run, *QUICK)
    assert code == 0, stderr
    assert [(code, out) for code, out, _ in results] == [(2, "")] * 7
    for _, _, message in results[:2]:
        assert f"{run}: another process is writing here" in message
    for _, _, message in results[2:]:
        assert f"{run}: another process is writing its first snapshot. Try again" in message
    assert call("evaluate", run)[0] == 0
    assert call("train", graph, "--out", tmp_path / "whole", *QUICK)[0] == 0
    assert different(tmp_path / "whole", run) == []
    results.clear()
    writing = [("resume", run), ("refit", run), ("runs", "revert", run, "0001")]
    at_step("training", 1, lambda: results.extend(run_in_child([*writing, *reading[1:]])))
    code, _, stderr = call("resume", run, "--set", "em.iterations=3")
    assert code == 0, stderr
    assert [code for code, _, _ in results] == [2] * 3 + [0] * 4
    for _, out, message in results[:3]:
        assert (out, f"{run}: another process is writing here" in message) == ("", True)
    assert snapshot_folder(run).name == "0002"


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


SIZE_LIMITS = {
    "entities.tsv": 100,
    "graph.parquet": 1_500,
    "e_step.safetensors": 3_500,
    "metrics.json": 10_000,
}
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
    if has_unfinished_training(run):
        assert (
            f"plogicnet: Failed, but the last checkpoint is kept. To continue, run `plogicnet resume {run}`." in stderr
        )
        resume(call, run, same_as=reference_run)
    else:
        assert call("train", graph, "--out", run, *SETTINGS)[0] == 0
        assert different(reference_run, run) == []


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
    assert different(reference_run, copy) == []


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
    (complete / LOCK_FILE).unlink()
    folders = [complete, *(folder for folder in complete.rglob("*") if folder.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        assert call("evaluate", complete)[0] == 0
        assert "Permission denied. Check the permissions, or use another directory" in error_message(
            call, "refit", complete
        )
    finally:
        for folder in folders:
            folder.chmod(0o755)


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


def test_a_failed_refit_can_be_repeated(
    call: Call, complete: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fails at each sync in turn. The run is the old or the new one, and the next refit completes it."""
    old, new = complete, Path(shutil.copytree(complete, tmp_path / "new"))
    file = tmp_path / "one.rules"
    file.write_text("=2: husband(X, Y) => wife(Y, X)\n")
    assert call("refit", new, "--rules", file)[0] == 0
    fsync, states = os.fsync, []
    for number in range(100):
        run, calls = Path(shutil.copytree(old, tmp_path / str(number))), iter(range(100))

        def fail_fsync(descriptor: int, fails: int = number, calls: Iterator[int] = calls) -> None:
            if next(calls) == fails:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            fsync(descriptor)

        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", fail_fsync)
            code, _, stderr = call("refit", run, "--rules", file)
        states += ["old" if different(old, run) == [] else "new"]
        assert states[-1] == "old" or different(new, run) == []
        assert leftovers(run) == []
        if code == 0:
            break
        assert f"{run}" in stderr
        assert "No space left on device. Free some space, or use another disk." in stderr
        assert "resume" not in stderr
        assert call("refit", run, "--rules", file)[0] == 0
        assert different(new, run) == []
    assert states == sorted(states, reverse=True)
    assert states.count("old") > 10
    assert states.count("new") >= 2, "the directory of CURRENT is synced last"


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
    assert leftovers(complete) == []
    assert snapshot_folder(complete).name == "0001"
    assert "the last checkpoint is kept" not in stderr, "the run is unchanged, so there is nothing to resume"
    assert call("evaluate", complete)[0] == 0, "the run before the refit was lost"
