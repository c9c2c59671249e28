"""Files opened so that what is packed in them cannot fill a memory: streams of text, gzip, Parquet."""

import gzip
import io
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, AnyStr

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from plogicnet.errors import InputError, shown

BLOCK = 1 << 22
"""Text is read so many bytes at a time; no line may be longer."""
EXPANSION = "PLOGICNET_EXPANSION"
"""The environment variable for how many times its own size a compressed file may hold."""
USUAL_EXPANSION, ALWAYS_BYTES, ALWAYS_ROWS = 100, 1 << 26, 1 << 22
"""Text of triples is packed to a tenth, seldom to a hundredth; what makes a thousand is made to fill a memory."""
ROWS_AT_ONCE = 1 << 16
"""Rows of Parquet that must be read in pieces."""


def read_parquet(file: Path) -> pa.Table:
    """Reads a Parquet file, unless it is made to fill a memory: a few bytes can stand for any number of rows.

    Example:
        >>> read_parquet(Path("graph.parquet"))  # doctest: +SKIP
    """
    about, size, most = pq.read_metadata(file), file.stat().st_size, most_bytes(file)
    groups = [about.row_group(i) for i in range(about.num_row_groups)]
    rows, held = sum(group.num_rows for group in groups), sum(group.total_byte_size for group in groups)
    if rows > _expansion() * size + ALWAYS_ROWS or held > most:
        raise too_large(file)
    flat = [field for field in about.schema.to_arrow_schema() if not pa.types.is_nested(field.type)]
    names = [field.name for field in flat]
    if len(set(names)) < len(names):
        raise InputError(f"{file}: two columns are called {shown(max(names, key=names.count))}; which one is meant?")
    texts = [field.name for field in flat if pa.types.is_string(field.type) or pa.types.is_binary(field.type)]
    try:
        # each text is held once, however many rows have it, until it is known what all of them would take
        table = pq.read_table(file, columns=names, read_dictionary=texts, use_threads=False)
    except OSError:  # this encoding cannot be read so; what cannot be read at all is told again
        longest = max((group.total_byte_size for group in groups), default=0)
        table = _read_in_pieces(file, names, 1 + most // max(longest, 1), most)
    if sum(_decoded_bytes(column) for column in table.columns) > most:
        raise too_large(file)
    table.validate(full=True)  # text that is no UTF-8 would be found when it is used
    return table


def _read_in_pieces(file: Path, names: Sequence[str], rows: int, most: int) -> pa.Table:
    """Parquet whose texts are written as what differs from the one before: so few rows at a time that all fit in."""
    with pq.ParquetFile(file) as source:
        batches, held = [], 0
        for batch in source.iter_batches(min(rows, ROWS_AT_ONCE), columns=names, use_threads=False):
            batches.append(batch)
            held += batch.nbytes
            if held > most:
                raise too_large(file)
        return pa.Table.from_batches(batches, source.schema_arrow.empty_table().select(names).schema).combine_chunks()


def _decoded_bytes(column: pa.ChunkedArray) -> int:
    """What a column takes when each of its rows has a text of its own."""
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    chunks = (pc.sum(pc.take(pc.binary_length(ch.dictionary), ch.indices)).as_py() for ch in column.chunks)
    return sum(total or 0 for total in chunks)


def _expansion() -> int:
    text = os.environ.get(EXPANSION, str(USUAL_EXPANSION))
    if not text.isdecimal() or not 0 < len(text) < 10:
        raise InputError(f"{EXPANSION}={text}: a whole number is meant, as {USUAL_EXPANSION}")
    return int(text)


def most_bytes(file: Path) -> int:
    """How much a file may hold when it is unpacked; any plain file may hold itself.

    Example:
        >>> most_bytes(Path(__file__)) > ALWAYS_BYTES
        True
    """
    return _expansion() * file.stat().st_size + ALWAYS_BYTES


def too_large(file: Path) -> InputError:
    """What is said of a file that holds more than it may.

    Example:
        >>> str(too_large(Path("graph.tsv.gz")))[:62]
        'graph.tsv.gz: it holds more than 100 times its own size, as a '
    """
    expansion = _expansion()
    return InputError(
        f"{file}: it holds more than {expansion} times its own size, as a file does that is made to fill the memory;"
        f" if you trust it, raise the limit: {EXPANSION}={10 * expansion}"
    )


class _Bounded(io.RawIOBase):
    """A gzip file that ends in an error where it holds far more than a graph packed so small can."""

    def __init__(self, file: Path) -> None:
        self.file, self.stream = file, gzip.GzipFile(file)
        self.most, self.read_so_far = most_bytes(file), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self.stream.readinto(buffer)
        self.read_so_far += count
        if self.read_so_far > self.most:
            raise too_large(self.file)
        return count

    def close(self) -> None:
        self.stream.close()
        super().close()


def open_text(file: Path, errors: str = "strict") -> io.TextIOWrapper:
    """A file's text, with its line ends as they are.

    Example:
        >>> with open_text(Path(__file__)) as text:
        ...     text.read(3) == chr(34) * 3
        True
    """
    return io.TextIOWrapper(open_bytes(file), encoding="utf-8-sig", errors=errors, newline="")


def open_bytes(file: Path) -> IO[bytes]:
    """A file's bytes, unpacked where it is gzipped.

    Example:
        >>> open_bytes(Path("graph.tsv.gz"))  # doctest: +SKIP
    """
    return io.BufferedReader(_Bounded(file), BLOCK) if file.suffix.lower() == ".gz" else file.open("rb")


def short_lines(file: Path, read: Callable[[], AnyStr]) -> Iterator[AnyStr]:
    """The lines that are read, as long as none is longer than a block.

    Example:
        >>> list(short_lines(Path("graph.tsv"), iter(["a", "b", ""]).__next__))
        ['a', 'b']
    """
    for number, line in enumerate(iter(read, None), 1):
        if not line:
            return
        if len(line) > BLOCK:
            raise InputError(f"{file}, line {number}: longer than {BLOCK >> 20} MB; no triple is that long")
        yield line


def decoded_lines(file: Path) -> Iterator[str]:
    """A file's lines; an error that names the place where one is not UTF-8.

    Example:
        >>> next(decoded_lines(Path(__file__))).startswith(chr(34) * 3)
        True
    """
    with open_bytes(file) as stream:
        for number, line in enumerate(short_lines(file, lambda: stream.readline(BLOCK + 1)), 1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{file}, line {number}, column {error.start + 1}: not UTF-8 (byte {line[error.start]:#04x})"
                ) from None
