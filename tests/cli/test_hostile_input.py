"""Files and runs made to do harm, through the real command: a message, exit code 2, bounded memory, nothing touched."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from small import fitted, write_small_graph
from stopping import without_sums

MEMORY = 8 << 30
"""No command here may take so much address space; most of it is what libraries reserve."""
QUICK = ["--set=kge.steps=5", "--set=kge.dim=4", "--set=device=cpu", "--set=threads=1"]


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


# Graphs

MEGABYTE = 1 << 20
TRIPLE = b"anna\tknows\tben\n"


def bomb(content: bytes, times: int) -> bytes:
    """A gzip file of the content so many times, without ever holding it."""
    part = gzip.compress(content, 9)
    return part * times  # members one after another are one file


TEXT = ["train.txt.gz", "train.tsv.gz", "train.csv.gz"]
TRIPLES = TRIPLE * (MEGABYTE // len(TRIPLE))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((name, b"\0" * MEGABYTE) for name in (*TEXT, "train.jsonl.gz", "train.nt.gz")),
        *((name, TRIPLES) for name in TEXT),
    ],
    ids=lambda value: value if isinstance(value, str) else "triples" if value[0] else "zeros",
)
def test_ten_gigabytes_in_a_small_file(name: str, content: bytes, tmp_path: Path) -> None:
    if "nt" in name:
        pytest.importorskip("pyoxigraph")
    (tmp_path / name).write_bytes(bomb(content, 10_000))
    said = refused(tmp_path, "data", "info", name)
    assert said.startswith(f"plogicnet: {name}")


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
    "lists.ttl": b"<urn:a> <urn:r> " + b"( " * 1_000_000,
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
    ],
    ids=["digits", "superscript", "label", "name"],
)
def test_files_beside_the_triples(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(TRIPLE)
    (tmp_path / name).write_bytes(content)
    assert refused(tmp_path, "data", "info", ".").startswith(f"plogicnet: {name}")


# Settings

SETTINGS = {
    "aliases": "a: &a [1, 1]\n"
    + "".join(f"{c}: &{c} [*{p}, *{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)),
    "self": "kge: &a {dim: *a}\n",
    "deep": "kge: " + "[" * 100_000,
    "deep-mapping": "kge: " + "{a: " * 100_000,
    "long": "seed: " + "1" * 10_000_000,
    "digits": "seed: " + "1" * 10_000,
    "date": "seed: 2001-99-99\n",
    "object": "seed: !!python/object/apply:os.system [touch pwned]\n",
    "new": "seed: !!python/object/new:os.system [touch pwned]\n",
    "control": "seed: \x07\n",
    "key": "? [a, b]\n: 1\n",
}


@pytest.mark.parametrize("case", SETTINGS)
def test_settings_made_to_do_harm(case: str, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(SETTINGS[case])
    assert refused(tmp_path, "config", "--config", "my.yaml").startswith("plogicnet: my.yaml")
    assert {p.name for p in tmp_path.iterdir()} == {"my.yaml"}


@pytest.mark.parametrize(
    "value", ["[" * 20_000, "&a [*a]", "2001-99-99", "1" * 10_000, "!!python/object/apply:os.system [id]"]
)
def test_assignments_made_to_do_harm(value: str, tmp_path: Path) -> None:
    done = plogicnet(tmp_path, "config", "--set", f"seed={value}")
    assert done.returncode == 2, done.stderr[-2000:]
    assert "Traceback" not in done.stderr


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
def test_rules_made_to_do_harm(case: str, graph: Path, tmp_path: Path) -> None:
    (tmp_path / "my.rules").write_text(RULES[case])
    said = refused(tmp_path, "train", graph, "--rules", "my.rules", "--out", "run", *QUICK)
    assert said.startswith("plogicnet: my.rules, line 1")


def test_a_rule_of_a_thousand_premises(graph: Path, tmp_path: Path) -> None:
    body = " & ".join(f"parent(X{i}, X{i + 1})" for i in range(1_000))
    (tmp_path / "my.rules").write_text(f"{body} => child(X0, X1000)\n")
    said = refused(tmp_path, "train", graph, "--rules", "my.rules", "--out", "run", *QUICK)
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


@pytest.mark.parametrize("name", ["rules.tsv", "metrics.json", "embeddings.safetensors", "log.txt", ".lock", "more"])
def test_a_link_out_of_the_run_is_not_followed(name: str, run: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("precious\n")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(Path("..") / ".." / tmp_path.name / "mine.txt")
    commands = [*READING, ("refit",), ("resume", "--set", "em.iterations=3")]
    for command, *words in commands if name in (".lock", "log.txt") else commands[:1]:
        if name == "metrics.json" and command == "doctor":
            continue
        said = refused(tmp_path, command, "run", *words)
        assert said.startswith(f"plogicnet: run/{name}: a link out of the run directory"), command
    assert mine.read_text() == "precious\n"


def test_a_linked_checkpoint_directory(run: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "1").mkdir()
    (run / "metrics.json").unlink()
    (run / "checkpoint").symlink_to(tmp_path / "precious")
    assert "a link out of the run directory" in refused(tmp_path, "resume", "run")
    assert "a link out of the run directory" in refused(tmp_path, "train", "--out", "run", *QUICK)
    assert (tmp_path / "precious" / "1").is_dir()


def test_a_pipe_in_a_run_keeps_nobody_waiting(run: Path, tmp_path: Path) -> None:
    os.mkfifo(run / "log.txt")
    assert "neither a file nor a directory" in refused(tmp_path, "refit", "run")


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
    "config": lambda run: (run / "config.yaml").write_text("kge: " + "[" * 100_000),
    "config-object": lambda run: (run / "config.yaml").write_text("seed: !!python/object/apply:os.abort []"),
    "rules": lambda run: (run / "rules.tsv").write_text("pattern\t" + "a" * 10_000_000),
    "vectors": lambda run: (run / "embeddings.safetensors").write_bytes(b"\xff" * 8 + b"{}"),
    "names": lambda run: (run / "entities.tsv").write_text("0\tanna\n"),
    "dimension": lambda run: (run / "config.yaml").write_text(
        (run / "config.yaml").read_text().replace("dim: 8", "dim: 8000000000")
    ),
    "threads": lambda run: (run / "config.yaml").write_text(
        (run / "config.yaml").read_text().replace("threads: 1", "threads: 1000000000")
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_run_made_to_do_harm(case: str, run: Path, tmp_path: Path) -> None:
    without_sums(run)  # a stranger's would fit
    DAMAGE[case](run)
    assert "run" in refused(tmp_path, "evaluate", "run")


def test_numbers_that_name_nothing(run: Path, tmp_path: Path) -> None:
    """Compiled code trusts them; and a stranger's checksums would fit."""
    without_sums(run)
    table = pq.read_table(run / "graph.parquet")
    heads = pa.array([10**9] * table.num_rows, pa.int32())
    pq.write_table(table.set_column(table.column_names.index("head"), "head", heads), run / "graph.parquet")
    assert "graph.parquet is damaged" in refused(tmp_path, "evaluate", "run")


# Questions


@pytest.mark.parametrize(
    ("option", "content"),
    [
        ("--queries", b"a" * 10 * MEGABYTE),
        ("--queries", b"../../etc/passwd\thusband\t?\n"),
        ("--triples", b"man0\thusband\t" + b"a" * MEGABYTE + b"\n"),
        ("--facts", b"man0\t" + b"a" * MEGABYTE + b"\tben\n"),
    ],
)
def test_questions_made_to_do_harm(option: str, content: bytes, whole: Path, tmp_path: Path) -> None:
    (tmp_path / "asked.tsv").write_bytes(content)
    words = ["--head", "man0", "--relation", "husband"] if option == "--facts" else []
    assert refused(tmp_path, "predict", whole, option, "asked.tsv", *words).startswith("plogicnet: asked.tsv")
