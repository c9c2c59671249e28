"""Examples of rules: their premises are facts, new and known hypotheses alternate, and held-out splits are named."""

import numpy as np
import pytest

from plogicnet import PLogicNet
from plogicnet.graph import KnowledgeGraph
from plogicnet.inference.held_out import HELD_OUT, HeldOut
from small import SMALL, fitted, small_graph


@pytest.mark.parametrize("values", [{}, {"mln.blanket": "full"}], ids=str)
def test_examples_have_known_premises_and_both_kinds_of_hypotheses(values: dict[str, object]) -> None:
    model = fitted(values)
    fitted_model = model.fitted
    graph, groundings = fitted_model.graph, fitted_model.outcome.rule_model.groundings
    facts, test, valid = ({graph.names(t) for t in split} for split in (graph.train, graph.test, graph.valid))
    for number, rule in enumerate(fitted_model.outcome.rule_model.rules.rules):
        hypotheses = groundings.hypothesis[groundings.rule == number]
        for max_examples in (1, 2, 5, 1000):
            examples = fitted_model.examples(rule, max_examples)
            assert len(examples) == min(max_examples, len(hypotheses)) or values
            assert len({(e.hypothesis, e.premises) for e in examples}) == len(examples)
            for e in examples:
                assert set(e.premises) <= facts
                assert e.known == (e.hypothesis in facts)
                assert e.held_out == ("test" if e.hypothesis in test else "valid" if e.hypothesis in valid else None)
                assert [p[1] for p in e.premises] == [atom.relation for atom in rule.body][: len(e.premises)]
            if max_examples > 1 and not values:
                assert {e.known for e in examples} == set(groundings.observed[hypotheses].tolist())
    assert all(fitted_model.examples(rule, 3) == [] for rule in model.rules.rules if rule.negated)


def test_examples_of_a_rule_that_is_not_a_chain() -> None:
    pytest.importorskip("duckdb")
    from plogicnet import Config

    rules = "parent(X, Y) & parent(X, Z) & sibling(Y, Z) => sibling(Z, Y)"
    settings = Config().with_values(SMALL | {"rules.mine": False, "em.neural": False, "em.iterations": 1})
    fitted_model = PLogicNet(settings).fit(small_graph(), rules=rules).fitted
    [rule] = fitted_model.outcome.rule_model.rules.rules
    examples = fitted_model.examples(rule, 4)
    assert [len(e.premises) for e in examples] == [3] * 4
    assert list(examples[0].to_json()) == ["hypothesis", "premises", "known", "held_out"]


def test_a_training_triple_is_not_held_out() -> None:
    rows = [("a", "r", "b"), ("b", "r", "c"), ("c", "r", "a")]
    graph = KnowledgeGraph.from_names(rows[:1], rows[:2], rows)
    held_out = HeldOut.of(graph)
    assert [HELD_OUT[code] for code in held_out.codes(graph.test)] == [None, "valid", "test"]
    np.testing.assert_array_equal(held_out.codes(graph.test), [0, 1, 2])
