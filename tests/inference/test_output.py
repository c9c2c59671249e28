"""Files of predictions: every format can be read again, with any names, and rows are written without delay."""

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
from plogicnet.inference.fitted import PredictionBatch
from plogicnet.inference.output import (
    COLUMNS,
    FORMATS,
    TRIPLE,
    open_table_writer,
    prediction_table,
    resolve_format,
    triple_table,
    write_array,
    write_vectors,
)
from plogicnet.support.errors import InputError

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=8)
FILES = [f"out{suffix}{gz}" for suffix in FORMATS for gz in ("", ".gz") if FORMATS[suffix] != "parquet" or not gz]


@st.composite
def graphs_with_predictions(draw: st.DrawFn) -> tuple[KnowledgeGraph, PredictionBatch]:
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
    return graph, PredictionBatch(as_triples(rows), p, q, q, odds, base, reached, known, held_out, forbidden)


def write_tables(file: Path, tables: list[pa.Table], columns: tuple[str, ...] = tuple(COLUMNS)) -> None:
    with open_table_writer(file, columns) as write:
        for table in tables:
            write(table)


def read_back(file: Path) -> list[dict[str, object]]:
    """Read a file with other libraries."""
    if file.suffix in (".parquet", ".pq"):
        return list(pq.read_table(file).to_pylist())
    content = (gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()).decode()
    if resolve_format(file) == "jsonl":
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
        parse_options=csv.ParseOptions(
            delimiter="," if resolve_format(file) == "csv" else "\t", newlines_in_values=True
        ),
        convert_options=csv.ConvertOptions(column_types=types, strings_can_be_null=False),
    )
    return [row | {"held_out": row.get("held_out") or None} for row in table.to_pylist()]


def triples_in(graph: KnowledgeGraph, file: Path) -> list[list[int]]:
    found: IntArray = read_triples(file, graph)
    return [[int(x) for x in row] for row in found]


@pytest.mark.parametrize("name", [name for name in FILES if ".nt" not in name])
@given(graphs_with_predictions(), st.integers(1, 4), st.booleans())
@settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))
def test_every_format_can_be_read_again(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    case: tuple[KnowledgeGraph, PredictionBatch],
    step: int,
    with_query: bool,
) -> None:
    graph, batch = case
    file = tmp_path_factory.mktemp("out") / name
    query = np.arange(len(batch)) // 2
    columns = (*COLUMNS, *(["query"] if with_query else []))
    chunks = [np.arange(start, min(start + step, len(batch))) for start in range(0, len(batch), step)]
    tables = [prediction_table(batch.take(rows), graph, query[rows] if with_query else None) for rows in chunks]
    write_tables(file, tables, columns)
    rows = [row for table in tables for row in table.to_pylist()]
    got = read_back(file)
    assert len(got) == len(rows)
    for a, b in zip(got, rows, strict=True):
        assert list(a) == list(columns)
        assert {k: v for k, v in a.items() if v is not None} == {k: v for k, v in b.items() if v is not None}
    assert triples_in(graph, file) == batch.triples.tolist()


@given(graphs_with_predictions())
@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
def test_written_triples_can_be_read_as_triples(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[KnowledgeGraph, PredictionBatch]
) -> None:
    graph, batch = case
    folder = tmp_path_factory.mktemp("out")
    for name in ("a.tsv", "a.csv", "a.jsonl", "a.parquet"):
        write_tables(folder / name, [prediction_table(batch, graph)])
        assert triples_in(graph, folder / name) == batch.triples.tolist(), name


@pytest.mark.parametrize("name", ["out.nt", "out.nt.gz"])
def test_n_triples_can_be_read_again(tmp_path: Path, name: str) -> None:
    pytest.importorskip("pyoxigraph")
    graph = KnowledgeGraph.from_names([("http://a/b", "is a", '5" disk'), ("ü\n", "is a", "http://a/b")])
    write_tables(tmp_path / name, [triple_table(graph, graph.train)], tuple(TRIPLE))
    again = open_graph(tmp_path / name)
    assert [again.names(t) for t in again.train] == [graph.names(t) for t in graph.train]


def constant_batch(n: int) -> tuple[KnowledgeGraph, PredictionBatch]:
    graph = KnowledgeGraph.from_names([("a", "r", "b")])
    half, no = np.full(n, 0.5), np.zeros(n, dtype=bool)
    return graph, PredictionBatch(
        as_triples([(0, 0, 1)] * n), half, half, half, half, half, no, no, no.astype(np.int64), no
    )


def test_row_groups_are_written_as_they_fill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffer at most one row group, for any number of small tables."""
    monkeypatch.setattr(output, "ROW_GROUP", 100)
    graph, batch = constant_batch(7)
    table, buffered, file = prediction_table(batch, graph), [], tmp_path / "out.parquet"
    before = pa.total_allocated_bytes()
    with open_table_writer(file) as write:
        for _ in range(1000):
            write(table)
            buffered.append(pa.total_allocated_bytes() - before)
    groups = pq.ParquetFile(file).metadata
    sizes = [groups.row_group(i).num_rows for i in range(groups.num_row_groups)]
    assert sum(sizes) == 7000
    assert set(sizes[:-1]) == {100}
    assert max(buffered[500:]) < 2 * max(buffered[:100]), "memory must not grow"


@pytest.mark.parametrize("name", ["out.tsv", "out.csv", "out.jsonl"])
def test_text_is_written_without_buffering(tmp_path: Path, name: str) -> None:
    graph, batch = constant_batch(5000)
    table, sizes = prediction_table(batch, graph), []
    with open_table_writer(tmp_path / name) as write:
        for _ in range(5):
            write(table)
            sizes.append(sum(p.stat().st_size for p in tmp_path.rglob(name)))
    assert all(math.isclose(b - a, sizes[-1] / 5, rel_tol=0.2) for a, b in pairwise(sizes))


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    graph, batch = constant_batch(3)
    file = tmp_path / "out.tsv"
    file.write_text("before")
    with pytest.raises(RuntimeError), open_table_writer(file) as write:  # noqa: PT012
        write(prediction_table(batch, graph))
        raise RuntimeError
    assert file.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["out.tsv"]


def test_no_predictions_give_an_empty_table(tmp_path: Path) -> None:
    for name in ("out.tsv", "out.csv", "out.jsonl", "out.parquet"):
        write_tables(tmp_path / name, [])
        assert read_back(tmp_path / name) == []
    assert (tmp_path / "out.tsv").read_text().split() == list(COLUMNS)


@pytest.mark.parametrize(
    ("file", "name", "message"),
    [
        ("out.xlsx", None, "out.xlsx: unknown file format"),
        ("out", None, "unknown file format"),
        ("out.gz", None, "unknown file format"),
        ("out.tsv", "excel", "--format must be one of csv, jsonl, nt, parquet, tsv, got 'excel'"),
        ("out.parquet.gz", None, "Remove .gz from the name"),
        ("out.gz", "parquet", "Remove .gz from the name"),
    ],
)
def test_invalid_formats_are_rejected(file: str, name: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message.replace(".", r"\.")):
        resolve_format(Path(file), name)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write the file"), open_table_writer(tmp_path / "nowhere" / "out.tsv"):
        pass


@given(st.lists(NAMES, unique=True, min_size=1, max_size=5), st.data())
@settings(deadline=None, max_examples=30, suppress_health_check=list(HealthCheck))
def test_vectors_are_written_bitwise(
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
