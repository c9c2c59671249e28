"""Graphs written as files that read back to the same graph: TSV, CSV, Parquet, N-Triples."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from plogicnet.graph.io.readers import COLUMNS, PLAIN_NAME, SUFFIXES, is_header
from plogicnet.graph.knowledge_graph import SPLITS, KnowledgeGraph
from plogicnet.graph.triples import IntArray
from plogicnet.support.errors import InputError
from plogicnet.support.files import replacing

AT_ONCE = 1 << 20


def write_graph(graph: KnowledgeGraph, directory: Path, kind: str = "tsv") -> list[Path]:
    """Writes train, valid and test (those that hold triples) as files of a kind: tsv, csv, parquet or nt."""
    if kind not in WRITERS:
        raise InputError(f"format: {kind!r} is not allowed; one of {', '.join(WRITERS)}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{directory}: cannot be made: {error.strerror}") from None
    there = [split + ending for split in SPLITS for ending in SUFFIXES if (directory / (split + ending)).exists()]
    if there:
        raise InputError(f"{directory}: a graph is there already ({there[0]}); name a new directory")
    written = []
    for split in SPLITS:
        if len(graph.split(split)):
            file = directory / f"{split}.{kind}"
            with replacing(file) as beside:
                WRITERS[kind](graph, graph.split(split), beside)
            written.append(file)
    return written


def quoted(name: str) -> str:
    r"""As CSV quotes, but only a name with a tab, a quote or a line break in it.

    Example:
        >>> print(quoted('anna'), quoted('5" disk'))
        anna "5"" disk"
    """
    # a byte-order mark would be taken for one at the beginning of a file
    return _always_quoted(name) if set(name) & set('\t"\r\n\ufeff') else name


def _always_quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _write_tsv(graph: KnowledgeGraph, triples: IntArray, file: Path) -> None:
    # a first line of quoted cells is no header, even where the names are such words
    headed = is_header(graph.names(triples[0]))
    _write_lines(graph, triples, file, _always_quoted if headed else quoted, "\t")


def _write_nt(graph: KnowledgeGraph, triples: IntArray, file: Path) -> None:
    _write_lines(graph, triples, file, iri, " ", ".")


def _write_lines(
    graph: KnowledgeGraph, triples: IntArray, file: Path, spell: Callable[[str], str], separator: str, *end: str
) -> None:
    """One line a triple; names are spelt once each, then taken by number."""
    entities = pa.array([spell(name) for name in graph.entities.names], pa.string())
    relations = pa.array([spell(name) for name in graph.relations.names], pa.string())
    with file.open("w", encoding="utf-8", newline="\n") as out:
        for start in range(0, len(triples), AT_ONCE):
            h, r, t = triples[start : start + AT_ONCE].T
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


def iri(name: str) -> str:
    """A name as an IRI: itself where it plainly is one, else percent-encoded behind a prefix of our own.

    Example:
        >>> iri("http://example.org/anna"), iri("anna berg")
        ('<http://example.org/anna>', '<urn:plogicnet:anna%20berg>')
    """
    scheme, colon, rest = name.partition(":")
    plain = colon and rest and scheme in ("http", "https", "urn") and not name.startswith(PLAIN_NAME)
    safe = all(33 <= ord(c) < 127 and c not in '<>"{}|^`\\%' for c in name)
    return f"<{name}>" if plain and safe else f"<{PLAIN_NAME}{quote(name, safe='')}>"


WRITERS: dict[str, Callable[[KnowledgeGraph, IntArray, Path], None]] = {
    "tsv": _write_tsv,
    "csv": _write_csv,
    "parquet": _write_parquet,
    "nt": _write_nt,
}
