"""Manifests: the checksums of the files in a directory, and errors for missing or damaged files."""

import errno
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from safetensors import SafetensorError

from plogicnet.support.errors import InputError
from plogicnet.support.files import checksum, link, write_text
from plogicnet.version import VERSION

FORMAT = 1
"""The version of the run format. It is increased when older versions of the program could misread a run."""
MANIFEST_FILE = "manifest.json"
"""The format, the version of the program, and the checksums of the other files in a directory."""
CHECKSUMS_KEY = "sha256"
"""The key of the checksums in a manifest."""
DIGEST_KEY = "digest"
"""The key under which `read_manifest` returns the checksum of the manifest, which identifies the whole directory."""
DAMAGE_EXCEPTIONS = (
    *(pa.ArrowException, SafetensorError, LookupError, AttributeError, TypeError, ValueError, ArithmeticError),
    RecursionError,
)
"""The exceptions that libraries raise when they read a damaged or malicious file."""
TEXT_SUFFIXES = (".tsv", ".jsonl")
"""The suffixes of the text files of a run. Other programs can convert their line endings."""
RESTORE_ADVICE = "Restore the file from a copy of the run, or train the run again."


class DamageError(InputError):
    """Raised if a file of a run is missing or does not match its checksum.

    Example:
        >>> raise DamageError("runs/family/hidden.parquet is damaged")
        Traceback (most recent call last):
        plogicnet.runs.integrity.DamageError: runs/family/hidden.parquet is damaged
    """


class NewerFormatError(InputError):
    """Raised if a newer version of the program wrote a directory.

    Example:
        >>> raise NewerFormatError("runs/family/snapshots/0001/manifest.json has a newer format")
        Traceback (most recent call last):
        plogicnet.runs.integrity.NewerFormatError: runs/family/snapshots/0001/manifest.json has a newer format
    """


@contextmanager
def damage_as_input_error(path: Path) -> Iterator[None]:
    """Convert the exceptions that libraries raise for damaged files into an InputError about the run.

    Example:
        >>> with damage_as_input_error(Path("runs/family")):
        ...     {}["lambda"]
        Traceback (most recent call last):
        plogicnet.support.errors.InputError: runs/family is damaged: KeyError: 'lambda'
    """
    try:
        yield
    except InputError:
        raise
    except DAMAGE_EXCEPTIONS as error:
        raise InputError(f"{path} is damaged: {type(error).__name__}: {error}") from None


def write_manifest(folder: Path, content: Mapping[str, object], known: Mapping[str, str] | None = None) -> None:
    """Write the manifest of a directory: the format, `content`, and the checksums of all files, and of itself.

    Args:
        folder: the directory.
        content: further content of the manifest.
        known: checksums that need not be computed, by file name.
    """
    names = sorted(file.name for file in folder.iterdir() if file.is_file())
    checksums = {name: (known or {}).get(name) or checksum(folder / name) for name in names}
    manifest = {"format": FORMAT, "version": VERSION, **content, CHECKSUMS_KEY: checksums}
    checksums[MANIFEST_FILE] = _digest(json.dumps(manifest))
    write_text(folder / MANIFEST_FILE, json.dumps(manifest, indent=1) + "\n")


def read_manifest(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the content of a manifest, including its digest (`DIGEST_KEY`), and the checksums of the other files.

    Raise NewerFormatError if a newer version wrote it, then DamageError if it does not match its own checksum. The
    version is checked first, because a newer version can use other checksums.
    """
    file = folder / MANIFEST_FILE
    require_present(folder, [MANIFEST_FILE])
    manifest = read_json(file)
    number, version = manifest.get("format"), manifest.get("version")
    if type(number) is not int or number < 1:
        raise DamageError(f"{file} is damaged: the format number is missing or invalid. {RESTORE_ADVICE}")
    if number > FORMAT:
        is_valid = isinstance(version, str) and re.fullmatch(r"[\w.+!-]{1,40}", version)
        writer = f"plogicnet {version}" if is_valid else "an unknown version of plogicnet"
        raise NewerFormatError(
            f"{file} has a newer format, written by {writer}. This version ({VERSION}) reads"
            f" formats up to {FORMAT}. Update plogicnet."
        )
    checksums = manifest.get(CHECKSUMS_KEY)
    digest = checksums.pop(MANIFEST_FILE, None) if isinstance(checksums, dict) else None
    if not isinstance(checksums, dict) or digest != _digest(json.dumps(manifest)):
        raise DamageError(f"{file} is damaged or was edited: its checksum does not match. {RESTORE_ADVICE}")
    return manifest | {DIGEST_KEY: digest}, checksums


@dataclass(frozen=True)
class SavedFile:
    """A file that was written or verified, with its checksum."""

    path: Path
    checksum: str

    @property
    def is_intact(self) -> bool:
        """Whether the file still has this checksum. It has not if it is missing or the disk fails to read it."""
        try:
            return checksum(self.path) == self.checksum
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EIO):
                raise
            return False


def saved_files(folder: Path, names: Sequence[str]) -> dict[str, SavedFile]:
    """Return those of the named files that the manifest of a directory lists; none if the manifest is damaged.

    Example:
        >>> saved_files(Path("nowhere"), ["rules.tsv"])
        {}
    """
    try:
        checksums = read_manifest(folder)[1]
    except InputError:
        return {}
    return {name: SavedFile(folder / name, checksums[name]) for name in names if name in checksums}


def link_intact(folder: Path, files: Mapping[str, SavedFile]) -> dict[str, str]:
    """Link the files that are intact into a directory, by name. Return their checksums."""
    linked = {}
    for name, file in files.items():
        if file.is_intact:
            link(file.path, folder / name)
            linked[name] = file.checksum
    return linked


def verify_checksums(folder: Path, checksums: Mapping[str, str], advice: Mapping[str, str] | None = None) -> None:
    """Raise DamageError if a file with a checksum is missing or does not match it.

    Args:
        folder: the directory of the files.
        checksums: the expected checksums, by file name.
        advice: what to do if a file was edited, by file name.

    Example:
        >>> verify_checksums(Path("nowhere"), {})  # nothing to verify
    """
    require_present(folder, list(checksums))
    for name, expected in checksums.items():
        if not SavedFile(folder / name, expected).is_intact:
            line_endings = " (converted line endings also change it)" if name.endswith(TEXT_SUFFIXES) else ""
            raise DamageError(
                f"{folder / name} is damaged or was edited: its checksum does not match{line_endings}."
                f" {(advice or {}).get(name, RESTORE_ADVICE)}"
            )


def require_present(folder: Path, names: Sequence[str]) -> None:
    """Raise DamageError if a file is missing.

    Example:
        >>> require_present(Path("nowhere"), [])
    """
    for name in names:
        if not (folder / name).is_file():
            raise DamageError(f"{folder} is damaged: its file {name} is missing. {RESTORE_ADVICE}")


def read_json(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file, or raise DamageError if the file does not contain an object."""
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DamageError(f"{file} is damaged: {error}. {RESTORE_ADVICE}") from None
    if not isinstance(content, dict):
        raise DamageError(f"{file} is damaged: expected a JSON object. {RESTORE_ADVICE}")
    return content


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
