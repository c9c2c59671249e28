"""The contract tests of engines, which compare them with a brute-force search.

The test of an engine calls `check_engine(engine)`. Rules that the engine does not support are skipped.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from plogicnet import config
from plogicnet.graph import FloatArray, KnowledgeGraph
from plogicnet.grounding.engine import CountingMode, Engine, GroundingTask, Resources
from plogicnet.grounding.groundings import GroundNetwork, grounding_schema
from plogicnet.grounding.mining import mine_constraints
from plogicnet.grounding.native.walks import chain_of
from plogicnet.grounding.sql.clauses import Clause, clause_of
from plogicnet.rules import Rule, Step, chain_rule, parse_rule
from reference import (
    COUNTINGS,
    Grounding,
    Triple,
    all_mineable_chains,
    as_set,
    chains,
    graphs,
    ground_by_brute_force,
    hidden,
    iter_groundings,
    numbered_graph,
    support_and_hits,
    to_groundings,
)

ENTITIES, RELATIONS = 4, 3
GENERAL = (
    "a(X, Y) & b(X, Y) => c(X, Y)",
    "a(X, Y) & b(Y, X) => c(X, X)",
    "a(X, Y) & b(X, Z) => c(X, Y)",
    "a(X, X) => c(X, X)",
    "a(X, e0) => b(X, e1)",
    "a(X, e0) => b(e0, X)",
    "a(e1, X) => b(X, e1)",
    "a(e0, X) => b(e1, X)",
    "a(X, Y) => b(X, e0)",
    "a(Y, X) => b(X, e0)",
    "a(X, Y) => b(e0, X)",
    "a(Y, X) => b(e0, X)",
    "a(e0, X) & b(X, Y) => c(Y, e0)",
    "a(X, Y) & a(Y, Z) & b(Z, X) => c(X, Z)",
)
THRESHOLDS = [0.0, 0.1, 0.25, 1 / 3, 0.5, 0.6, 1.0]
ONE_THREAD = Resources(threads=1)
Case = tuple[KnowledgeGraph, list[Rule]]


@st.composite
def general_rules(draw: st.DrawFn) -> Rule:
    """Draw a rule that is not a chain."""
    text = draw(st.sampled_from(GENERAL))
    for letter in "abc":
        text = text.replace(f"{letter}(", f"r{draw(st.integers(0, RELATIONS - 1))}(")
    premises, hypothesis = text.split(" => ")
    assume(hypothesis not in premises.split(" & "))  # not a valid rule
    return parse_rule(text)


def chain_rules() -> st.SearchStrategy[Rule]:
    """Draw chains of up to three steps, forward or backward."""
    return chains(RELATIONS).map(
        lambda chain: chain_rule([Step(f"r{m.relation}", m.forward) for m in chain.steps], f"r{chain.relation}")
    )


def small_graphs() -> st.SearchStrategy[KnowledgeGraph]:
    """Draw graphs that contain all names of the rules."""
    return graphs(ENTITIES, RELATIONS, 10).map(
        lambda graph: numbered_graph(ENTITIES, RELATIONS, as_set(graph.train)),
    )


def cases(engine: Engine) -> st.SearchStrategy[Case]:
    """Draw a graph and rules that the engine supports."""
    rules = st.lists(st.one_of(chain_rules(), general_rules()).filter(engine.supports), max_size=4)
    return st.tuples(small_graphs(), rules)


def check_engine(engine: Engine, examples: int = 20) -> None:
    """Check the contract, each part with this number of random graphs."""
    for check in (check_mining, check_counts, check_grounding, check_grounding_lookup):
        check(engine, examples)
    check_empty(engine)


def check_mining(engine: Engine, examples: int) -> None:
    """Check that mining returns all rules that reach the thresholds, with counts, sorted by pattern and relations."""

    @settings(max_examples=examples, deadline=None)
    @given(
        graphs(max_entities=4, max_relations=3),
        st.sampled_from(COUNTINGS),
        st.one_of(st.just([0.0] * 4), st.lists(st.sampled_from(THRESHOLDS), min_size=4, max_size=4)),
        st.integers(1, 3),
        st.one_of(st.just(config.Rules().patterns), st.lists(st.sampled_from(config.Rules().patterns), unique=True)),
    )
    def check(
        graph: KnowledgeGraph,
        counting: CountingMode,
        min_precision: list[float],
        min_support: int,
        patterns: Sequence[str],
    ) -> None:
        thresholds = config.MinPrecision(*min_precision)
        rule_settings = config.Rules(True, tuple(patterns), thresholds, min_support, counting)
        mined = engine.mine(graph, rule_settings, ONE_THREAD)
        facts, n = as_set(graph.train), len(graph.entities)
        expected, candidates = [], 0
        for pattern in patterns:
            for chain in all_mineable_chains(len(graph.relations))[pattern]:
                support, hits = support_and_hits(facts, n, chain, counting)
                candidates += hits > 0
                if hits and hits / support >= getattr(thresholds, pattern) and support >= min_support:
                    expected.append((chain, support, hits))
        columns = (mined.rules.rules, mined.rules.support.tolist(), mined.rules.hits.tolist())
        found = [(chain_of(rule, graph.relations), *counts) for rule, *counts in zip(*columns, strict=True)]
        assert found == expected
        assert mined.n_candidates == candidates
        assert mined.constraints.rows() == mine_constraints(graph, rule_settings).rows()

    check()


def check_counts(engine: Engine, examples: int) -> None:
    """Check support, hits and the number of groundings of each rule."""

    @settings(max_examples=examples, deadline=None)
    @given(cases(engine), st.sampled_from(COUNTINGS))
    def check(case: Case, counting: CountingMode) -> None:
        graph, rules = case
        facts, clauses = as_set(graph.train), to_clauses(case)
        support, hits = engine.count(GroundingTask(graph, rules, counting, resources=ONE_THREAD))
        expected = [support_and_hits(facts, ENTITIES, clause, counting) for clause in clauses]
        assert list(zip(support.tolist(), hits.tolist(), strict=True)) == expected
        n_groundings = [len(list(iter_groundings(facts, ENTITIES, clause, "paths"))) for clause in clauses]
        assert (
            engine.count_groundings(GroundingTask(graph, rules, counting, resources=ONE_THREAD)).tolist()
            == n_groundings
        )

    check()


def check_grounding(engine: Engine, examples: int) -> None:
    """Check O ∪ H and all groundings, as arrays, record batches and merged rows."""

    @settings(max_examples=examples, deadline=None)
    @given(cases(engine), st.sampled_from(COUNTINGS), st.booleans(), st.integers(0, 1000))
    def check(case: Case, counting: CountingMode, hidden_premises: bool, seed: int) -> None:
        graph, rules = case
        facts, clauses = as_set(graph.train), to_clauses(case)
        task = GroundingTask(graph, rules, counting, hidden_premises, ONE_THREAD)
        network = engine.ground(task)
        expected = ground_by_brute_force(facts, ENTITIES, clauses, counting, hidden_premises)
        assert network.triples.keys.tolist() == sorted(set(network.triples.keys.tolist()))
        assert as_set(network.triples.triples) == facts | as_set(network.hidden)
        assert as_set(network.triples.triples[network.observed]) == facts
        assert as_set(network.hidden) == hidden(facts, ENTITIES, clauses, counting)
        assert (network.n_rules, network.size) == (len(rules), len(expected))
        assert network.groundings_per_rule.tolist() == [
            sum(rule == i for rule, _ in expected) for i in range(len(rules))
        ]
        check_arrays(network, expected)
        check_record_batches(network, expected)
        check_merged(network, expected, np.random.default_rng(seed).random(len(network.triples)))
        again = engine.ground(task)
        for name in ("rule", "hypothesis", "premises"):
            assert getattr(again.load(), name).tolist() == getattr(network.load(), name).tolist()

    check()


def check_arrays(network: GroundNetwork, expected: Sequence[tuple[int, Grounding]]) -> None:
    """Check that the arrays contain each grounding, with distinct premises."""
    arrays = network.load()
    assert Counter(to_groundings(arrays)) == Counter(expected)
    for premises in arrays.premises:
        rows = premises[premises >= 0].tolist()
        assert rows
        assert len(set(rows)) == len(rows)


def check_record_batches(network: GroundNetwork, expected: Sequence[tuple[int, Grounding]]) -> None:
    """Check that the record batches contain each grounding, sorted."""
    reader = network.record_batches()
    table = reader.read_all()
    assert table.schema == grounding_schema(table.num_columns - 5) == reader.schema
    rows = [tuple(row.values()) for row in table.to_pylist()]
    assert [(h, rule, *premises) for rule, h, _, _, _, *premises in rows] == sorted(
        (h, rule, *premises) for rule, h, _, _, _, *premises in rows
    )
    triples: list[Triple] = [(h, r, t) for h, r, t in network.triples.triples.tolist()]
    assert all(triples[row[1]] == row[2:5] for row in rows)
    groundings = [
        (row[0], Grounding(triples[row[1]], frozenset(triples[p] for p in row[5:] if p >= 0))) for row in rows
    ]
    assert Counter(groundings) == Counter(expected)


def check_merged(network: GroundNetwork, expected: Sequence[tuple[int, Grounding]], targets: FloatArray) -> None:
    """Check the distinct rule multisets, sorted by first triple, with numbers of triples and sums of targets."""
    multisets: dict[Triple, Counter[int]] = {}
    for rule, grounding in expected:
        multisets.setdefault(grounding.hypothesis, Counter())[rule] += 1
    counts: Counter[tuple[int, ...]] = Counter()
    sums: Counter[tuple[int, ...]] = Counter()
    for (h, r, t), target in zip(network.triples.triples.tolist(), targets.tolist(), strict=True):
        if (h, r, t) in multisets:
            multiset = tuple(multisets[h, r, t][rule] for rule in range(network.n_rules))
            counts[multiset] += 1
            sums[multiset] += target
    merged = network.merge(targets)
    assert [tuple(row) for row in merged.matrix.toarray().astype(int).tolist()] == list(counts)
    assert merged.count.tolist() == list(counts.values())
    assert merged.total.tolist() == list(sums.values())


def check_grounding_lookup(engine: Engine, examples: int) -> None:
    """Check the groundings of one triple, which can be in O, in H or in neither."""

    @settings(max_examples=examples, deadline=None)
    @given(cases(engine), st.sampled_from(COUNTINGS), st.data())
    def check(case: Case, counting: CountingMode, data: st.DataObject) -> None:
        graph, rules = case
        facts = as_set(graph.train)
        expected: dict[Triple, dict[int, Counter[frozenset[Triple]]]] = {}
        for rule, (hypothesis, premises) in ground_by_brute_force(facts, ENTITIES, to_clauses(case), counting, False):
            expected.setdefault(hypothesis, {}).setdefault(rule, Counter())[premises] += 1
        triples = sorted(facts | set(expected) | {(0, 0, 1)})
        lookup = engine.grounding_lookup(GroundingTask(graph, rules, counting, resources=ONE_THREAD))
        for triple in data.draw(st.lists(st.sampled_from(triples), min_size=1, max_size=3, unique=True)):
            found = lookup(np.array(triple))
            by_rule = {
                rule: Counter(frozenset(as_set(p[p[:, 0] >= 0])) for p in premises) for rule, premises in found.items()
            }
            assert by_rule == expected.get(triple, {})

    check()


def check_empty(engine: Engine) -> None:
    """Check that the network without rules contains only the facts."""
    graph = numbered_graph(2, 1, [(0, 0, 1)])
    for hidden_premises in (False, True):
        network = engine.ground(GroundingTask(graph, (), "distinct", hidden_premises))
        assert (len(network.triples), len(network.hidden), network.size, network.n_rules) == (1, 0, 0, 0)
        assert network.record_batches().read_all().num_rows == 0
        assert network.merge(np.ones(1)).count.tolist() == []
    calls: list[Callable[[], Sequence[object]]] = [
        lambda: engine.count(GroundingTask(graph, (), "paths"))[0].tolist(),
        lambda: engine.count_groundings(GroundingTask(graph, (), "paths")).tolist(),
        lambda: list(engine.grounding_lookup(GroundingTask(graph, (), "distinct"))(graph.train[0])),
    ]
    assert [list(call()) for call in calls] == [[], [], []]
    assert not engine.supports(parse_rule("=> not r0(X, X)"))
    assert engine.scope


def to_clauses(case: Case) -> list[Clause]:
    """Convert the rules to the numbers of the graph."""
    graph, rules = case
    return [clause_of(rule, graph) for rule in rules]
