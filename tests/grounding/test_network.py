"""The network of mixed rules, by both engines at once, against trying every assignment of entities to variables."""

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from plogicnet import config
from plogicnet.graph import KnowledgeGraph
from plogicnet.grounding import Counting, Network
from plogicnet.grounding.sql import clause_of, ground_sql
from plogicnet.rules import Constant, Rule, parse_rule
from plogicnet.support.errors import InputError
from reference import COUNTINGS, Instance, Triple, as_set, graphs, numbered_graph, unpacked

ENTITIES, RELATIONS = 4, 3
Numbered = tuple[int, Instance]
Engine = Literal["auto", "native", "sql"]
ENGINES: tuple[Engine, ...] = ("auto", "native", "sql")

# Shapes whose relations (r0, r1, …) are dealt anew: chains for the native engine, and what only SQL grounds.
CHAINS = (
    "a(X, Y) => c(X, Y)",
    "a(X, Y) => c(Y, X)",
    "a(X, Y) & b(Y, Z) => c(X, Z)",
    "a(Y, X) & b(Y, Z) => c(X, Z)",
)
GENERAL = (
    "a(X, Y) & b(X, Y) => c(X, Y)",
    "a(X, Y) & b(Y, X) => c(X, X)",
    "a(X, Y) & b(X, Z) => c(X, Y)",
    "a(X, X) => c(X, X)",
    "a(X, e0) => b(X, e1)",
    "a(e0, X) & b(X, Y) => c(Y, e0)",
    "a(X, Y) & a(Y, Z) & b(Z, X) => c(X, Z)",
)


@st.composite
def dealt(draw: st.DrawFn, shapes: Sequence[str]) -> Rule:
    text = draw(st.sampled_from(shapes))
    number = st.integers(0, RELATIONS - 1)
    for letter in "abc":
        text = text.replace(f"{letter}(", f"r{draw(number)}(")
    premises, hypothesis = text.split(" => ")
    assume(hypothesis not in premises.split(" & "))  # which is no rule
    return parse_rule(text)


mixed = st.tuples(
    st.lists(dealt(CHAINS), min_size=1, max_size=3), st.lists(dealt(GENERAL), min_size=1, max_size=2)
).flatmap(lambda both: st.permutations(both[0] + both[1]).map(tuple))
some_facts = graphs(ENTITIES, RELATIONS, 10).map(
    lambda graph: numbered_graph(ENTITIES, RELATIONS, as_set(graph.train))  # every shape's names are there
)


def instances(graph: KnowledgeGraph, facts: set[Triple], rule: Rule, counting: Counting) -> Iterator[Instance]:
    atoms = (*rule.body, rule.head)
    variables = list(dict.fromkeys(v for atom in atoms for v in atom.variables))
    for chosen in itertools.product(range(len(graph.entities)), repeat=len(variables)):
        value = dict(zip(variables, chosen, strict=True))
        *premises, hypothesis = (
            (
                graph.entities.id(a.head.name) if isinstance(a.head, Constant) else value[a.head],
                graph.relations.id(a.relation),
                graph.entities.id(a.tail.name) if isinstance(a.tail, Constant) else value[a.tail],
            )
            for a in atoms
        )
        if facts.issuperset(premises) and (counting == "paths" or hypothesis not in premises):
            yield Instance(hypothesis, frozenset(premises))


def brute_force(graph: KnowledgeGraph, rules: Sequence[Rule], counting: Counting, linked: bool) -> list[Numbered]:
    facts = as_set(graph.train)
    variables = facts | {i.hypothesis for rule in rules for i in instances(graph, facts, rule, counting)}
    return [
        (number, i)
        for number, rule in enumerate(rules)
        for i in instances(graph, variables if linked else facts, rule, counting)
        if i.hypothesis in variables
    ]


@settings(max_examples=25, deadline=None)
@given(some_facts, mixed, st.sampled_from(COUNTINGS), st.booleans())
def test_engines_together_are_sql_alone_and_brute_force(
    graph: KnowledgeGraph, rules: tuple[Rule, ...], counting: Counting, linked: bool
) -> None:
    expected = Counter(brute_force(graph, rules, counting, linked))
    network = Network(graph, rules, counting, linked, threads=1)
    by_sql = ground_sql(graph.observed, [clause_of(rule, graph) for rule in rules], counting, linked, threads=1)
    for found in (network.groundings, by_sql):
        assert Counter(unpacked(found)) == expected
        assert found.rules == len(rules)
        assert found.triples.triples.tolist() == by_sql.triples.triples.tolist()
        assert found.observed.tolist() == by_sql.observed.tolist()
        assert found.rule.tolist() == sorted(found.rule.tolist())
        for premises in found.premises:  # each premise once, and at least one
            rows = premises[premises >= 0].tolist()
            assert rows
            assert len(set(rows)) == len(rows)


@settings(max_examples=8, deadline=None)
@given(some_facts, mixed, st.sampled_from(COUNTINGS), st.booleans())
def test_the_engine_that_is_asked_for_changes_nothing(
    graph: KnowledgeGraph, rules: tuple[Rule, ...], counting: Counting, linked: bool
) -> None:
    auto, sql = (
        Network(graph, rules, counting, linked, config.Grounding(engine=engine), threads=1).groundings
        for engine in ENGINES[::2]
    )
    assert Counter(unpacked(auto)) == Counter(unpacked(sql))
    assert auto.triples.triples.tolist() == sql.triples.triples.tolist()


@settings(max_examples=15, deadline=None)
@given(some_facts, st.lists(dealt(CHAINS), min_size=1, max_size=4).map(tuple), st.sampled_from(COUNTINGS))
def test_chains_alone_need_no_sql(graph: KnowledgeGraph, rules: tuple[Rule, ...], counting: Counting) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "duckdb", None)
        for engine in ENGINES[:2]:
            network = Network(graph, rules, counting, settings=config.Grounding(engine=engine), threads=1)
            assert Counter(unpacked(network.groundings)) == Counter(brute_force(graph, rules, counting, False))
            network.of_triple(graph.train[0])
            network.counts()


@settings(max_examples=10, deadline=None)
@given(some_facts, mixed, st.sampled_from(COUNTINGS), st.data())
def test_one_triple_is_the_network_filtered(
    graph: KnowledgeGraph, rules: tuple[Rule, ...], counting: Counting, data: st.DataObject
) -> None:
    """Every triple of O ∪ H, and some others; the whole is not built for it."""
    network = Network(graph, rules, counting, threads=1)
    expected: dict[Triple, dict[int, Counter[frozenset[Triple]]]] = {}
    for rule, (hypothesis, premises) in brute_force(graph, rules, counting, False):
        expected.setdefault(hypothesis, {}).setdefault(rule, Counter())[premises] += 1
    entity, relation = st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1)
    others = data.draw(st.lists(st.tuples(entity, relation, entity), max_size=3))
    for triple in sorted(as_set(graph.train) | set(expected) | set(others)):
        found = network.of_triple(np.array(triple))
        assert list(found) == sorted(found)
        got = {rule: Counter(frozenset(as_set(p[p[:, 0] >= 0])) for p in premises) for rule, premises in found.items()}
        assert got == expected.get(triple, {})
    assert "groundings" not in network.__dict__


@settings(max_examples=20, deadline=None)
@given(some_facts, mixed, st.sampled_from(COUNTINGS), st.sampled_from(["auto", "sql"]))
def test_counts_and_expected(
    graph: KnowledgeGraph, rules: tuple[Rule, ...], counting: Counting, engine: Engine
) -> None:
    network = Network(graph, rules, counting, settings=config.Grounding(engine=engine), threads=1)
    facts = as_set(graph.train)
    support, hits = network.counts()
    for rule, n, hit in zip(rules, support.tolist(), hits.tolist(), strict=True):
        concluded = [i.hypothesis for i in instances(graph, facts, rule, counting)]
        concluded = list(set(concluded)) if counting == "distinct" else concluded
        assert (n, hit) == (len(concluded), sum(triple in facts for triple in concluded))
    every = [len(list(instances(graph, facts, rule, "paths"))) for rule in rules]
    assert network.expected().tolist() == every
    assert "groundings" not in network.__dict__


def test_no_rules_are_a_network_of_the_facts() -> None:
    graph = numbered_graph(2, 1, [(0, 0, 1)])
    for engine, linked in itertools.product(ENGINES, (False, True)):
        network = Network(graph, (), "distinct", linked, config.Grounding(engine=engine))
        assert (len(network.groundings.triples), len(network.groundings.rule)) == (1, 0)
        assert network.of_triple(graph.train[0]) == {}
        assert [column.tolist() for column in network.counts()] == [[], []]


def test_the_native_engine_refuses_what_is_no_chain() -> None:
    graph = numbered_graph(3, 2, [(0, 0, 1)])
    rules = (parse_rule("r0(X, Y) => r1(X, Y)"), parse_rule("r0(X, Y) & r1(X, Y) => r1(Y, X)"))
    network = Network(graph, rules, "distinct", settings=config.Grounding(engine="native"))
    asked: list[Callable[[], object]] = [
        lambda: network.groundings,
        network.counts,
        network.expected,
        lambda: network.of_triple(graph.train[0]),
    ]
    for ask in asked:
        with pytest.raises(InputError, match=r"^r0\(X, Y\) & r1\(X, Y\) => r1\(Y, X\): .*grounding\.engine=auto"):
            ask()


@pytest.mark.parametrize(
    "worst", ["r0(X, Y) & r1(Y, Z) => r2(X, Z)", "r0(X, Y) & r1(Y, Z) & r2(Y, Y) => r2(X, Z)"], ids=["chain", "general"]
)
def test_more_groundings_than_memory_are_refused_before_they_are_made(worst: str) -> None:
    """A hub with 1,000 ways in and out: a million groundings, at about 100 bytes each."""
    hub = 0
    facts = [(i, 0, hub) for i in range(1, 1001)] + [(hub, 1, i) for i in range(1001, 2001)] + [(hub, 2, hub)]
    rules = (parse_rule("r0(X, Y) => r1(X, Y)"), parse_rule(worst), parse_rule("r1(X, Y) => r0(X, Y)"))
    graph = numbered_graph(2001, 3, facts)
    network = Network(graph, rules, "distinct", settings=config.Grounding(memory_mb=64), threads=1)
    with pytest.raises(InputError) as caught:
        network.groundings  # noqa: B018
    message = str(caught.value)
    assert "the rules have up to 1,002,000 groundings" in message
    assert "64 MB are allowed (grounding.memory_mb)" in message
    assert f"The most, 1,000,000, has {worst}." in message
    assert len(network.of_triple(np.array([1, 2, 1001]))[1]) == 1  # one triple is still explained
    few = Network(graph, (rules[0], rules[2]), "distinct", settings=config.Grounding(memory_mb=64), threads=1)
    assert len(few.groundings.rule) == 2000


def test_without_duckdb_a_general_rule_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    graph = numbered_graph(3, 2, [(0, 0, 1), (0, 1, 1)])
    network = Network(graph, (parse_rule("r0(X, Y) & r1(X, Y) => r1(Y, X)"),), "distinct")
    asked: list[Callable[[], object]] = [
        lambda: network.groundings,
        network.counts,
        lambda: network.of_triple(np.array([1, 1, 0])),
    ]
    for ask in asked:
        with pytest.raises(InputError, match=r"needs DuckDB; install it with: pip install 'plogicnet\[sql\]'"):
            ask()


def test_where_hidden_triples_are_premises_the_engines_see_each_others() -> None:
    """The chain concludes r1(1, 2), which the general rule needs for r3(1, 2)."""
    graph = numbered_graph(3, 4, [(1, 0, 2), (1, 2, 2), (1, 3, 2)])
    rules = (parse_rule("r0(X, Y) => r1(X, Y)"), parse_rule("r1(X, Y) & r2(X, Y) => r3(X, Y)"))
    found = unpacked(Network(graph, rules, "distinct", linked=True).groundings)
    assert Counter(found) == Counter(brute_force(graph, rules, "distinct", linked=True))
    assert (1, Instance((1, 3, 2), frozenset({(1, 1, 2), (1, 2, 2)}))) in found


@pytest.mark.parametrize("premises", [20, 21, 1200])
def test_a_join_that_would_take_too_long_to_plan_is_refused(premises: int) -> None:
    graph = numbered_graph(3, 2, [(0, 0, 1), (2, 0, 1)])
    rule = parse_rule(" & ".join(f"r0(X, Y{i})" for i in range(premises)) + " => r1(Y0, X)")
    network = Network(graph, (rule,), "distinct", threads=1)
    if premises == 20:
        assert as_set(network.groundings.hidden) == {(1, 1, 0), (1, 1, 2)}
    else:
        with pytest.raises(InputError, match=rf"r1\(Y0, X\) is concluded from {premises:,} premises; .* 20 at most"):
            network.counts()
