"""What real machines do to a run, through the real command: a clear message, and nothing lost that was saved.

Full disks, read-only places, files that vanish, two processes on one run, damaged and truncated files, settings edited
by hand, runs of other versions.
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

from calling import Call, answer
from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.graph import open_graph
from plogicnet.runs.directory import require_complete
from plogicnet.runs.reading import read_rules
from plogicnet.support.progress import Clock, Progress, silent
from plogicnet.training.hooks import Hooks
from reproduction.first_e_step import fit_or_load
from small import SMALL, small_graph, write_small_graph
from stopping import StoppedError, different, files_of, stop_at

STEPS = 70
ASKED = ("--head", "man0", "--relation", "husband")
READING = (("evaluate",), ("predict", *ASKED), ("explain", "man0", "husband", "woman0"), ("doctor",))
THREE = SMALL | {"neural.steps": STEPS, "em.iterations": 3}
SETTINGS = [f"--set={key}={value}" for key, value in THREE.items()]
QUICK = [*SETTINGS, "--set=neural.steps=20", "--set=em.iterations=2"]


def trained(out: Path, graph: Path, values: dict[str, object], progress: Progress = silent) -> Path:
    config = Config().with_values(THREE | values)
    PLogicNet(config).fit(open_graph(str(graph)), out=out, hooks=Hooks(progress))
    return out


def stopped(out: Path, graph: Path, values: dict[str, object], progress: Progress) -> Path:
    """A training that was broken off where `progress` says."""
    with pytest.raises((StoppedError, KeyboardInterrupt)):
        trained(out, graph, values, progress)
    return out


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_graph(tmp_path_factory.mktemp("graph"))


@pytest.fixture(scope="module")
def whole(graph: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run of three iterations; tests copy it before they change it."""
    return trained(tmp_path_factory.mktemp("faults") / "run", graph, {})


@pytest.fixture(scope="module")
def begun(graph: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same training, stopped in its third E-step, with iterations 1 and 2 on disk."""
    progress = stop_at("training", 3, 50, KeyboardInterrupt)
    return stopped(tmp_path_factory.mktemp("faults") / "run", graph, {}, progress)


@pytest.fixture
def complete(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "complete"))


@pytest.fixture
def unfinished(begun: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(begun, tmp_path / "unfinished"))


def refused(call: Call, *words: object) -> str:
    """The message of a command that must not succeed; it changes no file."""
    folder = next((Path(str(word)) for word in words if Path(str(word)).is_dir()), None)
    before = files_of(folder) if folder else {}
    code, out, said = call(*words)
    assert (code, out) == (2, ""), said
    if folder and folder.is_dir():
        after = files_of(folder)
        assert {name for name in before | after if before.get(name) != after.get(name)} <= {".lock"}
        assert not list(folder.rglob("*.part"))
    return said


def resumed(call: Call, there: Path, same_as: Path) -> str:
    """What is said by a resume that must end in the same bytes as the uninterrupted run."""
    code, _, said = call("resume", there)
    assert code == 0, said
    assert set(different(same_as, there)) <= {".lock"}
    assert not list(there.rglob("*.part"))
    assert not (there / "checkpoint").exists()
    return said


def flipped(file: Path, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def truncated(file: Path, size: int) -> None:
    with file.open("r+b") as opened:
        opened.truncate(size)


Done = tuple[int, str, str]
"""Exit code, stdout, stderr."""
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]
CHILD = """
import contextlib, io, json, subprocess, sys

import plogicnet.cli

done = []
for first, *words in json.load(sys.stdin):
    if first.startswith("!"):
        result = subprocess.run([first[1:], *words], capture_output=True, text=True)
        done.append((result.returncode, result.stdout, result.stderr))
        continue
    sys.argv, out, said = ["plogicnet", first, *words], io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        code = None
        try:
            plogicnet.cli.main()
        except SystemExit as ended:
            code = ended.code
    done.append((code, out.getvalue(), said.getvalue()))
json.dump(done, sys.stdout)
"""
"""One command after another; with a ! they are the system's."""


def in_a_child(commands: Sequence[Sequence[object]], on: Path | None = None, options: str = "") -> list[Done]:
    """What commands do in a process of their own, where asked for with a file system of their own at a place."""
    words = [sys.executable, "-c", CHILD]
    if on is not None:
        mount = f'mount -t tmpfs -o {options} none "$0" && exec "$@"'
        words = [*NAMESPACE, "sh", "-c", mount, str(on), *words]
    asked = json.dumps([list(map(str, command)) for command in commands])
    env = os.environ | {"NO_COLOR": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    child = subprocess.run(words, input=asked, capture_output=True, text=True, env=env, timeout=300, check=False)
    assert child.returncode == 0, child.stderr
    done = [(code, out, said) for code, out, said in json.loads(child.stdout)]
    assert not [said for _, _, said in done if "Traceback" in said]
    return done


@pytest.fixture(scope="module")
def mountable() -> None:
    try:
        allowed = subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        allowed = False
    if not allowed:
        pytest.skip("the system permits no mounts of one's own")


# Damaged and truncated files

OUTCOME = ("rules.tsv", "hidden.parquet", "history.jsonl", "neural.safetensors")
OF_A_RUN = ("config.yaml", "graph.parquet", "entities.tsv", "relations.tsv", "run.json", "metrics.json", *OUTCOME)
WAYS: dict[str, Callable[[Path], None]] = {
    "cut in half": lambda file: truncated(file, file.stat().st_size // 2),
    "one byte short": lambda file: truncated(file, file.stat().st_size - 1),
    "emptied": lambda file: truncated(file, 0),
    "a bit flipped": lambda file: flipped(file, file.stat().st_size * 4),
    "removed": lambda file: file.unlink(),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OF_A_RUN)
def test_a_damaged_file_of_a_complete_run_is_named(call: Call, complete: Path, name: str, way: str) -> None:
    before = answer(call, "predict", complete, *ASKED)
    WAYS[way](complete / name)
    if name in ("metrics.json", "run.json") and way == "one byte short":  # the end of the last line
        assert answer(call, "predict", complete, *ASKED) == before
        return
    for command, *words in READING:
        said = refused(call, command, complete, *words)
        assert name in said, command
        assert len(said) < 1_000


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_bit_flipped_is_told_or_harmless(call: Call, whole: Path, tmp_path: Path, data: st.DataObject) -> None:
    there = tmp_path / "run"
    shutil.rmtree(there, ignore_errors=True)
    shutil.copytree(whole, there)
    name = data.draw(st.sampled_from(OF_A_RUN))
    flipped(there / name, data.draw(st.integers(0, (there / name).stat().st_size * 8 - 1)))
    code, out, said = call("predict", there, *ASKED, "--json")
    if code == 2:
        assert name in said
        assert out == ""
    else:  # as in the white space of a JSON file
        assert (code, json.loads(out)) == (0, answer(call, "predict", whole, *ASKED))


def test_damaged_rules_are_told_by_every_reader(call: Call, complete: Path) -> None:
    truncated(complete / "rules.tsv", (complete / "rules.tsv").read_text().rindex("\n", 0, -1) + 1)  # one rule fewer
    for command, *words in (*READING, ("rules",)):
        assert "rules.tsv was edited, or is damaged (converted line ends" in refused(call, command, complete, *words)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [*OUTCOME, "reached.json"])
def test_a_damaged_checkpoint_is_left_out_and_the_one_before_used(
    call: Call, whole: Path, unfinished: Path, name: str, way: str
) -> None:
    WAYS[way](unfinished / "checkpoint" / "2" / name)
    said = resumed(call, unfinished, same_as=whole)
    if name != "reached.json" or way not in ("one byte short", "removed"):  # harmless; as if it had not been reached
        assert f"checkpoint/2/{name}" in said or f"checkpoint/2 is damaged: its file {name} is missing" in said
        assert "EM iteration 2 is left out" in said
        assert "training is resumed from EM iteration 1" in said


def test_without_a_whole_checkpoint_training_starts_from_the_beginning(
    call: Call, whole: Path, unfinished: Path
) -> None:
    for iteration in "12":
        flipped(unfinished / "checkpoint" / iteration / "hidden.parquet", 999)
    said = resumed(call, unfinished, same_as=whole)
    assert "training is resumed from the beginning" in said


@pytest.mark.parametrize("damaged", ["last", "best", "all"])
def test_the_best_iteration_is_kept_with_the_last_ones(call: Call, graph: Path, tmp_path: Path, damaged: str) -> None:
    """With em.patience the best iteration is given back: it must be had whichever of them is damaged."""
    values = {
        "neural.model": "ComplEx",
        "neural.vectors.recipe": "one_vs_all",
        "neural.learning_rate": 0.1,
        "em.iterations": 9,
    }
    values |= {"em.patience": 2, "neural.steps": 30}
    same = trained(tmp_path / "whole", graph, values)
    best = json.loads((same / "metrics.json").read_text())["iteration"]
    reached = len((same / "history.jsonl").read_text().splitlines())
    assert reached == best + 2
    there = stopped(tmp_path / "run", graph, values, stop_at("training", reached))
    kept = sorted(int(p.name) for p in (there / "checkpoint").iterdir() if p.is_dir())
    assert kept == [best, best + 1]
    for iteration in {"last": kept[-1:], "best": kept[:1], "all": kept}[damaged]:
        flipped(there / "checkpoint" / str(iteration) / "neural.safetensors", 9999)
    said = resumed(call, there, same_as=same)
    assert ("training is resumed from the beginning" in said) == (damaged != "last")


def test_a_damaged_refit_is_not_trained_from_the_beginning(call: Call, complete: Path) -> None:
    """Its rules would be others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("plogicnet.runs.writing.publish", broken)
        with pytest.raises(StoppedError):
            PLogicNet.load(complete).refit("husband(X, Y) => wife(Y, X)", out=complete)
    (complete / "metrics.json").unlink()  # the first thing that `publish` does
    flipped(complete / "checkpoint" / "3" / "hidden.parquet", 999)
    assert "checkpoint/3/hidden.parquet is damaged" in refused(call, "resume", complete)


@pytest.mark.parametrize("spoiled", ["the checkpoint", "the run too"])
def test_a_run_given_more_iterations_falls_back_on_what_it_was(
    call: Call, graph: Path, complete: Path, tmp_path: Path, spoiled: str
) -> None:
    same = trained(tmp_path / "whole", graph, {"em.iterations": 4})
    with pytest.raises(StoppedError):
        PLogicNet.resume(complete, {"em.iterations": 4}, Hooks(stop_at("training", 1, 50)))
    flipped(complete / "checkpoint" / "3" / "neural.safetensors", 9999)
    if spoiled == "the run too":
        flipped(complete / "hidden.parquet", 9999)
        assert f"{complete / 'hidden.parquet'} is damaged" in refused(call, "resume", complete)
        return
    assert "training is resumed from the run as it was when it was complete" in resumed(call, complete, same_as=same)


def broken(*_: object) -> None:
    raise StoppedError


@pytest.mark.parametrize("name", ["graph.parquet", "entities.tsv", "relations.tsv", "config.yaml", "run.json"])
@pytest.mark.parametrize("way", ["cut in half", "a bit flipped"])
def test_what_training_began_with_is_needed_whole(call: Call, unfinished: Path, name: str, way: str) -> None:
    WAYS[way](unfinished / name)
    assert name in refused(call, "resume", unfinished)


def test_damaged_written_rules(call: Call, tmp_path: Path) -> None:
    there = tmp_path / "run"
    config = Config().with_values(SMALL)
    with pytest.raises(StoppedError):
        PLogicNet(config).fit(small_graph(), "2: husband(X, Y) => wife(Y, X)", there, Hooks(stop_at("mining")))
    file = there / "checkpoint" / "written.rules"
    file.write_text(file.read_text().replace("2.0: ", "3.0: ").replace("2: ", "3: "))
    assert f"{file} is damaged, or was edited by hand" in refused(call, "resume", there)


# The E-step's place


def test_a_damaged_place_of_an_e_step(call: Call, whole: Path, unfinished: Path, tmp_path: Path) -> None:
    """The earlier one is used, else the E-step begins anew; the bytes at the end are the same."""
    first = unfinished
    with pytest.raises(KeyboardInterrupt):
        PLogicNet.resume(first, hooks=Hooks(stop_at("training", 1, STEPS - 50, KeyboardInterrupt)))
    last, before = (first / "checkpoint" / f"e_step{word}.safetensors" for word in ("", ".before"))
    assert last.exists()
    assert before.exists()
    for number, (way, damage) in enumerate(WAYS.items()):
        one, both = (Path(shutil.copytree(first, tmp_path / f"{number}{word}")) for word in ("one", "both"))
        damage(one / "checkpoint" / last.name)
        said = resumed(call, one, same_as=whole)
        if way != "removed":
            assert f"{last.name} is damaged" in said
            assert f"training goes on from {one / 'checkpoint' / before.name}, after step 50" in said
        for file in (last, before):
            damage(both / "checkpoint" / file.name)
        said = resumed(call, both, same_as=whole)
        assert way == "removed" or "no checkpoint of these steps is whole; they begin anew" in said


def sharing(cache: Path, progress: Progress = silent) -> Hooks:
    clock = Clock()
    return Hooks(progress, clock, fit_first=fit_or_load(cache, clock))


def test_a_damaged_first_e_step_that_trainings_share(graph: Path, whole: Path, tmp_path: Path) -> None:
    cache, model = tmp_path / "cache", PLogicNet(Config().with_values(THREE))
    model.fit(open_graph(str(graph)), hooks=sharing(cache))
    [vectors] = cache.rglob("*.safetensors")
    for way, damage in WAYS.items():
        damage(vectors)
        model.fit(open_graph(str(graph)), out=tmp_path / way, hooks=sharing(cache))
        assert "e_step_shared" not in model.seconds, way  # it is not loaded
        assert different(whole, tmp_path / way) == []
    flipped(vectors, 8 * vectors.stat().st_size - 6)
    with pytest.raises(StoppedError):
        model.fit(open_graph(str(graph)), hooks=sharing(cache, stop_at("training", after=10)))
    next(cache.rglob("sha256")).unlink()  # as a kill between two writes would leave it
    model.fit(open_graph(str(graph)), out=tmp_path / "after", hooks=sharing(cache))
    assert different(whole, tmp_path / "after") == []


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_byte_of_a_checkpoint_may_be_damaged(
    call: Call, whole: Path, begun: Path, tmp_path: Path, data: st.DataObject
) -> None:
    there = tmp_path / "run"
    shutil.rmtree(there, ignore_errors=True)
    shutil.copytree(begun, there)
    files = sorted(f for f in (there / "checkpoint").rglob("*") if f.is_file() and f.stat().st_size)
    file = data.draw(st.sampled_from([f for f in files if f.name != "written.rules"]))
    flipped(file, data.draw(st.integers(0, file.stat().st_size * 8 - 1)))
    resumed(call, there, same_as=whole)


def test_a_complete_run_without_its_last_file_or_its_first(call: Call, complete: Path) -> None:
    """No advice that leads in a circle."""
    kept = (complete / "metrics.json").read_bytes()
    (complete / "metrics.json").unlink()
    for command in ("evaluate", "resume", "refit"):
        code, _, said = call(command, complete)
        assert code == 2
        assert "if it was complete once, put metrics.json back from a copy; else remove the directory" in said, said
    (complete / "metrics.json").write_bytes(kept)
    (complete / "run.json").unlink()
    code, _, said = call("evaluate", complete)
    assert code == 2
    assert f"{complete} is damaged: its file run.json is missing; put the file back from a copy" in said


def test_every_file_may_be_read_by_those_who_may_read_new_files(complete: Path, tmp_path: Path) -> None:
    (tmp_path / "new").touch()
    modes = {file.name: file.stat().st_mode for file in complete.iterdir()}
    assert set(modes.values()) == {(tmp_path / "new").stat().st_mode}, modes


# Settings edited by hand


def replaced(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.parametrize(("old", "new"), [("dim: 8", "dim: 16"), ("iterations: 3", "iterations: 5"), ("seed", "seeed")])
def test_settings_edited_by_hand(call: Call, complete: Path, unfinished: Path, old: str, new: str) -> None:
    for there, commands in ((complete, READING), (unfinished, [("resume",)])):
        replaced(there / "config.yaml", old, new)
        for command, *words in commands:
            said = refused(call, command, there, *words)
            assert f"{there / 'config.yaml'}" in said
            if new != "seeed":
                assert "is damaged, or was edited by hand" in said
                assert "Put it back as it was" in said
                assert "--set em.iterations=N" in said
        replaced(there / "config.yaml", new, old)
    assert call("evaluate", complete)[0] == 0


def test_settings_edited_before_more_iterations(call: Call, complete: Path) -> None:
    replaced(complete / "config.yaml", "iterations: 3", "iterations: 4")
    assert "was edited by hand" in refused(call, "resume", complete)
    replaced(complete / "config.yaml", "iterations: 4", "iterations: 3")
    assert "is complete" in refused(call, "resume", complete)


# Runs of other versions


@pytest.mark.parametrize("version", ["9.9", "", None, "\x1b[31m\n" * 99, {"a": 1}, "x" * 100_000])
@pytest.mark.parametrize("number", [2, 10**30, 1, 0, -1, 1.5, True, None, "../..", [1]])
def test_a_run_that_says_odd_things_of_its_version(call: Call, complete: Path, number: object, version: object) -> None:
    (complete / "run.json").write_text(json.dumps({"format": number, "version": version}))
    code, out, said = call("rules", complete)
    assert "\x1b[31m" not in said
    assert len(said) < 1_000
    assert (code, out) == (2, "")
    if number == 1 and not isinstance(number, bool):
        assert "run.json is damaged, or was edited by hand" in said
    elif isinstance(number, int) and number > 1:
        writer = "plogicnet 9.9" if version == "9.9" else "an unknown version of plogicnet"
        assert f"was written by {writer}, newer than this" in said
    else:
        assert "run.json is damaged: it names no format" in said


# A file that vanishes


def vanishing(words: str, time: int, remove: Callable[[], object]) -> Progress:
    """Removes something as such a step begins."""
    stopping = stop_at(words, time)

    def progress(step: str, total: int):  # type: ignore[no-untyped-def]
        try:
            stopping(step, total).__enter__()
        except StoppedError:
            remove()
        return silent(step, total)

    return progress


@pytest.fixture
def at_step(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int, Callable[[], object]], None]:
    """Lets something happen beside a command, when such a step of it begins."""

    def watch(words: str, time: int, do: Callable[[], object]) -> None:
        progress = vanishing(words, time, do)
        monkeypatch.setattr("plogicnet.cli.train.for_stderr", lambda: progress)

    return watch


AtStep = Callable[[str, int, Callable[[], object]], None]


@pytest.mark.parametrize(("words", "time"), [("training", 1), ("training", 2), ("ranking test", 1)])
def test_a_run_directory_removed_while_it_trains(
    call: Call, graph: Path, at_step: AtStep, tmp_path: Path, words: str, time: int
) -> None:
    there = tmp_path / "run"
    at_step(words, time, lambda: shutil.rmtree(there))
    code, out, said = call("train", graph, "--out", there, *QUICK)
    assert (code, out) == (2, "")
    assert str(there) in said.splitlines()[-1]
    assert not there.exists(), "half a run is made again"


def test_a_run_directory_replaced_while_it_trains(
    call: Call, graph: Path, whole: Path, at_step: AtStep, tmp_path: Path
) -> None:
    """As where a person removes it and begins again, and the first training was not stopped: it spoils nothing."""
    there = tmp_path / "run"

    def replace() -> None:
        shutil.rmtree(there)
        shutil.copytree(whole, there)
        (there / ".lock").touch()

    at_step("training", 2, replace)
    code, out, said = call("train", graph, "--out", there, *QUICK)
    assert (code, out) == (2, "")
    assert f"{there} is gone: the run directory was removed or replaced" in said
    assert {name for name in different(whole, there) if not name.startswith("checkpoint/e_step")} <= {".lock"}
    assert call("evaluate", there)[0] == 0


def test_files_removed_while_it_trains_are_written_again(
    call: Call, graph: Path, at_step: AtStep, tmp_path: Path
) -> None:
    assert call("train", graph, "--out", tmp_path / "whole", *QUICK)[0] == 0
    there = tmp_path / "run"

    def remove() -> None:
        for name in ("run.json", "graph.parquet", "entities.tsv", "config.yaml", "log.txt"):
            (there / name).unlink()
        shutil.rmtree(there / "checkpoint" / "1")

    at_step("training", 2, remove)
    code, _, said = call("train", graph, "--out", there, *QUICK)
    assert code == 0
    assert "these files had vanished and are written again: run.json, graph.parquet, entities.tsv" in said
    assert different(tmp_path / "whole", there) == []


@pytest.mark.parametrize("name", OF_A_RUN)
def test_a_file_that_vanishes_while_a_run_is_opened(
    call: Call, complete: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was seen to be there, and is gone when it is to be read."""

    def look(path: Path) -> None:
        require_complete(path)
        (path / name).unlink()

    monkeypatch.setattr("plogicnet.runs.reading.require_complete", look)
    code, out, said = call("predict", complete, *ASKED)
    assert (code, out) == (2, "")
    assert name in said or "another process is writing here" in said


# Two processes on one run


def test_a_second_process_is_told_so(call: Call, graph: Path, at_step: AtStep, tmp_path: Path) -> None:
    """While a real training goes, every other command is tried on its run by another process."""
    there = tmp_path / "run"
    commands = [
        ("train", graph, "--out", there, *QUICK),
        *((c, there) for c in ("resume", "refit", "rules", "evaluate")),
    ]
    commands.append(("predict", there, *ASKED))
    done: list[Done] = []
    at_step("training", 2, lambda: done.extend(in_a_child(commands)))
    code, _, said = call("train", graph, "--out", there, *QUICK)
    assert code == 0, said
    assert len(done) == len(commands)
    for words, (status, out, message) in zip(commands, done, strict=True):
        assert (status, out) == (2, ""), words
        assert f"{there}: another process is writing here" in message, words
    assert call("evaluate", there)[0] == 0
    assert call("train", graph, "--out", tmp_path / "whole", *QUICK)[0] == 0
    assert different(tmp_path / "whole", there) == []


def test_readers_beside_a_refit_see_one_run_or_the_other(complete: Path) -> None:
    """Never a mixture: what is read is of one piece, or the writer is named."""
    from plogicnet.support.errors import InputError

    model = PLogicNet.load(complete)
    seen: set[str] = set()
    done = threading.Event()
    written: list[bool] = []

    def write() -> None:
        try:
            for turn in range(6):
                rules = "=2: husband(X, Y) => wife(Y, X)" if turn % 2 else "=1: wife(X, Y) => husband(Y, X)"
                model.refit(rules, out=complete)
            written.append(True)
        finally:
            done.set()

    before = str(read_rules(complete).rules)
    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
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


# Full disks and read-only places

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the limits and mounts of Linux")


@contextmanager
def no_file_larger(size: int) -> Iterator[None]:
    """As on a full disk, for any user: a write fails in its middle."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


LIMITS = {"config.yaml": 1_000, "graph.parquet": 1_500, "e_step.safetensors": 3_500, "metrics.json": 10_000}
"""Bytes that are too few for this file, and enough for those written before it."""


@LINUX
@pytest.mark.parametrize("name", LIMITS)
def test_a_file_that_may_not_grow(call: Call, graph: Path, whole: Path, tmp_path: Path, name: str) -> None:
    there = tmp_path / "run"
    with no_file_larger(LIMITS[name]):
        code, out, said = call("train", graph, "--out", there, *SETTINGS)
    assert (code, out) == (2, ""), said
    assert f"{name}: File too large; files may not grow so large here" in said
    assert not list(there.rglob("*.part"))
    if (there / "run.json").exists():
        assert f"plogicnet: what was saved is kept; `plogicnet resume {there}` continues from here" in said
        resumed(call, there, same_as=whole)
    else:
        assert call("train", graph, "--out", there, *SETTINGS)[0] == 0


@LINUX
@pytest.mark.usefixtures("mountable")
def test_a_full_disk(graph: Path, whole: Path, tmp_path: Path) -> None:
    """A training fills a small disk at one place after another; with more room each time, it goes on to its end."""
    disk, copy = tmp_path / "disk", tmp_path / "copy"
    disk.mkdir()
    commands: list[tuple[object, ...]] = [("train", graph, "--out", disk / "run", *SETTINGS)]
    for size in (48, 64, 80, 96, 120, 400):
        commands += [("!mount", "-o", f"remount,size={size}k", disk), ("!find", disk, "-name", "*.part")]
        commands += [("resume", disk / "run")]
    commands += [("!cp", "-r", disk / "run", copy)]
    done = in_a_child(commands, on=disk, options="size=32k")
    ours = [result for words, result in zip(commands, done, strict=True) if not str(words[0]).startswith("!")]
    parts = [out for words, (_, out, _) in zip(commands, done, strict=True) if words[0] == "!find"]
    assert set(parts) == {""}
    ends = [code for code, _, _ in ours]
    assert 0 in ends, ours
    full = ours[: ends.index(0)]
    assert len(full) >= 3
    for code, out, said in full:
        assert (code, out) == (2, "")
        assert "No space left on device; free some space" in said
        assert f"what was saved is kept; `plogicnet resume {disk / 'run'}` continues from here" in said
    assert set(different(whole, copy)) <= {".lock"}


@LINUX
@pytest.mark.usefixtures("mountable")
def test_a_read_only_disk(graph: Path, whole: Path, tmp_path: Path) -> None:
    """What only reads works there; what writes says why it cannot."""
    disk = tmp_path / "disk"
    disk.mkdir()
    commands: list[tuple[object, ...]] = [
        ("!cp", "-r", whole, disk / "run"),
        ("!mount", "-o", "remount,ro", disk),
        *(("predict", disk / "run", *ASKED), ("rules", disk / "run"), ("evaluate", disk / "run")),
        *(("refit", disk / "run"), ("resume", disk / "run", "--set", "em.iterations=4")),
        ("train", graph, "--out", disk / "new", *SETTINGS),
    ]
    done = in_a_child(commands, on=disk, options="size=10m")
    assert [code for code, _, _ in done] == [0, 0, 0, 0, 0, 2, 2, 2]
    for _, out, said in done[-3:]:
        assert out == ""
        assert "Read-only file system" in said


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_directory_without_the_right_to_write(call: Call, complete: Path) -> None:
    (complete / ".lock").unlink(missing_ok=True)
    complete.chmod(0o555)
    try:
        assert call("evaluate", complete)[0] == 0
        assert "Permission denied; see who may read and write there" in refused(call, "refit", complete)
    finally:
        complete.chmod(0o755)


@LINUX
def test_output_to_a_full_disk(whole: Path) -> None:
    """Also by Python's own flush as it ends."""
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "plogicnet", "rules", str(whole)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("plogicnet: a file or the output: No space left on device; free some space")
    assert len(done.stderr.splitlines()) == 1


def test_a_refit_that_fails_on_the_way_is_finished_by_resume(
    call: Call, complete: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is broken up already, and all that is needed is in its checkpoint."""
    same = Path(shutil.copytree(complete, tmp_path / "same"))
    file = tmp_path / "one.rules"
    file.write_text("=2: husband(X, Y) => wife(Y, X)\n")
    assert call("refit", same, "--rules", file)[0] == 0
    writing, written = os.fsync, 0

    def refuse(descriptor: int) -> None:
        nonlocal written
        written += 1
        if written > 14:  # the five of the checkpoint, and two of the run; each with its directory
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        writing(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", refuse)
        code, _, said = call("refit", complete, "--rules", file)
    assert code == 2
    assert f"what was saved is kept; `plogicnet resume {complete}` continues from here" in said
    resumed(call, complete, same_as=same)


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "free some space"),
        (errno.EIO, "the disk fails"),
        (errno.EACCES, "see who may"),
        (errno.ENOENT, "it was removed or renamed meanwhile"),
        (errno.ENOTDIR, "Not a directory"),
    ],
)
def test_what_the_system_refuses_is_said_with_advice(
    call: Call, complete: Path, number: int, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number), "/some/file")

    monkeypatch.setattr("os.fsync", refuse)
    code, _, said = call("refit", complete)
    assert code == 2
    assert os.strerror(number) in said
    assert advice in said
    assert not list(complete.rglob("*.part"))
    assert not list(complete.rglob("checkpoint/*"))
    assert "what was saved is kept" not in said, "it is as it was before"
    assert call("evaluate", complete)[0] == 0, "the run before the refit is lost"
