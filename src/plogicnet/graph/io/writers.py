"""Writing graphs as TSV, CSV, Parquet or N-Triples. Reading the files returns the same names."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from plogicnet.graph.io.readers import COLUMNS, PLAIN_NAME_PREFIX, SUFFIXES, is_header
from plogicnet.graph.knowledge_graph import SPLITS, KnowledgeGraph
from plogicnet.graph.triples import IntArray
from plogicnet.support.errors import InputError
from plogicnet.support.files import atomic_write

CHUNK_ROWS = 1 << 20


def write_graph(graph: KnowledgeGraph, directory: Path, file_format: str = "tsv") -> list[Path]:
    """Write the splits that are not empty as tsv, csv, parquet or nt files, and return their paths."""
    if file_format not in WRITERS:
        raise InputError(f"format must be one of {', '.join(WRITERS)}, got {file_format!r}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{directory}: cannot create the directory: {error.strerror}") from None
    existing = [split + ending for split in SPLITS for ending in SUFFIXES if (directory / (split + ending)).exists()]
    if existing:
        raise InputError(f"{directory}: already contains a graph ({existing[0]}). Use a new directory.")
    written = []
    for split in SPLITS:
        if len(graph.split(split)):
            file = directory / f"{split}.{file_format}"
            with atomic_write(file) as temporary:
                WRITERS[file_format](graph, graph.split(split), temporary)
            written.append(file)
    return written


def quote_tsv(name: str) -> str:
    r"""Quote a name for TSV if it contains a tab, a quote, a line break or a byte-order mark.

    Example:
        >>> print(quote_tsv('anna'), quote_tsv('5" disk'))
        anna "5"" disk"
    """
    return _quote(name) if set(name) & set('\t"\r\n\ufeff') else name


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _write_tsv(graph: KnowledgeGraph, triples: IntArray, file: Path) -> None:
    # if the first triple looks like a header, all names are quoted, because a quoted line is not read as a header
    ambiguous = is_header(graph.names(triples[0]))
    _write_lines(graph, triples, file, _quote if ambiguous else quote_tsv, "\t")


def _write_nt(graph: KnowledgeGraph, triples: IntArray, file: Path) -> None:
    _write_lines(graph, triples, file, to_iri, " ", ".")


def _write_lines(
    graph: KnowledgeGraph, triples: IntArray, file: Path, format_name: Callable[[str], str], separator: str, *end: str
) -> None:
    """Write one line per triple. Each name is formatted only once."""
    entities = pa.array([format_name(name) for name in graph.entities.names], pa.string())
    relations = pa.array([format_name(name) for name in graph.relations.names], pa.string())
    with file.open("w", encoding="utf-8", newline="\n") as out:
        for start in range(0, len(triples), CHUNK_ROWS):
            h, r, t = triples[start : start + CHUNK_ROWS].T
            names = (entities.take(h), relations.take(r), entities.take(t))
            out.write("\n".join(pc.binary_join_element_wise(*names, *end, separator).to_pylist()) + "\n")


def _write_csv(graph: KnowledgeGraph, triples: IntArray, file: Path) -> None:
    csv.write_csv(_table(graph, triples), file)


def _write_parquet(graph: KnowledgeGraph, triples: IntArray, file: Path) -> None:
    pq.write_table(_table(graph, triples), file, compression="zstd")


def _table(graph: KnowledgeGraph, triples: IntArray) -> pa.Table:
    entities = pa.array(graph.entities.names, pa.string())
    relations = pa.array(graph.relations.names, pa.string())
    columns = (entities.take(triples[:, 0]), relations.take(triples[:, 1]), entities.take(triples[:, 2]))
    return pa.table(dict(zip(COLUMNS, columns, strict=True)))


def to_iri(name: str) -> str:
    """Return a name as an IRI. A name that is not an IRI is percent-encoded and gets the prefix PLAIN_NAME_PREFIX.

    Example:
        >>> to_iri("http://example.org/anna"), to_iri("anna berg")
        ('<http://example.org/anna>', '<urn:plogicnet:anna%20berg>')
    """
    scheme, colon, rest = name.partition(":")
    plain = colon and rest and scheme in ("http", "https", "urn") and not name.startswith(PLAIN_NAME_PREFIX)
    safe = all(33 <= ord(c) < 127 and c not in '<>"{}|^`\\%' for c in name)
    return f"<{name}>" if plain and safe else f"<{PLAIN_NAME_PREFIX}{quote(name, safe='')}>"


WRITERS: dict[str, Callable[[KnowledgeGraph, IntArray, Path], None]] = {
    "tsv": _write_tsv,
    "csv": _write_csv,
    "parquet": _write_parquet,
    "nt": _write_nt,
}
