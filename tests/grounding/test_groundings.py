"""Groundings in arrays, in files and as merged rows; brute force is in the contract of engines."""

import gc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from plogicnet.graph import KnowledgeGraph
from plogicnet.grounding import groundings
from plogicnet.grounding.native.grounding import ground_network
from plogicnet.grounding.native.walks import Chain, Move
from plogicnet.grounding.rows import Rows
from plogicnet.grounding.sql.clauses import clause_of
from plogicnet.grounding.sql.duckdb import ground_clauses
from plogicnet.rules import parse_rule
from reference import graphs_and_chains, numbered_graph, unpacked


@settings(max_examples=30, deadline=None)
@given(graphs_and_chains())
def test_the_groundings_of_one_triple(case: tuple[KnowledgeGraph, list[Chain]]) -> None:
    graph, chains = case
    grounded = ground_network(graph.observed, chains, "distinct")
    expected = Counter(i.hypothesis for _, i in unpacked(grounded))
    found = [grounded.of(row) for row in range(len(grounded.triples))]
    assert [len(rows) for rows in found] == [expected[h, r, t] for h, r, t in grounded.triples.triples.tolist()]
    assert sorted(np.concatenate(found).tolist()) == list(range(len(grounded.rule)))


def test_a_premise_that_occurs_twice_counts_once() -> None:
    """r0(x, y) walked forth and back concludes r1(x, x) from one fact."""
    chain = Chain((Move(0, True), Move(0, False)), 1)
    grounded = ground_network(numbered_graph(2, 2, [(0, 0, 1)]).observed, [chain], "distinct")
    assert grounded.triples.triples[grounded.hypothesis].tolist() == [[0, 1, 0]]
    assert grounded.premises.tolist() == [[0, -1]]


def test_a_grounding_that_supports_itself_is_left_out_but_for_paths() -> None:
    """r(a, a) & r(a, b) => r(a, b)."""
    observed = numbered_graph(2, 1, [(0, 0, 0), (0, 0, 1)]).observed
    chain = Chain((Move(0, True), Move(0, True)), 0)
    assert unpacked(ground_network(observed, [chain], "distinct")) == []
    assert len(unpacked(ground_network(observed, [chain], "paths"))) == 2


@settings(max_examples=40, deadline=None)
@given(graphs_and_chains(max_entities=4), st.integers(1, 9), st.booleans())
def test_links_and_multisets_are_the_same_in_any_batches(
    case: tuple[KnowledgeGraph, list[Chain]], at_once: int, hidden_premises: bool
) -> None:
    graph, chains = case
    grounded = ground_network(graph.observed, chains, "distinct", hidden_premises)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groundings, "AT_ONCE", at_once)
        batches = list(grounded.links())
        streamed = groundings._multisets(batches, len(grounded.triples), grounded.rules)
    assert all(batch.num_rows == at_once for batch in batches[:-1])
    assert [row for batch in batches for row in batch.to_pylist()] == grounded.links().read_all().to_pylist()
    assert streamed.number.tolist() == grounded.multisets.number.tolist()
    assert streamed.matrix.toarray().tolist() == grounded.multisets.matrix.toarray().tolist()


def test_stored_links_go_with_their_object() -> None:
    graph = numbered_graph(2, 2, [(0, 0, 1)])
    stored = ground_clauses(graph.observed, [clause_of(parse_rule("r0(X, Y) => r1(Y, X)"), graph)], "distinct")
    folder = stored.file.parent
    assert stored.links().read_all().num_rows == stored.size == 1
    assert folder.is_dir()
    del stored
    gc.collect()
    assert not folder.exists()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=3, max_size=3), max_size=12), st.booleans())
def test_distinct_rows(rows: list[list[float]], based: bool) -> None:
    """Rows against a dictionary: their order, the row of each triple, sums, and the way back."""
    matrix = np.array(rows).reshape(-1, 3)
    base = np.arange(len(rows), dtype=np.float64) % 2 * float(based)
    found = Rows.of(sparse.csr_array(matrix), base)
    keys = [(*row, b) for row, b in zip(rows, base.tolist(), strict=True)]
    distinct = list(dict.fromkeys(key for key in keys if any(key[:3])))
    assert [(*row, b) for row, b in zip(found.matrix.toarray().tolist(), found.base, strict=True)] == distinct
    assert found.number.tolist() == [distinct.index(key) if any(key[:3]) else -1 for key in keys]
    assert found.whole.toarray().tolist() == matrix.tolist()
    weights = np.array([0.5, -1.0, 2.0])
    assert found.sums(weights).tolist() == (matrix @ weights).tolist()
    assert found.distinct().number.tolist() == found.number.tolist()
    two = found.merged(np.ones(len(rows)), np.full(len(rows), 2.0))
    assert two.count.tolist() == two.total.tolist() == [2.0 * keys.count(key) for key in distinct]
    for triple, row in enumerate(rows):
        rules, values = found.row(triple)
        assert dict(zip(rules.tolist(), values.tolist(), strict=True)) == {i: v for i, v in enumerate(row) if v}
