"""Walking chains of relations: the one operation behind mining, hidden triples, groundings and explanation.

Every mined pattern is a chain of relations walked forwards or backwards: subrelation is one step forwards, inverse
and symmetric one step backwards, composition two steps forwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from plogicnet.errors import InputError
from plogicnet.graph import HEAD, RELATION, TAIL, Answers, IntArray, TripleSet, Vocabulary
from plogicnet.rules import Rule

Counting = Literal["distinct", "paths"]


@dataclass(frozen=True)
class Move:
    """One step of a chain, with the relation's number."""

    relation: int
    forward: bool


@dataclass(frozen=True)
class Chain:
    """A rule in numbers: the moves of its body from the hypothesis's head to its tail, and the hypothesis's relation.

    Example:
        >>> chain = Chain((Move(0, forward=False),), relation=1)  # r0(X, Y) => r1(Y, X)
    """

    moves: tuple[Move, ...]
    relation: int


@dataclass(frozen=True)
class World:
    """Triples taken as true, indexed for walking in both directions.

    Example:
        >>> world = World(TripleSet.of([(0, 0, 1), (1, 0, 2)], entities=3))
        >>> walk(world, [Move(0, True), Move(0, True)]).entities.tolist()
        [[0, 1, 2]]
    """

    facts: TripleSet

    @cached_property
    def forward(self) -> Answers:
        """Tails by (head, relation)."""
        return Answers.of(self.facts.triples, self.facts.entities, "tail")

    @cached_property
    def backward(self) -> Answers:
        """Heads by (tail, relation)."""
        return Answers.of(self.facts.triples, self.facts.entities, "head")

    @cached_property
    def by_pair(self) -> tuple[IntArray, IntArray]:
        """All facts sorted by (head, tail): the pair's key, and the relation."""
        pairs = self.facts.triples[:, HEAD] * self.facts.entities + self.facts.triples[:, TAIL]
        order = np.argsort(pairs, kind="stable")
        return pairs[order], self.facts.triples[order, RELATION]

    def rows_of(self, relation: int) -> IntArray:
        """The rows of one relation's facts: a range, since facts are sorted by relation."""
        square = self.facts.entities**2
        first, last = np.searchsorted(self.facts.keys, [relation * square, (relation + 1) * square])
        return np.arange(first, last)


@dataclass(frozen=True)
class Walks:
    """Walks along one chain: the entities passed, and the rows (in the world's facts) of the premises used."""

    entities: IntArray
    premises: IntArray

    def take(self, keep: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> "Walks":
        """Some of the walks."""
        return Walks(self.entities[keep], self.premises[keep])


def chain_of(rule: Rule, relations: Vocabulary) -> Chain:
    """A rule in numbers; only chains can be walked.

    Example:
        >>> from plogicnet.rules import parse_rule
        >>> chain_of(parse_rule("husband(X, Y) => wife(Y, X)"), Vocabulary("relation", ("husband", "wife"))).relation
        1
    """
    if rule.chain is None:
        raise InputError(
            f"{rule}: only chains of relations from the head's first to its second variable can be grounded"
        )
    moves = tuple(Move(relations.id(step.relation), step.forward) for step in rule.chain)
    return Chain(moves, relations.id(rule.head.relation))


def walk(world: World, moves: Sequence[Move]) -> Walks:
    """All walks along the moves."""
    first = moves[0]
    rows = world.rows_of(first.relation)
    walks = Walks(world.facts.triples[rows][:, [HEAD, TAIL] if first.forward else [TAIL, HEAD]], rows[:, None])
    for move in moves[1:]:
        walks = _extended(world, walks, move)
    return walks


def ground(world: World, chain: Chain, counting: Counting) -> Walks:
    """The groundings of a chain; under `distinct` those that have their hypothesis among their premises are left out.

    Example:
        >>> world = World(TripleSet.of([(0, 0, 1), (1, 0, 0), (2, 0, 2)], entities=3))
        >>> len(ground(world, Chain((Move(0, False),), 0), "distinct").entities)  # 2 is its own mirror image
        2
    """
    walks = walk(world, chain.moves)
    if counting == "paths" or all(move.relation != chain.relation for move in chain.moves):
        return walks
    hypotheses = world.facts.find(hypothesis_triples(walks, chain.relation))
    return walks.take(~np.any(walks.premises == hypotheses[:, None], axis=1))


def hypothesis_triples(walks: Walks, relation: int) -> IntArray:
    """The triple that each walk concludes."""
    triples = np.empty((len(walks.entities), 3), dtype=np.int64)
    triples[:, HEAD], triples[:, RELATION], triples[:, TAIL] = (
        walks.entities[:, 0],
        relation,
        walks.entities[:, -1],
    )
    return triples


def _extended(world: World, walks: Walks, move: Move) -> Walks:
    index = world.forward if move.forward else world.backward
    owners, reached, rows = index.lookup(walks.entities[:, -1], np.full(len(walks.entities), move.relation))
    return Walks(np.column_stack([walks.entities[owners], reached]), np.column_stack([walks.premises[owners], rows]))
