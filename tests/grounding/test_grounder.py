"""The grounder with several engines, compared with a brute-force search."""

import itertools
import sys
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.engines import ENTITIES, chain_rules, general_rules, small_graphs, to_clauses
from plogicnet.config import ENGINES, Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.grounding.engine import AUTO, CountingMode, Resources
from plogicnet.grounding.grounder import Grounder
from plogicnet.grounding.native.engine import NativeEngine
from plogicnet.grounding.rulebook import collect_rules
from plogicnet.rules import Rule, parse_rule
from plogicnet.support.errors import InputError
from reference import (
    COUNTINGS,
    Grounding,
    Triple,
    as_set,
    ground_by_brute_force,
    iter_groundings,
    numbered_graph,
    to_groundings,
)

mixed = st.tuples(
    st.lists(chain_rules(), min_size=1, max_size=3),
    st.lists(general_rules().filter(lambda rule: rule.pattern == "general"), min_size=1, max_size=2),
).flatmap(lambda both: st.permutations(both[0] + both[1]).map(tuple))
ONE_THREAD = Resources(threads=1)


def brute_force(
    graph: KnowledgeGraph, rules: tuple[Rule, ...], counting: CountingMode, hidden_premises: bool
) -> list[tuple[int, Grounding]]:
    return ground_by_brute_force(
        as_set(graph.train), len(graph.entities), to_clauses((graph, list(rules))), counting, hidden_premises
    )


@settings(max_examples=20, deadline=None)
@given(small_graphs(), mixed, st.sampled_from(COUNTINGS), st.booleans(), st.sampled_from([AUTO, "sql"]))
def test_mixed_rules_as_by_brute_force(
    graph: KnowledgeGraph, rules: tuple[Rule, ...], counting: CountingMode, hidden_premises: bool, engine: str
) -> None:
    """The groundings of one triple are found without grounding the network."""
    grounder = Grounder(graph, rules, counting, hidden_premises, engine, ONE_THREAD)
    facts = as_set(graph.train)
    expected: dict[Triple, dict[int, Counter[frozenset[Triple]]]] = {}
    for rule, (hypothesis, premises) in brute_force(graph, rules, counting, False):
        expected.setdefault(hypothesis, {}).setdefault(rule, Counter())[premises] += 1
    for triple in sorted(facts | set(expected) | {(0, 0, 1)})[:6]:
        concluding = grounder.groundings_of_triple(np.array(triple))
        assert list(concluding) == sorted(concluding)
        by_rule = {r: Counter(frozenset(as_set(p[p[:, 0] >= 0])) for p in ps) for r, ps in concluding.items()}
        assert by_rule == expected.get(triple, {})
    support, hits = grounder.counts()
    for clause, n, hit in zip(to_clauses((graph, list(rules))), support.tolist(), hits.tolist(), strict=True):
        concluded = [i.hypothesis for i in iter_groundings(facts, ENTITIES, clause, counting)]
        concluded = list(set(concluded)) if counting == "distinct" else concluded
        assert (n, hit) == (len(concluded), sum(triple in facts for triple in concluded))
    assert "network" not in grounder.__dict__
    groundings = grounder.groundings
    assert Counter(to_groundings(groundings)) == Counter(brute_force(graph, rules, counting, hidden_premises))
    assert groundings.n_rules == len(rules)
    assert groundings.rule.tolist() == sorted(groundings.rule.tolist())
    assert grounder.network.size == len(groundings.rule)
    assert groundings.merge(np.ones(len(groundings.triples))).count.tolist() == (
        grounder.network.merge(np.ones(len(groundings.triples))).count.tolist()
    )


@settings(max_examples=15, deadline=None)
@given(small_graphs(), st.lists(chain_rules(), min_size=1, max_size=4).map(tuple), st.sampled_from(COUNTINGS))
def test_chains_do_not_need_duckdb(graph: KnowledgeGraph, rules: tuple[Rule, ...], counting: CountingMode) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "duckdb", None)
        for engine in (AUTO, "native"):
            grounder = Grounder(graph, rules, counting, engine=engine, resources=ONE_THREAD)
            grounder.check_engines()
            assert Counter(to_groundings(grounder.groundings)) == Counter(brute_force(graph, rules, counting, False))
            grounder.groundings_of_triple(graph.train[0])
            grounder.counts()


class EngineForR1(NativeEngine):
    """An engine that grounds only chains that conclude r1, and records its calls."""

    scope = "rules for r1"

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattribute__(self, name: str) -> object:
        if name in ("mine", "count", "ground", "grounding_lookup"):
            self.calls.append(name)
        return super().__getattribute__(name)

    def supports(self, rule: Rule) -> bool:
        return super().supports(rule) and rule.head.relation == "r1"


def test_a_registered_engine_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    third = EngineForR1()
    monkeypatch.setattr(ENGINES, "_entries", {"third": third, **ENGINES._entries})
    graph = numbered_graph(4, 3, [(0, 0, 1), (1, 1, 0), (2, 0, 3), (2, 2, 3)])
    rules = (parse_rule("r0(X, Y) => r1(Y, X)"), parse_rule("r0(X, Y) => r2(X, Y)"))
    grounder = Grounder(graph, rules, "distinct")
    grounder.counts()
    assert as_set(grounder.network.hidden) == {(3, 1, 2), (0, 2, 1)}
    assert grounder.groundings_of_triple(np.array([3, 1, 2]))[0].tolist() == [[[2, 0, 3]]]
    assert [assignment.engine is third for assignment in grounder._assignments] == [True, False]
    assert third.calls == ["count", "ground", "grounding_lookup"]
    config = Config().with_values({"grounding.engine": "third", "rules.patterns": ["inverse"]})
    assert [*map(str, collect_rules(graph, config).rules.rules)] == ["r0(X, Y) => r1(Y, X)", "r1(X, Y) => r0(Y, X)"]
    assert third.calls[-1] == "mine"
    with pytest.raises(InputError, match=r"^r0\(X, Y\) => r2\(X, Y\): the third engine grounds only rules for r1\."):
        Grounder.of(graph, rules, config).counts()


def test_without_rules_the_network_contains_the_facts() -> None:
    graph = numbered_graph(2, 1, [(0, 0, 1)])
    for engine, hidden_premises in itertools.product((AUTO, "native", "sql"), (False, True)):
        grounder = Grounder(graph, (), "distinct", hidden_premises, engine)
        assert (len(grounder.groundings.triples), len(grounder.groundings.rule)) == (1, 0)
        assert grounder.groundings_of_triple(graph.train[0]) == {}
        assert [column.tolist() for column in grounder.counts()] == [[], []]


def test_the_native_engine_raises_for_rules_that_are_not_chains() -> None:
    graph = numbered_graph(3, 2, [(0, 0, 1)])
    rules = (parse_rule("r0(X, Y) => r1(X, Y)"), parse_rule("r0(X, Y) & r1(X, Y) => r1(Y, X)"))
    grounder = Grounder(graph, rules, "distinct", engine="native")
    calls: list[Callable[[], object]] = [
        lambda: grounder.groundings,
        grounder.counts,
        grounder.count_groundings,
        lambda: grounder.groundings_of_triple(graph.train[0]),
    ]
    for call in calls:
        with pytest.raises(InputError, match=r"^r0\(X, Y\) & r1\(X, Y\) => r1\(Y, X\): .*grounding\.engine=auto"):
            call()


@pytest.mark.parametrize(
    "worst", ["r0(X, Y) & r1(Y, Z) => r2(X, Z)", "r0(X, Y) & r1(Y, Z) & r2(Y, Y) => r2(X, Z)"], ids=["chain", "general"]
)
def test_too_many_groundings_raise_before_grounding(worst: str) -> None:
    """A hub with 1,000 facts in and out has a million groundings of about 100 bytes."""
    hub = 0
    facts = [(i, 0, hub) for i in range(1, 1001)] + [(hub, 1, i) for i in range(1001, 2001)] + [(hub, 2, hub)]
    rules = (parse_rule("r0(X, Y) => r1(X, Y)"), parse_rule(worst), parse_rule("r1(X, Y) => r0(X, Y)"))
    graph = numbered_graph(2001, 3, facts)
    grounder = Grounder(graph, rules, "distinct", resources=Resources(threads=1, memory_mb=64))
    with pytest.raises(InputError) as caught:
        grounder.groundings  # noqa: B018
    message = str(caught.value)
    assert "the rules have up to 1,002,000 groundings" in message
    assert "only 64 MB are allowed (grounding.memory_mb)" in message
    assert f"{worst} has the most groundings: 1,000,000." in message
    assert len(grounder.groundings_of_triple(np.array([1, 2, 1001]))[1]) == 1  # one triple can still be explained
    few = Grounder(graph, (rules[0], rules[2]), "distinct", resources=Resources(threads=1, memory_mb=64))
    assert len(few.groundings.rule) == 2000


def test_general_rules_without_duckdb_raise_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    graph = numbered_graph(3, 2, [(0, 0, 1), (0, 1, 1)])
    grounder = Grounder(graph, (parse_rule("r0(X, Y) & r1(X, Y) => r1(Y, X)"),), "distinct")
    calls: list[Callable[[], object]] = [
        lambda: grounder.groundings,
        grounder.counts,
        lambda: grounder.groundings_of_triple(np.array([1, 1, 0])),
        grounder.check_engines,
    ]
    for call in calls:
        with pytest.raises(InputError, match=r"needs DuckDB\. Install it with: pip install 'plogicnet\[sql\]'"):
            call()


def test_hidden_premises_can_be_conclusions_of_any_rule() -> None:
    """The chain concludes r1(1, 2), which is a premise of the general rule for r3(1, 2)."""
    graph = numbered_graph(3, 4, [(1, 0, 2), (1, 2, 2), (1, 3, 2)])
    rules = (parse_rule("r0(X, Y) => r1(X, Y)"), parse_rule("r1(X, Y) & r2(X, Y) => r3(X, Y)"))
    found = to_groundings(Grounder(graph, rules, "distinct", hidden_premises=True).groundings)
    assert Counter(found) == Counter(brute_force(graph, rules, "distinct", hidden_premises=True))
    assert (1, Grounding((1, 3, 2), frozenset({(1, 1, 2), (1, 2, 2)}))) in found


@pytest.mark.parametrize("premises", [20, 21, 1200])
def test_more_than_20_premises_raise(premises: int) -> None:
    graph = numbered_graph(3, 2, [(0, 0, 1), (2, 0, 1)])
    rule = parse_rule(" & ".join(f"r0(X, Y{i})" for i in range(premises)) + " => r1(Y0, X)")
    grounder = Grounder(graph, (rule,), "distinct", resources=ONE_THREAD)
    if premises == 20:
        assert as_set(grounder.network.hidden) == {(1, 1, 0), (1, 1, 2)}
    else:
        with pytest.raises(InputError, match=rf"r1\(Y0, X\): .* at most 20 premises, got {premises:,}"):
            grounder.counts()


def test_hidden_premises_need_one_engine_for_all_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ENGINES, "_entries", {"third": EngineForR1()})
    graph = numbered_graph(3, 3, [(0, 0, 1)])
    with pytest.raises(InputError, match="no engine can ground this rule"):
        Grounder(graph, (parse_rule("r0(X, Y) => r2(X, Y)"),), "distinct").counts()
    monkeypatch.setattr(ENGINES, "_entries", {"third": EngineForR1(), "other": EngineForR2()})
    rules = (parse_rule("r0(X, Y) => r1(Y, X)"), parse_rule("r0(X, Y) => r2(X, Y)"))
    assert Grounder(graph, rules, "distinct").network.size == 2
    with pytest.raises(
        InputError, match=r"one engine must ground all rules.* remove the rule r0\(X, Y\) => r2\(X, Y\)\.$"
    ):
        Grounder(graph, rules, "distinct", hidden_premises=True).network  # noqa: B018


class EngineForR2(NativeEngine):
    def supports(self, rule: Rule) -> bool:
        return rule.head.relation == "r2"


def test_stored_groundings_are_loaded_only_if_they_fit() -> None:
    """The merged rows need no memory for groundings."""
    facts = [(i, 0, 0) for i in range(1, 601)] + [(0, 1, i) for i in range(601, 1201)]
    graph, rule = numbered_graph(1201, 3, facts), parse_rule("r0(X, Y) & r1(Y, Z) => r2(X, Z)")
    grounder = Grounder(graph, (rule,), "distinct", engine="sql", resources=Resources(threads=1, memory_mb=32))
    with pytest.raises(InputError, match="360,000 groundings"):
        grounder.groundings  # noqa: B018
    assert grounder.network.merge(np.ones(len(grounder.network.triples))).count.tolist() == [360_000]
    with pytest.raises(InputError, match="360,000 groundings"):
        grounder.groundings  # noqa: B018
