"""Explanations: all parts add up, every premise is in the graph, whatever the triple and the settings."""

import itertools
import json
import math
from dataclasses import fields, replace

import numpy as np
import pytest
from rich.console import Console

from plogicnet import PLogicNet
from plogicnet.cli.explanation import explained
from plogicnet.cli.show import best_reason
from plogicnet.graph import IntArray, KnowledgeGraph
from plogicnet.inference.explanation import Explanation, Path
from small import fitted

NEW = [("man0", "parent", "kim"), ("woman0", "parent", "kim"), ("man0", "sibling", "man1")]
MODES: list[dict[str, object]] = [
    {},
    {"mln.aggregate": "mean"},
    {"mln.blanket": "full"},
    {"mln.blanket": "full", "mln.aggregate": "mean"},
    {"mln.hidden_premises": "sampled"},
    {"mln.hidden_premises": "sampled", "mln.blanket": "full"},
    {"rules.counting": "paths", "mln.unit_clauses": False},
    {"em.neural": False},
    {"em.rules": False},
]


def hundred_triples(model: PLogicNet) -> IntArray:
    """Observed, hidden and random ones, and those with new entities where there are some."""
    f, rng = model.fitted, np.random.default_rng(2)
    n, m = len(f.graph.entities), len(f.graph.relations)
    hidden = f.outcome.rule_model.groundings.hidden
    new = np.column_stack([np.full(10, n - 1), rng.integers(m, size=10), rng.integers(n, size=10)])
    return np.concatenate(
        [
            f.graph.train[rng.choice(len(f.graph.train), 30, replace=False)],
            f.graph.train[-len(NEW) :],
            hidden[rng.choice(len(hidden), min(40, len(hidden)), replace=False)],
            np.column_stack([rng.integers(k, size=30) for k in (n, m, n)]),
            new,
        ]
    )


@pytest.mark.parametrize("facts", [False, True], ids=["as trained", "with facts"])
@pytest.mark.parametrize("values", MODES, ids=str)
def test_everything_adds_up(values: dict[str, object], facts: bool) -> None:
    model = fitted({**values, "neural.steps": 10})
    model = model.with_facts(NEW) if facts else model
    f = model.fitted
    network = f.outcome.rule_model.groundings
    true = {f.graph.names(t) for t in network.triples.triples[f.outcome.rule_model.truth]}
    observed = {f.graph.names(t) for t in f.graph.train}
    assert true == observed or "mln.hidden_premises" in values
    for triple in hundred_triples(model):
        why = model.explain(*f.graph.names(triple))
        odds, reached = (column[0] for column in f.rules.of_triples(triple[None, :]))
        assert why.log_odds == pytest.approx(odds, abs=1e-9)
        assert why.base + sum(rule.contribution for rule in why.rules) == pytest.approx(odds, abs=1e-9)
        assert why.reached == reached == bool(why.rules)
        for rule in why.rules:
            assert rule.groundings == len(rule.premises)
            assert {fact for premises in rule.premises for fact in premises} <= true
            assert rule.groundings or rule.broken
            assert "full" in values.values() or not rule.broken
            if values.get("mln.aggregate") != "mean":
                value = rule.groundings - rule.broken
                assert rule.contribution == pytest.approx(value * rule.weight, abs=1e-9)
        assert_whole(model, why, triple)


def assert_whole(model: PLogicNet, why: Explanation, triple: IntArray) -> None:
    """The calibration's parts add up to the probability, which is the predicted one."""
    [judged] = model.judge(triple[None, :])
    assert why.probability == pytest.approx(judged.probability, rel=1e-9)
    assert (why.q, why.known, why.held_out) == (judged.q, judged.known, judged.held_out)
    assert why.p_w == pytest.approx(judged.p_w, rel=1e-9)
    whole = why.calibration
    parts = {part.part: part for part in whole.parts}
    for part in parts.values():
        assert part.contribution == pytest.approx(part.value * part.coefficient, abs=1e-12)
    assert sum(part.contribution for part in parts.values()) == pytest.approx(whole.log_odds, abs=1e-9)
    own = 0.0 if why.forbidden else 1 / (1 + math.exp(-whole.log_odds))
    assert why.probability == pytest.approx(own, rel=1e-9)
    assert whole.rules_alone == (why.q is None) == ("score" not in parts)
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


def hub() -> PLogicNet:
    """parent(X, Y) & child(Y, Z) => spouse(X, Z), by two hundred children of one couple."""
    rows = [
        row
        for i in range(200)
        for row in (("man", "parent", f"c{i}"), ("woman", "parent", f"c{i}"), (f"c{i}", "child", "woman"))
    ]
    rows += [("man", "spouse", "woman"), ("x", "spouse", "y"), ("c0", "sibling", "c1")]
    return fitted(
        {"em.neural": False, "rules.min_precision.composition": 0.4},
        KnowledgeGraph.from_names(rows, [("x", "spouse", "y")]),
    )


def test_premises_are_bounded_and_counted_exactly() -> None:
    model = hub()
    for most, shown in ((None, 100), (0, 0), (3, 3), (1000, 200)):
        why = model.explain("man", "spouse", "woman", *([] if most is None else [most]))
        [entry] = [rule for rule in why.rules if rule.groundings > 1]
        assert entry.groundings == 200
        assert len(entry.premises) == shown
        assert why.base + sum(rule.contribution for rule in why.rules) == pytest.approx(why.log_odds, abs=1e-9)
        text = explained(why).text()
        assert ("… and" in text) == (shown < 200)
        assert (f"… and {200 - shown} more" in text) == (shown < 200)


def test_neighbours_of_an_entity_without_a_vector_are_those_of_the_other_end(larger: PLogicNet) -> None:
    found = larger.explain("man0", "parent", "kim").neighbours
    assert [(n.similar_to, n.fact) for n in found] == [("man0", ("woman0", "parent", "kim"))]
    assert all("kim" not in n.fact for n in larger.explain("woman0", "parent", "b0").neighbours)


def test_words_for_every_kind_of_triple(model: PLogicNet, larger: PLogicNet) -> None:
    graph = model.fitted.graph
    hidden = graph.names(model.fitted.outcome.rule_model.groundings.hidden[0])
    known = graph.names(graph.train[0])
    plain = explained(model.explain(*hidden)).text()
    assert "a known fact" not in plain
    assert "the neural model says q = " in plain
    assert "similar to a0, with such a fact" in explained(model.explain("man0", "parent", "a0")).text()
    assert "together, as calibrated on validation triples: log-odds" in plain
    assert "for being reached by rules" in plain
    assert "a known fact" in explained(model.explain(*known)).text()
    unreached = explained(model.explain("man0", "husband", "c5")).text()
    assert "no rule reaches it from the known facts" in unreached
    assert "+0.00  no rule reaches it" in unreached
    assert "ruled out: parent does not hold between" in explained(model.explain("a0", "parent", "a0")).text()
    new = explained(larger.explain("kim", "child", "man0")).text()
    assert "judged by rules alone: the neural model cannot score kim\n" in new
    assert "parent(man0, kim)" in new
    assert "the neural model says" not in new
    alone = fitted({"em.neural": False})
    assert "judged by rules alone: this run has no neural model" in explained(alone.explain(*hidden)).text()


def test_paths_are_told_where_a_model_gives_them(model: PLogicNet) -> None:
    why = model.explain("man0", "parent", "a0")
    steps = (("man0", "husband", "woman0"), ("woman0", "parent", "a0"))
    by_paths = replace(why, rules=(), neighbours=(), paths=(Path(steps, 0.75),))
    lines = explained(by_paths).text().splitlines()
    at = lines.index("    by these paths, each with its share of the score")
    assert lines[at + 1].strip() == "0.75  husband(man0, woman0) and parent(woman0, a0)"
    assert best_reason(by_paths) == "the neural model alone: husband(man0, woman0) and parent(woman0, a0)"
    assert by_paths.to_json()["paths"] == [{"path": [list(step) for step in steps], "share": 0.75}]


def test_the_json_form_is_plain_and_whole(model: PLogicNet) -> None:
    why = model.explain("man0", "parent", "a0")
    assert json.loads(json.dumps(why.to_json())) == why.to_json()
    assert list(why.to_json()) == [field.name for field in fields(why)]
    assert why.to_json()["rules"][0]["premises"][0][0] == list(why.rules[0].premises[0][0])


def test_a_premise_that_would_break_rules_says_so_under_the_full_blanket() -> None:
    model = fitted({"mln.blanket": "full", "neural.steps": 10})
    reasons = [model.explain(*model.fitted.graph.names(t)) for t in hundred_triples(model)]
    broken = [why for why in reasons if any(rule.broken for rule in why.rules[:5])]
    assert broken
    assert all("that it would break as a premise" in explained(why).text() for why in broken)


def test_tree_and_text_say_the_same_under_labels_as_they_are(larger: PLogicNet) -> None:
    labels = {"man0": "Adam [bold]x", "parent": "parent of", "child": "child of"}
    outline = explained(larger.explain("kim", "child", "man0"), labels)
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


def test_more_than_a_few_rules_are_summed_up(model: PLogicNet) -> None:
    why = model.explain("man0", "husband", "woman0")
    eight = (replace(why.rules[0], contribution=1.5),) * 8
    assert "+4.50  3 more rules" in explained(replace(why, rules=eight)).text()
    assert "+1.50  1 more rule" in explained(replace(why, rules=eight[:6])).text()


def test_every_triple_of_a_small_family_can_be_explained(larger: PLogicNet) -> None:
    """Each of a relation's pairs, new people too: no error, and a probability in [0, 1]."""
    people = ["man0", "a0", "kim", "woman5"]
    for relation in larger.fitted.graph.relations.names:
        for head, tail in itertools.product(people, repeat=2):
            why = larger.explain(head, relation, tail)
            assert 0 <= why.probability <= 1
            assert explained(why).text()
