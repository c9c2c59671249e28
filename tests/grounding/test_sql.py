"""The SQL engine, compared with a brute-force search and with the native engine. See also the contract."""

import os
import sqlite3
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet import config
from plogicnet.config.shapes import CHAIN_SHAPES
from plogicnet.graph import RELATION, IntArray, KnowledgeGraph, TripleSet, open_graph
from plogicnet.grounding.engine import CountingMode, GroundingTask, MiningResult, Resources
from plogicnet.grounding.groundings import GroundNetwork
from plogicnet.grounding.native import mining
from plogicnet.grounding.native.engine import NATIVE
from plogicnet.grounding.native.walks import Chain, chain_of
from plogicnet.grounding.sql import duckdb
from plogicnet.grounding.sql.clauses import Clause, clause_of, templates_of
from plogicnet.grounding.sql.duckdb import SQL, count_clauses, ground_clauses, ground_triple
from plogicnet.grounding.sql.text import GroundingQueries, MiningQueries, create_groundings_table, sorted_groundings
from plogicnet.rules import Atom, Constant, Rule, Variable, parse_rule
from plogicnet.support.errors import InputError
from reference import (
    COUNTINGS,
    as_set,
    candidates,
    graphs,
    graphs_and_clauses,
    ground_by_brute_force,
    ground_by_joins,
    hidden,
    iter_groundings,
    numbered_graph,
    paths,
    support_and_hits,
    to_groundings,
)

ALL = config.MinPrecision(0, 0, 0, 0)


def assert_same_mined(found: MiningResult, native: MiningResult) -> None:
    assert found.n_candidates == native.n_candidates
    assert found.rules.rows() == native.rules.rows()
    assert found.constraints.rows() == native.constraints.rows()


def rows(network: GroundNetwork) -> IntArray:
    arrays = network.load()
    columns = np.column_stack([arrays.rule, arrays.hypothesis, np.sort(arrays.premises, axis=1)])
    return np.asarray(columns[np.lexsort(columns.T[::-1])])


def assert_same_network(found: GroundNetwork, native: GroundNetwork) -> None:
    assert np.array_equal(found.triples.triples, native.triples.triples)
    assert np.array_equal(found.observed, native.observed)
    assert np.array_equal(rows(found), rows(native))
    assert np.array_equal(found.multisets.row_of_triple, native.multisets.row_of_triple)
    for name in ("indptr", "indices", "data"):
        assert np.array_equal(getattr(found.multisets.matrix, name), getattr(native.multisets.matrix, name))


# Mining


@settings(max_examples=10, deadline=None)
@given(graphs(), st.sampled_from(COUNTINGS), st.integers(2, 8))
def test_mining_does_not_depend_on_the_pieces(graph: KnowledgeGraph, counting: CountingMode, chunk_paths: int) -> None:
    rule_settings = config.Rules(counting=counting, min_precision=ALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duckdb, "CHUNK_PATHS", chunk_paths)
        found = SQL.mine(graph, rule_settings, Resources(threads=1))
    assert_same_mined(found, mining.mine(graph, rule_settings))


# Grounding


@settings(max_examples=40, deadline=None)
@given(graphs_and_clauses(), st.sampled_from(COUNTINGS), st.booleans())
def test_clauses_as_by_brute_force(
    case: tuple[KnowledgeGraph, list[Clause]], counting: CountingMode, hidden_premises: bool
) -> None:
    """Includes clauses that the rule syntax does not allow, with the hypothesis as a premise."""
    graph, clauses = case
    facts, n = as_set(graph.train), len(graph.entities)
    found = ground_clauses(graph.observed, clauses, counting, hidden_premises).load()
    assert Counter(to_groundings(found)) == Counter(ground_by_brute_force(facts, n, clauses, counting, hidden_premises))
    assert as_set(found.hidden) == hidden(facts, n, clauses, counting)
    support, hits = count_clauses(graph.observed, clauses, counting)
    expected = [support_and_hits(facts, n, clause, counting) for clause in clauses]
    assert list(zip(support.tolist(), hits.tolist(), strict=True)) == expected


@settings(max_examples=25, deadline=None)
@given(st.data(), graphs_and_clauses(), st.sampled_from(COUNTINGS))
def test_groundings_of_one_triple_as_by_brute_force(
    data: st.DataObject, case: tuple[KnowledgeGraph, list[Clause]], counting: CountingMode
) -> None:
    graph, clauses = case
    facts, n = as_set(graph.train), len(graph.entities)
    concluded = sorted(facts | hidden(facts, n, clauses, counting) | {(0, 0, 1)})
    triple = data.draw(st.sampled_from(concluded))
    found = ground_triple(graph.observed, clauses, np.array(triple), counting, Resources())
    premises = Counter(
        (i, frozenset(as_set(p[p[:, 0] >= 0]))) for i, premises_of_rule in found.items() for p in premises_of_rule
    )
    groundings = [(i, g) for i, clause in enumerate(clauses) for g in iter_groundings(facts, n, clause, counting)]
    assert premises == Counter((i, g.premises) for i, g in groundings if g.hypothesis == triple)
    assert list(found) == sorted(found)


FAMILY = [
    ("anna", "parent", "ben"),
    ("anna", "parent", "cleo"),
    ("ben", "lives_in", "paris"),
    ("cleo", "lives_in", "paris"),
    ("dora", "lives_in", "oslo"),
    ("ben", "likes", "cleo"),
    ("cleo", "likes", "ben"),
    ("ben", "likes", "ben"),
]


@pytest.mark.parametrize(
    ("text", "concluded"),
    [
        ("lives_in(X, paris) => likes(X, paris)", {("ben", "paris"), ("cleo", "paris")}),
        ("lives_in(X, paris) => likes(anna, X)", {("anna", "ben"), ("anna", "cleo")}),
        ("likes(X, X) => lives_in(X, X)", {("ben", "ben")}),
        ("parent(X, Y) & likes(Y, Y) => lives_in(X, X)", {("anna", "anna")}),
        ("parent(X, Y) & parent(X, Z) & likes(Y, Z) => lives_in(X, Z)", {("anna", "ben"), ("anna", "cleo")}),
        ("parent(X, Y) & lives_in(Y, Z) & lives_in(Y, paris) => lives_in(X, Z)", {("anna", "paris")}),
        ("parent(anna, ben) => lives_in(anna, oslo)", {("anna", "oslo")}),
        ("likes(X, Y) & likes(Y, X) => parent(X, Y)", {("ben", "ben"), ("ben", "cleo"), ("cleo", "ben")}),
        ("parent(X, Y) & lives_in(Z, U) & likes(Y, Z) => lives_in(X, U)", {("anna", "paris")}),
    ],
)
def test_conclusions_of_general_rules(text: str, concluded: set[tuple[str, str]]) -> None:
    graph = KnowledgeGraph.from_names(FAMILY)
    found = SQL.ground(GroundingTask(graph, [parse_rule(text)], "distinct")).load()
    names = graph.entities.names
    assert {(names[h], names[t]) for h, _, t in found.triples.triples[found.hypothesis].tolist()} == concluded


def test_without_facts_there_are_no_groundings() -> None:
    graph = numbered_graph(2, 1, [(0, 0, 1)])
    clause = clause_of(parse_rule("r0(X, Y) => r0(Y, X)"), graph)
    nothing = TripleSet.of([], entities=2)
    assert len(ground_clauses(nothing, [clause], "paths").triples) == 0
    assert [column.tolist() for column in count_clauses(nothing, [clause], "paths")] == [[0], [0]]


def test_entity_numbers_can_exceed_32_bits() -> None:
    far = 2**31 + 5
    clause = clause_of(parse_rule("r0(X, Y) => r0(Y, X)"), numbered_graph(2, 1, [(0, 0, 1)]))
    found = ground_clauses(TripleSet.of([(far, 0, 1)], entities=far + 1), [clause], "distinct")
    assert found.hidden.tolist() == [[1, 0, far]]


# Errors


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (parse_rule("likez(X, Y) => likes(Y, X)"), "unknown relation 'likez'. Did you mean 'likes'"),
        (parse_rule("likes(X, Y) => likez(Y, X)"), "unknown relation 'likez'"),
        (parse_rule("lives_in(X, pariss) => likes(X, X)"), "unknown entity 'pariss'. Did you mean 'paris'"),
        (parse_rule("=> not likes(X, X)"), "a constraint has no groundings"),
        (
            Rule((Atom("likes", Variable("X"), Variable("X")),), Atom("likes", Variable("X"), Variable("Y"))),
            "the variable 'Y' must also be in a premise",
        ),
        (
            Rule(
                (Atom("likes", Variable("X"), Constant("ben")), Atom("likes", Variable("Y"), Constant("ben"))),
                Atom("parent", Variable("X"), Variable("Y")),
            ),
            "no shared variables connect this premise",
        ),
        (Rule((), Atom("likes", Variable("X"), Variable("Y"))), "at least one premise"),
    ],
)
def test_invalid_clauses_raise(rule: Rule, message: str) -> None:
    with pytest.raises(InputError, match=message):
        clause_of(rule, KnowledgeGraph.from_names(FAMILY))


def test_without_duckdb_the_error_has_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(InputError, match=r"pip install 'plogicnet\[sql\]'"):
        SQL.mine(numbered_graph(2, 1, [(0, 0, 1)]), config.Rules(), Resources())
    with pytest.raises(InputError, match=r"pip install 'plogicnet\[sql\]'"):
        SQL.check_available()


def test_too_little_memory_raises_input_error() -> None:
    rng = np.random.default_rng(0)
    facts = rng.integers(0, 300, (90_000, 3))
    facts[:, RELATION] = 0
    observed = TripleSet.of(facts, entities=300)
    clause = clause_of(parse_rule("r0(X, Y) & r0(Y, Z) => r0(Z, X)"), numbered_graph(2, 1, [(0, 0, 1)]))
    with pytest.raises(InputError, match=r"ran out of memory \(3 MB\)"):
        count_clauses(observed, [clause], "distinct", Resources(memory_mb=3))


# The SQL text


@settings(max_examples=15, deadline=None)
@given(graphs_and_clauses(), st.sampled_from(COUNTINGS))
def test_sqlite_runs_the_same_queries(case: tuple[KnowledgeGraph, list[Clause]], counting: CountingMode) -> None:
    """Compares mined rules, counts, conclusions and groundings."""
    graph, clauses = case
    with sqlite3.connect(":memory:") as database:
        pieces = {
            "piece_forward": np.zeros(len(graph.observed), int),
            "piece_backward": np.zeros(len(graph.observed), int),
        }
        fill(database, "facts", duckdb._triple_columns(graph.observed) | pieces)
        by_sqlite = []
        for shape in CHAIN_SHAPES:
            queries = MiningQueries(shape, counting)
            for statement in (*queries.create_tables, *queries.count_piece(0)):
                database.execute(statement)
            by_sqlite += [(shape.name, *row) for row in database.execute(queries.candidates)]
            for statement in queries.drop_tables:
                database.execute(statement)
        mined = SQL.mine(graph, config.Rules(counting=counting, min_precision=ALL), Resources()).rules
        chains = [chain_of(rule, graph.relations) for rule in mined.rules]
        assert by_sqlite == [
            (rule.pattern, *(step.relation for step in chain.steps), chain.relation, support, hits)
            for rule, chain, support, hits in zip(mined.rules, chains, mined.support, mined.hits, strict=True)
        ]
        stored = ground_clauses(graph.observed, clauses, counting)
        concluded, width = set(), max(len(clause.premises) for clause in clauses)
        database.execute(create_groundings_table(width))
        fill(database, "variables", duckdb._triple_columns(stored.triples))
        fill(database, "facts", duckdb._triple_columns(stored.triples, stored.observed))
        counts: dict[int, tuple[int, int]] = {}
        for template in templates_of(enumerate(clauses)):
            fill(database, "clauses", template.columns)
            grounding_queries = GroundingQueries(template.terms, counting)
            concluded |= set(database.execute(grounding_queries.conclusions))
            counts |= {clause: (support, hits) for clause, support, hits in database.execute(grounding_queries.counts)}
            database.execute(f"INSERT INTO groundings {grounding_queries.groundings(width)}")
        expected = [tuple(row.values()) for row in stored.record_batches().read_all().to_pylist()]
        assert list(database.execute(sorted_groundings(width))) == expected
        assert concluded - as_set(graph.train) == as_set(stored.hidden)
        found = zip(*(column.tolist() for column in count_clauses(graph.observed, clauses, counting)), strict=True)
        assert [counts.get(i, (0, 0)) for i in range(len(clauses))] == list(found)


def fill(database: sqlite3.Connection, name: str, columns: dict[str, IntArray]) -> None:
    database.execute(f"DROP TABLE IF EXISTS {name}")
    database.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
    marks = ", ".join("?" * len(columns))
    database.executemany(f"INSERT INTO {name} VALUES ({marks})", np.column_stack(list(columns.values())).tolist())


# The benchmark data sets


def open_or_skip(name: str) -> KnowledgeGraph:
    root = os.environ.get("PLOGICNET_DATA")
    if not root or not (Path(root) / name).is_dir():
        pytest.skip(f"PLOGICNET_DATA is not set to a directory that contains {name}")
    return open_graph(name)


@pytest.mark.parametrize("counting", COUNTINGS)
@pytest.mark.parametrize("name", ["umls", "kinship", "nations", "wn18rr"])
def test_data_sets_as_with_the_native_engine(name: str, counting: CountingMode) -> None:
    graph = open_or_skip(name)
    rule_settings = config.Rules(counting=counting)
    mined = mining.mine(graph, rule_settings)
    assert_same_mined(SQL.mine(graph, rule_settings, Resources()), mined)
    task = GroundingTask(graph, mined.rules.rules, counting)
    assert_same_network(SQL.ground(task), NATIVE.ground(task))
    support, hits = SQL.count(task)
    assert (support.tolist(), hits.tolist()) == (mined.rules.support.tolist(), mined.rules.hits.tolist())


def test_wn18rr_as_by_joining_dictionaries() -> None:
    graph = open_or_skip("wn18rr")
    counting: CountingMode = "distinct"
    facts = as_set(graph.train)
    joined = paths(facts)
    mined = mining.mine(graph, config.Rules(counting=counting, min_precision=ALL)).rules
    columns = zip(mined.rules, mined.support.tolist(), mined.hits.tolist(), strict=True)
    assert {chain_of(rule, graph.relations): (support, hits) for rule, support, hits in columns} == (
        candidates(facts, joined, counting)
    )
    kept = mined.take(mined.precision >= 0.6)
    chains: list[Chain] = [chain_of(rule, graph.relations) for rule in kept.rules]
    found = NATIVE.ground(GroundingTask(graph, kept.rules, counting))
    assert Counter(to_groundings(found.load())) == Counter(ground_by_joins(joined, chains, counting))
