"""The rule model that learns from queries, on the demo family."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plogicnet import Config, PLogicNet, demo_family
from plogicnet.graph import SIDES, Side
from plogicnet.mln import QueryRuleModel
from plogicnet.rules import write_foreign
from plogicnet.support.errors import InputError

SETTINGS: dict[str, Any] = {
    "device": "cpu",
    "rules.backward": True,
    "rules.constants": True,
    "rules.min_hits": 2,
    "rules.max_constants": 500,
    "rules.min_precision": dict.fromkeys(("composition", "subrelation", "chain", "constant"), 0.3),
    "mln.objective": "query",
    "mln.query.triples": 400,
    "mln.query.hidden": 1,
    "em.neural": False,
}


@pytest.fixture(scope="module")
def model() -> PLogicNet:
    return PLogicNet(Config().with_values(SETTINGS)).fit(demo_family())


def rule_model(model: PLogicNet) -> QueryRuleModel:
    found = model.fitted.outcome.rule_model
    assert isinstance(found, QueryRuleModel)
    return found


def test_it_ranks_held_out_facts_first(model: PLogicNet) -> None:
    metrics: Any = model.evaluate("test")
    assert metrics["rules"]["mrr"] > 0.9


@pytest.mark.parametrize("side", SIDES)
def test_triples_and_queries_have_the_same_log_odds(model: PLogicNet, side: Side) -> None:
    graph, scores = model.fitted.graph, rule_model(model).scores(model.fitted.graph)
    known, relations = np.arange(30), np.arange(30) % len(graph.relations)
    query, entity, log_odds = scores.of_queries(known, relations, side)
    columns = (known[query], relations[query], entity) if side == "tail" else (entity, relations[query], known[query])
    triples = np.stack(columns, axis=1)
    new = ~graph.observed.contains(triples)
    cached, is_reached = scores.of_triples(triples[new])
    assert is_reached.all()
    assert np.array_equal(cached, log_odds[new])
    other_side = rule_model(model).scores(graph)  # has no queries in memory
    assert np.allclose(other_side.of_triples(triples[new])[0], log_odds[new], rtol=0, atol=1e-6)


def test_self_loops_are_excluded_also_if_rules_conclude_them(model: PLogicNet) -> None:
    scores, entities = model.fitted.rules, np.arange(len(model.fitted.graph.entities))
    loops = np.concatenate([np.stack([entities, np.full_like(entities, r), entities], 1) for r in range(20)])
    log_odds, is_reached = scores.of_triples(loops)
    assert (is_reached & (log_odds >= 0)).any(), "otherwise, the constraint has no effect"
    assert scores.forbidden(loops).all()
    assert not scores.forbidden(model.fitted.graph.train).any()
    assert (model.fitted.predict_batch(loops).probability == 0).all()


def test_explanations_add_up_and_agree_with_predictions(model: PLogicNet) -> None:
    graph = model.fitted.graph
    rng = np.random.default_rng(0)
    sample = np.concatenate([rng.permutation(split)[:8] for split in (graph.train, graph.valid, graph.test)])
    scores = model.fitted.rules.of_triples(sample)[0]
    n_contributions = 0
    for triple, log_odds in zip(sample, scores, strict=True):
        why = model.explain(*graph.names(triple))
        assert abs(why.base + sum(rule.contribution for rule in why.rules) - why.log_odds) < 1e-6
        assert abs(why.log_odds - log_odds) < 1e-5
        n_contributions += len(why.rules)
        for rule in why.rules:
            assert rule.rule.startswith("$") or rule.premises
    assert n_contributions > 100


def test_hidden_triples_are_the_best_new_conclusions(model: PLogicNet) -> None:
    hidden, graph = rule_model(model).hidden, model.fitted.graph
    n_queries = sum(len(np.unique(graph.train[:, [column, 1]], axis=0)) for column in (0, 2))
    assert 0 < len(hidden) <= n_queries
    assert not graph.observed.contains(hidden).any()
    assert model.fitted.rules.of_triples(hidden)[1].all()


def test_a_saved_model_predicts_the_same_and_a_refit_learns_the_same(model: PLogicNet, tmp_path: Path) -> None:
    model.save(tmp_path / "run")
    loaded = PLogicNet.load(tmp_path / "run")
    assert loaded.rules.rows() == model.rules.rows()
    assert loaded.explain("olga_stein", "daughter", "erik_peters") == model.explain(
        "olga_stein", "daughter", "erik_peters"
    )
    model.rules.write(tmp_path / "rules.tsv")  # with formulas, which are learned again
    for rules in (None, tmp_path / "rules.tsv"):
        again = PLogicNet.load(tmp_path / "run").refit(rules)
        weights = dict(zip(map(str, again.rules.rules), again.rules.weight.tolist(), strict=True))
        expected = dict(zip(map(str, model.rules.rules), model.rules.weight.tolist(), strict=True))
        assert weights.keys() == expected.keys()
        assert all(abs(weights[rule] - w) < 1e-3 for rule, w in expected.items() if not np.isnan(w))
    write_foreign(model.rules, tmp_path / "rules.txt", "anyburl")
    assert "$" not in (tmp_path / "rules.txt").read_text()


def test_facts_can_be_added(model: PLogicNet) -> None:
    larger = model.with_facts([("new_child", "parent", "olga_stein")])
    answers = {a.tail: a for a in larger.predict(head="olga_stein", relation="child", top=5)}
    assert "new_child" not in {a.tail for a in model.predict(head="olga_stein", relation="child", top=5)}
    assert answers["new_child"].in_hidden


def test_the_neural_model_learns_from_accepted_hidden_triples() -> None:
    settings = SETTINGS | {"em.neural": True, "neural.steps": 20, "neural.vectors.dim": 8, "neural.batch": 64}
    model = PLogicNet(Config().with_values(settings)).fit(demo_family())
    first, second = model.history
    assert first.hidden > first.accepted > 0
    assert second.lambda_ >= 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mln.blanket": "full"}, r"mln\.blanket=full cannot be used with mln\.objective=query"),
        ({"rules.counting": "paths", "rules.constants": False}, r"counting"),
        ({"system": "BLP"}, r"has its own objective"),
    ],
)
def test_settings_that_it_cannot_respect_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        PLogicNet(Config().with_values(SETTINGS | settings)).fit(demo_family())


def test_without_rules_nothing_is_concluded() -> None:
    model = PLogicNet(Config().with_values(SETTINGS | {"rules.mine": False})).fit(demo_family())
    assert len(model.rules) == 0
    assert model.fitted.rules.is_empty


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("parent(X, Y) & parent(X, Z) => sibling(Y, X)", r"mln\.objective=query supports only chains of up to three"),
        ("daughter(X, Y) => not son(X, Y)", r"negative evidence consists of the formulas `other` and `linked`"),
    ],
)
def test_rules_that_it_cannot_use_are_refused(rule: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        PLogicNet(Config().with_values(SETTINGS)).fit(demo_family(), rules=rule)
