"""Predictions in files: every format reads back equal, whatever the names; nothing waits that could be written."""

import gzip
import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import csv

from plogicnet.graph import IntArray, KnowledgeGraph, Vocabulary, as_triples, open_graph, read_triples
from plogicnet.inference import output
from plogicnet.inference.fitted import Judged
from plogicnet.inference.output import (
    COLUMNS,
    KINDS,
    TRIPLE,
    kind_of,
    table_of,
    triples_of,
    write_array,
    write_vectors,
    writing,
)
from plogicnet.support.errors import InputError

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=8)
FILES = [f"out{ending}{gz}" for ending in KINDS for gz in ("", ".gz") if KINDS[ending] != "parquet" or not gz]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[KnowledgeGraph, Judged]:
    entities = draw(st.lists(NAMES, unique=True, min_size=1, max_size=5))
    relations = draw(st.lists(NAMES, unique=True, min_size=1, max_size=3))
    nothing, e, r = as_triples([]), len(entities), len(relations)
    graph = KnowledgeGraph(
        "odd", Vocabulary("entity", tuple(entities)), Vocabulary("relation", tuple(relations)), nothing
    )
    rows = draw(st.lists(st.tuples(st.integers(0, e - 1), st.integers(0, r - 1), st.integers(0, e - 1)), max_size=9))
    n = len(rows)
    numbers = st.lists(st.floats(-50, 50), min_size=n, max_size=n)
    marks = st.lists(st.booleans(), min_size=n, max_size=n)
    floats = [np.array(draw(numbers), dtype=np.float64) for _ in range(4)]
    bools = [np.array(draw(marks), dtype=bool) for _ in range(3)]
    p, q, odds, base = floats
    if draw(st.booleans()):
        q[:] = np.nan
    reached, known, forbidden = bools
    held_out = np.array(draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)), dtype=np.int64)
    return graph, Judged(as_triples(rows), p, q, q, odds, base, reached, known, held_out, forbidden)


def written(file: Path, tables: list[pa.Table], columns: tuple[str, ...] = tuple(COLUMNS)) -> None:
    with writing(file, columns) as write:
        for table in tables:
            write(table)


def read_back(file: Path) -> list[dict[str, object]]:
    """By other means than ours."""
    if file.suffix in (".parquet", ".pq"):
        return list(pq.read_table(file).to_pylist())
    content = (gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()).decode()
    if kind_of(file) == "jsonl":
        return [json.loads(line) for line in content.split("\n")[:-1]]
    types = {"head": pa.string(), "relation": pa.string(), "tail": pa.string(), "known": pa.bool_()}
    types |= {
        "in_hidden": pa.bool_(),
        "held_out": pa.string(),
        **dict.fromkeys(("probability", "q", "p_w"), pa.float64()),
        "query": pa.int64(),
    }
    table = csv.read_csv(
        pa.BufferReader(content.encode()),
        parse_options=csv.ParseOptions(delimiter="," if kind_of(file) == "csv" else "\t", newlines_in_values=True),
        convert_options=csv.ConvertOptions(column_types=types, strings_can_be_null=False),
    )
    return [row | {"held_out": row.get("held_out") or None} for row in table.to_pylist()]


def triples_in(graph: KnowledgeGraph, file: Path) -> list[list[int]]:
    found: IntArray = read_triples(file, graph)
    return [[int(x) for x in row] for row in found]


@pytest.mark.parametrize("name", [name for name in FILES if ".nt" not in name])
@given(worlds(), st.integers(1, 4), st.booleans())
@settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))
def test_every_format_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, name: str, world: tuple[KnowledgeGraph, Judged], step: int, asked: bool
) -> None:
    graph, judged = world
    file = tmp_path_factory.mktemp("out") / name
    query = np.arange(len(judged)) // 2
    columns = (*COLUMNS, *(["query"] if asked else []))
    pieces = [np.arange(start, min(start + step, len(judged))) for start in range(0, len(judged), step)]
    tables = [table_of(judged.take(rows), graph, query[rows] if asked else None) for rows in pieces]
    written(file, tables, columns)
    rows = [row for table in tables for row in table.to_pylist()]
    got = read_back(file)
    assert len(got) == len(rows)
    for a, b in zip(got, rows, strict=True):
        assert list(a) == list(columns)
        assert {k: v for k, v in a.items() if v is not None} == {k: v for k, v in b.items() if v is not None}
    assert triples_in(graph, file) == judged.triples.tolist()


@given(worlds())
@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
def test_what_is_written_is_judged_again_whatever_the_names(
    tmp_path_factory: pytest.TempPathFactory, world: tuple[KnowledgeGraph, Judged]
) -> None:
    graph, judged = world
    folder = tmp_path_factory.mktemp("out")
    for name in ("a.tsv", "a.csv", "a.jsonl", "a.parquet"):
        written(folder / name, [table_of(judged, graph)])
        assert triples_in(graph, folder / name) == judged.triples.tolist(), name


@pytest.mark.parametrize("name", ["out.nt", "out.nt.gz"])
def test_n_triples_read_back(tmp_path: Path, name: str) -> None:
    pytest.importorskip("pyoxigraph")
    graph = KnowledgeGraph.from_names([("http://a/b", "is a", '5" disk'), ("ü\n", "is a", "http://a/b")])
    written(tmp_path / name, [triples_of(graph, graph.train)], tuple(TRIPLE))
    again = open_graph(tmp_path / name)
    assert [again.names(t) for t in again.train] == [graph.names(t) for t in graph.train]


def judged_rows(n: int) -> tuple[KnowledgeGraph, Judged]:
    graph = KnowledgeGraph.from_names([("a", "r", "b")])
    half, no = np.full(n, 0.5), np.zeros(n, dtype=bool)
    return graph, Judged(as_triples([(0, 0, 1)] * n), half, half, half, half, half, no, no, no.astype(np.int64), no)


def test_row_groups_are_written_as_they_fill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many small pieces come, no more than a row group of them waits."""
    monkeypatch.setattr(output, "ROW_GROUP", 100)
    graph, judged = judged_rows(7)
    table, waiting, file = table_of(judged, graph), [], tmp_path / "out.parquet"
    before = pa.total_allocated_bytes()
    with writing(file) as write:
        for _ in range(1000):
            write(table)
            waiting.append(pa.total_allocated_bytes() - before)
    groups = pq.ParquetFile(file).metadata
    sizes = [groups.row_group(i).num_rows for i in range(groups.num_row_groups)]
    assert sum(sizes) == 7000
    assert set(sizes[:-1]) == {100}
    assert max(waiting[500:]) < 2 * max(waiting[:100]), "as much waits at the end as at the beginning"


@pytest.mark.parametrize("name", ["out.tsv", "out.csv", "out.jsonl"])
def test_text_is_written_at_once(tmp_path: Path, name: str) -> None:
    graph, judged = judged_rows(5000)
    table, sizes = table_of(judged, graph), []
    with writing(tmp_path / name) as write:
        for _ in range(5):
            write(table)
            sizes.append(sum(p.stat().st_size for p in tmp_path.rglob(name)))
    assert all(math.isclose(b - a, sizes[-1] / 5, rel_tol=0.2) for a, b in pairwise(sizes))


def test_a_file_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    graph, judged = judged_rows(3)
    file = tmp_path / "out.tsv"
    file.write_text("before")
    with pytest.raises(RuntimeError), writing(file) as write:  # noqa: PT012
        write(table_of(judged, graph))
        raise RuntimeError
    assert file.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["out.tsv"]


def test_nothing_found_is_an_empty_table(tmp_path: Path) -> None:
    for name in ("out.tsv", "out.csv", "out.jsonl", "out.parquet"):
        written(tmp_path / name, [])
        assert read_back(tmp_path / name) == []
    assert (tmp_path / "out.tsv").read_text().split() == list(COLUMNS)


@pytest.mark.parametrize(
    ("file", "named", "message"),
    [
        ("out.xlsx", None, "out.xlsx: its ending names no format"),
        ("out", None, "its ending names no format"),
        ("out.gz", None, "its ending names no format"),
        ("out.tsv", "excel", "format: 'excel' is not allowed; one of csv, jsonl, nt, parquet, tsv"),
        ("out.parquet.gz", None, "leave .gz out"),
        ("out.gz", "parquet", "leave .gz out"),
    ],
)
def test_a_format_that_is_none(file: str, named: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message.replace(".", r"\.")):
        kind_of(Path(file), named)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"), writing(tmp_path / "nowhere" / "out.tsv"):
        pass


@given(st.lists(NAMES, unique=True, min_size=1, max_size=5), st.data())
@settings(deadline=None, max_examples=30, suppress_health_check=list(HealthCheck))
def test_vectors_read_back_to_the_bit(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("vectors")
    values = data.draw(st.lists(st.floats(width=32, allow_nan=False), min_size=3 * len(names), max_size=3 * len(names)))
    vectors = np.array(values, dtype=np.float32).reshape(-1, 3)
    write_array(vectors, folder / "entities.npy")
    write_vectors(vectors, names, folder / "entities.tsv")
    np.testing.assert_array_equal(np.load(folder / "entities.npy"), vectors)
    columns = ["name", "0", "1", "2"]
    table = csv.read_csv(
        folder / "entities.tsv",
        read_options=csv.ReadOptions(column_names=columns),
        parse_options=csv.ParseOptions(delimiter="\t", newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types={"name": pa.string()} | dict.fromkeys(columns[1:], pa.float32()), strings_can_be_null=False
        ),
    )
    assert table["name"].to_pylist() == names
    np.testing.assert_array_equal(np.stack([table[c].to_numpy() for c in columns[1:]], axis=1), vectors)
