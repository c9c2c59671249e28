"""Written rules without mining on the demo family: the weights equal exact logistic weights from simple counts."""

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph, demo_family
from small import SMALL

Fact = tuple[str, str, str]
Counts = Counter[Fact]
INVERSE = "husband(X, Y) => wife(Y, X)"
COMPOSITION = "parent(X, Y) & parent(Y, Z) => grandparent(X, Z)"
GENERAL = "parent(X, Y) & parent(X, Z) & sibling(Y, W) & sibling(Z, W) => sibling(Y, Z)"
RULES = f"{INVERSE}\n0.5: {COMPOSITION}\n{GENERAL}\n"
FIXED = f"=-1.75: {INVERSE}\n=2.125: {COMPOSITION}\n{GENERAL}\n"


def inverse(train: list[Fact]) -> Counts:
    return Counter((y, "wife", x) for x, r, y in train if r == "husband")


def composition(train: list[Fact]) -> Counts:
    parents = [(x, y) for x, r, y in train if r == "parent"]
    return Counter((x, "grandparent", z) for x, y in parents for y2, z in parents if y == y2)


def general(train: list[Fact]) -> Counts:
    """Count pairs of children of one parent with a common sibling, without groundings that contain their hypothesis."""
    children: dict[str, list[str]] = {}
    siblings: dict[str, list[str]] = {}
    for x, r, y in train:
        if r == "parent":
            children.setdefault(x, []).append(y)
        if r == "sibling":
            siblings.setdefault(x, []).append(y)
    counts: Counts = Counter()
    for family in children.values():
        for y in family:
            for z in family:
                for w in siblings.get(y, []):
                    # if w is z, the hypothesis is a premise; y can be z, because variables can be equal
                    if w in siblings.get(z, []) and w != z:
                        counts[y, "sibling", z] += 1
    return counts


COUNT: dict[str, Callable[[list[Fact]], Counts]] = {INVERSE: inverse, COMPOSITION: composition, GENERAL: general}


def config(**values: object) -> Config:
    changed = {key.replace("__", "."): value for key, value in values.items()}
    return Config().with_values(SMALL | {"rules.mine": False, "em.iterations": 2} | changed)


def train_facts(graph: KnowledgeGraph) -> list[Fact]:
    return [graph.names(t) for t in graph.train]


@pytest.fixture(scope="module")
def graph() -> KnowledgeGraph:
    return demo_family()


@pytest.fixture(scope="module")
def model(graph: KnowledgeGraph) -> PLogicNet:
    return PLogicNet(config()).fit(graph, rules=RULES)


def weights_of(model: PLogicNet) -> dict[str, float]:
    return dict(zip(map(str, model.rules.rules), model.rules.weight.tolist(), strict=True))


def exact_weight(model: PLogicNet, counts: Counts, l2: float) -> float:
    """Return the root of Σ n (y - σ(b + n w)) - l2·w, which decreases in w, by bisection."""
    f = model.fitted
    train = set(train_facts(f.graph))
    hidden = f.outcome.rule_model.groundings.hidden
    q = dict(zip((f.graph.names(t) for t in hidden), f.outcome.hidden_q.tolist(), strict=True))
    [relation] = {r for _, r, _ in counts}
    rate = sum(r == relation for _, r, _ in train) / len(f.graph.entities) ** 2
    base = math.log(rate / (1 - rate))
    cases = [(n, 1.0 if fact in train else q[fact]) for fact, n in counts.items()]

    def slope(w: float) -> float:
        return sum(n * (y - 1 / (1 + math.exp(-(base + n * w)))) for n, y in cases) - l2 * w

    low, high = -50.0, 50.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return low


def test_written_rules_have_the_expected_support_hits_and_hidden_triples(model: PLogicNet) -> None:
    train = train_facts(model.fitted.graph)
    rules = model.rules
    assert set(map(str, rules.rules)) == set(COUNT)
    concluded: set[Fact] = set()
    for rule, support, hits in zip(map(str, rules.rules), rules.support, rules.hits, strict=True):
        counts = COUNT[rule](train)
        assert (support, hits) == (len(counts), sum(fact in set(train) for fact in counts))
        assert hits > 10
        concluded |= set(counts)
    hidden = {model.fitted.graph.names(t) for t in model.fitted.outcome.rule_model.groundings.hidden}
    assert hidden == concluded - set(train)
    assert max(general(train).values()) > 1  # so that the counts of groundings matter


@pytest.mark.parametrize("l2", [1.0, 0.1])
def test_trained_weights_are_the_exact_logistic_weights(graph: KnowledgeGraph, model: PLogicNet, l2: float) -> None:
    trained = model if l2 == 1.0 else PLogicNet(config(mln__l2=l2)).fit(graph, rules=RULES)
    train = train_facts(trained.fitted.graph)
    for rule, weight in weights_of(trained).items():
        assert weight == pytest.approx(exact_weight(trained, COUNT[rule](train), l2), abs=1e-7)


def test_fixed_weights_are_kept_and_the_others_are_exact(graph: KnowledgeGraph, tmp_path: Path) -> None:
    (tmp_path / "family.rules").write_text(FIXED)
    fixed = PLogicNet(config()).fit(graph, rules=tmp_path / "family.rules")
    weights = weights_of(fixed)
    assert (weights[INVERSE], weights[COMPOSITION]) == (-1.75, 2.125)
    exact = exact_weight(fixed, general(train_facts(fixed.fitted.graph)), 1.0)
    assert weights[GENERAL] == pytest.approx(exact, abs=1e-7)
    fixed.save(tmp_path / "run")
    loaded = PLogicNet.load(tmp_path / "run")
    assert weights_of(loaded) == weights
    again = dict(zip(map(str, loaded.rules.rules), loaded.rules.fixed.tolist(), strict=True))
    assert again == {INVERSE: True, COMPOSITION: True, GENERAL: False}


def test_a_fixed_weight_changes_the_weights_of_other_rules() -> None:
    """Two rules conclude the same triples, so the fixed weight adds to the base rate of the other rule."""
    rows = [(f"a{i}", "r", f"b{i}") for i in range(12)] + [(f"a{i}", "s", f"b{i}") for i in range(12)]
    rows += [(f"a{i}", "t", f"b{i}") for i in range(6)]
    graph = KnowledgeGraph.from_names(rows, valid=[("a7", "t", "b7")])
    rules = "=3: r(X, Y) => t(X, Y)\ns(X, Y) => t(X, Y)"
    model = PLogicNet(config(em__neural=False, mln__unit_clauses=False)).fit(graph, rules=rules)
    w = weights_of(model)["s(X, Y) => t(X, Y)"]
    assert weights_of(model)["r(X, Y) => t(X, Y)"] == 3.0
    # half of the triples are observed, q = 0 on H
    assert 12 * (0.5 - 1 / (1 + math.exp(-(3 + w)))) == pytest.approx(w, abs=1e-7)


def test_explanations_add_up_exactly(model: PLogicNet) -> None:
    """One rule concludes each relation, so sums have no rounding differences."""
    f = model.fitted
    train, weights = train_facts(f.graph), weights_of(model)
    for rule, count in COUNT.items():
        counts = count(train)
        some = sorted(counts, key=lambda fact: (-counts[fact], fact))
        for fact in some[:3] + some[-3:]:
            explanation = model.explain(*fact)
            (entry,) = explanation.rules
            assert (entry.rule, entry.weight, entry.groundings) == (rule, weights[rule], counts[fact])
            assert explanation.base + entry.contribution == explanation.log_odds
            assert entry.contribution == counts[fact] * weights[rule]
            for premises in entry.premises:
                assert set(premises) <= set(train)
                assert fact not in premises


def test_explain_on_a_loaded_run_does_not_ground_the_whole_graph(model: PLogicNet, tmp_path: Path) -> None:
    model.save(tmp_path / "run")
    loaded = PLogicNet.load(tmp_path / "run")
    train = train_facts(loaded.fitted.graph)
    facts = [min(count(train)) for count in COUNT.values()] + [train[0]]
    got = [loaded.explain(*fact) for fact in facts]
    assert "network" not in loaded.fitted.outcome.rule_model.assignment.grounder.__dict__
    assert "rows" not in loaded.fitted.outcome.rule_model.assignment.__dict__
    assert got == [model.explain(*fact) for fact in facts]
    predictions = loaded.predict_triples(loaded.fitted.graph.train[:1])  # grounds the graph, with the same result
    assert "network" in loaded.fitted.outcome.rule_model.assignment.grounder.__dict__
    assert predictions[0].probability == got[-1].probability
    assert predictions[0].p_w == got[-1].p_w
