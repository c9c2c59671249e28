"""Checks of runs: a healthy run, and runs with one defect each."""

import copy
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from forking import run_program
from plogicnet import PLogicNet
from plogicnet.diagnostics.finding import Finding
from plogicnet.diagnostics.runs import examine_run
from plogicnet.graph import KnowledgeGraph
from plogicnet.inference.fitted import FittedModel
from plogicnet.neural.protocol import ParameterTable
from plogicnet.rules import RuleTable, parse_rule
from plogicnet.runs.directory import snapshot_folder
from small import TableModel, family_rows, fitted, small_graph
from stopping import files_of, overwrite, update_checksums

STEPS = {"neural.steps": 200}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("checkup") / "run"
    fitted({**STEPS, "em.patience": 1, "em.lambda_grid": [0.0, 0.5, 1e6]}).save(run)
    return run


def examine(model: PLogicNet, changed: FittedModel | None = None, metrics: Any = None) -> dict[str, Finding]:
    found = examine_run("run", changed or model.fitted, model.config, metrics or model.metrics).findings
    assert len(found) == len({finding.check for finding in found})
    return {finding.check: finding for finding in found}


def train_and_examine(values: dict[str, object], graph: KnowledgeGraph | None = None) -> dict[str, Finding]:
    return examine(fitted(values, graph))


def with_vectors(run: Path, change: Callable[[torch.Tensor], None]) -> dict[str, Finding]:
    model = PLogicNet.load(run)
    change(model.fitted.outcome.neural.entity)  # type: ignore[union-attr]
    return examine(model)


def with_metrics(run: Path, change: Callable[[dict[str, Any]], None]) -> dict[str, Finding]:
    model = PLogicNet.load(run)
    metrics: Any = copy.deepcopy(dict(model.metrics))
    change(metrics["test"])
    return examine(model, metrics=metrics)


def test_a_healthy_run_has_no_warning(healthy: Path) -> None:
    found = examine(PLogicNet.load(healthy))
    assert {check: f.message for check, f in found.items() if f.level == "warning"} == {}
    for finding in found.values():
        assert finding.message.startswith(f"{finding.check}: ")
    expected = {
        *("constant scores", "constant probabilities", "ties", "chance level", "large weights"),
        *("effect of the rules", "effect of the neural model"),
        *("undetermined weights", "learned weights", "rules without a hit", "hidden triples"),
        *("vectors that are not finite", "equal vectors", "spread of the vectors", "choice of λ"),
        *("EM iterations", "probabilities", "calibration", "held-out metrics", "shared train/test"),
    }
    assert expected <= set(found)


def test_vectors_that_are_not_finite(healthy: Path) -> None:
    def spoil(entity: torch.Tensor) -> None:
        entity[3, 2], entity[4, 0] = np.nan, np.inf

    finding = with_vectors(healthy, spoil)["vectors that are not finite"]
    assert (finding.level, finding.count, finding.examples) == ("warning", 2, ("entities: 2",))
    assert "smaller neural.learning_rate" in finding.message


def test_collapsed_vectors(healthy: Path) -> None:
    def spoil(entity: torch.Tensor) -> None:
        entity[:] = entity[0].clone() * (1 + 1e-5 * torch.arange(len(entity))[:, None])

    found = with_vectors(healthy, spoil)
    assert found["spread of the vectors"].level == "warning"
    assert found["equal vectors"].level == "ok"


def test_some_equal_vectors(healthy: Path) -> None:
    def spoil(entity: torch.Tensor) -> None:
        entity[1:4] = entity[0].clone()

    found = with_vectors(healthy, spoil)
    names = PLogicNet.load(healthy).fitted.graph.entities.names
    assert (found["equal vectors"].level, found["equal vectors"].examples) == ("warning", names[:4])
    assert found["spread of the vectors"].level == "ok"


class Tables(TableModel):
    """A model with any tables, but without vectors of entities."""

    def __init__(self, entities: int, relations: int, **tables: "np.ndarray[Any, Any]") -> None:
        super().__init__(np.random.default_rng(0).normal(size=(relations, entities, entities)))
        self._tables = {name: ParameterTable(values) for name, values in tables.items()}

    def tables(self) -> dict[str, ParameterTable]:
        return self._tables


def test_a_model_without_vectors_of_entities(healthy: Path) -> None:
    model = PLogicNet.load(healthy)
    vector_checks = {"equal vectors", "spread of the vectors"}
    sizes = len(model.fitted.graph.entities), len(model.fitted.graph.relations)
    for neural, finite in ((Tables(*sizes), None), (Tables(*sizes, gate=np.array([1.0, np.nan])), "warning")):
        changed = replace(model.fitted, outcome=replace(model.fitted.outcome, neural=neural))
        found = examine(model, changed)
        assert not vector_checks & set(found)
        check = found.get("vectors that are not finite")
        assert (check and (check.level, check.examples)) == (finite and (finite, ("gate: 1",)))


def test_constant_scores(healthy: Path) -> None:
    def spoil(entity: torch.Tensor) -> None:
        entity[:] = 0.25  # so that the score depends only on the relation

    found = with_vectors(healthy, spoil)
    assert (found["constant scores"].level, found["constant scores"].share) == ("warning", 1.0)
    assert "All triples are tied" in found["constant scores"].message


def test_constant_probabilities(healthy: Path) -> None:
    model = PLogicNet.load(healthy)
    flat = replace(model.fitted.calibration, score=0.0, p_w=0.0, reached=0.0)
    found = examine(model, replace(model.fitted, calibration=flat))
    assert found["constant probabilities"].level == "warning"
    assert found["constant scores"].level == "ok"


def test_an_untrained_model_is_not_better_than_chance() -> None:
    found = train_and_examine({"em.rules": False, "neural.steps": 1, "neural.learning_rate": 1e-6, "seed": 4})
    assert found["chance level"].level == "warning"
    assert "large weights" not in found
    assert "hidden triples" not in found


def test_many_ties(healthy: Path) -> None:
    def spoil(metrics: dict[str, Any]) -> None:
        metrics["plogicnet"]["optimistic"]["mrr"] = 0.9
        metrics["plogicnet"]["pessimistic"]["mrr"] = 0.1

    finding = with_metrics(healthy, spoil)["ties"]
    assert (finding.level, finding.count, finding.examples) == ("warning", 1, ("pLogicNet: 0.900 to 0.100",))
    assert finding.share == pytest.approx(0.8)


def test_ties_of_rules_alone_are_a_note_with_a_remedy() -> None:
    found = train_and_examine({"em.neural": False})
    assert found["ties"].level == "note"
    assert "em.neural=true" in found["ties"].message
    assert "constant scores" not in found
    assert "spread of the vectors" not in found
    assert "choice of λ" not in found


def test_shared_triples_are_warnings() -> None:
    rows = family_rows()
    graph = KnowledgeGraph.from_names(rows[:86], [*rows[86:102], rows[1]], [*rows[102:], *rows[:6]], "leaking")
    found = train_and_examine({"neural.steps": 20}, graph)
    assert (found["shared train/test"].level, found["shared train/test"].count) == ("warning", 6)
    assert (found["shared train/valid"].level, found["shared train/valid"].count) == ("warning", 1)
    assert found["shared valid/test"].count == 1


def test_a_graph_without_splits() -> None:
    found = train_and_examine({"neural.steps": 20}, KnowledgeGraph.from_names(family_rows(), name="whole"))
    assert (found["held-out share"].level, found["held-out share"].count) == ("note", 6)
    assert found["held-out metrics"].level == "warning"
    assert "--split" in found["held-out metrics"].message


def test_huge_weights_and_rules_without_a_hit() -> None:
    model = fitted({"neural.steps": 20}).refit("=50: husband(X, Y) => wife(Y, X)\nhusband(X, Y) => child(X, Y)")
    found = examine(model)
    assert (found["large weights"].level, found["large weights"].examples) == (
        "warning",
        ("weight 50: husband(X, Y) => wife(Y, X)",),
    )
    assert (found["rules without a hit"].level, found["rules without a hit"].count) == ("warning", 1)
    assert found["rules without a hit"].examples[0].endswith("husband(X, Y) => child(X, Y)")


@pytest.mark.parametrize(("l2", "error", "level"), [(4.0, 0.5, "warning"), (4.0, 0.3, "ok"), (0.0, np.inf, "warning")])
def test_undetermined_weights(l2: float, error: float, level: str) -> None:
    model = fitted({"neural.steps": 5, "em.iterations": 1, "mln.l2": l2})
    rule = [parse_rule("husband(X, Y) => wife(Y, X)")]
    table = RuleTable.of(rule, [4], [3], [1.0], standard_error=[error])
    outcome = replace(model.fitted.outcome, rule_model=replace(model.fitted.outcome.rule_model, rules=table))
    changed = replace(model.fitted, outcome=outcome)
    changed.__dict__["rules"] = model.fitted.rules  # rule scores do not matter here
    assert examine(model, changed)["undetermined weights"].level == level


def test_unchanged_weights() -> None:
    values = {"mln.solver": "gradient", "mln.gradient.step": 1e-9, "mln.gradient.iterations": 1, "neural.steps": 20}
    finding = train_and_examine(values)["learned weights"]
    assert finding.level == "warning"
    assert "mln.solver=newton" in finding.message


def test_no_hidden_triples() -> None:
    strict = {f"rules.min_precision.{p}": 1.0 for p in ("composition", "inverse", "symmetric", "subrelation")}
    finding = train_and_examine({"neural.steps": 20, **strict})["hidden triples"]
    assert (finding.level, finding.count) == ("warning", 0)
    assert "rules.min_precision" in finding.message


def test_no_hidden_triple_is_accepted() -> None:
    finding = train_and_examine({"neural.steps": 20, "em.tau_triplet": 1.0})["hidden triples"]
    assert (finding.level, finding.share) == ("note", 0.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"system": "blp"}, "There is no neural model to train"),
        ({"em.neural": False}, "There is no neural model to train"),
        ({"system": "ruge", "em.tau_triplet": 1.0}, "with soft labels"),
        ({"system": "nne_aer", "em.tau_triplet": 1.0}, "Rules only add a penalty"),
    ],
)
def test_hidden_triples_of_other_systems_are_ok(values: dict[str, object], message: str) -> None:
    finding = train_and_examine({"neural.steps": 20, **values})["hidden triples"]
    assert (finding.level, finding.count > 0) == ("ok", True)
    assert message in finding.message
    assert "tau_triplet" not in finding.message


@pytest.mark.parametrize(
    ("system", "message"),
    [
        ("plogicnet", "so it ranks by the neural model alone"),
        ("ruge", "so it is plain ComplEx"),
        ("nne_aer", "so it is ComplEx with entity vectors in [0, 1]"),
        ("blp", "so it gives all triples of a relation the same probability"),
    ],
)
def test_no_rules_are_a_warning(system: str, message: str) -> None:
    values: dict[str, object] = {"system": system, "neural.steps": 20, "rules.min_support": 100_000}
    found = train_and_examine(values)
    assert found["hidden triples"].level == "warning"
    assert message in found["hidden triples"].message
    assert "rules.min_support" in found["hidden triples"].message


def test_remedies_for_blp_are_about_rules() -> None:
    without = train_and_examine({"system": "blp", "rules.min_support": 100_000})
    assert without["chance level"].level == "warning"
    for finding in (without["ties"], without["chance level"]):
        assert "rules.min_precision" in finding.message
    assert not any("em.neural=true" in f.message or "train longer" in f.message.lower() for f in without.values())


def test_weights_of_blp_have_no_standard_errors() -> None:
    found = train_and_examine({"system": "blp"})
    assert {"large weights", "rules without a hit"} <= set(found)
    assert (
        "too few to matter" not in found["constant probabilities"].message
    )  # most are tied, since no rule concludes them
    assert not {"undetermined weights", "learned weights"} & set(found)


def test_rules_without_influence_on_ranks_are_not_checked_for_harm() -> None:
    check = "effect of the rules"
    assert check not in train_and_examine({"system": "ruge"})
    assert check in train_and_examine({"system": "ruge", "em.lambda": "auto"})


def test_a_neural_model_that_spoils_the_rules_is_reported() -> None:
    finding = train_and_examine({"neural.steps": 1, "em.lambda": 0.0})["effect of the neural model"]
    assert finding.level == "warning"
    assert "Rules alone are better." in finding.message
    assert "effect of the neural model" not in train_and_examine({"em.neural": False})


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ([0.0, 0.4], "The largest value was best on valid, and a larger one"),
        ([50.0, 1e6], "The smallest value was best on valid, and a smaller one"),
        ([0.0, 1e-9], "Rules do not improve the ranks"),
    ],
)
def test_lambda_at_an_end_of_its_grid(grid: list[float], message: str) -> None:
    finding = train_and_examine({"neural.steps": 5, "em.lambda_grid": grid})["choice of λ"]
    assert finding.level == "note"
    assert message in finding.message


def test_em_iterations_that_got_worse(healthy: Path) -> None:
    model = PLogicNet.load(healthy)
    outcome = model.fitted.outcome
    kept = outcome.history[outcome.iteration - 1]
    better = replace(kept, valid=dict(kept.valid) | {"plogicnet*": {"mrr": kept.validation_mrr + 0.02}})
    changed = replace(outcome, history=(*outcome.history[: outcome.iteration], better))
    finding = examine(model, replace(model.fitted, outcome=changed))["EM iterations"]
    assert finding.level == "warning"
    assert finding.share == pytest.approx(0.02)
    assert f"em.iterations={outcome.iteration + 1}" in finding.message


@pytest.mark.parametrize(
    ("brier", "before", "level", "message"),
    [
        (0.2, 0.3, "warning", "A constant is at least as good"),
        (0.004, 0.002, "note", "Calibration made them worse"),
        (0.00214, 0.00206, "ok", "0.0021 uncalibrated). The probabilities are better"),  # the difference is not visible
    ],
)
def test_the_brier_score(healthy: Path, brier: float, before: float, level: str, message: str) -> None:
    def spoil(metrics: dict[str, Any]) -> None:
        metrics["calibration"]["brier"] = brier
        metrics["calibration"]["uncalibrated"]["brier"] = before

    finding = with_metrics(healthy, spoil)["probabilities"]
    assert finding.level == level
    assert message in finding.message


def test_bad_calibration_and_harmful_rules_are_warnings(healthy: Path) -> None:
    def spoil(metrics: dict[str, Any]) -> None:
        metrics["calibration"]["ece"] = 0.4
        metrics["neural"]["mrr"] = metrics["plogicnet*"]["mrr"] + 0.05

    found = with_metrics(healthy, spoil)
    assert found["calibration"].level == found["effect of the rules"].level == "warning"


def test_the_command_distinguishes_runs_and_graphs(healthy: Path, tmp_path: Path) -> None:
    done = run_program("doctor", healthy, "--json")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert (content["run"], content["split"]) == (str(healthy), "test")
    checks = {finding["check"]: finding["level"] for finding in content["findings"]}
    assert checks == {check: finding.level for check, finding in examine(PLogicNet.load(healthy)).items()}
    assert "chance level" in run_program("doctor", healthy).stdout
    graph = small_graph()
    lines = ("\t".join(graph.names(t)) + "\n" for t in graph.train)
    (tmp_path / "train.txt").write_text("".join(lines))
    assert "inverse_leakage" in json.loads(run_program("doctor", tmp_path, "--json").stdout)


def test_a_run_with_invalid_metrics_is_damaged(healthy: Path, tmp_path: Path) -> None:
    there = Path(shutil.copytree(healthy, tmp_path / "run"))
    metrics = json.loads(files_of(there)["metrics.json"])
    overwrite(snapshot_folder(there) / "metrics.json", json.dumps(metrics | {"test": {"plogicnet*": 3}}))
    done = run_program("doctor", update_checksums(there))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"plogicnet: {there} is damaged: ")
