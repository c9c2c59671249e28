"""Reading files of triples, and of queries with one missing part, with the names of a graph."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from plogicnet.graph.io.readers import COLUMNS, encode_names, read_triple_table, row_location
from plogicnet.graph.knowledge_graph import KnowledgeGraph
from plogicnet.graph.triples import MISSING, IntArray
from plogicnet.support.errors import InputError

UNKNOWN_NAME = -2
"""The id of a name that the graph does not contain."""
MISSING_MARKERS = ("", "?")
"""The markers of the missing part in a file. A marker that is also a name in the graph is read as that name."""


def read_triples(file: Path, graph: KnowledgeGraph) -> IntArray:
    """Read a file of triples with names of the graph, for example the output of `predict --out`."""
    return _encode_table(file, read_triple_table(file).table, graph, ())


def read_queries(file: Path, graph: KnowledgeGraph) -> IntArray:
    """Read a file of queries: triples in which one part is `?` or empty. That part becomes MISSING."""
    queries = _encode_table(file, read_triple_table(file, allow_missing=True).table, graph, MISSING_MARKERS)
    n_missing = (queries == MISSING).sum(axis=1)
    if np.any(n_missing != 1):
        row = int(np.argmax(n_missing != 1))
        columns = [c for c, id_ in zip(COLUMNS, queries[row], strict=True) if id_ == MISSING]
        found = (
            f"{' and '.join(columns)} are missing"
            if columns
            else "no part is missing (use --triples for whole triples)"
        )
        remedy = "Exactly one of head, relation and tail must be ? or empty."
        raise InputError(f"{row_location(file, row)}: {found}. {remedy}")
    return queries


def _encode_table(file: Path, table: pa.Table, graph: KnowledgeGraph, markers: tuple[str, ...]) -> IntArray:
    """Convert names to ids, and markers to MISSING. Raise InputError with the location of the first unknown name."""
    vocabularies = (graph.entities, graph.relations, graph.entities)
    extra = [tuple(marker for marker in markers if marker not in vocabulary) for vocabulary in vocabularies]
    names = [pa.array(v.names + more, pa.string()) for v, more in zip(vocabularies, extra, strict=True)]
    ids = encode_names(table, names, UNKNOWN_NAME)
    ids[ids >= np.array([len(vocabulary) for vocabulary in vocabularies])] = MISSING
    unknown = np.argwhere(ids == UNKNOWN_NAME)
    if len(unknown):
        row, column = (int(x) for x in unknown[0])
        try:
            vocabularies[column].id(table[COLUMNS[column]][row].as_py())
        except InputError as error:
            raise InputError(f"{row_location(file, row)}, column {COLUMNS[column]}: {error}") from None
    return ids
