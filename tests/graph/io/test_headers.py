"""Headers, first lines that only look like headers, and rows that are read in Python."""

import itertools
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from plogicnet.graph import KnowledgeGraph, open_graph, read_queries
from plogicnet.graph.datasets.registry import available_names
from plogicnet.graph.io import readers, unpacking
from plogicnet.graph.io.readers import is_header, read_triple_table
from plogicnet.support.errors import InputError

ROWS = [(f"a{i}", f"r{i % 3}", f"b{i}") for i in range(12)]


def write_rows(file: Path, rows: list[tuple[str, str, str]], delimiter: str = "\t") -> Path:
    file.write_text("".join(delimiter.join(row) + "\n" for row in rows))
    return file


def warnings(caplog: pytest.LogCaptureFixture, file: Path) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "plogicnet"):
        open_graph(file)
    return [record.getMessage() for record in caplog.records if "header" in record.getMessage()]


@pytest.mark.parametrize(
    ("header", "order"),
    [
        (("source", "edge", "target"), (0, 1, 2)),
        (("from", "rel", "to"), (0, 1, 2)),
        (("From", "Type", "To"), (0, 1, 2)),
        (("src", "dst", "predicate"), (0, 2, 1)),
        (("s", "p", "o"), (0, 1, 2)),
        ((":START_ID", ":END_ID", ":TYPE"), (0, 2, 1)),
        (("target", "relationship", "source"), (2, 1, 0)),
    ],
)
def test_common_headers_are_recognised(
    header: tuple[str, str, str], order: tuple[int, int, int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert is_header(header)
    file = write_rows(tmp_path / "a.csv", [header, *ROWS], ",")
    graph = open_graph(file)
    assert graph.names(graph.train[0]) == tuple(ROWS[0][i] for i in order)
    assert len(graph.train) == len(ROWS)
    assert warnings(caplog, file) == []


def test_inconsistent_column_names_are_not_a_header() -> None:
    for names in (("head", "relation", "object"), ("from", "knows", "to"), ("a", "type", "b"), ("h", "r", "r")):
        assert not is_header(names)


def test_a_first_line_that_looks_like_a_header_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a.tsv", "train.txt"):
        file = write_rows(tmp_path / name, [("person", "verb", "thing"), *ROWS])
        assert len(open_graph(file).train) == len(ROWS) + 1
        [message] = warnings(caplog, file)
        assert "the first line of train ('person', 'verb', 'thing') looks like a header" in message
    assert len(warnings(caplog, tmp_path)) == 1
    for first in (("a3", "verb", "thing"), ("person", "r1", "thing"), ("person", "verb", "b7"), ("b2", "verb", "a4")):
        assert warnings(caplog, write_rows(tmp_path / "a.tsv", [first, *ROWS])) == []
    # each relation occurs only once, so a first line with unique names is not suspicious
    assert warnings(caplog, write_rows(tmp_path / "a.tsv", [(f"a{i}", f"r{i}", f"b{i}") for i in range(30)])) == []
    assert warnings(caplog, write_rows(tmp_path / "a.tsv", [("person", "verb", "thing"), *ROWS[:3]])) == []
    with_header = [("head", "relation", "tail"), ("person", "verb", "thing"), *ROWS]
    assert warnings(caplog, write_rows(tmp_path / "a.tsv", with_header)) == []


def test_no_benchmark_triggers_the_header_warning(caplog: pytest.LogCaptureFixture) -> None:
    names = available_names()
    if not names:
        pytest.skip("PLOGICNET_DATA is not set to a directory with data sets")
    with caplog.at_level(logging.WARNING, "plogicnet"):
        for name in names:
            open_graph(name)
    assert not [record for record in caplog.records if "header" in record.getMessage()]


class CountedRow(list[str]):
    """A row that counts the living instances and their maximum."""

    alive = max_alive = 0

    def __init__(self, names: list[str]) -> None:
        super().__init__(names)
        CountedRow.alive += 1
        CountedRow.max_alive = max(CountedRow.max_alive, CountedRow.alive)

    def __del__(self) -> None:
        CountedRow.alive -= 1


@pytest.mark.parametrize(("rows", "length"), [(200_000, 2), (300, 100_000)], ids=["tiny", "long"])
def test_rows_that_are_read_in_python_are_released(
    rows: int, length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both the number of rows and their total length are limited."""
    (tmp_path / "a.jsonl").write_bytes(b"x" * 1_000_000)
    monkeypatch.setattr(CountedRow, "alive", 0)
    monkeypatch.setattr(CountedRow, "max_alive", 0)

    def read() -> Iterator[CountedRow]:
        for i in range(rows):
            yield CountedRow([str(i % 7) * length, "r", str(i % 5) * length])

    table = readers._to_columns(tmp_path / "a.jsonl", read())
    assert 0 < CountedRow.max_alive <= min(readers.CHUNK_ROWS, unpacking.BLOCK_BYTES // length) + 2
    assert table.num_rows == rows
    assert table.nbytes < 12 * rows + 20_000 + 25 * length * (rows * length // unpacking.BLOCK_BYTES + 1)
    assert table["head"][rows - 1].as_py() == str((rows - 1) % 7) * length


def test_chunks_lose_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "CHUNK_ROWS", 3)
    for count in range(8):
        lines = (f'{{"h": "a{i}", "r": "r", "t": "b{i}"}}\n' for i in range(count))
        (tmp_path / "a.jsonl").write_text("".join(lines))
        table = read_triple_table(tmp_path / "a.jsonl").table
        assert table["tail"].to_pylist() == [f"b{i}" for i in range(count)]
    (tmp_path / "a.jsonl").write_text("".join(itertools.repeat('{"h": "a", "r": "r", "t": "b"}\n', 7)) + '{"h": ""}')
    with pytest.raises(InputError, match=r"line 8: expected a JSON object .*, but head is missing"):
        read_triple_table(tmp_path / "a.jsonl")
    (tmp_path / "a.nt").write_text("<urn:a> <urn:r> <urn:b> .\n" * 4 + "<urn:a> <urn:r> <urn:plogicnet:> .\n")
    pytest.importorskip("pyoxigraph")
    with pytest.raises(InputError, match="row 5: the tail is empty"):
        read_triple_table(tmp_path / "a.nt")


def test_a_query_without_a_line_number_is_reported_by_its_row(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"\ra\tr\tb\n")
    with pytest.raises(InputError, match=r"a\.tsv, row 1: no part is missing"):
        read_queries(tmp_path / "a.tsv", KnowledgeGraph.from_names([("a", "r", "b")]))
