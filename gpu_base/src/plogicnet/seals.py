"""Files that tell whether they are as they were written, by checksums in them, and what damage is called."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from safetensors import SafetensorError

from plogicnet.errors import InputError
from plogicnet.files import checksum, write_text

SUMS = "sha256"
"""The key of checksums; runs of older versions have none, and open all the same."""
SUM_LINE = "# sha256 of the lines below: "
DAMAGE = (
    *(pa.ArrowException, SafetensorError, LookupError, AttributeError, TypeError, ValueError, ArithmeticError),
    RecursionError,
)
"""What reading a broken or hostile file makes libraries raise."""
PUT_BACK = "put the file back from a copy of the run, or train the run again"


class DamageError(InputError):
    """A file of a run is missing, or is not what was written.

    Example:
        >>> raise DamageError("runs/family/hidden.parquet is damaged")
        Traceback (most recent call last):
        plogicnet.seals.DamageError: runs/family/hidden.parquet is damaged
    """


@contextmanager
def damage_said(path: Path) -> Iterator[None]:
    """What a broken file makes libraries raise, as a message about the run.

    Example:
        >>> with damage_said(Path("runs/family")):
        ...     {}["lambda"]
        Traceback (most recent call last):
        plogicnet.errors.InputError: runs/family is damaged: KeyError: 'lambda'
    """
    try:
        yield
    except DAMAGE as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged: {type(error).__name__}: {error}") from None


def write_summed(file: Path, text: str) -> None:
    """Writes a text with its checksum in the first line, where no other file could change with it.

    Example:
        >>> write_summed(Path("config.yaml"), "seed: 0")  # doctest: +SKIP
    """
    write_text(file, f"{SUM_LINE}{_digest(text.encode())}\n{text}")


def read_summed(file: Path) -> tuple[str, bool | None]:
    """The text, and whether it is as it was written; None where it has no checksum.

    Example:
        >>> read_summed(Path("config.yaml"))  # doctest: +SKIP
    """
    first, _, text = file.read_text(encoding="utf-8").partition("\n")
    if not first.startswith(SUM_LINE):
        return f"{first}\n{text}", None
    return text, first == f"{SUM_LINE}{_digest(text.encode())}"


def write_sealed(file: Path, content: Mapping[str, object], names: Sequence[str]) -> None:
    """Writes a JSON file with the checksums of the files that it stands for, so many as there are, and with its own.

    Example:
        >>> write_sealed(Path("run.json"), {"format": 1}, ["graph.parquet"])  # doctest: +SKIP
    """
    sums = {name: checksum(file.parent / name) for name in names if (file.parent / name).is_file()}
    content = {**content, SUMS: sums}
    sums[file.name] = _digest(json.dumps(content).encode())
    write_text(file, json.dumps(content, indent=1) + "\n")


def read_sealed(file: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """What such a file holds, and the checksums; none in a run of an older version.

    Example:
        >>> read_sealed(Path("run.json"))  # doctest: +SKIP
    """
    content = read_json(file)
    if SUMS not in content:
        return content, {}
    sums = content[SUMS]
    if not isinstance(sums, dict) or sums.pop(file.name, None) != _digest(json.dumps(content).encode()):
        raise DamageError(f"{file} is damaged, or was edited by hand: it does not fit its own checksum; {PUT_BACK}")
    return {key: value for key, value in content.items() if key != SUMS}, sums


def require_whole(folder: Path, sums: Mapping[str, str], names: Sequence[str]) -> None:
    """An error where a file that has a checksum is missing or is another.

    Example:
        >>> require_whole(Path("nowhere"), {}, ["graph.parquet"])
    """
    for name in names:
        if name in sums and not (folder / name).is_file():
            raise DamageError(f"{folder} is damaged: its file {name} is missing; {PUT_BACK}")
        if name in sums and checksum(folder / name) != sums[name]:
            raise DamageError(
                f"{folder / name} is damaged, or was edited by hand (line ends that were converted are enough): it does"
                f" not fit its checksum; {PUT_BACK}"
            )


def read_json(file: Path) -> dict[str, Any]:
    """The object that a JSON file holds; an error that calls the file damaged where it holds none.

    Example:
        >>> read_json(Path("run.json"))  # doctest: +SKIP
    """
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DamageError(f"{file} is damaged: {error}; {PUT_BACK}") from None
    if not isinstance(content, dict):
        raise DamageError(f"{file} is damaged: expected a JSON object; {PUT_BACK}")
    return content


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
