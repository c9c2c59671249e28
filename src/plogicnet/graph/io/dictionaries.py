"""Reading files with the ids or labels of names: entities.dict, relations.dict, labels.tsv, and OpenKE's files."""

from pathlib import Path

import numpy as np

from plogicnet.graph.knowledge_graph import SPLITS, KnowledgeGraph
from plogicnet.graph.triples import IntArray, as_triples
from plogicnet.graph.vocabulary import Vocabulary
from plogicnet.support.errors import InputError

MAX_DIGITS, MAX_NAME_LENGTH = 18, 1 << 22
"""The largest numbers of digits of an id and of characters of a name."""


def read_dictionary(file: Path) -> tuple[str, ...]:
    """Read `id⇥name` lines and return the names in the order of their ids, which must be 0, 1, 2, …."""
    lines = [(number, line.split("\t", 1)) for number, line in _nonempty_lines(file)]
    return _names_in_order(file, [(number, cells[0], cells[1] if len(cells) == 2 else None) for number, cells in lines])


def read_labels(file: Path) -> dict[str, str]:
    """Read `name⇥label` lines and return the labels by name."""
    labels = {}
    for number, line in _nonempty_lines(file):
        name, tab, label = line.partition("\t")
        if not tab or not name or not label:
            raise InputError(f"{file}, line {number}: expected a name, a tab and a label, found {line[:100]!r}")
        labels[name] = label
    return labels


def read_openke(folder: Path) -> KnowledgeGraph:
    """Read a directory in OpenKE's layout: entity2id.txt, relation2id.txt, train2id.txt, valid2id.txt, test2id.txt."""
    entities = Vocabulary("entity", _read_ids(folder / "entity2id.txt"))
    relations = Vocabulary("relation", _read_ids(folder / "relation2id.txt"))
    splits = []
    for split in SPLITS:
        file = folder / f"{split}2id.txt"
        splits.append(_read_id_triples(file, len(entities), len(relations)) if file.is_file() else as_triples([]))
    return KnowledgeGraph.from_ids(entities, relations, splits, folder.resolve().name, source=folder)


def _read_ids(file: Path) -> tuple[str, ...]:
    """Read `name id` lines after a first line with the number of lines. Return the names in the order of their ids."""
    if not file.is_file():
        raise InputError(f"{file}: no such file. It is required if the directory contains train2id.txt.")
    lines = [(number, line.rsplit(None, 1)) for number, line in _counted_lines(file)]
    return _names_in_order(
        file, [(number, cells[-1], cells[0] if len(cells) == 2 else None) for number, cells in lines]
    )


def _read_id_triples(file: Path, n_entities: int, n_relations: int) -> IntArray:
    """Read `head tail relation` lines of ids after a first line with the number of lines."""
    triples = []
    for number, line in _counted_lines(file):
        cells = line.split()
        if len(cells) != 3 or not all(cell.isdecimal() and len(cell) <= MAX_DIGITS for cell in cells):
            raise InputError(f"{file}, line {number}: expected three ids (head, tail, relation), found {line[:100]!r}")
        triples.append((number, *map(int, cells)))
    table = np.array(triples, dtype=np.int64).reshape(-1, 4)
    for column, size in ((1, n_entities), (2, n_entities), (3, n_relations)):
        outside = np.flatnonzero(table[:, column] >= size)
        if len(outside):
            line_number, id_ = table[outside[0], 0], table[outside[0], column]
            name = "relation2id.txt" if column == 3 else "entity2id.txt"
            raise InputError(f"{file}, line {line_number}: id {id_} is not in {name} (0 to {size - 1})")
    return table[:, [1, 3, 2]]


def _counted_lines(file: Path) -> list[tuple[int, str]]:
    """Return the lines, with line numbers, after a first line that must contain how many lines follow."""
    (_, first), *lines = _nonempty_lines(file) or [(1, "")]
    if not first.strip().isdecimal() or len(first.strip()) > MAX_DIGITS or int(first) != len(lines):
        expected = f"expected the number of lines that follow ({len(lines)})"
        raise InputError(f"{file}, line 1: {expected}, found {first[:40]!r}")
    return lines


def _names_in_order(file: Path, entries: list[tuple[int, str, str | None]]) -> tuple[str, ...]:
    """Validate (line number, id, name) entries and return the names in the order of their ids."""
    names: dict[int, str] = {}
    seen: set[str] = set()
    for line, text, name in entries:
        if not name or not text.isdecimal() or len(text) > MAX_DIGITS or len(name) > MAX_NAME_LENGTH:
            found = f"{text[:40]!r} and {name[:40]!r}" if name else f"{text[:40]!r} and no name"
            raise InputError(f"{file}, line {line}: expected an id (an integer) and a name, found {found}")
        id_ = int(text)
        location = f"{file}, line {line}"
        if id_ in names:
            raise InputError(f"{location}: id {id_} occurs twice ({names[id_]!r} and {name!r})")
        if name in seen:
            raise InputError(f"{location}: name {name!r} occurs twice")
        names[id_] = name
        seen.add(name)
    missing = next((id_ for id_ in range(len(names)) if id_ not in names), None)
    if missing is not None:
        expected = f"The ids must be 0 to {len(names) - 1}."
        raise InputError(f"{file}: id {missing} is missing. {expected}")
    return tuple(names[id_] for id_ in range(len(names)))


def _nonempty_lines(file: Path) -> list[tuple[int, str]]:
    """Return the lines that are not blank, with their line numbers."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = file.read_bytes()[: error.start].count(b"\n") + 1
        raise InputError(f"{file}, line {line}: not UTF-8") from None
    lines = ((number, line.rstrip("\r")) for number, line in enumerate(text.split("\n"), 1))
    return [(number, line) for number, line in lines if line.strip()]
