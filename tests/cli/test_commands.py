"""The real commands in child processes, on small graphs: options, exit codes, JSON and files."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forking import run_program
from stopping import files_of, tree_of

PROGRAM = Path(sys.executable).with_name("plogicnet")
DATA = Path(os.environ.get("PLOGICNET_DATA", "no-data")).resolve()
SMALL = [
    f"--set={s}"
    for s in (
        "neural.steps=300",
        "neural.vectors.dim=32",
        "neural.batch=256",
        "neural.vectors.negatives=32",
        "neural.vectors.gamma=6",
        "neural.learning_rate=0.01",
    )
]
Tool = Callable[..., subprocess.CompletedProcess[str]]


def plogicnet(
    *arguments: object, data: Path | None = DATA, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return run_program(*arguments, data=data, cwd=cwd)


def run_json(*arguments: object) -> dict[str, Any]:
    result = plogicnet(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    value = json.loads(result.stdout)
    assert isinstance(value, dict)
    return value


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return UMLS if the benchmark data sets are available, otherwise the path of the demo family."""
    if (DATA / "umls").is_dir():
        return "umls"
    from plogicnet.graph import SPLITS, demo_family

    family, folder = demo_family(), tmp_path_factory.mktemp("family")
    for split in SPLITS:
        lines = ("\t".join(family.names(t)) + "\n" for t in family.split(split))
        (folder / f"{split}.txt").write_text("".join(lines), encoding="utf-8")
    return str(folder)


@pytest.fixture(scope="module")
def run(graph: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    result = plogicnet("train", graph, "--out", out, "--device", "cpu", "--seed", 1, *SMALL)
    assert result.returncode == 0, result.stderr
    assert "Cost:" in result.stderr
    assert "EM iterations" in result.stdout
    assert "On valid, answers that are in test count as wrong" in " ".join(result.stdout.split())
    return out


def names_of(run: Path, file: str) -> list[str]:
    """Return the names in a file of lines `id⇥name`."""
    return [line.split("\t")[1] for line in files_of(run)[file].decode().splitlines()]


def test_a_run_directory_contains_only_its_files(run: Path) -> None:
    names = (
        *("config.yaml", "rules.tsv", "hidden.parquet", "neural.safetensors", "entities.tsv", "relations.tsv"),
        *("metrics.json", "history.jsonl", "graph.parquet", "manifest.json"),
    )
    assert {str(p.relative_to(run)) for p in run.rglob("*") if p.is_file()} == {
        *(f"snapshots/0001/{name}" for name in names),
        *("CURRENT", "work/lock", "work/log.txt", "work/timings.json"),
    }
    assert not any(file.stat().st_mode & 0o222 for file in (run / "snapshots" / "0001").iterdir())
    assert len(files_of(run)["history.jsonl"].splitlines()) == 2


def test_evaluate_returns_the_metrics_of_training_for_four_rankings(run: Path) -> None:
    result = run_json("evaluate", run)
    saved = json.loads(files_of(run)["metrics.json"])["test"]
    for name in ("neural", "rules", "plogicnet", "plogicnet*"):
        assert 0 < result[name]["mrr"] <= 1
        assert result[name] == saved[name]
        assert {"optimistic", "pessimistic", "by_side", "by_relation", "by_category"} <= set(result[name])
    assert result["plogicnet*"]["mrr"] > max(result["neural"]["mrr"], result["rules"]["mrr"])
    assert {"brier", "ece", "curve"} <= set(result["calibration"])
    on_test, on_valid = plogicnet("evaluate", run).stdout, plogicnet("evaluate", run, "--split", "valid").stdout
    assert "pLogicNet*" in on_valid
    assert "On valid, answers that are in test count as wrong" in " ".join(on_valid.split())
    assert "not filtered" not in " ".join(on_test.split())


def test_explanations_agree_with_predictions(run: Path) -> None:
    relation = files_of(run)["rules.tsv"].decode().splitlines()[1].split("\t")[1].split("(")[0]
    head = names_of(run, "entities.tsv")[0]
    rows = run_json("predict", run, "--head", head, "--relation", relation, "--top", 5)["predictions"]
    assert len(rows) == 5
    assert rows == sorted(rows, key=lambda row: -row["probability"])
    assert not any(row["known"] for row in rows)
    for row in rows:
        explanation = run_json("explain", run, row["head"], row["relation"], row["tail"])
        assert explanation["probability"] == pytest.approx(row["probability"], rel=1e-4)
        total = explanation["base"] + sum(rule["contribution"] for rule in explanation["rules"])
        assert total == pytest.approx(explanation["log_odds"], abs=1e-9)
    output = plogicnet("explain", run, rows[0]["head"], rows[0]["relation"], rows[0]["tail"])
    assert output.returncode == 0
    assert "rules: p_w = " in output.stdout


def test_predict_heads_relations_triples_and_missing_facts(run: Path, tmp_path: Path) -> None:
    entities, relation = names_of(run, "entities.tsv"), names_of(run, "relations.tsv")[0]
    by_tail = run_json("predict", run, "--relation", relation, "--tail", entities[0], "--top", 3)["predictions"]
    assert [row["tail"] for row in by_tail] == [entities[0]] * 3
    by_pair = run_json("predict", run, "--head", entities[0], "--tail", entities[1], "--top", 3)["predictions"]
    assert len({row["relation"] for row in by_pair}) == 3
    file = tmp_path / "triples.tsv"
    file.write_text(f"{entities[0]}\t{relation}\t{entities[1]}\n", encoding="utf-8")
    predictions = run_json("predict", run, "--triples", file)["predictions"]
    assert [(row["head"], row["relation"], row["tail"]) for row in predictions] == [
        (entities[0], relation, entities[1])
    ]
    out = tmp_path / "missing.tsv"
    result = plogicnet("predict", run, "--complete", "--min-probability", 0.6, "--out", out)
    assert result.returncode == 0, result.stderr
    lines = out.read_text(encoding="utf-8").splitlines()
    assert lines[0].split("\t")[:4] == ["head", "relation", "tail", "probability"]
    assert all(float(line.split("\t")[3]) >= 0.6 for line in lines[1:])


def test_rules_are_listed_by_weight(run: Path) -> None:
    rules = run_json("rules", run)["rules"]
    weights = [rule["weight"] for rule in rules if rule["pattern"] != "irreflexive"]
    assert weights == sorted(weights, reverse=True)
    columns = ("pattern", "rule", "support", "hits", "precision", "weight", "standard_error", "groundings")
    assert set(rules[0]) == set(columns)


def test_the_same_seed_writes_the_same_files(graph: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        # each step is large enough to use two threads
        quick = [
            *SMALL,
            "--set=neural.steps=4",
            "--set=neural.vectors.dim=256",
            "--set=neural.batch=1024",
            "--set=neural.vectors.negatives=256",
        ]
        assert (
            plogicnet("train", graph, "--out", tmp_path / name, "--device", "cpu", "--threads", 2, *quick).returncode
            == 0
        )
    assert tree_of(tmp_path / "one") == tree_of(tmp_path / "two")


def test_mine_counts_and_writes_rules(graph: str, tmp_path: Path) -> None:
    out = tmp_path / "rules.tsv"
    counts = run_json("mine", graph, "--min-precision", "composition=0.9", "--out", out)
    assert {"candidates", "rules", "irreflexive", "hidden", "groundings", "seconds", "peak_rss_mb"} == set(counts)
    assert len(out.read_text().splitlines()) == 1 + sum(counts["rules"].values()) + counts["irreflexive"]
    assert "by the lower bound of precision" in plogicnet("mine", graph).stdout


def test_demo_prints_every_step() -> None:
    result = plogicnet("demo", "--seed", 3, "--set", "neural.steps=200", data=None)
    assert result.returncode == 0, result.stderr
    for text in (
        "candidates. They have",
        "EM iterations",
        "pLogicNet*",
        "rules with the highest weight",
        "most probable missing facts",
        "held out",
    ):
        assert text in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("data", "info", "no-such-graph"), "unknown graph 'no-such-graph'"),
        (("mine", "--set", "rules.no_such_key=1"), "unknown setting 'rules.no_such_key'"),
        (("mine", "--min-precision", "composition"), "expected pattern=number"),
        (("train", "--preset", "nothing", "--out", "x"), "unknown preset"),
        (("train", "--device", "tpu", "--out", "x"), "device must be one of auto, cpu, cuda, got 'tpu'"),
        (("evaluate", "no-such-run"), "no run at no-such-run"),
        (("predict", "no-such-run", "--relation", "a"), "or --complete, got --relation"),
        (("config", "--config", "no-such.yaml"), "no-such.yaml: no such file"),
        (("config", "--set", "em.lambda_grid=[]"), "em.lambda_grid must contain at least one number"),
        (("config", "--set", "rules.patterns=[inverse, inverse]"), "must not contain an item twice"),
        (("config", "--set", "seed=9223372036854775807"), "at most 2,147,483,647, got 9223372036854775807"),
        (("mine", "--out", "no-folder/rules.tsv"), "--out no-folder/rules.tsv: directory no-folder does not exist"),
        (("train", "--out", "/dev/null/x"), "/dev/null/x: cannot create the directory"),
        (("train",), "Missing option"),
        (("no-such-command",), "No such command"),
        (("mine", "--no-such-option"), "No such option"),
    ],
)
def test_invalid_input_exits_with_2_and_a_message(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    result = plogicnet(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert not list(tmp_path.iterdir())


def test_a_similar_name_is_suggested_for_an_unknown_one(run: Path) -> None:
    entity = names_of(run, "entities.tsv")[0]
    result = plogicnet("explain", run, entity + "x", "nothing", entity)
    assert result.returncode == 2
    assert f"unknown entity '{entity}x'. Did you mean" in result.stderr


def test_a_complete_run_is_not_overwritten(run: Path) -> None:
    before = tree_of(run)
    result = plogicnet("train", "--out", run)
    assert result.returncode == 2
    assert "contains a complete run" in result.stderr
    assert tree_of(run) == before


def test_a_locked_run_directory_is_refused(tmp_path: Path) -> None:
    from plogicnet.runs.directory import LOCK_FILE
    from plogicnet.support.files import lock_directory

    (tmp_path / "run" / LOCK_FILE).parent.mkdir(parents=True)
    with lock_directory(tmp_path / "run", LOCK_FILE):
        result = plogicnet("train", "--out", tmp_path / "run", *SMALL)
    assert result.returncode == 2
    assert "another process is writing here" in result.stderr


def test_an_interrupt_exits_with_130(tmp_path: Path) -> None:
    arguments = [PROGRAM, "train", "--out", tmp_path / "run", "--set", "neural.steps=100000"]
    child = subprocess.Popen(list(map(str, arguments)), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert child.stderr is not None
    while "mining" not in (line := child.stderr.readline()):
        assert line, "the program ended before the interrupt"
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=60) == 130
    stderr = child.stderr.read()
    assert "Traceback" not in stderr
    assert "plogicnet: interrupted" in stderr


@pytest.mark.parametrize("background", [False, True])
def test_an_interrupt_that_python_discards_is_repeated(background: bool) -> None:
    """Python discards exceptions in the callback of a weak reference."""
    code = f"""
import signal, sys, weakref
if {background}:  # background jobs ignore Ctrl-C
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
from plogicnet import cli
class Thing: pass
def discard_interrupt():
    thing = Thing()
    reference = weakref.ref(thing, lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    del thing
    while True: pass
cli._exit_code = lambda *_: discard_interrupt()
cli.main()
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 130
    assert result.stderr == "plogicnet: interrupted\n"


def test_a_closed_pipe_is_not_an_error(run: Path) -> None:
    script = f'set -o pipefail; "{PROGRAM}" rules "{run}" | head -n 1'
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0
    assert result.stderr == ""


def test_config_prints_the_settings() -> None:
    output = plogicnet("config", "--set", "neural.vectors.dim=7").stdout
    assert "dim: 7" in output
    assert all(key in output for key in ("tau_triplet", "unit_clauses", "share_negatives", "min_precision"))


def test_importing_loads_no_large_library() -> None:
    libraries = ("torch", "numba", "scipy", "pyarrow")
    code = f"import sys, plogicnet, plogicnet.cli.app; print([m for m in {libraries} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
