"""Groundings in arrays, in files and as merged rows. The contract of engines compares them with brute force."""

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
from plogicnet.grounding.native.walks import Chain, EncodedStep
from plogicnet.grounding.rows import DistinctRows
from plogicnet.grounding.sql.clauses import clause_of
from plogicnet.grounding.sql.duckdb import ground_clauses
from plogicnet.rules import parse_rule
from reference import graphs_and_chains, numbered_graph, to_groundings


@settings(max_examples=30, deadline=None)
@given(graphs_and_chains())
def test_groundings_of_finds_the_groundings_of_each_triple(case: tuple[KnowledgeGraph, list[Chain]]) -> None:
    graph, chains = case
    network = ground_network(graph.observed, chains, "distinct")
    expected = Counter(i.hypothesis for _, i in to_groundings(network))
    found = [network.groundings_of(row) for row in range(len(network.triples))]
    assert [len(rows) for rows in found] == [expected[h, r, t] for h, r, t in network.triples.triples.tolist()]
    assert sorted(np.concatenate(found).tolist()) == list(range(len(network.rule)))


def test_a_premise_that_occurs_twice_counts_once() -> None:
    """r0(x, y) & r0(x, y) => r1(x, x) has one fact as both premises."""
    chain = Chain((EncodedStep(0, True), EncodedStep(0, False)), 1)
    network = ground_network(numbered_graph(2, 2, [(0, 0, 1)]).observed, [chain], "distinct")
    assert network.triples.triples[network.hypothesis].tolist() == [[0, 1, 0]]
    assert network.premises.tolist() == [[0, -1]]


def test_self_supporting_groundings_are_counted_only_as_paths() -> None:
    """r(a, a) & r(a, b) => r(a, b)."""
    observed = numbered_graph(2, 1, [(0, 0, 0), (0, 0, 1)]).observed
    chain = Chain((EncodedStep(0, True), EncodedStep(0, True)), 0)
    assert to_groundings(ground_network(observed, [chain], "distinct")) == []
    assert len(to_groundings(ground_network(observed, [chain], "paths"))) == 2


@settings(max_examples=40, deadline=None)
@given(graphs_and_chains(max_entities=4), st.integers(1, 9), st.booleans())
def test_record_batches_and_multisets_do_not_depend_on_the_batch_size(
    case: tuple[KnowledgeGraph, list[Chain]], batch_size: int, hidden_premises: bool
) -> None:
    graph, chains = case
    network = ground_network(graph.observed, chains, "distinct", hidden_premises)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groundings, "BATCH_SIZE", batch_size)
        batches = list(network.record_batches())
        streamed = groundings._collect_multisets(batches, len(network.triples), network.n_rules)
    assert all(batch.num_rows == batch_size for batch in batches[:-1])
    assert [row for batch in batches for row in batch.to_pylist()] == network.record_batches().read_all().to_pylist()
    assert streamed.row_of_triple.tolist() == network.multisets.row_of_triple.tolist()
    assert streamed.matrix.toarray().tolist() == network.multisets.matrix.toarray().tolist()


def test_stored_groundings_are_deleted_with_their_object() -> None:
    graph = numbered_graph(2, 2, [(0, 0, 1)])
    stored = ground_clauses(graph.observed, [clause_of(parse_rule("r0(X, Y) => r1(Y, X)"), graph)], "distinct")
    folder = stored.file.parent
    assert stored.record_batches().read_all().num_rows == stored.size == 1
    assert folder.is_dir()
    del stored
    gc.collect()
    assert not folder.exists()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=3, max_size=3), max_size=12), st.booleans())
def test_distinct_rows_as_by_a_dictionary(rows: list[list[float]], based: bool) -> None:
    matrix = np.array(rows).reshape(-1, 3)
    base = np.arange(len(rows), dtype=np.float64) % 2 * float(based)
    found = DistinctRows.of(sparse.csr_array(matrix), base)
    keys = [(*row, b) for row, b in zip(rows, base.tolist(), strict=True)]
    distinct = list(dict.fromkeys(key for key in keys if any(key[:3])))
    assert [(*row, b) for row, b in zip(found.matrix.toarray().tolist(), found.base, strict=True)] == distinct
    assert found.row_of_triple.tolist() == [distinct.index(key) if any(key[:3]) else -1 for key in keys]
    assert found.full_matrix.toarray().tolist() == matrix.tolist()
    weights = np.array([0.5, -1.0, 2.0])
    assert found.sums(weights).tolist() == (matrix @ weights).tolist()
    assert found.deduplicate().row_of_triple.tolist() == found.row_of_triple.tolist()
    two = found.merge(np.ones(len(rows)), np.full(len(rows), 2.0))
    assert two.count.tolist() == two.total.tolist() == [2.0 * keys.count(key) for key in distinct]
    for triple, row in enumerate(rows):
        rules, values = found.row(triple)
        assert dict(zip(rules.tolist(), values.tolist(), strict=True)) == {i: v for i, v in enumerate(row) if v}
