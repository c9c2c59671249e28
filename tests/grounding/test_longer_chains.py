"""Mining of longer chains and of rules with constants, compared with brute force."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet.config import Config
from plogicnet.config.shapes import CHAIN_SHAPES
from plogicnet.graph import KnowledgeGraph
from plogicnet.grounding.engine import GroundingTask, Resources
from plogicnet.grounding.native import chains
from plogicnet.grounding.native.adjacency import Adjacency
from plogicnet.grounding.native.constants import Selection, mine_constants
from plogicnet.grounding.native.engine import NATIVE
from plogicnet.grounding.native.walks import Chain, EncodedStep
from plogicnet.grounding.rulebook import collect_rules, plan_mining
from plogicnet.grounding.sql.clauses import Clause, EncodedAtom
from plogicnet.grounding.sql.duckdb import SQL
from plogicnet.rules import Rule, Variable, parse_rule
from plogicnet.support.errors import InputError
from reference import as_set, graphs, numbered_graph, support_and_hits

EVERYTHING = Config().with_values(
    {
        "rules.max_length": 3,
        "rules.backward": True,
        "rules.constants": True,
        "rules.min_precision.chain": 0.0,
        "rules.min_precision.constant": 0.0,
    }
)
Counts = dict[str, tuple[int, int]]


def mined(graph: KnowledgeGraph, config: Config, pattern: str) -> Counts:
    table = NATIVE.mine(graph, config.rules, Resources(threads=1)).rules
    rows = zip(table.rules, table.support.tolist(), table.hits.tolist(), strict=True)
    return {str(rule): (support, hits) for rule, support, hits in rows if rule.pattern == pattern}


def with_hits(graph: KnowledgeGraph, rules: dict[str, Chain | Clause]) -> Counts:
    facts, n = as_set(graph.train), len(graph.entities)
    counts = {text: support_and_hits(facts, n, rule, "distinct") for text, rule in rules.items()}
    return {text: pair for text, pair in counts.items() if pair[1]}


def all_chains(graph: KnowledgeGraph) -> dict[str, Chain | Clause]:
    names = graph.relations.names
    steps = [EncodedStep(r, forward) for r in range(len(names)) for forward in (True, False)]
    bodies = [body for length in (2, 3) for body in itertools.product(steps, repeat=length)]
    patterns = [shape.forward for shape in CHAIN_SHAPES]
    found: dict[str, Chain | Clause] = {}
    for body in bodies:
        if tuple(step.forward for step in body) in patterns:
            continue
        for relation in range(len(names)):
            text = " & ".join(
                f"{names[s.relation]}({a}, {b})" if s.forward else f"{names[s.relation]}({b}, {a})"
                for s, (a, b) in zip(body, itertools.pairwise("ABCD"), strict=False)
            )
            rule = parse_rule(f"{text} => {names[relation]}(A, {'ABCD'[len(body)]})")
            found[str(rule.canonical)] = Chain(body, relation)
    return found


def all_constant_rules(graph: KnowledgeGraph) -> dict[str, Chain | Clause]:
    names, entities, x = graph.relations.names, graph.entities.names, Variable("X")
    rules: dict[str, Chain | Clause] = {}

    def atom(relation: int, forward: bool, other: int | Variable) -> tuple[EncodedAtom, str]:
        ends = (x, other) if forward else (other, x)
        words = [end.name if isinstance(end, Variable) else entities[end] for end in ends]
        return EncodedAtom(relation, *ends), f"{names[relation]}({', '.join(words)})"

    sides = [(r, forward) for r in range(len(names)) for forward in (True, False)]
    others: list[int | Variable] = [*range(len(entities)), Variable("Y")]
    for (r, to_tail), (s, forward), c, d in itertools.product(sides, sides, range(len(entities)), others):
        premise, premise_text = atom(s, forward, d)
        hypothesis, hypothesis_text = atom(r, to_tail, c)
        if premise == hypothesis:
            continue
        rule = parse_rule(f"{premise_text} => {hypothesis_text}")
        rules[str(rule.canonical)] = Clause((premise,), hypothesis)
    return rules


@settings(max_examples=40, deadline=None)
@given(graphs(max_entities=4, max_relations=2, max_triples=10))
def test_chains_of_any_direction_equal_brute_force(graph: KnowledgeGraph) -> None:
    assert mined(graph, EVERYTHING, "chain") == with_hits(graph, all_chains(graph))


@settings(max_examples=60, deadline=None)
@given(graphs(max_entities=4, max_relations=2, max_triples=10))
def test_rules_with_constants_equal_brute_force(graph: KnowledgeGraph) -> None:
    assert mined(graph, EVERYTHING, "constant") == with_hits(graph, all_constant_rules(graph))


@settings(max_examples=15, deadline=None)
@given(graphs(max_entities=5, max_relations=2, max_triples=14))
def test_sql_counts_the_same(graph: KnowledgeGraph) -> None:
    table = NATIVE.mine(graph, EVERYTHING.rules, Resources(threads=1)).rules
    support, hits = SQL.count(GroundingTask(graph, table.rules, "distinct"))
    assert support.tolist() == table.support.tolist()
    assert hits.tolist() == table.hits.tolist()


@settings(max_examples=30, deadline=None)
@given(graphs(max_entities=5, max_relations=2, max_triples=14))
def test_thresholds_select_from_all_rules(graph: KnowledgeGraph) -> None:
    strict = EVERYTHING.with_values(
        {"rules.min_hits": 2, "rules.min_precision.chain": 0.5, "rules.min_precision.constant": 0.75}
    )
    for pattern, threshold in (("chain", 0.5), ("constant", 0.75)):
        everything = mined(graph, EVERYTHING, pattern)
        expected = {text: (n, k) for text, (n, k) in everything.items() if k >= 2 and k / n >= threshold}
        assert mined(graph, strict, pattern) == expected


def test_forward_chains_of_three_steps_need_no_backward_steps() -> None:
    rows = [("a", "r", "b"), ("b", "r", "c"), ("c", "r", "d"), ("a", "s", "d"), ("e", "t", "a"), ("e", "u", "b")]
    graph = KnowledgeGraph.from_names(rows)
    config = Config().with_values({"rules.max_length": 3, "rules.min_precision.chain": 0.0})
    assert mined(graph, config, "chain") == {"r(X, Y) & r(Y, Z) & r(Z, U) => s(X, U)": (1, 1)}


def test_the_best_rules_of_each_constant_are_kept() -> None:
    rows = [(f"p{i}", "speaks", "french") for i in range(6)] + [(f"p{i}", "lives_in", "france") for i in range(6)]
    rows += [(f"p{i}", "likes", "tea") for i in range(6, 12)] + [("p0", "likes", "tea"), ("p6", "speaks", "french")]
    config = EVERYTHING.with_values({"rules.min_hits": 2})
    graph = KnowledgeGraph.from_names(rows)
    n_constants = len({text.split(" => ")[1] for text in mined(graph, config, "constant")})
    best = mined(graph, config.with_values({"rules.max_constants": n_constants}), "constant")
    assert len({text.split(" => ")[1] for text in best}) == len(best) == n_constants
    assert best["lives_in(X, france) => speaks(X, french)"] == (6, 6)


@settings(max_examples=20, deadline=None)
@given(graphs(max_entities=5, max_relations=3, max_triples=20), st.integers(1, 12))
def test_the_best_of_parts_are_the_best_of_all(graph: KnowledgeGraph, size: int) -> None:
    adjacency = Adjacency.of(graph.observed, len(graph.relations))
    everything, n = mine_constants(adjacency, EVERYTHING.rules, Resources(threads=1))
    found, n_found = mine_constants(adjacency, replace(EVERYTHING.rules, max_constants=size), Resources(threads=2))
    expected = Selection.of(adjacency, size).best(everything)
    assert n == n_found
    for column, values in vars(found).items():
        assert values.tolist() == getattr(expected, column).tolist()


def test_paths_counting_is_refused() -> None:
    graph = KnowledgeGraph.from_names([("a", "r", "b")])
    with pytest.raises(InputError, match=r"counted only with rules\.counting=distinct"):
        NATIVE.mine(graph, EVERYTHING.with_values({"rules.counting": "paths"}).rules, Resources())


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("lives_in(X, france) => speaks(X, french)", "constant"),
        ("lives_in(X, Y) => speaks(X, french)", "constant"),
        ("capital(france, X) => speaks(french, X)", "constant"),
        ("lives_in(X, X) => speaks(X, french)", "general"),
        ("lives_in(X, Y) & in(Y, Z) => speaks(X, french)", "general"),
    ],
)
def test_pattern_of_rules_with_constants(text: str, pattern: str) -> None:
    rule: Rule = parse_rule(text)
    assert rule.pattern == pattern


SAMPLED = {"rules.constants": False, "rules.min_hits": 2, "rules.min_precision.chain": 0.5}


@settings(max_examples=60, deadline=None)
@given(graphs(max_entities=5, max_relations=2, max_triples=16), st.booleans())
def test_a_sample_of_all_walks_finds_all_chains(graph: KnowledgeGraph, backward: bool) -> None:
    config = EVERYTHING.with_values(SAMPLED | {"rules.backward": backward})
    assert mined(graph, config.with_values({"rules.sampled_walks": 10**6}), "chain") == mined(graph, config, "chain")


@settings(max_examples=30, deadline=None)
@given(graphs(max_entities=8, max_relations=2, max_triples=40), st.integers(1, 60), st.integers(0, 300))
def test_a_sample_finds_some_chains_with_exact_counts(graph: KnowledgeGraph, walks: int, paths: int) -> None:
    everything = EVERYTHING.with_values(SAMPLED)
    config = everything.with_values({"rules.sampled_walks": walks, "rules.counted_paths": paths})
    table = NATIVE.mine(graph, config.rules, Resources(threads=1, seed=3))
    assert mined(graph, config, "chain").items() <= mined(graph, everything, "chain").items()
    again = NATIVE.mine(graph, config.rules, Resources(threads=2, seed=3))
    assert again.rules.rows() == table.rules.rows()
    assert again.mined == table.mined


def test_a_budget_becomes_a_plan_that_is_repeated() -> None:
    rng = np.random.default_rng(0)
    hub = np.stack([np.zeros(3000, int), np.zeros(3000, int), np.arange(1, 3001)], axis=1)
    other = np.stack([rng.integers(0, 3001, 9000), rng.integers(1, 4, 9000), rng.integers(0, 3001, 9000)], axis=1)
    graph = numbered_graph(3001, 4, map(tuple, np.concatenate([hub, other]).tolist()))
    start = Config().with_values(
        {"rules.max_length": 3, "rules.backward": True, "rules.min_precision.chain": 0.2, "rules.budget_s": 0.05}
    )
    planned = plan_mining(graph, start)
    assert planned.rules.budget_s == 0
    assert planned.rules.sampled_walks > 0
    assert planned.rules.counted_paths > 0
    assert plan_mining(graph, planned) == planned
    first, second = (collect_rules(graph, planned.with_values({"threads": n})) for n in (1, 2))
    assert first.rules.rows() == second.rules.rows()
    assert first.mined == second.mined
    assert first.mined["chains"]["exhaustive"] is False  # type: ignore[index]
    tiny = KnowledgeGraph.from_names([("a", "r", "b"), ("b", "s", "c"), ("c", "t", "a")])
    assert plan_mining(tiny, start.with_values({"rules.budget_s": 60})).rules.sampled_walks == 0


def test_too_many_chains_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "MAX_CHAINS", 5)
    rng = np.random.default_rng(0)
    graph = numbered_graph(9, 3, map(tuple, rng.integers(0, [9, 3, 9], (60, 3)).tolist()))
    with pytest.raises(InputError, match=r"more than 5 chains .* --set rules\.budget_s=100"):
        NATIVE.mine(graph, EVERYTHING.rules, Resources(threads=1))


@pytest.mark.parametrize("wanted", ["max_length=3", "backward=true", "constants=true"])
def test_the_sql_engine_refuses_to_mine_longer_rules(wanted: str) -> None:
    graph = KnowledgeGraph.from_names([("a", "r", "b")])
    config = Config().with_assignments([f"rules.{wanted}", "grounding.engine=sql"])
    with pytest.raises(InputError, match=rf"^rules\.{wanted}: .*grounding\.engine=native"):
        collect_rules(graph, config)
