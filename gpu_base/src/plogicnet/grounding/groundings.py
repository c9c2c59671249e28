"""Hidden triples, and every grounding as rows of arrays: which rule, which hypothesis, which premises."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from plogicnet.graph import RELATION, BoolArray, FloatArray, IntArray, KnowledgeGraph, TripleSet, triple_keys
from plogicnet.grounding.native import Runs, Wanted, count_groundings, fill_groundings
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
from plogicnet.memory import require_bytes
from plogicnet.progress import Progress, silent
from plogicnet.rules import RuleTable

AT_ONCE = 1 << 20
"""So many groundings are looked at together."""
TRIPLE_BYTES = 80
"""What one triple of O ∪ H takes while the set is made."""


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
    variables = _variables(observed, found.key)
    if hidden_premises:
        del found
        world = World(variables)
        check(world)
        found = _ground_all(world, chains, counting, threads, progress).within(variables)
    else:
        row_of_fact = np.append(np.searchsorted(variables.keys, observed.keys), -1)  # the padding stays -1
        for part in found.parts():
            found.premises[part] = row_of_fact[found.premises[part]]
    for part in found.parts():  # in their own place: there may be more of them than fit twice
        found.key[part] = np.searchsorted(variables.keys, found.key[part])
    return Groundings(
        triples=variables,
        observed=observed.contains_keys(variables.keys),
        rule=found.rule,
        hypothesis=found.key,
        premises=found.premises,
        rules=len(chains),
    )


def _variables(observed: TripleSet, keys: IntArray) -> TripleSet:
    """O ∪ H, by the keys of all hypotheses."""
    hidden = [_none()]
    for at in range(0, len(keys), AT_ONCE):
        part = keys[at : at + AT_ONCE]
        hidden.append(_distinct(part[~observed.contains_keys(part)]))
    new = _distinct(np.concatenate(hidden))
    require_bytes(
        TRIPLE_BYTES * (len(observed) + len(new)), f"{len(new):,} hidden triples", "raise rules.min_precision"
    )
    every = np.concatenate([observed.keys, new])
    every.sort()
    return TripleSet.of_keys(every, observed.entities)


def _distinct(keys: IntArray) -> IntArray:
    """Each once, in order; sorted by hand, for numpy's own `unique` hashes first, which is slower here."""
    keys = np.sort(keys)
    return np.asarray(keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]])


@dataclass(frozen=True)
class Found:
    """Groundings as they are found: rule, key of the hypothesis, rows of the premises in the world's facts."""

    rule: IntArray
    key: IntArray
    premises: IntArray

    def parts(self) -> Iterator[slice]:
        """Some groundings at a time."""
        return (slice(at, at + AT_ONCE) for at in range(0, len(self.rule), AT_ONCE))

    def within(self, variables: TripleSet) -> "Found":
        """Those whose hypothesis is among the triples; they take the place of all."""
        n = 0
        for part in self.parts():
            inside = variables.contains_keys(self.key[part])
            end = n + int(inside.sum())
            for column in (self.rule, self.key, self.premises):
                column[n:end] = column[part][inside]
            n = end
        return self.first(n)

    def first(self, n: int) -> "Found":
        """The first so many."""
        return Found(self.rule[:n], self.key[:n], self.premises[:n])


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
    """Grounds every chain, straight into place: compositions by first relation in compiled code, others one by one."""
    n, width = world.facts.entities, max((len(chain.moves) for chain in chains), default=1)
    by_first: dict[int, list[int]] = {}
    others: list[int] = []
    for number, chain in enumerate(chains):
        (by_first.setdefault(chain.moves[0].relation, []) if _is_composition(chain) else others).append(number)
    runs, wanted = Runs.of(world.facts), _wanted(world, chains, counting, by_first)
    most = int(expected_groundings(world, [chains[i] for i in others]).sum())
    with progress("grounding, rules", len(chains)) as advance, ThreadPoolExecutor(threads or os.cpu_count()) as pool:

        def fill(of: tuple[Wanted, int, int]) -> None:
            rules, start, stop = of
            fill_groundings(runs, rules, n, found.rule[start:stop], found.key[start:stop], found.premises[start:stop])
            found.premises[start:stop, 2:] = -1

        ends = np.cumsum([0, *pool.map(partial(count_groundings, runs), wanted)]).tolist()
        size = ends[-1] + most  # memory is taken as it is filled, so that a few too many cost nothing
        found = Found(np.empty(size, np.int64), np.empty(size, np.int64), np.empty((size, width), np.int64))
        for of, _ in zip(by_first.values(), pool.map(fill, zip(wanted, ends[:-1], ends[1:], strict=True)), strict=True):
            advance(len(of))
        end = ends[-1]
        for number in others:
            for walks in ground(world, chains[number], counting):
                start, end = end, end + len(walks.entities)
                found.rule[start:end] = number
                found.key[start:end] = triple_keys(hypothesis_triples(walks, chains[number].relation), n)
                _pad(walks.premises, found.premises[start:end])
            advance()
    return found.first(end)


def _wanted(world: World, chains: Sequence[Chain], counting: Counting, by_first: dict[int, list[int]]) -> list[Wanted]:
    """The compositions that begin with each relation."""
    n_relations = 1 + max((m.relation for chain in chains for m in chain.moves), default=0)
    n_relations = max(n_relations, int(world.facts.triples[:, RELATION].max(initial=0)) + 1)

    def of(first: int, numbers: list[int]) -> Wanted:
        seconds = np.array([chains[i].moves[1].relation for i in numbers], dtype=np.int64)
        relations = np.array([chains[i].relation for i in numbers], dtype=np.int64)
        return Wanted.of(first, seconds, relations, np.array(numbers, np.int64), n_relations, counting == "paths")

    return [of(first, numbers) for first, numbers in by_first.items()]


def _pad(premises: IntArray, rows: IntArray) -> None:
    """Fills rows, which may be wider; a premise that occurs twice in a grounding counts once."""
    rows[:] = -1
    for at in range(premises.shape[1]):
        repeated = np.any(premises[:, :at] == premises[:, [at]], axis=1) if at else np.zeros(len(rows), dtype=bool)
        rows[:, at] = np.where(repeated, -1, premises[:, at])


def _none() -> IntArray:
    return np.empty(0, dtype=np.int64)
