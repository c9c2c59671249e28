"""Atomic writes of files and directories, checksums and locks.

All files that can be opened again are written here: a file or a directory is complete and synced to the disk before it
gets its name, so that a kill or a power failure leaves the old state or the new one.
"""

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
"""The inode of each lock file that this process has locked."""


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
    directory = _part(path)
    with _errors_about(path, directory):
        try:
            directory.mkdir(exist_ok=True)
            temporary = directory / path.name
            yield temporary
            temporary.chmod(directory.stat().st_mode & 0o666)  # the permissions of the umask, whatever a library set
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)  # otherwise a power failure can undo the replacement
        finally:
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Yield a temporary directory to fill. If the block succeeds, its files become read-only and it becomes `path`.

    `path` must not exist.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, atomic_directory(Path(folder, "0001")) as temporary:
        ...     write_text(temporary / "rules.tsv", "pattern")
    """
    directory = _part(path)
    with _errors_about(path, directory):
        try:
            shutil.rmtree(directory, ignore_errors=True)  # of a killed process with the same number
            directory.mkdir()
            yield directory
            for file in directory.iterdir():
                file.chmod(file.stat().st_mode & 0o444)
                sync(file)
            sync(directory)
            directory.replace(path)
            sync(path.parent)
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def _part(path: Path) -> Path:
    """Return the name under which a file or a directory is written or removed."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")


@contextmanager
def _errors_about(path: Path, directory: Path) -> Iterator[None]:
    """Convert system errors about files in the temporary `directory` into errors about `path` or a file in it."""
    try:
        yield
    except Exception as error:
        text = re.search(r"\b(?:os error|errno) (\d+)", str(error), re.IGNORECASE)  # some errors have no `errno`
        code = getattr(error, "errno", None) or (text and int(text[1]))
        name = str(getattr(error, "filename", None) or directory)
        if not code or (isinstance(error, OSError) and str(directory) not in name):
            raise  # the error is about another file, or is not a system error
        inside = name.removeprefix(str(directory)).removeprefix(f"{os.sep}{path.name}")
        raise OSError(code, os.strerror(code), f"{path}{inside}") from error


def make_directory(path: Path) -> None:
    """Create a directory and its parents, and sync them, so that a power failure cannot remove what it will contain.

    Example:
        >>> make_directory(Path())
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        sync(folder.parent)
    path.mkdir(exist_ok=True)  # raises an error if it is a file


def remove_directory(path: Path) -> None:
    """Remove a directory with its content. It loses its name first, so that no reader finds a part of it.

    Example:
        >>> remove_directory(Path("nowhere"))
    """
    part = _part(path)
    shutil.rmtree(part, ignore_errors=True)  # of a killed process with the same number
    with suppress(FileNotFoundError):
        path.replace(part)
        sync(path.parent)  # otherwise a power failure could undo the renaming, but not the removal of files
    shutil.rmtree(part, ignore_errors=True)


def link(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it if the file system has no hard links.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_text(Path(folder, "a"), "text")
        ...     link(Path(folder, "a"), Path(folder, "b"))
        ...     Path(folder, "b").read_text()
        'text'
    """
    try:
        target.hardlink_to(source)
    except OSError:
        with atomic_write(target) as temporary:
            shutil.copyfile(source, temporary)


def sync(path: Path) -> None:
    """Write the data of a file, or the names in a directory, to the disk.

    Example:
        >>> sync(Path())
    """
    if sys.platform == "win32" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot sync a directory
            raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(descriptor)


def checksum(file: Path) -> str:
    """Return the SHA-256 of a file.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_text(Path(folder, "rules.tsv"), "")
        ...     checksum(Path(folder, "rules.tsv"))[:8]
        'e3b0c442'
    """
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


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
def lock_directory(directory: Path, file: str = LOCK_FILE, wait: bool = False) -> Iterator[None]:
    """Lock a directory for writing. If another process has locked it, wait (`wait`) or raise InputError.

    `file` is the lock file. If the file system does not support locks, log a warning and continue.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, lock_directory(Path(folder)):
        ...     still_locked(Path(folder))
        True
    """
    with (directory / file).open("a") as lock:
        path, deadline = (directory / file).resolve(), time.monotonic() + LOCK_TIMEOUT_SECONDS
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


def still_locked(directory: Path, file: str = LOCK_FILE) -> bool:
    """Return False if this process locked a directory that has since been replaced by another one.

    Example:
        >>> still_locked(Path("runs/family"))
        True
    """
    lock = directory / file
    inode = LOCK_INODES.get(lock.resolve())
    return (
        inode is None or not lock.exists() or lock.stat().st_ino == inode
    )  # a missing lock file does not mean that the directory was replaced


def is_locked(directory: Path, file: str = LOCK_FILE) -> bool:
    """Return whether a process holds the lock of a directory.

    Example:
        >>> is_locked(Path("nowhere"))
        False
    """
    with suppress(OSError):
        if (directory / file).is_file():  # opening a pipe would block
            with (directory / file).open("rb") as lock:
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
