"""Whole files or none: everything the program writes is written beside its place and renamed into it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    r"""Gives a path beside `path` to write to; on success it takes `path`'s place in one step.

    Example:
        >>> with replacing(Path("rules.tsv")) as beside:
        ...     beside.write_text("pattern\trule\n")  # doctest: +SKIP
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield beside
        with beside.open("rb") as written:
            os.fsync(written.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    r"""Writes a UTF-8 text file, whole or not at all.

    Example:
        >>> write_text(Path("entities.tsv"), "0\tanna\n")  # doctest: +SKIP
    """
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8", newline="\n")
