"""Exhaustive mining, which counts every rule of the mined shapes in compiled code.

Compositions are counted in two steps. First, the hits of all of them are counted by closing triangles. Then the support
is counted, but only of bodies that can reach the thresholds. Others have too few hits for a lower bound of the support.
"""

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from queue import SimpleQueue
from typing import TypeVar

import numpy as np
from scipy import sparse

from plogicnet import config
from plogicnet.config.shapes import shapes_of
from plogicnet.graph import HEAD, RELATION, TAIL, IntArray, KnowledgeGraph, TripleSet
from plogicnet.grounding.engine import CountingMode, MiningResult, Resources
from plogicnet.grounding.mining import CandidateRules, mining_result
from plogicnet.grounding.native.compositions import (
    Bodies,
    BodyWalk,
    IncomingGroups,
    SortedFacts,
    count_body_paths,
    count_pairs,
)
from plogicnet.grounding.native.triangles import ConnectedPairs, HitCounters, Hits, count_hits
from plogicnet.support.memory import free_bytes, require_bytes
from plogicnet.support.threads import map_in_threads

COMPILED_BYTES = 60 * 2**20
"""The memory of the compiled code."""
FACT_BYTES = 250
"""The memory per fact, for the sorted copies of the facts."""
CHUNK_STEPS = 1 << 22
"""The approximate number of steps per chunk: neighbours when hits are counted, two-step paths for the support."""
MIN_TABLE_BYTES = 10 * 2**20
"""The memory that the counters of a thread can always use."""
Item = TypeVar("Item")
Result = TypeVar("Result")
Workspace = TypeVar("Workspace")
CountedRules = tuple[tuple[IntArray, ...], IntArray, IntArray]
"""Rules with at least one hit: the relation ids of the steps and of the hypothesis, support, and hits.

The support of a rule that cannot reach the thresholds can be a lower bound, with which it does not reach them either.
"""


def mine(graph: KnowledgeGraph, settings: config.Rules, resources: Resources | None = None) -> MiningResult:
    """Count every candidate rule and return the rules that reach the thresholds (Sec. 5.1 of the paper).

    Example:
        >>> rows = [("a", "husband", "b"), ("b", "wife", "a"), ("c", "husband", "d")]
        >>> mined = mine(KnowledgeGraph.from_names(rows), config.Rules())
        >>> [str(rule) for rule in mined.rules.rules]
        ['husband(X, Y) => wife(Y, X)', 'wife(X, Y) => husband(Y, X)']
    """
    shapes = shapes_of(settings.patterns)
    require_bytes(COMPILED_BYTES + FACT_BYTES * len(graph.observed), "the graph index for mining")
    counter = RuleCounter(graph, settings, resources or Resources())
    candidates: dict[str, list[CandidateRules]] = {shape.name: [] for shape in shapes}
    for directions in dict.fromkeys(shape.forward for shape in shapes):
        for counted in COUNT_FUNCTIONS[directions](counter):
            for shape in shapes:
                if shape.forward == directions:
                    candidates[shape.name].append(CandidateRules.from_counts(shape, *counted, settings))
    return mining_result(graph, settings, [group for shape in shapes for group in candidates[shape.name]])


@dataclass(frozen=True)
class RuleCounter:
    """Counts all rules with given directions of the steps. `COUNT_FUNCTIONS` lists the methods by directions."""

    graph: KnowledgeGraph
    settings: config.Rules
    resources: Resources

    def one_step(self, forward: bool) -> Iterator[CountedRules]:
        """Count the rules with one step. Their hits are the (head, tail) pairs that two relations share.

        Each pair is connected by one path. So the counting modes differ only in self-supporting groundings. With a
        forward step, these are all facts of the hypothesis's relation. With a backward step, they are its self-loops.
        """
        facts, n_relations = self.graph.observed.triples, len(self.graph.relations)
        common = sparse.csr_array(
            (self._relation_pairs if forward else self._inverse_relation_pairs) @ self._relation_pairs.T
        )
        common.sort_indices()
        nonzero = common.tocoo()
        (first, relation), hits = (side.astype(np.int64) for side in nonzero.coords), nonzero.data
        support = np.bincount(facts[:, RELATION], minlength=n_relations)
        loops = facts[:, HEAD] == facts[:, TAIL]
        self_supporting = support if forward else np.bincount(facts[loops, RELATION], minlength=n_relations)
        excluded = np.where((relation == first) & (self.settings.counting == "distinct"), self_supporting[first], 0)
        kept = hits > excluded
        yield (first[kept], relation[kept]), (support[first] - excluded)[kept], (hits - excluded)[kept]

    @cached_property
    def _pairs(self) -> tuple[IntArray, IntArray]:
        """The order of the facts by (head, tail), and the keys of their (head, tail) pairs in this order."""
        facts, n = self.graph.observed.triples, len(self.graph.entities)
        pairs = facts[:, HEAD] * n + facts[:, TAIL]
        order = np.argsort(pairs, kind="stable")
        return order, pairs[order]

    @cached_property
    def _relation_pairs(self) -> sparse.csr_array:
        """The relations × pairs matrix of the facts. The column of a pair is its first position in the sorted pairs."""
        order, pairs = self._pairs
        return self._matrix(self.graph.observed.triples[order, RELATION], np.searchsorted(pairs, pairs))

    @cached_property
    def _inverse_relation_pairs(self) -> sparse.csr_array:
        """The same matrix with heads and tails swapped. A fact (h, r, t) is left out if no fact has the pair (t, h)."""
        facts, n, pairs = self.graph.observed.triples, len(self.graph.entities), self._pairs[1]
        inverse_pairs = facts[:, TAIL] * n + facts[:, HEAD]
        position = np.minimum(np.searchsorted(pairs, inverse_pairs), len(pairs) - 1)
        is_pair = pairs[position] == inverse_pairs
        return self._matrix(facts[is_pair, RELATION], position[is_pair])

    def _matrix(self, relation: IntArray, pair: IntArray) -> sparse.csr_array:
        shape = (len(self.graph.relations), len(self.graph.observed))
        return sparse.csr_array((np.ones(len(relation), np.int64), (relation, pair)), shape)

    def compositions(self) -> Iterator[CountedRules]:
        """Count the rules with two forward steps."""
        shapes = [shape for shape in shapes_of(self.settings.patterns) if shape.forward == (True, True)]
        min_precision = min(float(getattr(self.settings.min_precision, shape.name)) for shape in shapes)
        n_relations, counting = len(self.graph.relations), self.settings.counting
        counter = CompositionCounter(self.graph.observed, n_relations, counting, self.resources)
        yield counter.count(min_precision, self.settings.min_support)


COUNT_FUNCTIONS: dict[tuple[bool, ...], Callable[[RuleCounter], Iterator[CountedRules]]] = {
    (True,): lambda counter: counter.one_step(forward=True),
    (False,): lambda counter: counter.one_step(forward=False),
    (True, True): RuleCounter.compositions,
}
"""The function that counts the rules, by the directions of their steps."""


@dataclass(frozen=True)
class Chunk:
    """The items that a thread processes at a time.

    Attributes:
        start, stop: the range of the items.
        n_steps: the number of steps, for the progress display.
    """

    start: int
    stop: int
    n_steps: int


@dataclass(frozen=True)
class CompositionCounter:
    """Counts the compositions of facts."""

    facts: TripleSet
    n_relations: int
    counting: CountingMode
    resources: Resources

    def count(self, min_precision: float, min_support: int) -> CountedRules:
        """Count all rules with at least one hit, sorted by their relations.

        Only bodies with a rule that can reach the thresholds are walked to count their support. The rules of the others
        have a lower bound as their support; see `CountedRules`.
        """
        hits = self._count_hits()
        index = SortedFacts.of(self.facts)
        incoming = IncomingGroups.of(self.facts, index, self.n_relations)
        keys, body = np.unique(hits.body, return_inverse=True)
        bodies = Bodies.of(keys, self.n_relations)
        paths = count_body_paths(index, incoming, bodies)
        support = paths.total[body]
        if self.counting == "distinct":
            # The support contains the pairs through one middle entity, except self-supporting ones, and it contains the
            # hits. Division is monotone, also after rounding. So hits / support is at most hits / lower_bound.
            lower_bound = np.maximum(paths.most[body] - hits.self_supporting, hits.hits)
            upper_bound = paths.total[body] - hits.self_supporting
            can_be_kept = (hits.hits / lower_bound >= min_precision) & (upper_bound >= min_support)
            is_walked = np.bincount(body[can_be_kept], minlength=len(keys)) > 0
            n_pairs = np.zeros(len(keys), dtype=np.int64)
            n_pairs[is_walked] = self._count_pairs(index, incoming, Bodies.of(keys[is_walked], self.n_relations))
            support = np.where(is_walked[body], n_pairs[body] - hits.self_supporting, lower_bound)
        return (bodies.first[body], bodies.second[body], hits.relation), support, hits.hits

    def _count_hits(self) -> Hits:
        """Count the hits of all rules."""
        pairs, entity_bytes = ConnectedPairs.of(self.facts), 4 * self.facts.entities
        tasks = [(forward, chunk) for forward in (True, False) for chunk in _split_into_chunks(pairs.steps(forward))]
        threads = _plan_threads(self.resources.threads, len(tasks), entity_bytes + MIN_TABLE_BYTES)
        table_bytes = max(MIN_TABLE_BYTES, free_bytes() // 2 // threads - entity_bytes)
        workspaces = [HitCounters(self.facts.entities, table_bytes) for _ in range(threads)]

        def count(task: tuple[bool, Chunk], counters: HitCounters) -> None:
            forward, chunk = task
            count_hits(pairs, forward, chunk.start, chunk.stop, self.n_relations, self.counting == "paths", counters)

        with self.resources.progress("mining hits, neighbours", sum(chunk.n_steps for _, chunk in tasks)) as advance:
            for (_, chunk), _ in zip(tasks, _map_in_workspaces(count, tasks, workspaces), strict=True):
                advance(chunk.n_steps)
        return Hits.of(np.concatenate([counters.rows() for counters in workspaces]))

    def _count_pairs(self, index: SortedFacts, incoming: IncomingGroups, bodies: Bodies) -> IntArray:
        """Count the distinct (head, tail) pairs that the paths of each body connect."""
        paths = count_body_paths(index, incoming, bodies)
        n_paths = np.diff(np.append(0, np.cumsum(paths.continuations[incoming.of_fact]))[index.group_begin])
        starts = index.groups_by_relation[n_paths[index.groups_by_relation] > 0]
        chunks = _split_into_chunks(n_paths[starts])
        walks = [BodyWalk.of(index, incoming, bodies, paths, starts[chunk.start : chunk.stop]) for chunk in chunks]
        thread_bytes = 8 * self.facts.entities + max((walk.needed_bytes for walk in walks), default=0)
        require_bytes(thread_bytes, "the support of compositions")
        threads = _plan_threads(self.resources.threads, len(walks), thread_bytes)
        stamps = [np.full(self.facts.entities, -1) for _ in range(threads)]
        n_pairs = np.zeros(len(bodies.first), dtype=np.int64)
        with self.resources.progress("mining support, two-step paths", int(n_paths.sum())) as advance:
            counts = _map_in_workspaces(partial(count_pairs, index, incoming, bodies), walks, stamps)
            for chunk, walk, n in zip(chunks, walks, counts, strict=True):
                n_pairs[walk.bodies] += n
                advance(chunk.n_steps)
        return n_pairs


def _split_into_chunks(n_steps: IntArray) -> list[Chunk]:
    """Split items with these numbers of steps into chunks of about CHUNK_STEPS steps. Each item adds one step."""
    cuts = np.flatnonzero(np.diff(np.cumsum(n_steps + 1) // CHUNK_STEPS)) + 1
    bounds = itertools.pairwise([0, *cuts.tolist(), len(n_steps)])
    return [Chunk(start, stop, int(n_steps[start:stop].sum())) for start, stop in bounds if start < stop]


def _map_in_workspaces(
    work: Callable[[Item, Workspace], Result], items: Sequence[Item], workspaces: Sequence[Workspace]
) -> Iterator[Result]:
    """Yield work(item, workspace) for each item, in order. Each thread uses a workspace of its own."""
    unused: SimpleQueue[Workspace] = SimpleQueue()
    for workspace in workspaces:
        unused.put(workspace)

    def work_in_workspace(item: Item) -> Result:
        workspace = unused.get()
        try:
            return work(item, workspace)
        finally:
            unused.put(workspace)

    return map_in_threads(work_in_workspace, items, len(workspaces))


def _plan_threads(threads: int, n_tasks: int, thread_bytes: int) -> int:
    """Return the number of threads for some tasks that fit into half of the free memory, at least 1.

    `threads` is the maximum; 0: one per core. `thread_bytes` is the memory of a thread.
    """
    return max(1, min(threads or os.cpu_count() or 1, n_tasks, free_bytes() // 2 // thread_bytes))
