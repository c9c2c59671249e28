"""Walking chains, compared with a brute-force search."""

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet.graph import KnowledgeGraph, TripleSet, Vocabulary
from plogicnet.grounding.engine import CountingMode
from plogicnet.grounding.native.grounding import count_groundings_per_chain
from plogicnet.grounding.native.walks import (
    Chain,
    EncodedStep,
    PathBatch,
    TripleIndex,
    chain_of,
    conclusions,
    count,
    ground,
)
from plogicnet.rules import parse_rule
from plogicnet.support.errors import InputError
from reference import COUNTINGS, Grounding, as_set, chains, graphs, graphs_and_chains, iter_groundings, support_and_hits


def concat_batches(batches: Iterable[PathBatch], steps: int) -> PathBatch:
    collected = list(batches)
    return PathBatch(
        np.concatenate([np.empty((0, steps + 1), dtype=np.int64), *(batch.entities for batch in collected)]),
        np.concatenate([np.empty((0, steps), dtype=np.int64), *(batch.premises for batch in collected)]),
    )


@settings(max_examples=150, deadline=None)
@given(st.data(), graphs(max_entities=5, max_relations=3), st.sampled_from(COUNTINGS), st.sampled_from([1, 3, 1000]))
def test_ground_as_by_brute_force(
    data: st.DataObject, graph: KnowledgeGraph, counting: CountingMode, chunk_size: int
) -> None:
    """With any start, end and chunk size."""
    chain = data.draw(chains(len(graph.relations)))
    entity = st.none() | st.integers(0, len(graph.entities) - 1)
    start, end = data.draw(entity), data.draw(entity)
    index = TripleIndex(graph.observed)
    paths = concat_batches(ground(index, chain, counting, start, end, chunk_size), len(chain.steps))
    rows = [(int(h), int(r), int(t)) for h, r, t in index.facts.triples]
    found = [
        Grounding((int(h), int(r), int(t)), frozenset(rows[p] for p in premises))
        for (h, r, t), premises in zip(conclusions(paths, chain.relation), paths.premises, strict=True)
    ]
    expected = [
        i
        for i in iter_groundings(as_set(graph.train), len(graph.entities), chain, counting)
        if start in (None, i.hypothesis[0]) and end in (None, i.hypothesis[2])
    ]
    assert Counter(found) == Counter(expected)
    assert len({tuple(w) for w in paths.entities.tolist()}) == len(paths.entities)
    assert paths.entities[:, 0].tolist() == sorted(paths.entities[:, 0].tolist())


@settings(max_examples=150, deadline=None)
@given(st.data(), graphs(max_entities=5, max_relations=3), st.sampled_from(COUNTINGS), st.sampled_from([1, 3, 1000]))
def test_count_as_by_brute_force(
    data: st.DataObject, graph: KnowledgeGraph, counting: CountingMode, chunk_size: int
) -> None:
    chain = data.draw(chains(len(graph.relations)))
    expected = support_and_hits(as_set(graph.train), len(graph.entities), chain, counting)
    assert count(TripleIndex(graph.observed), chain, counting, chunk_size) == expected


@settings(max_examples=100, deadline=None)
@given(graphs_and_chains())
def test_count_groundings_per_chain(case: tuple[KnowledgeGraph, list[Chain]]) -> None:
    graph, chains = case
    facts, n = as_set(graph.train), len(graph.entities)
    expected = [len(list(iter_groundings(facts, n, chain, "paths"))) for chain in chains]
    assert count_groundings_per_chain(TripleIndex(graph.observed), chains).tolist() == expected


def test_paths_through_hubs_come_in_small_chunks() -> None:
    """Two hubs connect 300 entities with 300 others: 90,000 paths."""
    into, out = [(i, 0, 600) for i in range(300)], [(601, 1, 300 + i) for i in range(300)]
    index = TripleIndex(TripleSet.of([*into, (600, 2, 601), *out], entities=602))
    chain = Chain((EncodedStep(0, True), EncodedStep(2, True), EncodedStep(1, True)), 3)
    sizes = [len(walks.entities) for walks in ground(index, chain, "distinct", chunk_size=1000)]
    assert sum(sizes) == 90_000
    assert max(sizes) <= 1000 + 300  # the continuations of the last path can exceed the chunk size
    assert count(index, chain, "distinct", chunk_size=1000) == (90_000, 0)


def test_a_relation_without_facts_has_no_paths() -> None:
    graph = KnowledgeGraph.from_names([("a", "r", "b")], valid=[("a", "s", "b")])
    for steps in (
        (EncodedStep(1, True),),
        (EncodedStep(0, True), EncodedStep(1, False)),
        (EncodedStep(1, False), EncodedStep(0, True)),
    ):
        assert sum(len(w.entities) for w in ground(TripleIndex(graph.observed), Chain(steps, 0), "distinct")) == 0


@pytest.mark.parametrize(
    ("text", "chain"),
    [
        ("a(X, Y) => b(X, Y)", Chain((EncodedStep(0, True),), 1)),
        ("a(X, Y) => a(Y, X)", Chain((EncodedStep(0, False),), 0)),
        (
            "a(X, Y) & b(Z, Y) & a(Z, U) => b(X, U)",
            Chain((EncodedStep(0, True), EncodedStep(1, False), EncodedStep(0, True)), 1),
        ),
        ("b(Y, Z) & a(X, Y) => b(X, Z)", Chain((EncodedStep(0, True), EncodedStep(1, True)), 1)),
    ],
)
def test_chain_of(text: str, chain: Chain) -> None:
    assert chain_of(parse_rule(text), Vocabulary("relation", ("a", "b"))) == chain


@pytest.mark.parametrize(
    ("text", "message"),
    [("=> not a(X, X)", "only chains"), ("a(X, paris) => b(X, paris)", "only chains"), ("a(X, Y) => c(X, Y)", "'c'")],
)
def test_chain_of_raises_for_other_rules(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        chain_of(parse_rule(text), Vocabulary("relation", ("a", "b")))
