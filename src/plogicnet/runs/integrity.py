"""Functions that read and write files with checksums, and errors for damaged files."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from safetensors import SafetensorError

from plogicnet.support.errors import InputError
from plogicnet.support.files import checksum, write_text

CHECKSUMS_KEY = "sha256"
"""The key of the checksums in a JSON file."""
CHECKSUM_PREFIX = "# sha256 of the lines below: "
"""The beginning of the first line of a text file with a checksum."""
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


def write_text_with_checksum(file: Path, text: str) -> None:
    """Write a text after a comment line with its checksum."""
    write_text(file, f"{CHECKSUM_PREFIX}{_digest(text)}\n{text}")


def read_text_with_checksum(file: Path, advice: str = RESTORE_ADVICE) -> str:
    """Return the content of a file written by `write_text_with_checksum`, including the line with the checksum.

    Raise DamageError with `advice` if the checksum does not match.
    """
    try:
        content = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DamageError(f"{file} is damaged: {error}. {RESTORE_ADVICE}") from None
    first, _, text = content.partition("\n")
    if first != f"{CHECKSUM_PREFIX}{_digest(text)}":
        raise DamageError(f"{file} is damaged or was edited: its checksum does not match. {advice}")
    return content


def write_json_with_checksums(file: Path, content: Mapping[str, object], names: Sequence[str]) -> None:
    """Write a JSON file with its own checksum, and with the checksums of the named files that exist next to it."""
    checksums = {name: checksum(file.parent / name) for name in names if (file.parent / name).is_file()}
    content = {**content, CHECKSUMS_KEY: checksums}
    checksums[file.name] = _digest(json.dumps(content))
    write_text(file, json.dumps(content, indent=1) + "\n")


def read_json_with_checksums(file: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the content of a file written by `write_json_with_checksums`, and the checksums of the other files."""
    content = read_json(file)
    checksums = content.get(CHECKSUMS_KEY)
    if not isinstance(checksums, dict) or checksums.pop(file.name, None) != _digest(json.dumps(content)):
        raise DamageError(f"{file} is damaged or was edited: its checksum does not match. {RESTORE_ADVICE}")
    del content[CHECKSUMS_KEY]
    return content, checksums


def verify_checksums(folder: Path, checksums: Mapping[str, str], names: Sequence[str]) -> None:
    """Raise DamageError if a file with a checksum is missing or does not match it.

    Example:
        >>> verify_checksums(Path("nowhere"), {}, ["graph.parquet"])  # no checksum, so nothing to verify
    """
    listed = [name for name in names if name in checksums]
    require_present(folder, listed)
    for name in listed:
        if checksum(folder / name) != checksums[name]:
            line_endings = " (converted line endings also change it)" if name.endswith(TEXT_SUFFIXES) else ""
            raise DamageError(
                f"{folder / name} is damaged or was edited: its checksum does not match{line_endings}. {RESTORE_ADVICE}"
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
