"""Snapshots: publishing, reverting, removing old ones, shared files, and readers of a snapshot that is removed."""

import errno
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from calling import Call, call_json
from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.runs import lifecycle, snapshots
from plogicnet.runs.directory import CURRENT_FILE, snapshot_folder, snapshot_names
from plogicnet.runs.snapshots import SNAPSHOT_FILES, UNCHANGED_BY_REFIT, list_snapshots, read_rules
from plogicnet.support.errors import InputError
from plogicnet.training.hooks import Hooks
from small import SMALL, fitted, small_graph
from stopping import StoppedError, different, files_of, leftovers, overwrite, stop_at, tree_of

HUSBAND, WIFE = "husband(X, Y) => wife(Y, X)", "wife(X, Y) => husband(Y, X)"
FILES = [name for name in SNAPSHOT_FILES if name != "labels.tsv"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run; tests copy it before they change it."""
    path = tmp_path_factory.mktemp("run") / "family"
    fitted().save(path)
    return path


@pytest.fixture
def run(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "run"))


@pytest.fixture
def no_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old snapshots are removed at once."""
    monkeypatch.setattr("plogicnet.runs.snapshots.MIN_AGE_SECONDS", -1.0)


def refit(run: Path, rules: str, keep: int = 2) -> None:
    PLogicNet.load(run).refit(rules, out=run, keep=keep)


def rules_of(run: Path, name: str | None = None) -> list[str]:
    return [str(rule) for rule in read_rules(run, name).rules]


def inodes(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_ino for file in folder.iterdir()}


# Publishing and reverting


def test_revert_publishes_the_same_files_under_a_new_name(run: Path) -> None:
    refit(run, HUSBAND)
    assert lifecycle.revert(run, "0001") == "0003"
    assert tree_of(run / "snapshots" / "0003") == tree_of(run / "snapshots" / "0001")
    assert (run / CURRENT_FILE).read_text() == "0003\n"
    assert lifecycle.revert(run, "0003") == "0003", "it is already the current one"
    refit(run, WIFE)
    assert [(s.name, s.command, s.current) for s in list_snapshots(run)] == [
        ("0001", "save", False),
        ("0002", "refit", False),
        ("0003", "revert 0001", False),
        ("0004", "refit", True),
    ]
    for name in ("0005", "1", "", "../0001", "0001\n"):
        with pytest.raises(InputError, match=r"has no snapshot .*\. It has: 0001, 0002, 0003, 0004\."):
            lifecycle.revert(run, name)
    assert snapshot_names(run) == ["0001", "0002", "0003", "0004"]


def test_an_older_snapshot_can_be_read(run: Path, saved: Path, call: Call) -> None:
    refit(run, HUSBAND)
    old, query = PLogicNet.load(run, snapshot="0001"), ("--head", "man0", "--relation", "husband")
    assert old.snapshot is not None
    assert old.snapshot.folder == run / "snapshots" / "0001"
    assert (old.evaluate(), old.rules.rows()) == (PLogicNet.load(saved).evaluate(), PLogicNet.load(saved).rules.rows())
    assert rules_of(run) == [HUSBAND]
    for arguments in (("rules", run), ("evaluate", run), ("predict", run, *query)):
        expected = call_json(call, arguments[0], saved, *arguments[2:])
        assert call_json(call, *arguments, "--snapshot", "0001") == expected != call_json(call, *arguments)
    with pytest.raises(InputError, match=r"has no snapshot '0003'\. It has: 0001, 0002\."):
        PLogicNet.load(run, snapshot="0003")


@pytest.mark.usefixtures("no_age")
def test_the_latest_snapshots_are_kept(run: Path, saved: Path) -> None:
    for rules in (HUSBAND, WIFE, HUSBAND):
        refit(run, rules)
    assert snapshot_names(run) == ["0003", "0004"]
    refit(run, WIFE, keep=3)
    assert snapshot_names(run) == ["0003", "0004", "0005"]
    lifecycle.revert(run, "0003", keep=1)  # its files stay, under another name
    assert snapshot_names(run) == ["0006"]
    assert rules_of(run) == [WIFE]
    PLogicNet.load(saved).save(run, keep=0)
    assert snapshot_names(run) == ["0007"], "the current one is always kept"
    assert different(saved, run) == []
    assert list(json.loads((run / "work" / "timings.json").read_text())) == ["0006", "0007"]


def test_snapshots_that_were_current_in_the_last_minute_are_kept(run: Path) -> None:
    for rules in (HUSBAND, WIFE):
        refit(run, rules, keep=1)
    assert snapshot_names(run) == ["0001", "0002", "0003"]
    os.utime(run / "snapshots" / "0002", (time.time() - 61,) * 2)  # since then, 0001 has not been current
    refit(run, HUSBAND, keep=1)
    assert snapshot_names(run) == ["0002", "0003", "0004"]


@pytest.mark.usefixtures("no_age")
def test_a_current_file_written_by_hand_is_respected(run: Path) -> None:
    """Snapshots after it are neither listed nor removed, and their names are not used again."""
    refit(run, HUSBAND)
    later = tree_of(run / "snapshots" / "0002")
    (run / CURRENT_FILE).write_text("0001")
    assert [(s.name, s.current) for s in list_snapshots(run)] == [("0001", True)]
    assert len(rules_of(run)) > 1
    with pytest.raises(InputError, match="has no snapshot '0002'"):
        PLogicNet.load(run, snapshot="0002")
    refit(run, WIFE)
    assert (snapshot_folder(run).name, rules_of(run)) == ("0003", [WIFE])
    assert tree_of(run / "snapshots" / "0002") == later


def test_saving_without_a_current_file_does_not_discard_a_training(run: Path) -> None:
    with pytest.raises(StoppedError):
        PLogicNet.resume(run, {"em.iterations": 4}, Hooks(stop_at("training", 2)))
    model, checkpoint = PLogicNet.load(run), tree_of(run / "work" / "checkpoint")
    (run / CURRENT_FILE).unlink()
    with pytest.raises(InputError, match="CURRENT is missing"):
        model.save(run)
    assert tree_of(run / "work" / "checkpoint") == checkpoint


def test_a_refit_of_a_run_that_another_process_changed_is_refused(run: Path) -> None:
    first, second = PLogicNet.load(run), PLogicNet.load(run)
    for rules in (HUSBAND, WIFE):  # each from the snapshot that this model published
        first.refit(rules, out=run)
    tree = tree_of(run)
    with pytest.raises(InputError, match="the current snapshot is 0003, but the model was loaded from another one"):
        second.refit(HUSBAND, out=run)
    assert tree_of(run) == tree
    refit(run, HUSBAND)
    assert (snapshot_folder(run).name, rules_of(run)) == ("0004", [HUSBAND])


# Shared files


def test_a_refit_links_what_it_does_not_change(run: Path, tmp_path: Path) -> None:
    refit(run, HUSBAND)
    old, new = (inodes(run / "snapshots" / name) for name in ("0001", "0002"))
    assert {name for name in new if new[name] == old[name]} == set(UNCHANGED_BY_REFIT) - {"labels.tsv"}
    model = PLogicNet.load(run)
    model.save(run)
    assert inodes(snapshot_folder(run)) == new | {"manifest.json": inodes(snapshot_folder(run))["manifest.json"]}
    model.save(tmp_path / "other")
    assert not set(inodes(snapshot_folder(tmp_path / "other")).values()) & {*old.values(), *new.values()}
    assert different(run, tmp_path / "other") == []


def test_changed_settings_are_not_linked(run: Path) -> None:
    model = PLogicNet.load(run, {"evaluation.batch_memory_mb": 7})
    model.save(run)
    assert PLogicNet.load(run).config.evaluation.batch_memory_mb == 7
    assert PLogicNet.load(run, snapshot="0001").config != model.config


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_a_damaged_file_is_not_linked_but_written_again(name: str, run: Path, saved: Path) -> None:
    model = PLogicNet.load(run)
    overwrite(snapshot_folder(run) / name, b"damaged")
    model.save(run)
    assert different(saved, run) == []
    PLogicNet.load(run)
    overwrite(snapshot_folder(run) / name, b"damaged")
    model.refit(out=run)
    assert different(saved, run) == []
    PLogicNet.load(run)


@pytest.mark.parametrize("name", ["entities.tsv", "rules.tsv"])
def test_a_file_that_is_written_again_can_differ(name: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of pyarrow writes other bytes."""
    model = PLogicNet.load(run)
    overwrite(snapshot_folder(run) / name, b"damaged")
    write_table = pq.write_table
    with monkeypatch.context() as patch:
        patch.setattr("pyarrow.parquet.write_table", lambda table, file, **_: write_table(table, file))
        model.save(run)
    PLogicNet.load(run)


@pytest.mark.usefixtures("no_age")
def test_an_old_snapshot_without_a_manifest_is_removed(run: Path) -> None:
    model = PLogicNet.load(run)
    (snapshot_folder(run) / "manifest.json").unlink()
    model.refit(out=run, keep=1)
    assert snapshot_names(run) == ["0002"]


@pytest.mark.parametrize("values", [{}, {"neural.model": "ComplEx", "neural.vectors.recipe": "one_vs_all"}], ids=str)
def test_the_vectors_are_linked_from_the_checkpoint(
    values: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are those of the model, also if it is not the last EM iteration."""
    values = SMALL | values | ({"em.patience": 1, "em.iterations": 9, "neural.learning_rate": 0.1} if values else {})
    linked: list[Path] = []
    remove_leftovers, run = snapshots.remove_leftovers, tmp_path / "run"

    def look(path: Path, keep: int | None = None) -> None:
        for file in path.glob("snapshots/0001/*"):
            linked.extend(other for other in path.glob(f"work/checkpoint/*/{file.name}") if other.samefile(file))
        remove_leftovers(path, keep)

    monkeypatch.setattr("plogicnet.runs.snapshots.remove_leftovers", look)
    model = PLogicNet(Config().with_values(values)).fit(small_graph(), out=run)
    kept = model.fitted.outcome.iteration
    assert {str(file.relative_to(run / "work" / "checkpoint")) for file in linked} == {
        f"{kept}/neural.safetensors",
        *(f"start/{name}" for name in ("graph.parquet", "entities.tsv", "relations.tsv")),
    }
    assert len(model.history) == kept + bool(values.get("em.patience"))
    model.save(tmp_path / "other")
    assert different(run, tmp_path / "other") == []
    assert leftovers(run) == []


def test_without_hard_links_files_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def change(run: Path) -> PLogicNet:
        model = PLogicNet(Config().with_values(SMALL)).fit(small_graph(), out=run)
        model.refit(HUSBAND, out=run)
        lifecycle.revert(run, "0001")
        return PLogicNet.resume(run, {"em.iterations": 3})

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    change(tmp_path / "linked")
    monkeypatch.setattr("os.link", fail)
    change(tmp_path / "copied")
    assert tree_of(tmp_path / "copied") == tree_of(tmp_path / "linked")
    assert leftovers(tmp_path / "copied") == []
    modes = [{str(f.relative_to(r)): f.stat().st_mode for f in r.rglob("*")} for r in tmp_path.iterdir()]
    assert modes[0] == modes[1]
    assert {file.stat().st_nlink for file in (tmp_path / "copied").rglob("*") if file.is_file()} == {1}


# Readers of a snapshot that is removed

READING_STEPS = [
    *(f"runs.snapshots.{name}" for name in ("read_config", "read_graph", "read_outcome")),
    *(
        f"runs.files.{name}"
        for name in ("verify_checksums", "read_manifest", "read_parquet", "read_json", "make_model")
    ),
]
"""Functions that are called while a run is loaded."""


def call_first(target: str, action: Callable[[], object], times: int, patch: pytest.MonkeyPatch) -> None:
    """Call `action` before each of the first calls of a function of this package."""
    module, _, name = target.rpartition(".")
    function, left = getattr(__import__(f"plogicnet.{module}", fromlist=[name]), name), times

    def wrapped(*arguments: object, **options: object) -> Any:
        nonlocal left
        left -= 1
        if left >= 0:
            action()
        return function(*arguments, **options)

    patch.setattr(f"plogicnet.{target}", wrapped)


@pytest.mark.usefixtures("no_age")
@pytest.mark.parametrize("step", READING_STEPS)
def test_a_reader_starts_again_if_its_snapshot_is_removed(
    step: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = PLogicNet.load(run)
    other.refit(HUSBAND, out=tmp_path / "expected")
    call_first(step, lambda: other.save(run, keep=1), 1, monkeypatch)
    model = PLogicNet.load(run)
    assert model.snapshot is not None
    assert model.snapshot.folder == run / "snapshots" / "0002"
    assert snapshot_names(run) == ["0002"]
    assert [str(rule) for rule in model.rules.rules] == [HUSBAND]
    monkeypatch.undo()
    assert model.evaluate() == PLogicNet.load(tmp_path / "expected").evaluate()


@pytest.mark.usefixtures("no_age")
def test_a_reader_of_a_named_snapshot_does_not_read_another_one(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = PLogicNet.load(run)
    call_first("runs.snapshots.read_graph", lambda: other.save(run, keep=1), 1, monkeypatch)
    with pytest.raises(InputError, match=r"has no snapshot '0001'\. It has: 0002\."):
        PLogicNet.load(run, snapshot="0001")


@pytest.mark.usefixtures("no_age")
def test_a_reader_gives_up_after_many_attempts(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, before = PLogicNet.load(run), files_of(run)
    for times, works in ((snapshots.MAX_ATTEMPTS - 1, True), (snapshots.MAX_ATTEMPTS, False)):
        with monkeypatch.context() as patch:
            call_first("runs.snapshots.verify_files", lambda: other.save(run, keep=1), times, patch)
            if works:
                assert read_rules(run).rows() == other.rules.rows()
            else:
                with pytest.raises(InputError, match="other snapshots were published while this one was read"):
                    read_rules(run)
    assert files_of(run) == before
