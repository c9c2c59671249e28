"""Graphs by name or by path: benchmark data sets under $PLOGICNET_DATA, directories with splits, single files."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from plogicnet.errors import InputError, nearest
from plogicnet.graph.knowledge_graph import SPLITS, KnowledgeGraph
from plogicnet.graph.triples import IntArray
from plogicnet.graph.vocabulary import Vocabulary

SUFFIXES = (".txt", ".tsv", ".txt.gz", ".tsv.gz")
COLUMNS = ("head", "relation", "tail")


def data_directory() -> Path | None:
    """Where data sets are looked for by name: $PLOGICNET_DATA.

    Example:
        >>> directory = data_directory()
    """
    named = os.environ.get("PLOGICNET_DATA")
    return Path(named) if named else None


def data_sets() -> list[str]:
    """The names of the data sets that are there.

    Example:
        >>> names = data_sets()
    """
    root = data_directory()
    if root is None or not root.is_dir():
        return []
    return sorted(folder.name for folder in root.iterdir() if folder.is_dir() and _find(folder, "train"))


def open_graph(source: str | Path) -> KnowledgeGraph:
    """Opens a graph: a data set's name, a directory with train/valid/test files, or one file of training triples.

    Files hold tab-separated head, relation, tail, one triple a line, plain or .gz.

    Example:
        >>> graph = open_graph("umls")  # doctest: +SKIP
    """
    path = Path(source)
    root = data_directory()
    if not path.exists() and root is not None and (root / str(source)).is_dir():
        path = root / str(source)
    if not path.exists():
        names = data_sets()
        where = f"in PLOGICNET_DATA={root}" if root else "(PLOGICNET_DATA is not set)"
        hint = nearest(str(source), names) or (f" There are: {', '.join(names)}." if names else "")
        raise InputError(f"no graph {str(source)!r}: neither a file, a directory nor a data set {where}.{hint}")
    if path.is_file():
        return _read([path], path.name.split(".")[0])
    files = [_find(path, split) for split in SPLITS]
    if files[0] is None:
        raise InputError(f"{path}: no train file; expected one of {', '.join('train' + s for s in SUFFIXES)}")
    return _read(files, path.name)


def read_triples(file: Path, graph: KnowledgeGraph) -> IntArray:
    """Reads a file of triples in the names of a graph.

    Example:
        >>> read_triples(Path("candidates.tsv"), graph)  # doctest: +SKIP
    """
    if not file.is_file():
        raise InputError(f"no file {file}")
    table = _read_table(file)
    vocabularies = (graph.entities, graph.relations, graph.entities)
    return np.stack([v.ids(table[c].to_pylist()) for v, c in zip(vocabularies, COLUMNS, strict=True)], axis=1)


def _find(folder: Path, split: str) -> Path | None:
    return next((folder / (split + s) for s in SUFFIXES if (folder / (split + s)).is_file()), None)


def _read(files: "list[Path | None]", name: str) -> KnowledgeGraph:
    tables = [_read_table(file) if file else None for file in files]
    chunks = [table for table in tables if table is not None]
    heads_and_tails = pa.chunked_array([c for t in chunks for c in t["head"].chunks + t["tail"].chunks], pa.string())
    entity_names = pc.unique(heads_and_tails)
    relation_names = pc.unique(pa.chunked_array([c for t in chunks for c in t["relation"].chunks], pa.string()))
    empty = np.empty((0, 3), dtype=np.int64)
    splits = [empty if t is None else _numbers(t, entity_names, relation_names) for t in tables]
    splits += [empty] * (len(SPLITS) - len(splits))
    entities = Vocabulary("entity", tuple(entity_names.to_pylist()))
    return KnowledgeGraph.from_numbers(
        entities, Vocabulary("relation", tuple(relation_names.to_pylist())), splits, name
    )


def _numbers(
    table: pa.Table, entities: pa.Array, relations: pa.Array
) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    columns = [pc.index_in(table[c], relations if c == "relation" else entities) for c in COLUMNS]
    return np.stack([c.to_numpy().astype(np.int64) for c in columns], axis=1)


def _read_table(file: Path) -> pa.Table:
    """Reads the three columns as strings; a name may hold anything but a tab and a line break."""
    try:
        return csv.read_csv(
            file,
            read_options=csv.ReadOptions(column_names=list(COLUMNS)),
            parse_options=csv.ParseOptions(delimiter="\t", quote_char=False),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(COLUMNS, pa.string()), strings_can_be_null=False
            ),
        )
    except (pa.ArrowInvalid, OSError) as error:
        if "Empty CSV file" in str(error):
            return pa.table({c: pa.array([], pa.string()) for c in COLUMNS})
        raise InputError(f"{file}: {error}; expected tab-separated head, relation, tail on each line") from None
