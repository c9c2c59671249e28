"""Walking chains against trying every tuple of entities."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet.errors import InputError
from plogicnet.graph import KnowledgeGraph, Vocabulary
from plogicnet.grounding import Chain, Counting, Move, World, chain_of, ground
from plogicnet.grounding.walks import hypothesis_triples
from plogicnet.rules import parse_rule
from reference import COUNTINGS, Instance, as_set, chains, graphs, instances


@settings(max_examples=100, deadline=None)
@given(st.data(), graphs(max_entities=5, max_relations=3), st.sampled_from(COUNTINGS))
def test_ground(data: st.DataObject, graph: KnowledgeGraph, counting: Counting) -> None:
    chain = data.draw(chains(len(graph.relations)))
    world = World(graph.observed)
    walks = ground(world, chain, counting)
    rows = [(int(h), int(r), int(t)) for h, r, t in world.facts.triples]
    found = [
        Instance((int(h), int(r), int(t)), frozenset(rows[p] for p in premises))
        for (h, r, t), premises in zip(hypothesis_triples(walks, chain.relation), walks.premises, strict=True)
    ]
    expected = instances(as_set(graph.train), len(graph.entities), chain, counting)
    assert Counter(found) == Counter(expected)
    assert walks.entities.shape[1:] == (len(chain.moves) + 1,)
    assert len({tuple(w) for w in walks.entities.tolist()}) == len(walks.entities)


def test_a_relation_without_facts_leads_nowhere() -> None:
    graph = KnowledgeGraph.from_names([("a", "r", "b")], valid=[("a", "s", "b")])
    for moves in ((Move(1, True),), (Move(0, True), Move(1, False)), (Move(1, False), Move(0, True))):
        assert len(ground(World(graph.observed), Chain(moves, 0), "distinct").entities) == 0


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
