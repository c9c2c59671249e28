"""Mining of chains whose steps can also lead from tail to head, and of chains with three steps.

The patterns of `config.shapes` are mined by `plogicnet.grounding.native.mining`. This module mines all other chains up
to `rules.max_length`. Two passes count them:

1. For each fact, find all chains that connect its head and its tail, with and without the fact itself.
2. For each chain that can be precise enough, walk from every entity and count the distinct pairs that it connects.
   Other chains have too few hits for a lower bound of their pairs.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from plogicnet import config
from plogicnet.config.shapes import CHAIN_SHAPES
from plogicnet.graph import RELATION, IntArray
from plogicnet.grounding.engine import Resources
from plogicnet.grounding.native.adjacency import Adjacency, edges_of, lower_bound
from plogicnet.grounding.native.bounds import bound_pairs
from plogicnet.rules import Step, chain_rule
from plogicnet.rules.rule import Rule
from plogicnet.support.compiling import compiled
from plogicnet.support.errors import InputError
from plogicnet.support.threads import map_in_threads

MAX_PATHS = 5e9
"""The largest number of paths of three steps that are walked."""
MAX_CHAINS = 1 << 25
"""The largest number of chains that are counted at a time for one relation, in at most 2 GB."""
CHUNKS = 64
"""The number of parts into which the entities are split for walks."""


@dataclass(frozen=True)
class CountedChains:
    """Chains with their counts, as arrays with one entry per chain.

    Attributes:
        bodies: the steps of each chain.
        body: the index of the chain's body in `bodies`.
        relation: the relation of the hypothesis.
        support, hits: the counts, without self-supporting groundings.
        n_candidates: the number of chains with enough hits, before the thresholds are applied.
    """

    bodies: list[tuple[int, ...]]
    body: IntArray
    relation: IntArray
    support: IntArray
    hits: IntArray
    n_candidates: int


def mine_chains(adjacency: Adjacency, settings: config.Rules, resources: Resources) -> CountedChains:
    """Count all chains up to `rules.max_length` that match no other pattern, and apply the thresholds."""
    length = settings.max_length
    if length == 3:
        _require_few_paths(adjacency)
    found = _hits(adjacency, settings, length, resources)
    codes = np.unique(np.concatenate([keys for keys, _, _ in found]))
    bodies = [_decode(int(code), adjacency.n_steps) for code in codes]
    kept = np.array([is_mined(body, adjacency.n_relations, settings.backward) for body in bodies], dtype=bool)
    codes, bodies = codes[kept], list(itertools.compress(bodies, kept))
    relation = np.repeat(np.arange(len(found)), [len(keys) for keys, _, _ in found])
    keys, hits, own = (np.concatenate(column) for column in zip(*found, strict=True))
    rows = np.flatnonzero(np.isin(keys, codes))
    n_candidates, min_precision = len(rows), settings.min_precision.chain
    body, relation, hits, own = np.searchsorted(codes, keys[rows]), relation[rows], hits[rows], own[rows]
    # the support also contains the hits
    bound = np.maximum(bound_pairs(adjacency, as_steps(bodies), resources)[body] - own, hits)
    rows = np.flatnonzero(hits / np.maximum(bound, 1) >= min_precision)
    walked, body = np.unique(body[rows], return_inverse=True)
    bodies, relation, hits, own = [bodies[i] for i in walked], relation[rows], hits[rows], own[rows]
    support = _count_pairs(adjacency, bodies, resources)[body] - own
    rows = np.flatnonzero((hits / np.maximum(support, 1) >= min_precision) & (support >= settings.min_support))
    return CountedChains(bodies, body[rows], relation[rows], support[rows], hits[rows], n_candidates)


def chain_rules(chains: CountedChains, names: Sequence[str]) -> Iterator[Rule]:
    """Yield the rules of counted chains. `names` are the names of the relations by id."""
    n = len(names)
    for body, relation in zip(chains.body.tolist(), chains.relation.tolist(), strict=True):
        steps = [Step(names[step % n], forward=step < n) for step in chains.bodies[body]]
        yield chain_rule(steps, names[relation])


def count_three_step_paths(adjacency: Adjacency) -> float:
    """Return the number of paths of three steps in a graph, in all directions."""
    edges, degree = adjacency.edges, adjacency.degree.astype(np.float64)
    return float((degree[edges.step_source] * degree[edges.step_target]).sum())


def _require_few_paths(adjacency: Adjacency) -> None:
    """Raise InputError if the graph has too many paths of three steps."""
    paths = count_three_step_paths(adjacency)
    if paths > MAX_PATHS:
        raise InputError(
            f"rules.max_length=3: the graph has {paths:.1e} paths of three steps, more than the {MAX_PATHS:.0e}"
            " that can be walked. Use --set rules.budget_s=100 to mine a sample of the chains for 100 seconds, or"
            " --set rules.max_length=2."
        )


def is_mined(body: Sequence[int], n_relations: int, backward: bool) -> bool:
    """Return whether this module mines the chain: no other pattern matches, and the directions are allowed."""
    forward = tuple(step < n_relations for step in body)
    is_pattern = any(shape.forward == forward for shape in CHAIN_SHAPES)
    return not is_pattern and (backward or all(forward))


def _decode(code: int, n_steps: int) -> tuple[int, ...]:
    """Return the steps of a code. The first step is the most significant digit."""
    steps = []
    while code:
        code, step = divmod(code, n_steps + 1)
        steps.append(step - 1)
    return tuple(reversed(steps))


def _hits(
    adjacency: Adjacency, settings: config.Rules, length: int, resources: Resources
) -> list[tuple[IntArray, IntArray, IntArray]]:
    """Return, per relation, the codes of all chains with enough hits, their hits, and their self-supporting pairs."""
    triples = adjacency.facts.triples
    relations = range(adjacency.n_relations)

    def work(relation: int) -> tuple[IntArray, IntArray, IntArray]:
        rows = np.flatnonzero(triples[:, RELATION] == relation)
        arguments = (adjacency.edges, triples, rows, adjacency.n_relations, length, settings.backward)
        keys, hits = _connect(*arguments, True, MAX_CHAINS)
        all_keys, connected = _connect(*arguments, False, MAX_CHAINS)
        if len(all_keys) > MAX_CHAINS:
            raise InputError(
                f"rules.max_length={length}: more than {MAX_CHAINS:,} chains connect the facts of one relation. Use"
                " --set rules.budget_s=100 to mine a sample of the chains of three steps for 100 seconds."
            )
        order = np.argsort(all_keys)
        own = connected[order][np.searchsorted(all_keys[order], keys)] - hits
        kept = hits >= settings.min_hits
        return keys[kept], hits[kept].astype(np.int64), own[kept].astype(np.int64)

    result = []
    with resources.progress("mining chains, facts", len(triples)) as advance:
        for relation, found in zip(relations, map_in_threads(work, relations, resources.threads), strict=True):
            result.append(found)
            advance(int((triples[:, RELATION] == relation).sum()))
    return result


@compiled()
def _connect(edges, triples, rows, n_relations, length, backward, without_fact, max_chains):  # type: ignore[no-untyped-def]
    """Return the codes of the chains that connect head and tail of facts, and the number of facts of each.

    With `without_fact`, paths that use the fact itself are left out. Stop at the first fact with which the chains are
    more than `max_chains`. The counts are in a hash table with open
    addressing. `last` is the last fact that was counted for a code.
    """
    keys, count, last = np.full(1024, -1, np.int64), np.zeros(1024, np.int32), np.full(1024, -1, np.int64)
    n_keys = 0
    for row in rows:
        x, z = triples[row, 0], triples[row, 2]
        hidden = row if without_fact else -1
        keys, count, last, n_keys = connect_in_two(
            edges, x, z, hidden, row, np.int64(0), n_relations, backward, False, keys, count, last, n_keys
        )
        if length == 3:
            for edge in range(edges.begin[x], edges.begin[x + 1]):
                if edges.fact[edge] != hidden and (backward or edges.step[edge] < n_relations):
                    first = np.int64(edges.step[edge]) + 1
                    keys, count, last, n_keys = connect_in_two(
                        edges, edges.target[edge], z, hidden, row, first, n_relations, backward, False, keys, count,
                        last, n_keys,
                    )  # fmt: skip
        if n_keys > max_chains:
            break
    used = np.flatnonzero(keys >= 0)
    return keys[used], count[used]


@compiled()
def connect_in_two(edges, x, z, hidden, row, first, n_relations, backward, reverse, keys, count, last, n_keys):  # type: ignore[no-untyped-def]
    """Count the chains of two steps from x to z, after the step in `first`, which is 0 or the step's number plus 1.

    With `reverse`, the path is read from its other end: the chain leads from z over x to the last step `first`. Without
    `backward`, only chains of forward steps are counted.

    The edges of both entities are sorted by target, so their common neighbours are found by a merge. The entity with
    fewer edges leads, and the other's edges are searched.
    """
    i, i_end, j, j_end = edges.begin[x], edges.begin[x + 1], edges.begin[z], edges.begin[z + 1]
    swapped = i_end - i > j_end - j
    if swapped:
        i, i_end, j, j_end = j, j_end, i, i_end
    base = 2 * n_relations + 1
    target = edges.near_target
    while i < i_end and j < j_end:
        middle = target[i]
        if target[j] < middle:
            j = lower_bound(target, j, j_end, middle)
            continue
        if target[j] > middle:
            i += 1
            continue
        i_stop, j_stop = i, j
        while i_stop < i_end and target[i_stop] == middle:
            i_stop += 1
        while j_stop < j_end and target[j_stop] == middle:
            j_stop += 1
        for p in range(i, i_stop):
            if edges.near_fact[p] == hidden:
                continue
            for q in range(j, j_stop):
                if edges.near_fact[q] == hidden:
                    continue
                one, two = edges.near_step[p], edges.near_step[q]
                if swapped:
                    one, two = two, one
                if reverse:
                    one = one - n_relations if one >= n_relations else one + n_relations  # from the middle to x
                    code = (np.int64(two + 1) * base + one + 1) * base + first
                else:
                    two = two - n_relations if two >= n_relations else two + n_relations  # from the middle to z
                    code = (first * base + one + 1) * base + two + 1
                if not backward and (one >= n_relations or two >= n_relations):
                    continue
                if 2 * n_keys > len(keys):
                    keys, count, last = _grow(keys, count, last)
                n_keys += _add(keys, count, last, code, row)
        i, j = i_stop, j_stop
    return keys, count, last, n_keys


@compiled()
def _slot(keys, code):  # type: ignore[no-untyped-def]
    """Return the position of a code in a hash table, or of the free entry for it."""
    mask = len(keys) - 1
    slot = np.int64((np.uint64(code) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(20)) & np.uint64(mask))
    while keys[slot] >= 0 and keys[slot] != code:
        slot = (slot + 1) & mask
    return slot


@compiled()
def _add(keys, count, last, code, row):  # type: ignore[no-untyped-def]
    """Count a fact for a code once. Return the number of new codes, 0 or 1."""
    slot = _slot(keys, code)
    is_new = keys[slot] < 0
    if is_new:
        keys[slot] = code
    if last[slot] != row:
        last[slot] = row
        count[slot] += 1
    return 1 if is_new else 0


@compiled()
def _grow(keys, count, last):  # type: ignore[no-untyped-def]
    """Return a hash table of twice the size with the same entries."""
    size = 2 * len(keys)
    new_keys, new_count, new_last = np.full(size, -1, np.int64), np.zeros(size, np.int32), np.full(size, -1, np.int64)
    for i in range(len(keys)):
        if keys[i] >= 0:
            slot = _slot(new_keys, keys[i])
            new_keys[slot], new_count[slot], new_last[slot] = keys[i], count[i], last[i]
    return new_keys, new_count, new_last


def as_steps(chains: Sequence[Sequence[int]]) -> IntArray:
    """Return chains of at most three steps as rows. Missing steps are -1.

    Example:
        >>> as_steps([(3, 4)]).tolist()
        [[3, 4, -1]]
    """
    return np.array([(*chain, -1, -1)[:3] for chain in chains], dtype=np.int64).reshape(-1, 3)


@dataclass(frozen=True)
class Trie:
    """Chains that share their first steps, as a tree. Node 0 has no steps.

    Attributes:
        begin: the first child of each node, and the end of the last.
        step: the step to each child.
        node: the node of each child.
        chain: the index of the chain that ends at each node, or -1.
    """

    begin: IntArray
    step: IntArray
    node: IntArray
    chain: IntArray

    @classmethod
    def of(cls, chains: Sequence[Sequence[int]]) -> "Trie":
        """Create the tree of distinct chains of at most three steps.

        Example:
            >>> trie = Trie.of([(3, 4), (3, 5)])
            >>> trie.step.tolist(), trie.chain.tolist()
            ([3, 4, 5], [-1, -1, 0, 1])
        """
        return cls.of_steps(as_steps(chains))

    @classmethod
    def of_steps(cls, steps: IntArray) -> "Trie":
        """Create the tree of distinct chains, one per row. A chain with less than three steps ends with -1."""
        order = np.lexsort(steps.T[::-1])
        ordered = steps[order]
        node, n_nodes = np.zeros(len(steps), dtype=np.int64), 1
        parents, all_steps, ends = [], [], [np.full(1, -1)]
        for depth in range(steps.shape[1]):
            here = np.flatnonzero(ordered[:, depth] >= 0)
            step = ordered[here, depth]
            is_new = np.append(True, (np.diff(node[here]) != 0) | (np.diff(step) != 0))[: len(here)]
            parents.append(node[here[is_new]])
            all_steps.append(step[is_new])
            node[here] = n_nodes + np.cumsum(is_new) - 1
            is_end = ordered[here, depth + 1] < 0 if depth + 1 < steps.shape[1] else np.ones(len(here), dtype=bool)
            end = np.full(int(is_new.sum()), -1)
            end[node[here[is_end]] - n_nodes] = order[here[is_end]]
            ends.append(end)
            n_nodes += len(end)
        parent = np.concatenate(parents)
        begin = np.append(0, np.cumsum(np.bincount(parent, minlength=n_nodes)))
        return cls(begin, np.concatenate(all_steps), np.arange(1, n_nodes), np.concatenate(ends))


def _count_pairs(adjacency: Adjacency, bodies: Sequence[tuple[int, ...]], resources: Resources) -> IntArray:
    """Return the number of distinct pairs (first entity, last entity) that each chain connects."""
    if not bodies:
        return np.empty(0, np.int64)
    trie = Trie.of(bodies)
    chunks = np.array_split(np.random.default_rng(0).permutation(adjacency.n_entities), CHUNKS)  # spreads the hubs

    def work(entities: IntArray) -> IntArray:
        pairs = np.zeros(len(bodies), np.int64)
        _walk_all(adjacency.edges, adjacency.n_entities, entities, trie.begin, trie.step, trie.node, trie.chain, pairs)
        return pairs

    total = np.zeros(len(bodies), np.int64)
    with resources.progress("counting chains, entities", adjacency.n_entities) as advance:
        for chunk, pairs in zip(chunks, map_in_threads(work, chunks, resources.threads), strict=True):
            np.add(total, pairs, out=total)
            advance(len(chunk))
    return total


@compiled()
def _walk_all(edges, n_entities, starts, begin, step, node, chain, pairs):  # type: ignore[no-untyped-def]
    """Add the number of distinct ends of each chain from each start to `pairs`."""
    seen, token = np.full((3, n_entities), -1, np.int64), 0
    reached, n_reached = np.empty((3, n_entities), np.int32), np.zeros(3, np.int64)
    for start in starts:
        for first in range(begin[0], begin[1]):
            token += 1
            one = node[first]
            low, high = edges_of(edges, start, step[first])
            n_reached[0] = 0
            for edge in range(low, high):
                reached[0, n_reached[0]] = edges.target[edge]
                n_reached[0] += 1
            if low == high:
                continue
            if chain[one] >= 0:
                pairs[chain[one]] += n_reached[0]
            for second in range(begin[one], begin[one + 1]):
                token += 1
                two = node[second]
                n_reached[1] = take_step(edges, reached[0], n_reached[0], step[second], reached[1], seen[1], token)
                if chain[two] >= 0:
                    pairs[chain[two]] += n_reached[1]
                if n_reached[1] == 0:
                    continue
                for third in range(begin[two], begin[two + 1]):
                    token += 1
                    three = node[third]
                    n = take_step(edges, reached[1], n_reached[1], step[third], reached[2], seen[2], token)
                    if chain[three] >= 0:
                        pairs[chain[three]] += n


@compiled()
def take_step(edges, entities, n, step, reached, seen, token):  # type: ignore[no-untyped-def]
    """Write the distinct entities that one step leads to from the first n entities. Return their number."""
    n_reached = 0
    for i in range(n):
        low, high = edges_of(edges, entities[i], step)
        for edge in range(low, high):
            target = edges.target[edge]
            if seen[target] != token:
                seen[target] = token
                reached[n_reached] = target
                n_reached += 1
    return n_reached
