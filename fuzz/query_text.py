"""Fuzz the readers of queries and triples: any bytes must give valid numbers of the graph or an InputError."""

import tempfile
from pathlib import Path

import numpy as np

from plogicnet.graph import MISSING, KnowledgeGraph, read_queries, read_triples
from plogicnet.support.errors import InputError

SUFFIXES = (".txt", ".tsv", ".csv", ".jsonl")
FOLDER = Path(tempfile.mkdtemp(prefix="plogicnet-fuzz-"))
GRAPH = KnowledgeGraph.from_names([("a", "r", "b"), ("b", "s", "é"), ("?", "r", 'a"b')])
OTHER_GRAPH = KnowledgeGraph.from_names([("a", "r", "b")])


def one_input(data: bytes) -> None:
    r"""Read the bytes as queries and as triples. The first byte selects the format.

    Example:
        >>> one_input(b"1a\tr\t?")
    """
    file = FOLDER / f"queries{SUFFIXES[data[0] % len(SUFFIXES)] if data else '.txt'}"
    file.write_bytes(data[1:])
    for graph in (GRAPH, OTHER_GRAPH):
        sizes = (len(graph.entities), len(graph.relations), len(graph.entities))
        for read, missing in ((read_queries, 1), (read_triples, 0)):
            try:
                rows = read(file, graph)
            except InputError:
                continue
            if np.any((rows == MISSING).sum(axis=1) != missing) or np.any((rows >= sizes) | (rows < MISSING)):
                raise AssertionError("invalid numbers, or a wrong number of missing parts")
