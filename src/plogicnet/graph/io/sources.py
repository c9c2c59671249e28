"""Graphs made of a directory in one of the usual layouts, of one file, or of data in memory."""

import itertools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plogicnet.graph.io.dictionaries import read_dictionary, read_labels, read_openke
from plogicnet.graph.io.readers import COLUMNS, SUFFIXES, Rows, numbers_of, place_of, read_rows, rows_of
from plogicnet.graph.knowledge_graph import SPLITS, KnowledgeGraph, drop_duplicates
from plogicnet.graph.splitting import Shares, split_triples
from plogicnet.graph.triples import HEAD, RELATION, TAIL, IntArray, as_triples
from plogicnet.graph.vocabulary import Vocabulary
from plogicnet.support.errors import InputError, many, nearest, shown
from plogicnet.support.files import require_file

log = logging.getLogger(__name__)
ENOUGH_ROWS = 10
"""In a smaller graph a first line whose names come once is nothing odd."""
SPLIT_NAMES = {"train": ("train",), "valid": ("valid", "dev", "val", "validation"), "test": ("test",)}


def read_graph(path: Path, order: str = "hrt", shares: Shares | None = None, seed: int = 0) -> KnowledgeGraph:
    """Reads a graph from a directory with train/valid/test files, or from one file of triples.

    Args:
        path: the directory or file.
        order: hrt or htr, the order of columns in text files without a header.
        shares: for one file, the shares of train, valid and test, as (0.8, 0.1, 0.1); without them all is train.
        seed: for splitting.
    """
    if not path.is_dir():
        require_file(path, "a graph")
        splits = [read_rows(path, order)]
        graph = _numbered(splits, path.name.split(".")[0])
        graph = graph if shares is None else split_triples(graph, shares, seed)
        return _announced(graph, splits)
    if shares is not None:
        raise InputError(f"--split is for one file of triples; {path} is a directory with its own splits")
    if (path / "train2id.txt").is_file():
        return _announced(read_openke(path), [])
    files = {split: _find_split(path, split) for split in SPLITS}
    if files["train"] is None:
        endings = ", ".join(SUFFIXES[:3])
        raise InputError(f"{path}: no train file; expected train with one of {endings} (or .gz, Parquet, RDF) in it")
    rows = [read_rows(file, order) if file else rows_of(()) for file in files.values()]
    return _announced(_numbered(rows, path.resolve().name, path), rows)


def make_graph(train: Any, valid: Any = (), test: Any = (), name: str = "graph") -> KnowledgeGraph:
    """A graph from pandas or Polars DataFrames, Arrow tables, (n, 3) arrays, or rows of three names.

    Example:
        >>> make_graph(np.array([["anna", "knows", "ben"]])).entities.names
        ('anna', 'ben')
    """
    rows = [rows_of(data, split) for split, data in zip(SPLITS, (train, valid, test), strict=True)]
    return _announced(_numbered(rows, name), rows)


def add_facts(graph: KnowledgeGraph, facts: Any) -> KnowledgeGraph:
    """The graph with more facts in train: a file of triples, a data frame, or rows of three names.

    Entities that it does not know are numbered after those it knows; its relations are all there are.

    Example:
        >>> graph = KnowledgeGraph.from_names([("anna", "knows", "ben")])
        >>> add_facts(graph, [("anna", "knows", "carl"), ("anna", "knows", "ben")]).names(np.array([0, 0, 2]))
        ('anna', 'knows', 'carl')
    """
    file = Path(facts) if isinstance(facts, str | Path) else None
    what = str(file or "facts")
    rows = rows_of(facts, what) if file is None else read_rows(file)
    heads, relations, tails = (rows.table[c].to_pylist() for c in COLUMNS)
    if rows.literals:
        log.warning("%s: %s skipped (not entities)", what, many(rows.literals, "literal"))
    if not heads:
        log.warning("%s: no fact in it", what)
    for row, name in enumerate(relations):
        if name not in graph.relations:
            place = f"{what}, row {row + 1}" if file is None else place_of(file, row)
            raise InputError(
                f"{place}: unknown relation {shown(name)}.{nearest(name, graph.relations.names)} Entities may be new,"
                " but relations must be those of training"
            )
    entities = Vocabulary(
        "entity", tuple(dict.fromkeys([*graph.entities.names, *itertools.chain(*zip(heads, tails, strict=True))]))
    )
    added = np.stack([entities.ids(heads), graph.relations.ids(relations), entities.ids(tails)], axis=1)
    return replace(graph, entities=entities, train=drop_duplicates(np.concatenate([graph.train, added]), len(entities)))


def _find_split(folder: Path, split: str) -> Path | None:
    places = (folder / (name + ending) for name in SPLIT_NAMES[split] for ending in SUFFIXES)
    return next((place for place in places if place.is_file()), None)


def _numbered(splits: Sequence[Rows], name: str, folder: Path | None = None) -> KnowledgeGraph:
    """Names become numbers: in a dictionary's order where the folder has one, else in order of first appearance."""
    entities = _vocabulary("entity", splits, ("head", "tail"), folder and folder / "entities.dict")
    relations = _vocabulary("relation", splits, ("relation",), folder and folder / "relations.dict")
    numbers = [numbers_of(rows.table, (entities, relations, entities)) for rows in splits]
    numbers += [as_triples([])] * (len(SPLITS) - len(numbers))
    if not splits[0].named and _stands_alone(numbers[0]):
        first = ", ".join(shown(splits[0].table[c][0].as_py()) for c in COLUMNS)
        text = "looks like a header, and was read as a triple: its names stand nowhere else"
        advice = "if it is one, take it out, or call the columns head, relation and tail"
        log.warning("%s: the first line of train (%s) %s; %s", name, first, text, advice)
    labels = read_labels(folder / "labels.tsv") if folder and (folder / "labels.tsv").is_file() else {}
    known = [Vocabulary(k, tuple(v.to_pylist())) for k, v in (("entity", entities), ("relation", relations))]
    return KnowledgeGraph.from_numbers(known[0], known[1], numbers, name, labels)


def _stands_alone(triples: IntArray) -> bool:
    """Whether no name of the first triple is in another one, in a graph whose relations do come again."""
    if len(triples) < ENOUGH_ROWS:
        return False
    head, relation, tail = triples[0]
    others = triples[1:]
    again = np.any(others[:, RELATION] == relation) or np.any(np.isin(others[:, [HEAD, TAIL]], (head, tail)))
    return not again and 2 * len(np.unique(others[:, RELATION])) <= len(others)


def _vocabulary(kind: str, splits: Sequence[Rows], columns: Iterable[str], dictionary: Path | None) -> pa.Array:
    """All names of some columns; each chunk of a column has its own small dictionary, so no row is touched."""
    chunks = [ch.dictionary for rows in splits for c in columns for ch in rows.table[c].chunks]
    found = pc.unique(pa.chunked_array(chunks, pa.string()))
    if dictionary is None or not dictionary.is_file():
        return found
    given = pa.array(read_dictionary(dictionary), pa.string())
    missing = found.filter(pc.invert(pc.is_in(found, given)))
    if len(missing):
        raise InputError(f"{dictionary}: the {kind} {missing[0].as_py()!r} of the triples is not in this dictionary")
    return given


def _announced(graph: KnowledgeGraph, rows: Sequence[Rows]) -> KnowledgeGraph:
    """The graph itself, after warnings about what a person should know, with counts."""
    literals = sum(r.literals for r in rows)
    if literals:
        log.warning("%s: %s skipped (not entities)", graph.name, many(literals, "literal"))
    if graph.duplicates:
        log.warning("%s: %s dropped", graph.name, many(graph.duplicates, "duplicate triple"))
    for other, split in (("train", "valid"), ("train", "test"), ("valid", "test")):
        shared = graph.shared(split, other)
        if shared:
            triples = many(shared, f"triple of {split} is", f"triples of {split} are")
            log.warning("%s: %s in %s too", graph.name, triples, other)
    for split in ("valid", "test"):
        for count, *nouns in zip(graph.unseen(split), ("entity", "relation"), ("entities", "relations"), strict=True):
            if count:
                names = many(count, f"{nouns[0]} of {split} is", f"{nouns[1]} of {split} are")
                log.warning("%s: %s not in train", graph.name, names)
    return graph
