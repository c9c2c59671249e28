"""The demo family: the true facts are consistent, and the graph is incomplete and contains wrong facts."""

import os
import subprocess
import sys
from collections import defaultdict

import pytest

from plogicnet.graph.family import demo_family, true_facts
from plogicnet.graph.knowledge_graph import SPLITS, KnowledgeGraph

Pairs = set[tuple[str, str]]

GENDERED = {
    "spouse": ("husband", "wife"),
    "parent": ("father", "mother"),
    "child": ("son", "daughter"),
    "sibling": ("brother", "sister"),
    "grandparent": ("grandfather", "grandmother"),
}


def facts_of(graph: KnowledgeGraph, split: str) -> list[tuple[str, str, str]]:
    return [graph.names(triple) for triple in graph.split(split)]


def by_relation(facts: set[tuple[str, str, str]]) -> defaultdict[str, Pairs]:
    pairs: defaultdict[str, Pairs] = defaultdict(set)
    for head, relation, tail in facts:
        pairs[relation].add((head, tail))
    return pairs


def inverse(pairs: Pairs) -> Pairs:
    return {(tail, head) for head, tail in pairs}


def compose(first: Pairs, second: Pairs) -> Pairs:
    """Return all (x, z), x ≠ z, with (x, y) in the first and (y, z) in the second."""
    tails = defaultdict(set)
    for head, tail in second:
        tails[head].add(tail)
    return {(x, z) for x, y in first for z in tails[y] if x != z}


@pytest.fixture(params=range(4))
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def truth(seed: int) -> defaultdict[str, Pairs]:
    return by_relation(true_facts(seed))


def test_true_facts_follow_from_parents_spouses_and_gender(truth: defaultdict[str, Pairs]) -> None:
    parent, sibling = truth["parent"], truth["sibling"]
    parents_siblings = compose(sibling, parent)
    assert truth["spouse"] == inverse(truth["spouse"])
    assert truth["husband"] == inverse(truth["wife"])
    assert truth["child"] == inverse(parent)
    assert sibling == compose(truth["child"], parent)
    assert truth["grandparent"] == compose(parent, parent)
    assert truth["uncle"] == compose(truth["brother"], parent)
    assert truth["aunt"] == compose(truth["sister"], parent)
    assert truth["nephew"] | truth["niece"] == inverse(parents_siblings)
    assert truth["cousin"] == compose(truth["child"], parents_siblings) == inverse(truth["cousin"])


def test_gendered_relations_are_consistent(
    truth: defaultdict[str, Pairs],
) -> None:
    for general, (male, female) in GENDERED.items():
        assert truth[male] | truth[female] == truth[general]
    men, women = zip(*GENDERED.values(), strict=True)
    male_people = {head for word in (*men, "uncle", "nephew") for head, _ in truth[word]}
    female_people = {head for word in (*women, "aunt", "niece") for head, _ in truth[word]}
    assert not male_people & female_people


def test_marriages_and_generations_are_consistent(truth: defaultdict[str, Pairs]) -> None:
    spouse, parent = truth["spouse"], truth["parent"]
    assert not spouse & (truth["sibling"] | truth["cousin"])
    assert len(spouse) == len({head for head, _ in spouse}), "everybody has at most one spouse"
    for word in ("father", "mother"):
        assert len(truth[word]) == len({tail for _, tail in truth[word]}), f"everybody has at most one {word}"
    assert {tail for _, tail in truth["father"]} == {tail for _, tail in truth["mother"]}
    assert compose(truth["father"], truth["child"]) <= truth["husband"], "parents are married"

    ancestors, depth = parent, 1
    while ancestors:
        assert all(old != young for old, young in ancestors)
        ancestors, depth = compose(parent, ancestors), depth + 1
    assert depth == 5, "there are five generations, so nobody is their own ancestor"


def test_names_need_no_quotes_in_the_rule_syntax(seed: int) -> None:
    names = {name for head, _, tail in true_facts(seed) for name in (head, tail)}
    assert all(name.isidentifier() and name.islower() and name.isascii() for name in names)


def test_each_true_fact_is_in_exactly_one_split(seed: int) -> None:
    graph, truth = demo_family(seed), true_facts(seed)
    rows = [fact for split in SPLITS for fact in facts_of(graph, split)]
    assert len(rows) == len(set(rows))
    assert truth <= set(rows)
    assert graph.name == "family"
    assert graph.duplicates == 0
    assert 200 <= len(graph.entities) <= 400
    assert 3_000 <= len(graph.train) <= 6_000
    for split, share in {"train": 0.72, "valid": 0.1, "test": 0.18}.items():
        assert len(truth.intersection(facts_of(graph, split))) / len(truth) == pytest.approx(share, abs=0.01)


def test_held_out_facts_are_true_and_have_no_unseen_names(seed: int) -> None:
    graph = demo_family(seed)
    seen = {name for fact in facts_of(graph, "train") for name in fact}
    held_out = facts_of(graph, "valid") + facts_of(graph, "test")
    assert seen.issuperset(name for fact in held_out for name in fact)
    assert true_facts(seed).issuperset(held_out)


def test_two_percent_of_train_is_wrong(seed: int) -> None:
    train = set(facts_of(demo_family(seed), "train"))
    wrong = train - true_facts(seed)
    assert len(wrong) / len(train) == pytest.approx(0.02, abs=0.002)
    assert all(head != tail for head, _, tail in wrong)


def test_natural_rules_have_a_precision_between_one_half_and_one(seed: int) -> None:
    known = by_relation(set(facts_of(demo_family(seed), "train")))
    concluded = {
        "husband(X, Y) => wife(Y, X)": (inverse(known["husband"]), "wife"),
        "parent(X, Y) => child(Y, X)": (inverse(known["parent"]), "child"),
        "spouse(X, Y) => spouse(Y, X)": (inverse(known["spouse"]), "spouse"),
        "sibling(X, Y) => sibling(Y, X)": (inverse(known["sibling"]), "sibling"),
        "father(X, Y) => parent(X, Y)": (known["father"], "parent"),
        "sister(X, Y) => sibling(X, Y)": (known["sister"], "sibling"),
        "parent(X, Y) & parent(Y, Z) => grandparent(X, Z)": (
            compose(known["parent"], known["parent"]),
            "grandparent",
        ),
        "brother(X, Y) & parent(Y, Z) => uncle(X, Z)": (compose(known["brother"], known["parent"]), "uncle"),
    }
    precision = {rule: len(pairs & known[head]) / len(pairs) for rule, (pairs, head) in concluded.items()}
    assert all(0.5 < value < 1 for value in precision.values()), precision


def test_the_graph_depends_only_on_the_seed() -> None:
    program = (
        "from plogicnet.graph.family import demo_family; g = demo_family(3); "
        "print(g.entities.names, g.relations.names, g.train.tolist(), g.valid.tolist(), g.test.tolist())"
    )

    def output(hash_seed: str) -> str:
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert output("1") == output("2")
    assert true_facts(3) == true_facts(3)


def test_another_seed_gives_another_graph() -> None:
    assert true_facts(0) != true_facts(1)
    assert facts_of(demo_family(0), "train") != facts_of(demo_family(1), "train")
