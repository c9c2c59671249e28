"""Whole files or none: everything the program writes is written beside its place and renamed into it."""

import errno
import hashlib
import logging
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from plogicnet.support.errors import InputError

log = logging.getLogger(__name__)
LOCK = ".lock"
PATIENCE = 0.2
"""Seconds until a locked directory is refused: `in_use` holds the lock for a moment."""
LOCKED: dict[Path, int] = {}
"""The directories that this process has locked, with the inode of each lock file."""


def require_file(path: Path, what: str) -> None:
    """An error unless a path is a file: a pipe may never end, a device never does, and neither can be read twice.

    Example:
        >>> require_file(Path("/"), "a file of rules")
        Traceback (most recent call last):
        plogicnet.support.errors.InputError: /: a directory where a file of rules is meant
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:  # a name too long, or with a NUL in it
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        reason = "no such file" if missing else f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise InputError(f"{str(path)[:200]}: {reason}") from None
    if stat.S_ISDIR(mode):
        raise InputError(f"{path}: a directory where {what} is meant")
    if not stat.S_ISREG(mode):
        raise InputError(f"{path}: a pipe or a device where {what} is meant; save what it gives as a file first")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    r"""Gives a path beside `path` to write to; on success it takes `path`'s place in one step.

    It stands in a directory of its own, so that what a library writes beside it is never taken for something else.

    Example:
        >>> with replacing(Path("rules.tsv")) as beside:
        ...     beside.write_text("pattern\trule\n")  # doctest: +SKIP
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.mkdir(exist_ok=True)
        beside = part / path.name
        yield beside
        beside.chmod(part.stat().st_mode & 0o666)  # who may read it is for the person to say, not for a library
        with beside.open("rb") as written:
            os.fsync(written.fileno())
        beside.replace(path)
        _sync(path.parent)  # or a power cut may take the new name back
    except Exception as error:
        text = re.search(r"\b(?:os error|errno) (\d+)", str(error), re.IGNORECASE)  # all that some libraries give
        reason = getattr(error, "errno", None) or (text and int(text[1]))
        if not reason or (isinstance(error, OSError) and str(part) not in str(error.filename or part)):
            raise  # of another file, or no fault of the system's
        raise OSError(reason, os.strerror(reason), str(path)) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _sync(directory: Path) -> None:
    if sys.platform == "win32":
        return
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot, and need not
            raise
    finally:
        os.close(opened)


def checksum(file: Path) -> str:
    """The SHA-256 of a file's content; nothing where there is no such file, or the disk cannot give it.

    Example:
        >>> checksum(Path("nowhere"))
        ''
    """
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EIO):
            raise
        return ""


def clear_parts(directory: Path) -> None:
    """Removes what a killed process left half written; only for one that holds the lock.

    Example:
        >>> clear_parts(Path("runs/family"))
    """
    for part in list(directory.rglob(".*.part")):
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def locked(directory: Path, wait: bool = False) -> Iterator[None]:
    """Locks a directory against a second writer, which waits or gets an InputError; without locks, only warns.

    Example:
        >>> with locked(Path("runs/family")):  # doctest: +SKIP
        ...     ...
    """
    with (directory / LOCK).open("a") as lock:
        place, end = directory.resolve(), time.monotonic() + PATIENCE
        while (taken := _take(lock.fileno(), wait)) is False:
            if time.monotonic() > end:
                raise InputError(f"{directory}: another process is writing here; wait for it, or name another")
            time.sleep(0.05)
        if taken is None:
            log.warning("%s: locks are not available here; make sure that nothing else writes to it", directory)
        LOCKED[place] = os.fstat(lock.fileno()).st_ino
        try:
            yield
        finally:
            del LOCKED[place]


def still_locked(directory: Path) -> bool:
    """False where this process locked a directory that has been replaced by another since.

    Example:
        >>> still_locked(Path("runs/family"))
        True
    """
    inode, lock = LOCKED.get(directory.resolve()), directory / LOCK
    return inode is None or not lock.exists() or lock.stat().st_ino == inode  # without a file nobody has locked it


def in_use(directory: Path) -> bool:
    """Whether a process holds the lock of a directory.

    Example:
        >>> in_use(Path("nowhere"))
        False
    """
    with suppress(OSError):
        if (directory / LOCK).is_file():  # opening a pipe would block
            with (directory / LOCK).open("rb") as lock:
                end = time.monotonic() + PATIENCE  # another reader may hold it for a moment
                while (taken := _take(lock.fileno(), wait=False)) is False and time.monotonic() < end:
                    time.sleep(0.05)
                return taken is False
    return False


def _take(descriptor: int, wait: bool) -> bool | None:
    """Locks an open file until it is closed; False where another holds the lock, None where there are no locks."""
    try:
        from filelock import lock_descriptor

        return lock_descriptor(descriptor, blocking=wait)
    except (ImportError, OSError):  # some network file systems have no locks
        return None


def write_text(path: Path, text: str) -> None:
    r"""Writes a UTF-8 text file, whole or not at all.

    Example:
        >>> write_text(Path("entities.tsv"), "0\tanna\n")  # doctest: +SKIP
    """
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8", newline="\n")
