"""Predictions written to a file as they come, in the format that its ending names; never are all of them in memory."""

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

from plogicnet.graph import IntArray, KnowledgeGraph, iri, quoted
from plogicnet.inference.fitted import Judged
from plogicnet.inference.held_out import HELD_OUT
from plogicnet.support.errors import InputError
from plogicnet.support.files import replacing

KINDS = {
    ".tsv": "tsv",
    ".txt": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".nt": "nt",
}
ROW_GROUP = 1 << 16
"""Pieces are gathered until they make so many rows, which are a row group of a Parquet file; no more wait."""
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
"""A further column where many queries were asked: the number of the query, the first being 1."""
Write = Callable[[pa.Table], None]


def kind_of(file: Path, named: str | None = None) -> str:
    """The format of a file: the one that is named, else by its ending.

    Example:
        >>> kind_of(Path("missing.tsv.gz")), kind_of(Path("missing.dat"), "parquet")
        ('tsv', 'parquet')
    """
    zipped = file.suffix.lower() == ".gz"
    ending = Path(file.stem).suffix.lower() if zipped else file.suffix.lower()
    kinds = sorted(set(KINDS.values()))
    if named is not None and named not in kinds:
        raise InputError(f"format: {named!r} is not allowed; one of {', '.join(kinds)}")
    kind = named or KINDS.get(ending)
    if kind is None:
        known = ", ".join(KINDS)
        raise InputError(f"{file}: its ending names no format; end it with one of {known}, or say --format")
    if kind == "parquet" and zipped:
        raise InputError(f"{file}: Parquet is compressed within; leave .gz out")
    return kind


def table_of(judged: Judged, graph: KnowledgeGraph, query: IntArray | None = None) -> pa.Table:
    """Judged triples in names, as an Arrow table with the columns of the commands' JSON."""
    columns = _triple(graph, judged.triples) | {
        "probability": judged.probability,
        "q": pa.array(judged.q, from_pandas=True),
        "p_w": judged.p_w,
        "known": judged.known,
        "in_hidden": judged.in_hidden,
        "held_out": pa.array(HELD_OUT, pa.string()).take(pa.array(judged.held_out)),
    }
    return pa.table(columns | ({} if query is None else {QUERY: query + 1}))


def triples_of(graph: KnowledgeGraph, triples: IntArray) -> pa.Table:
    """Bare triples in names.

    Example:
        >>> graph = KnowledgeGraph.from_names([("anna", "knows", "ben")])
        >>> triples_of(graph, graph.train).to_pylist()
        [{'head': 'anna', 'relation': 'knows', 'tail': 'ben'}]
    """
    return pa.table(_triple(graph, triples))


def _triple(graph: KnowledgeGraph, triples: IntArray) -> dict[str, Any]:
    entities, relations = _names(graph.entities.names), _names(graph.relations.names)
    parts = zip(TRIPLE, (entities, relations, entities), triples.T, strict=True)
    return {c: pa.DictionaryArray.from_arrays(pa.array(part.astype(np.int32)), names) for c, names, part in parts}


@lru_cache(maxsize=4)
def _names(names: tuple[str, ...]) -> pa.Array:
    return pa.array(names, pa.string())


@contextmanager
def writing(file: Path, columns: Sequence[str] = tuple(COLUMNS), kind: str | None = None) -> Iterator[Write]:
    """Opens a file for tables with these columns, which are written as they come; it appears when it is complete."""
    made = WRITERS[kind_of(file, kind)]
    schema = pa.schema([(c, COLUMNS.get(c, pa.int64())) for c in columns])
    try:
        with replacing(file) as beside, made(beside, schema) as write:

            def write_rows(table: pa.Table) -> None:
                for at in range(0, len(table), ROW_GROUP):  # names are spelt for no more rows at a time
                    write(table.slice(at, ROW_GROUP).select(list(columns)))

            yield write_rows
    except OSError as error:
        raise InputError(f"{file}: cannot be written: {error.strerror or error}") from None


@contextmanager
def _parquet(file: Path, schema: pa.Schema) -> Iterator[Write]:
    """Small tables are gathered until they make a row group."""
    gathered: list[pa.Table] = []
    with pq.ParquetWriter(file, _plain(schema), compression="zstd") as writer:

        def flush(rows: int) -> None:
            table = pa.concat_tables(gathered)
            writer.write_table(table.slice(0, rows))
            gathered[:] = [table.slice(rows)]

        def write(table: pa.Table) -> None:
            gathered.append(table.cast(_plain(schema)))
            if sum(map(len, gathered)) >= ROW_GROUP:
                flush(ROW_GROUP)  # just so many, so that the file is the same in whatever pieces its rows come

        yield write
        if sum(map(len, gathered)):
            flush(ROW_GROUP)


@contextmanager
def _csv(file: Path, schema: pa.Schema) -> Iterator[Write]:
    with _stream(file) as stream, csv.CSVWriter(stream, _plain(schema)) as writer:
        yield lambda table: writer.write_table(table.cast(_plain(schema)))


def _plain(schema: pa.Schema) -> pa.Schema:
    """The same with names written out."""
    return pa.schema([(field.name, pa.string() if field.type == NAME else field.type) for field in schema])


@contextmanager
def _tsv(file: Path, schema: pa.Schema) -> Iterator[Write]:
    """With a header; names are quoted where they must be, as in a graph's own files."""
    with _stream(file) as stream:
        stream.write(("\t".join(schema.names) + "\n").encode())
        yield lambda table: _write_lines(stream, _cells(table, quoted, ""), "\t")


@contextmanager
def _jsonl(file: Path, schema: pa.Schema) -> Iterator[Write]:
    starts = [f"{'{' if i == 0 else ', '}{json.dumps(name)}: " for i, name in enumerate(schema.names)]

    def write(table: pa.Table) -> None:
        pairs = zip(starts, _cells(table, partial(json.dumps, ensure_ascii=False), "null"), strict=True)
        _write_lines(stream, [*chain.from_iterable(pairs), "}"])

    with _stream(file) as stream:
        yield write


@contextmanager
def _nt(file: Path, schema: pa.Schema) -> Iterator[Write]:  # noqa: ARG001
    """Bare triples: N-Triples have no place for probabilities."""
    with _stream(file) as stream:
        yield lambda table: _write_lines(stream, [*_cells(table.select(list(TRIPLE)), iri, ""), "."], " ")


def _stream(file: Path) -> Any:
    return pa.output_stream(str(file), compression="gzip" if file.suffix.lower() == ".gz" else None)


def _cells(table: pa.Table, spell: Callable[[str], str], missing: str) -> list[pa.Array]:
    """Each column as text; of the names, only those that occur are spelt."""
    return [_text(pa.concat_arrays(table[c].chunks), spell, missing) for c in table.column_names]


def _text(column: Any, spell: Callable[[str], str], missing: str) -> pa.Array:
    text = column.cast(pa.string())
    if column.type in (NAME, pa.string()):
        words = text.dictionary_encode()
        text = pa.array([spell(word) for word in words.dictionary.to_pylist()], pa.string()).take(words.indices)
    return text.fill_null(missing)


def _write_lines(stream: Any, cells: Sequence[Any], separator: str = "") -> None:
    joined = pc.binary_join_element_wise(*(pa.scalar(c) if isinstance(c, str) else c for c in cells), separator)
    stream.write(("\n".join(joined.to_pylist()) + "\n").encode())


WRITERS = {"tsv": _tsv, "csv": _csv, "jsonl": _jsonl, "parquet": _parquet, "nt": _nt}


def write_array(array: "np.ndarray[Any, Any]", file: Path) -> None:
    """Writes an .npy file."""
    with replacing(file) as beside, beside.open("wb") as out:
        np.save(out, array, allow_pickle=False)


def write_vectors(vectors: "np.ndarray[Any, Any]", names: Sequence[str], file: Path) -> None:
    """Writes a TSV file with a name and its vector on each line."""
    with replacing(file) as beside, _stream(beside) as out:
        for start in range(0, len(vectors), 4096):
            part = vectors[start : start + 4096]
            spelt = pa.array([quoted(name) for name in names[start : start + len(part)]])
            _write_lines(out, [spelt, *(pa.array(column).cast(pa.string()) for column in part.T)], "\t")
