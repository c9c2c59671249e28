"""Files that number or label names: entities.dict and relations.dict, labels.tsv, and OpenKE's layout of numbers."""

from pathlib import Path

import numpy as np

from plogicnet.graph.knowledge_graph import SPLITS, KnowledgeGraph
from plogicnet.graph.triples import IntArray, as_triples
from plogicnet.graph.vocabulary import Vocabulary
from plogicnet.support.errors import InputError

LONGEST_NUMBER, LONGEST_NAME = 18, 1 << 22
"""The most digits of a number that is no mistake, and the most characters of a name."""


def read_dictionary(file: Path) -> tuple[str, ...]:
    """The names of a dictionary of `number⇥name` lines, in the order of their numbers, which are 0, 1, 2, …."""
    lines = [(number, line.split("\t", 1)) for number, line in _lines(file)]
    return _in_order(file, [(number, cells[0], cells[1] if len(cells) == 2 else None) for number, cells in lines])


def read_labels(file: Path) -> dict[str, str]:
    """The readable labels of a file of `name⇥label` lines."""
    labels = {}
    for number, line in _lines(file):
        name, tab, label = line.partition("\t")
        if not tab or not name or not label:
            raise InputError(f"{file}, line {number}: a name, a tab and its label are meant: {line[:100]!r}")
        labels[name] = label
    return labels


def read_openke(folder: Path) -> KnowledgeGraph:
    """A directory in OpenKE's layout: entity2id.txt and relation2id.txt, and train2id.txt with `head tail relation`."""
    entities = Vocabulary("entity", _read_ids(folder / "entity2id.txt"))
    relations = Vocabulary("relation", _read_ids(folder / "relation2id.txt"))
    splits = []
    for split in SPLITS:
        file = folder / f"{split}2id.txt"
        splits.append(_read_numbers(file, len(entities), len(relations)) if file.is_file() else as_triples([]))
    return KnowledgeGraph.from_numbers(entities, relations, splits, folder.resolve().name)


def _read_ids(file: Path) -> tuple[str, ...]:
    """`name number` lines under a line with their count."""
    if not file.is_file():
        raise InputError(f"{file}: no such file; it belongs to the layout of train2id.txt")
    lines = [(number, line.rsplit(None, 1)) for number, line in _counted(file)]
    return _in_order(file, [(number, cells[-1], cells[0] if len(cells) == 2 else None) for number, cells in lines])


def _read_numbers(file: Path, entities: int, relations: int) -> IntArray:
    """`head tail relation` lines of numbers under a line with their count."""
    triples = []
    for number, line in _counted(file):
        cells = line.split()
        if len(cells) != 3 or not all(cell.isdecimal() and len(cell) <= LONGEST_NUMBER for cell in cells):
            raise InputError(f"{file}, line {number}: three numbers are meant (head, tail, relation): {line[:100]!r}")
        triples.append((number, *map(int, cells)))
    table = np.array(triples, dtype=np.int64).reshape(-1, 4)
    for column, size in ((1, entities), (2, entities), (3, relations)):
        outside = np.flatnonzero(table[:, column] >= size)
        if len(outside):
            line_number, number = table[outside[0], 0], table[outside[0], column]
            name = "relation2id.txt" if column == 3 else "entity2id.txt"
            raise InputError(f"{file}, line {line_number}: the number {number} is not in {name} (0 to {size - 1})")
    return table[:, [1, 3, 2]]


def _counted(file: Path) -> list[tuple[int, str]]:
    """The lines under a first line that counts them."""
    (_, first), *lines = _lines(file) or [(1, "")]
    if not first.strip().isdecimal() or len(first.strip()) > LONGEST_NUMBER or int(first) != len(lines):
        meant = f"the number of the lines that follow is meant ({len(lines)})"
        raise InputError(f"{file}, line 1: {meant}, found {first[:40]!r}")
    return lines


def _in_order(file: Path, entries: list[tuple[int, str, str | None]]) -> tuple[str, ...]:
    """Checks (line, number, name) entries and puts the names in the order of their numbers."""
    names: dict[int, str] = {}
    seen: set[str] = set()
    for line, text, name in entries:
        if not name or not text.isdecimal() or len(text) > LONGEST_NUMBER or len(name) > LONGEST_NAME:
            found = f"{text[:40]!r} and {name[:40]!r}" if name else f"{text[:40]!r} and no name"
            raise InputError(f"{file}, line {line}: a number and a name are meant, found {found}")
        number = int(text)
        place = f"{file}, line {line}"
        if number in names:
            raise InputError(f"{place}: the number {number} is given twice ({names[number]!r} and {name!r})")
        if name in seen:
            raise InputError(f"{place}: the name {name!r} is given twice")
        names[number] = name
        seen.add(name)
    missing = next((number for number in range(len(names)) if number not in names), None)
    if missing is not None:
        meant = f"numbers are 0 to {len(names) - 1} for that many names"
        raise InputError(f"{file}: the number {missing} is missing; {meant}")
    return tuple(names[number] for number in range(len(names)))


def _lines(file: Path) -> list[tuple[int, str]]:
    """The lines that hold something, with their numbers."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = file.read_bytes()[: error.start].count(b"\n") + 1
        raise InputError(f"{file}, line {line}: not UTF-8") from None
    lines = ((number, line.rstrip("\r")) for number, line in enumerate(text.split("\n"), 1))
    return [(number, line) for number, line in lines if line.strip()]
