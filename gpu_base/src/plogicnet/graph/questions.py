"""Files of questions in the names of a graph: triples to be judged, and queries with one part left open."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plogicnet.errors import InputError
from plogicnet.graph.knowledge_graph import KnowledgeGraph
from plogicnet.graph.readers import COLUMNS, place_of, read_rows
from plogicnet.graph.triples import OPEN, IntArray

UNKNOWN = -2
OPEN_NAMES = ("", "?")
"""What stands for the open part in a file; in a graph that has an entity called ?, only the empty name does."""


def read_triples(file: Path, graph: KnowledgeGraph) -> IntArray:
    """Reads a file of triples in the names of a graph; what `predict --out` wrote is such a file.

    Example:
        >>> read_triples(Path("candidates.tsv"), graph)  # doctest: +SKIP
    """
    return _numbers(file, read_rows(file).table, graph, ())


def read_queries(file: Path, graph: KnowledgeGraph) -> IntArray:
    """Reads a file of triples of which one part each is `?` or empty: it is OPEN.

    Example:
        >>> read_queries(Path("queries.tsv"), graph)  # doctest: +SKIP
    """
    queries = _numbers(file, read_rows(file, with_gaps=True).table, graph, OPEN_NAMES)
    parts = (queries == OPEN).sum(axis=1)
    if np.any(parts != 1):
        row = int(np.argmax(parts != 1))
        empty = [c for c, number in zip(COLUMNS, queries[row], strict=True) if number == OPEN]
        found = f"{' and '.join(empty)} are open" if empty else "no part is open (--triples judges whole triples)"
        what = "write ? for one of head, relation and tail, or leave it empty"
        raise InputError(f"{place_of(file, row)}: {found}; {what}")
    return queries


def _numbers(file: Path, table: pa.Table, graph: KnowledgeGraph, open_names: tuple[str, ...]) -> IntArray:
    """The names as numbers; the first that is unknown is an error which says where it stands."""
    vocabularies = (graph.entities, graph.relations, graph.entities)
    numbers = np.empty((table.num_rows, 3), dtype=np.int64)
    for column, (name, vocabulary) in enumerate(zip(COLUMNS, vocabularies, strict=True)):
        names, start = pa.array(vocabulary.names, pa.string()), 0
        for chunk in table[name].chunks:
            found = pc.index_in(chunk.dictionary, names).fill_null(UNKNOWN).to_numpy(zero_copy_only=False)
            gaps = pc.is_in(chunk.dictionary, pa.array(open_names, pa.string())).to_numpy(zero_copy_only=False)
            number_of = np.where(gaps & (found == UNKNOWN), OPEN, found)
            numbers[start : start + len(chunk), column] = number_of[chunk.indices.to_numpy()]
            start += len(chunk)
    unknown = np.argwhere(numbers == UNKNOWN)
    if len(unknown):
        row, column = (int(x) for x in unknown[0])
        try:
            vocabularies[column].id(table[COLUMNS[column]][row].as_py())
        except InputError as error:
            raise InputError(f"{place_of(file, row)}, column {COLUMNS[column]}: {error}") from None
    return numbers
