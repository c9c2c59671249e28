"""Directory locks: a second writer, a replaced directory, and systems without file locks."""

import errno
import shutil
import sys
import threading
from pathlib import Path

import pytest

from plogicnet.support.errors import InputError
from plogicnet.support.files import is_locked, lock_directory, still_locked


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
