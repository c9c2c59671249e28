"""Fuzzing the reader of triples in text: whatever the bytes, it gives triples or an InputError."""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["plogicnet.graph", "csv", "json"]):
    from plogicnet.errors import InputError
    from plogicnet.graph import open_graph

SUFFIXES = (".txt", ".tsv", ".csv", ".jsonl")
FOLDER = Path(tempfile.mkdtemp(prefix="plogicnet-fuzz-"))


def one_input(data: bytes) -> None:
    """Reads the bytes as a graph; the first one chooses the format.

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


if __name__ == "__main__":
    import logging

    logging.disable(logging.CRITICAL)
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
