"""Walking chains of relations, forwards or backwards: how chains are counted, grounded and explained."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from plogicnet.graph import HEAD, RELATION, TAIL, Answers, FloatArray, IntArray, TripleSet, Vocabulary, triple_keys
from plogicnet.grounding.engine import Counting
from plogicnet.rules import Rule
from plogicnet.support.errors import InputError

WALKS_AT_ONCE = 1 << 21
"""How many walks are held at a time."""


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
        >>> [w.entities.tolist() for w in walk(world, [Move(0, True), Move(0, True)])]
        [[[0, 1, 2]]]
    """

    facts: TripleSet

    @cached_property
    def forward(self) -> Answers:
        """Tails by (head, relation)."""
        facts, n = self.facts.triples, self.facts.entities  # sorted by (relation, head, tail) as they are
        return Answers(facts[:, RELATION] * n + facts[:, HEAD], facts[:, TAIL], np.arange(len(facts)), n)

    @cached_property
    def backward(self) -> Answers:
        """Heads by (tail, relation)."""
        return Answers.of(self.facts.triples, self.facts.entities, "head")

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


def walk(
    world: World,
    moves: Sequence[Move],
    start: int | None = None,
    end: int | None = None,
    at_once: int = WALKS_AT_ONCE,
) -> Iterator[Walks]:
    """All walks along the moves, from `start` and to `end` if given, in pieces of about `at_once`, ordered by start.

    Dead ends are never entered: how many ways there are to go on from each entity is counted first. So memory is
    bounded whatever hubs there are, and asking for the walks between two entities finds those and no others.

    Example:
        >>> world = World(TripleSet.of([(0, 0, 1), (1, 0, 2), (1, 0, 0)], entities=3))
        >>> [w.entities.tolist() for w in walk(world, [Move(0, True), Move(0, True)], start=0, end=2)]
        [[[0, 1, 2]]]
    """
    first = moves[0]
    index = world.forward if first.forward else world.backward
    bounds = np.array([0, world.facts.entities] if start is None else [start, start + 1])
    low, high = np.searchsorted(index.keys, first.relation * world.facts.entities + bounds)
    rows = index.rows[low:high]
    begun = Walks(world.facts.triples[rows][:, [HEAD, TAIL] if first.forward else [TAIL, HEAD]], rows[:, None])
    return _continued(world, begun, moves[1:], ways_on(world, moves[1:], end), at_once)


def ways_on(world: World, moves: Sequence[Move], end: int | None = None) -> list[FloatArray]:
    """For each number of moves made, in how many ways each entity can make the rest (and end at `end` if given).

    Example:
        >>> world = World(TripleSet.of([(0, 0, 1), (0, 0, 2), (1, 0, 2)], entities=3))
        >>> [ways.tolist() for ways in ways_on(world, [Move(0, True)])]
        [[2.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
    """
    n = world.facts.entities
    ways = [np.ones(n) if end is None else (np.arange(n) == end).astype(np.float64)]
    for move in reversed(moves):
        if end is None:
            facts = world.facts.triples[world.rows_of(move.relation)]
            here, there = (HEAD, TAIL) if move.forward else (TAIL, HEAD)
            origin, onward = facts[:, here], ways[-1][facts[:, there]]
        else:  # few entities lead to one end, and a look at their facts is enough
            leading = np.flatnonzero(ways[-1])
            index = world.backward if move.forward else world.forward
            owners, origin, _ = index.lookup(leading, np.full(len(leading), move.relation))
            onward = ways[-1][leading[owners]]
        ways.append(np.bincount(origin, weights=onward, minlength=n))
    return ways[::-1]


def two_step_paths(facts: TripleSet, relations: int) -> sparse.csr_array:
    """The number of paths first(X, Y) & second(Y, Z) for each first and second relation.

    Example:
        >>> two_step_paths(TripleSet.of([(0, 0, 1), (1, 1, 2), (1, 1, 3)], entities=4), 2).toarray().tolist()
        [[0, 2], [0, 0]]
    """
    shape, triples = (relations, facts.entities), facts.triples
    ones = np.ones(len(triples), dtype=np.int64)
    ends, begins = (sparse.csr_array((ones, (triples[:, RELATION], triples[:, side])), shape) for side in (TAIL, HEAD))
    return sparse.csr_array(ends @ begins.T)


def ground(
    world: World,
    chain: Chain,
    counting: Counting,
    start: int | None = None,
    end: int | None = None,
    at_once: int = WALKS_AT_ONCE,
) -> Iterator[Walks]:
    """The groundings of a chain, in pieces; under `distinct` none that has its hypothesis among its premises.

    Example:
        >>> world = World(TripleSet.of([(0, 0, 1), (1, 0, 0), (2, 0, 2)], entities=3))
        >>> sum(len(w.entities) for w in ground(world, Chain((Move(0, False),), 0), "distinct"))  # 2 is its own mirror
        2
    """
    may_be_own = counting == "distinct" and any(move.relation == chain.relation for move in chain.moves)
    for walks in walk(world, chain.moves, start, end, at_once):
        if may_be_own:
            hypotheses = world.facts.find(hypothesis_triples(walks, chain.relation))
            yield walks.take(~np.any(walks.premises == hypotheses[:, None], axis=1))
        else:
            yield walks


def count(world: World, chain: Chain, counting: Counting, at_once: int = WALKS_AT_ONCE) -> tuple[int, int]:
    """A chain's support and hits, counted piece by piece: what is kept is the ends reached from one start.

    Example:
        >>> world = World(TripleSet.of([(0, 0, 1), (1, 1, 0), (2, 0, 0)], entities=3))
        >>> count(world, Chain((Move(0, False),), 1), "distinct")  # r0(X, Y) => r1(Y, X)
        (2, 1)
    """
    n = world.facts.entities
    support = hits = 0
    waiting = np.empty(0, dtype=np.int64)
    for walks in ground(world, chain, counting, at_once=at_once):
        keys = triple_keys(hypothesis_triples(walks, chain.relation), n)
        if counting == "distinct":
            # walks come by start, so all but the last start's ends are known to be complete
            keys = np.unique(np.concatenate([waiting, keys]))
            last = keys[-1] - keys[-1] % n if len(keys) else 0
            waiting, keys = keys[keys >= last], keys[keys < last]
        support, hits = support + len(keys), hits + int(world.facts.contains_keys(keys).sum())
    return support + len(waiting), hits + int(world.facts.contains_keys(waiting).sum())


def hypothesis_triples(walks: Walks, relation: int) -> IntArray:
    """The triple that each walk concludes."""
    triples = np.empty((len(walks.entities), 3), dtype=np.int64)
    triples[:, HEAD], triples[:, RELATION], triples[:, TAIL] = (
        walks.entities[:, 0],
        relation,
        walks.entities[:, -1],
    )
    return triples


def _continued(
    world: World, walks: Walks, moves: Sequence[Move], ways: Sequence[FloatArray], at_once: int
) -> Iterator[Walks]:
    """Goes on with walks by the rest of the moves, in pieces that keep the walks' order."""
    expected = ways[0][walks.entities[:, -1]]
    walks, expected = walks.take(expected > 0), expected[expected > 0]
    if not moves:
        yield walks
        return
    piece = np.cumsum(expected) // at_once
    cuts = np.flatnonzero(np.diff(piece)) + 1
    for low, high in itertools.pairwise([0, *cuts.tolist(), len(expected)]):
        part = Walks(walks.entities[low:high], walks.premises[low:high])
        yield from _continued(world, _extended(world, part, moves[0]), moves[1:], ways[1:], at_once)


def _extended(world: World, walks: Walks, move: Move) -> Walks:
    index = world.forward if move.forward else world.backward
    owners, reached, rows = index.lookup(walks.entities[:, -1], np.full(len(walks.entities), move.relation))
    return Walks(np.column_stack([walks.entities[owners], reached]), np.column_stack([walks.premises[owners], rows]))
