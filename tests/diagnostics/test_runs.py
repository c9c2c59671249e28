"""Checks of runs: a healthy run, and the same run or others with one thing wrong each."""

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

from forking import program
from plogicnet import PLogicNet
from plogicnet.diagnostics.finding import Finding
from plogicnet.diagnostics.runs import examine_run
from plogicnet.graph import KnowledgeGraph
from plogicnet.inference.fitted import Fitted
from plogicnet.neural.protocol import Table
from plogicnet.rules import RuleTable, parse_rule
from small import TableModel, family_rows, fitted, small_graph
from stopping import resealed

STEPS = {"neural.steps": 200}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("checkup") / "run"
    fitted({**STEPS, "em.patience": 1, "em.lambda_grid": [0.0, 0.5, 1e6]}).save(run)
    return run


def examined(model: PLogicNet, changed: Fitted | None = None, metrics: Any = None) -> dict[str, Finding]:
    found = examine_run("run", changed or model.fitted, model.config, metrics or model.metrics).findings
    assert len(found) == len({finding.check for finding in found})
    return {finding.check: finding for finding in found}


def trained(values: dict[str, object], graph: KnowledgeGraph | None = None) -> dict[str, Finding]:
    return examined(fitted(values, graph))


def with_vectors(run: Path, change: Callable[[torch.Tensor], None]) -> dict[str, Finding]:
    model = PLogicNet.load(run)
    change(model.fitted.outcome.neural.entity)  # type: ignore[union-attr]
    return examined(model)


def with_metrics(run: Path, change: Callable[[dict[str, Any]], None]) -> dict[str, Finding]:
    model = PLogicNet.load(run)
    metrics: Any = copy.deepcopy(dict(model.metrics))
    change(metrics["test"])
    return examined(model, metrics=metrics)


def test_a_healthy_run_has_no_warning(healthy: Path) -> None:
    found = examined(PLogicNet.load(healthy))
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


def test_vectors_that_are_not_finite(healthy: Path) -> None:
    def spoil(entity: torch.Tensor) -> None:
        entity[3, 2], entity[4, 0] = np.nan, np.inf

    finding = with_vectors(healthy, spoil)["vectors that are not finite"]
    assert (finding.level, finding.count, finding.examples) == ("warning", 2, ("entities: 2",))
    assert "smaller neural.learning_rate" in finding.message


def test_vectors_all_alike(healthy: Path) -> None:
    def spoil(entity: torch.Tensor) -> None:
        entity[:] = entity[0].clone() * (1 + 1e-5 * torch.arange(len(entity))[:, None])

    found = with_vectors(healthy, spoil)
    assert found["vectors all alike"].level == "warning"
    assert found["equal vectors"].level == "ok"


def test_some_equal_vectors(healthy: Path) -> None:
    def spoil(entity: torch.Tensor) -> None:
        entity[1:4] = entity[0].clone()

    found = with_vectors(healthy, spoil)
    names = PLogicNet.load(healthy).fitted.graph.entities.names
    assert (found["equal vectors"].level, found["equal vectors"].examples) == ("warning", names[:4])
    assert found["vectors all alike"].level == "ok"


class Tables(TableModel):
    """A model with any tables, and none for its entities."""

    def __init__(self, entities: int, relations: int, **tables: "np.ndarray[Any, Any]") -> None:
        super().__init__(np.random.default_rng(0).normal(size=(relations, entities, entities)))
        self.own = {name: Table(values) for name, values in tables.items()}

    def tables(self) -> dict[str, Table]:
        return self.own


def test_a_model_without_vectors_of_entities(healthy: Path) -> None:
    model = PLogicNet.load(healthy)
    about_vectors = {"equal vectors", "vectors all alike"}
    sizes = len(model.fitted.graph.entities), len(model.fitted.graph.relations)
    for neural, finite in ((Tables(*sizes), None), (Tables(*sizes, gate=np.array([1.0, np.nan])), "warning")):
        changed = replace(model.fitted, outcome=replace(model.fitted.outcome, neural=neural))
        found = examined(model, changed)
        assert not about_vectors & set(found)
        check = found.get("vectors that are not finite")
        assert (check and (check.level, check.examples)) == (finite and (finite, ("gate: 1",)))


def test_constant_scores(healthy: Path) -> None:
    def spoil(entity: torch.Tensor) -> None:
        entity[:] = 0.25  # so that the score depends on the relation alone

    found = with_vectors(healthy, spoil)
    assert (found["constant scores"].level, found["constant scores"].share) == ("warning", 1.0)
    assert "all triples are tied" in found["constant scores"].message


def test_constant_probabilities(healthy: Path) -> None:
    model = PLogicNet.load(healthy)
    flat = replace(model.fitted.calibration, score=0.0, p_w=0.0, reached=0.0)
    found = examined(model, replace(model.fitted, calibration=flat))
    assert found["constant probabilities"].level == "warning"
    assert found["constant scores"].level == "ok"


def test_an_untrained_model_without_rules_is_no_better_than_chance() -> None:
    found = trained({"em.rules": False, "neural.steps": 1, "neural.learning_rate": 1e-6, "seed": 4})
    assert found["better than chance"].level == "warning"
    assert "huge weights" not in found
    assert "hidden triples" not in found


def test_many_ties(healthy: Path) -> None:
    def spoil(figures: dict[str, Any]) -> None:
        figures["plogicnet"]["optimistic"]["mrr"] = 0.9
        figures["plogicnet"]["pessimistic"]["mrr"] = 0.1

    finding = with_metrics(healthy, spoil)["ties"]
    assert (finding.level, finding.count, finding.examples) == ("warning", 1, ("plogicnet: 0.900 to 0.100",))
    assert finding.share == pytest.approx(0.8)


def test_rules_alone_tie_and_the_finding_explains_it() -> None:
    found = trained({"em.neural": False})
    assert found["ties"].level == "note"
    assert "em.neural=true" in found["ties"].message
    assert "constant scores" not in found
    assert "vectors all alike" not in found
    assert "λ at the end of its grid" not in found


def test_a_split_that_was_trained_on() -> None:
    rows = family_rows()
    graph = KnowledgeGraph.from_names(rows[:86], [*rows[86:102], rows[1]], [*rows[102:], *rows[:6]], "leaking")
    found = trained({"neural.steps": 20}, graph)
    assert (found["shared train/test"].level, found["shared train/test"].count) == ("warning", 6)
    assert (found["shared train/valid"].level, found["shared train/valid"].count) == ("warning", 1)
    assert found["shared valid/test"].count == 1


def test_no_split_of_its_own() -> None:
    found = trained({"neural.steps": 20}, KnowledgeGraph.from_names(family_rows(), name="whole"))
    assert (found["held-out share"].level, found["held-out share"].count) == ("note", 6)
    assert found["held-out figures"].level == "warning"
    assert "--split" in found["held-out figures"].message


def test_huge_weights_and_rules_without_a_hit() -> None:
    model = fitted({"neural.steps": 20}).refit("=50: husband(X, Y) => wife(Y, X)\nhusband(X, Y) => child(X, Y)")
    found = examined(model)
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
    changed = replace(model.fitted, outcome=outcome)
    changed.__dict__["rules"] = model.fitted.rules  # the scores of the rules do not matter here
    assert examined(model, changed)["weights that the triples do not tell"].level == level


def test_weights_that_never_moved() -> None:
    values = {"mln.solver": "gradient", "mln.gradient.step": 1e-9, "mln.gradient.iterations": 1, "neural.steps": 20}
    finding = trained(values)["weights at their start"]
    assert finding.level == "warning"
    assert "mln.solver=newton" in finding.message


def test_no_hidden_triples() -> None:
    strict = {f"rules.min_precision.{p}": 1.0 for p in ("composition", "inverse", "symmetric", "subrelation")}
    finding = trained({"neural.steps": 20, **strict})["hidden triples"]
    assert (finding.level, finding.count) == ("warning", 0)
    assert "rules.min_precision" in finding.message


def test_hidden_triples_of_which_none_is_accepted() -> None:
    finding = trained({"neural.steps": 20, "em.tau_triplet": 1.0})["hidden triples"]
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
def test_hidden_triples_of_a_system_that_accepts_none(values: dict[str, object], said: str) -> None:
    finding = trained({"neural.steps": 20, **values})["hidden triples"]
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
def test_no_rule_at_all(system: str, said: str) -> None:
    values: dict[str, object] = {"system": system, "neural.steps": 20, "rules.min_support": 100_000}
    found = trained(values)
    assert found["hidden triples"].level == "warning"
    assert said in found["hidden triples"].message
    assert "rules.min_support" in found["hidden triples"].message


def test_advice_on_blp_is_about_rules() -> None:
    without = trained({"system": "blp", "rules.min_support": 100_000})
    assert without["better than chance"].level == "warning"
    for finding in (without["ties"], without["better than chance"]):
        assert "rules.min_precision" in finding.message
    assert not any("em.neural=true" in f.message or "train longer" in f.message for f in without.values())


def test_weights_of_blp_have_no_standard_error_and_no_start() -> None:
    found = trained({"system": "blp"})
    assert {"huge weights", "rules without a hit"} <= set(found)
    assert "too few to matter" not in found["constant probabilities"].message  # most are level, as no rule reaches them
    assert not {"weights that the triples do not tell", "weights at their start"} & set(found)


def test_rules_that_have_no_say_do_neither_harm_nor_good() -> None:
    check = "worse than the neural model alone"
    assert check not in trained({"system": "ruge"})
    assert check in trained({"system": "ruge", "em.lambda": "auto"})


@pytest.mark.parametrize(
    ("grid", "word"),
    [
        ([0.0, 0.4], "the largest was best on validation, and a larger one"),
        ([50.0, 1e6], "the smallest was best on validation, and a smaller one"),
        ([0.0, 1e-9], "the rules add nothing"),
    ],
)
def test_lambda_at_an_end_of_its_grid(grid: list[float], word: str) -> None:
    finding = trained({"neural.steps": 5, "em.lambda_grid": grid})["λ at the end of its grid"]
    assert finding.level == "note"
    assert word in finding.message


def test_em_iterations_that_got_worse(healthy: Path) -> None:
    model = PLogicNet.load(healthy)
    outcome = model.fitted.outcome
    kept = outcome.history[outcome.iteration - 1]
    better = replace(kept, valid=dict(kept.valid) | {"plogicnet*": {"mrr": kept.merit + 0.02}})
    changed = replace(outcome, history=(*outcome.history[: outcome.iteration], better))
    finding = examined(model, replace(model.fitted, outcome=changed))["EM iterations that got worse"]
    assert finding.level == "warning"
    assert finding.share == pytest.approx(0.02)
    assert f"em.iterations={outcome.iteration + 1}" in finding.message


@pytest.mark.parametrize(
    ("brier", "before", "level", "message"),
    [
        (0.2, 0.3, "warning", "base rate alone does as well"),
        (0.004, 0.002, "note", "calibration made them worse"),
        (0.00214, 0.00206, "ok", "uncalibrated 0.0021; they are better than that"),  # by less than is shown
    ],
)
def test_the_brier_score(healthy: Path, brier: float, before: float, level: str, message: str) -> None:
    def spoil(figures: dict[str, Any]) -> None:
        figures["calibration"]["brier"] = brier
        figures["calibration"]["uncalibrated"]["brier"] = before

    finding = with_metrics(healthy, spoil)["probabilities"]
    assert finding.level == level
    assert message in finding.message


def test_calibration_that_is_off_and_rules_that_do_harm(healthy: Path) -> None:
    def spoil(figures: dict[str, Any]) -> None:
        figures["calibration"]["ece"] = 0.4
        figures["neural"]["mrr"] = figures["plogicnet*"]["mrr"] + 0.05

    found = with_metrics(healthy, spoil)
    assert found["calibration"].level == found["worse than the neural model alone"].level == "warning"


def test_the_command_knows_a_run_from_a_graph(healthy: Path, tmp_path: Path) -> None:
    done = program("doctor", healthy, "--json")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert (content["run"], content["split"]) == (str(healthy), "test")
    checks = {finding["check"]: finding["level"] for finding in content["findings"]}
    assert checks == {check: finding.level for check, finding in examined(PLogicNet.load(healthy)).items()}
    assert "better than chance" in program("doctor", healthy).stdout
    graph = small_graph()
    lines = ("\t".join(graph.names(t)) + "\n" for t in graph.train)
    (tmp_path / "train.txt").write_text("".join(lines))
    assert "inverse_leakage" in json.loads(program("doctor", tmp_path, "--json").stdout)


def test_a_run_without_figures_is_damaged(healthy: Path, tmp_path: Path) -> None:
    there = Path(shutil.copytree(healthy, tmp_path / "run"))
    metrics = json.loads((there / "metrics.json").read_text())
    (there / "metrics.json").write_text(json.dumps(metrics | {"test": {"plogicnet*": 3}}))
    done = program("doctor", resealed(there))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"plogicnet: {there} is damaged: ")
