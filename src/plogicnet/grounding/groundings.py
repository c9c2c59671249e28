"""Hidden triples, and every grounding as rows of arrays: which rule, which hypothesis, which premises."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from plogicnet.graph import RELATION, BoolArray, FloatArray, IntArray, KnowledgeGraph, TripleSet, triple_keys
from plogicnet.grounding.native import Runs, ground_compositions
from plogicnet.grounding.walks import (
    Chain,
    Counting,
    World,
    chain_of,
    ground,
    hypothesis_triples,
    two_step_paths,
    ways_on,
)
from plogicnet.progress import Progress, silent
from plogicnet.rules import RuleTable


@dataclass(frozen=True)
class Groundings:
    """The ground Markov logic network: variables are the triples of O ∪ H, factors are groundings over them.

    Attributes:
        triples: O ∪ H.
        observed: for each of them, whether it is in O.
        rule: for each grounding, its rule's number.
        hypothesis: for each grounding, the row of its hypothesis in `triples`.
        premises: for each grounding, the rows of its premises, each once; -1 fills the rest.
        rules: the number of rules.
    """

    triples: TripleSet
    observed: BoolArray
    rule: IntArray
    hypothesis: IntArray
    premises: IntArray
    rules: int

    def of(self, row: int) -> IntArray:
        """The numbers of the groundings that conclude one triple."""
        return np.flatnonzero(self.hypothesis == row)

    @property
    def hidden(self) -> IntArray:
        """H, the hidden triples."""
        return self.triples.triples[~self.observed]


def chains_of(rules: RuleTable, graph: KnowledgeGraph) -> list[Chain]:
    """The rules of a table in numbers.

    Example:
        >>> chains_of(RuleTable.of([], [], []), KnowledgeGraph.from_names([("a", "r", "b")]))
        []
    """
    return [chain_of(rule, graph.relations) for rule in rules.rules]


def ground_network(
    observed: TripleSet,
    chains: Sequence[Chain],
    counting: Counting,
    hidden_premises: bool = False,
    threads: int = 0,
    progress: Progress = silent,
    check: Callable[[World], None] = lambda _: None,
) -> Groundings:
    """Finds H and links every grounding whose hypothesis is in O ∪ H.

    Premises are taken from O, or from O ∪ H where hidden triples can be premises too: then no grounding leads beyond
    O ∪ H, because H holds the conclusions from O alone.

    Example:
        >>> from plogicnet.grounding.walks import Move
        >>> inverse = Chain((Move(0, forward=False),), relation=1)
        >>> network = ground_network(TripleSet.of([(0, 0, 1)], entities=2), [inverse], "distinct")
        >>> network.hypothesis, network.premises
        (array([1]), array([[0]]))
    """
    found = _ground_all(World(observed), chains, counting, threads, progress)
    # sorted by hand: numpy's own `unique` hashes first, which is slower here
    hidden = np.sort(found.key[~observed.contains_keys(found.key)])
    hidden = hidden[np.append(True, hidden[1:] != hidden[:-1])[: len(hidden)]]
    variables = TripleSet.of_keys(np.sort(np.concatenate([observed.keys, hidden])), observed.entities)
    if hidden_premises:
        world = World(variables)
        check(world)
        found = _ground_all(world, chains, counting, threads, progress)
        inside = variables.contains_keys(found.key)
        found = Found(found.rule[inside], found.key[inside], found.premises[inside])
    else:
        row_of_fact = np.append(np.searchsorted(variables.keys, observed.keys), -1)  # the padding stays -1
        found = Found(found.rule, found.key, row_of_fact[found.premises])
    return Groundings(
        triples=variables,
        observed=observed.contains_keys(variables.keys),
        rule=found.rule,
        hypothesis=np.searchsorted(variables.keys, found.key),
        premises=found.premises,
        rules=len(chains),
    )


@dataclass(frozen=True)
class Found:
    """Groundings as they are found: rule, key of the hypothesis, rows of the premises in the world's facts."""

    rule: IntArray
    key: IntArray
    premises: IntArray


def expected_groundings(world: World, chains: Sequence[Chain]) -> FloatArray:
    """How many groundings each chain has, self-supporting ones counted: what grounding will cost, without doing it.

    Example:
        >>> from plogicnet.grounding.walks import Move
        >>> world = World(TripleSet.of([(0, 0, 1), (1, 0, 2), (1, 0, 0)], entities=3))
        >>> expected_groundings(world, [Chain((Move(0, True), Move(0, True)), 0), Chain((Move(0, False),), 0)])
        array([3., 3.])
    """
    relations = 1 + max((m.relation for chain in chains for m in chain.moves), default=0)
    relations = max(relations, int(world.facts.triples[:, RELATION].max(initial=0)) + 1)
    sizes = np.bincount(world.facts.triples[:, RELATION], minlength=relations)
    pairs = two_step_paths(world.facts, relations)
    expected = np.empty(len(chains))
    composed = [i for i, chain in enumerate(chains) if _is_composition(chain)]
    if composed:
        firsts, seconds = np.array([[move.relation for move in chains[i].moves] for i in composed]).T
        expected[composed] = pairs[firsts, seconds]
    for i in set(range(len(chains))) - set(composed):
        moves = chains[i].moves
        expected[i] = sizes[moves[0].relation] if len(moves) == 1 else ways_on(world, moves)[0].sum()
    return expected


def _is_composition(chain: Chain) -> bool:
    return len(chain.moves) == 2 and all(move.forward for move in chain.moves)


def _ground_all(world: World, chains: Sequence[Chain], counting: Counting, threads: int, progress: Progress) -> Found:
    """Grounds every chain: compositions by first relation in compiled code, the others one by one."""
    width = max((len(chain.moves) for chain in chains), default=1)
    by_first: dict[int, list[int]] = {}
    others: list[int] = []
    for number, chain in enumerate(chains):
        (by_first.setdefault(chain.moves[0].relation, []) if _is_composition(chain) else others).append(number)
    compositions = _compositions(world, chains, counting, by_first)
    parts = [Found(_none(), _none(), np.empty((0, width), dtype=np.int64))]
    with progress("grounding, rules", len(chains)) as advance, ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        for first, found in zip(by_first, pool.map(compositions, by_first), strict=True):
            parts.append(Found(found.rule, found.key, _padded(found.premises, width)))
            advance(len(by_first[first]))
        for number in others:
            for walks in ground(world, chains[number], counting):
                key = triple_keys(hypothesis_triples(walks, chains[number].relation), world.facts.entities)
                parts.append(Found(np.full(len(key), number), key, _padded(walks.premises, width)))
            advance()
    return Found(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("rule", "key", "premises")))


def _compositions(
    world: World, chains: Sequence[Chain], counting: Counting, by_first: dict[int, list[int]]
) -> Callable[[int], Found]:
    """Grounds the compositions that begin with one relation."""
    relation_of = np.array([chain.relation for chain in chains], dtype=np.int64)
    n_relations = 1 + max((m.relation for chain in chains for m in chain.moves), default=0)
    highest = int(world.facts.triples[:, RELATION].max(initial=0)) + 1
    runs = Runs.of(world.facts) if by_first else None

    def ground_first(first: int) -> Found:
        assert runs is not None  # nosec B101 # for the type checker; `by_first` is not empty here
        numbers = np.array(by_first[first], dtype=np.int64)
        seconds = np.array([chains[i].moves[1].relation for i in numbers], dtype=np.int64)
        size, paths = max(n_relations, highest), counting == "paths"
        found = ground_compositions(runs, first, seconds, relation_of[numbers], numbers, size, paths)
        n = world.facts.entities
        key = (relation_of[found.rule] * n + found.head) * n + found.tail
        return Found(found.rule, key, found.premises)

    return ground_first


def _padded(premises: IntArray, width: int) -> IntArray:
    """Rows of the same width; a premise that occurs twice in a grounding counts once."""
    rows = np.full((len(premises), width), -1, dtype=np.int64)
    for at in range(premises.shape[1]):
        repeated = np.any(premises[:, :at] == premises[:, [at]], axis=1) if at else np.zeros(len(rows), dtype=bool)
        rows[:, at] = np.where(repeated, -1, premises[:, at])
    return rows


def _none() -> IntArray:
    return np.empty(0, dtype=np.int64)
