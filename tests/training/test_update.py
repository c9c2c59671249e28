"""Update: facts join the graph of a run, with learned weights, and new entities are learned."""

import json
from pathlib import Path

import numpy as np
import pytest

from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.inference.fitted import Prediction
from plogicnet.runs.directory import snapshot_folder, snapshot_names
from plogicnet.support.errors import InputError
from plogicnet.training.em import q_of_hidden
from plogicnet.training.hooks import Hooks
from small import SMALL, small_graph
from stopping import StoppedError, different, files_of, leftovers, overwrite, stop_at, tree_of, update_checksums

NEW = [("man0", "parent", "kim"), ("woman0", "parent", "kim"), ("kim", "sibling", "a0"), ("kim", "wife", "zoë 北")]
PATHS: dict[str, object] = {"neural.model": "Paths", "neural.paths.dim": 4, "neural.paths.layers": 2, "neural.batch": 8}
SOFTMAX: dict[str, object] = {"neural.model": "ComplEx", "neural.vectors.recipe": "one_vs_all"}
ANSWERED = [("man0", "parent", None), (None, "parent", "kim"), ("kim", None, "a0")]
EXPLAINED = [("kim", "child", "man0"), ("man0", "parent", "a0"), ("woman1", "wife", "man1")]


def trained(run: Path, values: dict[str, object] | None = None, graph: KnowledgeGraph | None = None) -> PLogicNet:
    config = Config().with_values(SMALL | {"em.iterations": 1} | (values or {}))
    return PLogicNet(config).fit(graph or small_graph(), out=run)


def answers(model: PLogicNet) -> list[list[Prediction]]:
    return [*(model.predict(*query, top=100, include_known=True) for query in ANSWERED), model.complete(0.0)]


@pytest.mark.parametrize(
    ("values", "steps"),
    [
        (PATHS, 100),
        ({"em.neural": False}, 100),
        ({"em.neural": False, "system": "blp"}, 100),
        ({"em.neural": False, "rules.negative": ["functional"], "rules.min_precision.functional": 0.1}, 100),
        ({"mln.hidden_premises": "sampled", "mln.blanket": "full"}, 0),
        (SOFTMAX, 0),
    ],
    ids=str,
)
def test_an_updated_run_answers_like_the_old_one_with_the_facts(
    values: dict[str, object], steps: int, tmp_path: Path
) -> None:
    """Nothing is trained: the model scores new entities, or has no parameters for them."""
    run = tmp_path / "run"
    trained(run, values)
    before, old = PLogicNet.load(run), files_of(run)
    expected = before.with_facts(NEW)
    updated = PLogicNet.load(run).update(NEW, run, steps)
    assert updated.last_update is not None
    assert (updated.last_update.facts, updated.last_update.entities, updated.last_update.trained_steps) == (4, 2, 0)
    for model in (updated, PLogicNet.load(run)):
        assert answers(model) == answers(expected)
        assert [model.explain(*t) for t in EXPLAINED] == [expected.explain(*t) for t in EXPLAINED]
    new = files_of(run)
    assert {name for name in old if new[name] == old[name]} >= {"config.yaml", "relations.tsv", "history.jsonl"}
    assert new.get("neural.safetensors") == old.get("neural.safetensors")

    # the counts of the rules are those of the larger graph, and all else that training reports stays
    counted = PLogicNet(Config().with_values(SMALL | {"em.neural": False})).fit(model.fitted.graph)
    counts = {str(rule): n for rule, n in zip(counted.rules.rules, counted.rules.support.tolist(), strict=True)}
    found = {str(rule): n for rule, n in zip(model.rules.rules, model.rules.support.tolist(), strict=True)}
    assert {rule: n for rule, n in found.items() if rule in counts} == {r: n for r, n in counts.items() if r in found}
    weights = dict(zip(map(str, before.rules.rules), before.rules.weight.tolist(), strict=True))
    updated_weights = dict(zip(map(str, model.rules.rules), model.rules.weight.tolist(), strict=True))
    np.testing.assert_equal(updated_weights, weights)
    assert model.history == before.history
    assert {"valid", "test"}.isdisjoint(model.metrics)

    # the run can be used like any other
    metrics = model.evaluate()
    assert np.isfinite(metrics["calibration"]["brier"])  # type: ignore[index]
    model.update([("kim", "parent", "lee")], run, steps, evaluate=True)
    assert PLogicNet.load(run).predict("lee", "child", "kim")[0].in_hidden
    assert np.isfinite(PLogicNet.load(run).metrics["test"]["plogicnet*"]["mrr"])
    refitted = PLogicNet.load(run).refit(out=run)
    assert np.isfinite(refitted.rules.take(~refitted.rules.constraints).weight).all()
    if "em.neural" not in values:
        resumed = PLogicNet.resume(run, {"em.iterations": 2})
        assert resumed.predict("kim", "child", "man0")[0].q is not None
        assert "lee" in resumed.fitted.graph.entities


@pytest.mark.parametrize("values", [{}, SOFTMAX, {"neural.model": "ConvE", "neural.vectors.recipe": "one_vs_all"}])
def test_vectors_of_new_entities_are_learned_and_others_stay(values: dict[str, object], tmp_path: Path) -> None:
    run = tmp_path / "run"
    expected = trained(run, {"neural.steps": 100, **values}).with_facts(NEW)
    first = PLogicNet.load(run).update(NEW, tmp_path / "first")
    model = PLogicNet.load(run).update(NEW, run)
    assert different(tmp_path / "first", run) == []
    assert model.last_update is not None
    assert (model.last_update.trained_steps, len(model.metrics)) == (100, len(first.metrics))
    model = PLogicNet.load(run)
    old = {p.triple: p for p in expected.complete(0.0)}
    for p in model.complete(0.0):
        assert p.q is not None
        is_old = {"kim", "zoë 北"}.isdisjoint((p.head, p.tail))
        assert not is_old or p.q == pytest.approx(old[p.triple].q, rel=1e-5)
    [fact], [other] = model.predict("man0", "parent", "kim"), model.predict("man3", "parent", "kim")
    assert fact.q is not None
    assert other.q is not None
    assert fact.q > other.q

    # what was left out with steps=0 can be learned later, with facts that are known by then
    untrained = PLogicNet.load(run, snapshot="0001").update(NEW, steps=0)
    assert untrained.predict("kim", "child", "man0")[0].q is None
    assert untrained.update(NEW).last_update is not None
    assert untrained.predict("kim", "child", "man0")[0].q is not None


def test_a_path_model_computes_q_of_new_hidden_triples_only(tmp_path: Path) -> None:
    """A vector model computes q of all."""
    for values in (PATHS, {}):
        old = trained(tmp_path / str(len(values)), values).fitted.outcome
        new = PLogicNet.load(tmp_path / str(len(values))).update(NEW, steps=0).fitted.outcome
        before = {tuple(t): q for t, q in zip(old.rule_model.hidden.tolist(), old.hidden_q.tolist(), strict=True)}
        now = q_of_hidden(new.neural, new.rule_model)
        hidden = [tuple(t) for t in new.rule_model.hidden.tolist()]
        assert set(hidden) & set(before)
        assert set(hidden) - set(before)
        expected = [before.get(t, q) if values else q for t, q in zip(hidden, now.tolist(), strict=True)]
        np.testing.assert_allclose(new.hidden_q, expected, rtol=1e-6)


def test_facts_of_valid_and_test_are_no_longer_questions(tmp_path: Path) -> None:
    run, graph = tmp_path / "run", small_graph()
    trained(run, {"em.neural": False})
    facts = [graph.names(triple) for triple in (graph.valid[0], graph.test[0], graph.test[1], graph.train[0])]
    model = PLogicNet.load(run).update([*facts, *facts], run)
    assert model.last_update is not None
    assert model.last_update.to_json() == {
        "facts": 3, "known": 1, "moved_from_valid": 1, "moved_from_test": 2, "entities": 0, "trained_steps": 0,
        "hidden": len(model.fitted.outcome.rule_model.hidden),
    }  # fmt: skip
    for fitted in (model.fitted, PLogicNet.load(run).fitted):
        np.testing.assert_array_equal(fitted.graph.valid, graph.valid[1:])
        np.testing.assert_array_equal(fitted.graph.test, graph.test[2:])
        assert len(fitted.graph.train) == len(graph.train) + 3


def test_valid_must_not_become_empty(tmp_path: Path) -> None:
    run, graph = tmp_path / "run", small_graph()
    trained(run, {"em.neural": False})
    before = tree_of(run)
    with pytest.raises(InputError, match="facts: contains all valid triples of the run"):
        PLogicNet.load(run).update([graph.names(triple) for triple in graph.valid], run)
    assert tree_of(run) == before
    PLogicNet.load(run).update([graph.names(triple) for triple in graph.test], run, evaluate=True)
    assert PLogicNet.load(run).metrics.keys() >= {"valid"}
    with pytest.raises(InputError, match="no test triples"):
        PLogicNet.load(run).evaluate("test")


def test_known_facts_publish_nothing(tmp_path: Path) -> None:
    run, graph = tmp_path / "run", small_graph()
    trained(run)
    before, model = tree_of(run), PLogicNet.load(run)
    known = [graph.names(triple) for triple in graph.train[:3]]
    metrics = model.metrics
    assert model.update(known, run).last_update is not None
    assert (model.metrics, model.snapshot and model.snapshot.name) == (metrics, "0001")
    assert tree_of(run) == before
    with pytest.raises(InputError, match="unknown relation 'parrent'"):
        model.update([("kim", "parrent", "a0")], run)
    with pytest.raises(InputError, match="can only predict and explain"):
        model.with_facts(NEW).update(NEW)
    assert tree_of(run) == before


def test_damaged_base_rates_are_reported(tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained(run, {"em.neural": False})
    PLogicNet.load(run).update(NEW, run)
    file = snapshot_folder(run) / "metrics.json"
    metrics = json.loads(file.read_text())
    not_finite = metrics["base_log_odds"] | {"parent": float("nan")}
    for wrong in [{}, [], None, not_finite]:
        overwrite(file, json.dumps(metrics | {"base_log_odds": wrong}))
        with pytest.raises(InputError, match="is damaged"):
            PLogicNet.load(update_checksums(run))


def test_a_stopped_update_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained(run)
    before = tree_of(run)
    for progress in (stop_at("training"), stop_at("grounding"), stop_at("ranking test")):
        with pytest.raises(StoppedError):
            PLogicNet.load(run).update(NEW, run, evaluate=True, hooks=Hooks(progress))
        assert tree_of(run) == before
    first, second = PLogicNet.load(run), PLogicNet.load(run)
    first.update(NEW, run)
    with pytest.raises(InputError, match="the current snapshot is 0002"):
        second.update(NEW, run)
    assert (snapshot_names(run), snapshot_folder(run).name, leftovers(run)) == (["0001", "0002"], "0002", [])
