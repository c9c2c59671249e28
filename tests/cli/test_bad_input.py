"""Bad graphs through the real command: exit code 2, one message with file and line, no traceback, nothing written."""

import gzip
import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forking import program


def info(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return program("data", "info", *words, cwd=folder)


def refused(folder: Path, *words: str) -> str:
    """The one message on stderr, after checking that it is all there is."""
    before = sorted(str(p) for p in folder.rglob("*"))
    done = info(folder, *words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert sorted(str(p) for p in folder.rglob("*")) == before
    return done.stderr


GOOD = b"anna\tknows\tben\n"
FILES = [
    ("two.txt", GOOD + b"ben\tknows\n", "two.txt, line 2: 2 columns where three are meant (head, relation, tail,"),
    (
        "four.txt",
        GOOD * 2 + b"a\tb\tc\td\n",
        "four.txt, line 3: 4 columns where three are meant (head, relation, tail,",
    ),
    (
        "comma.csv",
        b"a,r,b\nc,d\n",
        "comma.csv, line 2: 2 columns where three are meant (head, relation, tail, separated by ','): 'c,d'",
    ),
    (
        "tabs.txt",
        b"New York\tUnited States\n",
        "tabs.txt, line 1: 2 columns where three are meant (head, relation, tail,",
    ),
    ("damaged.txt.gz", gzip.compress(GOOD * 50)[:12] + b"\xff" * 20, "damaged.txt.gz: "),
    ("long.csv", b"a" * 200_000 + b",r,b\n", "long.csv: field larger than field limit"),
    ("empty-name.txt", GOOD + b"ben\t\tanna\n", "empty-name.txt, line 2: the relation is an empty name"),
    ("latin.txt", GOOD + b"ren\xe9\tknows\tben\n", "latin.txt, line 2, column 4: not UTF-8 (byte 0xe9)"),
    ("empty.txt", b"", "empty: the train split holds no triple"),
    ("cut.txt.gz", gzip.compress(os.urandom(5000).hex().encode())[:3000], "cut.txt.gz: the gzip file is truncated"),
    ("not-zipped.txt.gz", GOOD, "not-zipped.txt.gz: not a whole gzip file, in spite of its name"),
    ("broken.parquet", b"PAR1 and no more", "broken.parquet: "),
    ("broken.nt", b"<urn:a> <urn:r> <urn:b> .\n<urn:a> <urn:r\n", "broken.nt, line 2, column"),
    ("quoted.csv", b'a,r,"b\n', "quoted.csv, line 1: a quote is opened and never closed"),
]


@pytest.mark.parametrize(("name", "content", "message"), FILES, ids=[f[0] for f in FILES])
def test_a_bad_file_is_named_with_its_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    said = refused(tmp_path, name)
    assert said.startswith(f"plogicnet: {message}")
    assert len(said.splitlines()) == 1


FOLDERS: list[tuple[str, dict[str, bytes], str]] = [
    ("no-train", {"test.txt": GOOD}, "graph: no train file; expected train with one of .txt, .tsv, .csv"),
    (
        "repeated-number",
        {"train.txt": GOOD, "entities.dict": b"0\tanna\n0\tben\n"},
        "graph/entities.dict, line 2: the number 0 is given twice ('anna' and 'ben')",
    ),
    (
        "not-in-dictionary",
        {"train.txt": GOOD, "entities.dict": b"0\tanna\n"},
        "graph/entities.dict: the entity 'ben' of the triples is not in this dictionary",
    ),
    (
        "gap",
        {"train.txt": GOOD, "relations.dict": b"1\tknows\n"},
        "graph/relations.dict: the number 0 is missing; numbers are 0 to 0 for that many names",
    ),
    (
        "number-outside",
        {"train2id.txt": b"1\n0 2 0\n", "entity2id.txt": b"2\nanna\t0\nben\t1\n", "relation2id.txt": b"1\nknows\t0\n"},
        "graph/train2id.txt, line 2: the number 2 is not in entity2id.txt (0 to 1)",
    ),
    (
        "no-entity2id",
        {"train2id.txt": b"1\n0 1 0\n"},
        "graph/entity2id.txt: no such file; it belongs to the layout of train2id.txt",
    ),
    (
        "no-count",
        {"train2id.txt": b"0 1 0\n", "entity2id.txt": b"2\na\t0\nb\t1\n", "relation2id.txt": b"1\nr\t0\n"},
        "graph/train2id.txt, line 1: the number of the lines that follow is meant (0), found '0 1 0'",
    ),
    ("labels", {"train.txt": GOOD, "labels.tsv": b"anna\n"}, "graph/labels.tsv, line 1: a name, a tab and its label"),
    ("bad-valid", {"train.txt": GOOD, "valid.txt": b"x\ty\n"}, "graph/valid.txt, line 1: 2 columns"),
]


@pytest.mark.parametrize(("name", "files", "message"), FOLDERS, ids=[f[0] for f in FOLDERS])
def test_a_bad_folder_is_named_with_its_file(tmp_path: Path, name: str, files: dict[str, bytes], message: str) -> None:
    assert name
    (tmp_path / "graph").mkdir()
    for file, content in files.items():
        (tmp_path / "graph" / file).write_bytes(content)
    assert refused(tmp_path, "graph").startswith(f"plogicnet: {message}")


def test_a_parquet_file_without_the_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": ["x"], "b": ["y"]}), tmp_path / "a.parquet")
    assert refused(tmp_path, "a.parquet").startswith("plogicnet: a.parquet: no columns head, relation, tail")


def test_a_directory_where_a_file_is_meant(tmp_path: Path) -> None:
    (tmp_path / "graph" / "train.txt").mkdir(parents=True)
    assert refused(tmp_path, "graph").startswith("plogicnet: graph: no train file")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--split", "0.8,0.1"], "--split 0.8,0.1: three shares are meant, as 0.8,0.1,0.1"),
        (["--split", "0.5,nan,0.5"], "--split 0.5,nan,0.5: the shares of train, valid and test add up to 1"),
        (["--split", "0.8,0.1,0.3"], "--split 0.8,0.1,0.3: the shares of train, valid and test add up to 1"),
        (["--columns", "rht"], "columns: 'rht' is not allowed; one of hrt, htr"),
    ],
)
def test_bad_options(tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "a.txt").write_bytes(GOOD)
    assert refused(tmp_path, "a.txt", *words).startswith(f"plogicnet: {message}")


def test_warnings_have_counts(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(GOOD * 3)
    (tmp_path / "valid.txt").write_bytes(GOOD + b"anna\tlikes\tcarl\n")
    (tmp_path / "test.txt").write_bytes(GOOD + b"anna\tlikes\tcarl\n")
    done = info(tmp_path, ".")
    assert done.returncode == 0
    name = tmp_path.name
    assert done.stderr.splitlines() == [
        f"{name}: 2 duplicate triples dropped",
        f"{name}: 1 triple of valid is in train too",
        f"{name}: 1 triple of test is in train too",
        f"{name}: 2 triples of test are in valid too",
        f"{name}: 1 entity of valid is not in train",
        f"{name}: 1 relation of valid is not in train",
        f"{name}: 1 entity of test is not in train",
        f"{name}: 1 relation of test is not in train",
    ]


def test_of_one_the_noun_is_singular_and_of_more_it_is_not(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(GOOD * 2)
    (tmp_path / "test.txt").write_bytes(b"anna\tlikes\tcarl\nanna\thates\tdan\n")
    assert info(tmp_path, ".").stderr.splitlines() == [
        f"{tmp_path.name}: 1 duplicate triple dropped",
        f"{tmp_path.name}: 2 entities of test are not in train",
        f"{tmp_path.name}: 2 relations of test are not in train",
    ]


def test_openke_dictionaries_and_labels_are_honoured(tmp_path: Path) -> None:
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
