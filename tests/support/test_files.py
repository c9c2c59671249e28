"""Locks of directories: one writer at a time, a waiting one, a replaced directory, and systems without locks."""

import errno
import shutil
import sys
import threading
from pathlib import Path

import pytest

from plogicnet.support.errors import InputError
from plogicnet.support.files import in_use, locked, still_locked


def test_a_second_writer_is_refused_or_waits(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with locked(tmp_path, wait=True):
            order.append("second")

    waiting = threading.Thread(target=second)
    with locked(tmp_path):
        assert in_use(tmp_path)
        with pytest.raises(InputError, match="another process is writing here"), locked(tmp_path):
            pass
        waiting.start()
        waiting.join(0.2)
        order.append("first")
    waiting.join(10)
    assert order == ["first", "second"]
    assert not in_use(tmp_path)


def test_a_directory_that_is_replaced_is_no_longer_locked(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with locked(run):
        assert still_locked(run)
        run.rename(tmp_path / "away")  # so that its inode is not used again
        run.mkdir()
        (run / ".lock").touch()
        assert not still_locked(run)
        shutil.rmtree(run)
        assert still_locked(run), "nobody else has locked it"
    assert still_locked(run)


@pytest.mark.parametrize("installed", [True, False])
def test_without_locks_a_warning_is_given(
    installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    if installed:
        monkeypatch.setattr("filelock.lock_descriptor", refuse)
    else:
        monkeypatch.setitem(sys.modules, "filelock", None)
    with locked(tmp_path):
        assert not in_use(tmp_path)
    assert f"{tmp_path}: locks are not available here" in caplog.text
