"""The doctor of runs: a healthy run, and real runs each made ill in one way."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from forking import program
from plogicnet import PLogicNet
from plogicnet.diagnostics.graphs import Finding
from plogicnet.diagnostics.runs import examine_run
from plogicnet.graph import FloatArray, KnowledgeGraph
from plogicnet.rules import RuleTable, parse_rule
from plogicnet.runs.files import read_vectors
from small import family_rows, fitted, small_graph
from stopping import without_sums

STEPS = {"neural.steps": 200}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("checkup") / "run"
    fitted({**STEPS, "em.patience": 1, "em.lambda_grid": [0.0, 0.5, 1e6]}).save(run)
    return run


def examined(run: Path) -> dict[str, Finding]:
    model = PLogicNet.load(run)
    found = examine_run(str(run), model.fitted, model.config, model.metrics, read_vectors(run)).findings
    assert len(found) == len({finding.check for finding in found})
    return {finding.check: finding for finding in found}


def trained(folder: Path, values: dict[str, object], graph: KnowledgeGraph | None = None) -> dict[str, Finding]:
    fitted(values, graph).save(folder / "run")
    return examined(folder / "run")


def copied(run: Path, folder: Path) -> Path:
    """Without checksums, so that it can be made ill."""
    there = folder / "run"
    there.mkdir()
    for file in run.iterdir():
        if file.is_file():
            (there / file.name).write_bytes(file.read_bytes())
    return without_sums(there)


def with_vectors(run: Path, folder: Path, change: Callable[[FloatArray], None]) -> dict[str, Finding]:
    there = copied(run, folder)
    tables = load_file(there / "neural.safetensors")
    change(tables["entity"])
    save_file(tables, there / "neural.safetensors")
    return examined(there)


def with_metrics(run: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> dict[str, Finding]:
    there = copied(run, folder)
    metrics = json.loads((there / "metrics.json").read_text())
    change(metrics)
    (there / "metrics.json").write_text(json.dumps(metrics))
    return examined(there)


def test_a_healthy_run_has_no_warning(healthy: Path) -> None:
    found = examined(healthy)
    assert {check: f.message for check, f in found.items() if f.level == "warning"} == {}
    for finding in found.values():
        assert finding.message.startswith(f"{finding.check}: ")
    about = {
        *("constant scores", "constant probabilities", "ties", "better than chance", "huge weights"),
        *("weights that the triples do not tell", "weights at their start", "rules without a hit", "hidden triples"),
        *("vectors that are not finite", "equal vectors", "vectors all alike", "λ at the end of its grid"),
        *("EM iterations that got worse", "probabilities", "calibration", "held-out figures", "shared train/test"),
    }
    assert about <= set(found)


def test_vectors_that_are_not_finite(healthy: Path, tmp_path: Path) -> None:
    def spoil(entity: FloatArray) -> None:
        entity[3, 2], entity[4, 0] = np.nan, np.inf

    finding = with_vectors(healthy, tmp_path, spoil)["vectors that are not finite"]
    assert (finding.level, finding.count, finding.examples) == ("warning", 2, ("entity: 2",))
    assert "smaller neural.learning_rate" in finding.message


def test_vectors_all_alike(healthy: Path, tmp_path: Path) -> None:
    def spoil(entity: FloatArray) -> None:
        entity[:] = entity[0] * (1 + 1e-5 * np.arange(len(entity))[:, None])

    found = with_vectors(healthy, tmp_path, spoil)
    assert found["vectors all alike"].level == "warning"
    assert found["equal vectors"].level == "ok"


def test_some_equal_vectors(healthy: Path, tmp_path: Path) -> None:
    def spoil(entity: FloatArray) -> None:
        entity[1:4] = entity[0]

    found = with_vectors(healthy, tmp_path, spoil)
    names = PLogicNet.load(healthy).fitted.graph.entities.names
    assert (found["equal vectors"].level, found["equal vectors"].examples) == ("warning", names[:4])
    assert found["vectors all alike"].level == "ok"


def test_constant_scores(healthy: Path, tmp_path: Path) -> None:
    def spoil(entity: FloatArray) -> None:
        entity[:] = 0.25  # so the relation alone makes the score

    found = with_vectors(healthy, tmp_path, spoil)
    assert (found["constant scores"].level, found["constant scores"].share) == ("warning", 1.0)
    assert "nothing tells triples apart" in found["constant scores"].message
    assert examined(healthy)["constant scores"].level == "ok"


def test_constant_probabilities(healthy: Path, tmp_path: Path) -> None:
    def spoil(metrics: dict[str, Any]) -> None:
        metrics["calibration"] |= {"score": 0.0, "p_w": 0.0, "reached": 0.0}

    found = with_metrics(healthy, tmp_path, spoil)
    assert found["constant probabilities"].level == "warning"
    assert found["constant scores"].level == "ok"


def test_an_untrained_embedding_without_rules_is_no_better_than_chance(tmp_path: Path) -> None:
    values: dict[str, object] = {"em.rules": False, "neural.steps": 1, "neural.learning_rate": 1e-6, "seed": 4}
    found = trained(tmp_path, values)
    assert found["better than chance"].level == "warning"
    assert "huge weights" not in found
    assert "hidden triples" not in found


def test_many_ties(healthy: Path, tmp_path: Path) -> None:
    def spoil(metrics: dict[str, Any]) -> None:
        metrics["test"]["plogicnet"]["optimistic"]["mrr"] = 0.9
        metrics["test"]["plogicnet"]["pessimistic"]["mrr"] = 0.1

    finding = with_metrics(healthy, tmp_path, spoil)["ties"]
    assert (finding.level, finding.count, finding.examples) == ("warning", 1, ("plogicnet: 0.900 to 0.100",))
    assert finding.share == pytest.approx(0.8)


def test_rules_alone_tie_and_that_is_said(tmp_path: Path) -> None:
    found = trained(tmp_path, {"em.neural": False})
    assert found["ties"].level == "note"
    assert "em.neural=true" in found["ties"].message
    assert "constant scores" not in found
    assert "vectors all alike" not in found
    assert "λ at the end of its grid" not in found


def test_a_split_that_was_trained_on(tmp_path: Path) -> None:
    rows = family_rows()
    graph = KnowledgeGraph.from_names(rows[:86], [*rows[86:102], rows[1]], [*rows[102:], *rows[:6]], "leaking")
    found = trained(tmp_path, {"neural.steps": 20}, graph)
    assert (found["shared train/test"].level, found["shared train/test"].count) == ("warning", 6)
    assert (found["shared train/valid"].level, found["shared train/valid"].count) == ("warning", 1)
    assert found["shared valid/test"].count == 1


def test_no_split_of_its_own(tmp_path: Path) -> None:
    found = trained(tmp_path, {"neural.steps": 20}, KnowledgeGraph.from_names(family_rows(), name="whole"))
    assert (found["held-out share"].level, found["held-out share"].count) == ("note", 6)
    assert found["held-out figures"].level == "warning"
    assert "--split" in found["held-out figures"].message


def test_huge_weights_and_rules_without_a_hit(tmp_path: Path) -> None:
    model = fitted({"neural.steps": 20}).refit("=50: husband(X, Y) => wife(Y, X)\nhusband(X, Y) => child(X, Y)")
    model.save(tmp_path / "run")
    found = examined(tmp_path / "run")
    assert (found["huge weights"].level, found["huge weights"].examples) == (
        "warning",
        ("50: husband(X, Y) => wife(Y, X)",),
    )
    assert (found["rules without a hit"].level, found["rules without a hit"].count) == ("warning", 1)
    assert found["rules without a hit"].examples[0].endswith("husband(X, Y) => child(X, Y)")


@pytest.mark.parametrize(("l2", "error", "level"), [(4.0, 0.5, "warning"), (4.0, 0.3, "ok"), (0.0, np.inf, "warning")])
def test_weights_that_the_triples_do_not_tell(l2: float, error: float, level: str) -> None:
    model = fitted({"neural.steps": 5, "em.iterations": 1, "mln.l2": l2})
    rule = [parse_rule("husband(X, Y) => wife(Y, X)")]
    table = RuleTable.of(rule, [4], [3], [1.0], standard_error=[error])
    outcome = replace(model.fitted.outcome, rule_model=replace(model.fitted.outcome.rule_model, rules=table))
    fitted_ = replace(model.fitted, outcome=outcome)
    fitted_.__dict__["rules"] = model.fitted.rules  # what the rules say is not asked here
    found = {f.check: f for f in examine_run("run", fitted_, model.config, model.metrics, {}).findings}
    assert found["weights that the triples do not tell"].level == level


def test_weights_that_never_moved(tmp_path: Path) -> None:
    values = {"mln.solver": "gradient", "mln.gradient.step": 1e-9, "mln.gradient.iterations": 1, "neural.steps": 20}
    finding = trained(tmp_path, values)["weights at their start"]
    assert finding.level == "warning"
    assert "mln.solver=newton" in finding.message


def test_no_hidden_triples(tmp_path: Path) -> None:
    strict = {f"rules.min_precision.{p}": 1.0 for p in ("composition", "inverse", "symmetric", "subrelation")}
    finding = trained(tmp_path, {"neural.steps": 20, **strict})["hidden triples"]
    assert (finding.level, finding.count) == ("warning", 0)
    assert "rules.min_precision" in finding.message


def test_hidden_triples_of_which_none_is_accepted(tmp_path: Path) -> None:
    finding = trained(tmp_path, {"neural.steps": 20, "em.tau_triplet": 1.0})["hidden triples"]
    assert (finding.level, finding.share) == ("note", 0.0)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"system": "blp"}, "and teach no vectors"),
        ({"em.neural": False}, "and teach no vectors"),
        ({"system": "ruge", "em.tau_triplet": 1.0}, "by soft labels"),
        ({"system": "nne_aer", "em.tau_triplet": 1.0}, "a penalty holds the relations' vectors to the rules"),
    ],
)
def test_hidden_triples_of_a_system_that_accepts_none(values: dict[str, object], said: str, tmp_path: Path) -> None:
    finding = trained(tmp_path, {"neural.steps": 20, **values})["hidden triples"]
    assert (finding.level, finding.count > 0) == ("ok", True)
    assert said in finding.message
    assert "tau_triplet" not in finding.message


@pytest.mark.parametrize(
    ("system", "said"),
    [
        ("plogicnet", "this is the neural model alone"),
        ("ruge", "this is plain ComplEx"),
        ("nne_aer", "this is ComplEx with entities in [0, 1]"),
        ("blp", "this is one probability for all of a relation's triples"),
    ],
)
def test_no_rule_at_all(system: str, said: str, tmp_path: Path) -> None:
    values: dict[str, object] = {"system": system, "neural.steps": 20, "rules.min_support": 100_000}
    found = trained(tmp_path, values)
    assert found["hidden triples"].level == "warning"
    assert said in found["hidden triples"].message
    assert "rules.min_support" in found["hidden triples"].message


def test_advice_on_blp_is_about_rules(tmp_path: Path) -> None:
    without = trained(tmp_path, {"system": "blp", "rules.min_support": 100_000})
    assert without["better than chance"].level == "warning"
    for finding in (without["ties"], without["better than chance"]):
        assert "rules.min_precision" in finding.message
    assert not any("em.neural=true" in f.message or "train longer" in f.message for f in without.values())


def test_weights_of_blp_have_no_standard_error_and_no_start(tmp_path: Path) -> None:
    found = trained(tmp_path, {"system": "blp"})
    assert {"huge weights", "rules without a hit"} <= set(found)
    assert "too few to matter" not in found["constant probabilities"].message  # most are level, as no rule reaches them
    assert not {"weights that the triples do not tell", "weights at their start"} & set(found)


def test_rules_that_have_no_say_do_neither_harm_nor_good(tmp_path: Path) -> None:
    check = "worse than the neural model alone"
    (tmp_path / "auto").mkdir()
    assert check not in trained(tmp_path, {"system": "ruge"})
    assert check in trained(tmp_path / "auto", {"system": "ruge", "em.lambda": "auto"})


@pytest.mark.parametrize(
    ("grid", "word"),
    [
        ([0.0, 0.4], "the largest was best on validation, and a larger one"),
        ([50.0, 1e6], "the smallest was best on validation, and a smaller one"),
        ([0.0, 1e-9], "the rules add nothing"),
    ],
)
def test_lambda_at_an_end_of_its_grid(grid: list[float], word: str, tmp_path: Path) -> None:
    finding = trained(tmp_path, {"neural.steps": 5, "em.lambda_grid": grid})["λ at the end of its grid"]
    assert finding.level == "note"
    assert word in finding.message


def test_em_iterations_that_got_worse(healthy: Path, tmp_path: Path) -> None:
    there = copied(healthy, tmp_path)
    lines = [json.loads(line) for line in (there / "history.jsonl").read_text().splitlines()]
    kept = json.loads((there / "metrics.json").read_text())["iteration"]
    merit = lines[kept - 1]["valid"]["plogicnet*"]["mrr"]
    worse = json.loads(json.dumps(lines[kept - 1]))
    worse["valid"]["plogicnet*"]["mrr"] = merit + 0.02
    history = [*lines[:kept], worse]
    (there / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in history))
    finding = examined(there)["EM iterations that got worse"]
    assert finding.level == "warning"
    assert finding.share == pytest.approx(0.02)
    assert f"em.iterations={kept + 1}" in finding.message


def test_calibration_that_is_off(healthy: Path, tmp_path: Path) -> None:
    def spoil(metrics: dict[str, Any]) -> None:
        metrics["test"]["calibration"] |= {"brier": 0.2, "ece": 0.4}

    found = with_metrics(healthy, tmp_path, spoil)
    assert found["probabilities"].level == found["calibration"].level == "warning"
    assert "base rate alone does as well" in found["probabilities"].message


def test_calibration_that_made_it_worse(healthy: Path, tmp_path: Path) -> None:
    def spoil(metrics: dict[str, Any]) -> None:
        quality = metrics["test"]["calibration"]
        quality["uncalibrated"]["brier"] = quality["brier"] / 2

    finding = with_metrics(healthy, tmp_path, spoil)["probabilities"]
    assert finding.level == "note"
    assert "calibration made them worse" in finding.message


def test_calibration_that_is_worse_by_less_than_is_shown(healthy: Path, tmp_path: Path) -> None:
    def spoil(metrics: dict[str, Any]) -> None:
        quality = metrics["test"]["calibration"]
        quality["brier"] = 0.00814
        quality["uncalibrated"]["brier"] = 0.00806

    finding = with_metrics(healthy, tmp_path, spoil)["probabilities"]
    assert "uncalibrated 0.0081; they are worth something" in finding.message
    assert finding.level == "ok"


def test_rules_that_do_harm(healthy: Path, tmp_path: Path) -> None:
    def spoil(metrics: dict[str, Any]) -> None:
        metrics["test"]["neural"]["mrr"] = metrics["test"]["plogicnet*"]["mrr"] + 0.05

    assert with_metrics(healthy, tmp_path, spoil)["worse than the neural model alone"].level == "warning"


def command(*words: object) -> subprocess.CompletedProcess[str]:
    return program("doctor", *words)


def test_the_command_knows_a_run_from_a_graph(healthy: Path, tmp_path: Path) -> None:
    done = command(healthy, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["run"] == str(healthy)
    assert told["split"] == "test"
    checks = {finding["check"]: finding["level"] for finding in told["findings"]}
    assert checks == {check: finding.level for check, finding in examined(healthy).items()}
    assert "better than chance" in command(healthy).stdout
    graph = small_graph()
    lines = ("\t".join(graph.names(t)) + "\n" for t in graph.train)
    (tmp_path / "train.txt").write_text("".join(lines))
    assert "inverse_leakage" in json.loads(command(tmp_path, "--json").stdout)


def test_a_run_without_what_the_doctor_reads_is_damaged(healthy: Path, tmp_path: Path) -> None:
    there = copied(healthy, tmp_path)
    metrics = json.loads((there / "metrics.json").read_text())
    (there / "metrics.json").write_text(json.dumps(metrics | {"test": {"plogicnet*": 3}}))
    done = command(there)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"plogicnet: {there} is damaged: ")
