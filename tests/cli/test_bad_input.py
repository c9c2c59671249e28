"""Invalid graphs in the real command: exit code 2, a message with file and line, no traceback, no new files."""

import gzip
import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forking import run_program


def data_info(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_program("data", "info", *arguments, cwd=folder)


def error_message(folder: Path, *arguments: str) -> str:
    """Run `data info`, which must fail without output or new files, and return stderr."""
    before = sorted(str(p) for p in folder.rglob("*"))
    result = data_info(folder, *arguments)
    assert result.returncode == 2, result.stdout + result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert sorted(str(p) for p in folder.rglob("*")) == before
    return result.stderr


GOOD = b"anna\tknows\tben\n"
FILES = [
    (
        "two.txt",
        GOOD + b"ben\tknows\n",
        "two.txt, line 2: expected three columns (head, relation, tail, separated by tabs), found 2 columns",
    ),
    (
        "four.txt",
        GOOD * 2 + b"a\tb\tc\td\n",
        "four.txt, line 3: expected three columns (head, relation, tail, separated by tabs), found 4 columns",
    ),
    (
        "comma.csv",
        b"a,r,b\nc,d\n",
        "comma.csv, line 2: expected three columns (head, relation, tail, separated by ','), found 2 columns: 'c,d'",
    ),
    (
        "tabs.txt",
        b"New York\tUnited States\n",
        "tabs.txt, line 1: expected three columns (head, relation, tail, separated by tabs), found 2 columns",
    ),
    ("damaged.txt.gz", gzip.compress(GOOD * 50)[:12] + b"\xff" * 20, "damaged.txt.gz: "),
    ("long.csv", b"a" * 200_000 + b",r,b\n", "long.csv, line 1: a column is longer than 131,072 characters."),
    ("empty-name.txt", GOOD + b"ben\t\tanna\n", "empty-name.txt, line 2: the relation is empty"),
    ("latin.txt", GOOD + b"ren\xe9\tknows\tben\n", "latin.txt, line 2, column 4: not UTF-8 (byte 0xe9)"),
    ("empty.txt", b"", "empty.txt: the train split has no triples"),
    ("cut.txt.gz", gzip.compress(os.urandom(5000).hex().encode())[:3000], "cut.txt.gz: the gzip file is truncated"),
    ("not-zipped.txt.gz", GOOD, "not-zipped.txt.gz: not a complete gzip file, despite its name"),
    ("broken.parquet", b"PAR1 and no more", "broken.parquet: "),
    (
        "broken.nt",
        b"<urn:a> <urn:r> <urn:b> .\n<urn:a> <urn:r\n",
        "broken.nt, line 2, column 9: unexpected end of file",
    ),
    (
        "space.nt",
        b"<urn:a> <urn:r r> <urn:b> .\n",
        "space.nt, line 1, columns 9 to 17: invalid IRI code point ' '",
    ),
    ("quote.csv", b'a,"r"s,b\nc,d\n', "quote.csv, line 1: expected the end of the column after a closing quote."),
    ("quoted.csv", b'a,r,"b\n', "quoted.csv, line 1: a quote is not closed"),
]


@pytest.mark.parametrize(("name", "content", "message"), FILES, ids=[f[0] for f in FILES])
def test_an_invalid_file_is_reported_with_its_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    stderr = error_message(tmp_path, name)
    assert stderr.startswith(f"plogicnet: {message}")
    assert len(stderr.splitlines()) == 1


DIRECTORIES: list[tuple[str, dict[str, bytes], str]] = [
    ("no-train", {"test.txt": GOOD}, "graph: no train file. Expected train.txt, train.tsv, train.csv,"),
    (
        "repeated-id",
        {"train.txt": GOOD, "entities.dict": b"0\tanna\n0\tben\n"},
        "graph/entities.dict, line 2: id 0 occurs twice ('anna' and 'ben')",
    ),
    (
        "not-in-dictionary",
        {"train.txt": GOOD, "entities.dict": b"0\tanna\n"},
        "graph/entities.dict: entity 'ben' of the triples is not in this dictionary",
    ),
    (
        "gap",
        {"train.txt": GOOD, "relations.dict": b"1\tknows\n"},
        "graph/relations.dict: id 0 is missing. The ids must be 0 to 0.",
    ),
    (
        "id-out-of-range",
        {"train2id.txt": b"1\n0 2 0\n", "entity2id.txt": b"2\nanna\t0\nben\t1\n", "relation2id.txt": b"1\nknows\t0\n"},
        "graph/train2id.txt, line 2: id 2 is not in entity2id.txt (0 to 1)",
    ),
    (
        "no-entity2id",
        {"train2id.txt": b"1\n0 1 0\n"},
        "graph/entity2id.txt: no such file. It is required if the directory contains train2id.txt.",
    ),
    (
        "no-count",
        {"train2id.txt": b"0 1 0\n", "entity2id.txt": b"2\na\t0\nb\t1\n", "relation2id.txt": b"1\nr\t0\n"},
        "graph/train2id.txt, line 1: expected the number of lines that follow (0), found '0 1 0'",
    ),
    (
        "labels",
        {"train.txt": GOOD, "labels.tsv": b"anna\n"},
        "graph/labels.tsv, line 1: expected a name, a tab and a label",
    ),
    ("bad-valid", {"train.txt": GOOD, "valid.txt": b"x\ty\n"}, "graph/valid.txt, line 1: expected three columns"),
]


@pytest.mark.parametrize(("name", "files", "message"), DIRECTORIES, ids=[f[0] for f in DIRECTORIES])
def test_an_invalid_file_in_a_directory_is_reported(
    tmp_path: Path, name: str, files: dict[str, bytes], message: str
) -> None:
    assert name
    (tmp_path / "graph").mkdir()
    for file, content in files.items():
        (tmp_path / "graph" / file).write_bytes(content)
    assert error_message(tmp_path, "graph").startswith(f"plogicnet: {message}")


def test_a_parquet_file_must_have_the_three_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": ["x"], "b": ["y"]}), tmp_path / "a.parquet")
    assert error_message(tmp_path, "a.parquet").startswith(
        "plogicnet: a.parquet: expected columns head, relation, tail"
    )


def test_a_directory_named_train_txt_is_not_a_train_file(tmp_path: Path) -> None:
    (tmp_path / "graph" / "train.txt").mkdir(parents=True)
    assert error_message(tmp_path, "graph").startswith("plogicnet: graph: no train file")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "0.8,0.1"], "--split 0.8,0.1: expected three shares, for example 0.8,0.1,0.1"),
        (["--split", "0.5,nan,0.5"], "--split 0.5,nan,0.5: the shares must add up to 1"),
        (["--split", "0.8,0.1,0.3"], "--split 0.8,0.1,0.3: the shares must add up to 1"),
        (["--columns", "rht"], "columns must be one of hrt, htr, got 'rht'"),
    ],
)
def test_invalid_options_are_reported(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "a.txt").write_bytes(GOOD)
    assert error_message(tmp_path, "a.txt", *arguments).startswith(f"plogicnet: {message}")


def test_warnings_about_a_graph_contain_counts(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(GOOD * 3)
    (tmp_path / "valid.txt").write_bytes(GOOD + b"anna\tlikes\tcarl\n")
    (tmp_path / "test.txt").write_bytes(GOOD + b"anna\tlikes\tcarl\n")
    result = data_info(tmp_path, ".")
    assert result.returncode == 0
    name = tmp_path.name
    assert result.stderr.splitlines() == [
        f"{name}: 2 duplicate triples dropped",
        f"{name}: 1 triple of valid is also in train",
        f"{name}: 1 triple of test is also in train",
        f"{name}: 2 triples of test are also in valid",
        f"{name}: 1 entity of valid is not in train",
        f"{name}: 1 relation of valid is not in train",
        f"{name}: 1 entity of test is not in train",
        f"{name}: 1 relation of test is not in train",
    ]


def test_warnings_use_singular_and_plural(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(GOOD * 2)
    (tmp_path / "test.txt").write_bytes(b"anna\tlikes\tcarl\nanna\thates\tdan\n")
    assert data_info(tmp_path, ".").stderr.splitlines() == [
        f"{tmp_path.name}: 1 duplicate triple dropped",
        f"{tmp_path.name}: 2 entities of test are not in train",
        f"{tmp_path.name}: 2 relations of test are not in train",
    ]


def test_openke_files_dictionaries_and_labels_are_read(tmp_path: Path) -> None:
    from plogicnet.graph import open_graph

    openke, classic = tmp_path / "openke", tmp_path / "classic"
    openke.mkdir()
    (openke / "entity2id.txt").write_text("2\nben b\t1\nanna\t0\n")
    (openke / "relation2id.txt").write_text("1\nknows\t0\n")
    (openke / "train2id.txt").write_text("1\n0 1 0\n")
    assert [open_graph(openke).names(t) for t in open_graph(openke).train] == [("anna", "knows", "ben b")]
    classic.mkdir()
    (classic / "train.tsv").write_bytes(GOOD)
    (classic / "entities.dict").write_text("0\tnobody\n1\tben\n2\tanna\n")
    (classic / "relations.dict").write_text("0\tknows\n")
    (classic / "labels.tsv").write_text("anna\tAnna Berg\n")
    graph = open_graph(classic)
    assert graph.entities.names == ("nobody", "ben", "anna")
    assert graph.train.tolist() == [[2, 0, 1]]
    assert graph.labels == {"anna": "Anna Berg"}
