"""Malicious files and runs in the real command: a message, exit code 2, limited memory, no changed files."""

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

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plogicnet as package
from calling import Call
from plogicnet.graph.io import unpacking
from plogicnet.runs.directory import snapshot_folder
from small import fitted, write_small_graph
from stopping import overwrite, update_checksums

MEMORY = 8 << 30
"""Limit of the address space for each command. Libraries reserve most of it."""
QUICK = ["--set=neural.steps=5", "--set=neural.vectors.dim=4", "--set=device=cpu", "--set=threads=1"]


def plogicnet(folder: Path, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k not in ("PLOGICNET_DATA", "PLOGICNET_EXPANSION")}
    env |= {"NO_COLOR": "1", "OMP_NUM_THREADS": "1", **variables}

    def limit_memory() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    return subprocess.run(
        [sys.executable, "-m", "plogicnet", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=env,
        cwd=folder,
        timeout=120,  # seconds
        check=False,
        preexec_fn=limit_memory if sys.platform == "linux" else None,
    )


def error_in_child(folder: Path, *arguments: object) -> str:
    """Run a command that must fail, in a child process with limited memory, and return stderr."""
    result = plogicnet(folder, *arguments)
    assert result.returncode == 2, result.stdout[-2000:] + result.stderr[-2000:]
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert len(result.stderr) < 2_000  # does not print the file
    return result.stderr


ErrorOf = Callable[..., str]


@pytest.fixture
def error_in_process(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ErrorOf:
    """Like `error_in_child`, but in this process: for inputs that cannot exhaust the memory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PLOGICNET_EXPANSION", raising=False)

    def run_failing(*arguments: object) -> str:
        code, out, stderr = call(*arguments)
        assert (code, out) == (2, ""), stderr[-2000:]
        assert len(stderr) < 2_000
        return stderr

    return run_failing


def test_the_sources_never_execute_data() -> None:
    """The package uses no pickle, no eval and no unsafe loader."""
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


def repeat_gzip(content: bytes, times: int) -> bytes:
    """Return a gzip file that expands to the content `times` times."""
    part = gzip.compress(content, 9)
    return part * times  # concatenated members are one file


TEXT_FILES = ["train.txt.gz", "train.tsv.gz", "train.csv.gz"]
TRIPLES = TRIPLE * (MEGABYTE // len(TRIPLE))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((name, b"\0" * MEGABYTE) for name in (*TEXT_FILES, "train.jsonl.gz", "train.nt.gz")),
        *((name, TRIPLES) for name in TEXT_FILES[1:]),
    ],
    ids=lambda value: value if isinstance(value, str) else "triples" if value[0] else "zeros",
)
def test_a_small_file_that_expands_to_two_gigabytes_is_refused(name: str, content: bytes, tmp_path: Path) -> None:
    if "nt" in name:
        pytest.importorskip("pyoxigraph")
    (tmp_path / name).write_bytes(repeat_gzip(content, 2_000))
    stderr = error_in_child(tmp_path, "data", "info", name)
    assert stderr.startswith(f"plogicnet: {name}")


@pytest.mark.slow
def test_the_expansion_limit_can_be_raised(tmp_path: Path) -> None:
    content = "".join(f"a{i % 7}\tknows\tb{i % 5}\n" for i in range(70_000)).encode()
    (tmp_path / "packed.tsv.gz").write_bytes(repeat_gzip(content, 200))  # 170 MB in less than 1 MB
    stderr = error_in_child(tmp_path, "data", "info", "packed.tsv.gz")
    assert "more than 100 times larger than the file" in stderr
    assert "PLOGICNET_EXPANSION=1000" in stderr
    result = plogicnet(tmp_path, "data", "info", "packed.tsv.gz", "--json", PLOGICNET_EXPANSION="1000")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["entities"] == 12
    invalid = plogicnet(tmp_path, "data", "info", "packed.tsv.gz", PLOGICNET_EXPANSION="many")
    assert invalid.returncode == 2
    assert "must be an integer" in invalid.stderr


def test_a_small_parquet_file_with_many_rows_is_refused(tmp_path: Path) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 1_000_000, pa.int32()), pa.array(["anna"]))
    piece = pa.table({"head": column, "relation": column, "tail": column})
    with pq.ParquetWriter(tmp_path / "a.parquet", piece.schema, compression="zstd") as writer:
        for _ in range(100):
            writer.write_table(piece)
    assert (tmp_path / "a.parquet").stat().st_size < MEGABYTE
    stderr = error_in_child(tmp_path, "data", "info", "a.parquet")
    assert "PLOGICNET_EXPANSION" in stderr


ROWS = {
    "rows.jsonl.gz": b'{"h": "anna", "r": "knows", "t": "ben"}\n',
    "rows.nt.gz": b"<urn:anna> <urn:knows> <urn:ben> .\n",
    "rows.ttl.gz": b"<urn:anna> <urn:knows> <urn:ben> .\n",
    "quoted.tsv.gz": b'"anna"\tknows\tben\n',
    "quoted.csv.gz": b'"an\nna",knows,ben\n',
}


@pytest.mark.parametrize("name", ROWS)
def test_a_compressed_file_of_short_rows_is_refused(
    name: str, error_in_process: ErrorOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit also applies to files that Python reads row by row. A small limit makes the test fast."""
    if "nt" in name or "ttl" in name:
        pytest.importorskip("pyoxigraph")
    monkeypatch.setattr(unpacking, "ALWAYS_ALLOWED_BYTES", MEGABYTE // 2)
    (tmp_path / name).write_bytes(repeat_gzip(ROWS[name] * 4_000, 20))
    assert "more than 100 times larger than the file" in error_in_process("data", "info", name)


def test_a_long_turtle_prefix_is_refused(error_in_process: ErrorOf, tmp_path: Path) -> None:
    """Each name of a few bytes expands to a megabyte."""
    pytest.importorskip("pyoxigraph")
    names = b"".join(b":%d :r :%d .\n" % (i, i + 1) for i in range(1_000))
    (tmp_path / "a.ttl").write_bytes(b"@prefix : <urn:" + b"a" * MEGABYTE + b"> .\n" + names)
    assert "more than 100 times larger than the file" in error_in_process("data", "info", "a.ttl")


def repeated_text(text: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))


@pytest.mark.parametrize("kind", ["dictionary", "delta"])
def test_a_parquet_file_with_one_long_text_in_all_rows_is_refused(kind: str, tmp_path: Path) -> None:
    """The rows contain 100 GB; the metadata of the file gives a size of one megabyte."""
    if kind == "dictionary":
        column = repeated_text("a" * MEGABYTE, 100_000)
        pq.write_table(pa.table({"head": column, "relation": column, "tail": column}), tmp_path / "a.parquet")
    else:
        column = pa.array([chr(97 + i % 2) + "a" * 100_000 for i in range(2_000)])
        encoding = dict.fromkeys(("head", "relation", "tail"), "DELTA_BYTE_ARRAY")
        table = pa.table({"head": column.sort(), "relation": column.sort(), "tail": column.sort()})
        pq.write_table(table, tmp_path / "a.parquet", use_dictionary=False, column_encoding=encoding)
    assert (tmp_path / "a.parquet").stat().st_size < 4 * MEGABYTE
    assert "more than 100 times larger than the file" in error_in_child(tmp_path, "data", "info", "a.parquet")


INVALID_UTF8 = pa.Array.from_buffers(
    pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
)
X = pa.array(["x"])
SCHEMAS = {
    "nested": ({"head": pa.array([["a"]]), "relation": pa.array([{"x": "r"}]), "tail": X}, "expected columns head"),
    "map": (
        {"head": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), "relation": X, "tail": X},
        "expected columns",
    ),
    "binary": ({"head": X, "relation": X, "tail": pa.array([b"\xff\xfe"])}, "Invalid UTF8"),
    "text": ({"head": INVALID_UTF8, "relation": X, "tail": X}, "Invalid UTF8"),
    "nulls": ({"head": pa.nulls(1), "relation": X, "tail": X}, "row 1: the head is missing"),
    "case": ({"head": X, "Head": X, "relation": X, "tail": X}, "two columns are named head"),
    "none": ({}, "expected columns head"),
    "many": ({f"column{i}": X for i in range(500)}, "expected columns head"),
    "long": ({"a" * MEGABYTE: X, "b": X}, "expected columns head"),
}


@pytest.mark.parametrize("case", SCHEMAS)
def test_parquet_with_other_columns_is_refused(case: str, error_in_process: ErrorOf, tmp_path: Path) -> None:
    columns, message = SCHEMAS[case]
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    stderr = error_in_process("data", "info", "a.parquet")
    assert stderr.startswith("plogicnet: a.parquet")
    assert message in stderr


def test_parquet_with_a_duplicate_column_is_refused(error_in_process: ErrorOf, tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_arrays([X] * 4, ["head", "relation", "tail", "head"]), tmp_path / "a.parquet")
    assert "two columns are named 'head'" in error_in_process("data", "info", "a.parquet")


def test_corrupted_parquet_is_read_or_refused(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Corrupted lengths, counts, offsets, encodings and names give a graph or a message, and no crash."""
    monkeypatch.chdir(tmp_path)
    table = pa.table({"head": ["a", "b", "c"] * 5, "relation": ["r"] * 15, "tail": ["b", "c", "d"] * 5})
    file = tmp_path / "a.parquet"
    pq.write_table(table, file, compression="zstd", store_schema=False, write_statistics=False)
    intact, rng = file.read_bytes(), random.Random(0)
    codes = set()
    for position in range(4, len(intact), 4):
        invalid = b"\xff\xff\xff\xff\x07" if rng.random() < 0.2 else bytes([rng.choice((0x00, 0x7F, 0x80, 0xFF))])
        file.write_bytes(intact[:position] + invalid + intact[position + 1 :])
        code, _, stderr = call("data", "info", "a.parquet", "--json")
        assert code in (0, 2), (position, invalid, stderr)
        codes.add(code)
    assert codes == {0, 2}


@pytest.mark.parametrize("name", ["a.tsv", "a.csv.gz", "a.jsonl", "a.parquet", "a.nt"])
def test_a_pipe_or_a_device_is_not_a_graph(name: str, error_in_process: ErrorOf, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)  # has no writer, so opening it would block
    assert error_in_process("data", "info", name).startswith(
        f"plogicnet: {name}: expected a graph, found a pipe or a device"
    )
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    assert error_in_process("data", "info", name).startswith(
        f"plogicnet: {name}: expected a graph, found a pipe or a device"
    )


def test_a_pipe_on_stdin_does_not_block() -> None:
    read_end, write_end = os.pipe()
    try:
        command = [sys.executable, "-m", "plogicnet", "data", "info", "/dev/stdin"]
        result = subprocess.run(command, stdin=read_end, capture_output=True, text=True, timeout=60, check=False)
    finally:
        os.close(read_end)
        os.close(write_end)
    assert result.returncode == 2
    assert result.stderr.startswith("plogicnet: /dev/stdin: expected a graph, found a pipe or a device")


def test_devices_next_to_the_triples_are_ignored(call: Call, tmp_path: Path) -> None:
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
def test_a_wrong_count_in_the_first_line_is_refused(
    name: str, count: bytes, error_in_process: ErrorOf, tmp_path: Path
) -> None:
    for file, content in OPENKE.items():
        (tmp_path / file).write_bytes(content)
    if count == "١".encode() and name != "entity2id.txt":
        (tmp_path / name).write_bytes(OPENKE[name] + b"more\n")  # an Arabic digit 1 is a valid 1
    else:
        _, _, rest = OPENKE[name].partition(b"\n")
        (tmp_path / name).write_bytes(count + b"\n" + rest)
    assert error_in_process("data", "info", ".").startswith(f"plogicnet: {name}")


LONG_LINES = {
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


@pytest.mark.parametrize("name", LONG_LINES)
def test_long_lines_and_deep_nesting_are_refused(name: str, tmp_path: Path) -> None:
    if name.endswith((".nt", ".ttl")):
        pytest.importorskip("pyoxigraph")
    (tmp_path / name).write_bytes(LONG_LINES[name])
    assert error_in_child(tmp_path, "data", "info", name).startswith(f"plogicnet: {name}")


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
def test_invalid_dictionaries_and_labels_are_refused(
    name: str, content: bytes, error_in_process: ErrorOf, tmp_path: Path
) -> None:
    (tmp_path / "train.txt").write_bytes(TRIPLE)
    (tmp_path / name).write_bytes(content)
    assert error_in_process("data", "info", ".").startswith(f"plogicnet: {name}")


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
    "custom-tag": "seed: !Ref x\n",
    "binary": "seed: !!binary aGVsbG8=\n",
    "merge": "a: &a {dim: 4}\nneural: {vectors: {<<: *a}}\n",
    "anchor": "seed: &a [1]\n",
    "two": "seed: 1\n---\nseed: 2\n",
    "control": "seed: \x07\n",
    "key": "? [a, b]\n: 1\n",
}


SMALL_CASES = (
    "object",
    "new",
    "name",
    "tuple",
    "custom-tag",
    "binary",
    "merge",
    "anchor",
    "two",
    "control",
    "key",
    "date",
)


@pytest.mark.parametrize("case", SETTINGS)
def test_malicious_settings_are_refused(case: str, tmp_path: Path, error_in_process: ErrorOf) -> None:
    (tmp_path / "my.yaml").write_text(SETTINGS[case])
    # cases that could exhaust the memory run in a child process with a limit
    stderr = (error_in_process if case in SMALL_CASES else lambda *arguments: error_in_child(tmp_path, *arguments))(
        "config", "--config", "my.yaml"
    )
    assert stderr.startswith("plogicnet: my.yaml")
    assert {p.name for p in tmp_path.iterdir()} == {"my.yaml"}


@pytest.mark.parametrize(
    "value", ["[" * 20_000, "&a [*a]", "2001-99-99", "1" * 10_000, "!!python/object/apply:os.system [id]"]
)
def test_malicious_assignments_are_refused(value: str, call: Call) -> None:
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
def test_malicious_rules_are_refused(case: str, graph: Path, error_in_process: ErrorOf, tmp_path: Path) -> None:
    (tmp_path / "my.rules").write_text(RULES[case])
    stderr = error_in_process("train", graph, "--rules", "my.rules", "--out", "run", *QUICK)
    assert stderr.startswith("plogicnet: my.rules, line 1")


@pytest.mark.parametrize(
    ("name", "message"), [("pipe", "a pipe or a device"), ("zero", "a pipe or a device"), ("packed", "not UTF-8")]
)
@pytest.mark.parametrize("option", ["--rules", "--config"])
def test_pipes_devices_and_binary_files_are_not_rules_or_settings(
    option: str, name: str, message: str, graph: Path, error_in_process: ErrorOf, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "packed").write_bytes(repeat_gzip(b"\0" * MEGABYTE, 10))
    stderr = error_in_process("train", graph, option, name, "--out", "run", *QUICK)
    assert stderr.startswith(f"plogicnet: {name}: ")
    assert message in stderr
    assert not (tmp_path / "run").exists()


def test_a_rule_with_a_thousand_premises_is_refused(graph: Path, error_in_process: ErrorOf, tmp_path: Path) -> None:
    body = " & ".join(f"parent(X{i}, X{i + 1})" for i in range(1_000))
    (tmp_path / "my.rules").write_text(f"{body} => child(X0, X1000)\n")
    stderr = error_in_process("train", graph, "--rules", "my.rules", "--out", "run", *QUICK)
    assert stderr.startswith("plogicnet: my.rules, line 1: a rule must have at most 100 premises, got 1,000")


# Runs


@pytest.fixture(scope="module")
def intact_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("hostile") / "run"
    fitted().save(run)
    return run


@pytest.fixture
def run(intact_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(intact_run, tmp_path / "run"))


READING_COMMANDS = [("evaluate",), ("rules",), ("doctor",), ("predict", "--head", "man0", "--relation", "husband")]


LINKS = [
    *(f"snapshots/0001/{name}" for name in ("rules.tsv", "metrics.json", "neural.safetensors", "manifest.json")),
    *("CURRENT", "work/log.txt", "work/lock", "work/timings.json", "more"),
]


@pytest.mark.parametrize("name", LINKS)
def test_a_link_out_of_the_run_directory_is_refused(
    name: str, run: Path, error_in_process: ErrorOf, tmp_path: Path
) -> None:
    target = tmp_path / "target.txt"
    target.write_text("precious\n")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(target)
    writing_commands = [("refit",), ("resume", "--set", "em.iterations=3"), ("runs", "revert", "0001")]
    for command, *arguments in [*READING_COMMANDS, ("runs", "list"), *writing_commands]:
        words = (command, "run", *arguments) if command != "runs" else (command, arguments[0], "run", *arguments[1:])
        stderr = error_in_process(*words)
        assert stderr.startswith(f"plogicnet: run/{name}: the link leads out of the run directory"), command
    assert target.read_text() == "precious\n"


def test_a_linked_checkpoint_directory_is_refused(run: Path, error_in_process: ErrorOf, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "1").mkdir()
    (run / "CURRENT").unlink()
    (run / "work" / "checkpoint").symlink_to(tmp_path / "precious")
    assert "the link leads out of the run directory" in error_in_process("resume", "run")
    assert "the link leads out of the run directory" in error_in_process("train", "--out", "run", *QUICK)
    assert (tmp_path / "precious" / "1").is_dir()


def test_a_pipe_as_log_does_not_block(run: Path, error_in_process: ErrorOf) -> None:
    (run / "work" / "log.txt").unlink()
    os.mkfifo(run / "work" / "log.txt")
    assert "not a file or directory" in error_in_process("refit", "run")


def test_pipes_and_devices_in_a_run_are_refused(run: Path, error_in_process: ErrorOf, tmp_path: Path) -> None:
    for file in sorted(p for p in run.rglob("*") if p.is_file()):
        file.rename(tmp_path / "aside")
        os.mkfifo(file)
        assert "not a file or directory" in error_in_process("rules", "run"), file.name
        file.unlink()
        file.symlink_to("/dev/zero")
        assert "the link leads out of the run directory" in error_in_process("rules", "run"), file.name
        file.unlink()
        (tmp_path / "aside").rename(file)


def safetensors(header: object, data: bytes = b"\0" * 64, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entity(shape: list[int], offsets: list[int], dtype: str = "F32") -> dict[str, object]:
    return {"entity": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


TENSOR_FILES = {
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


@pytest.mark.parametrize("case", TENSOR_FILES)
def test_invalid_tensor_files_are_refused(case: str, run: Path, error_in_process: ErrorOf) -> None:
    overwrite(snapshot_folder(run) / "neural.safetensors", TENSOR_FILES[case])
    update_checksums(run)
    assert "run" in error_in_process("evaluate", "run")


def set_value(name: str, key: str, value: object) -> tuple[str, Callable[[Path], str]]:
    """Return a file, and a function that returns its text with another value of a key."""
    return name, lambda folder: json.dumps(json.loads((folder / name).read_text()) | {key: value})


def replace_text(name: str, old: str, new: str) -> tuple[str, Callable[[Path], str]]:
    return name, lambda folder: (folder / name).read_text().replace(old, new)


DAMAGE: dict[str, tuple[str, str | Callable[[Path], str]]] = {
    "deep-metrics": ("metrics.json", "[" * 1_000_000),
    "deep-history": ("history.jsonl", "[" * 1_000_000),
    "list-history": ("history.jsonl", "[]\n"),
    "empty-metrics": ("metrics.json", "{}"),
    "lambda-text": set_value("metrics.json", "lambda", "../../etc/passwd"),
    "lambda-nan": set_value("metrics.json", "lambda", float("nan")),
    "iteration": set_value("metrics.json", "iteration", "../.."),
    "calibration": set_value("metrics.json", "calibration", {"__class__": "os"}),
    "config": ("config.yaml", "neural: " + "[" * 100_000),
    "config-object": ("config.yaml", "seed: !!python/object/apply:os.abort []"),
    "rules": ("rules.tsv", "pattern\t" + "a" * 10_000_000),
    "vectors": ("neural.safetensors", "a" * 8 + "{}"),
    "names": ("entities.tsv", "0\tanna\n"),
    "dimension": replace_text("config.yaml", "dim: 8", "dim: 8000000000"),
    "threads": replace_text("config.yaml", "threads: 1", "threads: 1000000000"),
}
"""A file, and its new content."""


@pytest.mark.parametrize("case", DAMAGE)
def test_a_malicious_run_is_refused(case: str, run: Path, error_in_process: ErrorOf, tmp_path: Path) -> None:
    folder, (name, content) = snapshot_folder(run), DAMAGE[case]
    overwrite(folder / name, content if isinstance(content, str) else content(folder))
    update_checksums(run)  # in a malicious run the checksums match
    large = case in ("dimension", "threads")  # these request too much memory or too many threads
    assert "run" in (error_in_child(tmp_path, "evaluate", "run") if large else error_in_process("evaluate", "run"))


MANIFESTS = {
    "deep": "[" * 1_000_000,
    "list": "[]",
    "empty": "{}",
    "format": '{"format": "../.."}',
    "future": json.dumps({"format": 10**400, "version": "\x1b[31m" * 1000}),
    "checksums": '{"format": 1, "version": "1.0", "sha256": ["/etc/passwd"]}',
}


@pytest.mark.parametrize("case", MANIFESTS)
def test_a_malicious_manifest_is_refused(case: str, run: Path, error_in_process: ErrorOf) -> None:
    overwrite(snapshot_folder(run) / "manifest.json", MANIFESTS[case])
    for command in ("evaluate", "rules"):
        assert error_in_process(command, "run").startswith("plogicnet: run/snapshots/0001/manifest.json")


@pytest.mark.parametrize("name", ["../../etc", "0001/../0001", "", "9" * 10_000, "1\x000", "\u0660\u0660\u0660\u0661"])
def test_a_malicious_name_of_the_current_snapshot_is_refused(name: str, run: Path, error_in_process: ErrorOf) -> None:
    (run / "CURRENT").write_text(name, encoding="utf-8")
    for command in ("evaluate", "rules", "refit", "resume"):
        stderr = error_in_process(command, "run")
        assert stderr.startswith("plogicnet: run/CURRENT is damaged")
        assert "Restore it with `plogicnet runs revert run 0001`." in stderr


def test_entity_numbers_out_of_range_are_refused(run: Path, error_in_process: ErrorOf) -> None:
    """Compiled code does not check them, and in a malicious run the checksums match."""
    file = snapshot_folder(run) / "graph.parquet"
    table = pq.read_table(file)
    heads = pa.array([10**9] * table.num_rows, pa.int32())
    file.unlink()
    pq.write_table(table.set_column(table.column_names.index("head"), "head", heads), file)
    update_checksums(run)
    assert "graph.parquet is damaged" in error_in_process("evaluate", "run")


# Queries

LONG = 10 * MEGABYTE
QUERY_FILES: dict[str, bytes] = {
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


@pytest.mark.parametrize("name", QUERY_FILES)
@pytest.mark.parametrize("option", ["--queries", "--triples", "--facts"])
def test_malicious_query_files_are_refused(
    option: str, name: str, intact_run: Path, error_in_process: ErrorOf, tmp_path: Path
) -> None:
    packed = name.endswith(".gz")
    (tmp_path / name).write_bytes(repeat_gzip(QUERY_FILES[name], 1_000) if packed else QUERY_FILES[name])
    arguments = ["--head", "man0", "--relation", "husband"] if option == "--facts" else []
    assert error_in_process("predict", intact_run, option, name, *arguments).startswith(f"plogicnet: {name}")


@pytest.mark.parametrize("option", ["--queries", "--triples", "--facts"])
def test_query_files_must_be_files(option: str, intact_run: Path, error_in_process: ErrorOf, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.tsv")
    arguments = ["--head", "man0", "--relation", "husband"] if option == "--facts" else []
    for name, message in (
        ("pipe.tsv", "expected a file of triples, found a pipe or a device"),
        ("/dev/zero", "expected a file of triples, found a pipe or a device"),
        (".", "expected a file of triples, found a directory"),
        ("none.tsv", "no such file"),
        ("a" * 5_000, "cannot be read"),
        ("a\0b", "embedded null byte"),
    ):
        assert message in error_in_process("predict", intact_run, option, name, *arguments), name


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
def test_malicious_names_are_refused(case: str, intact_run: Path, error_in_process: ErrorOf) -> None:
    name = NAMES[case]
    for arguments in (
        ("predict", intact_run, "--head", name, "--relation", "husband"),
        ("predict", intact_run, "--head", "man0", "--relation", name),
        ("explain", intact_run, name, "husband", "man0"),
        ("explain", intact_run, "man0", "husband", "man0", "--facts", name),
    ):
        stderr = error_in_process(*arguments)
        assert stderr.startswith(("plogicnet: ", "Usage: "))  # Usage: the name is not a valid path
        assert "\x1b" not in stderr  # no control characters reach the terminal
        assert "\u202e" not in stderr
    for command in ("data info", "data get", "config --preset"):
        assert error_in_process(*command.split(), name).startswith("plogicnet: ")
