"""The SQL engine against trying every tuple of entities, and against the native engine; see also the contract."""

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
from plogicnet.grounding.engine import Counting, Job, Mined, Resources
from plogicnet.grounding.groundings import Grounded
from plogicnet.grounding.native import mining
from plogicnet.grounding.native.engine import NATIVE
from plogicnet.grounding.native.walks import Chain, chain_of
from plogicnet.grounding.sql import duckdb
from plogicnet.grounding.sql.clauses import Clause, clause_of, forms_of
from plogicnet.grounding.sql.duckdb import SQL, count_clauses, ground_clauses, ground_triple
from plogicnet.grounding.sql.text import JoinText, MiningText, create_links, ordered_links
from plogicnet.rules import Atom, Constant, Rule, Variable, parse_rule
from plogicnet.support.errors import InputError
from reference import (
    COUNTINGS,
    as_set,
    candidates,
    graphs,
    graphs_and_clauses,
    hidden,
    instances,
    joined_network,
    network,
    numbered_graph,
    paths,
    support_and_hits,
    unpacked,
)

ALL = config.MinPrecision(0, 0, 0, 0)


def assert_same_mined(found: Mined, native: Mined) -> None:
    assert found.candidates == native.candidates
    assert found.rules.rows() == native.rules.rows()
    assert found.constraints.rows() == native.constraints.rows()


def rows(grounded: Grounded) -> IntArray:
    arrays = grounded.arrays()
    found = np.column_stack([arrays.rule, arrays.hypothesis, np.sort(arrays.premises, axis=1)])
    return np.asarray(found[np.lexsort(found.T[::-1])])


def assert_same_network(found: Grounded, native: Grounded) -> None:
    assert np.array_equal(found.triples.triples, native.triples.triples)
    assert np.array_equal(found.observed, native.observed)
    assert np.array_equal(rows(found), rows(native))
    assert np.array_equal(found.multisets.number, native.multisets.number)
    for name in ("indptr", "indices", "data"):
        assert np.array_equal(getattr(found.multisets.matrix, name), getattr(native.multisets.matrix, name))


# Mining


@settings(max_examples=10, deadline=None)
@given(graphs(), st.sampled_from(COUNTINGS), st.integers(2, 8))
def test_pieces_add_up(graph: KnowledgeGraph, counting: Counting, paths_at_once: int) -> None:
    chosen = config.Rules(counting=counting, min_precision=ALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duckdb, "PATHS_AT_ONCE", paths_at_once)
        found = SQL.mine(graph, chosen, Resources(threads=1))
    assert_same_mined(found, mining.mine(graph, chosen))


# Grounding


@settings(max_examples=40, deadline=None)
@given(graphs_and_clauses(), st.sampled_from(COUNTINGS), st.booleans())
def test_clauses_as_by_trying(
    case: tuple[KnowledgeGraph, list[Clause]], counting: Counting, hidden_premises: bool
) -> None:
    """Clauses that no text can give, too: a hypothesis among its own premises."""
    graph, clauses = case
    facts, n = as_set(graph.train), len(graph.entities)
    found = ground_clauses(graph.observed, clauses, counting, hidden_premises).arrays()
    assert Counter(unpacked(found)) == Counter(network(facts, n, clauses, counting, hidden_premises))
    assert as_set(found.hidden) == hidden(facts, n, clauses, counting)
    support, hits = count_clauses(graph.observed, clauses, counting)
    tried = [support_and_hits(facts, n, clause, counting) for clause in clauses]
    assert list(zip(support.tolist(), hits.tolist(), strict=True)) == tried


@settings(max_examples=25, deadline=None)
@given(st.data(), graphs_and_clauses(), st.sampled_from(COUNTINGS))
def test_the_groundings_of_one_triple(
    data: st.DataObject, case: tuple[KnowledgeGraph, list[Clause]], counting: Counting
) -> None:
    graph, clauses = case
    facts, n = as_set(graph.train), len(graph.entities)
    concluded = sorted(facts | hidden(facts, n, clauses, counting) | {(0, 0, 1)})
    triple = data.draw(st.sampled_from(concluded))
    found = ground_triple(graph.observed, clauses, np.array(triple), counting, Resources())
    got = Counter((i, frozenset(as_set(p[p[:, 0] >= 0]))) for i, every in found.items() for p in every)
    tried = [(i, g) for i, clause in enumerate(clauses) for g in instances(facts, n, clause, counting)]
    assert got == Counter((i, g.premises) for i, g in tried if g.hypothesis == triple)
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
def test_written_rules_of_every_kind(text: str, concluded: set[tuple[str, str]]) -> None:
    graph = KnowledgeGraph.from_names(FAMILY)
    found = SQL.ground(Job(graph, [parse_rule(text)], "distinct")).arrays()
    names = graph.entities.names
    assert {(names[h], names[t]) for h, _, t in found.triples.triples[found.hypothesis].tolist()} == concluded


def test_no_facts_no_groundings() -> None:
    graph = numbered_graph(2, 1, [(0, 0, 1)])
    clause = clause_of(parse_rule("r0(X, Y) => r0(Y, X)"), graph)
    nothing = TripleSet.of([], entities=2)
    assert len(ground_clauses(nothing, [clause], "paths").triples) == 0
    assert [column.tolist() for column in count_clauses(nothing, [clause], "paths")] == [[0], [0]]


def test_numbers_beyond_32_bits() -> None:
    far = 2**31 + 5
    clause = clause_of(parse_rule("r0(X, Y) => r0(Y, X)"), numbered_graph(2, 1, [(0, 0, 1)]))
    found = ground_clauses(TripleSet.of([(far, 0, 1)], entities=far + 1), [clause], "distinct")
    assert found.hidden.tolist() == [[1, 0, far]]


# What is refused


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (parse_rule("likez(X, Y) => likes(Y, X)"), "unknown relation 'likez'. Did you mean 'likes'"),
        (parse_rule("likes(X, Y) => likez(Y, X)"), "unknown relation 'likez'"),
        (parse_rule("lives_in(X, pariss) => likes(X, X)"), "unknown entity 'pariss'. Did you mean 'paris'"),
        (parse_rule("=> not likes(X, X)"), "a constraint has no groundings"),
        (
            Rule((Atom("likes", Variable("X"), Variable("X")),), Atom("likes", Variable("X"), Variable("Y"))),
            "'Y' is in no premise",
        ),
        (
            Rule(
                (Atom("likes", Variable("X"), Constant("ben")), Atom("likes", Variable("Y"), Constant("ben"))),
                Atom("parent", Variable("X"), Variable("Y")),
            ),
            "no shared variables",
        ),
        (Rule((), Atom("likes", Variable("X"), Variable("Y"))), "without premises"),
    ],
)
def test_what_is_no_clause_of_the_graph(rule: Rule, message: str) -> None:
    with pytest.raises(InputError, match=message):
        clause_of(rule, KnowledgeGraph.from_names(FAMILY))


def test_without_duckdb_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(InputError, match=r"pip install 'plogicnet\[sql\]'"):
        SQL.mine(numbered_graph(2, 1, [(0, 0, 1)]), config.Rules(), Resources())
    with pytest.raises(InputError, match=r"pip install 'plogicnet\[sql\]'"):
        SQL.require()


def test_too_little_memory_is_an_input_error() -> None:
    rng = np.random.default_rng(0)
    facts = rng.integers(0, 300, (90_000, 3))
    facts[:, RELATION] = 0
    observed = TripleSet.of(facts, entities=300)
    clause = clause_of(parse_rule("r0(X, Y) & r0(Y, Z) => r0(Z, X)"), numbered_graph(2, 1, [(0, 0, 1)]))
    with pytest.raises(InputError, match="3 MB of memory"):
        count_clauses(observed, [clause], "distinct", Resources(memory_mb=3))


# The text


@settings(max_examples=15, deadline=None)
@given(graphs_and_clauses(), st.sampled_from(COUNTINGS))
def test_another_database_runs_the_same_text(case: tuple[KnowledgeGraph, list[Clause]], counting: Counting) -> None:
    """SQLite, by the same statements: mined rules, counts, conclusions and links."""
    graph, clauses = case
    with sqlite3.connect(":memory:") as database:
        pieces = {
            "piece_forward": np.zeros(len(graph.observed), int),
            "piece_backward": np.zeros(len(graph.observed), int),
        }
        fill(database, "facts", duckdb._columns(graph.observed) | pieces)
        by_sqlite = []
        for shape in CHAIN_SHAPES:
            text = MiningText(shape, counting)
            for statement in (*text.create, *text.piece(0)):
                database.execute(statement)
            by_sqlite += [(shape.name, *row) for row in database.execute(text.candidates)]
            for statement in text.drop:
                database.execute(statement)
        mined = SQL.mine(graph, config.Rules(counting=counting, min_precision=ALL), Resources()).rules
        chains = [chain_of(rule, graph.relations) for rule in mined.rules]
        assert by_sqlite == [
            (rule.pattern, *(move.relation for move in chain.moves), chain.relation, support, hits)
            for rule, chain, support, hits in zip(mined.rules, chains, mined.support, mined.hits, strict=True)
        ]
        stored = ground_clauses(graph.observed, clauses, counting)
        concluded, width = set(), max(len(clause.premises) for clause in clauses)
        database.execute(create_links(width))
        fill(database, "variables", duckdb._columns(stored.triples))
        fill(database, "facts", duckdb._columns(stored.triples, stored.observed))
        counts: dict[int, tuple[int, int]] = {}
        for form in forms_of(enumerate(clauses)):
            fill(database, "clauses", form.columns)
            join = JoinText(form.terms, counting)
            concluded |= set(database.execute(join.conclusions))
            counts |= {clause: (support, hits) for clause, support, hits in database.execute(join.counts)}
            database.execute(f"INSERT INTO links {join.links(width)}")
        links = [tuple(row.values()) for row in stored.links().read_all().to_pylist()]
        assert list(database.execute(ordered_links(width))) == links
        assert concluded - as_set(graph.train) == as_set(stored.hidden)
        found = zip(*(column.tolist() for column in count_clauses(graph.observed, clauses, counting)), strict=True)
        assert [counts.get(i, (0, 0)) for i in range(len(clauses))] == list(found)


def fill(database: sqlite3.Connection, name: str, columns: dict[str, IntArray]) -> None:
    database.execute(f"DROP TABLE IF EXISTS {name}")
    database.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
    marks = ", ".join("?" * len(columns))
    database.executemany(f"INSERT INTO {name} VALUES ({marks})", np.column_stack(list(columns.values())).tolist())


# The benchmark data sets


def opened(name: str) -> KnowledgeGraph:
    root = os.environ.get("PLOGICNET_DATA")
    if not root or not (Path(root) / name).is_dir():
        pytest.skip(f"PLOGICNET_DATA is not set to a directory that holds {name}")
    return open_graph(name)


@pytest.mark.parametrize("counting", COUNTINGS)
@pytest.mark.parametrize("name", ["umls", "kinship", "nations", "wn18rr"])
def test_data_sets_as_native(name: str, counting: Counting) -> None:
    graph = opened(name)
    chosen = config.Rules(counting=counting)
    mined = mining.mine(graph, chosen)
    assert_same_mined(SQL.mine(graph, chosen, Resources()), mined)
    job = Job(graph, mined.rules.rules, counting)
    assert_same_network(SQL.ground(job), NATIVE.ground(job))
    support, hits = SQL.count(job)
    assert (support.tolist(), hits.tolist()) == (mined.rules.support.tolist(), mined.rules.hits.tolist())


def test_a_data_set_as_by_joining_dictionaries() -> None:
    graph = opened("wn18rr")
    counting: Counting = "distinct"
    facts = as_set(graph.train)
    joined = paths(facts)
    mined = mining.mine(graph, config.Rules(counting=counting, min_precision=ALL)).rules
    columns = zip(mined.rules, mined.support.tolist(), mined.hits.tolist(), strict=True)
    assert {chain_of(rule, graph.relations): (support, hits) for rule, support, hits in columns} == (
        candidates(facts, joined, counting)
    )
    kept = mined.take(mined.precision >= 0.6)
    chains: list[Chain] = [chain_of(rule, graph.relations) for rule in kept.rules]
    found = NATIVE.ground(Job(graph, kept.rules, counting))
    assert Counter(unpacked(found.arrays())) == Counter(joined_network(joined, chains, counting))
