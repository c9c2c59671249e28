"""Readers and writers: round trips, formats, and errors with file and line."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet.graph import SPLITS, KnowledgeGraph, make_graph, open_graph, write_graph
from plogicnet.graph.io.readers import read_triple_table, to_triple_table
from plogicnet.support.errors import InputError

# any text in UTF-8, and characters with a special meaning in some format
NAMES = st.one_of(
    st.text(min_size=1, max_size=8),
    st.text(alphabet="ab\"\t\n\r,; .%<>\\#'", min_size=1, max_size=6),
    st.sampled_from(
        ['"', '""', "head", "relation", "h", "#", "http://x.org/a", "urn:plogicnet:a", "_:b0", " ", "﻿", "\0"]
    ),
)
TRIPLES = st.lists(st.tuples(NAMES, NAMES, NAMES), min_size=1, max_size=6, unique=True)
Names = list[tuple[str, str, str]]


def named_triples(graph: KnowledgeGraph) -> dict[str, Names]:
    return {split: [graph.names(t) for t in graph.split(split)] for split in SPLITS}


def rows(table: pa.Table) -> Names:
    return list(zip(*(table[c].to_pylist() for c in ("head", "relation", "tail")), strict=True))


@pytest.mark.parametrize("kind", ["tsv", "csv", "parquet", "nt"])
@settings(max_examples=75, deadline=None)
@given(train=TRIPLES, valid=TRIPLES, test=TRIPLES)
def test_every_format_round_trips(
    kind: str, train: Names, valid: Names, test: Names, tmp_path_factory: pytest.TempPathFactory
) -> None:
    graph = KnowledgeGraph.from_names(train, valid, test)
    folder = tmp_path_factory.mktemp("graph")
    files = write_graph(graph, folder, kind)
    assert {f.name for f in files} == {p.name for p in folder.iterdir()}
    assert named_triples(open_graph(folder)) == named_triples(graph)


@settings(max_examples=100, deadline=None)
@given(train=TRIPLES)
def test_frames_arrays_and_rows_make_the_same_graph(train: Names) -> None:
    expected = named_triples(KnowledgeGraph.from_names(train))
    columns = {c: [t[i] for t in train] for i, c in enumerate(("head", "relation", "tail"))}
    frames = (pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns), np.array(train, dtype=object), train)
    for data in frames:
        assert named_triples(make_graph(data)) == expected


def test_frame_columns_are_selected_by_name_and_numbers_become_names() -> None:
    frame = pd.DataFrame({"t": [3], "weight": [0.5], "h": [1], "r": ["next"]})
    assert rows(to_triple_table(frame).table) == [("1", "next", "3")]
    with pytest.raises(InputError, match="expected columns head, relation, tail"):
        to_triple_table(pd.DataFrame({"a": ["x"], "b": ["y"]}), "frame")
    with pytest.raises(InputError, match="frame, row 2: the tail is missing"):
        to_triple_table(pd.DataFrame({"head": ["a", "b"], "relation": ["r", "r"], "tail": ["c", None]}), "frame")
    with pytest.raises(InputError, match="expected rows of three names"):
        to_triple_table(np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", b"a\tr\tb\n", [("a", "r", "b")]),
        ("a.txt", b"\xef\xbb\xbfa\tr\tb\r\nc\tr\td\r\n", [("a", "r", "b"), ("c", "r", "d")]),
        ("a.txt", b"a\tr\tb\n\n\nc\tr\td", [("a", "r", "b"), ("c", "r", "d")]),
        ("a.txt", b"a,r,b\n", [("a", "r", "b")]),
        ("a.txt", b"a r b\n", [("a", "r", "b")]),
        ("a.csv", b"a;r;b\n", [("a", "r", "b")]),
        ("a.csv", b'"a, b",r,"c ""d"""\n', [("a, b", "r", 'c "d"')]),
        ("a.csv", b"subject,predicate,object\na,r,b\n", [("a", "r", "b")]),
        ("a.csv", b"head,tail,relation\na,b,r\n", [("a", "r", "b")]),
        ("a.tsv", b"\n\nhead\trelation\ttail\na\tr\tb\n", [("a", "r", "b")]),
        ("a.tsv", b'"a\tb"\tr\t"c\nd"\n', [("a\tb", "r", "c\nd")]),
        ("a.tsv", b'"Weird" Al\tr\t"b"\n', [('"Weird" Al', "r", '"b"')]),
        ("a.tsv", b"x, y\tr\tz\n", [("x, y", "r", "z")]),
        ("a.tsv", b"NULL\tNA\t#\n", [("NULL", "NA", "#")]),
        ("a.nt", b'<urn:a> <urn:r> <urn:b> .\n<urn:a> <urn:r> "literal" .\n', [("urn:a", "urn:r", "urn:b")]),
        (
            "a.ttl",
            b"@prefix x: <urn:x:> . x:a x:r x:b, x:c .",
            [("urn:x:a", "urn:x:r", "urn:x:b"), ("urn:x:a", "urn:x:r", "urn:x:c")],
        ),
    ],
)
def test_common_layouts_of_triples_are_read(tmp_path: Path, name: str, content: bytes, expected: Names) -> None:
    (tmp_path / name).write_bytes(content)
    assert rows(read_triple_table(tmp_path / name).table) == expected
    zipped = tmp_path / (name + ".gz")
    zipped.write_bytes(gzip.compress(content))
    assert rows(read_triple_table(zipped).table) == expected


@pytest.mark.parametrize("kind", ["tsv", "csv", "parquet", "nt"])
def test_a_triple_that_looks_like_a_header_round_trips(tmp_path: Path, kind: str) -> None:
    graph = KnowledgeGraph.from_names([("head", "relation", "tail"), ("h", "r", "t")])
    write_graph(graph, tmp_path, kind)
    assert named_triples(open_graph(tmp_path)) == named_triples(graph)


def test_columns_are_selected_only_by_complete_sets_of_names() -> None:
    columns = {"subject": ["a"], "predicate": ["r"], "object": ["b"], "source": ["wiki"]}
    assert rows(to_triple_table(pa.table(columns)).table) == [("a", "r", "b")]
    for names in (("tail", "rel_type", "head"), ("head", "tail", "label")):
        with pytest.raises(InputError, match="expected columns head, relation, tail"):
            to_triple_table(pa.table({name: ["x"] for name in names}))
    assert rows(to_triple_table(pa.table({"a": ["x"], "b": ["r"], "c": ["y"]})).table) == [("x", "r", "y")]


def test_an_existing_graph_is_not_overwritten(tmp_path: Path) -> None:
    graph = KnowledgeGraph.from_names([("a", "r", "b")])
    write_graph(graph, tmp_path, "csv")
    with pytest.raises(InputError, match=r"already contains a graph \(train\.csv\)"):
        write_graph(graph, tmp_path, "tsv")


def test_column_order_is_configurable_and_literals_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\tb\tr\n")
    assert rows(read_triple_table(tmp_path / "a.txt", "htr").table) == [("a", "r", "b")]
    with pytest.raises(InputError, match="columns must be one of hrt, htr, got 'rht'"):
        read_triple_table(tmp_path / "a.txt", "rht")
    (tmp_path / "a.nt").write_text('<urn:a> <urn:r> "x" .\n<urn:a> <urn:r> <urn:b> .\n')
    assert read_triple_table(tmp_path / "a.nt").n_literals == 1


@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=60), ending=st.sampled_from([".txt", ".csv", ".tsv.gz", ".parquet", ".nt", ".ttl"]))
def test_any_bytes_are_read_or_raise_an_input_error(
    content: bytes, ending: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("bytes") / ("a" + ending)
    file.write_bytes(content)
    message, read = "", []
    try:
        read = rows(read_triple_table(file).table)
    except InputError as error:
        message = str(error)
    assert str(file) in message or not message
    assert all(all(row) for row in read)


def test_endings_in_upper_case_are_recognised(tmp_path: Path) -> None:
    (tmp_path / "A.TSV.GZ").write_bytes(gzip.compress(b"anna\tknows\tben\n"))
    assert read_triple_table(tmp_path / "A.TSV.GZ").table["tail"].to_pylist() == ["ben"]
