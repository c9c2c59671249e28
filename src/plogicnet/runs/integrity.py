"""Files with checksums, which show whether they are as they were written; and the errors for damaged ones."""

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

SUMS = "sha256"
"""The key of the checksums in a JSON file."""
SUM_LINE = "# sha256 of the lines below: "
DAMAGE = (
    *(pa.ArrowException, SafetensorError, LookupError, AttributeError, TypeError, ValueError, ArithmeticError),
    RecursionError,
)
"""What libraries raise when they read a broken or hostile file."""
PUT_BACK = "put the file back from a copy of the run, or train the run again"


class DamageError(InputError):
    """A file of a run is missing, or is not what was written.

    Example:
        >>> raise DamageError("runs/family/hidden.parquet is damaged")
        Traceback (most recent call last):
        plogicnet.runs.integrity.DamageError: runs/family/hidden.parquet is damaged
    """


@contextmanager
def damage_as_input_error(path: Path) -> Iterator[None]:
    """Turns what libraries raise for a broken file into an InputError about the run.

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
    except DAMAGE as error:
        raise InputError(f"{path} is damaged: {type(error).__name__}: {error}") from None


def write_summed(file: Path, text: str) -> None:
    """Writes a text below a comment with its checksum."""
    write_text(file, f"{SUM_LINE}{_digest(text)}\n{text}")


def read_summed(file: Path, advice: str = PUT_BACK) -> str:
    """Reads what `write_summed` wrote, the comment included; a DamageError where it is not as it was written."""
    try:
        content = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DamageError(f"{file} is damaged: {error}; {PUT_BACK}") from None
    first, _, text = content.partition("\n")
    if first != f"{SUM_LINE}{_digest(text)}":
        raise DamageError(f"{file} is damaged, or was edited by hand: its checksum does not match; {advice}")
    return content


def write_sealed(file: Path, content: Mapping[str, object], names: Sequence[str]) -> None:
    """Writes a JSON file with its own checksum and those of files beside it, as far as they exist."""
    sums = {name: checksum(file.parent / name) for name in names if (file.parent / name).is_file()}
    content = {**content, SUMS: sums}
    sums[file.name] = _digest(json.dumps(content))
    write_text(file, json.dumps(content, indent=1) + "\n")


def read_sealed(file: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Reads what `write_sealed` wrote: the content, and the checksums of the other files."""
    content = read_json(file)
    sums = content.get(SUMS)
    if not isinstance(sums, dict) or sums.pop(file.name, None) != _digest(json.dumps(content)):
        raise DamageError(f"{file} is damaged, or was edited by hand: its checksum does not match; {PUT_BACK}")
    del content[SUMS]
    return content, sums


def require_whole(folder: Path, sums: Mapping[str, str], names: Sequence[str]) -> None:
    """Raises a DamageError where a file that has a checksum is missing or does not match it.

    Example:
        >>> require_whole(Path("nowhere"), {}, ["graph.parquet"])
    """
    summed = [name for name in names if name in sums]
    require_present(folder, summed)
    for name in summed:
        if checksum(folder / name) != sums[name]:
            raise DamageError(
                f"{folder / name} is damaged, or was edited by hand (converted line ends are enough): its checksum does"
                f" not match; {PUT_BACK}"
            )


def require_present(folder: Path, names: Sequence[str]) -> None:
    """Raises a DamageError where a file is missing.

    Example:
        >>> require_present(Path("nowhere"), [])
    """
    for name in names:
        if not (folder / name).is_file():
            raise DamageError(f"{folder} is damaged: its file {name} is missing; {PUT_BACK}")


def read_json(file: Path) -> dict[str, Any]:
    """Reads the object that a JSON file holds; a DamageError where it holds none."""
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DamageError(f"{file} is damaged: {error}; {PUT_BACK}") from None
    if not isinstance(content, dict):
        raise DamageError(f"{file} is damaged: expected a JSON object; {PUT_BACK}")
    return content


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
