"""Rules that a neural model proposes: their counts and thresholds, compared with brute force."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet.config import Config
from plogicnet.graph import RELATION, KnowledgeGraph, demo_family
from plogicnet.grounding.native.walks import Chain
from plogicnet.grounding.proposals import facts_to_explain, with_proposals
from plogicnet.grounding.rulebook import collect_rules
from plogicnet.rules import Rule, Step, chain_rule, parse_rule, parse_statements
from reference import as_set, graphs_and_chains, support_and_hits

Counts = dict[str, tuple[int, int]]


def rule_of(graph: KnowledgeGraph, chain: Chain) -> Rule:
    names = graph.relations.names
    return chain_rule([Step(names[step.relation], step.forward) for step in chain.steps], names[chain.relation])


def counts_after(graph: KnowledgeGraph, config: Config, rules: list[Rule]) -> Counts:
    """Return support and hits of the rules that are kept, without mined ones."""
    mined = collect_rules(graph, config).rules
    table = with_proposals(mined, dict.fromkeys(rules, 1.0), graph, config)
    assert len(set(table.rules)) == len(table.rules), "no rule twice"
    rows = zip(table.rules, table.support.tolist(), table.hits.tolist(), strict=True)
    return {str(rule): (support, hits) for rule, support, hits in rows if rule not in set(mined.rules)}


@settings(max_examples=60, deadline=None)
@given(case=graphs_and_chains(max_chains=12), min_precision=st.sampled_from([0.0, 0.3]), min_hits=st.integers(1, 2))
def test_counts_and_thresholds_equal_brute_force(
    case: tuple[KnowledgeGraph, list[Chain]], min_precision: float, min_hits: int
) -> None:
    graph, chains = case
    config = Config().with_values({"rules.min_precision.chain": min_precision, "rules.min_hits": min_hits})
    expected: Counts = {}
    for chain in chains:
        rule = rule_of(graph, chain)
        support, hits = support_and_hits(as_set(graph.train), len(graph.entities), chain, "distinct")
        if rule.pattern == "chain" and hits >= min_hits and hits / support >= min_precision:
            expected[str(rule)] = support, hits
    assert counts_after(graph, config, [rule_of(graph, chain) for chain in chains]) == expected


def test_known_rules_patterns_and_long_chains_are_left_out() -> None:
    rows = [("a", "r", "b"), ("b", "r", "c"), ("c", "r", "d"), ("d", "r", "e"), ("a", "s", "e"), ("a", "s", "d")]
    graph = KnowledgeGraph.from_names(rows)
    proposed = ["r(X, Y) & r(Y, Z) & r(Z, U) => s(X, U)", "r(X, Y) & r(Y, Z) & r(Z, U) & r(U, V) => s(X, V)"]
    rules = [parse_rule(text) for text in (*proposed, "r(X, Y) => s(X, Y)")]
    config = Config().with_values({"rules.min_precision.chain": 0.0})
    assert counts_after(graph, config, rules) == {proposed[0]: (2, 1)}
    mined = config.with_values({"rules.max_length": 3})
    assert counts_after(graph, mined, rules) == {}


def test_a_written_rule_is_not_proposed_again() -> None:
    graph = demo_family()
    written = parse_statements("=1: sibling(A, B) & child(A, C) => child(B, C)", graph)
    rules = collect_rules(graph, Config(), written).rules
    proposed = [statement.rule.canonical for statement in written]
    assert proposed[0] not in rules.rules, "it is written in another way"
    assert with_proposals(rules, dict.fromkeys(proposed, 1.0), graph, Config()).rules == rules.rules


def test_the_most_used_chains_are_counted_first() -> None:
    rows = [(f"a{i}", relation, f"b{i}") for i in range(40) for relation in ("r", "s", "t")]
    rows += [(f"b{i}", "back", f"a{i}") for i in range(40)]
    graph = KnowledgeGraph.from_names(rows)
    rules = [parse_rule(f"{relation}(X, Y) & back(Y, Z) & r(Z, U) => t(X, U)") for relation in ("r", "s")]
    config = Config().with_values({"rules.counted_paths": 90})
    assert len(counts_after(graph, config.with_values({"rules.counted_paths": 0}), rules)) == 2
    mined = collect_rules(graph, config).rules
    for favourite in (0, 1):
        table = with_proposals(mined, {rule: 1.0 + (i == favourite) for i, rule in enumerate(rules)}, graph, config)
        assert set(table.rules) - set(mined.rules) == {rules[favourite]}


def test_facts_are_spread_over_the_relations() -> None:
    graph = demo_family()
    facts = facts_to_explain(graph, 3 * len(graph.relations), seed=0)
    assert np.bincount(facts[:, RELATION]).tolist() == [3] * len(graph.relations)
    assert graph.observed.contains(facts).all()
    assert len(facts_to_explain(graph, 10**9, seed=0)) == len(graph.train)
    few = [set(facts_to_explain(graph, 5, seed)[:, RELATION].tolist()) for seed in range(20)]
    assert {len(relations) for relations in few} == {5}
    assert len(set.union(*few)) == len(graph.relations), "every relation has its turn"
    assert not np.array_equal(facts, facts_to_explain(graph, len(facts), seed=1))
