"""The real commands in child processes, on real small graphs: options, exit codes, JSON, files."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forking import program

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


def plogicnet(*words: object, data: Path | None = DATA, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return program(*words, data=data, cwd=cwd)


def answer(*words: object) -> dict[str, Any]:
    done = plogicnet(*words, "--json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert isinstance(value, dict)
    return value


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> str:
    """UMLS where the benchmarks are at hand, else the demo family written as files."""
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
    done = plogicnet("train", graph, "--out", out, "--device", "cpu", "--seed", 1, *SMALL)
    assert done.returncode == 0, done.stderr
    assert "cost:" in done.stderr
    assert "EM iterations" in done.stdout
    assert "facts of test compete" in done.stdout
    return out


def test_a_run_directory_has_its_files_and_no_others(run: Path) -> None:
    names = {p.name for p in run.iterdir()}
    assert names == {
        *("config.yaml", "rules.tsv", "hidden.parquet", "neural.safetensors", "entities.tsv", "relations.tsv"),
        *("metrics.json", "history.jsonl", "timings.json", "log.txt", "graph.parquet", ".lock", "run.json"),
    }
    assert len((run / "history.jsonl").read_text().splitlines()) == 2


def test_evaluate_gives_four_systems_and_repeats_what_training_measured(run: Path) -> None:
    result = answer("evaluate", run)
    measured = json.loads((run / "metrics.json").read_text())["test"]
    for name in ("neural", "rules", "plogicnet", "plogicnet*"):
        assert 0 < result[name]["mrr"] <= 1
        assert result[name] == measured[name]
        assert {"optimistic", "pessimistic", "by_side", "by_relation", "by_category"} <= set(result[name])
    assert result["plogicnet*"]["mrr"] > max(result["neural"]["mrr"], result["rules"]["mrr"])
    assert {"brier", "ece", "curve"} <= set(result["calibration"])
    on_test, on_valid = plogicnet("evaluate", run).stdout, plogicnet("evaluate", run, "--split", "valid").stdout
    assert "pLogicNet*" in on_valid
    assert "facts of test compete" in " ".join(on_valid.split())
    assert "compete" not in on_test


def test_predict_then_explain(run: Path) -> None:
    triple = (run / "rules.tsv").read_text().splitlines()[1].split("\t")[1].split("(")[0]
    head = (run / "entities.tsv").read_text().splitlines()[0].split("\t")[1]
    rows = answer("predict", run, "--head", head, "--relation", triple, "--top", 5)["predictions"]
    assert len(rows) == 5
    assert rows == sorted(rows, key=lambda row: -row["probability"])
    assert not any(row["known"] for row in rows)
    for row in rows:
        reason = answer("explain", run, row["head"], row["relation"], row["tail"])
        assert reason["probability"] == pytest.approx(row["probability"], rel=1e-4)
        total = reason["base"] + sum(rule["contribution"] for rule in reason["rules"])
        assert total == pytest.approx(reason["log_odds"], abs=1e-9)
    text = plogicnet("explain", run, rows[0]["head"], rows[0]["relation"], rows[0]["tail"])
    assert text.returncode == 0
    assert "the rules say" in text.stdout


def test_predict_other_kinds_of_questions(run: Path, tmp_path: Path) -> None:
    entities = [line.split("\t")[1] for line in (run / "entities.tsv").read_text().splitlines()]
    relation = (run / "relations.tsv").read_text().splitlines()[0].split("\t")[1]
    by_tail = answer("predict", run, "--relation", relation, "--tail", entities[0], "--top", 3)["predictions"]
    assert [row["tail"] for row in by_tail] == [entities[0]] * 3
    by_pair = answer("predict", run, "--head", entities[0], "--tail", entities[1], "--top", 3)["predictions"]
    assert len({row["relation"] for row in by_pair}) == 3
    asked = tmp_path / "asked.tsv"
    asked.write_text(f"{entities[0]}\t{relation}\t{entities[1]}\n", encoding="utf-8")
    judged = answer("predict", run, "--triples", asked)["predictions"]
    assert [(row["head"], row["relation"], row["tail"]) for row in judged] == [(entities[0], relation, entities[1])]
    out = tmp_path / "missing.tsv"
    done = plogicnet("predict", run, "--complete", "--min-probability", 0.6, "--out", out)
    assert done.returncode == 0, done.stderr
    lines = out.read_text(encoding="utf-8").splitlines()
    assert lines[0].split("\t")[:4] == ["head", "relation", "tail", "probability"]
    assert all(float(line.split("\t")[3]) >= 0.6 for line in lines[1:])


def test_rules_are_listed_by_weight(run: Path) -> None:
    rules = answer("rules", run)["rules"]
    weights = [rule["weight"] for rule in rules if rule["pattern"] != "irreflexive"]
    assert weights == sorted(weights, reverse=True)
    columns = ("pattern", "rule", "support", "hits", "precision", "weight", "standard_error", "groundings")
    assert set(rules[0]) == set(columns)


def test_the_same_seed_gives_the_same_files(graph: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        # large enough a step for two threads to share it
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
    for file in (tmp_path / "one").iterdir():
        if file.name not in ("log.txt", "timings.json"):
            assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name


def test_mine(graph: str, tmp_path: Path) -> None:
    out = tmp_path / "rules.tsv"
    counts = answer("mine", graph, "--min-precision", "composition=0.9", "--out", out)
    assert {"candidates", "rules", "irreflexive", "hidden", "groundings", "seconds", "peak_rss_mb"} == set(counts)
    assert len(out.read_text().splitlines()) == 1 + sum(counts["rules"].values()) + counts["irreflexive"]
    assert "surest of" in plogicnet("mine", graph).stdout


def test_demo_tells_the_whole_story() -> None:
    done = plogicnet("demo", "--seed", 3, "--set", "neural.steps=200", data=None)
    assert done.returncode == 0, done.stderr
    for words in (
        "candidates mined",
        "EM iterations",
        "pLogicNet*",
        "strongest rules",
        "most probable missing facts",
        "confirm it",
    ):
        assert words in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("data", "info", "no-such-graph"), "no graph 'no-such-graph'"),
        (("mine", "--set", "rules.no_such_key=1"), "unknown setting 'rules.no_such_key'"),
        (("mine", "--min-precision", "composition"), "expected pattern=number"),
        (("train", "--preset", "nothing", "--out", "x"), "unknown preset"),
        (("train", "--device", "tpu", "--out", "x"), "device: 'tpu' is not allowed; one of auto, cpu, cuda"),
        (("evaluate", "no-such-run"), "no run at no-such-run"),
        (("predict", "no-such-run", "--head", "a"), "ask one thing"),
        (("config", "--config", "no-such.yaml"), "no-such.yaml: no such file"),
        (("config", "--set", "em.lambda_grid=[]"), "em.lambda_grid: an empty list; give at least one number"),
        (("config", "--set", "rules.patterns=[inverse, inverse]"), "gives the same twice"),
        (("config", "--set", "seed=9223372036854775807"), "seed: 9223372036854775807 is out of range"),
        (("mine", "--out", "no-folder/rules.tsv"), "--out no-folder/rules.tsv: there is no directory no-folder"),
        (("train", "--out", "/dev/null/x"), "/dev/null/x: cannot be made"),
        (("train",), "Missing option"),
        (("no-such-command",), "No such command"),
        (("mine", "--no-such-option"), "No such option"),
    ],
)
def test_bad_input_is_exit_2_in_words(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = plogicnet(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


def test_unknown_names_show_the_nearest(run: Path) -> None:
    entity = (run / "entities.tsv").read_text().splitlines()[0].split("\t")[1]
    done = plogicnet("explain", run, entity + "x", "nothing", entity)
    assert done.returncode == 2
    assert f"unknown entity '{entity}x'. Did you mean" in done.stderr


def test_a_finished_run_is_not_overwritten(run: Path) -> None:
    before = (run / "metrics.json").read_bytes()
    done = plogicnet("train", "--out", run)
    assert done.returncode == 2
    assert "a finished run is there" in done.stderr
    assert (run / "metrics.json").read_bytes() == before


def test_a_second_writer_is_kept_out(tmp_path: Path) -> None:
    from plogicnet.support.files import locked

    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run"):
        done = plogicnet("train", "--out", tmp_path / "run", *SMALL)
    assert done.returncode == 2
    assert "another process is writing here" in done.stderr


def test_an_interrupt_is_exit_130(tmp_path: Path) -> None:
    words = [PROGRAM, "train", "--out", tmp_path / "run", "--set", "neural.steps=100000"]
    child = subprocess.Popen(list(map(str, words)), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert child.stderr is not None
    while "mining" not in (line := child.stderr.readline()):
        assert line, "the program ended before it was interrupted"
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=60) == 130
    said = child.stderr.read()
    assert "Traceback" not in said
    assert "plogicnet: interrupted" in said


@pytest.mark.parametrize("background", [False, True])
def test_an_interrupt_that_python_drops_comes_again(background: bool) -> None:
    """As one does that falls into a weak reference's callback; here it falls there for sure."""
    code = f"""
import signal, sys, weakref
if {background}:  # Ctrl-C is ignored there
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
from plogicnet import cli
class Thing: pass
def drop():
    thing = Thing()
    reference = weakref.ref(thing, lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    del thing
    while True: pass
cli._exit_code = lambda *_: drop()
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 130
    assert done.stderr == "plogicnet: interrupted\n"


def test_a_reader_that_stops_early_is_no_error(run: Path) -> None:
    script = f'set -o pipefail; "{PROGRAM}" rules "{run}" | head -n 1'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == ""


def test_config_prints_every_setting() -> None:
    text = plogicnet("config", "--set", "neural.vectors.dim=7").stdout
    assert "dim: 7" in text
    assert all(key in text for key in ("tau_triplet", "unit_clauses", "share_negatives", "min_precision"))


def test_the_import_is_light() -> None:
    heavy = ("torch", "numba", "scipy", "pyarrow")
    code = f"import sys, plogicnet, plogicnet.cli.app; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
