"""Mining of chains of three steps on graphs with too many paths to walk all of them.

1. Propose: draw facts of each relation, draw edges at one end, and find all chains that begin with such an edge and
   connect both ends of the fact. A chain that connects two drawn facts is a candidate.
2. Screen: leave out candidates that cannot reach `rules.min_precision.chain`. First by an exact lower bound of their
   support, then by walks from some of the entities.
3. Count: walk the other candidates from all entities. So support and hits of all returned rules are exact.

Only counts limit the work, never the clock, so the result depends on the settings alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from plogicnet import config
from plogicnet.graph import RELATION, BoolArray, FloatArray, IntArray
from plogicnet.grounding.engine import Resources
from plogicnet.grounding.native.adjacency import Adjacency, edges_of, lower_bound
from plogicnet.grounding.native.bounds import count_paths
from plogicnet.grounding.native.chains import (
    CHUNKS,
    MAX_CHAINS,
    CountedChains,
    Trie,
    connect_in_two,
    is_mined,
    take_step,
)
from plogicnet.support.compiling import compiled
from plogicnet.support.threads import map_in_threads

EDGES_PER_FACT = 32
"""The largest number of edges drawn at an end of a fact, if not all walks of the relation are drawn."""
MIN_SAMPLED_HITS = 2
"""The number of drawn facts that a candidate connects."""
MAX_CANDIDATES = 200_000
"""The largest number of candidates per relation: those that connect most facts are kept."""
STAGES = (1 / 64, 1 / 8, 1.0)
"""The share of entities from which candidates have been walked after each stage of counting."""
STAGE_SHARES = (0.2, 0.3, 0.5)
"""The share of `rules.counted_paths` for each stage."""


@dataclass(frozen=True)
class Candidates:
    """Chains of three steps that may be rules, as arrays with one entry per candidate.

    Attributes:
        steps: the steps of the body, of shape (candidates, 3).
        relation: the relation of the hypothesis.
        sampled: the number of drawn facts that the body connects, or another number that is larger for candidates that
            are more promising.
    """

    steps: IntArray
    relation: IntArray
    sampled: IntArray | FloatArray

    def __len__(self) -> int:
        return len(self.relation)

    def take(self, rows: IntArray | BoolArray) -> "Candidates":
        """Return the selected candidates."""
        return Candidates(self.steps[rows], self.relation[rows], self.sampled[rows])


@dataclass(frozen=True)
class Sampling:
    """What sampling did, for the log and for the result of `mine`.

    Attributes:
        walks: the number of drawn walks, each a fact and an edge at one of its ends.
        possible_walks: the number of such walks in the graph.
        exhausted: the number of relations of which all walks were drawn.
        candidates: the number of candidates, before they were screened.
        limited: the number of candidates that were left out only because of `rules.counted_paths`.
        counted: the number of candidates whose support and hits were counted exactly.
    """

    walks: int
    possible_walks: int
    exhausted: int
    candidates: int
    limited: int = 0
    counted: int = 0

    def to_json(self) -> dict[str, object]:
        """Return the numbers as a JSON object."""
        return {"exhaustive": False, **vars(self)}


def mine_sampled_chains(
    adjacency: Adjacency, settings: config.Rules, resources: Resources
) -> tuple[CountedChains, Sampling]:
    """Find chains of three steps by drawing `rules.sampled_walks` walks, and count them exactly."""
    candidates, sampling = propose(adjacency, settings, resources)
    counted, n_limited, n_counted = count_candidates(adjacency, candidates, settings, resources)
    return counted, replace(sampling, limited=n_limited, counted=n_counted)


def count_candidates(
    adjacency: Adjacency, candidates: Candidates, settings: config.Rules, resources: Resources
) -> tuple[CountedChains, int, int]:
    """Screen candidates, count the others exactly, and apply the thresholds.

    Also return the number of candidates left out because of `rules.counted_paths`, and of those that were counted.
    """
    paths, bound = count_paths(adjacency, candidates.steps, resources)
    limit = pair_limit(adjacency, settings)
    possible = np.flatnonzero(bound <= limit[candidates.relation])
    best = possible[np.argsort(-candidates.sampled[possible] / np.maximum(paths[possible], 1), kind="stable")]
    counter = StagedCounter(adjacency, settings, resources, limit)
    rows, pairs, hits, own, n_limited = counter.count(candidates.take(best), paths[best])
    kept = candidates.take(best[rows])
    support = pairs - own
    precise = hits / np.maximum(support, 1) >= settings.min_precision.chain
    selected = np.flatnonzero(precise & (support >= settings.min_support) & (hits >= settings.min_hits))
    found = kept.take(selected)
    bodies = list(map(tuple, found.steps.tolist()))
    counted = CountedChains(
        bodies, np.arange(len(bodies)), found.relation, support[selected], hits[selected], len(candidates)
    )
    return counted, n_limited, len(rows)


def pair_limit(adjacency: Adjacency, settings: config.Rules) -> FloatArray:
    """Return the largest number of pairs with which a chain can be precise enough, per relation of the hypothesis.

    The hits are at most the facts of the relation that do not support themselves.
    """
    n_facts = np.bincount(adjacency.facts.triples[:, RELATION], minlength=adjacency.n_relations)
    return np.asarray(n_facts / max(settings.min_precision.chain, 1e-12))


@dataclass(frozen=True)
class Draws:
    """The facts of one relation that are drawn, and how many edges at one end of each."""

    relation: int
    rows: IntArray
    edges_per_fact: int
    walks: int
    exhausted: bool


def draw_facts(adjacency: Adjacency, n_walks: int, seed: int) -> Iterator[Draws]:
    """Share the walks equally among the relations. Relations with fewer walks leave theirs to the others.

    A fact has a walk for each edge at the end with fewer edges.
    """
    triples = adjacency.facts.triples
    degrees = np.minimum(adjacency.degree[triples[:, 0]], adjacency.degree[triples[:, 2]])
    possible = np.bincount(triples[:, RELATION], weights=degrees, minlength=adjacency.n_relations).astype(np.int64)
    remaining = n_walks
    for n_left, relation in enumerate(np.argsort(possible, kind="stable").tolist()):
        share = remaining // (adjacency.n_relations - n_left)
        rows = np.flatnonzero(triples[:, RELATION] == relation)
        if possible[relation] <= share:
            yield Draws(relation, rows, len(triples) * 2, int(possible[relation]), True)
            remaining -= int(possible[relation])
            continue
        edges = max(min(EDGES_PER_FACT, share), share // max(len(rows), 1), 1)
        size = min(max(share // edges, 1), len(rows))
        drawn = np.sort(np.random.default_rng([seed, relation]).choice(rows, size, replace=False))
        walks = int(np.minimum(degrees[drawn], edges).sum())
        yield Draws(relation, drawn, edges, walks, False)
        remaining -= walks


def propose(adjacency: Adjacency, settings: config.Rules, resources: Resources) -> tuple[Candidates, Sampling]:
    """Return the chains that connect drawn facts."""
    triples, n, base = adjacency.facts.triples, adjacency.n_relations, adjacency.n_steps + 1
    draws = list(draw_facts(adjacency, settings.sampled_walks, resources.seed))
    directions = [(a, b, c) for a in (0, n) for b in (0, n) for c in (0, n)]
    is_wanted = np.array([is_mined(steps, n, settings.backward) for steps in directions])

    def work(draw: Draws) -> Candidates:
        keys, hits = _connect_drawn(
            adjacency.edges, triples, draw.rows, n, draw.edges_per_fact, settings.backward,
            np.uint64(resources.seed * 1_000_003 + draw.relation), MAX_CHAINS,
        )  # fmt: skip
        kept = hits >= max(MIN_SAMPLED_HITS, settings.min_hits if draw.exhausted else 0)
        keys, hits = keys[kept], hits[kept]
        best = np.sort(np.lexsort((keys, -hits))[:MAX_CANDIDATES])
        keys, hits = keys[best], hits[best]
        steps = np.column_stack([keys // base**2, keys // base % base, keys % base]) - 1
        direction = (steps >= n) @ [4, 2, 1]
        found = Candidates(steps, np.full(len(keys), draw.relation), hits.astype(np.int64))
        found = found.take(is_wanted[direction])
        order = np.lexsort(found.steps.T[::-1])
        return found.take(order)

    parts = []
    with resources.progress("sampling chains, walks", sum(draw.walks for draw in draws)) as advance:
        # the longest first, so that no thread waits for one at the end
        longest = sorted(draws, key=lambda draw: -draw.walks)
        for draw, part in zip(longest, map_in_threads(work, longest, resources.threads), strict=True):
            parts.append(part)
            advance(draw.walks)
    parts.sort(key=lambda part: int(part.relation[0]) if len(part) else -1)
    candidates = Candidates(
        np.concatenate([part.steps for part in parts]),
        np.concatenate([part.relation for part in parts]),
        np.concatenate([part.sampled for part in parts]),
    )
    walks, exhausted = sum(draw.walks for draw in draws), sum(draw.exhausted for draw in draws)
    return candidates, Sampling(walks, possible_walks(adjacency), exhausted, len(candidates))


def possible_walks(adjacency: Adjacency) -> int:
    """Return the number of pairs of a fact and an edge at its end with fewer edges."""
    triples, degree = adjacency.facts.triples, adjacency.degree
    return int(np.minimum(degree[triples[:, 0]], degree[triples[:, 2]]).sum())


@compiled()
def _connect_drawn(edges, triples, rows, n_relations, n_edges, backward, seed, max_chains):  # type: ignore[no-untyped-def]
    """Return the codes of chains of three steps that connect drawn facts, and the number of these facts.

    The first edge, or the last, is one of at most `n_edges` drawn at the end of the fact with fewer edges.
    Stop at the first fact with which the chains are more than `max_chains`.
    """
    keys, count, last = np.full(1024, -1, np.int64), np.zeros(1024, np.int32), np.full(1024, -1, np.int64)
    n_keys = 0
    for row in rows:
        x, z = triples[row, 0], triples[row, 2]
        reverse = edges.begin[x + 1] - edges.begin[x] > edges.begin[z + 1] - edges.begin[z]
        if reverse:
            x, z = z, x
        begin, degree = edges.begin[x], edges.begin[x + 1] - edges.begin[x]
        n = min(degree, n_edges)
        state = (seed + np.uint64(row) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        for j in range(n):
            edge = begin + j
            if n < degree:  # one edge of each of n equal parts
                state ^= state >> np.uint64(12)
                state ^= state << np.uint64(25)
                state ^= state >> np.uint64(27)
                share = np.float64((state * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(11)) / 9007199254740992.0
                edge = begin + min(np.int64((j + share) * degree / n), degree - 1)
            step = edges.step[edge]
            if reverse:
                step = step - n_relations if step >= n_relations else step + n_relations
            if edges.fact[edge] == row or (step >= n_relations and not backward):
                continue
            keys, count, last, n_keys = connect_in_two(
                edges, edges.target[edge], z, row, row, np.int64(step) + 1, n_relations, backward, reverse, keys, count,
                last, n_keys,
            )  # fmt: skip
        if n_keys > max_chains:
            break
    used = np.flatnonzero(keys >= 0)
    return keys[used], count[used]


@dataclass(frozen=True)
class StagedCounter:
    """Counts candidates in stages. Each stage walks from more entities, and drops candidates that are too imprecise.

    Attributes:
        limit: the result of `pair_limit`.
    """

    adjacency: Adjacency
    settings: config.Rules
    resources: Resources
    limit: FloatArray

    def count(self, candidates: Candidates, paths: FloatArray) -> tuple[IntArray, IntArray, IntArray, IntArray, int]:
        """Count candidates, which are sorted by decreasing promise.

        Return the rows of those that were counted from all entities, their pairs, hits and self-supporting pairs, and
        the number of candidates left out because of `rules.counted_paths`.
        """
        entities = np.random.default_rng(self.resources.seed).permutation(self.adjacency.n_entities)
        cuts = [0, *(round(share * len(entities)) for share in STAGES)]
        rows, n_limited = np.arange(len(candidates)), 0
        pairs, hits, own = np.zeros((3, len(candidates)), dtype=np.int64)
        for stage in range(len(STAGES)):
            share = (cuts[stage + 1] - cuts[stage]) / max(len(entities), 1)
            if self.settings.counted_paths:
                affordable = self._affordable(candidates.steps[rows], paths[rows] * share, stage)
                n_limited += len(rows) - affordable
                rows, pairs, hits, own = (column[:affordable] for column in (rows, pairs, hits, own))
            more = self.walk(candidates.take(rows), entities[cuts[stage] : cuts[stage + 1]])
            pairs, hits, own = pairs + more[0], hits + more[1], own + more[2]
            if stage < len(STAGES) - 1:
                kept = self._select(candidates.relation[rows], pairs, hits, own)
                rows, pairs, hits, own = (column[kept] for column in (rows, pairs, hits, own))
        return rows, pairs, hits, own, n_limited

    def _affordable(self, steps: IntArray, paths: FloatArray, stage: int) -> int:
        """Return the number of the first candidates whose bodies have few enough paths. A body is walked once."""
        _, first = np.unique(steps, axis=0, return_index=True)
        cost = np.zeros(len(paths))
        cost[first] = paths[first]
        return int(np.searchsorted(np.cumsum(cost), STAGE_SHARES[stage] * self.settings.counted_paths, "right"))

    def _select(self, relation: IntArray, pairs: IntArray, hits: IntArray, own: IntArray) -> IntArray:
        """Return the rows of the candidates that may still be precise enough, by decreasing precision.

        Half of the expected hits are enough, less three standard deviations: some entities have many more paths.
        """
        support = pairs - own
        needed = self.settings.min_precision.chain * support
        may_be_precise = hits + 3 * np.sqrt(hits + 1) >= needed / 2
        kept = np.flatnonzero((pairs <= self.limit[relation]) & may_be_precise)
        return kept[np.argsort(-(hits[kept] + 1) / (support[kept] + 2), kind="stable")]

    def walk(self, candidates: Candidates, entities: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return the pairs, hits and self-supporting pairs of candidates from some entities."""
        steps, body = np.unique(candidates.steps, axis=0, return_inverse=True)
        body = body.reshape(-1)
        order = np.lexsort((candidates.relation, body))
        begin = np.searchsorted(body[order], np.arange(len(steps) + 1))
        trie = Trie.of_steps(steps)
        limit = np.zeros(len(steps))
        np.maximum.at(limit, body, self.limit[candidates.relation])
        totals = np.zeros(len(steps), np.int64), np.zeros((2, len(candidates)), np.int64)
        chunks = np.array_split(entities, min(CHUNKS, max(len(entities), 1)))

        def work(starts: IntArray) -> tuple[IntArray, IntArray]:
            pairs, found = np.zeros(len(steps), np.int64), np.zeros((2, len(candidates)), np.int64)
            _walk_candidates(
                self.adjacency.edges, self.adjacency.n_entities, self.adjacency.n_relations, starts, trie.begin,
                trie.step, trie.chain, steps, begin, candidates.relation[order], limit, pairs, found,
            )  # fmt: skip
            return pairs, found

        with self.resources.progress("counting chains, entities", len(entities)) as advance:
            for chunk, results in zip(chunks, map_in_threads(work, chunks, self.resources.threads), strict=True):
                for total, more in zip(totals, results, strict=True):
                    np.add(total, more, out=total)
                advance(len(chunk))
        hits, own = np.empty((2, len(candidates)), np.int64)
        hits[order], own[order] = totals[1]
        return totals[0][body], hits, own


@compiled()
def _walk_candidates(  # type: ignore[no-untyped-def]
    edges, n_entities, n_relations, starts, begin, step, chain, steps, rule_begin, relation, limit, pairs, found
):
    """Add the pairs of each body from each start, and the hits and self-supporting pairs of its hypotheses.

    A body with more pairs than its limit is not walked any more. Child i of the tree is node i + 1.
    """
    seen, token = np.full((3, n_entities), -1, np.int64), 0
    reached, n_reached = np.empty((3, n_entities), np.int32), np.zeros(3, np.int64)
    low, high = np.zeros(2 * n_relations, np.int64), np.zeros(2 * n_relations, np.int64)
    for start in starts:
        first_edge, last_edge = edges.begin[start], edges.begin[start + 1]
        edge = first_edge
        while edge < last_edge:  # the range of the edges of each step
            low[edges.step[edge]] = edge
            stop = edge + 1
            while stop < last_edge and edges.step[stop] == edges.step[edge]:
                stop += 1
            high[edges.step[edge]] = stop
            edge = stop
        for first in range(begin[0], begin[1]):
            n_reached[0] = 0
            for edge in range(low[step[first]], high[step[first]]):
                reached[0, n_reached[0]] = edges.target[edge]
                n_reached[0] += 1
            if n_reached[0] == 0:
                continue
            token += 1
            for i in range(n_reached[0]):
                seen[0, reached[0, i]] = token
            first_token = token
            for second in range(begin[first + 1], begin[first + 2]):
                token += 1
                n_reached[1] = take_step(edges, reached[0], n_reached[0], step[second], reached[1], seen[1], token)
                if n_reached[1] == 0:
                    continue
                second_token = token
                for third in range(begin[second + 1], begin[second + 2]):
                    body = chain[third + 1]
                    if pairs[body] > limit[body]:
                        continue
                    token += 1
                    n = take_step(edges, reached[1], n_reached[1], step[third], reached[2], seen[2], token)
                    pairs[body] += n
                    if n == 0:
                        continue
                    for rule in range(rule_begin[body], rule_begin[body + 1]):
                        r = relation[rule]
                        for edge in range(low[r], high[r]):
                            z = edges.target[edge]
                            if seen[2, z] != token:
                                continue
                            is_hit = True
                            if _has_relation(steps[body], r, n_relations):
                                is_hit = _is_connected_otherwise(
                                    edges, n_relations, start, z, edges.fact[edge], steps[body], seen[0], first_token,
                                    seen[1], second_token,
                                )  # fmt: skip
                            if is_hit:
                                found[0, rule] += 1
                            else:
                                found[1, rule] += 1
        edge = first_edge
        while edge < last_edge:
            low[edges.step[edge]] = high[edges.step[edge]] = 0
            edge += 1


@compiled()
def _has_relation(steps, relation, n_relations):  # type: ignore[no-untyped-def]
    """Return whether one of the steps follows the relation in either direction."""
    return np.any(steps % n_relations == relation)


@compiled()
def _is_connected_otherwise(edges, n_relations, x, z, fact, steps, seen_first, first_token, seen_second, second_token):  # type: ignore[no-untyped-def]
    """Return whether a path from x to z along three steps does not use the fact.

    `seen_first` and `seen_second` mark the entities after one and two steps. The path is searched from its end.
    """
    third = steps[2] - n_relations if steps[2] >= n_relations else steps[2] + n_relations
    second = steps[1] - n_relations if steps[1] >= n_relations else steps[1] + n_relations
    low, high = edges_of(edges, z, third)
    for edge in range(low, high):
        b = edges.target[edge]
        if edges.fact[edge] == fact or seen_second[b] != second_token:
            continue
        low_two, high_two = edges_of(edges, b, second)
        for other in range(low_two, high_two):
            a = edges.target[other]
            if edges.fact[other] == fact or seen_first[a] != first_token:
                continue
            low_one, high_one = edges_of(edges, x, steps[0])
            position = lower_bound(edges.target, low_one, high_one, a)
            if position < high_one and edges.target[position] == a and edges.fact[position] != fact:
                return True
    return False
