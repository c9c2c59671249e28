"""Mining against trying every rule on every tuple of entities, and against the counts of the authors' program."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet import config
from plogicnet.graph import KnowledgeGraph, Vocabulary, as_triples, open_graph
from plogicnet.grounding import Chain, Counting, Network, chain_of, chains_of, ground_network, mine, mine_constraints
from plogicnet.rules import RuleTable
from plogicnet.support.errors import InputError
from reference import COUNTINGS, as_set, graphs, numbered_graph, possible_rules, support_and_hits

ALL = config.MinPrecision(0, 0, 0, 0)


def counted(graph: KnowledgeGraph, table: RuleTable) -> dict[Chain, tuple[int, int]]:
    columns = zip(table.rules, table.support.tolist(), table.hits.tolist(), strict=True)
    found = [(chain_of(rule, graph.relations), (support, hits)) for rule, support, hits in columns]
    assert len(dict(found)) == len(found)
    return dict(found)


def expected(graph: KnowledgeGraph, counting: Counting, pattern: str) -> dict[Chain, tuple[int, int]]:
    """Every candidate of a pattern: support and at least one hit."""
    facts, n = as_set(graph.train), len(graph.entities)
    tried = {c: support_and_hits(facts, n, c, counting) for c in possible_rules(len(graph.relations))[pattern]}
    return {chain: counts for chain, counts in tried.items() if counts[1]}


@settings(max_examples=60, deadline=None)
@given(graphs(), st.sampled_from(COUNTINGS))
def test_every_candidate_and_its_counts(graph: KnowledgeGraph, counting: Counting) -> None:
    mined = mine(graph, config.Rules(counting=counting, min_precision=ALL))
    by_pattern = {p: expected(graph, counting, p) for p in config.Rules().patterns}
    assert counted(graph, mined.rules) == {c: n for found in by_pattern.values() for c, n in found.items()}
    assert mined.candidates == len(mined.rules)
    assert mined.rules.counts() == {pattern: len(found) for pattern, found in by_pattern.items()}


@settings(max_examples=60, deadline=None)
@given(
    graphs(max_entities=4, max_relations=3),
    st.sampled_from(COUNTINGS),
    st.lists(st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5, 0.6, 1.0]), min_size=4, max_size=4),
    st.integers(1, 4),
    st.lists(st.sampled_from(config.Rules().patterns), unique=True),
)
def test_what_is_kept(
    graph: KnowledgeGraph,
    counting: Counting,
    least: list[float],
    min_support: int,
    patterns: list[config.Pattern],
) -> None:
    thresholds = config.MinPrecision(*least)
    mined = mine(graph, config.Rules(True, tuple(patterns), thresholds, min_support, counting))
    candidates = [(p, c, n) for p in patterns for c, n in expected(graph, counting, p).items()]
    kept = {
        chain: (support, hits)
        for pattern, chain, (support, hits) in candidates
        if hits / support >= getattr(thresholds, pattern) and support >= min_support
    }
    assert counted(graph, mined.rules) == kept
    assert mined.candidates == len(candidates)


@settings(max_examples=60, deadline=None)
@given(graphs(max_entities=3), st.sampled_from([0.0, 0.5, 0.75, 0.99, 1.0]))
def test_constraints(graph: KnowledgeGraph, least: float) -> None:
    chosen = config.Rules(min_precision=config.MinPrecision(irreflexive=least))
    table = mine_constraints(graph, chosen)
    kept = []
    for number, name in enumerate(graph.relations.names):
        facts = [(h, t) for h, r, t in as_set(graph.train) if r == number]
        proper = sum(h != t for h, t in facts)
        if facts and proper / len(facts) >= least:
            kept.append((f"=> not {name}(X, X)", len(facts), proper))
    assert list(zip(map(str, table.rules), table.support.tolist(), table.hits.tolist(), strict=True)) == kept
    assert not table.rules or set(table.patterns) == {"irreflexive"}
    assert mine(graph, chosen).constraints.rules == table.rules
    assert len(mine_constraints(graph, replace(chosen, irreflexive=False))) == 0


@pytest.mark.parametrize("counting", COUNTINGS)
def test_self_loops_alone_support_nothing_but_paths(counting: Counting) -> None:
    """r(a, a) is its own mirror image and its own composition."""
    mined = mine(numbered_graph(2, 1, [(0, 0, 0)]), config.Rules(counting=counting, min_precision=ALL))
    assert mined.rules.counts() == {
        "composition": int(counting == "paths"),
        "inverse": 0,
        "symmetric": int(counting == "paths"),
        "subrelation": 0,
    }


def test_a_precision_at_the_threshold_is_kept() -> None:
    """3 of 30 is 0.1, however the two are rounded."""
    train = [(i, 0, i + 1) for i in range(0, 60, 2)] + [(i + 1, 1, i) for i in range(0, 6, 2)]
    mined = mine(numbered_graph(60, 2, train), config.Rules())
    assert [(str(r), n) for r, n in zip(mined.rules.rules, mined.rules.support, strict=True)] == [
        ("r0(X, Y) => r1(Y, X)", 30),
        ("r1(X, Y) => r0(Y, X)", 3),
    ]


@pytest.mark.parametrize(
    ("name", "least", "candidates", "rules", "hidden", "groundings"),
    [
        (
            "wn18rr",
            0.1,
            165,
            {"composition": 15, "inverse": 0, "symmetric": 4, "subrelation": 0},
            12_050,
            None,
        ),
        (
            "fb15k-237",
            0.6,
            9_678,
            {"composition": 819, "inverse": 29, "symmetric": 27, "subrelation": 44},
            32_797,
            342_183,
        ),
    ],
)
def test_the_counts_that_the_authors_program_prints(
    name: str, least: float, candidates: int, rules: dict[str, int], hidden: int, groundings: int | None
) -> None:
    """One threshold for all patterns; the figures are printed by the authors' program."""
    root = os.environ.get("PLOGICNET_DATA")
    if not root or not (Path(root) / name).is_dir():
        pytest.skip(f"PLOGICNET_DATA is not set to a directory that holds {name}")
    graph = open_graph(name)
    thresholds = config.MinPrecision(least, least, least, least)
    mined = mine(graph, config.Rules(min_precision=thresholds, counting="paths"))
    network = ground_network(graph.observed, chains_of(mined.rules, graph), "paths")
    assert (mined.candidates, mined.rules.counts(), len(network.hidden)) == (candidates, rules, hidden)
    assert groundings is None or len(network.rule) == groundings


def test_a_hub_of_a_hundred_thousand_edges_is_counted_without_walking_every_path() -> None:
    """Ten thousand million two-step paths lead through the hub; counts are exact, and groundings are refused."""
    n = 100_000
    spokes, rim, hub = np.arange(n), n + np.arange(n), np.full(n, 2 * n)
    known = np.column_stack([spokes, np.full(n, 2), np.random.default_rng(0).permutation(rim)])
    into, out = np.column_stack([spokes, np.zeros(n), hub]), np.column_stack([hub, np.ones(n), rim])
    entities = Vocabulary("entity", tuple(map(str, range(2 * n + 1))))
    triples = [as_triples(np.concatenate([into, out, known])), as_triples([]), as_triples([])]
    graph = KnowledgeGraph.from_numbers(entities, Vocabulary("relation", ("a", "b", "c")), triples, "hub")
    for counting in COUNTINGS:
        rules = mine(graph, config.Rules(min_precision=ALL, counting=counting)).rules
        assert [str(rule) for rule in rules.rules] == ["a(X, Y) & b(Y, Z) => c(X, Z)"]
        assert (rules.support.tolist(), rules.hits.tolist()) == ([n * n], [n])
    with pytest.raises(InputError, match="10,000,000,000 groundings"):
        Network(graph, rules.rules, "distinct").groundings  # noqa: B018 (they are made when first asked for)
