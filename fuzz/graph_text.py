"""Fuzz the reader of graphs in text: any bytes must give triples or an InputError."""

import tempfile
from pathlib import Path

from plogicnet.graph import open_graph
from plogicnet.support.errors import InputError

SUFFIXES = (".txt", ".tsv", ".csv", ".jsonl")
FOLDER = Path(tempfile.mkdtemp(prefix="plogicnet-fuzz-"))


def one_input(data: bytes) -> None:
    """Read the bytes as a graph. The first byte selects the format.

    Example:
        >>> one_input(b"0anna knows ben")
    """
    file = FOLDER / f"graph{SUFFIXES[data[0] % len(SUFFIXES)] if data else '.txt'}"
    file.write_bytes(data[1:])
    try:
        graph = open_graph(file)
    except InputError:
        return
    for triple in graph.train:
        if not all(graph.names(triple)):
            raise AssertionError("an empty name was read")
