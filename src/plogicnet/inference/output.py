"""Functions that write predictions and vectors to files in several formats, in batches of bounded size."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from plogicnet.graph import IntArray, KnowledgeGraph, quote_tsv, to_iri
from plogicnet.inference.fitted import PredictionBatch
from plogicnet.inference.held_out import HELD_OUT
from plogicnet.support.errors import InputError
from plogicnet.support.files import atomic_write

FORMATS = {
    ".tsv": "tsv",
    ".txt": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".nt": "nt",
}
"""File formats by suffix."""
ROW_GROUP = 1 << 16
"""Rows per row group of a Parquet file, and maximum number of rows converted at once."""
NAME = pa.dictionary(pa.int32(), pa.string())
TRIPLE: dict[str, Any] = {"head": NAME, "relation": NAME, "tail": NAME}
COLUMNS: dict[str, Any] = {
    **TRIPLE,
    "probability": pa.float64(),
    "q": pa.float64(),
    "p_w": pa.float64(),
    "known": pa.bool_(),
    "in_hidden": pa.bool_(),
    "held_out": pa.string(),
}
QUERY = "query"
"""An additional column if there are several queries: the number of the query in its file, from 1."""
TableWriter = Callable[[pa.Table], None]


def resolve_format(file: Path, file_format: str | None = None) -> str:
    """Return the format of a file: `file_format`, or the format of the file's suffix if it is None.

    Example:
        >>> resolve_format(Path("missing.tsv.gz")), resolve_format(Path("missing.dat"), "parquet")
        ('tsv', 'parquet')
    """
    gzipped = file.suffix.lower() == ".gz"
    suffix = Path(file.stem).suffix.lower() if gzipped else file.suffix.lower()
    formats = sorted(set(FORMATS.values()))
    if file_format is not None and file_format not in formats:
        raise InputError(f"--format must be one of {', '.join(formats)}, got {file_format!r}")
    resolved = file_format or FORMATS.get(suffix)
    if resolved is None:
        suffixes = ", ".join(FORMATS)
        raise InputError(f"{file}: unknown file format. Use one of the suffixes {suffixes}, or --format.")
    if resolved == "parquet" and gzipped:
        raise InputError(f"{file}: Parquet files are compressed already. Remove .gz from the name.")
    return resolved


def prediction_table(batch: PredictionBatch, graph: KnowledgeGraph, query: IntArray | None = None) -> pa.Table:
    """Return predictions as an Arrow table with names and the columns of `COLUMNS`.

    With `query`, the index of each prediction's query, the table also has the column `QUERY`.
    """
    columns = _triple_columns(graph, batch.triples) | {
        "probability": batch.probability,
        "q": pa.array(batch.q, from_pandas=True),
        "p_w": batch.p_w,
        "known": batch.known,
        "in_hidden": batch.in_hidden,
        "held_out": pa.array(HELD_OUT, pa.string()).take(pa.array(batch.held_out)),
    }
    return pa.table(columns | ({} if query is None else {QUERY: query + 1}))


def triple_table(graph: KnowledgeGraph, triples: IntArray) -> pa.Table:
    """Return triples as an Arrow table with names.

    Example:
        >>> graph = KnowledgeGraph.from_names([("anna", "knows", "ben")])
        >>> triple_table(graph, graph.train).to_pylist()
        [{'head': 'anna', 'relation': 'knows', 'tail': 'ben'}]
    """
    return pa.table(_triple_columns(graph, triples))


def _triple_columns(graph: KnowledgeGraph, triples: IntArray) -> dict[str, Any]:
    entities, relations = _names(graph.entities.names), _names(graph.relations.names)
    columns = zip(TRIPLE, (entities, relations, entities), triples.T, strict=True)
    return {c: pa.DictionaryArray.from_arrays(pa.array(ids.astype(np.int32)), names) for c, names, ids in columns}


@lru_cache(maxsize=4)
def _names(names: tuple[str, ...]) -> pa.Array:
    return pa.array(names, pa.string())


@contextmanager
def open_table_writer(
    file: Path, columns: Sequence[str] = tuple(COLUMNS), file_format: str | None = None
) -> Iterator[TableWriter]:
    """Yield a function that appends tables with these columns to a new file. The file is written atomically."""
    writer = WRITERS[resolve_format(file, file_format)]
    schema = pa.schema([(c, COLUMNS.get(c, pa.int64())) for c in columns])
    try:
        with atomic_write(file) as temporary, writer(temporary, schema) as write:

            def write_rows(table: pa.Table) -> None:
                for start in range(0, len(table), ROW_GROUP):  # names as text take much memory
                    write(table.slice(start, ROW_GROUP).select(list(columns)))

            yield write_rows
    except OSError as error:
        raise InputError(f"{file}: cannot write the file: {error.strerror or error}") from None


@contextmanager
def _parquet(file: Path, schema: pa.Schema) -> Iterator[TableWriter]:
    """Write Parquet. Small tables are buffered until they fill a row group."""
    buffer: list[pa.Table] = []
    with pq.ParquetWriter(file, _plain(schema), compression="zstd") as writer:

        def flush(rows: int) -> None:
            table = pa.concat_tables(buffer)
            writer.write_table(table.slice(0, rows))
            buffer[:] = [table.slice(rows)]

        def write(table: pa.Table) -> None:
            buffer.append(table.cast(_plain(schema)))
            if sum(map(len, buffer)) >= ROW_GROUP:
                flush(ROW_GROUP)  # a fixed size, so that the file does not depend on the sizes of the tables

        yield write
        if sum(map(len, buffer)):
            flush(ROW_GROUP)


@contextmanager
def _csv(file: Path, schema: pa.Schema) -> Iterator[TableWriter]:
    with _stream(file) as stream, csv.CSVWriter(stream, _plain(schema)) as writer:
        yield lambda table: writer.write_table(table.cast(_plain(schema)))


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return the schema with names as plain strings."""
    return pa.schema([(field.name, pa.string() if field.type == NAME else field.type) for field in schema])


@contextmanager
def _tsv(file: Path, schema: pa.Schema) -> Iterator[TableWriter]:
    """Write TSV with a header. Names are quoted as in graph files."""
    with _stream(file) as stream:
        stream.write(("\t".join(schema.names) + "\n").encode())
        yield lambda table: _write_lines(stream, _cells(table, quote_tsv, ""), "\t")


@contextmanager
def _jsonl(file: Path, schema: pa.Schema) -> Iterator[TableWriter]:
    prefixes = [f"{'{' if i == 0 else ', '}{json.dumps(name)}: " for i, name in enumerate(schema.names)]

    def write(table: pa.Table) -> None:
        pairs = zip(prefixes, _cells(table, partial(json.dumps, ensure_ascii=False), "null"), strict=True)
        _write_lines(stream, [*chain.from_iterable(pairs), "}"])

    with _stream(file) as stream:
        yield write


@contextmanager
def _nt(file: Path, schema: pa.Schema) -> Iterator[TableWriter]:  # noqa: ARG001
    """Write N-Triples, without probabilities, which the format cannot store."""
    with _stream(file) as stream:
        yield lambda table: _write_lines(stream, [*_cells(table.select(list(TRIPLE)), to_iri, ""), "."], " ")


def _stream(file: Path) -> Any:
    return pa.output_stream(str(file), compression="gzip" if file.suffix.lower() == ".gz" else None)


def _cells(table: pa.Table, encode: Callable[[str], str], missing: str) -> list[pa.Array]:
    """Return each column as text. `encode` is called once per distinct name, and nulls become `missing`."""
    return [_text(pa.concat_arrays(table[c].chunks), encode, missing) for c in table.column_names]


def _text(column: Any, encode: Callable[[str], str], missing: str) -> pa.Array:
    text = column.cast(pa.string())
    if column.type in (NAME, pa.string()):
        distinct = text.dictionary_encode()
        text = pa.array([encode(name) for name in distinct.dictionary.to_pylist()], pa.string()).take(distinct.indices)
    return text.fill_null(missing)


def _write_lines(stream: Any, cells: Sequence[Any], separator: str = "") -> None:
    lines = pc.binary_join_element_wise(*(pa.scalar(c) if isinstance(c, str) else c for c in cells), separator)
    stream.write(("\n".join(lines.to_pylist()) + "\n").encode())


WRITERS = {"tsv": _tsv, "csv": _csv, "jsonl": _jsonl, "parquet": _parquet, "nt": _nt}


def write_array(array: "np.ndarray[Any, Any]", file: Path) -> None:
    """Write an array as an .npy file."""
    with atomic_write(file) as temporary, temporary.open("wb") as out:
        np.save(out, array, allow_pickle=False)


def write_vectors(vectors: "np.ndarray[Any, Any]", names: Sequence[str], file: Path) -> None:
    """Write a TSV file with a name and its vector on each line."""
    with atomic_write(file) as temporary, _stream(temporary) as out:
        for start in range(0, len(vectors), 4096):
            chunk = vectors[start : start + 4096]
            encoded = pa.array([quote_tsv(name) for name in names[start : start + len(chunk)]])
            _write_lines(out, [encoded, *(pa.array(column).cast(pa.string()) for column in chunk.T)], "\t")
