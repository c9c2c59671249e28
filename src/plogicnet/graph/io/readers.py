"""Files of triples as tables of names: TSV, CSV, JSON lines, Parquet, N-Triples, Turtle, data frames; also gzipped."""

import csv as plain_csv
import itertools
import json
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from plogicnet.graph.io.unpacking import (
    BLOCK,
    decoded_lines,
    most_bytes,
    open_bytes,
    open_text,
    read_parquet,
    short_lines,
    too_large,
)
from plogicnet.graph.triples import IntArray
from plogicnet.support.errors import InputError, many, shown
from plogicnet.support.files import require_file

COLUMNS = ("head", "relation", "tail")
ORDERS = {"hrt": COLUMNS, "htr": ("head", "tail", "relation")}
ENDS = (
    *(("head", "tail"), ("h", "t"), ("subject", "object"), ("s", "o"), ("source", "target"), ("src", "dst")),
    *(("from", "to"), ("start", "end"), ("head_id", "tail_id"), (":start_id", ":end_id")),
)
BETWEEN = (
    *("relation", "rel", "r", "predicate", "p", "edge", "relationship", "relation_id", "property"),
    *("type", ":type"),
)
"""The names that the columns of a table go by: both ends of one kind, and what is between; the first that is there."""
NAMED = {word for ends in ENDS for word in ends} | set(BETWEEN)
TEXT = (".txt", ".tsv", ".csv")
JSON_LINES = (".jsonl", ".ndjson")
PARQUET = (".parquet", ".pq")
RDF = {".nt": "N_TRIPLES", ".ttl": "TURTLE"}
SUFFIXES = (*TEXT, *(s + ".gz" for s in TEXT), *PARQUET, *(s + gz for s in (*RDF, *JSON_LINES) for gz in ("", ".gz")))
DELIMITERS = {".csv": ",;\t", ".tsv": "\t"}
PLAIN_NAME = "urn:plogicnet:"
"""In RDF, the prefix of a percent-encoded name that is not an IRI."""
AT_ONCE = 1 << 16
"""Rows that Python reads are put away, each name once, after so many."""
STRINGS = pa.dictionary(pa.int32(), pa.string())
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a character, which only JSON can hold."""


@dataclass(frozen=True)
class Rows:
    """Triples in names, as dictionary-encoded columns head, relation, tail.

    Attributes:
        table: the columns.
        literals: how many of them were skipped.
        named: whether the file names its columns.
    """

    table: pa.Table
    literals: int = 0
    named: bool = True


def suffix(file: Path) -> str:
    """A file's ending, .gz set aside.

    Example:
        >>> suffix(Path("train.tsv.gz"))
        '.tsv'
    """
    return Path(file.stem).suffix.lower() if file.suffix.lower() == ".gz" else file.suffix.lower()


def is_header(cells: Sequence[str]) -> bool:
    """Whether three cells are the names of the three columns.

    Example:
        >>> is_header(["Subject", "Predicate", "Object"])
        True
    """
    return len(cells) == len(COLUMNS) and _family([cell.strip().lower() for cell in cells]) is not None


def read_rows(file: Path, order: str = "hrt", with_gaps: bool = False) -> Rows:
    """Reads a file of triples, in the format that its ending names; text in any other case.

    The order of the columns, hrt or htr, is for files without a header line. With gaps, names may be missing; they are
    empty then.
    """
    if order not in ORDERS:
        raise InputError(f"columns: {order!r} is not allowed; one of {', '.join(ORDERS)}")
    require_file(file, "a file of triples")
    try:
        if suffix(file) in PARQUET:
            return Rows(_named_columns(read_parquet(file), str(file), with_gaps))
        if suffix(file) in JSON_LINES:
            return Rows(_in_columns(file, _json_rows(file, with_gaps)))
        if suffix(file) in RDF:
            return _read_rdf(file)
        return _read_text(file, order, with_gaps)
    except (OSError, EOFError, zlib.error, plain_csv.Error, UnicodeDecodeError, pa.ArrowException) as error:
        if isinstance(error.__cause__ or error.__context__, InputError):  # from the stream that Arrow read
            raise (error.__cause__ or error.__context__) from None  # type: ignore[misc]
        raise InputError(f"{file}: {_in_words(file, error)}") from None


def rows_of(data: Any, what: str = "data") -> Rows:
    """Triples from memory: a pandas or Polars DataFrame, an Arrow table, an (n, 3) array, or any rows of three names.

    A frame's columns are found by name (head, relation, tail, or h, r, t, or subject, predicate, object), else the
    first three are taken in this order.

    Example:
        >>> rows_of([("anna", "knows", "ben")]).table.num_rows
        1
    """
    if hasattr(data, "__arrow_c_stream__"):  # an Arrow table has it, too
        return Rows(_named_columns(pa.table(data), what))
    array = np.asarray(data if isinstance(data, np.ndarray) else list(data), dtype=object)
    if array.size and (array.ndim != 2 or array.shape[1] != 3):
        raise InputError(f"{what}: rows of three names are meant, found an array of shape {array.shape}")
    columns = [[str(name) for name in column] for column in array.reshape(-1, 3).T]
    return Rows(_checked(pa.table(columns, COLUMNS), what))


def numbers_of(table: pa.Table, names: Sequence[pa.Array], unknown: int = -1) -> IntArray:
    """The place of each name among the names of its column; `unknown` where it is none of them."""
    numbers = np.empty((table.num_rows, 3), dtype=np.int64)
    for column, known in enumerate(names):
        start = 0
        for chunk in table[COLUMNS[column]].chunks:
            number_of = pc.index_in(chunk.dictionary, known).fill_null(unknown).to_numpy(zero_copy_only=False)
            numbers[start : start + len(chunk), column] = number_of[chunk.indices.to_numpy()]
            start += len(chunk)
    return numbers


def _family(names: Collection[str]) -> tuple[str, str, str] | None:
    """The names that head, relation and tail go by among the names of columns."""
    ends = next((pair for pair in ENDS if pair[0] in names and pair[1] in names), None)
    relation = next((word for word in BETWEEN if word in names), None)
    return (ends[0], relation, ends[1]) if ends and relation else None


def _named_columns(table: pa.Table, what: str, with_gaps: bool = False) -> pa.Table:
    """The three columns of a table, found by their names, else by place."""
    given = [name.lower() for name in table.column_names]
    family = _family(given)
    # by place only where no name says otherwise
    if family is None and (len(given) != len(COLUMNS) or any(name in NAMED for name in given)):
        found = ", ".join(name[:40] for name in table.column_names[:10]) or "none"
        meant = "head, relation, tail (or h, r, t; subject, predicate, object)"
        raise InputError(f"{what}: no columns {meant}; found {found}")
    double = next((name for name in family or () if given.count(name) > 1), None)
    if double:
        raise InputError(f"{what}: two columns are called {double}; which one is meant?")
    columns = {c: table.column(given.index(family[i]) if family else i) for i, c in enumerate(COLUMNS)}
    for name, column in columns.items():
        if column.null_count and not with_gaps:
            row = pc.index(column.is_null(), True).as_py()
            raise InputError(f"{what}, row {row + 1}: the {name} is missing")
        decoded = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        columns[name] = decoded.cast(pa.string()).fill_null("")
    return _checked(pa.table(columns), what, with_gaps)


def _checked(table: pa.Table, what: str, with_gaps: bool = False) -> pa.Table:
    """The table dictionary-encoded, without an empty name unless gaps are meant."""
    columns = {c: table[c] for c in COLUMNS}
    encoded = {c: v if v.type == STRINGS else v.cast(pa.string()).dictionary_encode() for c, v in columns.items()}
    for c in COLUMNS:
        row = _row_of_empty(encoded[c])
        if row is not None and not with_gaps:
            raise InputError(f"{what}, row {row + 1}: the {c} is an empty name")
    return pa.table(encoded)


def _row_of_empty(column: pa.ChunkedArray) -> int | None:
    """The first row with an empty name."""
    start = 0
    for chunk in column.chunks:
        code = pc.index(chunk.dictionary, "").as_py()
        if code >= 0:
            return start + int(pc.index(chunk.indices, pa.scalar(code, chunk.indices.type)).as_py())
        start += len(chunk)
    return None


def _in_columns(file: Path, rows: Iterable[Sequence[str]]) -> pa.Table:
    """Rows that Python reads one after another, put away in columns before they take much more than the file does."""
    chunks: list[list[pa.Array]] = []
    some: list[Sequence[str]] = []
    held = characters = 0
    for row in itertools.chain(rows, [None]):
        if row is not None:
            some.append(row)
            characters += sum(map(len, row))
        if row is None or len(some) == AT_ONCE or characters > BLOCK:
            names = zip(*some, strict=True) if some else [()] * len(COLUMNS)
            chunks.append([pa.array(column, pa.string()).dictionary_encode() for column in names])
            held += sum(column.nbytes for column in chunks[-1])
            if held > most_bytes(file):
                raise too_large(file)
            some, characters = [], 0
    return pa.table([pa.chunked_array(column, STRINGS) for column in zip(*chunks, strict=True)], COLUMNS)


def _json_rows(file: Path, with_gaps: bool) -> Iterator[list[str]]:
    """One object a line; other keys than head, relation and tail are passed over."""
    for number, line in enumerate(decoded_lines(file), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else error
            raise InputError(f"{file}, line {number}: no JSON: {reason}") from None
        names = {str(key).lower(): value for key, value in row.items()} if isinstance(row, dict) else {}
        family = _family(names) or COLUMNS
        values: list[Any] = [names.get(name) for name in family]
        if with_gaps and isinstance(row, dict):
            values = ["" if value is None else value for value in values]
        for column, value in zip(COLUMNS, values, strict=True):
            if not isinstance(value, str) or not (value or with_gaps):
                raise InputError(f"{file}, line {number}: expected an object with a name as {column!r}: {line[:100]!r}")
            if LONE_SURROGATE.search(value):
                raise InputError(f"{file}, line {number}: half a character (a lone surrogate) in {shown(value)}")
        yield values


def _read_text(file: Path, order: str, with_gaps: bool) -> Rows:
    """Delimited text: quoting is honoured in CSV, and in TSV where the whole file keeps to it."""
    delimiter, header, skip = _sniff(file)
    names = header or ORDERS[order]
    table = None
    try:
        table = _parse(file, delimiter, names, skip)
    except pa.ArrowInvalid:
        if delimiter != "\t":
            _diagnose(file, delimiter, names, skip > 0, with_gaps)
    # in TSV a quote may be part of a name; in CSV a name over several lines may be a quote that was never closed
    if delimiter == "\t" and (_has(table, '"') if table is not None else _holds_quotes(file)):
        table = _parse_quoted(file, delimiter, names, skip > 0) or table
    elif delimiter != "\t" and table is not None and _has(table, "\n"):
        table = _parse_quoted(file, delimiter, names, skip > 0)
    if table is None or (not with_gaps and any(_row_of_empty(table[c]) is not None for c in COLUMNS)):
        _diagnose(file, delimiter, names, skip > 0, with_gaps)
    return Rows(table.select(COLUMNS), named=skip > 0)


def place_of(file: Path, row: int) -> str:
    """Where a row of a file that was read stands, for messages; rows count from 0.

    Example:
        >>> place_of(Path("queries.parquet"), 0)
        'queries.parquet, row 1'
    """
    if suffix(file) in (*PARQUET, *RDF):
        return f"{file}, row {row + 1}"
    lines: Iterator[int] = (number for number, line in enumerate(decoded_lines(file), 1) if line.strip())
    if suffix(file) not in JSON_LINES:
        delimiter, header, skip = _sniff(file)
        literal = delimiter == "\t" and _parse_quoted(file, delimiter, header or COLUMNS, skip > 0) is None
        quoting: Any = plain_csv.QUOTE_NONE if literal else plain_csv.QUOTE_MINIMAL
        reader = plain_csv.reader(decoded_lines(file), delimiter=delimiter, quoting=quoting)
        lines = itertools.islice((reader.line_num for cells in reader if cells), int(skip > 0), None)
    try:
        return f"{file}, line {next(itertools.islice(lines, row, None))}"
    except (plain_csv.Error, StopIteration):  # lines that end as only Arrow takes for an end
        return f"{file}, row {row + 1}"


def _parse(file: Path, delimiter: str, names: Sequence[str], skip: int) -> pa.Table:
    quoted = delimiter != "\t"
    most = most_bytes(file)
    batches: list[pa.RecordBatch] = []
    types = dict.fromkeys(COLUMNS, STRINGS)
    read = csv.ReadOptions(column_names=list(names), skip_rows=skip, block_size=BLOCK)
    parse = csv.ParseOptions(delimiter=delimiter, quote_char='"' if quoted else False, newlines_in_values=quoted)
    convert = csv.ConvertOptions(column_types=types, strings_can_be_null=False, include_columns=COLUMNS)
    try:
        # Arrow unpacks for itself: a thread of its that reads ahead must never be left inside a stream of Python's,
        # or the program cannot end
        source = pa.input_stream(str(file), compression="gzip" if file.suffix.lower() == ".gz" else None)
        with csv.open_csv(source, read, parse, convert) as reader:
            for batch in reader:
                batches.append(batch)
                if (len(batches) - 1) * BLOCK > most:  # each is of one block, the last of less
                    raise too_large(file)
            return pa.Table.from_batches(batches, reader.schema)
    except pa.ArrowInvalid as error:
        if "Empty CSV file" in str(error):
            return _in_columns(file, ())
        raise


def _has(table: pa.Table, text: str) -> bool:
    return any(pc.any(pc.match_substring(ch.dictionary, text)).as_py() for c in COLUMNS for ch in table[c].chunks)


def _holds_quotes(file: Path) -> bool:
    with open_bytes(file) as stream:
        return any(b'"' in block for block in iter(lambda: stream.read(BLOCK), b""))


def _parse_quoted(file: Path, delimiter: str, names: Sequence[str], skip: bool) -> pa.Table | None:
    """Text in which quotes are quotes all through; None where some are not."""
    places = [names.index(c) for c in COLUMNS]
    with open_text(file) as text:
        lines = short_lines(file, lambda: text.readline(BLOCK + 1))
        reader = plain_csv.reader(lines, delimiter=delimiter, strict=True)
        rows = itertools.islice((row for row in reader if row), int(skip), None)
        try:
            return _in_columns(file, ([row[at] for at in places] for row in rows if _is_whole(row, names)))
        except (plain_csv.Error, UnicodeDecodeError):
            return None


def _is_whole(row: Sequence[str], names: Sequence[str]) -> bool:
    if len(row) != len(names):
        raise plain_csv.Error("a row of another length")
    return True


def _sniff(file: Path) -> tuple[str, tuple[str, ...], int]:
    """The delimiter; and where the first line is a header, what its columns are and how many lines end with it."""
    with open_text(file, errors="replace") as lines:
        numbered = enumerate(iter(lambda: lines.readline(BLOCK), ""), 1)
        number, first = next(((n, line) for n, line in numbered if line.strip()), (0, ""))
    candidates = DELIMITERS.get(suffix(file), "\t" if "\t" in first else ",; ")
    for delimiter in candidates:
        cells = next(plain_csv.reader([first], delimiter=delimiter), [])
        names = _header(cells)
        if len(cells) == 3 or names:
            literal = delimiter == "\t" and '"' in first
            return (delimiter, names, number) if names and not literal else (delimiter, (), 0)
    return next((d for d in candidates if d in first), candidates[0]), (), 0


def _header(cells: Sequence[str]) -> tuple[str, ...]:
    """What the columns of a header are: head, relation, tail, or further ones, by number; nothing if it is none."""
    words = [cell.strip().lower() for cell in cells]
    family = _family(words)
    if family is None or len(set(words)) < len(words):
        return ()
    meant = dict(zip(family, COLUMNS, strict=True))
    return tuple(meant.get(word, str(number)) for number, word in enumerate(words))


def _diagnose(file: Path, delimiter: str, names: Sequence[str], skip: bool, with_gaps: bool = False) -> NoReturn:
    """Reads again, slowly, and raises an InputError with the line that is wrong and how."""
    reader = _raw_rows(file, delimiter)
    try:
        for row in reader:
            place = f"{file}, line {reader.line_num}"
            if not row or skip:
                skip = skip and not row  # the first row that is one is the header
                continue
            if len(row) != len(names):
                kind = {"\t": "tabs", " ": "spaces"}.get(delimiter, repr(delimiter))
                meant = "three are meant" if len(names) == 3 else f"the header has {len(names)}"
                found = f"{many(len(row), 'column')} where {meant} (head, relation, tail, separated by {kind})"
                text = delimiter.join(row)
                raise InputError(f"{place}: {found}: {text[:100]!r}{'…' if len(text) > 100 else ''}")
            for name, cell in zip(names, row, strict=True):
                if not cell and name in COLUMNS and not with_gaps:
                    raise InputError(f"{place}: the {name} is an empty name")
    except plain_csv.Error as error:
        reason = "a quote is opened and never closed" if "unexpected end" in str(error) else str(error)
        raise InputError(f"{file}, line {reader.line_num}: {reason}") from None
    raise InputError(f"{file}: cannot be read as triples separated by {delimiter!r}")


def _raw_rows(file: Path, delimiter: str) -> Any:
    """The cells of each row, and by `line_num` its line; in TSV a quote is a character like any other."""
    quoting: Any = plain_csv.QUOTE_NONE if delimiter == "\t" else plain_csv.QUOTE_MINIMAL
    return plain_csv.reader(decoded_lines(file), delimiter=delimiter, quoting=quoting, strict=delimiter != "\t")


def _read_rdf(file: Path) -> Rows:
    """N-Triples or Turtle: IRIs and blank nodes are names; literals are not entities and are skipped."""
    try:
        import pyoxigraph as ox
    except ImportError:
        raise InputError(f"{file}: RDF needs pyoxigraph; install it with: pip install 'plogicnet[rdf]'") from None
    literals = 0

    def rows(stream: IO[bytes]) -> Iterator[list[str]]:
        nonlocal literals
        for quad in ox.parse(stream, format=getattr(ox.RdfFormat, RDF[suffix(file)])):
            if isinstance(quad.object, ox.Literal):
                literals += 1
                continue
            yield [_rdf_name(term) for term in (quad.subject, quad.predicate, quad.object)]

    with open_bytes(file) as stream:
        try:
            table = _in_columns(file, rows(stream))
        except SyntaxError as error:
            place = f", line {error.lineno}, column {error.offset}" if error.lineno else ""
            raise InputError(f"{file}{place}: {error.msg}") from None
    return Rows(_checked(table, str(file)), literals)


def _rdf_name(term: Any) -> str:
    value = getattr(term, "value", None)
    name = str(term) if value is None or str(term).startswith("_:") else str(value)
    return unquote(name.removeprefix(PLAIN_NAME)) if name.startswith(PLAIN_NAME) else name


def _in_words(file: Path, error: Exception) -> str:
    """What a library's error means, in words."""
    text = str(error)
    if isinstance(error, EOFError) or "Truncated compressed" in text or "end-of-stream marker" in text:
        return "the gzip file is truncated; fetch or copy it again"
    if file.suffix.lower() == ".gz" and ("header check" in text or "Not a gzipped" in text or "zlib" in text):
        return "not a whole gzip file, in spite of its name; fetch or copy it again"
    return text.splitlines()[0] if text else type(error).__name__
