"""Files of triples and queries in every format, and the locations in error messages."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plogicnet.graph import MISSING, KnowledgeGraph, read_queries, read_triples
from plogicnet.support.errors import InputError

GRAPH = KnowledgeGraph.from_names([("anna", "knows", "ben"), ("ben", "likes", '5" disk'), ("a,b", "knows", "c\td")])
ROWS = [("anna", "knows", None), (None, "likes", "ben"), ("a,b", None, "c\td"), ('5" disk', "likes", None)]
LAYOUT = "(head, relation, tail, separated by tabs)"
EXPECTED = [[0, 0, MISSING], [MISSING, 1, 1], [3, MISSING, 4], [2, 1, MISSING]]


def text(rows: Sequence[Sequence[str | None]], delimiter: str, gap: str) -> str:
    cells = [["".join(['"', c.replace('"', '""'), '"']) if c else gap for c in row] for row in rows]
    return "".join(delimiter.join(row) + "\n" for row in cells)


@pytest.mark.parametrize("gap", ["", "?"])
@pytest.mark.parametrize("header", [False, True])
@pytest.mark.parametrize(("ending", "delimiter"), [(".tsv", "\t"), (".csv", ","), (".csv", ";"), (".txt", "\t")])
@pytest.mark.parametrize("zipped", [False, True])
def test_queries_are_read_from_text(
    tmp_path: Path, ending: str, delimiter: str, gap: str, header: bool, zipped: bool
) -> None:
    content = text(ROWS, delimiter, gap)
    if header:
        content = delimiter.join(("head", "relation", "tail")) + "\n" + content
    file = tmp_path / f"queries{ending}{'.gz' if zipped else ''}"
    file.write_bytes(gzip.compress(content.encode()) if zipped else content.encode())
    assert read_queries(file, GRAPH).tolist() == EXPECTED


@pytest.mark.parametrize("gap", ["", "?", None])
def test_queries_are_read_from_parquet_and_json_lines(tmp_path: Path, gap: str | None) -> None:
    rows = [{"tail": t or gap, "head": h or gap, "note": 1, "relation": r or gap} for h, r, t in ROWS]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "queries.parquet")
    (tmp_path / "queries.jsonl").write_text("\n\n".join(json.dumps(row) for row in rows))
    for name in ("queries.parquet", "queries.jsonl"):
        assert read_queries(tmp_path / name, GRAPH).tolist() == EXPECTED


def test_a_question_mark_that_is_an_entity_is_not_a_missing_part(tmp_path: Path) -> None:
    graph = KnowledgeGraph.from_names([("?", "knows", "ben")])
    file = tmp_path / "queries.tsv"
    file.write_text("?\tknows\t\n\tknows\t?\n")
    assert read_queries(file, graph).tolist() == [[0, 0, MISSING], [MISSING, 0, 0]]


def test_a_line_with_too_few_columns_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "queries.tsv"
    file.write_text("anna\tknows\t\nanna\tknows\n")
    with pytest.raises(InputError, match=r"line 2: expected three columns .* found 2 columns"):
        read_queries(file, GRAPH)


def test_other_columns_are_ignored_in_a_file_with_a_header(tmp_path: Path) -> None:
    file = tmp_path / "predictions.tsv"
    file.write_text('probability\thead\trelation\ttail\tq\n0.5\tanna\tknows\tben\t\n0.1\t"5"" disk"\tlikes\tben\t1\n')
    assert read_triples(file, GRAPH).tolist() == [[0, 0, 1], [2, 1, 1]]
    file = tmp_path / "predictions.csv"
    file.write_text("s,Subject,Predicate,Object\n1,anna,knows,ben\n")
    assert read_triples(file, GRAPH).tolist() == [[0, 0, 1]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.tsv", "anna\tknows\t?\n\nanna\tknows\tben\n", "q.tsv, line 3: no part is missing (use --triples"),
        ("q.tsv", "?\tknows\t\n", "q.tsv, line 1: head and tail are missing. Exactly one of"),
        ("q.tsv", "head\trelation\ttail\n\t\tben\n", "q.tsv, line 2: head and relation are missing"),
        ("q.csv", "anna,knows,?\nannna,knows,?\n", "q.csv, line 2, column head: unknown entity 'annna'. Did you mean"),
        ("q.csv", "tail,head,relation\n,anna,knwos\n", "q.csv, line 2, column relation: unknown relation 'knwos'. Did"),
        ("q.tsv", "anna\tknows\n", f"q.tsv, line 1: expected three columns {LAYOUT}, found 2 columns"),
        ("q.tsv", "anna\tknows\t?\tb\n", f"q.tsv, line 1: expected three columns {LAYOUT}, found 4 columns"),
        (
            "q.tsv",
            "head\trelation\ttail\tp\nanna\tknows\tben\n",
            f"line 2: expected 4 columns as in the header {LAYOUT}, found 3",
        ),
        ("q.csv", '"anna,knows,?\n', "q.csv, line 1: a quote is not closed"),
        ("q.tsv", b"anna\tkn\xffows\t?\n", "q.tsv, line 1, column 8: not UTF-8"),
        (
            "q.jsonl",
            '{"head": "anna", "relation": "knows"}\n{"head"\n',
            "q.jsonl, line 2, column 8: invalid JSON: expected ':'",
        ),
        (
            "q.jsonl",
            '{"head": "anna",\n',
            "q.jsonl, line 1, column 17: invalid JSON: expected a property name in double quotes",
        ),
        ("q.jsonl", '{"head": "a"} {}', "q.jsonl, line 1, column 15: invalid JSON: expected the end of the line"),
        ("q.jsonl", '{"n": ' + "9" * 5000 + "}", "q.jsonl, line 1: invalid JSON: a number is too long"),
        (
            "q.jsonl",
            '{"head": "anna", "relation": 7}\n',
            "line 1: expected a JSON object with strings for head, relation and tail, but relation is not a string (7)",
        ),
        (
            "q.jsonl",
            '\n["anna", "knows", "ben"]\n',
            "q.jsonl, line 2: expected a JSON object with strings for head, relation and tail: '[",
        ),
        (
            "q.jsonl",
            '\n{"head": "anna", "relation": "knows", "tail": "bem"}\n',
            "q.jsonl, line 2, column tail: unknown",
        ),
        ("q.tsv.gz", "anna\tknows\t?\n", "not a complete gzip file"),
        ("q.tsv", '"ben"\tlikes\t\n"an\nna"\tlikes\t\n', "q.tsv, line 3, column head: unknown entity 'an\\nna'"),
    ],
)
def test_invalid_queries_raise_with_their_location(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as raised:
        read_queries(file, GRAPH)
    assert message in str(raised.value)
    assert str(file) in str(raised.value)


def test_invalid_rows_of_parquet_raise_with_their_row(tmp_path: Path) -> None:
    file = tmp_path / "q.parquet"
    pq.write_table(pa.table({"head": ["anna", "anna"], "relation": ["knows", "know"], "tail": [None, None]}), file)
    with pytest.raises(InputError, match=r"row 2, column relation: unknown relation 'know'"):
        read_queries(file, GRAPH)
    pq.write_table(pa.table({"head": ["anna"], "relation": ["knows"]}), file)
    with pytest.raises(InputError, match="expected columns head, relation, tail"):
        read_queries(file, GRAPH)


def test_read_triples_raises_for_missing_parts(tmp_path: Path) -> None:
    file = tmp_path / "t.tsv"
    file.write_text("anna\tknows\tben\nanna\tknows\t?\n")
    with pytest.raises(InputError, match=r"t.tsv, line 2, column tail: unknown entity '\?'"):
        read_triples(file, GRAPH)
    file.write_text("anna\tknows\t\n")
    with pytest.raises(InputError, match="line 1: the tail is empty"):
        read_triples(file, GRAPH)
    file.write_text("")
    assert read_triples(file, GRAPH).shape == (0, 3)
    assert read_queries(file, GRAPH).dtype == np.int64
