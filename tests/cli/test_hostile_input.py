"""Files and runs made to do harm, through the real command: a message, exit code 2, bounded memory, nothing touched."""

import ast
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plogicnet as package
from calling import Call
from plogicnet.graph.io import unpacking
from small import fitted, write_small_graph
from stopping import resealed

MEMORY = 8 << 30
"""No command here may take so much address space; most of it is what libraries reserve."""
QUICK = ["--set=neural.steps=5", "--set=neural.vectors.dim=4", "--set=device=cpu", "--set=threads=1"]


def plogicnet(folder: Path, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k not in ("PLOGICNET_DATA", "PLOGICNET_EXPANSION")}
    env |= {"NO_COLOR": "1", "OMP_NUM_THREADS": "1", **more}

    def bound() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    return subprocess.run(
        [sys.executable, "-m", "plogicnet", *map(str, words)],
        capture_output=True,
        text=True,
        env=env,
        cwd=folder,
        timeout=120,  # seconds; a program that does not end is a finding too
        check=False,
        preexec_fn=bound if sys.platform == "linux" else None,
    )


def refused(folder: Path, *words: object) -> str:
    done = plogicnet(folder, *words)
    assert done.returncode == 2, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 2_000  # a message, not the file
    return done.stderr


Refusal = Callable[..., str]


@pytest.fixture
def refused_here(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    """As `refused`, in this process: for what cannot fill a memory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PLOGICNET_EXPANSION", raising=False)

    def refusal(*words: object) -> str:
        code, out, said = call(*words)
        assert (code, out) == (2, ""), said[-2000:]
        assert len(said) < 2_000
        return said

    return refusal


def test_nothing_that_runs_what_it_reads_is_used() -> None:
    """No pickle, no eval, in all the sources."""
    loaders = {"pickle", "cPickle", "dill", "marshal", "shelve", "joblib", "cloudpickle", "runpy", "code"}
    calls = {"eval", "exec", "__import__"}
    methods = {("torch", "load"), ("yaml", "load"), ("yaml", "unsafe_load"), ("np", "load"), ("os", "system")}
    files = list(Path(package.__file__).parent.rglob("*.py"))
    assert len(files) > 50
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert not {alias.name.split(".")[0] for alias in node.names} & loaders, file
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in loaders, file
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in calls, file
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in methods, file


# Graphs

MEGABYTE = 1 << 20
TRIPLE = b"anna\tknows\tben\n"


def bomb(content: bytes, times: int) -> bytes:
    """A gzip file of the content so many times, without ever holding it."""
    part = gzip.compress(content, 9)
    return part * times  # members one after another are one file


TEXT = ["train.txt.gz", "train.tsv.gz", "train.csv.gz"]
TRIPLES = TRIPLE * (MEGABYTE // len(TRIPLE))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((name, b"\0" * MEGABYTE) for name in (*TEXT, "train.jsonl.gz", "train.nt.gz")),
        *((name, TRIPLES) for name in TEXT[1:]),
    ],
    ids=lambda value: value if isinstance(value, str) else "triples" if value[0] else "zeros",
)
def test_two_gigabytes_in_a_small_file(name: str, content: bytes, tmp_path: Path) -> None:
    if "nt" in name:
        pytest.importorskip("pyoxigraph")
    (tmp_path / name).write_bytes(bomb(content, 2_000))
    said = refused(tmp_path, "data", "info", name)
    assert said.startswith(f"plogicnet: {name}")


@pytest.mark.slow
def test_the_limit_is_named_and_can_be_raised(tmp_path: Path) -> None:
    content = "".join(f"a{i % 7}\tknows\tb{i % 5}\n" for i in range(70_000)).encode()
    (tmp_path / "packed.tsv.gz").write_bytes(bomb(content, 200))  # 170 MB in less than one
    said = refused(tmp_path, "data", "info", "packed.tsv.gz")
    assert "more than 100 times its own size" in said
    assert "PLOGICNET_EXPANSION=1000" in said
    done = plogicnet(tmp_path, "data", "info", "packed.tsv.gz", "--json", PLOGICNET_EXPANSION="1000")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["entities"] == 12
    wrong = plogicnet(tmp_path, "data", "info", "packed.tsv.gz", PLOGICNET_EXPANSION="many")
    assert wrong.returncode == 2
    assert "a whole number is meant" in wrong.stderr


def test_a_parquet_file_of_a_billion_rows(tmp_path: Path) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 1_000_000, pa.int32()), pa.array(["anna"]))
    piece = pa.table({"head": column, "relation": column, "tail": column})
    with pq.ParquetWriter(tmp_path / "a.parquet", piece.schema, compression="zstd") as writer:
        for _ in range(100):
            writer.write_table(piece)
    assert (tmp_path / "a.parquet").stat().st_size < MEGABYTE
    said = refused(tmp_path, "data", "info", "a.parquet")
    assert "PLOGICNET_EXPANSION" in said


ROWS = {
    "rows.jsonl.gz": b'{"h": "anna", "r": "knows", "t": "ben"}\n',
    "rows.nt.gz": b"<urn:anna> <urn:knows> <urn:ben> .\n",
    "rows.ttl.gz": b"<urn:anna> <urn:knows> <urn:ben> .\n",
    "quoted.tsv.gz": b'"anna"\tknows\tben\n',
    "quoted.csv.gz": b'"an\nna",knows,ben\n',
}


@pytest.mark.parametrize("name", ROWS)
def test_a_packed_file_of_tiny_rows(
    name: str, refused_here: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Python reads row by row is bounded as what Arrow reads is; a small bound keeps the test quick."""
    if "nt" in name or "ttl" in name:
        pytest.importorskip("pyoxigraph")
    monkeypatch.setattr(unpacking, "ALWAYS_BYTES", MEGABYTE // 2)
    (tmp_path / name).write_bytes(bomb(ROWS[name] * 4_000, 20))
    assert "more than 100 times its own size" in refused_here("data", "info", name)


def test_a_long_prefix_in_turtle(refused_here: Refusal, tmp_path: Path) -> None:
    """A megabyte that a letter stands for."""
    pytest.importorskip("pyoxigraph")
    names = b"".join(b":%d :r :%d .\n" % (i, i + 1) for i in range(1_000))
    (tmp_path / "a.ttl").write_bytes(b"@prefix : <urn:" + b"a" * MEGABYTE + b"> .\n" + names)
    assert "more than 100 times its own size" in refused_here("data", "info", "a.ttl")


def one_text(text: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))


@pytest.mark.parametrize("kind", ["dictionary", "delta"])
def test_a_parquet_file_that_says_one_long_text_for_all_rows(kind: str, tmp_path: Path) -> None:
    """100 GB in the rows, a megabyte in the file's own account."""
    if kind == "dictionary":
        column = one_text("a" * MEGABYTE, 100_000)
        pq.write_table(pa.table({"head": column, "relation": column, "tail": column}), tmp_path / "a.parquet")
    else:
        column = pa.array([chr(97 + i % 2) + "a" * 100_000 for i in range(2_000)])
        encoding = dict.fromkeys(("head", "relation", "tail"), "DELTA_BYTE_ARRAY")
        table = pa.table({"head": column.sort(), "relation": column.sort(), "tail": column.sort()})
        pq.write_table(table, tmp_path / "a.parquet", use_dictionary=False, column_encoding=encoding)
    assert (tmp_path / "a.parquet").stat().st_size < 4 * MEGABYTE
    assert "more than 100 times its own size" in refused(tmp_path, "data", "info", "a.parquet")


NO_TEXT = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
X = pa.array(["x"])
SCHEMAS = {
    "nested": ({"head": pa.array([["a"]]), "relation": pa.array([{"x": "r"}]), "tail": X}, "no columns head"),
    "map": ({"head": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), "relation": X, "tail": X}, "no columns"),
    "binary": ({"head": X, "relation": X, "tail": pa.array([b"\xff\xfe"])}, "Invalid UTF8"),
    "text": ({"head": NO_TEXT, "relation": X, "tail": X}, "Invalid UTF8"),
    "nulls": ({"head": pa.nulls(1), "relation": X, "tail": X}, "row 1: the head is missing"),
    "case": ({"head": X, "Head": X, "relation": X, "tail": X}, "two columns are called head"),
    "none": ({}, "no columns head"),
    "many": ({f"column{i}": X for i in range(500)}, "no columns head"),
    "long": ({"a" * MEGABYTE: X, "b": X}, "no columns head"),
}


@pytest.mark.parametrize("case", SCHEMAS)
def test_parquet_of_another_kind(case: str, refused_here: Refusal, tmp_path: Path) -> None:
    columns, message = SCHEMAS[case]
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    said = refused_here("data", "info", "a.parquet")
    assert said.startswith("plogicnet: a.parquet")
    assert message in said


def test_parquet_with_a_column_twice(refused_here: Refusal, tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_arrays([X] * 4, ["head", "relation", "tail", "head"]), tmp_path / "a.parquet")
    assert "two columns are called 'head'" in refused_here("data", "info", "a.parquet")


def test_parquet_that_lies_about_its_sizes(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths, counts, offsets, encodings and names, each made wrong: a graph or a message, never more."""
    monkeypatch.chdir(tmp_path)
    table = pa.table({"head": ["a", "b", "c"] * 5, "relation": ["r"] * 15, "tail": ["b", "c", "d"] * 5})
    file = tmp_path / "a.parquet"
    pq.write_table(table, file, compression="zstd", store_schema=False, write_statistics=False)
    whole, rng = file.read_bytes(), random.Random(0)
    codes = set()
    for at in range(4, len(whole), 4):
        wrong = b"\xff\xff\xff\xff\x07" if rng.random() < 0.2 else bytes([rng.choice((0x00, 0x7F, 0x80, 0xFF))])
        file.write_bytes(whole[:at] + wrong + whole[at + 1 :])
        code, _, said = call("data", "info", "a.parquet", "--json")
        assert code in (0, 2), (at, wrong, said)
        codes.add(code)
    assert codes == {0, 2}


@pytest.mark.parametrize("name", ["a.tsv", "a.csv.gz", "a.jsonl", "a.parquet", "a.nt"])
def test_a_pipe_or_a_device_is_no_graph(name: str, refused_here: Refusal, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)  # nobody writes to it: who opens it waits for ever
    assert refused_here("data", "info", name).startswith(f"plogicnet: {name}: a pipe or a device where a graph")
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    assert refused_here("data", "info", name).startswith(f"plogicnet: {name}: a pipe or a device where a graph")


def test_input_that_never_ends_is_not_waited_for() -> None:
    reading, writing = os.pipe()
    try:
        command = [sys.executable, "-m", "plogicnet", "data", "info", "/dev/stdin"]
        done = subprocess.run(command, stdin=reading, capture_output=True, text=True, timeout=60, check=False)
    finally:
        os.close(reading)
        os.close(writing)
    assert done.returncode == 2
    assert done.stderr.startswith("plogicnet: /dev/stdin: a pipe or a device where a graph is meant")


def test_a_device_beside_the_triples_is_left_alone(call: Call, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(TRIPLE)
    for name in ("entities.dict", "relations.dict", "labels.tsv", "valid.txt"):
        (tmp_path / name).symlink_to("/dev/zero")
    assert call("data", "info", tmp_path, "--json")[0] == 0


OPENKE = {"entity2id.txt": b"2\nanna\t0\nben\t1\n", "relation2id.txt": b"1\nknows\t0\n", "train2id.txt": b"1\n0 1 0\n"}


@pytest.mark.parametrize("name", OPENKE)
@pytest.mark.parametrize(
    "count",
    [b"999999999999", b"0", b"-1", b"1e9", b"9" * 10 * MEGABYTE, "١".encode(), b"\xff", b""],
    ids=["more", "none", "negative", "float", "digits", "arabic", "bytes", "empty"],
)
def test_a_first_line_that_lies_about_the_count(name: str, count: bytes, refused_here: Refusal, tmp_path: Path) -> None:
    for file, content in OPENKE.items():
        (tmp_path / file).write_bytes(content)
    if count == "١".encode() and name != "entity2id.txt":
        (tmp_path / name).write_bytes(OPENKE[name] + b"more\n")  # an Arabic 1 is a 1
    else:
        _, _, rest = OPENKE[name].partition(b"\n")
        (tmp_path / name).write_bytes(count + b"\n" + rest)
    assert refused_here("data", "info", ".").startswith(f"plogicnet: {name}")


LINES = {
    "long.txt": TRIPLE + b"a" * 10 * MEGABYTE + b"\tr\tb\n",
    "long.csv": b"a,r,b\n" + b'"' + b"a" * 10 * MEGABYTE + b'",r,b\n',
    "columns.tsv": b"a\t" * 5 * MEGABYTE,
    "one.txt": b"a" * 10 * MEGABYTE,
    "long.jsonl": b'{"head": "' + b"a" * 10 * MEGABYTE + b'"}\n',
    "deep.jsonl": b"[" * 1_000_000 + b"]" * 1_000_000,
    "deep-object.jsonl": b'{"head":' * 100_000 + b"1" + b"}" * 100_000,
    "nul.txt": b"\0" * 100,
    "long.nt": b"<urn:" + b"a" * 10 * MEGABYTE,
    "deep.ttl": b"<urn:a> <urn:r> " + b"[ <urn:r> " * 100_000,
    "lists.ttl": b"<urn:a> <urn:r> " + b"( " * 200_000,
}


@pytest.mark.parametrize("name", LINES)
def test_long_lines_and_deep_nesting(name: str, tmp_path: Path) -> None:
    if name.endswith((".nt", ".ttl")):
        pytest.importorskip("pyoxigraph")
    (tmp_path / name).write_bytes(LINES[name])
    assert refused(tmp_path, "data", "info", name).startswith(f"plogicnet: {name}")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("entities.dict", b"9" * 10_000 + b"\tanna\n"),
        ("entities.dict", b"\xc2\xb2\tanna\n"),
        ("labels.tsv", b"a" * 10 * MEGABYTE),
        ("entities.dict", b"0\t" + b"a" * 10 * MEGABYTE + b"\n"),
        ("relations.dict", b"0\t" + b"a" * 10 * MEGABYTE + b"\n"),
        ("relations.dict", b"\0" * 1000),
        ("labels.tsv", b"anna\t\xff\n"),
        ("entities.dict", gzip.compress(b"0\tanna\n")),
    ],
    ids=["digits", "superscript", "label", "name", "relation", "nul", "bytes", "packed"],
)
def test_files_beside_the_triples(name: str, content: bytes, refused_here: Refusal, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(TRIPLE)
    (tmp_path / name).write_bytes(content)
    assert refused_here("data", "info", ".").startswith(f"plogicnet: {name}")


# Settings

SETTINGS = {
    "aliases": "a: &a [1, 1]\n"
    + "".join(f"{c}: &{c} [*{p}, *{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)),
    "self": "neural: &a {vectors: *a}\n",
    "deep": "neural: " + "[" * 100_000,
    "deep-mapping": "neural: " + "{a: " * 100_000,
    "long": "seed: " + "1" * 10_000_000,
    "digits": "seed: " + "1" * 10_000,
    "date": "seed: 2001-99-99\n",
    "object": "seed: !!python/object/apply:os.system [touch pwned]\n",
    "new": "seed: !!python/object/new:os.system [touch pwned]\n",
    "name": "seed: !!python/name:os.system\n",
    "tuple": "em: {lambda_grid: !!python/tuple [0, 1]}\n",
    "own-tag": "seed: !Ref x\n",
    "binary": "seed: !!binary aGVsbG8=\n",
    "merge": "a: &a {dim: 4}\nneural: {vectors: {<<: *a}}\n",
    "anchor": "seed: &a [1]\n",
    "two": "seed: 1\n---\nseed: 2\n",
    "control": "seed: \x07\n",
    "key": "? [a, b]\n: 1\n",
}


SMALL = ("object", "new", "name", "tuple", "own-tag", "binary", "merge", "anchor", "two", "control", "key", "date")


@pytest.mark.parametrize("case", SETTINGS)
def test_settings_made_to_do_harm(case: str, tmp_path: Path, refused_here: Refusal) -> None:
    (tmp_path / "my.yaml").write_text(SETTINGS[case])
    # what could fill a memory is read in a child that is held to a bound
    said = (refused_here if case in SMALL else lambda *words: refused(tmp_path, *words))(
        "config", "--config", "my.yaml"
    )
    assert said.startswith("plogicnet: my.yaml")
    assert {p.name for p in tmp_path.iterdir()} == {"my.yaml"}


@pytest.mark.parametrize(
    "value", ["[" * 20_000, "&a [*a]", "2001-99-99", "1" * 10_000, "!!python/object/apply:os.system [id]"]
)
def test_assignments_made_to_do_harm(value: str, call: Call) -> None:
    assert call("config", "--set", f"seed={value}")[:2] == (2, "")


# Rules

RULES = {
    "long": "husband(X, Y) => " + "a" * 10_000_000,
    "parentheses": "(" * 900_000,
    "quote": '"' + "a" * 900_000,
    "open": "husband" + "(X" * 100_000,
    "ands": "husband(X, Y)" + " & husband(X, Y)" * 50_000,
    "weight": "1" * 900_000 + ": husband(X, Y) => wife(Y, X)",
    "escape": '"\\UFFFFFFFF"(X, Y) => wife(Y, X)',
    "surrogate": '"\\ud800"(X, Y) => wife(Y, X)',
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_graph(tmp_path_factory.mktemp("graph"))


@pytest.mark.parametrize("case", RULES)
def test_rules_made_to_do_harm(case: str, graph: Path, refused_here: Refusal, tmp_path: Path) -> None:
    (tmp_path / "my.rules").write_text(RULES[case])
    said = refused_here("train", graph, "--rules", "my.rules", "--out", "run", *QUICK)
    assert said.startswith("plogicnet: my.rules, line 1")


@pytest.mark.parametrize(
    ("name", "message"), [("pipe", "a pipe or a device"), ("zero", "a pipe or a device"), ("packed", "not UTF-8")]
)
@pytest.mark.parametrize("option", ["--rules", "--config"])
def test_what_is_no_file_of_rules_or_settings(
    option: str, name: str, message: str, graph: Path, refused_here: Refusal, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "packed").write_bytes(bomb(b"\0" * MEGABYTE, 10))
    said = refused_here("train", graph, option, name, "--out", "run", *QUICK)
    assert said.startswith(f"plogicnet: {name}: ")
    assert message in said
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_rule_of_a_thousand_premises(graph: Path, refused_here: Refusal, tmp_path: Path) -> None:
    body = " & ".join(f"parent(X{i}, X{i + 1})" for i in range(1_000))
    (tmp_path / "my.rules").write_text(f"{body} => child(X0, X1000)\n")
    said = refused_here("train", graph, "--rules", "my.rules", "--out", "run", *QUICK)
    assert said.startswith("plogicnet: my.rules, line 1: 1,000 premises; a rule that is to be grounded has at most 100")


# Runs


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("hostile") / "run"
    fitted().save(run)
    return run


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


READING = [("evaluate",), ("rules",), ("doctor",), ("predict", "--head", "man0", "--relation", "husband")]


@pytest.mark.parametrize("name", ["rules.tsv", "metrics.json", "neural.safetensors", "log.txt", ".lock", "more"])
def test_a_link_out_of_the_run_is_not_followed(name: str, run: Path, refused_here: Refusal, tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("precious\n")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(Path("..") / ".." / tmp_path.name / "mine.txt")
    commands = [*READING, ("refit",), ("resume", "--set", "em.iterations=3")]
    for command, *words in commands if name in (".lock", "log.txt") else commands[:1]:
        if name == "metrics.json" and command == "doctor":
            continue
        said = refused_here(command, "run", *words)
        assert said.startswith(f"plogicnet: run/{name}: a link out of the run directory"), command
    assert mine.read_text() == "precious\n"


def test_a_linked_checkpoint_directory(run: Path, refused_here: Refusal, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "1").mkdir()
    (run / "metrics.json").unlink()
    (run / "checkpoint").symlink_to(tmp_path / "precious")
    assert "a link out of the run directory" in refused_here("resume", "run")
    assert "a link out of the run directory" in refused_here("train", "--out", "run", *QUICK)
    assert (tmp_path / "precious" / "1").is_dir()


def test_a_pipe_in_a_run_keeps_nobody_waiting(run: Path, refused_here: Refusal) -> None:
    (run / "log.txt").unlink(missing_ok=True)
    os.mkfifo(run / "log.txt")
    assert "neither a file nor a directory" in refused_here("refit", "run")


def test_no_file_of_a_run_is_a_pipe_or_a_device(run: Path, refused_here: Refusal, tmp_path: Path) -> None:
    for file in sorted(p for p in run.rglob("*") if p.is_file()):
        file.rename(tmp_path / "aside")
        os.mkfifo(file)
        assert "neither a file nor a directory" in refused_here("rules", "run"), file.name
        file.unlink()
        file.symlink_to("/dev/zero")
        assert "a link out of the run directory" in refused_here("rules", "run"), file.name
        file.unlink()
        (tmp_path / "aside").rename(file)


def safetensors(header: object, data: bytes = b"\0" * 64, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entity(shape: list[int], offsets: list[int], dtype: str = "F32") -> dict[str, object]:
    return {"entity": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


TENSORS = {
    "long": safetensors({}, length=2**63),
    "longer-than-the-file": safetensors({}, length=10_000),
    "no-json": safetensors(b"\xff" * 100),
    "deep": safetensors(b'{"entity":' + b"[" * 100_000),
    "list": safetensors([]),
    "beyond": safetensors(entity([10**12, 8], [0, 32 * 10**12])),
    "overflow": safetensors(entity([2**33, 2**33], [0, 64])),
    "shape": safetensors(entity([100, 100], [0, 64])),
    "backwards": safetensors(entity([4, 4], [64, 0])),
    "negative": safetensors(entity([-4, -4], [0, 64])),
    "overlap": safetensors(
        entity([4, 4], [0, 64]) | {"relation": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}}
    ),
    "type": safetensors(entity([4, 4], [0, 64], "PICKLE")),
    "integers": safetensors(entity([8, 1], [0, 64], "I64")),
    "scalar": safetensors(entity([], [0, 4]), b"\0" * 4),
    "empty": safetensors(entity([0, 8], [0, 0]), b""),
    "metadata": safetensors({"__metadata__": {"place": 1}} | entity([4, 4], [0, 64])),
}


@pytest.mark.parametrize("case", TENSORS)
def test_vectors_that_lie_about_their_sizes(case: str, run: Path, refused_here: Refusal) -> None:
    (run / "neural.safetensors").write_bytes(TENSORS[case])
    assert "run" in refused_here("evaluate", "run")


def edited(run: Path, name: str, change: Callable[[Any], Any]) -> None:
    file = run / name
    file.write_text(json.dumps(change(json.loads(file.read_text()))))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "deep-metrics": lambda run: (run / "metrics.json").write_text("[" * 1_000_000),
    "deep-history": lambda run: (run / "history.jsonl").write_text("[" * 1_000_000),
    "list-history": lambda run: (run / "history.jsonl").write_text("[]\n"),
    "empty-metrics": lambda run: (run / "metrics.json").write_text("{}"),
    "lambda-text": lambda run: edited(run, "metrics.json", lambda m: m | {"lambda": "../../etc/passwd"}),
    "lambda-nan": lambda run: edited(run, "metrics.json", lambda m: m | {"lambda": float("nan")}),
    "iteration": lambda run: edited(run, "metrics.json", lambda m: m | {"iteration": "../.."}),
    "calibration": lambda run: edited(run, "metrics.json", lambda m: m | {"calibration": {"__class__": "os"}}),
    "format": lambda run: edited(run, "run.json", lambda m: m | {"format": "../.."}),
    "deep-run": lambda run: (run / "run.json").write_text("[" * 1_000_000),
    "config": lambda run: (run / "config.yaml").write_text("neural: " + "[" * 100_000),
    "config-object": lambda run: (run / "config.yaml").write_text("seed: !!python/object/apply:os.abort []"),
    "rules": lambda run: (run / "rules.tsv").write_text("pattern\t" + "a" * 10_000_000),
    "vectors": lambda run: (run / "neural.safetensors").write_bytes(b"\xff" * 8 + b"{}"),
    "names": lambda run: (run / "entities.tsv").write_text("0\tanna\n"),
    "dimension": lambda run: (run / "config.yaml").write_text(
        (run / "config.yaml").read_text().replace("dim: 8", "dim: 8000000000")
    ),
    "threads": lambda run: (run / "config.yaml").write_text(
        (run / "config.yaml").read_text().replace("threads: 1", "threads: 1000000000")
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_run_made_to_do_harm(case: str, run: Path, refused_here: Refusal, tmp_path: Path) -> None:
    DAMAGE[case](run)
    resealed(run)  # a stranger's checksums would match
    in_a_child = case in ("dimension", "threads")  # they ask for more than there is
    assert "run" in (refused(tmp_path, "evaluate", "run") if in_a_child else refused_here("evaluate", "run"))


def test_numbers_that_name_nothing(run: Path, refused_here: Refusal) -> None:
    """Compiled code trusts them; and a stranger's checksums would match."""
    table = pq.read_table(run / "graph.parquet")
    heads = pa.array([10**9] * table.num_rows, pa.int32())
    pq.write_table(table.set_column(table.column_names.index("head"), "head", heads), run / "graph.parquet")
    resealed(run)
    assert "graph.parquet is damaged" in refused_here("evaluate", "run")


# Questions

LONG = 10 * MEGABYTE
QUESTIONS: dict[str, bytes] = {
    "one-line.tsv": b"a" * LONG,
    "long.tsv": b"man0\thusband\t" + b"a" * MEGABYTE + b"\n",
    "long.csv": b'man0,husband,"' + b"a" * LONG + b'"\n',
    "long.jsonl": b'{"head": "' + b"a" * LONG + b'"}\n',
    "deep.jsonl": b"[" * 100_000,
    "half.jsonl": b'{"head": "\\ud800", "relation": "husband", "tail": "man0"}\n',
    "digits.jsonl": b'{"head": ' + b"1" * 10_000 + b"}\n",
    "nul.tsv": b"\0" * 1_000,
    "bomb.tsv.gz": b"\0" * MEGABYTE,
    "bomb.jsonl.gz": b"\0" * MEGABYTE,
    "path.tsv": b"../../etc/passwd\t../../etc/passwd\t?\n",
    "carriage.tsv": b"\rman0\thusband\rnobody\n",
}


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("option", ["--queries", "--triples", "--facts"])
def test_questions_made_to_do_harm(option: str, name: str, whole: Path, refused_here: Refusal, tmp_path: Path) -> None:
    packed = name.endswith(".gz")
    (tmp_path / name).write_bytes(bomb(QUESTIONS[name], 1_000) if packed else QUESTIONS[name])
    words = ["--head", "man0", "--relation", "husband"] if option == "--facts" else []
    assert refused_here("predict", whole, option, name, *words).startswith(f"plogicnet: {name}")


@pytest.mark.parametrize("option", ["--queries", "--triples", "--facts"])
def test_questions_that_are_no_file(option: str, whole: Path, refused_here: Refusal, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.tsv")
    words = ["--head", "man0", "--relation", "husband"] if option == "--facts" else []
    for name, message in (
        ("pipe.tsv", "a pipe or a device where a file of triples is meant"),
        ("/dev/zero", "a pipe or a device where a file of triples is meant"),
        (".", "a directory where a file of triples is meant"),
        ("none.tsv", "no such file"),
        ("a" * 5_000, "cannot be read"),
        ("a\0b", "embedded null byte"),
    ):
        assert message in refused_here("predict", whole, option, name, *words), name


NAMES = {
    "long": "a" * LONG,
    "nul": "man0\0",
    "half": "\ud800",
    "escaped-byte": "\udcff",
    "right-to-left": "\u202eman0",
    "lines": "man0\r\nhusband",
    "path": "../../etc/passwd",
    "colour": "\x1b[31mman0",
    "markup": "[bold]man0[/bold] [link=x]",
    "format": "{0.__class__} %s %n",
    "empty": "",
}


@pytest.mark.parametrize("case", NAMES)
def test_names_made_to_do_harm(case: str, whole: Path, refused_here: Refusal) -> None:
    name = NAMES[case]
    for words in (
        ("predict", whole, "--head", name, "--relation", "husband"),
        ("predict", whole, "--head", "man0", "--relation", name),
        ("explain", whole, name, "husband", "man0"),
        ("explain", whole, "man0", "husband", "man0", "--facts", name),
    ):
        said = refused_here(*words)
        assert said.startswith(("plogicnet: ", "Usage: "))  # the latter where no path can be called so
        assert "\x1b" not in said  # no message of ours says anything to a terminal
        assert "\u202e" not in said
    for command in ("data info", "data get", "config --preset"):
        assert refused_here(*command.split(), name).startswith("plogicnet: ")
