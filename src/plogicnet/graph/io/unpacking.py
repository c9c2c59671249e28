"""Opening text, gzip and Parquet files with protection against decompression bombs."""

import gzip
import io
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, AnyStr

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from plogicnet.support.errors import InputError, quote_name

BLOCK_BYTES = 1 << 22
"""The number of bytes to read at a time, and the maximum length of a line."""
EXPANSION_VARIABLE = "PLOGICNET_EXPANSION"
"""The environment variable for the maximum ratio of unpacked to compressed size."""
DEFAULT_EXPANSION, ALWAYS_ALLOWED_BYTES, ALWAYS_ALLOWED_ROWS = 100, 1 << 26, 1 << 22
"""The default of the maximum ratio, and the numbers of bytes and Parquet rows that are always allowed in addition.

Triples are usually compressed to a tenth and rarely to a hundredth of their size.
"""
CHUNK_ROWS = 1 << 16
"""The maximum number of Parquet rows to read at a time."""


def read_parquet(file: Path) -> pa.Table:
    """Read a Parquet file, or raise InputError if its content is too large for its size."""
    metadata, size, max_bytes = pq.read_metadata(file), file.stat().st_size, max_unpacked_bytes(file)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    n_rows, total_bytes = sum(group.num_rows for group in groups), sum(group.total_byte_size for group in groups)
    if n_rows > _expansion() * size + ALWAYS_ALLOWED_ROWS or total_bytes > max_bytes:
        raise too_large_error(file)
    flat = [field for field in metadata.schema.to_arrow_schema() if not pa.types.is_nested(field.type)]
    names = [field.name for field in flat]
    if len(set(names)) < len(names):
        raise InputError(
            f"{file}: two columns are named {quote_name(max(names, key=names.count))}. Rename one of them."
        )
    texts = [field.name for field in flat if pa.types.is_string(field.type) or pa.types.is_binary(field.type)]
    try:
        # the dictionary encoding keeps each distinct text once, until the decoded size is known
        table = pq.read_table(file, columns=names, read_dictionary=texts, use_threads=False)
    except OSError:  # an encoding that does not support this, or an invalid file, which raises again below
        largest = max((group.total_byte_size for group in groups), default=0)
        table = _read_in_chunks(file, names, 1 + max_bytes // max(largest, 1), max_bytes)
    if sum(_decoded_bytes(column) for column in table.columns) > max_bytes:
        raise too_large_error(file)
    table.validate(full=True)  # otherwise invalid UTF-8 would only raise on use
    return table


def _read_in_chunks(file: Path, names: Sequence[str], chunk_rows: int, max_bytes: int) -> pa.Table:
    """Read a Parquet file with delta-encoded texts in chunks. Raise InputError if the content has too many bytes."""
    with pq.ParquetFile(file) as source:
        batches, total_bytes = [], 0
        for batch in source.iter_batches(min(chunk_rows, CHUNK_ROWS), columns=names, use_threads=False):
            batches.append(batch)
            total_bytes += batch.nbytes
            if total_bytes > max_bytes:
                raise too_large_error(file)
        return pa.Table.from_batches(batches, source.schema_arrow.empty_table().select(names).schema).combine_chunks()


def _decoded_bytes(column: pa.ChunkedArray) -> int:
    """Return the size of a column without dictionary encoding."""
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    chunks = (pc.sum(pc.take(pc.binary_length(ch.dictionary), ch.indices)).as_py() for ch in column.chunks)
    return sum(total or 0 for total in chunks)


def _expansion() -> int:
    text = os.environ.get(EXPANSION_VARIABLE, str(DEFAULT_EXPANSION))
    if not text.isdecimal() or not 0 < len(text) < 10:
        raise InputError(
            f"the environment variable {EXPANSION_VARIABLE} must be an integer such as {DEFAULT_EXPANSION},"
            f" got {quote_name(text)}"
        )
    return int(text)


def max_unpacked_bytes(file: Path) -> int:
    """Return the maximum size of the unpacked content of a file.

    Example:
        >>> max_unpacked_bytes(Path(__file__)) > ALWAYS_ALLOWED_BYTES
        True
    """
    return _expansion() * file.stat().st_size + ALWAYS_ALLOWED_BYTES


def too_large_error(file: Path) -> InputError:
    """Return the error for a file with content that is too large for its size.

    Example:
        >>> str(too_large_error(Path("graph.tsv.gz")))[:58]
        'graph.tsv.gz: the content is more than 100 times larger th'
    """
    expansion = _expansion()
    return InputError(
        f"{file}: the content is more than {expansion} times larger than the file, as in a decompression bomb."
        f" If you trust the file, set the environment variable {EXPANSION_VARIABLE}={10 * expansion}."
    )


class _LimitedGzip(io.RawIOBase):
    """A gzip stream that raises InputError if its content is too large for the size of the file."""

    def __init__(self, file: Path) -> None:
        self.file, self.stream = file, gzip.GzipFile(file)
        self.max_bytes, self.read_so_far = max_unpacked_bytes(file), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self.stream.readinto(buffer)
        self.read_so_far += count
        if self.read_so_far > self.max_bytes:
            raise too_large_error(self.file)
        return count

    def close(self) -> None:
        self.stream.close()
        super().close()


def open_text(file: Path, errors: str = "strict") -> io.TextIOWrapper:
    """Open a file as text, without converting line ends.

    Example:
        >>> with open_text(Path(__file__)) as text:
        ...     text.read(3) == chr(34) * 3
        True
    """
    return io.TextIOWrapper(open_bytes(file), encoding="utf-8-sig", errors=errors, newline="")


def open_bytes(file: Path) -> IO[bytes]:
    """Open a file as bytes, unpacked if it is gzipped."""
    return io.BufferedReader(_LimitedGzip(file), BLOCK_BYTES) if file.suffix.lower() == ".gz" else file.open("rb")


def iter_lines(file: Path, read: Callable[[], AnyStr]) -> Iterator[AnyStr]:
    """Yield the lines that `read` returns. Raise InputError for a line longer than a block.

    Example:
        >>> list(iter_lines(Path("graph.tsv"), iter(["a", "b", ""]).__next__))
        ['a', 'b']
    """
    for number, line in enumerate(iter(read, None), 1):
        if not line:
            return
        if len(line) > BLOCK_BYTES:
            raise InputError(
                f"{file}, line {number}: the line is longer than {BLOCK_BYTES >> 20} MB, the maximum for a triple"
            )
        yield line


def iter_decoded_lines(file: Path) -> Iterator[str]:
    """Yield the lines of a file as text. Raise InputError with the location of invalid UTF-8.

    Example:
        >>> next(iter_decoded_lines(Path(__file__))).startswith(chr(34) * 3)
        True
    """
    with open_bytes(file) as stream:
        for number, line in enumerate(iter_lines(file, lambda: stream.readline(BLOCK_BYTES + 1)), 1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{file}, line {number}, column {error.start + 1}: not UTF-8 (byte {line[error.start]:#04x})"
                ) from None
