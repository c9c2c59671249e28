"""Files of queries and of triples to judge: every format, and what is wrong said with file, line and column."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plogicnet.graph import OPEN, KnowledgeGraph, read_queries, read_triples
from plogicnet.support.errors import InputError

GRAPH = KnowledgeGraph.from_names([("anna", "knows", "ben"), ("ben", "likes", '5" disk'), ("a,b", "knows", "c\td")])
ROWS = [("anna", "knows", None), (None, "likes", "ben"), ("a,b", None, "c\td"), ('5" disk', "likes", None)]
EXPECTED = [[0, 0, OPEN], [OPEN, 1, 1], [3, OPEN, 4], [2, 1, OPEN]]


def text(rows: Sequence[Sequence[str | None]], delimiter: str, gap: str) -> str:
    cells = [["".join(['"', c.replace('"', '""'), '"']) if c else gap for c in row] for row in rows]
    return "".join(delimiter.join(row) + "\n" for row in cells)


@pytest.mark.parametrize("gap", ["", "?"])
@pytest.mark.parametrize("header", [False, True])
@pytest.mark.parametrize(("ending", "delimiter"), [(".tsv", "\t"), (".csv", ","), (".csv", ";"), (".txt", "\t")])
@pytest.mark.parametrize("zipped", [False, True])
def test_queries_as_text(tmp_path: Path, ending: str, delimiter: str, gap: str, header: bool, zipped: bool) -> None:
    content = text(ROWS, delimiter, gap)
    if header:
        content = delimiter.join(("head", "relation", "tail")) + "\n" + content
    file = tmp_path / f"queries{ending}{'.gz' if zipped else ''}"
    file.write_bytes(gzip.compress(content.encode()) if zipped else content.encode())
    assert read_queries(file, GRAPH).tolist() == EXPECTED


@pytest.mark.parametrize("gap", ["", "?", None])
def test_queries_as_parquet_and_json_lines(tmp_path: Path, gap: str | None) -> None:
    rows = [{"tail": t or gap, "head": h or gap, "note": 1, "relation": r or gap} for h, r, t in ROWS]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "queries.parquet")
    (tmp_path / "queries.jsonl").write_text("\n\n".join(json.dumps(row) for row in rows))
    for name in ("queries.parquet", "queries.jsonl"):
        assert read_queries(tmp_path / name, GRAPH).tolist() == EXPECTED


def test_in_a_graph_with_a_question_mark_only_nothing_is_open(tmp_path: Path) -> None:
    graph = KnowledgeGraph.from_names([("?", "knows", "ben")])
    file = tmp_path / "queries.tsv"
    file.write_text("?\tknows\t\n\tknows\t?\n")
    assert read_queries(file, graph).tolist() == [[0, 0, OPEN], [OPEN, 0, 0]]


def test_of_a_file_with_gaps_the_short_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "queries.tsv"
    file.write_text("anna\tknows\t\nanna\tknows\n")
    with pytest.raises(InputError, match="line 2: 2 columns"):
        read_queries(file, GRAPH)


def test_further_columns_are_passed_over_where_there_is_a_header(tmp_path: Path) -> None:
    file = tmp_path / "judged.tsv"
    file.write_text('probability\thead\trelation\ttail\tq\n0.5\tanna\tknows\tben\t\n0.1\t"5"" disk"\tlikes\tben\t1\n')
    assert read_triples(file, GRAPH).tolist() == [[0, 0, 1], [2, 1, 1]]
    file = tmp_path / "judged.csv"
    file.write_text("s,Subject,Predicate,Object\n1,anna,knows,ben\n")
    assert read_triples(file, GRAPH).tolist() == [[0, 0, 1]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.tsv", "anna\tknows\t?\n\nanna\tknows\tben\n", "q.tsv, line 3: no part is open (--triples judges"),
        ("q.tsv", "?\tknows\t\n", "q.tsv, line 1: head and tail are open; write ? for one of"),
        ("q.tsv", "head\trelation\ttail\n\t\tben\n", "q.tsv, line 2: head and relation are open"),
        ("q.csv", "anna,knows,?\nannna,knows,?\n", "q.csv, line 2, column head: unknown entity 'annna'. Did you mean"),
        ("q.csv", "tail,head,relation\n,anna,knwos\n", "q.csv, line 2, column relation: unknown relation 'knwos'. Did"),
        ("q.tsv", "anna\tknows\n", "q.tsv, line 1: 2 columns where three are meant"),
        ("q.tsv", "anna\tknows\t?\tb\n", "q.tsv, line 1: 4 columns where three are meant"),
        ("q.tsv", "head\trelation\ttail\tp\nanna\tknows\tben\n", "line 2: 3 columns where the header has 4"),
        ("q.csv", '"anna,knows,?\n', "q.csv, line 1: a quote is opened and never closed"),
        ("q.tsv", b"anna\tkn\xffows\t?\n", "q.tsv, line 1, column 8: not UTF-8"),
        ("q.jsonl", '{"head": "anna", "relation": "knows"}\n{"head"\n', "q.jsonl, line 2: no JSON"),
        (
            "q.jsonl",
            '{"head": "anna", "relation": 7}\n',
            "q.jsonl, line 1: expected an object with a name as 'relation'",
        ),
        ("q.jsonl", '\n["anna", "knows", "ben"]\n', "q.jsonl, line 2: expected an object with a name as 'head'"),
        (
            "q.jsonl",
            '\n{"head": "anna", "relation": "knows", "tail": "bem"}\n',
            "q.jsonl, line 2, column tail: unknown",
        ),
        ("q.tsv.gz", "anna\tknows\t?\n", "not a whole gzip file"),
        ("q.tsv", '"ben"\tlikes\t\n"an\nna"\tlikes\t\n', "q.tsv, line 3, column head: unknown entity 'an\\nna'"),
    ],
)
def test_bad_queries_are_said_where_they_stand(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as said:
        read_queries(file, GRAPH)
    assert message in str(said.value)
    assert str(file) in str(said.value)


def test_bad_rows_of_parquet_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "q.parquet"
    pq.write_table(pa.table({"head": ["anna", "anna"], "relation": ["knows", "know"], "tail": [None, None]}), file)
    with pytest.raises(InputError, match=r"row 2, column relation: unknown relation 'know'"):
        read_queries(file, GRAPH)
    pq.write_table(pa.table({"head": ["anna"], "relation": ["knows"]}), file)
    with pytest.raises(InputError, match="no columns head, relation, tail"):
        read_queries(file, GRAPH)


def test_triples_have_no_gaps(tmp_path: Path) -> None:
    file = tmp_path / "t.tsv"
    file.write_text("anna\tknows\tben\nanna\tknows\t?\n")
    with pytest.raises(InputError, match=r"t.tsv, line 2, column tail: unknown entity '\?'"):
        read_triples(file, GRAPH)
    file.write_text("anna\tknows\t\n")
    with pytest.raises(InputError, match="line 1: the tail is an empty name"):
        read_triples(file, GRAPH)
    file.write_text("")
    assert read_triples(file, GRAPH).shape == (0, 3)
    assert read_queries(file, GRAPH).dtype == np.int64
