"""PLogicNet: predictions, completion and explanations compared with brute force."""

import contextlib
import itertools
import logging
import math
from collections.abc import Callable

import numpy as np
import pytest

from plogicnet import PLogicNet
from plogicnet.graph import SPLITS, IntArray, KnowledgeGraph, as_triples
from plogicnet.model import Prediction
from plogicnet.support.errors import InputError
from small import family_rows, fitted

Triple = tuple[int, int, int]


@pytest.fixture(scope="module")
def model() -> PLogicNet:
    return fitted({"neural.steps": 60})


def triple_of(model: PLogicNet, p: Prediction) -> Triple:
    h, r, t = model.fitted.graph.encode(p.head, p.relation, p.tail).tolist()
    return h, r, t


def training_triples(model: PLogicNet) -> set[Triple]:
    return {(h, r, t) for h, r, t in model.fitted.graph.train.tolist()}


def predict_one_by_one(model: PLogicNet, candidates: list[Triple]) -> list[Prediction]:
    """Predict candidates one by one and sort them; ties keep their order."""
    return sorted((model.predict_triples(as_triples([c]))[0] for c in candidates), key=lambda p: -p.probability)


def assert_same(model: PLogicNet, result: list[Prediction], expected: list[Prediction]) -> None:
    assert [triple_of(model, p) for p in result] == [triple_of(model, p) for p in expected]
    for a, b in zip(result, expected, strict=True):
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
def test_predict_sorts_the_predictions_of_all_candidates(
    model: PLogicNet, head: str | None, relation: str | None, tail: str | None, top: int, include_known: bool
) -> None:
    graph = model.fitted.graph
    heads = range(len(graph.entities)) if head is None else [graph.entities.id(head)]
    relations = range(len(graph.relations)) if relation is None else [graph.relations.id(relation)]
    tails = range(len(graph.entities)) if tail is None else [graph.entities.id(tail)]
    known = training_triples(model)
    candidates = [c for c in itertools.product(heads, relations, tails) if include_known or c not in known]
    result = model.predict(head, relation, tail, top=top, include_known=include_known)
    assert_same(model, result, predict_one_by_one(model, candidates)[:top])
    if not include_known:
        assert not any(p.known for p in result)


def test_predict_of_a_whole_triple_is_its_prediction(model: PLogicNet) -> None:
    graph = model.fitted.graph
    for triple in (graph.train[0], graph.test[0]):
        names = graph.names(triple)
        assert model.predict(*names) == model.predict_triples(triple[None, :])


def test_predict_rejects_two_missing_parts_and_unknown_names(model: PLogicNet) -> None:
    for head, relation in (("man1", None), (None, "parent"), (None, None)):
        with pytest.raises(InputError, match="at most one of head, relation and tail can be missing"):
            model.predict(head=head, relation=relation)
    with pytest.raises(InputError, match="man1"):
        model.predict(head="mann1", relation="parent")
    with pytest.raises(InputError, match="parent"):
        model.predict(head="man1", relation="parents")


def test_the_probability_is_the_calibrated_regression(model: PLogicNet) -> None:
    fitted_model = model.fitted
    n, m = len(fitted_model.graph.entities), len(fitted_model.graph.relations)
    rng = np.random.default_rng(0)
    triples = np.column_stack([rng.integers(k, size=200) for k in (n, m, n)])
    triples = np.concatenate(
        [triples, fitted_model.graph.train[:50], fitted_model.outcome.rule_model.groundings.hidden[:50]]
    )
    assert fitted_model.outcome.neural is not None
    scores = fitted_model.outcome.neural.score(triples).double().tolist()
    odds = dict(
        zip(map(tuple, fitted_model.rules.reached.triples.tolist()), fitted_model.rules.log_odds.tolist(), strict=True)
    )
    known, c = training_triples(model), fitted_model.calibration
    for p, (h, r, t), score in zip(model.predict_triples(triples), triples.tolist(), scores, strict=True):
        base = float(fitted_model.rules.base[r])
        log_odds = odds.get((h, r, t), base)
        z = c.intercept + c.score * score + (c.p_w / (1 + math.exp(-log_odds)) + c.reached) * ((h, r, t) in odds)
        loop = h == t and (h, r, t) not in known and not ((h, r, t) in odds and log_odds >= 0)
        assert p.probability == pytest.approx(0.0 if loop else 1 / (1 + math.exp(-z)), rel=1e-9)
        assert p.q == pytest.approx(1 / (1 + math.exp(-score)), rel=1e-9)
        assert p.p_w == pytest.approx(1 / (1 + math.exp(-log_odds)), rel=1e-9)
        assert p.known == ((h, r, t) in known)
        assert p.in_hidden == ((h, r, t) in odds and (h, r, t) not in known)
        assert (p.head, p.relation, p.tail) == fitted_model.graph.names(as_triples([(h, r, t)])[0])


def test_predictions_of_no_triples_are_empty(model: PLogicNet) -> None:
    assert model.predict_triples(as_triples([])) == []


@pytest.mark.parametrize("chunk", [7, 262_144])
@pytest.mark.parametrize(("min_probability", "top"), [(0.05, None), (0.3, None), (0.05, 5), (1.0, None)])
def test_complete_equals_brute_force(
    model: PLogicNet, min_probability: float, top: int | None, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plogicnet.inference.prediction.CHUNK_CANDIDATES", chunk)
    n, m = len(model.fitted.graph.entities), len(model.fitted.graph.relations)
    known = {tuple(t) for split in SPLITS for t in model.fitted.graph.split(split).tolist()}
    every = ((h, r, t) for r, h, t in itertools.product(range(m), range(n), range(n)))
    candidates = [triple for triple in every if triple not in known]
    predicted = zip(candidates, model.predict_triples(as_triples(candidates)), strict=True)
    expected = [p for _, p in sorted(predicted, key=lambda x: -x[1].probability) if p.probability >= min_probability]
    if 0 < min_probability < 1:
        assert 0 < len(expected) < len(candidates)
    assert_same(model, model.complete(min_probability, top, all_pairs=True), expected[:top])


def random_triples(model: PLogicNet) -> IntArray:
    """Return observed, hidden and random triples."""
    fitted_model = model.fitted
    rng = np.random.default_rng(1)
    n, m = len(fitted_model.graph.entities), len(fitted_model.graph.relations)
    hidden = fitted_model.outcome.rule_model.groundings.hidden
    return np.concatenate(
        [
            fitted_model.graph.train[rng.choice(len(fitted_model.graph.train), 35, replace=False)],
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
    fitted_model = model.fitted
    train = {fitted_model.graph.names(t) for t in fitted_model.graph.train}
    true = fitted_model.outcome.rule_model.groundings.triples.triples[fitted_model.outcome.rule_model.truth]
    true_names = {fitted_model.graph.names(t) for t in true}
    reached = 0
    for triple in random_triples(model):
        names = fitted_model.graph.names(triple)
        result = model.explain(*names).to_json()
        contributions = [number(entry["contribution"]) for entry in rules_of(result)]
        assert sum(contributions) + number(result["base"]) == pytest.approx(number(result["log_odds"]), abs=1e-9)
        assert number(result["p_w"]) == pytest.approx(1 / (1 + math.exp(-number(result["log_odds"]))), rel=1e-9)
        assert result["triple"] == list(names)
        assert contributions == sorted(contributions, key=lambda c: -abs(c))
        reached += bool(contributions)
        for entry in rules_of(result):
            premises = premises_of(entry)
            assert entry["groundings"] == len(premises)
            facts = [(h, r, t) for one in premises for h, r, t in one]
            assert set(facts) <= (true_names if "mln.hidden_premises" in values else train)
            if "rules.counting" not in values:
                assert all(list(names) not in one for one in premises)
            if not values:
                assert number(entry["contribution"]) == pytest.approx(
                    number(entry["weight"]) * len(premises), abs=1e-12
                )
    assert 20 < reached < 110


def test_explain_lists_every_grounding(model: PLogicNet) -> None:
    """Compare with groundings found by brute force over the training triples."""
    fitted_model = model.fitted
    train = {fitted_model.graph.names(t) for t in fitted_model.graph.train}
    people = fitted_model.graph.entities.names
    for triple in random_triples(model)[30:50]:
        head, relation, tail = fitted_model.graph.names(triple)
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
        result = {
            str(entry["rule"]): sorted(sorted((h, r, t) for h, r, t in one) for one in premises_of(entry))
            for entry in rules_of(model.explain(head, relation, tail).to_json())
        }
        assert result == {rule: sorted(sorted(set(one)) for one in groundings) for rule, groundings in expected.items()}


def test_neighbours_have_known_facts_and_cosine_similarities(model: PLogicNet) -> None:
    fitted_model = model.fitted
    train = {fitted_model.graph.names(t) for t in fitted_model.graph.train}
    assert fitted_model.outcome.neural is not None
    vectors = fitted_model.outcome.neural.tables()["entities"].values.astype(np.float64)
    for triple in random_triples(model)[:40]:
        names = fitted_model.graph.names(triple)
        for entry in model.explain(*names).to_json()["neighbours"]:
            h, r, t = entry["fact"]
            assert (h, r, t) in train
            assert (h, r, t) != names
            assert r == names[1]
            assert (h == entry["entity"] and t == names[2]) or (t == entry["entity"] and h == names[0])
            a, b = (vectors[fitted_model.graph.entities.id(entry[k])] for k in ("entity", "similar_to"))
            cosine = float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
            assert entry["similarity"] == pytest.approx(cosine, abs=1e-5)


def test_a_forbidden_triple_has_probability_zero(model: PLogicNet) -> None:
    result = model.explain("man0", "parent", "man0")
    assert result.forbidden is True
    assert result.probability == 0.0
    assert model.predict("man0", "parent", "man0")[0].probability == 0.0
    assert model.predict(head="man0", relation="parent", top=1000)[-1].probability == 0.0
    assert model.explain("man0", "parent", "a0").forbidden is False


def test_observed_self_loops_are_allowed_and_all_are_without_the_constraint() -> None:
    rows = family_rows()
    graph = KnowledgeGraph.from_names([*rows[:86], ("man0", "parent", "man0")], rows[86:102], rows[102:])
    model = fitted({"rules.min_precision.irreflexive": 0.9}, graph)
    assert model.explain("man0", "parent", "man0").forbidden is False
    assert model.predict("man0", "parent", "man0")[0].probability > 0
    assert model.explain("man1", "parent", "man1").forbidden is True
    free = fitted({"rules.irreflexive": False}, graph)
    assert free.explain("man1", "parent", "man1").forbidden is False
    assert free.predict("man1", "parent", "man1")[0].probability > 0


def test_an_untrained_model_raises_input_error() -> None:
    model = PLogicNet()
    calls: list[Callable[[], object]] = [
        lambda: model.predict(head="a", relation="r"),
        lambda: model.predict_triples(as_triples([(0, 0, 0)])),
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


def test_evaluate_returns_every_ranking(model: PLogicNet) -> None:
    for split in ("valid", "test"):
        result = model.evaluate(split)
        assert set(result) == {"split", "lambda", "neural", "rules", "plogicnet", "plogicnet*", "calibration"}
        assert model.metrics[split] == result
    with pytest.raises(InputError, match="train"):
        model.evaluate("train")
    with pytest.raises(InputError, match="split"):
        model.evaluate("tests")


def test_plogicnet_star_is_at_least_as_good_on_valid_with_auto_lambda(model: PLogicNet) -> None:
    valid = model.evaluate("valid")
    star, plain = valid["plogicnet*"], valid["plogicnet"]
    assert isinstance(star, dict)
    assert isinstance(plain, dict)
    assert star["mrr"] >= plain["mrr"]


def test_a_model_without_rules() -> None:
    model = fitted({"em.rules": False})
    assert len(model.rules) == 0
    assert model.fitted.outcome.lambda_ == 0.0
    result = model.evaluate()
    assert result["neural"] == result["plogicnet"] == result["plogicnet*"]
    assert model.explain("man0", "parent", "a0").rules == ()
    assert len(model.predict(head="man0", relation="parent", top=3)) == 3


def test_a_model_without_a_neural_model() -> None:
    model = fitted({"em.neural": False})
    result = model.evaluate()
    assert set(result) == {"split", "lambda", "rules", "plogicnet*", "calibration"}
    assert result["rules"] == result["plogicnet*"]
    for p in model.predict(head="man0", relation="parent", top=5):
        assert p.q is None
    assert model.explain("man0", "parent", "a0").neighbours == ()
    assert len(model.complete(0.01, known=["train"])) > 0


def test_a_graph_that_has_no_rules() -> None:
    rows = [(f"a{i}", f"r{i}", f"b{i}") for i in range(10)]
    graph = KnowledgeGraph.from_names(rows[:7], rows[7:9], rows[9:])
    model = fitted({}, graph)
    assert len(model.rules.take(~model.rules.constraints)) == 0
    assert len(model.predict(head="a0", relation="r0", top=3)) == 3
    assert not any(p.known for p in model.complete(0.0))
    assert model.explain("a0", "r1", "b0").rules == ()


def test_a_graph_without_valid_split_holds_triples_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    rows = family_rows()
    with caplog.at_level(logging.WARNING):
        model = fitted({}, KnowledgeGraph.from_names(rows[:100], [], rows[100:]))
    graph = model.fitted.graph
    assert graph.moved_to_valid == len(graph.valid) == 5
    assert len(graph.train) == 95
    assert "held out" in caplog.text
    assert not any(p.known for p in model.predict_triples(graph.valid))


def test_a_graph_with_only_a_train_split() -> None:
    model = fitted({}, KnowledgeGraph.from_names(family_rows()))
    assert set(model.metrics) == {"lambda", "calibration", "completion", "candidates", "iteration", "valid"}
    with pytest.raises(InputError, match="test"):
        model.evaluate("test")


def test_two_triples_are_enough_and_one_does_not_crash() -> None:
    rows = [("a", "r", "b"), ("b", "r", "c")]
    model = fitted({}, KnowledgeGraph.from_names(rows))
    assert len(model.fitted.graph.train) == len(model.fitted.graph.valid) == 1
    with contextlib.suppress(InputError):
        fitted({}, KnowledgeGraph.from_names(rows[:1]))


def test_probabilities_are_calibrated_on_validation(model: PLogicNet) -> None:
    """The probabilities of all candidates of the validation queries add up to the number of correct ones."""
    fitted_model = model.fitted
    known = {(h, r, t) for s in ("train", "valid") for h, r, t in fitted_model.graph.split(s).tolist()}
    candidates: list[Triple] = []
    correct = 0
    for h, r, t in fitted_model.graph.valid.tolist():
        correct += 2
        for e in range(len(fitted_model.graph.entities)):
            candidates += [c for c in ((e, r, t), (h, r, e)) if c == (h, r, t) or c not in known]
    candidates = [c for c in candidates if not fitted_model.rules.forbidden(as_triples([c]))[0]]
    probabilities = fitted_model.calibration.probability(np.array([feature_row(model, c) for c in candidates]))
    assert float(probabilities.sum()) == pytest.approx(correct, rel=0.02)


def feature_row(model: PLogicNet, triple: Triple) -> list[float]:
    fitted_model = model.fitted
    assert fitted_model.outcome.neural is not None
    odds, reached = fitted_model.rules.of_triples(as_triples([triple]))
    score = float(fitted_model.outcome.neural.score(as_triples([triple]))[0])
    return [score, float(reached[0]) / (1 + math.exp(-float(odds[0]))), float(reached[0])]


def test_predictions_have_a_json_form(model: PLogicNet) -> None:
    rows = [p.to_json() for p in model.predict(head="man0", relation="parent", top=2)]
    assert [list(row) for row in rows] == [
        ["head", "relation", "tail", "probability", "q", "p_w", "known", "in_hidden", "held_out"]
    ] * 2
