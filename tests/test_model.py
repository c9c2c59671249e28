"""PLogicNet: predictions, completion and explanations against brute force over the judgements."""

import contextlib
import itertools
import logging
import math
from collections.abc import Callable

import numpy as np
import pytest

from plogicnet import PLogicNet
from plogicnet.graph import IntArray, KnowledgeGraph, as_triples
from plogicnet.model import Prediction
from plogicnet.support.errors import InputError
from small import family_rows, fitted

Triple = tuple[int, int, int]


@pytest.fixture(scope="module")
def model() -> PLogicNet:
    return fitted({"neural.steps": 60})


def triple_of(model: PLogicNet, p: Prediction) -> Triple:
    h, r, t = model.fitted.graph.numbers(p.head, p.relation, p.tail).tolist()
    return h, r, t


def observed(model: PLogicNet) -> set[Triple]:
    return {(h, r, t) for h, r, t in model.fitted.graph.train.tolist()}


def best_of(model: PLogicNet, candidates: list[Triple]) -> list[Prediction]:
    """Judges one by one, then sorts; equally probable ones stay in their order."""
    return sorted((model.judge(as_triples([c]))[0] for c in candidates), key=lambda p: -p.probability)


def assert_same(model: PLogicNet, got: list[Prediction], expected: list[Prediction]) -> None:
    assert [triple_of(model, p) for p in got] == [triple_of(model, p) for p in expected]
    for a, b in zip(got, expected, strict=True):
        assert a.probability == pytest.approx(b.probability, rel=1e-5, abs=1e-12)
        assert (a.known, a.in_hidden) == (b.known, b.in_hidden)


@pytest.mark.parametrize("include_known", [False, True])
@pytest.mark.parametrize(
    ("head", "relation", "tail"),
    [
        (None, "parent", "a0"),
        (None, "husband", "woman3"),
        ("a0", "sibling", None),
        ("man2", "parent", None),
        ("man1", None, "woman1"),
        ("a5", None, "b5"),
    ],
)
@pytest.mark.parametrize("top", [1, 10, 1000])
def test_predict_is_the_sorted_judgement_of_all_candidates(
    model: PLogicNet, head: str | None, relation: str | None, tail: str | None, top: int, include_known: bool
) -> None:
    graph = model.fitted.graph
    heads = range(len(graph.entities)) if head is None else [graph.entities.id(head)]
    relations = range(len(graph.relations)) if relation is None else [graph.relations.id(relation)]
    tails = range(len(graph.entities)) if tail is None else [graph.entities.id(tail)]
    known = observed(model)
    candidates = [c for c in itertools.product(heads, relations, tails) if include_known or c not in known]
    got = model.predict(head, relation, tail, top=top, include_known=include_known)
    assert_same(model, got, best_of(model, candidates)[:top])
    if not include_known:
        assert not any(p.known for p in got)


def test_predict_of_a_whole_triple_is_its_judgement(model: PLogicNet) -> None:
    graph = model.fitted.graph
    for triple in (graph.train[0], graph.test[0]):
        names = graph.names(triple)
        assert model.predict(*names) == model.judge(triple[None, :])


def test_predict_needs_one_open_part_at_most_and_known_names(model: PLogicNet) -> None:
    for head, relation in (("man1", None), (None, "parent"), (None, None)):
        with pytest.raises(InputError, match="open"):
            model.predict(head=head, relation=relation)
    with pytest.raises(InputError, match="man1"):
        model.predict(head="mann1", relation="parent")
    with pytest.raises(InputError, match="parent"):
        model.predict(head="man1", relation="parents")


def test_judge_is_the_calibrated_logistic_of_score_p_w_and_reach(model: PLogicNet) -> None:
    f = model.fitted
    n, m = len(f.graph.entities), len(f.graph.relations)
    rng = np.random.default_rng(0)
    triples = np.column_stack([rng.integers(k, size=200) for k in (n, m, n)])
    triples = np.concatenate([triples, f.graph.train[:50], f.outcome.rule_model.groundings.hidden[:50]])
    assert f.outcome.neural is not None
    scores = f.outcome.neural.score(triples).double().tolist()
    odds = dict(zip(map(tuple, f.rules.reached.triples.tolist()), f.rules.log_odds.tolist(), strict=True))
    known, c = observed(model), f.calibration
    for p, (h, r, t), score in zip(model.judge(triples), triples.tolist(), scores, strict=True):
        base = float(f.rules.base[r])
        own = odds.get((h, r, t), base)
        z = c.intercept + c.score * score + (c.p_w / (1 + math.exp(-own)) + c.reached) * ((h, r, t) in odds)
        loop = h == t and (h, r, t) not in known and not ((h, r, t) in odds and own >= 0)
        assert p.probability == pytest.approx(0.0 if loop else 1 / (1 + math.exp(-z)), rel=1e-9)
        assert p.q == pytest.approx(1 / (1 + math.exp(-score)), rel=1e-9)
        assert p.p_w == pytest.approx(1 / (1 + math.exp(-own)), rel=1e-9)
        assert p.known == ((h, r, t) in known)
        assert p.in_hidden == ((h, r, t) in odds and (h, r, t) not in known)
        assert (p.head, p.relation, p.tail) == f.graph.names(as_triples([(h, r, t)])[0])


def test_judge_of_nothing_is_nothing(model: PLogicNet) -> None:
    assert model.judge(as_triples([])) == []


def completion_candidates(model: PLogicNet) -> list[Triple]:
    """What rules conclude, and for each relation the pairs of entities seen at its two ends; none known."""
    known = observed(model)
    found = {(h, r, t) for h, r, t in model.fitted.outcome.rule_model.groundings.hidden.tolist()}
    for relation in range(len(model.fitted.graph.relations)):
        heads = {h for h, r, _ in known if r == relation}
        tails = {t for _, r, t in known if r == relation}
        found |= set(itertools.product(heads, [relation], tails))
    return sorted(found - known, key=lambda t: (t[1], t[0], t[2]))


@pytest.mark.parametrize("at_once", [7, 262_144])
@pytest.mark.parametrize(("least", "top"), [(0.0, None), (0.05, None), (0.3, None), (0.05, 5), (1.0, None)])
def test_complete_is_brute_force_over_its_candidates(
    model: PLogicNet, least: float, top: int | None, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plogicnet.inference.prediction.AT_ONCE", at_once)
    candidates = completion_candidates(model)
    judged = zip(candidates, model.judge(as_triples(candidates)), strict=True)
    good = [p for _, p in sorted(judged, key=lambda x: -x[1].probability) if p.probability >= least]
    if 0 < least < 1:
        assert 0 < len(good) < len(candidates)
    assert_same(model, model.complete(least, top), good[:top])


def random_triples(model: PLogicNet) -> IntArray:
    """100 triples: observed, hidden, and any."""
    f = model.fitted
    rng = np.random.default_rng(1)
    n, m = len(f.graph.entities), len(f.graph.relations)
    hidden = f.outcome.rule_model.groundings.hidden
    return np.concatenate(
        [
            f.graph.train[rng.choice(len(f.graph.train), 35, replace=False)],
            hidden[rng.choice(len(hidden), min(30, len(hidden)), replace=False)],
            np.column_stack([rng.integers(k, size=45) for k in (n, m, n)]),
        ]
    )


def rules_of(explanation: dict[str, object]) -> list[dict[str, object]]:
    rules = explanation["rules"]
    assert isinstance(rules, list)
    return rules


def number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)


def premises_of(entry: dict[str, object]) -> list[list[list[str]]]:
    premises = entry["premises"]
    assert isinstance(premises, list)
    return premises


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"mln.aggregate": "mean"},
        {"mln.unit_clauses": False},
        {"mln.hidden_premises": "sampled"},
        {"mln.blanket": "full"},
        {"rules.counting": "paths"},
    ],
    ids=str,
)
def test_contributions_and_base_add_up_to_the_log_odds(values: dict[str, object]) -> None:
    model = fitted({**values, "neural.steps": 10})
    f = model.fitted
    train = {f.graph.names(t) for t in f.graph.train}
    true = f.outcome.rule_model.groundings.triples.triples[f.outcome.rule_model.truth]
    held_true = {f.graph.names(t) for t in true}
    reached = 0
    for triple in random_triples(model):
        names = f.graph.names(triple)
        got = model.explain(*names).to_json()
        contributions = [number(entry["contribution"]) for entry in rules_of(got)]
        assert sum(contributions) + number(got["base"]) == pytest.approx(number(got["log_odds"]), abs=1e-9)
        assert number(got["p_w"]) == pytest.approx(1 / (1 + math.exp(-number(got["log_odds"]))), rel=1e-9)
        assert got["triple"] == list(names)
        assert contributions == sorted(contributions, key=lambda c: -abs(c))
        reached += bool(contributions)
        for entry in rules_of(got):
            premises = premises_of(entry)
            assert entry["groundings"] == len(premises)
            facts = [(h, r, t) for one in premises for h, r, t in one]
            assert set(facts) <= (held_true if "mln.hidden_premises" in values else train)
            if "rules.counting" not in values:
                assert all(list(names) not in one for one in premises)
            if not values:
                assert number(entry["contribution"]) == pytest.approx(
                    number(entry["weight"]) * len(premises), abs=1e-12
                )
    assert 20 < reached < 110


def test_explain_names_every_grounding(model: PLogicNet) -> None:
    """The groundings of each triple, found by walking every rule over the training triples by hand."""
    f = model.fitted
    train = {f.graph.names(t) for t in f.graph.train}
    people = f.graph.entities.names
    for triple in random_triples(model)[30:50]:
        head, relation, tail = f.graph.names(triple)
        expected: dict[str, list[list[tuple[str, str, str]]]] = {}
        for rule in model.rules.rules:
            if rule.pattern == "irreflexive" or rule.head.relation != relation:
                continue
            assert rule.chain is not None
            for between in itertools.product(people, repeat=len(rule.chain) - 1):
                path = [head, *between, tail]
                premises = [
                    (a, step.relation, b) if step.forward else (b, step.relation, a)
                    for (a, b), step in zip(itertools.pairwise(path), rule.chain, strict=True)
                ]
                if set(premises) <= train and (head, relation, tail) not in premises:
                    expected.setdefault(str(rule), []).append(premises)
        got = {
            str(entry["rule"]): sorted(sorted((h, r, t) for h, r, t in one) for one in premises_of(entry))
            for entry in rules_of(model.explain(head, relation, tail).to_json())
        }
        assert got == {rule: sorted(sorted(set(one)) for one in found) for rule, found in expected.items()}


def test_neighbours_are_known_facts_of_similar_entities(model: PLogicNet) -> None:
    f = model.fitted
    train = {f.graph.names(t) for t in f.graph.train}
    assert f.outcome.neural is not None
    vectors = f.outcome.neural.tables()["entities"].values.astype(np.float64)
    for triple in random_triples(model)[:40]:
        names = f.graph.names(triple)
        for entry in model.explain(*names).to_json()["neighbours"]:
            h, r, t = entry["fact"]
            assert (h, r, t) in train
            assert (h, r, t) != names
            assert r == names[1]
            assert (h == entry["entity"] and t == names[2]) or (t == entry["entity"] and h == names[0])
            a, b = (vectors[f.graph.entities.id(entry[k])] for k in ("entity", "similar_to"))
            cosine = float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
            assert entry["similarity"] == pytest.approx(cosine, abs=1e-5)


def test_a_forbidden_triple_has_probability_zero(model: PLogicNet) -> None:
    got = model.explain("man0", "parent", "man0")
    assert got.forbidden is True
    assert got.probability == 0.0
    assert model.predict("man0", "parent", "man0")[0].probability == 0.0
    assert model.predict(head="man0", relation="parent", top=1000)[-1].probability == 0.0
    assert model.explain("man0", "parent", "a0").forbidden is False


def test_an_observed_loop_is_not_forbidden_and_without_the_constraint_none_is() -> None:
    rows = family_rows()
    graph = KnowledgeGraph.from_names([*rows[:86], ("man0", "parent", "man0")], rows[86:102], rows[102:])
    model = fitted({"rules.min_precision.irreflexive": 0.9}, graph)
    assert model.explain("man0", "parent", "man0").forbidden is False
    assert model.predict("man0", "parent", "man0")[0].probability > 0
    assert model.explain("man1", "parent", "man1").forbidden is True
    free = fitted({"rules.irreflexive": False}, graph)
    assert free.explain("man1", "parent", "man1").forbidden is False
    assert free.predict("man1", "parent", "man1")[0].probability > 0


def test_a_model_that_is_not_fitted_says_so() -> None:
    model = PLogicNet()
    calls: list[Callable[[], object]] = [
        lambda: model.predict(head="a", relation="r"),
        lambda: model.judge(as_triples([(0, 0, 0)])),
        lambda: model.complete(0.5),
        lambda: model.explain("a", "r", "b"),
        lambda: model.evaluate(),
        lambda: model.save("nowhere"),
        lambda: model.rules,
        lambda: model.history,
    ]
    for call in calls:
        with pytest.raises(InputError, match="not trained"):
            call()


def test_evaluate_has_every_system_and_split(model: PLogicNet) -> None:
    for split in ("valid", "test"):
        got = model.evaluate(split)
        assert set(got) == {"split", "lambda", "neural", "rules", "plogicnet", "plogicnet*", "calibration"}
        assert model.metrics[split] == got
    with pytest.raises(InputError, match="train"):
        model.evaluate("train")
    with pytest.raises(InputError, match="split"):
        model.evaluate("tests")


def test_with_an_auto_lambda_the_star_is_no_worse_on_validation(model: PLogicNet) -> None:
    valid = model.evaluate("valid")
    star, plain = valid["plogicnet*"], valid["plogicnet"]
    assert isinstance(star, dict)
    assert isinstance(plain, dict)
    assert star["mrr"] >= plain["mrr"]


def test_the_neural_model_alone() -> None:
    model = fitted({"em.rules": False})
    assert len(model.rules) == 0
    assert model.fitted.outcome.lambda_ == 0.0
    got = model.evaluate()
    assert got["neural"] == got["plogicnet"] == got["plogicnet*"]
    assert model.explain("man0", "parent", "a0").rules == ()
    assert len(model.predict(head="man0", relation="parent", top=3)) == 3


def test_the_rules_alone() -> None:
    model = fitted({"em.neural": False})
    got = model.evaluate()
    assert set(got) == {"split", "lambda", "rules", "plogicnet*", "calibration"}
    assert got["rules"] == got["plogicnet*"]
    for p in model.predict(head="man0", relation="parent", top=5):
        assert p.q is None
    assert model.explain("man0", "parent", "a0").neighbours == ()
    assert len(model.complete(0.01)) > 0


def test_a_graph_without_any_rule() -> None:
    rows = [(f"a{i}", f"r{i}", f"b{i}") for i in range(10)]
    graph = KnowledgeGraph.from_names(rows[:7], rows[7:9], rows[9:])
    model = fitted({}, graph)
    assert len(model.rules.take(~model.rules.constraints)) == 0
    assert len(model.predict(head="a0", relation="r0", top=3)) == 3
    assert model.complete(0.0) == []
    assert model.explain("a0", "r1", "b0").rules == ()


def test_a_graph_without_valid_split_holds_some_out_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    rows = family_rows()
    with caplog.at_level(logging.WARNING):
        model = fitted({}, KnowledgeGraph.from_names(rows[:100], [], rows[100:]))
    graph = model.fitted.graph
    assert graph.held_out == len(graph.valid) == 5
    assert len(graph.train) == 95
    assert "held out" in caplog.text
    held = [p for p in model.judge(graph.valid) if p.known]
    assert held == []


def test_a_graph_with_train_alone() -> None:
    model = fitted({}, KnowledgeGraph.from_names(family_rows()))
    assert set(model.metrics) == {"lambda", "calibration", "candidates", "iteration", "valid"}
    with pytest.raises(InputError, match="test"):
        model.evaluate("test")


def test_two_triples_are_enough_and_one_is_told_so_or_fitted() -> None:
    rows = [("a", "r", "b"), ("b", "r", "c")]
    model = fitted({}, KnowledgeGraph.from_names(rows))
    assert len(model.fitted.graph.train) == len(model.fitted.graph.valid) == 1
    with contextlib.suppress(InputError):
        fitted({}, KnowledgeGraph.from_names(rows[:1]))


def test_probabilities_are_calibrated_on_validation(model: PLogicNet) -> None:
    """Over the candidates of the validation queries that no constraint rules out, probabilities add up to the right."""
    f = model.fitted
    known = {(h, r, t) for s in ("train", "valid") for h, r, t in f.graph.split(s).tolist()}
    candidates: list[Triple] = []
    right = 0
    for h, r, t in f.graph.valid.tolist():
        right += 2
        for e in range(len(f.graph.entities)):
            candidates += [c for c in ((e, r, t), (h, r, e)) if c == (h, r, t) or c not in known]
    candidates = [c for c in candidates if not f.rules.forbidden(as_triples([c]))[0]]
    columns = f.calibration.probability(np.array([columns_row(model, c) for c in candidates]))
    assert float(columns.sum()) == pytest.approx(right, rel=0.02)


def columns_row(model: PLogicNet, triple: Triple) -> list[float]:
    f = model.fitted
    assert f.outcome.neural is not None
    odds, reached = f.rules.of_triples(as_triples([triple]))
    score = float(f.outcome.neural.score(as_triples([triple]))[0])
    return [score, float(reached[0]) / (1 + math.exp(-float(odds[0]))), float(reached[0])]


def test_prediction_rows_are_plain_dictionaries(model: PLogicNet) -> None:
    rows = [p.to_json() for p in model.predict(head="man0", relation="parent", top=2)]
    assert [list(row) for row in rows] == [
        ["head", "relation", "tail", "probability", "q", "p_w", "known", "in_hidden", "held_out"]
    ] * 2
