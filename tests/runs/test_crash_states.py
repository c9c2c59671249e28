"""A power cut while a command writes a run leaves the old state or the new one. See torture/crash_states.py."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("the recorder needs /proc", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).parents[2] / "torture"))

import crash_states as crash
from disk import CrashState, Recorder
from plogicnet.runs import lifecycle, snapshots
from plogicnet.support import files
from plogicnet.support.progress import no_progress

RESULTS = {
    "train": {"message", "new"},
    "save in a new directory": {"message", "new"},
    "refit": {"old", "new"},
    "update": {"old", "new"},
    "save": {"old", "new"},
    "revert": {"old", "new"},
    "revert to the current snapshot": {"new"},  # the content does not change
    "resume with more iterations": {"old", "new"},
    "resume an unfinished training": {"old", "new"},
    "resume after a superseded training": {"old", "new"},
    "export": {"old", "new"},
}
"""What a user finds after a power cut, by command."""


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> crash.Workshop:
    return crash.Workshop(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def cases(workshop: crash.Workshop, tmp_path_factory: pytest.TempPathFactory) -> dict[str, crash.Case]:
    folder = tmp_path_factory.mktemp("recorded")
    return {name: crash.record(workshop, name, folder) for name in workshop.commands()}


@pytest.mark.parametrize("name", RESULTS)
def test_all_changes_are_recorded(name: str, cases: dict[str, crash.Case]) -> None:
    """If this fails, a file was written without the functions of plogicnet.support.files, and thus not synced."""
    assert cases[name].recording.operations
    assert cases[name].recording.differences(cases[name].root) == []


@pytest.mark.parametrize("name", RESULTS)
def test_every_state_after_a_power_cut_can_be_opened(name: str, cases: dict[str, crash.Case], tmp_path: Path) -> None:
    figures = try_states(cases[name], cases[name].recording.states(pairs=False), tmp_path)
    assert figures.failures == {}
    assert set(figures.opened) == RESULTS[name]


def test_all_commands_are_tested(cases: dict[str, crash.Case]) -> None:
    assert set(cases) == set(RESULTS)


@pytest.mark.parametrize("are_folders", [True, False], ids=["directories", "files"])
def test_a_missing_sync_is_found(
    are_folders: bool, workshop: crash.Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = files.sync
    for module in (files, snapshots, lifecycle):
        monkeypatch.setattr(module, "sync", lambda path: None if path.is_dir() == are_folders else sync(path))
    case = crash.record(workshop, "save in a new directory", tmp_path)
    assert case.recording.differences(case.root) == []
    assert try_states(case, case.recording.states(pairs=False)[-60:], tmp_path).failures


def try_states(case: crash.Case, states: Sequence[CrashState], folder: Path) -> crash.Figures:
    figures = crash.Figures()
    crash.try_states(case, crash.different_for_readers(states), folder, figures, no_progress)
    return figures


def test_an_atomic_write_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    (tmp_path / "CURRENT").write_bytes(b"0001")
    with Recorder(tmp_path) as recorder:
        files.write_text(tmp_path / "CURRENT", "0002")
    assert {state.tree["CURRENT"] for state in recorder.recording().states()} == {b"0001", b"0002"}


def test_other_writes_leave_damaged_files(tmp_path: Path) -> None:
    for name in ("synced", "renamed"):
        (tmp_path / name).write_bytes(b"0001")
    with Recorder(tmp_path) as recorder:
        with (tmp_path / "synced").open("r+b") as file:
            file.write(b"0002")
            file.flush()
            os.fsync(file.fileno())
        (tmp_path / "temporary").write_bytes(b"0002")
        (tmp_path / "temporary").rename(tmp_path / "renamed")
    states = recorder.recording().states()
    assert {state.tree["synced"] for state in states} == {b"0001", b"0002", b"00", bytes(4)}
    assert {state.tree["renamed"] for state in states} == {b"0001", b"0002", b"00", bytes(4), b""}


def test_a_write_that_is_not_recorded_is_found(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        (tmp_path / "rules.tsv").write_bytes(b"pattern")
    assert recorder.recording().differences(tmp_path) == ["rules.tsv"]
