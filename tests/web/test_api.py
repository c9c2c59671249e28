"""The responses of the real command: they equal the model's results, and every error has a message."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from plogicnet import PLogicNet
from plogicnet.evaluation.metrics import columns
from plogicnet.graph import KnowledgeGraph
from plogicnet.rules import RuleIndex
from plogicnet.web.roles import MAX_ROLES, Roles
from plogicnet.web.service import ModelService
from web_servers import HOSTILE, LONG, SCRIPT


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=60) as connection:
        yield connection


def body(client: httpx.Client, path: str, **values: object) -> Any:
    answer = client.get(f"/api/{path}", params=values)  # type: ignore[arg-type]
    assert answer.status_code == 200, answer.text[:500]
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def error(client: httpx.Client, status: int, path: str, **values: object) -> str:
    answer = client.get(path, params=values)  # type: ignore[arg-type]
    assert answer.status_code == status, answer.text[:500]
    assert list(answer.json()) == ["error"]
    return str(answer.json()["error"])


def close(a: Any, b: Any) -> bool:
    """Return whether two values are equal except for rounding, which depends on the number of threads."""
    if isinstance(a, float) and isinstance(b, float):
        return a == pytest.approx(b, rel=1e-5, abs=1e-7)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(close(a[k], b[k]) for k in a)
    return bool(a == b)


@pytest.mark.parametrize(
    "query",
    [
        {"head": "man0", "relation": "parent"},
        {"relation": "parent", "tail": "a1"},
        {"head": "man0", "tail": "woman0", "top": 3},
        {"head": "man0", "relation": "husband", "include_known": True},
        {"head": LONG, "relation": SCRIPT},
        {"head": "man0", "relation": "child", "tail": "woman0"},
        {"relation": "sibling", "tail": "a2", "top": 50},
        {"head": "man0", "relation": "husband", "tail": "woman0"},
    ],
)
def test_predict_returns_the_models_predictions(
    client: httpx.Client, served_model: PLogicNet, query: dict[str, Any]
) -> None:
    expected = [p.to_json() for p in served_model.predict(**query)]
    got = body(client, "predict", **query)["predictions"]
    graph = served_model.fitted.graph
    held_out = {graph.names(t): split for split in ("valid", "test") for t in graph.split(split)}
    for row in got:
        assert row["held_out"] == held_out.get((row["head"], row["relation"], row["tail"]))
    assert close(got, expected)


@pytest.mark.parametrize("name", HOSTILE)
def test_explain_returns_the_models_explanation(client: httpx.Client, served_model: PLogicNet, name: str) -> None:
    head, relation, tail = name, "husband", "woman0"
    got = body(client, "explain", head=head, relation=relation, tail=tail)
    assert got.pop("labels") == {}
    assert got.pop("other_rules") == {"count": 0, "groundings": 0, "contribution": 0}
    assert close(got, served_model.explain(head, relation, tail, 20).to_json())


def test_explanations_list_at_most_the_requested_premises(client: httpx.Client, served_model: PLogicNet) -> None:
    graph = served_model.fitted.graph
    whole = [served_model.explain(*graph.names(t)) for t in graph.train[:40]]
    most = max(whole, key=lambda why: max((rule.groundings for rule in why.rules), default=0))
    assert max(rule.groundings for rule in most.rules) > 1
    h, r, t = most.triple
    got = body(client, "explain", head=h, relation=r, tail=t, premises=1)
    assert [len(rule["premises"]) for rule in got["rules"]] == [1] * len(most.rules)
    assert [rule["groundings"] for rule in got["rules"]] == [rule.groundings for rule in most.rules]


def test_explanations_sum_up_the_rules_that_were_not_requested(client: httpx.Client, served_model: PLogicNet) -> None:
    graph = served_model.fitted.graph
    whole = max((served_model.explain(*graph.names(t)) for t in graph.train[:40]), key=lambda why: len(why.rules))
    assert len(whole.rules) > 2
    h, r, t = whole.triple
    got = body(client, "explain", head=h, relation=r, tail=t, rules=2)
    assert [rule["rule"] for rule in got["rules"]] == [rule.rule for rule in whole.rules[:2]]
    others = got["other_rules"]
    assert others["count"] == len(whole.rules) - 2
    assert others["groundings"] == sum(rule.groundings + rule.broken for rule in whole.rules[2:])
    total = got["base"] + sum(rule["contribution"] for rule in got["rules"]) + others["contribution"]
    assert total == pytest.approx(got["log_odds"], rel=1e-5)


def test_more_than_a_hundred_premises_can_be_requested() -> None:
    from small import fitted

    rows = [row for i in range(150) for row in (("man", "parent", f"c{i}"), (f"c{i}", "child", "woman"))]
    rows += [("man", "spouse", "woman"), ("x", "spouse", "y")]
    model = fitted({"em.neural": False}, KnowledgeGraph.from_names(rows, [("x", "spouse", "y")]))
    [rule] = ModelService(model).explain("man", "spouse", "woman", 1000).rules
    assert len(rule.premises) == rule.groundings == 150


def test_rules_equal_those_of_the_command(client: httpx.Client, served_model: PLogicNet) -> None:
    rows = served_model.rules.rows()
    got = body(client, "rules", top=1000)
    assert got["total"] == len(rows)
    assert [{k: v for k, v in row.items() if k != "number"} for row in got["rules"]] == rows
    some = body(client, "rules", q="HUSBAND wife", top=2, offset=1)
    both = [i for i, row in enumerate(rows) if "husband" in str(row["rule"]) and "wife" in str(row["rule"])]
    assert [row["number"] for row in some["rules"]] == both[1:3]
    assert some["total"] == len(both)
    wives = [i for i, rule in enumerate(served_model.rules.rules) if rule.head.relation == "wife"]
    of_wives = body(client, "rules", relation="wife", top=1000)
    assert [row["number"] for row in of_wives["rules"]] == wives
    patterns = [served_model.rules.rules[i].pattern for i in wives]
    assert of_wives["patterns"] == {pattern: patterns.count(pattern) for pattern in of_wives["patterns"]}
    inverse = body(client, "rules", relation="wife", pattern="inverse")
    assert inverse["total"] == of_wives["patterns"]["inverse"] == patterns.count("inverse") > 0
    assert inverse["patterns"] == of_wives["patterns"]
    assert body(client, "rules", relation="no such relation")["total"] == 0
    index, ordered = RuleIndex(served_model.rules), body(client, "rules", order="importance", top=5, offset=2)
    assert [row["number"] for row in ordered["rules"]] == index.by_importance(np.arange(len(rows)))[2:7].tolist()


def test_examples_of_rules_are_groundings(client: httpx.Client, served_model: PLogicNet) -> None:
    graph = served_model.fitted.graph
    observed = {graph.names(t) for t in graph.train}
    patterns = set()
    for number, rule in enumerate(served_model.rules.rules):
        got = body(client, "rule", number=number)
        assert got["rule"] == str(rule)
        assert bool(got["examples"]) == (not rule.negated)
        for example in got["examples"]:
            patterns.add(rule.pattern)
            assert {tuple(p) for p in example["premises"]} <= observed
            assert (tuple(example["hypothesis"]) in observed) == example["known"]
            reasons = served_model.explain(*example["hypothesis"]).rules
            premises = next(r.premises for r in reasons if r.rule == str(rule))
            assert sorted(map(tuple, example["premises"])) in [sorted(p) for p in premises]
    assert {"inverse", "composition", "subrelation"} & patterns


def test_pages_of_known_facts_have_all_facts_of_the_graph(client: httpx.Client, served_model: PLogicNet) -> None:
    graph = served_model.fitted.graph
    for name in ("man0", LONG, "woman3"):
        expected = {graph.names(t) for t in graph.train if name in (graph.names(t)[0], graph.names(t)[2])}
        got: list[tuple[str, ...]] = []
        while len(got) < body(client, "known", entity=name)["total"]:
            page = body(client, "known", entity=name, top=4, offset=len(got))["predictions"]
            assert all(row["known"] for row in page)
            got += [(row["head"], row["relation"], row["tail"]) for row in page]
        assert len(got) == len(expected)
        assert set(got) == expected
        as_head = body(client, "known", entity=name, side="tail", top=200)["predictions"]
        assert {tuple(r[k] for k in ("head", "relation", "tail")) for r in as_head} == {
            e for e in expected if e[0] == name
        }


def test_predicted_facts_are_the_most_probable_of_all_roles(client: httpx.Client, served_model: PLogicNet) -> None:
    roles = body(client, "entity", name="man0")["roles"]
    assert len(roles) <= MAX_ROLES
    best = {}
    for role in roles:
        head, tail = ("man0", None) if role["side"] == "tail" else (None, "man0")
        for p in served_model.predict(head, role["relation"], tail):
            best[p.head, p.relation, p.tail] = p.probability
    got = body(client, "predicted", entity="man0", top=200)
    assert got["roles"] == len(roles)
    assert not any(row["known"] for row in got["predictions"])
    assert {(r["head"], r["relation"], r["tail"]) for r in got["predictions"]} == set(best)
    probabilities = [row["probability"] for row in got["predictions"]]
    assert probabilities == sorted(probabilities, reverse=True)
    one = body(client, "predicted", entity="man0", relation="parent", side="head", top=5)["predictions"]
    assert [row["head"] for row in one] == [p.head for p in served_model.predict(relation="parent", tail="man0", top=5)]


def test_candidate_roles_start_with_the_known_roles_and_include_concluded_ones(served_model: PLogicNet) -> None:
    graph = served_model.fitted.graph
    roles = Roles(graph, served_model.rules)
    for entity in range(len(graph.entities)):
        facts = graph.train[(graph.train[:, 0] == entity) | (graph.train[:, 2] == entity)]
        known = {(int(r), "tail" if h == entity else "head") for h, r, _ in facts}
        candidates = roles.candidates(entity)
        assert set(candidates[: len(known)]) == known == set(roles.known_counts(entity))
        assert len(candidates) == len(set(candidates))
        assert np.array_equal(np.unique(roles.facts(entity), axis=0), np.unique(facts, axis=0))
    # husband(X, Y) => wife(Y, X) suggests the role of wife(?, X) for a husband without a known wife
    husband, wife = graph.relations.id("husband"), graph.relations.id("wife")
    assert any(
        (wife, "head") in roles.candidates(int(h)) and (wife, "head") not in roles.known_counts(int(h))
        for h, r, _ in graph.train
        if r == husband
    )


def test_search_info_and_metrics(client: httpx.Client, served_model: PLogicNet) -> None:
    names = [row["name"] for row in body(client, "search", q="ZOE ang")["names"]]
    assert names == ["Zoë Ångström"]
    assert len(body(client, "search", q="")["names"]) == 20
    assert [r["name"] for r in body(client, "search", q="WIF", kind="relation")["names"]] == ["wife"]
    assert [r["name"] for r in body(client, "search", q=LONG)["names"]] == [LONG]
    info = body(client, "info")
    assert info["entities"] == len(served_model.fitted.graph.entities)
    assert info["split"] == "test"
    assert info["rules"] - info["constraints"] == len(served_model.fitted.outcome.rule_model.rules)
    result: Any = served_model.metrics["test"]
    assert [(m["key"], m["title"]) for m in info["metrics"]] == [(m.key, m.title) for m in columns()]
    assert info["rankings"] == dict(served_model.titles)
    assert info["figures"] == {key: {m.key: result[key][m.key] for m in columns()} for key in info["rankings"]}
    assert body(client, "metrics") == json.loads(json.dumps(served_model.metrics))


def test_responses_have_the_labels_of_their_names() -> None:
    from dataclasses import replace

    from small import fitted, small_graph

    model = fitted(None, replace(small_graph(), labels={"man0": "Mr. Zero", "husband": "is husband of"}))
    service = ModelService(model)
    assert service.predict("man0", "husband", None, 3, False)["labels"] == {
        "man0": "Mr. Zero",
        "husband": "is husband of",
    }
    assert service.search("zero")["names"][0]["label"] == "Mr. Zero"
    assert service.entity("man0")["label"] == "Mr. Zero"
    assert service.explain("man0", "husband", "woman0").labels["man0"] == "Mr. Zero"


def test_a_self_loop_counts_once_everywhere() -> None:
    from small import family_rows, fitted

    loops = [("man0", "knows", "man0"), ("man0", "knows", "man1"), ("man2", "knows", "man0")]
    rows = [row for row in family_rows()[:60] if "man0" not in row]
    service = ModelService(fitted(None, KnowledgeGraph.from_names(rows + loops, family_rows()[90:100], name="loops")))
    assert next(e["facts"] for e in service.search("man0")["names"] if e["name"] == "man0") == 3
    details = service.entity("man0")
    assert details["facts"] == 3
    assert service.known("man0", None, None, 50, 0)["total"] == 3
    for role in details["roles"]:
        assert service.known("man0", role["relation"], role["side"], 50, 0)["total"] == role["known"]


def test_errors_have_a_message(client: httpx.Client) -> None:
    assert "unknown entity 'nobody'" in error(client, 404, "/api/predict", head="nobody", relation="wife")
    assert "unknown relation" in error(client, 404, "/api/explain", head="man0", relation="no", tail="man0")
    assert "unknown entity" in error(client, 404, "/api/entity", name="z" * 8192)
    assert len(error(client, 404, "/api/entity", name="z" * 8192)) < 300
    assert "at least two of head" in error(client, 422, "/api/predict", head="man0")
    assert "at least two of head" in error(client, 422, "/api/predict")
    assert "top" in error(client, 422, "/api/predict", head="man0", relation="wife", top=0)
    assert "top" in error(client, 422, "/api/predict", head="man0", relation="wife", top=10**6)
    assert "top" in error(client, 422, "/api/search", top=21)
    assert "kind" in error(client, 422, "/api/search", kind="graph")
    assert "side" in error(client, 422, "/api/known", entity="man0", side="left")
    assert "offset" in error(client, 422, "/api/rules", offset=-1)
    assert "name" in error(client, 422, "/api/entity")
    assert "name" in error(client, 422, "/api/entity", name="z" * 8193)
    assert "numbered from 0" in error(client, 404, "/api/rule", number=10**6)
    assert error(client, 404, "/api/nothing") == error(client, 404, "/nothing") == "not found"


def test_openapi_describes_every_route(client: httpx.Client) -> None:
    schema = client.get("/openapi.json").json()
    assert set(schema["paths"]) == {
        f"/api/{name}"
        for name in ("info", "metrics", "search", "entity", "known", "predicted", "predict", "explain", "rules", "rule")
    }
    assert client.get("/docs").status_code == client.get("/redoc").status_code == 404
