"""Exhaustive mining, which counts every rule of the mined shapes in compiled code."""

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from queue import SimpleQueue

import numpy as np
from scipy import sparse

from plogicnet import config
from plogicnet.config.shapes import shapes_of
from plogicnet.graph import HEAD, RELATION, TAIL, IntArray, KnowledgeGraph
from plogicnet.grounding.engine import CountingMode, MiningResult, Resources
from plogicnet.grounding.mining import CandidateRules, mining_result
from plogicnet.grounding.native.compositions import (
    CompositionCounts,
    SortedFacts,
    Workspace,
    count_compositions,
    rules_with_hits,
)
from plogicnet.grounding.native.walks import two_step_paths
from plogicnet.support.memory import free_bytes, require_bytes
from plogicnet.support.threads import map_in_threads

MAX_COUNTERS = 1 << 22
"""The largest number of counters per thread.

A pass needs one counter per pair (second relation, relation of the hypothesis). If all pairs do not fit, several passes
over the paths count a part of the second relations each.
"""
MIN_COUNTERS = 1 << 18
"""If memory allows only fewer counters per thread, fewer threads are used instead."""
COMPILED_BYTES = 60 * 2**20
"""The memory of the compiled code."""
FACT_BYTES = 250
"""The memory per fact, for the sorted copies of the facts."""
CHUNK_PATHS = 1 << 23
"""The approximate number of two-step paths per chunk."""
CountedRules = tuple[tuple[IntArray, ...], IntArray, IntArray]
"""Rules with at least one hit: the relation ids of the steps and of the hypothesis, support, and hits."""


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
    counter = RuleCounter(graph, settings.counting, resources or Resources())
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
    counting: CountingMode
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
        excluded = np.where((relation == first) & (self.counting == "distinct"), self_supporting[first], 0)
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
        graph, paths = self.graph, two_step_paths(self.graph.observed, len(self.graph.relations))
        facts = SortedFacts.of(graph.observed)
        thread_bytes = 24 * len(graph.entities) + 16 * len(facts.group_head)
        threads, n_counters = _plan_workspaces(
            self.resources.threads or os.cpu_count() or 1, len(graph.relations), thread_bytes
        )
        max_seconds = max(1, n_counters // len(graph.relations))
        chunks = _split_into_chunks(graph, facts, paths, max_seconds)
        spaces: SimpleQueue[Workspace] = SimpleQueue()
        n_counters = len(graph.relations) * min(max_seconds, len(graph.relations))
        for _ in range(threads):
            spaces.put(Workspace(facts, len(graph.entities), len(graph.relations), n_counters))

        def count_chunk(chunk: Chunk) -> CompositionCounts:
            space = spaces.get()
            try:
                count_paths = self.counting == "paths"
                return count_compositions(facts, chunk.start_groups, chunk.first, chunk.seconds, space, count_paths)
            finally:
                spaces.put(space)

        total = int(paths.sum())
        with self.resources.progress("mining, two-step paths", total) as advance:
            counted = zip(chunks, map_in_threads(count_chunk, chunks, threads), strict=True)
            for (first, _), group in itertools.groupby(counted, key=lambda pair: (pair[0].first, pair[0].seconds[0])):
                sums: CompositionCounts | None = None
                for chunk, counts in group:
                    sums = counts if sums is None else sums + counts
                    advance(chunk.n_paths)
                if sums is not None:  # always true: groupby yields no empty groups
                    second, relation, support, hits = rules_with_hits(sums, first, chunk.seconds)
                    yield (np.full(len(second), first), second, relation), support, hits


COUNT_FUNCTIONS: dict[tuple[bool, ...], Callable[[RuleCounter], Iterator[CountedRules]]] = {
    (True,): lambda counter: counter.one_step(forward=True),
    (False,): lambda counter: counter.one_step(forward=False),
    (True, True): RuleCounter.compositions,
}
"""The function that counts the rules, by the directions of their steps."""


@dataclass(frozen=True)
class Chunk:
    """The two-step paths that a thread counts at a time.

    Attributes:
        first: the first relation.
        seconds: the second relations.
        start_groups: the groups of the first relation in which the paths begin; see `SortedFacts`.
        n_paths: the number of all paths from the start groups, for the progress display. It is 0 if another chunk with
            other second relations already reports these paths.
    """

    first: int
    seconds: IntArray
    start_groups: IntArray
    n_paths: int


def _split_into_chunks(
    graph: KnowledgeGraph, facts: SortedFacts, paths: sparse.csr_array, max_seconds: int
) -> list[Chunk]:
    """Split all two-step paths into chunks of about CHUNK_PATHS paths and at most `max_seconds` second relations."""
    out_degree = np.bincount(graph.observed.triples[:, HEAD], minlength=len(graph.entities))
    paths_to = np.append(0, np.cumsum(out_degree[facts.tail]))
    chunks = []
    for first in np.unique(graph.train[:, RELATION]).tolist():
        seconds = np.sort(paths.indices[paths.indptr[first] : paths.indptr[first + 1]]).astype(np.int64)
        start_groups = facts.groups_of_relation(first)
        n_paths = paths_to[facts.group_begin[start_groups + 1]] - paths_to[facts.group_begin[start_groups]]
        cuts = np.flatnonzero(np.diff(np.cumsum(n_paths) // CHUNK_PATHS)) + 1
        for block in range(0, len(seconds), max_seconds):
            chunks += [
                Chunk(first, seconds[block : block + max_seconds], groups, int(group_paths.sum()) if block == 0 else 0)
                for groups, group_paths in zip(np.split(start_groups, cuts), np.split(n_paths, cuts), strict=True)
            ]
    return chunks


def _plan_workspaces(max_threads: int, n_relations: int, thread_bytes: int) -> tuple[int, int]:
    """Return the number of threads, and of counters per thread, that fit into half of the free memory.

    The minimum is one thread with the counters of one second relation. `thread_bytes` is the memory of a thread without
    its counters.
    """
    free = free_bytes() // 2
    threads = max(1, min(max_threads, free // (thread_bytes + 8 * min(n_relations**2, MIN_COUNTERS))))
    return threads, min(MAX_COUNTERS, max(n_relations, (free // threads - thread_bytes) // 8))
