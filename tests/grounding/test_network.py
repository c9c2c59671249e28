"""The network of mixed rules, by several engines at once, against trying every assignment of entities to variables."""

import itertools
import sys
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.engines import ENTITIES, chain_rules, general_rules, numbered, some_facts
from plogicnet.config import ENGINES, Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.grounding.engine import AUTO, Counting, Resources
from plogicnet.grounding.native.engine import NativeEngine
from plogicnet.grounding.network import Network
from plogicnet.grounding.rulebook import find_rules
from plogicnet.rules import Rule, parse_rule
from plogicnet.support.errors import InputError
from reference import COUNTINGS, Instance, Triple, as_set, instances, network, numbered_graph, unpacked

mixed = st.tuples(
    st.lists(chain_rules(), min_size=1, max_size=3), st.lists(general_rules(), min_size=1, max_size=2)
).flatmap(lambda both: st.permutations(both[0] + both[1]).map(tuple))
ONE_THREAD = Resources(threads=1)


def brute_force(
    graph: KnowledgeGraph, rules: tuple[Rule, ...], counting: Counting, linked: bool
) -> list[tuple[int, Instance]]:
    return network(as_set(graph.train), len(graph.entities), numbered((graph, list(rules))), counting, linked)


@settings(max_examples=20, deadline=None)
@given(some_facts(), mixed, st.sampled_from(COUNTINGS), st.booleans(), st.sampled_from([AUTO, "sql"]))
def test_the_network_of_mixed_rules(
    graph: KnowledgeGraph, rules: tuple[Rule, ...], counting: Counting, linked: bool, engine: str
) -> None:
    """Groundings are in the order of rules; so are counts. One triple is the network filtered, without building it."""
    asked = Network(graph, rules, counting, linked, engine, ONE_THREAD)
    facts = as_set(graph.train)
    expected: dict[Triple, dict[int, Counter[frozenset[Triple]]]] = {}
    for rule, (hypothesis, premises) in brute_force(graph, rules, counting, False):
        expected.setdefault(hypothesis, {}).setdefault(rule, Counter())[premises] += 1
    for triple in sorted(facts | set(expected) | {(0, 0, 1)})[:6]:
        concluding = asked.of_triple(np.array(triple))
        assert list(concluding) == sorted(concluding)
        got = {r: Counter(frozenset(as_set(p[p[:, 0] >= 0])) for p in ps) for r, ps in concluding.items()}
        assert got == expected.get(triple, {})
    support, hits = asked.counts()
    for clause, n, hit in zip(numbered((graph, list(rules))), support.tolist(), hits.tolist(), strict=True):
        concluded = [i.hypothesis for i in instances(facts, ENTITIES, clause, counting)]
        concluded = list(set(concluded)) if counting == "distinct" else concluded
        assert (n, hit) == (len(concluded), sum(triple in facts for triple in concluded))
    assert "grounded" not in asked.__dict__
    found = asked.groundings
    assert Counter(unpacked(found)) == Counter(brute_force(graph, rules, counting, linked))
    assert found.rules == len(rules)
    assert found.rule.tolist() == sorted(found.rule.tolist())
    assert asked.grounded.size == len(found.rule)
    assert found.merged(np.ones(len(found.triples))).count.tolist() == (
        asked.grounded.merged(np.ones(len(found.triples))).count.tolist()
    )


@settings(max_examples=15, deadline=None)
@given(some_facts(), st.lists(chain_rules(), min_size=1, max_size=4).map(tuple), st.sampled_from(COUNTINGS))
def test_chains_alone_need_no_sql(graph: KnowledgeGraph, rules: tuple[Rule, ...], counting: Counting) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "duckdb", None)
        for engine in (AUTO, "native"):
            asked = Network(graph, rules, counting, engine=engine, resources=ONE_THREAD)
            asked.require_engines()
            assert Counter(unpacked(asked.groundings)) == Counter(brute_force(graph, rules, counting, False))
            asked.of_triple(graph.train[0])
            asked.counts()


class ThirdEngine(NativeEngine):
    """An engine from outside: chains that conclude r1 alone; it remembers what it was asked."""

    scope = "rules for r1"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattribute__(self, name: str) -> object:
        if name in ("mine", "count", "ground", "explain"):
            self.asked.append(name)
        return super().__getattribute__(name)

    def supports(self, rule: Rule) -> bool:
        return super().supports(rule) and rule.head.relation == "r1"


def test_a_third_engine_by_the_registry_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    third = ThirdEngine()
    monkeypatch.setattr(ENGINES, "_entries", {"third": third, **ENGINES._entries})
    graph = numbered_graph(4, 3, [(0, 0, 1), (1, 1, 0), (2, 0, 3), (2, 2, 3)])
    rules = (parse_rule("r0(X, Y) => r1(Y, X)"), parse_rule("r0(X, Y) => r2(X, Y)"))
    both = Network(graph, rules, "distinct")
    both.counts()
    assert as_set(both.grounded.hidden) == {(3, 1, 2), (0, 2, 1)}
    assert both.of_triple(np.array([3, 1, 2]))[0].tolist() == [[[2, 0, 3]]]
    assert [part.engine is third for part in both._parts] == [True, False]
    assert third.asked == ["count", "ground", "explain"]
    chosen = Config().with_values({"grounding.engine": "third", "rules.patterns": ["inverse"]})
    assert [*map(str, find_rules(graph, chosen).rules.rules)] == ["r0(X, Y) => r1(Y, X)", "r1(X, Y) => r0(Y, X)"]
    assert third.asked[-1] == "mine"
    with pytest.raises(InputError, match=r"^r0\(X, Y\) => r2\(X, Y\): the third engine grounds rules for r1"):
        Network.of(graph, rules, chosen).counts()


def test_no_rules_are_a_network_of_the_facts() -> None:
    graph = numbered_graph(2, 1, [(0, 0, 1)])
    for engine, linked in itertools.product((AUTO, "native", "sql"), (False, True)):
        network = Network(graph, (), "distinct", linked, engine)
        assert (len(network.groundings.triples), len(network.groundings.rule)) == (1, 0)
        assert network.of_triple(graph.train[0]) == {}
        assert [column.tolist() for column in network.counts()] == [[], []]


def test_the_native_engine_refuses_what_is_no_chain() -> None:
    graph = numbered_graph(3, 2, [(0, 0, 1)])
    rules = (parse_rule("r0(X, Y) => r1(X, Y)"), parse_rule("r0(X, Y) & r1(X, Y) => r1(Y, X)"))
    network = Network(graph, rules, "distinct", engine="native")
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
    network = Network(graph, rules, "distinct", resources=Resources(threads=1, memory_mb=64))
    with pytest.raises(InputError) as caught:
        network.groundings  # noqa: B018
    message = str(caught.value)
    assert "the rules have up to 1,002,000 groundings" in message
    assert "64 MB are allowed (grounding.memory_mb)" in message
    assert f"The most, 1,000,000, has {worst}." in message
    assert len(network.of_triple(np.array([1, 2, 1001]))[1]) == 1  # one triple is still explained
    few = Network(graph, (rules[0], rules[2]), "distinct", resources=Resources(threads=1, memory_mb=64))
    assert len(few.groundings.rule) == 2000


def test_without_duckdb_a_general_rule_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    graph = numbered_graph(3, 2, [(0, 0, 1), (0, 1, 1)])
    network = Network(graph, (parse_rule("r0(X, Y) & r1(X, Y) => r1(Y, X)"),), "distinct")
    asked: list[Callable[[], object]] = [
        lambda: network.groundings,
        network.counts,
        lambda: network.of_triple(np.array([1, 1, 0])),
        network.require_engines,
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
    network = Network(graph, (rule,), "distinct", resources=ONE_THREAD)
    if premises == 20:
        assert as_set(network.grounded.hidden) == {(1, 1, 0), (1, 1, 2)}
    else:
        with pytest.raises(InputError, match=rf"r1\(Y0, X\) is concluded from {premises:,} premises; .* 20 at most"):
            network.counts()


def test_one_engine_must_know_all_rules_where_hidden_triples_are_premises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ENGINES, "_entries", {"third": ThirdEngine()})
    graph = numbered_graph(3, 3, [(0, 0, 1)])
    with pytest.raises(InputError, match="no engine grounds such a rule"):
        Network(graph, (parse_rule("r0(X, Y) => r2(X, Y)"),), "distinct").counts()
    monkeypatch.setattr(ENGINES, "_entries", {"third": ThirdEngine(), "other": OnlyR2()})
    rules = (parse_rule("r0(X, Y) => r1(Y, X)"), parse_rule("r0(X, Y) => r2(X, Y)"))
    assert Network(graph, rules, "distinct").grounded.size == 2
    with pytest.raises(InputError, match=r"no engine grounds all of these rules.* leave r0\(X, Y\) => r2\(X, Y\) out"):
        Network(graph, rules, "distinct", linked=True).grounded  # noqa: B018


class OnlyR2(NativeEngine):
    def supports(self, rule: Rule) -> bool:
        return rule.head.relation == "r2"


def test_stored_groundings_are_fetched_only_where_they_fit() -> None:
    """The merged form needs no memory for groundings; the unmerged form is refused."""
    facts = [(i, 0, 0) for i in range(1, 601)] + [(0, 1, i) for i in range(601, 1201)]
    graph, rule = numbered_graph(1201, 3, facts), parse_rule("r0(X, Y) & r1(Y, Z) => r2(X, Z)")
    network = Network(graph, (rule,), "distinct", engine="sql", resources=Resources(threads=1, memory_mb=32))
    with pytest.raises(InputError, match="360,000 groundings"):
        network.groundings  # noqa: B018
    assert network.grounded.merged(np.ones(len(network.grounded.triples))).count.tolist() == [360_000]
    with pytest.raises(InputError, match="360,000 groundings"):
        network.groundings  # noqa: B018
