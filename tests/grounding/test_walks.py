"""Walking chains against trying every tuple of entities."""

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet.graph import KnowledgeGraph, TripleSet, Vocabulary
from plogicnet.grounding.engine import Counting
from plogicnet.grounding.native.grounding import expected_groundings
from plogicnet.grounding.native.walks import Chain, Move, Walks, World, chain_of, count, ground, hypothesis_triples
from plogicnet.rules import parse_rule
from plogicnet.support.errors import InputError
from reference import COUNTINGS, Instance, as_set, chains, graphs, graphs_and_chains, instances, support_and_hits


def joined(pieces: Iterable[Walks], steps: int) -> Walks:
    found = list(pieces)
    return Walks(
        np.concatenate([np.empty((0, steps + 1), dtype=np.int64), *(w.entities for w in found)]),
        np.concatenate([np.empty((0, steps), dtype=np.int64), *(w.premises for w in found)]),
    )


@settings(max_examples=150, deadline=None)
@given(st.data(), graphs(max_entities=5, max_relations=3), st.sampled_from(COUNTINGS), st.sampled_from([1, 3, 1000]))
def test_ground(data: st.DataObject, graph: KnowledgeGraph, counting: Counting, at_once: int) -> None:
    """Whole, from one entity, to one, or between two; in pieces of any size."""
    chain = data.draw(chains(len(graph.relations)))
    entity = st.none() | st.integers(0, len(graph.entities) - 1)
    start, end = data.draw(entity), data.draw(entity)
    world = World(graph.observed)
    walks = joined(ground(world, chain, counting, start, end, at_once), len(chain.moves))
    rows = [(int(h), int(r), int(t)) for h, r, t in world.facts.triples]
    found = [
        Instance((int(h), int(r), int(t)), frozenset(rows[p] for p in premises))
        for (h, r, t), premises in zip(hypothesis_triples(walks, chain.relation), walks.premises, strict=True)
    ]
    expected = [
        i
        for i in instances(as_set(graph.train), len(graph.entities), chain, counting)
        if start in (None, i.hypothesis[0]) and end in (None, i.hypothesis[2])
    ]
    assert Counter(found) == Counter(expected)
    assert len({tuple(w) for w in walks.entities.tolist()}) == len(walks.entities)
    assert walks.entities[:, 0].tolist() == sorted(walks.entities[:, 0].tolist())


@settings(max_examples=150, deadline=None)
@given(st.data(), graphs(max_entities=5, max_relations=3), st.sampled_from(COUNTINGS), st.sampled_from([1, 3, 1000]))
def test_count(data: st.DataObject, graph: KnowledgeGraph, counting: Counting, at_once: int) -> None:
    chain = data.draw(chains(len(graph.relations)))
    expected = support_and_hits(as_set(graph.train), len(graph.entities), chain, counting)
    assert count(World(graph.observed), chain, counting, at_once) == expected


@settings(max_examples=100, deadline=None)
@given(graphs_and_chains())
def test_expected_groundings(case: tuple[KnowledgeGraph, list[Chain]]) -> None:
    graph, some = case
    facts, n = as_set(graph.train), len(graph.entities)
    expected = [len(list(instances(facts, n, chain, "paths"))) for chain in some]
    assert expected_groundings(World(graph.observed), some).tolist() == expected


def test_walks_through_hubs_are_held_a_piece_at_a_time() -> None:
    """From 300 entities by two hubs to 300 others: 90,000 walks, of which each piece holds few."""
    into, out = [(i, 0, 600) for i in range(300)], [(601, 1, 300 + i) for i in range(300)]
    world = World(TripleSet.of([*into, (600, 2, 601), *out], entities=602))
    chain = Chain((Move(0, True), Move(2, True), Move(1, True)), 3)
    sizes = [len(walks.entities) for walks in ground(world, chain, "distinct", at_once=1000)]
    assert sum(sizes) == 90_000
    assert max(sizes) <= 1000 + 300  # one walk more than fits may be begun
    assert count(world, chain, "distinct", at_once=1000) == (90_000, 0)


def test_a_relation_without_facts_leads_nowhere() -> None:
    graph = KnowledgeGraph.from_names([("a", "r", "b")], valid=[("a", "s", "b")])
    for moves in ((Move(1, True),), (Move(0, True), Move(1, False)), (Move(1, False), Move(0, True))):
        assert sum(len(w.entities) for w in ground(World(graph.observed), Chain(moves, 0), "distinct")) == 0


@pytest.mark.parametrize(
    ("text", "chain"),
    [
        ("a(X, Y) => b(X, Y)", Chain((Move(0, True),), 1)),
        ("a(X, Y) => a(Y, X)", Chain((Move(0, False),), 0)),
        ("a(X, Y) & b(Z, Y) & a(Z, U) => b(X, U)", Chain((Move(0, True), Move(1, False), Move(0, True)), 1)),
        ("b(Y, Z) & a(X, Y) => b(X, Z)", Chain((Move(0, True), Move(1, True)), 1)),
    ],
)
def test_chain_of(text: str, chain: Chain) -> None:
    assert chain_of(parse_rule(text), Vocabulary("relation", ("a", "b"))) == chain


@pytest.mark.parametrize(
    ("text", "message"),
    [("=> not a(X, X)", "only chains"), ("a(X, paris) => b(X, paris)", "only chains"), ("a(X, Y) => c(X, Y)", "'c'")],
)
def test_what_cannot_be_walked_is_an_input_error(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        chain_of(parse_rule(text), Vocabulary("relation", ("a", "b")))
