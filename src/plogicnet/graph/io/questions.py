"""Files of questions in the names of a graph: triples to be judged, and queries with one part left open."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from plogicnet.graph.io.readers import COLUMNS, numbers_of, place_of, read_rows
from plogicnet.graph.knowledge_graph import KnowledgeGraph
from plogicnet.graph.triples import OPEN, IntArray
from plogicnet.support.errors import InputError

UNKNOWN = -2
OPEN_NAMES = ("", "?")
"""What stands for the open part in a file; in a graph that has an entity called ?, only the empty name does."""


def read_triples(file: Path, graph: KnowledgeGraph) -> IntArray:
    """Reads a file of triples in the names of a graph; what `predict --out` wrote is such a file."""
    return _numbers(file, read_rows(file).table, graph, ())


def read_queries(file: Path, graph: KnowledgeGraph) -> IntArray:
    """Reads a file of triples of which one part each is `?` or empty: it is OPEN."""
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
    """The names as numbers; an InputError with the place of the first unknown one."""
    vocabularies = (graph.entities, graph.relations, graph.entities)
    gaps = [tuple(name for name in open_names if name not in vocabulary) for vocabulary in vocabularies]
    names = [pa.array(v.names + more, pa.string()) for v, more in zip(vocabularies, gaps, strict=True)]
    numbers = numbers_of(table, names, UNKNOWN)
    numbers[numbers >= np.array([len(vocabulary) for vocabulary in vocabularies])] = OPEN
    unknown = np.argwhere(numbers == UNKNOWN)
    if len(unknown):
        row, column = (int(x) for x in unknown[0])
        try:
            vocabularies[column].id(table[COLUMNS[column]][row].as_py())
        except InputError as error:
            raise InputError(f"{place_of(file, row)}, column {COLUMNS[column]}: {error}") from None
    return numbers
