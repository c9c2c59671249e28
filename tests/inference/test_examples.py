"""Examples of rules: true groundings, new and known in turn, and the split that holds a hypothesis."""

import numpy as np
import pytest

from plogicnet import PLogicNet
from plogicnet.graph import KnowledgeGraph
from plogicnet.inference.held_out import HELD_OUT, HeldOut
from small import SMALL, fitted, small_graph


@pytest.mark.parametrize("values", [{}, {"mln.blanket": "full"}], ids=str)
def test_examples_follow_from_facts_and_are_of_both_kinds(values: dict[str, object]) -> None:
    model = fitted(values)
    f = model.fitted
    graph, groundings = f.graph, f.outcome.rule_model.groundings
    facts, test, valid = ({graph.names(t) for t in split} for split in (graph.train, graph.test, graph.valid))
    for number, rule in enumerate(f.outcome.rule_model.rules.rules):
        own = groundings.hypothesis[groundings.rule == number]
        for most in (1, 2, 5, 1000):
            examples = f.examples(rule, most)
            assert len(examples) == min(most, len(own)) or values
            assert len({(e.hypothesis, e.premises) for e in examples}) == len(examples)
            for e in examples:
                assert set(e.premises) <= facts
                assert e.known == (e.hypothesis in facts)
                assert e.held_out == ("test" if e.hypothesis in test else "valid" if e.hypothesis in valid else None)
                assert [p[1] for p in e.premises] == [atom.relation for atom in rule.body][: len(e.premises)]
            if most > 1 and not values:
                assert {e.known for e in examples} == set(groundings.observed[own].tolist())
    assert all(f.examples(rule, 3) == [] for rule in model.rules.rules if rule.negated)


def test_examples_of_a_rule_that_is_no_chain() -> None:
    pytest.importorskip("duckdb")
    from plogicnet import Config

    rules = "parent(X, Y) & parent(X, Z) & sibling(Y, Z) => sibling(Z, Y)"
    settings = Config().with_values(SMALL | {"rules.mine": False, "em.neural": False, "em.iterations": 1})
    f = PLogicNet(settings).fit(small_graph(), rules=rules).fitted
    [rule] = f.outcome.rule_model.rules.rules
    found = f.examples(rule, 4)
    assert [len(e.premises) for e in found] == [3] * 4
    assert list(found[0].to_json()) == ["hypothesis", "premises", "known", "held_out"]


def test_a_fact_of_train_is_not_held_out() -> None:
    rows = [("a", "r", "b"), ("b", "r", "c"), ("c", "r", "a")]
    graph = KnowledgeGraph.from_names(rows[:1], rows[:2], rows)
    held_out = HeldOut.of(graph)
    assert [HELD_OUT[number] for number in held_out.numbers(graph.test)] == [None, "valid", "test"]
    np.testing.assert_array_equal(held_out.numbers(graph.test), [0, 1, 2])
