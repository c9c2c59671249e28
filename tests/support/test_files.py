"""Files and directories that are complete or absent, hard links, and locks."""

import errno
import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

from plogicnet.support.errors import InputError
from plogicnet.support.files import (
    atomic_directory,
    is_locked,
    link,
    lock_directory,
    make_directory,
    remove_directory,
    remove_partial_files,
    still_locked,
    write_text,
)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The inodes that were synced, in order."""
    inodes: list[int] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        inodes.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr("os.fsync", record)
    return inodes


def test_a_directory_appears_complete_and_read_only(tmp_path: Path, synced: list[int]) -> None:
    path, outside = tmp_path / "0001", tmp_path / "outside"
    outside.touch()
    with atomic_directory(path) as folder:
        write_text(folder / "a.txt", "a")
        link(outside, folder / "b.txt")
        assert not path.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0001", "outside"]
    readable = outside.stat().st_mode & 0o444
    assert {file.name: file.stat().st_mode & 0o777 for file in path.iterdir()} == dict.fromkeys(
        ("a.txt", "b.txt"), readable
    )
    assert synced[-2:] == [path.stat().st_ino, tmp_path.stat().st_ino], "the directory, then its name"
    assert (path / "a.txt").stat().st_ino in synced
    remove_directory(path)
    assert list(tmp_path.iterdir()) == [outside]
    remove_directory(path)  # no error


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), ValueError(), OSError(errno.EIO, "broken", "/some/file")], ids=repr
)
def test_an_error_in_a_directory_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    def fill() -> None:
        with atomic_directory(tmp_path / "0001") as folder:
            write_text(folder / "a.txt", "a")
            raise error

    with pytest.raises(type(error)) as raised:
        fill()
    assert raised.value is error
    assert list(tmp_path.iterdir()) == []


def test_a_system_error_in_a_directory_is_about_the_final_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "0001"
    with pytest.raises(FileNotFoundError) as missing, atomic_directory(path) as folder:
        (folder / "a.txt").read_text()
    assert missing.value.filename == str(path / "a.txt")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", fail)  # the error has no file name
    with pytest.raises(OSError, match="No space left") as full, atomic_directory(path) as folder:
        write_text(folder / "rules.tsv", "text")
    assert full.value.filename == str(path / "rules.tsv")
    with pytest.raises(OSError, match="No space left") as full, atomic_directory(path):
        pass
    assert full.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_directory_is_not_replaced(tmp_path: Path) -> None:
    with atomic_directory(tmp_path / "0001") as folder:
        write_text(folder / "a.txt", "old")
    with pytest.raises(OSError) as raised, atomic_directory(tmp_path / "0001") as folder:  # noqa: PT011
        write_text(folder / "a.txt", "new")
    assert raised.value.errno in (errno.ENOTEMPTY, errno.EEXIST)
    assert [file.read_text() for file in tmp_path.rglob("*.txt")] == ["old"]
    assert [folder.name for folder in tmp_path.iterdir()] == ["0001"]


def test_a_directory_loses_its_name_before_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the process is killed, `remove_partial_files` removes the rest."""
    path = tmp_path / "0001"
    with atomic_directory(path) as folder:
        write_text(folder / "a.txt", "a")
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda *_, **__: None)  # as if killed here
        remove_directory(path)
    assert not path.exists()
    assert len(list(tmp_path.rglob("a.txt"))) == 1
    remove_partial_files(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [errno.EPERM, errno.EXDEV, errno.EACCES, None])
def test_a_file_is_copied_if_it_cannot_be_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: list[int], code: int | None
) -> None:
    def fail(*_: object, **__: object) -> None:
        assert code is not None
        raise OSError(code, os.strerror(code))

    if code is not None:
        monkeypatch.setattr("os.link", fail)
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_text("text")
    link(source, target)
    assert target.read_text() == "text"
    assert target.samefile(source) == (code is None)
    assert (target.stat().st_ino in synced) == (code is not None), "a copy must be synced"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a", "b"]


def test_new_directories_are_synced(tmp_path: Path, synced: list[int]) -> None:
    make_directory(tmp_path / "a" / "b" / "c")
    assert synced == [folder.stat().st_ino for folder in (tmp_path, tmp_path / "a", tmp_path / "a" / "b")]
    make_directory(tmp_path / "a" / "b" / "c")  # no error
    assert len(synced) == 3
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "folder"):
        with pytest.raises(OSError):  # noqa: PT011
            make_directory(path)


def test_a_second_writer_fails_or_waits(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with lock_directory(tmp_path, wait=True):
            order.append("second")

    waiting = threading.Thread(target=second)
    with lock_directory(tmp_path):
        assert is_locked(tmp_path)
        with pytest.raises(InputError, match="another process is writing here"), lock_directory(tmp_path):
            pass
        waiting.start()
        waiting.join(0.2)
        order.append("first")
    waiting.join(10)
    assert order == ["first", "second"]
    assert not is_locked(tmp_path)


def test_a_directory_that_is_replaced_is_no_longer_locked(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with lock_directory(run):
        assert still_locked(run)
        run.rename(tmp_path / "away")  # so that its inode is not reused
        run.mkdir()
        (run / ".lock").touch()
        assert not still_locked(run)
        shutil.rmtree(run)
        assert still_locked(run), "no other process has locked it"
    assert still_locked(run)


@pytest.mark.parametrize("installed", [True, False])
def test_without_file_locks_a_warning_is_logged(
    installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def raise_error(*_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    if installed:
        monkeypatch.setattr("filelock.lock_descriptor", raise_error)
    else:
        monkeypatch.setitem(sys.modules, "filelock", None)
    with lock_directory(tmp_path):
        assert not is_locked(tmp_path)
    assert f"{tmp_path}: file locks are not available" in caplog.text
