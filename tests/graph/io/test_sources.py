"""Reading graphs from files and directories, with unusual names and invalid content."""

import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from plogicnet.graph import KnowledgeGraph, open_graph, read_triples
from plogicnet.support.errors import InputError
from reference import odd_names

Row = tuple[str, str, str]
ROWS: list[Row] = [
    ("anna", "knows", "ben"),
    ("Zoë", "lives in", "北京"),
    ('the "old" town', "it's", " leading and trailing "),
    ("a, b; c", "#1", "\\N"),
    ("NA", "null", "nan"),
    ("'quoted'", '"', "x,y"),
    ("007", "1.0", "7"),
]


def write(path: Path, rows: list[Row], end: str = "\n") -> Path:
    data = "".join("\t".join(row) + end for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def named(graph: KnowledgeGraph, split: str) -> list[Row]:
    return [graph.names(row) for row in graph.split(split)]


@pytest.mark.parametrize("suffix", [".txt", ".tsv", ".txt.gz", ".tsv.gz"])
def test_a_directory_is_read_with_its_splits(tmp_path: Path, suffix: str) -> None:
    for split, rows in (("train", ROWS[:4] + ROWS[1:2]), ("valid", ROWS[4:5] * 3), ("test", ROWS[5:])):
        write(tmp_path / (split + suffix), rows)
    graph = open_graph(tmp_path)
    assert graph.name == tmp_path.name
    assert [named(graph, s) for s in ("train", "valid", "test")] == [ROWS[:4], ROWS[4:5], ROWS[5:]]
    assert graph.duplicates == 3
    assert graph.statistics()["unseen_entities"] == {"valid": 2, "test": 4}


@pytest.mark.parametrize("file", ["family.tsv", "family.tsv.gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_single_file_becomes_train(tmp_path: Path, file: str, end: str) -> None:
    graph = open_graph(str(write(tmp_path / file, ROWS, end)))
    assert (graph.name, named(graph, "train")) == ("family", ROWS)
    assert len(graph.valid) == len(graph.test) == 0


def test_valid_and_test_can_be_missing_or_empty(tmp_path: Path) -> None:
    write(tmp_path / "train.txt", ROWS)
    write(tmp_path / "test.txt", [])
    graph = open_graph(tmp_path)
    assert (len(graph.train), len(graph.valid), len(graph.test)) == (len(ROWS), 0, 0)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(odd_names(), odd_names(), odd_names()), min_size=1, max_size=6))
@example([("\ufeff", "\u2028", "\x85")])
def test_any_name_is_read_unchanged(tmp_path: Path, rows: list[Row]) -> None:
    # with an unclosed quote, all quotes of a TSV file are parts of names
    rows = [*rows, ('"a', "r", "b")]
    write(tmp_path / "train.tsv", [("first", "line", "here"), *rows])
    graph = open_graph(tmp_path)
    assert named(graph, "train") == list(dict.fromkeys([("first", "line", "here"), *rows]))


@pytest.mark.parametrize(
    "text", ["a\tr\tb\na\tr\n", "a\tr\tb\tc\n", "a-r-b\n", "a\tr\tb\nc\tr\td\te\n"], ids=["2", "4", "1", "3 then 4"]
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_wrong_number_of_columns_raises_with_the_line(tmp_path: Path, text: str, suffix: str) -> None:
    write(tmp_path / "train.tsv", ROWS)
    bad = tmp_path / f"valid.tsv{suffix}"
    bad.write_bytes(gzip.compress(text.encode()) if suffix else text.encode())
    with pytest.raises(InputError, match=r"valid\.tsv.*, line [12]: expected three columns .* found . columns?"):
        open_graph(tmp_path)


@pytest.mark.parametrize("data", [b"a\tr\tb\xff\n", b"\x1f\x8b broken"], ids=["not UTF-8", "not gzip"])
def test_an_invalid_file_is_named_in_the_message(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / ("train.txt.gz" if b"broken" in data else "train.txt")
    file.write_bytes(data)
    with pytest.raises(InputError, match=r"train\.txt"):
        open_graph(tmp_path)


def test_a_truncated_gzip_file_is_named_in_the_message(tmp_path: Path) -> None:
    data = gzip.compress("".join(f"e{i}\tr\te{i * 7919 % 1000}\n" for i in range(1_000)).encode())
    (tmp_path / "train.txt.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=r"train\.txt\.gz"):
        open_graph(tmp_path)


def test_a_graph_without_training_triples_raises(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no train file"):
        open_graph(tmp_path)
    write(tmp_path / "train.txt", [])
    with pytest.raises(InputError, match="no triple"):
        open_graph(tmp_path)


def test_read_triples(tmp_path: Path) -> None:
    graph = KnowledgeGraph.from_names(ROWS)
    names = [ROWS[2], (ROWS[0][0], ROWS[1][1], ROWS[0][0])]
    triples = read_triples(write(tmp_path / "triples.tsv", names), graph)
    assert [graph.names(row) for row in triples] == names
    assert read_triples(write(tmp_path / "empty.tsv", []), graph).shape == (0, 3)
    with pytest.raises(InputError, match=r"unknown entity 'ana'.*'anna'"):
        read_triples(write(tmp_path / "triples.tsv", [("ana", "knows", "ben")]), graph)
    with pytest.raises(InputError, match=r"missing\.tsv"):
        read_triples(tmp_path / "missing.tsv", graph)


def test_other_files_of_triples_in_the_directory_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "train.txt").write_text("anna\tknows\tben\n")
    (tmp_path / "facts.txt").write_text("ben\tknows\tcarl\n")
    (tmp_path / "more.csv").write_text("ben,knows,dora\n")
    (tmp_path / "labels.tsv").write_text("ben\tBen, a friend, and a brother\n")
    (tmp_path / "README.txt").write_text("These are facts about people, some of them invented, from 2024.\n")
    graph = open_graph(tmp_path)
    assert len(graph.train) == 1
    assert f"{tmp_path}: only train, valid and test files are read, not facts.txt, more.csv. To train" in caplog.text
