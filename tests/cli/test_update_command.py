"""The command `update` on the small graph: facts and new entities stay in the run, and the run can still be used."""

import json
from pathlib import Path

import pytest

from calling import Call, call_json
from plogicnet import PLogicNet
from plogicnet.config import Config
from small import SMALL, small_graph, write_small_graph
from stopping import tree_of
from toy_modules import run_commands

QUERY = ("--head", "kim", "--relation", "child", "--json")


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    """Three facts: one new, one twice, one of test, and a known one."""
    graph = small_graph()
    rows = [("man0", "parent", "kim"), ("woman0", "parent", "kim"), ("woman0", "parent", "kim")]
    rows += [graph.names(graph.test[0]), graph.names(graph.train[0])]
    file = tmp_path / "facts.tsv"
    file.write_text("".join("\t".join(row) + "\n" for row in rows))
    return file


@pytest.mark.parametrize(
    ("values", "trained_steps"),
    [({"em.neural": False}, 0), ({"neural.model": "ComplEx", "neural.vectors.recipe": "one_vs_all"}, 30)],
)
def test_update_publishes_a_snapshot_that_all_commands_use(
    call: Call, values: dict[str, object], trained_steps: int, facts: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    PLogicNet(Config().with_values(SMALL | values)).fit(small_graph(), out=run)
    with_facts = call_json(call, "predict", run, *QUERY[:-1], "--facts", facts)
    result = call_json(call, "update", run, "--facts", facts, "--steps", 30)
    assert result.pop("hidden") > 0
    assert {"read", "ground"} <= set(result.pop("seconds"))
    assert result == {
        "run": str(run), "snapshot": "0002", "facts": 3, "known": 1, "moved_from_valid": 0, "moved_from_test": 1,
        "entities": 1, "trained_steps": trained_steps,
    }  # fmt: skip
    predicted = call_json(call, "predict", run, *QUERY[:-1])
    if trained_steps:
        assert all(row["q"] is not None for row in predicted["predictions"])
    else:
        assert predicted == with_facts
    listed = call_json(call, "runs", "list", run)
    assert [(row["command"], row["mrr"] is None) for row in listed["snapshots"]] == [("train", False), ("update", True)]
    for command in (("evaluate",), ("doctor",), ("rules",), ("explain", "kim", "child", "man0"), ("refit",)):
        call_json(call, command[0], run, *command[1:])
    assert call("report", run, "--out", tmp_path / "report.html")[0] == 0
    assert call("export", run, "--out", tmp_path / "exported")[0] == 0
    if trained_steps:
        assert call_json(call, "resume", run, "--set", "em.iterations=3")["iteration"] == 3

    # nothing new: no snapshot
    before = tree_of(run)
    code, out, _ = call("update", run, "--facts", facts)
    assert (code, out.split(".")[0]) == (0, "0 facts added, 4 known before")
    assert tree_of(run) == before
    assert call("runs", "revert", run, "0001")[0] == 0
    assert "unknown entity 'kim'" in call("explain", run, "kim", "child", "man0")[2]


def test_update_without_training_leaves_entities_to_the_rules(call: Call, facts: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    PLogicNet(Config().with_values(SMALL)).fit(small_graph(), out=run)
    with_facts = call_json(call, "predict", run, *QUERY[:-1], "--facts", facts)
    code, out, stderr = call("update", run, "--facts", facts, "--steps", 0, "--evaluate")
    assert code == 0
    assert "only rules predict their facts: kim" in stderr
    assert out.startswith(
        "3 facts added, 1 known before. 1 new entity. No longer held out: 0 facts of valid, 1 of test."
    )
    assert out.endswith(f"Snapshot 0002 is current. To go back: plogicnet runs revert {run} 0001\n")
    assert call_json(call, "predict", run, *QUERY[:-1]) == with_facts
    for command in (("evaluate",), ("doctor",), ("refit",), ("export", "--out", tmp_path / "exported")):
        assert ": NaN" not in json.dumps(call_json(call, command[0], run, *command[1:]))
    assert call_json(call, "runs", "list", run)["snapshots"][-1]["mrr"] is not None


def test_wrong_facts_change_nothing(call: Call, tmp_path: Path) -> None:
    run, file = tmp_path / "run", tmp_path / "facts.tsv"
    PLogicNet(Config().with_values(SMALL | {"em.neural": False})).fit(small_graph(), out=run)
    before = tree_of(run)
    file.write_text("kim\tparent\ta0\nkim\tparrent\ta1\n")
    for arguments, message in (
        ((run, "--facts", file), "facts.tsv, line 2: unknown relation 'parrent'. Did you mean 'parent'?"),
        ((run, "--facts", tmp_path / "nowhere.tsv"), "nowhere.tsv: no such file"),
        ((tmp_path / "nowhere", "--facts", file), "no run at"),
        ((run, "--facts", file, "--steps", "-1"), "--steps"),
        ((run,), "--facts"),
    ):
        code, out, stderr = call("update", *arguments)
        assert (code, out) == (2, "")
        assert message in stderr
    assert tree_of(run) == before


def test_a_model_that_scores_new_entities_is_not_trained(facts: Path, tmp_path: Path) -> None:
    """The model of another package answers exactly as with --facts before."""
    run, graph = tmp_path / "run", write_small_graph(tmp_path)
    settings = ["--set", "neural.model=Messages", "--set", "neural.steps=20", "--set", "em.iterations=1"]
    explain = ("explain", run, "kim", "child", "man0", "--json")
    outputs = run_commands(
        ("train", graph, "--out", run, "--device", "cpu", *settings, "--json"),
        ("predict", run, *QUERY, "--facts", facts),
        (*explain, "--facts", facts),
        ("update", run, "--facts", facts, "--json"),
        ("predict", run, *QUERY),
        explain,
        ("resume", run, "--set", "em.iterations=2", "--json"),
    )
    _, predicted, explained, updated, predicted_later, explained_later, resumed = map(json.loads, outputs)
    assert (updated["trained_steps"], updated["facts"]) == (0, 3)
    assert (predicted_later, explained_later) == (predicted, explained)
    assert explained["q"] is not None
    assert resumed["iteration"] == 2
