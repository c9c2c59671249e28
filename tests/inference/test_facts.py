"""Facts added to a trained model: rules against brute force, entities without a vector, invalid input."""

import logging
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.evaluation.calibration import Calibration
from plogicnet.evaluation.candidates import Queries
from plogicnet.evaluation.orders import ProbabilityOrder
from plogicnet.evaluation.top import top_k
from plogicnet.graph import KnowledgeGraph, Side, add_facts, as_triples
from plogicnet.grounding.engine import CountingMode
from plogicnet.grounding.native.walks import Chain
from plogicnet.inference.fitted import FittedModel, Prediction
from plogicnet.mln import build_rule_model
from plogicnet.rules import RuleTable, Step, chain_rule
from plogicnet.support.errors import InputError
from reference import COUNTINGS, Grounding, Triple, as_set, graphs_and_chains, ground_by_brute_force, triples
from small import SMALL, family_rows, fitted, small_graph

NEW = [("man0", "parent", "kim"), ("woman0", "parent", "kim"), ("kim", "wife", "zoë 北")]


@pytest.fixture(scope="module")
def model() -> PLogicNet:
    return fitted({"neural.steps": 60})


@pytest.fixture(scope="module")
def larger(model: PLogicNet) -> PLogicNet:
    return model.with_facts(NEW)


# Rules, compared with all groundings by brute force.


def rule_table(chains: list[Chain], weights: list[float]) -> RuleTable:
    rules = [chain_rule([Step(f"r{m.relation}", m.forward) for m in c.steps], f"r{c.relation}") for c in chains]
    return RuleTable.of(rules, [0] * len(rules), [0] * len(rules)).with_weights(np.array(weights))


def slow_log_odds(
    grounded: list[tuple[int, Grounding]], true: set[Triple], v: Triple, weights: list[float], full: bool, mean: bool
) -> float | None:
    """Return the rules' contribution to the log-odds of a triple; None if no rule concludes it."""
    parts = [weights[rule] for rule, (hypothesis, premises) in grounded if hypothesis == v and premises <= true]
    if full:
        parts += [
            -weights[rule]
            for rule, (hypothesis, premises) in grounded
            if v in premises and premises - {v} <= true and hypothesis not in true
        ]
    return None if not parts else sum(parts) / (len(parts) if mean else 1)


@settings(max_examples=120, deadline=None)
@given(
    st.data(), graphs_and_chains(max_entities=4, max_relations=2, max_triples=6), st.sampled_from(COUNTINGS),
    st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_rules_score_as_if_all_facts_had_been_in_the_graph(
    data: st.DataObject,
    case: tuple[KnowledgeGraph, list[Chain]],
    counting: CountingMode,
    full: bool,
    mean: bool,
    sampled: bool,
) -> None:
    graph, chains = case
    n, m = len(graph.entities), len(graph.relations)
    weights = data.draw(st.lists(st.floats(-3, 3), min_size=len(chains), max_size=len(chains)))
    values = {"rules.counting": counting, "mln.blanket": "full" if full else "hypothesis"}
    values |= {"mln.aggregate": "mean" if mean else "sum", "mln.hidden_premises": "sampled" if sampled else "false"}
    table, nothing = rule_table(chains, weights), RuleTable.of([], [], [])
    config = Config().with_values({key: False if value == "false" else value for key, value in values.items()})
    old = build_rule_model(graph, config, table, nothing)
    assumed: set[Triple] = set()
    if sampled:
        hidden = old.groundings.hidden
        chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(hidden), max_size=len(hidden))), dtype=bool)
        assumed = as_set(hidden[chosen])
        old = build_rule_model(graph, config, table, nothing, chosen)

    facts = data.draw(st.lists(triples(n + 2, m), max_size=4))
    enlarged = add_facts(graph, [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in facts])
    number = {name: i for i, name in enumerate(enlarged.entities.names)}
    every = as_set(graph.train) | {(number[f"e{h}"], r, number[f"e{t}"]) for h, r, t in facts}
    assert as_set(enlarged.train) == every
    new = old.bind(enlarged)
    scores = new.scores(enlarged)
    size = len(number)
    grounded = ground_by_brute_force(every, size, chains, counting, hidden_premises=full or sampled)
    every_triple = as_triples([(h, r, t) for h in range(size) for r in range(m) for t in range(size)])
    odds, reached = scores.of_triples(every_triple)
    for v, log_odds, is_reached in zip(map(tuple, every_triple.tolist()), odds.tolist(), reached.tolist(), strict=True):
        expected = slow_log_odds(grounded, every | assumed, v, weights, full, mean)
        assert is_reached == (expected is not None)
        assert log_odds == pytest.approx(float(old.base[v[1]]) + (expected or 0.0), abs=1e-9)
        reasons = new.reasons(np.array(v))
        parts = sum(reason.value * weights[reason.rule] for reason in reasons)
        assert parts == pytest.approx(expected or 0.0, abs=1e-9)
        assert bool(reasons) == is_reached
    np.testing.assert_array_equal(new.base, old.base)


# Predictions and explanations.


def test_the_original_model_does_not_change(model: PLogicNet) -> None:
    fitted_model = model.fitted
    before = (
        len(fitted_model.graph.entities),
        fitted_model.graph.train.tolist(),
        model.predict(relation="parent", tail="a0", top=50),
    )
    other = model.with_facts(NEW)
    other.predict(relation="parent", tail="kim")
    assert (len(fitted_model.graph.entities), fitted_model.graph.train.tolist()) == before[:2]
    assert model.predict(relation="parent", tail="a0", top=50) == before[2]
    assert "kim" not in model.fitted.graph.entities
    with pytest.raises(InputError, match="kim"):
        model.explain("man0", "parent", "kim")


def test_new_entities_follow_the_known_ones_in_the_order_of_the_facts(model: PLogicNet, larger: PLogicNet) -> None:
    known = model.fitted.graph.entities.names
    assert larger.fitted.graph.entities.names == (*known, "kim", "zoë 北")
    assert larger.fitted.added == 3
    for split in ("valid", "test"):
        np.testing.assert_array_equal(larger.fitted.graph.split(split), model.fitted.graph.split(split))


def slow_probability(fitted_model: FittedModel, p: Prediction) -> float:
    """Compute the probability by the regression without a score."""
    alone = fitted_model.calibration.alone
    assert alone is not None
    z = alone.intercept + (
        (alone.p_w * p.p_w + alone.reached) if fitted_model.rules.reached.contains(_row(fitted_model, p))[0] else 0.0
    )
    return 1 / (1 + math.exp(-z))


def _row(fitted_model: FittedModel, p: Prediction) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    return as_triples([fitted_model.graph.encode(p.head, p.relation, p.tail)])


def test_triples_of_a_new_entity_are_predicted_by_rules_alone(larger: PLogicNet) -> None:
    fitted_model = larger.fitted
    predictions = [
        *larger.predict(relation="parent", tail="kim", top=1000, include_known=True),
        *larger.predict(head="kim", relation="child", top=1000),
        *larger.predict(head="kim", tail="man0", top=1000),
        *larger.predict("zoë 北", "husband", "kim"),
    ]
    assert len(predictions) > 60
    for p in predictions:
        assert p.q is None
        loop = p.head == p.tail
        assert p.probability == pytest.approx(0.0 if loop else slow_probability(fitted_model, p), rel=1e-9)
    known = [p for p in predictions if p.known]
    assert {(p.head, p.tail) for p in known} == {("man0", "kim"), ("woman0", "kim")}
    first = larger.predict(head="kim", relation="child", top=2)
    assert {p.tail for p in first} == {"man0", "woman0"}
    assert all(p.in_hidden for p in first)


def test_predictions_do_not_change_if_no_new_fact_is_a_premise(model: PLogicNet, larger: PLogicNet) -> None:
    for relation, tail in (("parent", "a3"), ("sibling", "b4")):
        new = {p.head: p for p in larger.predict(relation=relation, tail=tail, top=1000)}
        for p in model.predict(relation=relation, tail=tail, top=1000):
            other = new.pop(p.head)
            assert (other.p_w, other.known, other.in_hidden) == (p.p_w, p.known, p.in_hidden)
            assert p.q is not None
            assert (other.q, other.probability) == pytest.approx((p.q, p.probability), rel=1e-5)
        assert set(new) == {"kim", "zoë 北"}
        assert all(p.q is None for p in new.values())


def test_completion_finds_conclusions_of_new_facts(larger: PLogicNet) -> None:
    found = {(p.head, p.relation, p.tail): p for p in larger.complete(0.0)}
    for fact in (("kim", "child", "man0"), ("kim", "child", "woman0"), ("zoë 北", "husband", "kim")):
        assert found[fact].q is None
        assert found[fact].in_hidden
    assert any(p.q is not None for p in found.values())
    assert not any(p.known for p in found.values())


@pytest.mark.parametrize("alone", [True, False])
def test_top_k_sorts_by_probability(larger: PLogicNet, alone: bool) -> None:
    """Compare queries about entities with and without vectors."""
    fitted_model = larger.fitted
    old = fitted_model.calibration.to_json()
    calibration = (
        fitted_model.calibration if alone else Calibration.from_json({k: v for k, v in old.items() if k != "alone"})
    )
    n = len(fitted_model.graph.entities)
    entities = np.array([0, 5, n - 2, n - 1])
    sides: tuple[Side, Side] = ("head", "tail")
    for side in sides:
        for relation in range(len(fitted_model.graph.relations)):
            relations = np.full(len(entities), relation)
            known = fitted_model.graph.answer_index(["train"], side)
            order, queries = ProbabilityOrder(calibration, fitted_model.ties), Queries(entities, relations, side)
            top = top_k(fitted_model.outcome.neural, fitted_model.rules, order, queries, n, known)
            for entity, answers in zip(entities.tolist(), top.tolist(), strict=True):
                candidates = [(entity, relation, e) if side == "tail" else (e, relation, entity) for e in range(n)]
                kept = as_triples(
                    [c for c in candidates if not fitted_model.graph.observed.contains(as_triples([c]))[0]]
                )
                got = [candidates[e] for e in answers if e >= 0]
                assert sorted(got) == sorted(map(tuple, kept.tolist()))
                predict = replace(fitted_model, calibration=calibration).predict_batch
                found, best = predict(as_triples(got)).probability, np.sort(predict(kept).probability)[::-1]
                np.testing.assert_allclose(found, best, rtol=1e-6, atol=1e-12)


def test_facts_about_known_entities_do_not_change_q(model: PLogicNet) -> None:
    fact = next(row for row in family_rows() if row[1] == "parent" and not model.predict(*row)[0].known)
    inverse = (fact[2], "child", fact[0])
    got = model.with_facts([fact])
    assert got.predict(*fact)[0].known
    before, after = (m.predict(*inverse)[0] for m in (model, got))
    assert after.q == before.q
    assert after.p_w > before.p_w
    assert any((fact,) in entry.premises for entry in got.explain(*inverse).rules)


def test_known_and_repeated_facts_are_ignored(model: PLogicNet) -> None:
    known = [model.fitted.graph.names(t) for t in model.fitted.graph.train[:3]]
    same = model.with_facts(known)
    assert same.fitted.added == 0
    np.testing.assert_array_equal(same.fitted.graph.train, model.fitted.graph.train)
    twice = model.with_facts(NEW * 3 + known)
    assert twice.fitted.added == 3
    once = model.with_facts(NEW)
    assert twice.predict(relation="parent", tail="kim") == once.predict(relation="parent", tail="kim")


def test_facts_can_be_added_in_steps(model: PLogicNet, larger: PLogicNet) -> None:
    steps = model.with_facts(NEW[:1]).with_facts(NEW[1:])
    assert steps.fitted.added == 3
    assert steps.fitted.graph.entities == larger.fitted.graph.entities
    for query in ({"relation": "parent", "tail": "kim"}, {"head": "zoë 北", "relation": "husband"}):
        assert steps.predict(**query) == larger.predict(**query)  # type: ignore[arg-type]
    assert steps.explain("kim", "child", "man0") == larger.explain("kim", "child", "man0")


def test_models_without_a_neural_model_or_rules() -> None:
    rules = fitted({"em.neural": False}).with_facts(NEW)
    assert rules.predict(head="kim", relation="child", top=1)[0].tail in {"man0", "woman0"}
    assert rules.explain("kim", "child", "man0").without_vector == ()
    neural = fitted({"em.rules": False}).with_facts(NEW)
    assert neural.predict("kim", "child", "man0")[0].q is None
    assert neural.explain("kim", "child", "man0").reached is False


def test_a_model_with_added_facts_cannot_be_saved_evaluated_or_refitted(larger: PLogicNet, tmp_path: Path) -> None:
    for call in (lambda: larger.save(tmp_path / "run"), larger.evaluate, larger.refit):
        with pytest.raises(InputError, match="a model with added facts can only predict and explain"):
            call()
    assert not (tmp_path / "run").exists()


def test_rules_that_are_not_chains_use_new_facts() -> None:
    pytest.importorskip("duckdb")
    rule = "parent(X, Y) & parent(X, Z) & sibling(Y, Z) => child(Z, X)"
    config = Config().with_values(SMALL | {"rules.mine": False, "em.neural": False})
    got = (
        PLogicNet(config)
        .fit(small_graph(), rules=rule)
        .with_facts([("man0", "parent", "kim"), ("man0", "parent", "lee"), ("kim", "sibling", "lee")])
    )
    [first] = got.predict(head="lee", relation="child", top=1)
    assert (first.tail, first.in_hidden) == ("man0", True)
    [entry] = got.explain("lee", "child", "man0").rules
    expected = [("man0", "parent", "kim"), ("man0", "parent", "lee"), ("kim", "sibling", "lee")]
    assert [sorted(one) for one in entry.premises] == [sorted(expected)]


# Input.


def test_self_loops_that_a_constraint_excludes_are_added_with_a_warning(
    model: PLogicNet, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        got = model.with_facts([("man0", "parent", "man0"), ("kim", "wife", "man1")])
    assert "these facts were added although a constraint excludes them: parent(man0, man0)" in caplog.text
    assert got.explain("man0", "parent", "man0").forbidden is False
    assert got.predict("man0", "parent", "man0")[0].known


def test_a_warning_names_the_first_new_entities(model: PLogicNet, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        model.with_facts([(f"new{i}", "parent", "a0") for i in range(1200)])
    assert (
        "facts: the neural model cannot score these entities, so only rules predict their facts: new0, new1, new2 and"
        " 1,197 more" in caplog.text
    )


@pytest.mark.parametrize("name", ["facts.tsv", "facts.csv", "facts.parquet", "frame"])
def test_facts_can_be_files_or_tables(model: PLogicNet, larger: PLogicNet, tmp_path: Path, name: str) -> None:
    table = pa.table(dict(zip(("head", "relation", "tail"), zip(*NEW, strict=True), strict=True)))
    if name == "frame":
        got = model.with_facts(table)
    else:
        file = tmp_path / name
        if name.endswith("parquet"):
            pq.write_table(table, file)
        else:
            separator = "," if name.endswith("csv") else "\t"
            file.write_text("".join(separator.join(row) + "\n" for row in NEW), encoding="utf-8")
        got = model.with_facts(str(file))
    assert got.fitted.graph.entities == larger.fitted.graph.entities
    np.testing.assert_array_equal(got.fitted.graph.train, larger.fitted.graph.train)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("facts.tsv", "kim\tparent\ta0\n\nkim\tparrent\ta1\n", "facts.tsv, line 3: unknown relation 'parrent'. Did"),
        ("facts.csv", 'head,relation,tail\n"kim\nx",parent,b\n,,\n', "facts.csv, line 4: the head is empty"),
        (
            "facts.csv",
            'head,relation,tail\n"kim\nx",parent,b\nkim,wive,b\n',
            "facts.csv, line 4: unknown relation 'wive'",
        ),
        ("facts.tsv", "kim\tparent\n", "facts.tsv, line 1: expected three columns"),
        ("facts.tsv", "kim\tparent\t\n", "facts.tsv, line 1: the tail is empty"),
        ("facts.tsv", "kim\towns\tdog\n", "relations must be in the training graph"),
    ],
)
def test_invalid_facts_are_rejected_with_their_location(
    model: PLogicNet, tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as error:
        model.with_facts(tmp_path / name)
    assert message in str(error.value)


def test_invalid_facts_in_rows_and_in_parquet(model: PLogicNet, tmp_path: Path) -> None:
    rows = [("a0", "sibling", "b0"), ("a0", "siblings", "b0")]
    with pytest.raises(InputError, match=r"facts, row 2: unknown relation 'siblings'\. Did you mean 'sibling'"):
        model.with_facts(rows)
    with pytest.raises(InputError, match="rows of three names"):
        model.with_facts([("a0", "sibling")])
    table = pa.table(dict(zip(("head", "relation", "tail"), zip(*rows, strict=True), strict=True)))
    pq.write_table(table, tmp_path / "facts.parquet")
    with pytest.raises(InputError, match=r"facts\.parquet, row 2: unknown relation"):
        model.with_facts(tmp_path / "facts.parquet")
    with pytest.raises(InputError, match="no such file"):
        model.with_facts(tmp_path / "nowhere.tsv")


def test_an_empty_file_changes_nothing_and_gives_a_warning(
    model: PLogicNet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "empty.tsv").write_text("")
    with caplog.at_level(logging.WARNING):
        same = model.with_facts(tmp_path / "empty.tsv")
    assert "empty.tsv: contains no facts" in caplog.text
    assert same.fitted.added == 0
    assert same.predict(relation="parent", tail="a0") == model.predict(relation="parent", tail="a0")
    assert model.with_facts([]).fitted.graph.entities == small_graph().entities
