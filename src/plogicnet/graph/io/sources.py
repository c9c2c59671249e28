"""Creating graphs from a directory, a single file, or data in memory."""

import itertools
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plogicnet.graph.io.dictionaries import read_dictionary, read_labels, read_openke
from plogicnet.graph.io.readers import (
    COLUMNS,
    SUFFIXES,
    TripleTable,
    encode_names,
    read_triple_table,
    row_location,
    to_triple_table,
)
from plogicnet.graph.knowledge_graph import SPLITS, KnowledgeGraph
from plogicnet.graph.splitting import Shares, split_triples
from plogicnet.graph.triples import HEAD, RELATION, TAIL, IntArray, as_triples
from plogicnet.graph.vocabulary import Vocabulary
from plogicnet.support.errors import InputError, did_you_mean, pluralize, quote_name
from plogicnet.support.files import require_file

log = logging.getLogger(__name__)
MIN_ROWS_FOR_HEADER_WARNING = 10
"""In smaller files, it is not unusual that the names of the first line occur nowhere else."""
LABELS = "labels.tsv"
"""The file of a directory with readable names."""
TRIPLE_MARKS, MAX_LINE_BYTES = {".txt": b"\t", ".tsv": b"\t", ".csv": b","}, 1 << 14
"""The endings of other files in a directory that are looked at, with what separates columns, and how much is read."""
SPLIT_NAMES = {"train": ("train",), "valid": ("valid", "dev", "val", "validation"), "test": ("test",)}
"""The accepted names of the files of each split, without ending."""


def read_graph(path: Path, order: str = "hrt", shares: Shares | None = None, seed: int = 0) -> KnowledgeGraph:
    """Read a graph from a directory with train/valid/test files, or from a single file of triples.

    Args:
        path: the directory or file.
        order: hrt or htr, the order of the columns in text files without a header.
        shares: the shares of train, valid and test if a single file is split, such as (0.8, 0.1, 0.1); None: all train.
        seed: the seed for splitting.
    """
    if not path.is_dir():
        require_file(path, "a graph")
        tables = [read_triple_table(path, order)]
        graph = _build_graph(tables, path.name.split(".")[0], path)
        graph = graph if shares is None else split_triples(graph, shares, seed)
        return _log_warnings(graph, tables, str(path))
    if shares is not None:
        raise InputError(f"--split requires a single file of triples, but {path} is a directory with its own splits")
    if (path / "train2id.txt").is_file():
        return _log_warnings(read_openke(path), [], path.resolve().name)
    files = {split: _find_split(path, split) for split in SPLITS}
    if files["train"] is None:
        files_with_gz = "train.txt, train.tsv, train.csv, train.jsonl, train.nt or train.ttl (also with .gz)"
        raise InputError(f"{path}: no train file. Expected {files_with_gz}, or train.parquet.")
    _warn_about_other_files(path, [file for file in files.values() if file])
    tables = [read_triple_table(file, order) if file else to_triple_table(()) for file in files.values()]
    return _log_warnings(_build_graph(tables, path.resolve().name, path), tables, path.resolve().name)


def _warn_about_other_files(path: Path, read: Sequence[Path]) -> None:
    """Log which other text files of a directory probably contain triples, because they are not read."""
    others = [file for file in sorted(path.iterdir()) if file.suffix in TRIPLE_MARKS and file not in read]
    unread = [file.name for file in others if file.name != LABELS and _begins_with_triple(file)]
    if unread:
        log.warning(
            "%s: only train, valid and test files are read, not %s. To train on other triples, add them to %s.",
            path,
            ", ".join(unread),
            read[0].name,
        )


def _begins_with_triple(file: Path) -> bool:
    """Return whether the first line of a text file has three columns."""
    try:
        with file.open("rb") as stream:
            line = stream.readline(MAX_LINE_BYTES)
    except OSError:
        return False
    return len(line.split(TRIPLE_MARKS[file.suffix])) == len(COLUMNS)


def make_graph(train: Any, valid: Any = (), test: Any = (), name: str = "graph") -> KnowledgeGraph:
    """Create a graph from pandas or Polars DataFrames, Arrow tables, (n, 3) arrays, or rows of three names.

    Example:
        >>> make_graph(np.array([["anna", "knows", "ben"]])).entities.names
        ('anna', 'ben')
    """
    tables = [to_triple_table(data, split) for split, data in zip(SPLITS, (train, valid, test), strict=True)]
    return _log_warnings(_build_graph(tables, name), tables, name)


def add_facts(graph: KnowledgeGraph, facts: Any) -> KnowledgeGraph:
    """Return the graph with facts added to train. They are a file of triples, a data frame, or rows of three names.

    New entities get the next free ids. New relations are not allowed.

    Example:
        >>> graph = KnowledgeGraph.from_names([("anna", "knows", "ben")])
        >>> add_facts(graph, [("anna", "knows", "carl"), ("anna", "knows", "ben")]).names(np.array([0, 0, 2]))
        ('anna', 'knows', 'carl')
    """
    return graph.with_facts(*read_facts(graph, facts))


def read_facts(graph: KnowledgeGraph, facts: Any) -> tuple[Vocabulary, IntArray]:
    """Return the entities of a graph and of facts (see `add_facts`), and the facts as ids.

    Example:
        >>> graph = KnowledgeGraph.from_names([("anna", "knows", "ben")])
        >>> entities, triples = read_facts(graph, [("anna", "knows", "carl")])
        >>> entities.names, triples.tolist()
        (('anna', 'ben', 'carl'), [[0, 0, 2]])
    """
    file = Path(facts) if isinstance(facts, str | Path) else None
    source = str(file or "facts")
    table = to_triple_table(facts, source) if file is None else read_triple_table(file)
    heads, relations, tails = (table.table[c].to_pylist() for c in COLUMNS)
    if table.n_literals:
        log.warning("%s: %s", source, _skipped_literals(table.n_literals))
    if not heads:
        log.warning("%s: contains no facts", source)
    for row, name in enumerate(relations):
        if name not in graph.relations:
            location = f"{source}, row {row + 1}" if file is None else row_location(file, row)
            raise InputError(
                f"{location}: unknown relation {quote_name(name)}.{did_you_mean(name, graph.relations.names)}"
                " Entities can be new, but relations must be in the training graph."
            )
    entities = Vocabulary(
        "entity", tuple(dict.fromkeys([*graph.entities.names, *itertools.chain(*zip(heads, tails, strict=True))]))
    )
    return entities, np.stack([entities.ids(heads), graph.relations.ids(relations), entities.ids(tails)], axis=1)


def _find_split(folder: Path, split: str) -> Path | None:
    files = (folder / (name + ending) for name in SPLIT_NAMES[split] for ending in SUFFIXES)
    return next((file for file in files if file.is_file()), None)


def _build_graph(tables: Sequence[TripleTable], name: str, source: Path | None = None) -> KnowledgeGraph:
    """Create a graph. Ids are read from entities.dict and relations.dict in the source directory, if they exist.

    Otherwise they follow the order of first occurrence, with the heads of a split before its tails.
    """
    folder = source if source and source.is_dir() else None
    entities = _collect_names("entity", tables, ("head", "tail"), folder and folder / "entities.dict")
    relations = _collect_names("relation", tables, ("relation",), folder and folder / "relations.dict")
    splits = [encode_names(table.table, (entities, relations, entities)) for table in tables]
    splits += [as_triples([])] * (len(SPLITS) - len(splits))
    if not tables[0].has_column_names and _looks_like_header(splits[0]):
        first = ", ".join(quote_name(tables[0].table[c][0].as_py()) for c in COLUMNS)
        text = "looks like a header, because its names occur nowhere else in train, but was read as a triple"
        remedy = "If it is a header, remove it, or name the columns head, relation and tail."
        log.warning("%s: the first line of train (%s) %s. %s", source or name, first, text, remedy)
    labels = read_labels(folder / LABELS) if folder and (folder / LABELS).is_file() else {}
    vocabularies = [Vocabulary(k, tuple(v.to_pylist())) for k, v in (("entity", entities), ("relation", relations))]
    return KnowledgeGraph.from_ids(vocabularies[0], vocabularies[1], splits, name, labels, source)


def _looks_like_header(triples: IntArray) -> bool:
    """Return whether the first triple shares no name with others, although relations occur twice or more on average."""
    if len(triples) < MIN_ROWS_FOR_HEADER_WARNING:
        return False
    head, relation, tail = triples[0]
    others = triples[1:]
    repeated = np.any(others[:, RELATION] == relation) or np.any(np.isin(others[:, [HEAD, TAIL]], (head, tail)))
    return not repeated and 2 * len(np.unique(others[:, RELATION])) <= len(others)


def _collect_names(
    kind: str, tables: Sequence[TripleTable], columns: Iterable[str], dictionary: Path | None
) -> pa.Array:
    """Return the names of entities or relations in the order of their ids.

    These are the names of the file `dictionary`, if it exists. Otherwise they are the distinct names of some columns.
    For speed, they are collected from the Arrow dictionaries of the chunks instead of the rows.
    """
    chunks = [ch.dictionary for table in tables for c in columns for ch in table.table[c].chunks]
    names = pc.unique(pa.chunked_array(chunks, pa.string()))
    if dictionary is None or not dictionary.is_file():
        return names
    known = pa.array(read_dictionary(dictionary), pa.string())
    missing = names.filter(pc.invert(pc.is_in(names, known)))
    if len(missing):
        raise InputError(f"{dictionary}: {kind} {missing[0].as_py()!r} of the triples is not in this dictionary")
    return known


def _log_warnings(graph: KnowledgeGraph, tables: Sequence[TripleTable], source: str) -> KnowledgeGraph:
    """Log warnings about suspicious counts, and return the graph."""
    n_literals = sum(table.n_literals for table in tables)
    if n_literals:
        log.warning("%s: %s", source, _skipped_literals(n_literals))
    if graph.duplicates:
        log.warning("%s: %s dropped", source, pluralize(graph.duplicates, "duplicate triple"))
    for other, split in (("train", "valid"), ("train", "test"), ("valid", "test")):
        n_shared = graph.count_shared(split, other)
        if n_shared:
            triples = pluralize(n_shared, f"triple of {split} is", f"triples of {split} are")
            log.warning("%s: %s also in %s", source, triples, other)
    for split in ("valid", "test"):
        for count, *nouns in zip(
            graph.count_unseen(split), ("entity", "relation"), ("entities", "relations"), strict=True
        ):
            if count:
                names = pluralize(count, f"{nouns[0]} of {split} is", f"{nouns[1]} of {split} are")
                log.warning("%s: %s not in train", source, names)
    return graph


def _skipped_literals(count: int) -> str:
    if count == 1:
        return "1 triple skipped, because its object is a literal and not an entity"
    return f"{count:,} triples skipped, because their objects are literals and not entities"
