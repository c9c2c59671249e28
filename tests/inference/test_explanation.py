"""Explanations: all terms add up and every premise is in the graph, for all kinds of triples and settings."""

import itertools
import json
import math
from dataclasses import fields, replace

import numpy as np
import pytest
from rich.console import Console

from plogicnet import PLogicNet
from plogicnet.cli.explanation import explanation_outline
from plogicnet.cli.show import best_reason
from plogicnet.graph import IntArray, KnowledgeGraph
from plogicnet.inference.explanation import Explanation, Path
from plogicnet.rules import parse_rule
from plogicnet.support.errors import pluralize
from reference import contradicting_facts
from small import fitted

NEW = [("man0", "parent", "kim"), ("woman0", "parent", "kim"), ("man0", "sibling", "man1")]
NEGATIVE = {"rules.negative": ["functional", "disjoint"], "rules.min_precision.functional": 0.1}
MODES: list[dict[str, object]] = [
    {},
    {"mln.aggregate": "mean"},
    {"mln.blanket": "full"},
    {"mln.blanket": "full", "mln.aggregate": "mean"},
    {"mln.aggregate": "saturating"},
    NEGATIVE,
    {**NEGATIVE, "mln.blanket": "full", "mln.aggregate": "mean"},
    {**NEGATIVE, "mln.hidden_premises": "sampled"},
    {"mln.blanket": "full", "mln.aggregate": "saturating"},
    {"mln.hidden_premises": "sampled"},
    {"mln.hidden_premises": "sampled", "mln.blanket": "full"},
    {"rules.counting": "paths", "mln.unit_clauses": False},
    {"em.neural": False},
    {"em.rules": False},
]


def some_triples(model: PLogicNet) -> IntArray:
    """Return observed, hidden and random triples, and triples with the last entity."""
    fitted_model, rng = model.fitted, np.random.default_rng(2)
    n, m = len(fitted_model.graph.entities), len(fitted_model.graph.relations)
    hidden = fitted_model.outcome.rule_model.groundings.hidden
    new = np.column_stack([np.full(10, n - 1), rng.integers(m, size=10), rng.integers(n, size=10)])
    return np.concatenate(
        [
            fitted_model.graph.train[rng.choice(len(fitted_model.graph.train), 30, replace=False)],
            fitted_model.graph.train[-len(NEW) :],
            hidden[rng.choice(len(hidden), min(40, len(hidden)), replace=False)],
            np.column_stack([rng.integers(k, size=30) for k in (n, m, n)]),
            new,
        ]
    )


@pytest.mark.parametrize("facts", [False, True], ids=["as trained", "with facts"])
@pytest.mark.parametrize("values", MODES, ids=str)
def test_contributions_add_up_to_the_log_odds(values: dict[str, object], facts: bool) -> None:
    model = fitted({**values, "neural.steps": 10})
    model = model.with_facts(NEW) if facts else model
    fitted_model = model.fitted
    network = fitted_model.outcome.rule_model.groundings
    true = {fitted_model.graph.names(t) for t in network.triples.triples[fitted_model.outcome.rule_model.truth]}
    observed = {fitted_model.graph.names(t) for t in fitted_model.graph.train}
    assert true == observed or "mln.hidden_premises" in values
    negative: set[str] = set()
    for triple in some_triples(model):
        why = model.explain(*fitted_model.graph.names(triple))
        odds, reached = (column[0] for column in fitted_model.rules.of_triples(triple[None, :]))
        assert why.log_odds == pytest.approx(odds, abs=1e-9)
        assert why.base + sum(rule.contribution for rule in why.rules) == pytest.approx(odds, abs=1e-9)
        assert why.reached == reached == bool(why.rules)
        for rule in why.rules:
            assert rule.contribution == pytest.approx(rule.value * rule.weight, abs=1e-9)
            assert rule.groundings == len(rule.premises)
            if rule.negative:
                assert (rule.value, rule.broken) == (-1, 0)
                contradicting = {(fact,) for fact in contradicting_facts(parse_rule(rule.rule), observed, why.triple)}
                assert contradicting == set(rule.premises)
                negative.add(rule.rule)
                continue
            assert {fact for premises in rule.premises for fact in premises} <= true
            assert rule.groundings or rule.broken
            assert "full" in values.values() or not rule.broken
            if values.get("mln.aggregate") != "mean":
                value: float = rule.groundings - rule.broken
                if values.get("mln.aggregate") == "saturating":
                    value = math.log2(1 + rule.groundings) - math.log2(1 + rule.broken)
                assert rule.value == pytest.approx(value, abs=1e-12)
        assert_calibration_adds_up(model, why, triple)
    assert len(negative) > 1 or "rules.negative" not in values


def assert_calibration_adds_up(model: PLogicNet, why: Explanation, triple: IntArray) -> None:
    """Assert that the terms of the calibration add up to the predicted probability."""
    [prediction] = model.predict_triples(triple[None, :])
    assert why.probability == pytest.approx(prediction.probability, rel=1e-9)
    assert (why.q, why.known, why.held_out) == (prediction.q, prediction.known, prediction.held_out)
    assert why.p_w == pytest.approx(prediction.p_w, rel=1e-9)
    composition = why.calibration
    parts = {part.part: part for part in composition.parts}
    for part in parts.values():
        assert part.contribution == pytest.approx(part.value * part.coefficient, abs=1e-12)
    assert sum(part.contribution for part in parts.values()) == pytest.approx(composition.log_odds, abs=1e-9)
    expected = 0.0 if why.forbidden else 1 / (1 + math.exp(-composition.log_odds))
    assert why.probability == pytest.approx(expected, rel=1e-9)
    assert composition.rules_alone == (why.q is None) == ("score" not in parts)
    if why.q is not None:
        assert 1 / (1 + math.exp(-parts["score"].value)) == pytest.approx(why.q, rel=1e-9)
    assert why.without_vector == (("kim",) if "kim" in why.triple and model.config.em.neural else ())
    assert why.aggregate == model.config.mln.aggregate


@pytest.fixture(scope="module")
def model() -> PLogicNet:
    return fitted({"neural.steps": 60})


@pytest.fixture(scope="module")
def larger(model: PLogicNet) -> PLogicNet:
    return model.with_facts(NEW)


def hub(**values: object) -> PLogicNet:
    """Return a model with 200 groundings of parent(X, Y) & child(Y, Z) => spouse(X, Z) for one couple."""
    rows = [
        row
        for i in range(200)
        for row in (("man", "parent", f"c{i}"), ("woman", "parent", f"c{i}"), (f"c{i}", "child", "woman"))
    ]
    rows += [("man", "spouse", "woman"), ("x", "spouse", "y"), ("c0", "sibling", "c1")]
    return fitted(
        {"em.neural": False, "rules.min_precision.composition": 0.4, **values},
        KnowledgeGraph.from_names(rows, [("x", "spouse", "y")]),
    )


def test_with_saturation_the_text_shows_the_factor_of_the_weight() -> None:
    why = hub(**{"mln.aggregate": "saturating"}).explain("man", "spouse", "woman")
    [entry] = [rule for rule in why.rules if rule.groundings > 1]
    assert entry.value == math.log2(201)
    assert f"(weight {entry.weight:.2f} × 7.65, 200 groundings)" in explanation_outline(why).text()


def test_listed_premises_are_limited_and_all_groundings_counted() -> None:
    model = hub()
    for limit, shown in ((None, 100), (0, 0), (3, 3), (1000, 200)):
        why = model.explain("man", "spouse", "woman", *([] if limit is None else [limit]))
        [entry] = [rule for rule in why.rules if rule.groundings > 1]
        assert entry.groundings == 200
        assert len(entry.premises) == shown
        assert why.base + sum(rule.contribution for rule in why.rules) == pytest.approx(why.log_odds, abs=1e-9)
        text = explanation_outline(why).text()
        assert ("… and" in text) == (shown < 200)
        assert (f"… and {200 - shown} more" in text) == (shown < 200)


def test_neighbours_of_an_entity_without_a_vector_are_those_of_the_other_end(larger: PLogicNet) -> None:
    neighbours = larger.explain("man0", "parent", "kim").neighbours
    assert [(n.similar_to, n.fact) for n in neighbours] == [("man0", ("woman0", "parent", "kim"))]
    assert all("kim" not in n.fact for n in larger.explain("woman0", "parent", "b0").neighbours)


def test_the_text_of_every_kind_of_triple(model: PLogicNet, larger: PLogicNet) -> None:
    graph = model.fitted.graph
    hidden = graph.names(model.fitted.outcome.rule_model.groundings.hidden[0])
    known = graph.names(graph.train[0])
    text = explanation_outline(model.explain(*hidden)).text()
    assert "(known fact)" not in text
    assert "neural model: q = " in text
    assert (
        "known facts with an entity similar to a0" in explanation_outline(model.explain("man0", "parent", "a0")).text()
    )
    assert "combined and calibrated on validation triples: log-odds" in text
    assert "at least one rule concludes the triple" in text
    assert "(known fact)" in explanation_outline(model.explain(*known)).text()
    not_concluded = explanation_outline(model.explain("man0", "husband", "c5")).text()
    assert "no rule concludes the triple from known facts" in not_concluded
    assert "+0.00  no rule concludes the triple" in not_concluded
    assert (
        "probability 0: a constraint excludes parent" in explanation_outline(model.explain("a0", "parent", "a0")).text()
    )
    new = explanation_outline(larger.explain("kim", "child", "man0")).text()
    assert "neural model: cannot score kim, so only rules count\n" in new
    assert "parent(man0, kim)" in new
    assert "q = " not in new
    rules_alone = fitted({"em.neural": False})
    assert (
        "neural model: this run has no neural model, so only rules count"
        in explanation_outline(rules_alone.explain(*hidden)).text()
    )


def test_paths_are_shown_if_the_model_provides_them(model: PLogicNet) -> None:
    why = model.explain("man0", "parent", "a0")
    steps = (("man0", "husband", "woman0"), ("woman0", "parent", "a0"))
    by_paths = replace(why, rules=(), neighbours=(), paths=(Path(steps, 0.75),))
    lines = explanation_outline(by_paths).text().splitlines()
    row = lines.index("    paths; removed one after the other, they lower the log-odds of q by")
    assert lines[row + 1].strip() == "+0.75  husband(man0, woman0) and parent(woman0, a0)"
    assert best_reason(by_paths) == "neural model only, through husband(man0, woman0) and parent(woman0, a0)"
    assert by_paths.to_json()["paths"] == [{"path": [list(step) for step in steps], "share": 0.75}]


def test_the_json_form_has_all_fields(model: PLogicNet) -> None:
    why = model.explain("man0", "parent", "a0")
    assert json.loads(json.dumps(why.to_json())) == why.to_json()
    assert list(why.to_json()) == [field.name for field in fields(why)]
    assert why.to_json()["rules"][0]["premises"][0][0] == list(why.rules[0].premises[0][0])


def test_broken_groundings_are_shown_with_the_full_blanket() -> None:
    model = fitted({"mln.blanket": "full", "neural.steps": 10})
    reasons = [model.explain(*model.fitted.graph.names(t)) for t in some_triples(model)]
    broken = [why for why in reasons if any(rule.broken for rule in why.rules[:5])]
    assert broken
    for why in broken:
        text = explanation_outline(why).text()
        for count in (rule.broken for rule in why.rules[:5] if rule.broken):
            assert f", minus {pluralize(count, 'grounding')} that would be violated if the triple were true)" in text


def test_tree_and_text_have_the_same_lines_with_labels(larger: PLogicNet) -> None:
    labels = {"man0": "Adam [bold]x", "parent": "parent of", "child": "child of"}
    outline = explanation_outline(larger.explain("kim", "child", "man0"), labels)
    text = outline.text()
    assert text.startswith("child of(kim, Adam [bold]x)  probability 0.")
    assert '"parent of"(X, Y) => "child of"(Y, X)' in text
    assert "base rate of child of" in text
    assert "man0" not in text
    screen = Console(width=500, no_color=True)
    with screen.capture() as shown:
        screen.print(outline.tree())
    lines = [line.strip("│├└─ ") for line in shown.get().splitlines()]
    assert lines == [line.strip() for line in text.splitlines()]


def test_the_remaining_rules_are_summed(model: PLogicNet) -> None:
    why = model.explain("man0", "husband", "woman0")
    eight = (replace(why.rules[0], contribution=1.5),) * 8
    assert "+4.50  3 other rules together" in explanation_outline(replace(why, rules=eight)).text()
    assert "+1.50  1 other rule together" in explanation_outline(replace(why, rules=eight[:6])).text()
    everything = explanation_outline(replace(why, rules=eight), max_rules=0).text()
    assert everything.count("+1.50  ") == 8
    assert "other rule" not in everything


def test_every_triple_of_a_small_family_can_be_explained(larger: PLogicNet) -> None:
    """Explain triples of all relations, including a new entity, and expect probabilities in [0, 1]."""
    people = ["man0", "a0", "kim", "woman5"]
    for relation in larger.fitted.graph.relations.names:
        for head, tail in itertools.product(people, repeat=2):
            why = larger.explain(head, relation, tail)
            assert 0 <= why.probability <= 1
            assert explanation_outline(why).text()
