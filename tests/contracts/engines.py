"""The contract of an engine: what mining, weight learning and explanation rely on, against trying every assignment.

A test of an engine calls `check_engine(engine)`. Rules that the engine does not support are left out.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from plogicnet import config
from plogicnet.graph import FloatArray, KnowledgeGraph
from plogicnet.grounding.engine import Counting, Engine, Job, Resources
from plogicnet.grounding.groundings import Grounded, link_schema
from plogicnet.grounding.mining import mine_constraints
from plogicnet.grounding.native.walks import chain_of
from plogicnet.grounding.sql.clauses import Clause, clause_of
from plogicnet.rules import Rule, Step, chain_rule, parse_rule
from reference import (
    COUNTINGS,
    Instance,
    Triple,
    as_set,
    chains,
    graphs,
    hidden,
    instances,
    network,
    numbered_graph,
    possible_rules,
    support_and_hits,
    unpacked,
)

ENTITIES, RELATIONS = 4, 3
GENERAL = (
    "a(X, Y) & b(X, Y) => c(X, Y)",
    "a(X, Y) & b(Y, X) => c(X, X)",
    "a(X, Y) & b(X, Z) => c(X, Y)",
    "a(X, X) => c(X, X)",
    "a(X, e0) => b(X, e1)",
    "a(e0, X) & b(X, Y) => c(Y, e0)",
    "a(X, Y) & a(Y, Z) & b(Z, X) => c(X, Z)",
)
THRESHOLDS = [0.0, 0.1, 0.25, 1 / 3, 0.5, 0.6, 1.0]
ONE_THREAD = Resources(threads=1)
Case = tuple[KnowledgeGraph, list[Rule]]


@st.composite
def general_rules(draw: st.DrawFn) -> Rule:
    """A rule that is no chain, its relations drawn."""
    text = draw(st.sampled_from(GENERAL))
    for letter in "abc":
        text = text.replace(f"{letter}(", f"r{draw(st.integers(0, RELATIONS - 1))}(")
    premises, hypothesis = text.split(" => ")
    assume(hypothesis not in premises.split(" & "))  # that is no rule
    return parse_rule(text)


def chain_rules() -> st.SearchStrategy[Rule]:
    """A chain of up to three steps, forwards or backwards."""
    return chains(RELATIONS).map(
        lambda chain: chain_rule([Step(f"r{m.relation}", m.forward) for m in chain.moves], f"r{chain.relation}")
    )


def some_facts() -> st.SearchStrategy[KnowledgeGraph]:
    """A graph that has every name of the rules."""
    return graphs(ENTITIES, RELATIONS, 10).map(
        lambda graph: numbered_graph(ENTITIES, RELATIONS, as_set(graph.train)),
    )


def cases(engine: Engine) -> st.SearchStrategy[Case]:
    """A graph, and rules that the engine supports."""
    rules = st.lists(st.one_of(chain_rules(), general_rules()).filter(engine.supports), max_size=4)
    return st.tuples(some_facts(), rules)


def check_engine(engine: Engine, examples: int = 20) -> None:
    """All of the contract, each part on so many random graphs."""
    for check in (check_mining, check_counts, check_grounding, check_explaining):
        check(engine, examples)
    check_empty(engine)


def check_mining(engine: Engine, examples: int) -> None:
    """Every rule of the shapes with its counts, those kept that suffice, by pattern and then by relations."""

    @settings(max_examples=examples, deadline=None)
    @given(
        graphs(max_entities=4, max_relations=3),
        st.sampled_from(COUNTINGS),
        st.one_of(st.just([0.0] * 4), st.lists(st.sampled_from(THRESHOLDS), min_size=4, max_size=4)),
        st.integers(1, 3),
        st.one_of(st.just(config.Rules().patterns), st.lists(st.sampled_from(config.Rules().patterns), unique=True)),
    )
    def check(
        graph: KnowledgeGraph, counting: Counting, least: list[float], min_support: int, patterns: Sequence[str]
    ) -> None:
        thresholds = config.MinPrecision(*least)
        chosen = config.Rules(True, tuple(patterns), thresholds, min_support, counting)
        mined = engine.mine(graph, chosen, ONE_THREAD)
        facts, n = as_set(graph.train), len(graph.entities)
        expected, candidates = [], 0
        for pattern in patterns:
            for chain in possible_rules(len(graph.relations))[pattern]:
                support, hits = support_and_hits(facts, n, chain, counting)
                candidates += hits > 0
                if hits and hits / support >= getattr(thresholds, pattern) and support >= min_support:
                    expected.append((chain, support, hits))
        columns = (mined.rules.rules, mined.rules.support.tolist(), mined.rules.hits.tolist())
        found = [(chain_of(rule, graph.relations), *counts) for rule, *counts in zip(*columns, strict=True)]
        assert found == expected
        assert mined.candidates == candidates
        assert mined.constraints.rows() == mine_constraints(graph, chosen).rows()

    check()


def check_counts(engine: Engine, examples: int) -> None:
    """Support, hits and the number of groundings of each rule."""

    @settings(max_examples=examples, deadline=None)
    @given(cases(engine), st.sampled_from(COUNTINGS))
    def check(case: Case, counting: Counting) -> None:
        graph, rules = case
        facts, clauses = as_set(graph.train), numbered(case)
        support, hits = engine.count(Job(graph, rules, counting, resources=ONE_THREAD))
        tried = [support_and_hits(facts, ENTITIES, clause, counting) for clause in clauses]
        assert list(zip(support.tolist(), hits.tolist(), strict=True)) == tried
        every = [len(list(instances(facts, ENTITIES, clause, "paths"))) for clause in clauses]
        assert engine.expect(Job(graph, rules, counting, resources=ONE_THREAD)).tolist() == every

    check()


def check_grounding(engine: Engine, examples: int) -> None:
    """O ∪ H and every grounding, in all forms."""

    @settings(max_examples=examples, deadline=None)
    @given(cases(engine), st.sampled_from(COUNTINGS), st.booleans(), st.integers(0, 1000))
    def check(case: Case, counting: Counting, hidden_premises: bool, seed: int) -> None:
        graph, rules = case
        facts, clauses = as_set(graph.train), numbered(case)
        job = Job(graph, rules, counting, hidden_premises, ONE_THREAD)
        found = engine.ground(job)
        expected = network(facts, ENTITIES, clauses, counting, hidden_premises)
        assert found.triples.keys.tolist() == sorted(set(found.triples.keys.tolist()))
        assert as_set(found.triples.triples) == facts | as_set(found.hidden)
        assert as_set(found.triples.triples[found.observed]) == facts
        assert as_set(found.hidden) == hidden(facts, ENTITIES, clauses, counting)
        assert (found.rules, found.size) == (len(rules), len(expected))
        assert found.rule_counts.tolist() == [sum(rule == i for rule, _ in expected) for i in range(len(rules))]
        check_arrays(found, expected)
        check_links(found, expected)
        check_merged(found, expected, np.random.default_rng(seed).random(len(found.triples)))
        again = engine.ground(job)
        for name in ("rule", "hypothesis", "premises"):
            assert getattr(again.arrays(), name).tolist() == getattr(found.arrays(), name).tolist()

    check()


def check_arrays(found: Grounded, expected: Sequence[tuple[int, Instance]]) -> None:
    """Each grounding, with each of its premises once."""
    arrays = found.arrays()
    assert Counter(unpacked(arrays)) == Counter(expected)
    for premises in arrays.premises:
        rows = premises[premises >= 0].tolist()
        assert rows
        assert len(set(rows)) == len(rows)


def check_links(found: Grounded, expected: Sequence[tuple[int, Instance]]) -> None:
    """The same as record batches, in order."""
    reader = found.links()
    table = reader.read_all()
    assert table.schema == link_schema(table.num_columns - 5) == reader.schema
    rows = [tuple(row.values()) for row in table.to_pylist()]
    assert [(h, rule, *premises) for rule, h, _, _, _, *premises in rows] == sorted(
        (h, rule, *premises) for rule, h, _, _, _, *premises in rows
    )
    triples: list[Triple] = [(h, r, t) for h, r, t in found.triples.triples.tolist()]
    assert all(triples[row[1]] == row[2:5] for row in rows)
    linked = [(row[0], Instance(triples[row[1]], frozenset(triples[p] for p in row[5:] if p >= 0))) for row in rows]
    assert Counter(linked) == Counter(expected)


def check_merged(found: Grounded, expected: Sequence[tuple[int, Instance]], targets: FloatArray) -> None:
    """The distinct rule multisets in the order of their first triple, their triples counted and targets summed."""
    multisets: dict[Triple, Counter[int]] = {}
    for rule, instance in expected:
        multisets.setdefault(instance.hypothesis, Counter())[rule] += 1
    counts: Counter[tuple[int, ...]] = Counter()
    sums: Counter[tuple[int, ...]] = Counter()
    for (h, r, t), target in zip(found.triples.triples.tolist(), targets.tolist(), strict=True):
        if (h, r, t) in multisets:
            multiset = tuple(multisets[h, r, t][rule] for rule in range(found.rules))
            counts[multiset] += 1
            sums[multiset] += target
    merged = found.merged(targets)
    assert [tuple(row) for row in merged.matrix.toarray().astype(int).tolist()] == list(counts)
    assert merged.count.tolist() == list(counts.values())
    assert merged.total.tolist() == list(sums.values())


def check_explaining(engine: Engine, examples: int) -> None:
    """The groundings of one triple are those of the network, whether it is in O, in H or in neither."""

    @settings(max_examples=examples, deadline=None)
    @given(cases(engine), st.sampled_from(COUNTINGS), st.data())
    def check(case: Case, counting: Counting, data: st.DataObject) -> None:
        graph, rules = case
        facts = as_set(graph.train)
        expected: dict[Triple, dict[int, Counter[frozenset[Triple]]]] = {}
        for rule, (hypothesis, premises) in network(facts, ENTITIES, numbered(case), counting, False):
            expected.setdefault(hypothesis, {}).setdefault(rule, Counter())[premises] += 1
        asked = sorted(facts | set(expected) | {(0, 0, 1)})
        explain = engine.explain(Job(graph, rules, counting, resources=ONE_THREAD))
        for triple in data.draw(st.lists(st.sampled_from(asked), min_size=1, max_size=3, unique=True)):
            found = explain(np.array(triple))
            got = {
                rule: Counter(frozenset(as_set(p[p[:, 0] >= 0])) for p in premises) for rule, premises in found.items()
            }
            assert got == expected.get(triple, {})

    check()


def check_empty(engine: Engine) -> None:
    """Without rules there are the facts alone."""
    graph = numbered_graph(2, 1, [(0, 0, 1)])
    for hidden_premises in (False, True):
        found = engine.ground(Job(graph, (), "distinct", hidden_premises))
        assert (len(found.triples), len(found.hidden), found.size, found.rules) == (1, 0, 0, 0)
        assert found.links().read_all().num_rows == 0
        assert found.merged(np.ones(1)).count.tolist() == []
    asked: list[Callable[[], Sequence[object]]] = [
        lambda: engine.count(Job(graph, (), "paths"))[0].tolist(),
        lambda: engine.expect(Job(graph, (), "paths")).tolist(),
        lambda: list(engine.explain(Job(graph, (), "distinct"))(graph.train[0])),
    ]
    assert [list(ask()) for ask in asked] == [[], [], []]
    assert not engine.supports(parse_rule("=> not r0(X, X)"))
    assert engine.scope


def numbered(case: Case) -> list[Clause]:
    """The rules in the graph's numbers, for the reference."""
    graph, rules = case
    return [clause_of(rule, graph) for rule in rules]
