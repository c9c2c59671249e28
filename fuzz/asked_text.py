"""Fuzzing files of questions: whatever the bytes, queries and triples in the graph's own numbers, or an InputError."""

import tempfile
from pathlib import Path

import numpy as np

from plogicnet.graph import OPEN, KnowledgeGraph, read_queries, read_triples
from plogicnet.support.errors import InputError

SUFFIXES = (".txt", ".tsv", ".csv", ".jsonl")
FOLDER = Path(tempfile.mkdtemp(prefix="plogicnet-fuzz-"))
GRAPH = KnowledgeGraph.from_names([("a", "r", "b"), ("b", "s", "é"), ("?", "r", 'a"b')])
ODD = KnowledgeGraph.from_names([("a", "r", "b")])


def one_input(data: bytes) -> None:
    r"""Reads the bytes as queries and as triples; the first one chooses the format.

    Example:
        >>> one_input(b"1a\tr\t?")
    """
    file = FOLDER / f"asked{SUFFIXES[data[0] % len(SUFFIXES)] if data else '.txt'}"
    file.write_bytes(data[1:])
    for graph in (GRAPH, ODD):
        sizes = (len(graph.entities), len(graph.relations), len(graph.entities))
        for read, gaps in ((read_queries, 1), (read_triples, 0)):
            try:
                asked = read(file, graph)
            except InputError:
                continue
            if np.any((asked == OPEN).sum(axis=1) != gaps) or np.any((asked >= sizes) | (asked < OPEN)):
                raise AssertionError("questions that were not asked")
