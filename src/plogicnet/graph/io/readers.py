"""Reading triples as tables of names: TSV, CSV, JSON lines, Parquet, N-Triples, Turtle (also gzipped), data frames."""

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
    BLOCK_BYTES,
    iter_decoded_lines,
    iter_lines,
    max_unpacked_bytes,
    open_bytes,
    open_text,
    read_parquet,
    too_large_error,
)
from plogicnet.graph.triples import IntArray
from plogicnet.support.errors import InputError, pluralize, quote_name
from plogicnet.support.files import require_file

COLUMNS = ("head", "relation", "tail")
ORDERS = {"hrt": COLUMNS, "htr": ("head", "tail", "relation")}
ENTITY_COLUMN_NAMES = (
    *(("head", "tail"), ("h", "t"), ("subject", "object"), ("s", "o"), ("source", "target"), ("src", "dst")),
    *(("from", "to"), ("start", "end"), ("head_id", "tail_id"), (":start_id", ":end_id")),
)
RELATION_COLUMN_NAMES = (
    *("relation", "rel", "r", "predicate", "p", "edge", "relationship", "relation_id", "property"),
    *("type", ":type"),
)
"""The accepted column names: pairs for head and tail, and names for the relation. The first match is used."""
KNOWN_COLUMN_NAMES = {name for pair in ENTITY_COLUMN_NAMES for name in pair} | set(RELATION_COLUMN_NAMES)
TEXT = (".txt", ".tsv", ".csv")
JSON_LINES = (".jsonl", ".ndjson")
PARQUET = (".parquet", ".pq")
RDF = {".nt": "N_TRIPLES", ".ttl": "TURTLE"}
SUFFIXES = (*TEXT, *(s + ".gz" for s in TEXT), *PARQUET, *(s + gz for s in (*RDF, *JSON_LINES) for gz in ("", ".gz")))
DELIMITERS = {".csv": ",;\t", ".tsv": "\t"}
PLAIN_NAME_PREFIX = "urn:plogicnet:"
"""The prefix in RDF files of names that are not IRIs. The rest of the name is percent-encoded."""
CHUNK_ROWS = 1 << 16
"""The number of rows to read in Python before they are converted to Arrow columns."""
STRINGS = pa.dictionary(pa.int32(), pa.string())
"""The Arrow type of the columns: dictionary-encoded strings."""
RDF_ERROR_LOCATION = re.compile(r"^Parser error (?:at|between) line \d+.*?: ")
"""The location at the beginning of an error message of the RDF parser."""
JSON_ERRORS = {
    "Expecting value": "expected a value",
    "Expecting property name enclosed in double quotes": "expected a property name in double quotes",
    "Expecting ':' delimiter": "expected ':'",
    "Expecting ',' delimiter": "expected ',' or the end of the object or list",
    "Extra data": "expected the end of the line after the object",
    "Unterminated string starting at": "the string that begins here is not closed",
    "Invalid control character at": "a control character in a string must be escaped",
    "Invalid \\escape": "unknown escape after a backslash",
    "Invalid \\uXXXX escape": "expected four hexadecimal digits after \\u",
}
"""The reasons why a line is not valid JSON, by the message of Python's parser."""
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, which JSON allows but UTF-8 does not."""


@dataclass(frozen=True)
class TripleTable:
    """Triples of names, as dictionary-encoded columns head, relation, tail.

    Attributes:
        table: the columns.
        n_literals: the number of triples that were skipped because their object is a literal.
        has_column_names: whether the source has column names.
    """

    table: pa.Table
    n_literals: int = 0
    has_column_names: bool = True


def suffix(file: Path) -> str:
    """Return the ending of a file name, ignoring .gz.

    Example:
        >>> suffix(Path("train.tsv.gz"))
        '.tsv'
    """
    return Path(file.stem).suffix.lower() if file.suffix.lower() == ".gz" else file.suffix.lower()


def is_header(cells: Sequence[str]) -> bool:
    """Return whether the cells of a line are three column names, in any order.

    Example:
        >>> is_header(["Subject", "Predicate", "Object"])
        True
    """
    return len(cells) == len(COLUMNS) and _match_column_names([cell.strip().lower() for cell in cells]) is not None


def read_triple_table(file: Path, order: str = "hrt", allow_missing: bool = False) -> TripleTable:
    """Read a file of triples in the format of its ending. Files with other endings are read as text.

    `order`, hrt or htr, is the order of the columns in files without a header. With `allow_missing`, missing names are
    read as empty strings.
    """
    if order not in ORDERS:
        raise InputError(f"columns must be one of {', '.join(ORDERS)}, got {order!r}")
    require_file(file, "a file of triples")
    try:
        if suffix(file) in PARQUET:
            return TripleTable(_select_columns(read_parquet(file), str(file), allow_missing))
        if suffix(file) in JSON_LINES:
            return TripleTable(_to_columns(file, _read_json_rows(file, allow_missing)))
        if suffix(file) in RDF:
            return _read_rdf(file)
        return _read_text(file, order, allow_missing)
    except (OSError, EOFError, zlib.error, plain_csv.Error, UnicodeDecodeError, pa.ArrowException) as error:
        if isinstance(error.__cause__ or error.__context__, InputError):  # raised by the stream that Arrow read
            raise (error.__cause__ or error.__context__) from None  # type: ignore[misc]
        raise InputError(f"{file}: {_describe_error(file, error)}") from None


def to_triple_table(data: Any, source: str = "data") -> TripleTable:
    """Convert a pandas or Polars DataFrame, an Arrow table, an (n, 3) array, or rows of three names.

    Columns are selected by name (for example head, relation, tail; h, r, t; or subject, predicate, object). If a table
    has three columns with other names, they are head, relation and tail in this order.

    Example:
        >>> to_triple_table([("anna", "knows", "ben")]).table.num_rows
        1
    """
    if hasattr(data, "__arrow_c_stream__"):  # also an Arrow table
        return TripleTable(_select_columns(pa.table(data), source))
    array = np.asarray(data if isinstance(data, np.ndarray) else list(data), dtype=object)
    if array.size and (array.ndim != 2 or array.shape[1] != 3):
        raise InputError(f"{source}: expected rows of three names, found an array of shape {array.shape}")
    columns = [[str(name) for name in column] for column in array.reshape(-1, 3).T]
    return TripleTable(_validate_names(pa.table(columns, COLUMNS), source))


def encode_names(table: pa.Table, names: Sequence[pa.Array], unknown: int = -1) -> IntArray:
    """Return the ids of all names as an (n, 3) array.

    The id of a name is its index in `names`, which has one array of names per column. Other names get the id `unknown`.
    """
    ids = np.empty((table.num_rows, 3), dtype=np.int64)
    for column, known in enumerate(names):
        start = 0
        for chunk in table[COLUMNS[column]].chunks:
            chunk_ids = pc.index_in(chunk.dictionary, known).fill_null(unknown).to_numpy(zero_copy_only=False)
            ids[start : start + len(chunk), column] = chunk_ids[chunk.indices.to_numpy()]
            start += len(chunk)
    return ids


def _match_column_names(names: Collection[str]) -> tuple[str, str, str] | None:
    """Return the names of the head, relation and tail columns, or None."""
    entities = next((pair for pair in ENTITY_COLUMN_NAMES if pair[0] in names and pair[1] in names), None)
    relation = next((name for name in RELATION_COLUMN_NAMES if name in names), None)
    return (entities[0], relation, entities[1]) if entities and relation else None


def _select_columns(table: pa.Table, source: str, allow_missing: bool = False) -> pa.Table:
    """Return the three columns of a table, selected by name or by position."""
    names = [name.lower() for name in table.column_names]
    matched = _match_column_names(names)
    # columns are selected by position only if none of them has a known name
    if matched is None and (len(names) != len(COLUMNS) or any(name in KNOWN_COLUMN_NAMES for name in names)):
        found = ", ".join(name[:40] for name in table.column_names[:10]) or "none"
        expected = "head, relation, tail (or h, r, t; subject, predicate, object)"
        raise InputError(f"{source}: expected columns {expected}, found {found}")
    duplicate = next((name for name in matched or () if names.count(name) > 1), None)
    if duplicate:
        raise InputError(f"{source}: two columns are named {duplicate}. Rename one of them.")
    columns = {c: table.column(names.index(matched[i]) if matched else i) for i, c in enumerate(COLUMNS)}
    for name, column in columns.items():
        if column.null_count and not allow_missing:
            row = pc.index(column.is_null(), True).as_py()
            raise InputError(f"{source}, row {row + 1}: the {name} is missing")
        decoded = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        columns[name] = decoded.cast(pa.string()).fill_null("")
    return _validate_names(pa.table(columns), source, allow_missing)


def _validate_names(table: pa.Table, source: str, allow_missing: bool = False) -> pa.Table:
    """Dictionary-encode the table, and raise InputError for an empty name unless names can be missing."""
    columns = {c: table[c] for c in COLUMNS}
    encoded = {c: v if v.type == STRINGS else v.cast(pa.string()).dictionary_encode() for c, v in columns.items()}
    for c in COLUMNS:
        row = _find_empty_name(encoded[c])
        if row is not None and not allow_missing:
            raise InputError(f"{source}, row {row + 1}: the {c} is empty")
    return pa.table(encoded)


def _find_empty_name(column: pa.ChunkedArray) -> int | None:
    """Return the first row with an empty name, or None."""
    start = 0
    for chunk in column.chunks:
        code = pc.index(chunk.dictionary, "").as_py()
        if code >= 0:
            return start + int(pc.index(chunk.indices, pa.scalar(code, chunk.indices.type)).as_py())
        start += len(chunk)
    return None


def _to_columns(file: Path, rows: Iterable[Sequence[str]]) -> pa.Table:
    """Convert rows to Arrow columns in chunks, which limits the memory for Python objects."""
    chunks: list[list[pa.Array]] = []
    pending: list[Sequence[str]] = []
    total_bytes = n_characters = 0
    for row in itertools.chain(rows, [None]):
        if row is not None:
            pending.append(row)
            n_characters += sum(map(len, row))
        if row is None or len(pending) == CHUNK_ROWS or n_characters > BLOCK_BYTES:
            names = zip(*pending, strict=True) if pending else [()] * len(COLUMNS)
            chunks.append([pa.array(column, pa.string()).dictionary_encode() for column in names])
            total_bytes += sum(column.nbytes for column in chunks[-1])
            if total_bytes > max_unpacked_bytes(file):
                raise too_large_error(file)
            pending, n_characters = [], 0
    return pa.table([pa.chunked_array(column, STRINGS) for column in zip(*chunks, strict=True)], COLUMNS)


def _read_json_rows(file: Path, allow_missing: bool) -> Iterator[list[str]]:
    """Yield the names of each JSON object, one per line. Other keys are ignored."""
    for number, line in enumerate(iter_decoded_lines(file), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{file}, line {number}{_describe_json_error(error, line)}") from None
        items = {str(key).lower(): value for key, value in row.items()} if isinstance(row, dict) else {}
        keys = _match_column_names(items) or COLUMNS
        values: list[Any] = [items.get(key) for key in keys]
        if allow_missing and isinstance(row, dict):
            values = ["" if value is None else value for value in values]
        for key, value in zip(keys, values, strict=True):
            if not isinstance(value, str) or not (value or allow_missing):
                expected = "expected a JSON object with strings for head, relation and tail"
                problem = "" if not isinstance(row, dict) else f", but {key} is {_describe_json_value(value)}"
                raise InputError(f"{file}, line {number}: {expected}{problem}: {line.strip()[:100]!r}")
            if LONE_SURROGATE.search(value):
                raise InputError(f"{file}, line {number}: lone surrogate (half of a character) in {quote_name(value)}")
        yield values


def _describe_json_error(error: Exception, line: str) -> str:
    """Return the column and the reason why a line is not valid JSON, to be appended to the line number."""
    if isinstance(error, json.JSONDecodeError):
        column = min(error.pos, len(line.rstrip("\r\n"))) + 1  # an error at the end can be after the line break
        reason = JSON_ERRORS.get(error.msg, error.msg[:1].lower() + error.msg[1:])
        return f", column {column}: invalid JSON: {reason}"
    return f": invalid JSON: {'nested too deeply' if isinstance(error, RecursionError) else 'a number is too long'}"


def _describe_json_value(value: object) -> str:
    if isinstance(value, str):
        return "empty"
    return "missing" if value is None else f"not a string ({json.dumps(value)[:40]})"


def _read_text(file: Path, order: str, allow_missing: bool) -> TripleTable:
    """Read delimited text. Quotes are interpreted in CSV, and in TSV if the whole file is quoted correctly."""
    delimiter, header, skip = _sniff(file)
    names = header or ORDERS[order]
    table = None
    try:
        table = _parse(file, delimiter, names, skip)
    except pa.ArrowInvalid:
        if delimiter != "\t":
            _raise_first_error(file, delimiter, names, skip > 0, allow_missing)
    # in TSV, a quote can be part of a name; in CSV, a name with line breaks can be due to an unclosed quote
    if delimiter == "\t" and (_contains_text(table, '"') if table is not None else _contains_quotes(file)):
        table = _parse_quoted(file, delimiter, names, skip > 0) or table
    elif delimiter != "\t" and table is not None and _contains_text(table, "\n"):
        table = _parse_quoted(file, delimiter, names, skip > 0)
    if table is None or (not allow_missing and any(_find_empty_name(table[c]) is not None for c in COLUMNS)):
        _raise_first_error(file, delimiter, names, skip > 0, allow_missing)
    return TripleTable(table.select(COLUMNS), has_column_names=skip > 0)


def row_location(file: Path, row: int) -> str:
    """Return the location of a row for messages, with a line number if possible. `row` is counted from 0.

    Example:
        >>> row_location(Path("queries.parquet"), 0)
        'queries.parquet, row 1'
    """
    if suffix(file) in (*PARQUET, *RDF):
        return f"{file}, row {row + 1}"
    lines: Iterator[int] = (number for number, line in enumerate(iter_decoded_lines(file), 1) if line.strip())
    if suffix(file) not in JSON_LINES:
        delimiter, header, skip = _sniff(file)
        literal = delimiter == "\t" and _parse_quoted(file, delimiter, header or COLUMNS, skip > 0) is None
        quoting: Any = plain_csv.QUOTE_NONE if literal else plain_csv.QUOTE_MINIMAL
        reader = plain_csv.reader(iter_decoded_lines(file), delimiter=delimiter, quoting=quoting)
        lines = itertools.islice((reader.line_num for cells in reader if cells), int(skip > 0), None)
    try:
        return f"{file}, line {next(itertools.islice(lines, row, None))}"
    except (plain_csv.Error, StopIteration):  # line ends that only Arrow recognises
        return f"{file}, row {row + 1}"


def _parse(file: Path, delimiter: str, names: Sequence[str], skip: int) -> pa.Table:
    quoted = delimiter != "\t"
    max_bytes = max_unpacked_bytes(file)
    batches: list[pa.RecordBatch] = []
    types = dict.fromkeys(COLUMNS, STRINGS)
    read = csv.ReadOptions(column_names=list(names), skip_rows=skip, block_size=BLOCK_BYTES)
    parse = csv.ParseOptions(delimiter=delimiter, quote_char='"' if quoted else False, newlines_in_values=quoted)
    convert = csv.ConvertOptions(column_types=types, strings_can_be_null=False, include_columns=COLUMNS)
    try:
        # Arrow must unpack the file itself: if its read-ahead thread were inside a Python stream, the program could
        # not exit
        source = pa.input_stream(str(file), compression="gzip" if file.suffix.lower() == ".gz" else None)
        with csv.open_csv(source, read, parse, convert) as reader:
            for batch in reader:
                batches.append(batch)
                if (len(batches) - 1) * BLOCK_BYTES > max_bytes:  # all batches but the last are one block
                    raise too_large_error(file)
            return pa.Table.from_batches(batches, reader.schema)
    except pa.ArrowInvalid as error:
        if "Empty CSV file" in str(error):
            return _to_columns(file, ())
        raise


def _contains_text(table: pa.Table, text: str) -> bool:
    return any(pc.any(pc.match_substring(ch.dictionary, text)).as_py() for c in COLUMNS for ch in table[c].chunks)


def _contains_quotes(file: Path) -> bool:
    with open_bytes(file) as stream:
        return any(b'"' in block for block in iter(lambda: stream.read(BLOCK_BYTES), b""))


def _parse_quoted(file: Path, delimiter: str, names: Sequence[str], skip: bool) -> pa.Table | None:
    """Parse text with quotes in Python, or return None if the quotes are not correct."""
    positions = [names.index(c) for c in COLUMNS]
    with open_text(file) as text:
        lines = iter_lines(file, lambda: text.readline(BLOCK_BYTES + 1))
        reader = plain_csv.reader(lines, delimiter=delimiter, strict=True)
        rows = itertools.islice((row for row in reader if row), int(skip), None)
        try:
            return _to_columns(
                file, ([row[position] for position in positions] for row in rows if _has_all_columns(row, names))
            )
        except (plain_csv.Error, UnicodeDecodeError):
            return None


def _has_all_columns(row: Sequence[str], names: Sequence[str]) -> bool:
    if len(row) != len(names):
        raise plain_csv.Error("wrong number of columns")
    return True


def _sniff(file: Path) -> tuple[str, tuple[str, ...], int]:
    """Return the delimiter, the columns of the header, and the number of lines to skip (() and 0 without a header)."""
    with open_text(file, errors="replace") as lines:
        numbered = enumerate(iter(lambda: lines.readline(BLOCK_BYTES), ""), 1)
        number, first = next(((n, line) for n, line in numbered if line.strip()), (0, ""))
    candidates = DELIMITERS.get(suffix(file), "\t" if "\t" in first else ",; ")
    for delimiter in candidates:
        try:
            cells = next(plain_csv.reader([first], delimiter=delimiter), [])
        except plain_csv.Error as error:
            raise InputError(f"{file}, line {number}: {_describe_csv_error(error)}") from None
        names = _parse_header(cells)
        if len(cells) == 3 or names:
            literal = delimiter == "\t" and '"' in first
            return (delimiter, names, number) if names and not literal else (delimiter, (), 0)
    return next((d for d in candidates if d in first), candidates[0]), (), 0


def _parse_header(cells: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a header, or () if the cells are not a header.

    The columns are called head, relation and tail. The other columns are called by their index.
    """
    names = [cell.strip().lower() for cell in cells]
    matched = _match_column_names(names)
    if matched is None or len(set(names)) < len(names):
        return ()
    columns = dict(zip(matched, COLUMNS, strict=True))
    return tuple(columns.get(name, str(index)) for index, name in enumerate(names))


def _raise_first_error(
    file: Path, delimiter: str, names: Sequence[str], skip: bool, allow_missing: bool = False
) -> NoReturn:
    """Read the file again, slowly, and raise InputError for the first invalid line."""
    reader = _raw_rows(file, delimiter)
    try:
        for row in reader:
            location = f"{file}, line {reader.line_num}"
            if not row or skip:
                skip = skip and not row  # the first row that is not blank is the header
                continue
            if len(row) != len(names):
                separator = {"\t": "tabs", " ": "spaces"}.get(delimiter, repr(delimiter))
                expected = "three columns" if len(names) == 3 else f"{len(names)} columns as in the header"
                problem = (
                    f"expected {expected} (head, relation, tail, separated by {separator}),"
                    f" found {pluralize(len(row), 'column')}"
                )
                text = delimiter.join(row)
                raise InputError(f"{location}: {problem}: {text[:100]!r}{'…' if len(text) > 100 else ''}")
            for name, cell in zip(names, row, strict=True):
                if not cell and name in COLUMNS and not allow_missing:
                    raise InputError(f"{location}: the {name} is empty")
    except plain_csv.Error as error:
        raise InputError(f"{file}, line {reader.line_num}: {_describe_csv_error(error)}") from None
    raise InputError(f"{file}: cannot read triples separated by {delimiter!r}")


def _describe_csv_error(error: plain_csv.Error) -> str:
    text = str(error)
    if "field limit" in text:
        limit = f"{plain_csv.field_size_limit():,}"
        return f"a column is longer than {limit} characters. Check whether the file is a table of triples."
    if "unexpected end" in text:
        return "a quote is not closed"
    if "expected after" in text:
        return "expected the end of the column after a closing quote. Write a quote in a name as two quotes."
    return "a line break in a column must be in quotes" if "new-line" in text else text


def _raw_rows(file: Path, delimiter: str) -> Any:
    """Return a reader of the cells of each row. In TSV, quotes are not interpreted."""
    quoting: Any = plain_csv.QUOTE_NONE if delimiter == "\t" else plain_csv.QUOTE_MINIMAL
    return plain_csv.reader(iter_decoded_lines(file), delimiter=delimiter, quoting=quoting, strict=delimiter != "\t")


def _read_rdf(file: Path) -> TripleTable:
    """Read N-Triples or Turtle. IRIs and blank nodes are names. Triples with literals are skipped."""
    try:
        import pyoxigraph as ox
    except ImportError:
        raise InputError(f"{file}: RDF requires pyoxigraph. Install it with: pip install 'plogicnet[rdf]'") from None
    n_literals = 0

    def rows(stream: IO[bytes]) -> Iterator[list[str]]:
        nonlocal n_literals
        for quad in ox.parse(stream, format=getattr(ox.RdfFormat, RDF[suffix(file)])):
            if isinstance(quad.object, ox.Literal):
                n_literals += 1
                continue
            yield [_rdf_name(term) for term in (quad.subject, quad.predicate, quad.object)]

    with open_bytes(file) as stream:
        try:
            table = _to_columns(file, rows(stream))
        except SyntaxError as error:
            raise InputError(f"{file}{_describe_rdf_error(error)}") from None
    return TripleTable(_validate_names(table, str(file)), n_literals)


def _describe_rdf_error(error: SyntaxError) -> str:
    """Return the location and the reason of a syntax error, to be appended to the file."""
    reason = RDF_ERROR_LOCATION.sub("", error.msg)
    reason = reason[:1].lower() + reason[1:]
    if not error.lineno or not error.offset:
        return f": {reason}"
    end = error.end_offset if error.end_lineno == error.lineno else None
    columns = f"columns {error.offset} to {end - 1}" if end and end > error.offset + 1 else f"column {error.offset}"
    return f", line {error.lineno}, {columns}: {reason}"


def _rdf_name(term: Any) -> str:
    value = getattr(term, "value", None)
    name = str(term) if value is None or str(term).startswith("_:") else str(value)
    return unquote(name.removeprefix(PLAIN_NAME_PREFIX)) if name.startswith(PLAIN_NAME_PREFIX) else name


def _describe_error(file: Path, error: Exception) -> str:
    """Describe an error that a library raised."""
    text = _describe_csv_error(error) if isinstance(error, plain_csv.Error) else str(error)
    if isinstance(error, EOFError) or "Truncated compressed" in text or "end-of-stream marker" in text:
        return "the gzip file is truncated. Download or copy it again."
    if file.suffix.lower() == ".gz" and ("header check" in text or "Not a gzipped" in text or "zlib" in text):
        return "not a complete gzip file, despite its name. Download or copy it again."
    return text.splitlines()[0] if text else type(error).__name__
