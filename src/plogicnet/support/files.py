"""Atomic writes, checksums and directory locks."""

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
LOCK_FILE = ".lock"
LOCK_TIMEOUT_SECONDS = 0.2
"""How long to retry before a lock counts as taken. `is_locked` in another process takes the lock for a moment."""
LOCK_INODES: dict[Path, int] = {}
"""The inode of the lock file of each directory that this process has locked."""


def require_file(path: Path, expected: str) -> None:
    """Raise InputError unless a path is a regular file. Pipes and devices can be endless and cannot be read twice.

    Example:
        >>> require_file(Path("/"), "a rule file")
        Traceback (most recent call last):
        plogicnet.support.errors.InputError: /: expected a rule file, found a directory
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:  # for example a name that is too long or contains a NUL
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        reason = "no such file" if missing else f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise InputError(f"{str(path)[:200]}: {reason}") from None
    if stat.S_ISDIR(mode):
        raise InputError(f"{path}: expected {expected}, found a directory")
    if not stat.S_ISREG(mode):
        raise InputError(f"{path}: expected {expected}, found a pipe or a device. Save its content to a file first.")


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    r"""Yield a temporary path to write to. If the block succeeds, the temporary file replaces `path` atomically.

    The temporary file has its own directory, so that additional files that a library writes are removed as well.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, atomic_write(Path(folder, "rules.tsv")) as temporary:
        ...     _ = temporary.write_text("pattern\trule\n")
    """
    directory = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        directory.mkdir(exist_ok=True)
        temporary = directory / path.name
        yield temporary
        temporary.chmod(directory.stat().st_mode & 0o666)  # the permissions of the umask, whatever a library set
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
        _sync(path.parent)  # otherwise a power failure can undo the replacement
    except Exception as error:
        text = re.search(r"\b(?:os error|errno) (\d+)", str(error), re.IGNORECASE)  # some errors have no `errno`
        code = getattr(error, "errno", None) or (text and int(text[1]))
        if not code or (isinstance(error, OSError) and str(directory) not in str(error.filename or directory)):
            raise  # the error is about another file, or is not a system error
        raise OSError(code, os.strerror(code), str(path)) from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _sync(directory: Path) -> None:
    if sys.platform == "win32":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot sync a directory
            raise
    finally:
        os.close(descriptor)


def checksum(file: Path) -> str:
    """Return the SHA-256 of a file, or an empty string if the file is missing or the disk fails to read it.

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


def remove_partial_files(directory: Path) -> None:
    """Remove incomplete files that a killed process left in a directory. The caller must hold its lock.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     Path(folder, ".rules.tsv.17.part").mkdir()
        ...     remove_partial_files(Path(folder))
        ...     list(Path(folder).iterdir())
        []
    """
    for part in list(directory.rglob(".*.part")):
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def lock_directory(directory: Path, wait: bool = False) -> Iterator[None]:
    """Lock a directory for writing. If another process has locked it, wait (`wait`) or raise InputError.

    If the file system does not support locks, log a warning and continue.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, lock_directory(Path(folder)):
        ...     still_locked(Path(folder))
        True
    """
    with (directory / LOCK_FILE).open("a") as lock:
        path, deadline = directory.resolve(), time.monotonic() + LOCK_TIMEOUT_SECONDS
        while (acquired := _acquire(lock.fileno(), wait)) is False:
            if time.monotonic() > deadline:
                raise InputError(
                    f"{directory}: another process is writing here. Wait until it is done, or use another directory."
                )
            time.sleep(0.05)
        if acquired is None:
            log.warning("%s: file locks are not available. Make sure that no other process writes here.", directory)
        LOCK_INODES[path] = os.fstat(lock.fileno()).st_ino
        try:
            yield
        finally:
            del LOCK_INODES[path]


def still_locked(directory: Path) -> bool:
    """Return False if this process locked a directory that has since been replaced by another one.

    Example:
        >>> still_locked(Path("runs/family"))
        True
    """
    inode, lock = LOCK_INODES.get(directory.resolve()), directory / LOCK_FILE
    return (
        inode is None or not lock.exists() or lock.stat().st_ino == inode
    )  # a missing lock file does not mean that the directory was replaced


def is_locked(directory: Path) -> bool:
    """Return whether a process holds the lock of a directory.

    Example:
        >>> is_locked(Path("nowhere"))
        False
    """
    with suppress(OSError):
        if (directory / LOCK_FILE).is_file():  # opening a pipe would block
            with (directory / LOCK_FILE).open("rb") as lock:
                deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS  # another reader can hold it for a moment
                while (acquired := _acquire(lock.fileno(), wait=False)) is False and time.monotonic() < deadline:
                    time.sleep(0.05)
                return acquired is False
    return False


def _acquire(descriptor: int, wait: bool) -> bool | None:
    """Lock an open file until it is closed. Return False if it is already locked, None if locks are not supported."""
    try:
        from filelock import lock_descriptor

        return lock_descriptor(descriptor, blocking=wait)
    except (ImportError, OSError):  # for example on network file systems
        return None


def write_text(path: Path, text: str) -> None:
    r"""Write a UTF-8 text file atomically.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_text(Path(folder, "entities.tsv"), "0\tanna\n")
    """
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
