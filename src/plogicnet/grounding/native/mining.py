"""Exhaustive mining: every rule of the mined shapes with at least one hit, counted in compiled code."""

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from queue import SimpleQueue

import numpy as np
from scipy import sparse

from plogicnet import config
from plogicnet.config.shapes import shapes_of
from plogicnet.graph import HEAD, RELATION, TAIL, IntArray, KnowledgeGraph
from plogicnet.grounding.engine import Counting, Mined, Resources
from plogicnet.grounding.mining import Candidates, mined_of
from plogicnet.grounding.native.compositions import Counts, Runs, Workspace, count_compositions, rules_of
from plogicnet.grounding.native.walks import two_step_paths
from plogicnet.support.memory import free_bytes, require_bytes

COUNTERS = 1 << 22
"""How many counters of (second relation, hypothesis) one thread holds at a time; more relations take more passes."""
FEW_COUNTERS = 1 << 18
"""Fewer make so many passes that fewer threads are better."""
COMPILED_BYTES = 60 * 2**20
"""What loading compiled code takes."""
FACT_BYTES = 250
"""What mining takes for one fact: the facts sorted in several ways."""
PATHS_AT_ONCE = 1 << 23
"""About how many two-step paths are counted between two signs of progress."""
Counted = tuple[tuple[IntArray, ...], IntArray, IntArray]
"""Rules with at least one hit: the relations of their steps and of their hypothesis; support; hits."""


def mine(graph: KnowledgeGraph, settings: config.Rules, resources: Resources | None = None) -> Mined:
    """Counts every candidate rule exactly and keeps those of enough precision and support (Sec. 5.1).

    Example:
        >>> rows = [("a", "husband", "b"), ("b", "wife", "a"), ("c", "husband", "d")]
        >>> mined = mine(KnowledgeGraph.from_names(rows), config.Rules())
        >>> [str(rule) for rule in mined.rules.rules]
        ['husband(X, Y) => wife(Y, X)', 'wife(X, Y) => husband(Y, X)']
    """
    shapes = shapes_of(settings.patterns)
    require_bytes(COMPILED_BYTES + FACT_BYTES * len(graph.observed), "the index of the graph for mining")
    counters = Counters(graph, settings.counting, resources or Resources())
    found: dict[str, list[Candidates]] = {shape.name: [] for shape in shapes}
    for steps in dict.fromkeys(shape.steps for shape in shapes):
        for counted in COUNTED[steps](counters):
            for shape in shapes:
                if shape.steps == steps:
                    found[shape.name].append(Candidates.kept(shape, *counted, settings))
    return mined_of(graph, settings, [c for shape in shapes for c in found[shape.name]])


@dataclass(frozen=True)
class Counters:
    """Counts the rules of a graph whose steps have given directions."""

    graph: KnowledgeGraph
    counting: Counting
    resources: Resources

    def one_step(self, forward: bool) -> Iterator[Counted]:
        """Counts rules of one step: how many (head, tail) pairs every two relations have in common.

        A pair is reached by one path only, so both countings agree but for self-supporting groundings: of a relation's
        own facts, all walked forwards, and backwards the self-loops.
        """
        facts, relations = self.graph.observed.triples, len(self.graph.relations)
        common = sparse.csr_array((self._known if forward else self._mirrored) @ self._known.T)
        common.sort_indices()
        found = common.tocoo()
        (first, relation), hits = (side.astype(np.int64) for side in found.coords), found.data
        support = np.bincount(facts[:, RELATION], minlength=relations)
        loops = facts[:, HEAD] == facts[:, TAIL]
        own = support if forward else np.bincount(facts[loops, RELATION], minlength=relations)
        lost = np.where((relation == first) & (self.counting == "distinct"), own[first], 0)
        kept = hits > lost
        yield (first[kept], relation[kept]), (support[first] - lost)[kept], (hits - lost)[kept]

    @cached_property
    def _pairs(self) -> tuple[IntArray, IntArray]:
        """The facts ordered by (head, tail), and their pairs in that order."""
        facts, n = self.graph.observed.triples, len(self.graph.entities)
        here = facts[:, HEAD] * n + facts[:, TAIL]
        order = np.argsort(here, kind="stable")
        return order, here[order]

    @cached_property
    def _known(self) -> sparse.csr_array:
        """Relations × pairs; a pair is known by the first place where it stands among all pairs in order."""
        order, pairs = self._pairs
        return self._matrix(self.graph.observed.triples[order, RELATION], np.searchsorted(pairs, pairs))

    @cached_property
    def _mirrored(self) -> sparse.csr_array:
        """The same with head and tail exchanged, where some fact has that pair."""
        facts, n, pairs = self.graph.observed.triples, len(self.graph.entities), self._pairs[1]
        there = facts[:, TAIL] * n + facts[:, HEAD]
        at = np.minimum(np.searchsorted(pairs, there), len(pairs) - 1)
        met = pairs[at] == there
        return self._matrix(facts[met, RELATION], at[met])

    def _matrix(self, relation: IntArray, pair: IntArray) -> sparse.csr_array:
        shape = (len(self.graph.relations), len(self.graph.observed))
        return sparse.csr_array((np.ones(len(relation), np.int64), (relation, pair)), shape)

    def compositions(self) -> Iterator[Counted]:
        """Counts rules of two steps forwards, for every two relations that can follow each other."""
        graph, paths = self.graph, two_step_paths(self.graph.observed, len(self.graph.relations))
        runs = Runs.of(graph.observed)
        own = 24 * len(graph.entities) + 16 * len(runs.head)
        threads, counters = _workspaces(self.resources.threads or os.cpu_count() or 1, len(graph.relations), own)
        at_once = max(1, counters // len(graph.relations))
        pieces = _pieces(graph, runs, paths, at_once)
        spaces: SimpleQueue[Workspace] = SimpleQueue()
        counters = len(graph.relations) * min(at_once, len(graph.relations))
        for _ in range(threads):
            spaces.put(Workspace(runs, len(graph.entities), len(graph.relations), counters))

        def counted(piece: Piece) -> Counts:
            space = spaces.get()
            try:
                every = self.counting == "paths"
                return count_compositions(runs, piece.starts, piece.first, piece.seconds, space, every)
            finally:
                spaces.put(space)

        total = int(paths.sum())
        with self.resources.progress("mining, two-step paths", total) as advance, ThreadPoolExecutor(threads) as pool:
            # counts come in the order of pieces, whichever thread is done first
            both = zip(pieces, pool.map(counted, pieces), strict=True)
            for (first, _), group in itertools.groupby(both, key=lambda pair: (pair[0].first, pair[0].seconds[0])):
                sums: Counts | None = None
                for piece, counts in group:
                    sums = counts if sums is None else sums + counts
                    advance(piece.paths)
                if sums is not None:  # no group is empty
                    second, relation, support, hits = rules_of(sums, first, piece.seconds)
                    yield (np.full(len(second), first), second, relation), support, hits


COUNTED: dict[tuple[bool, ...], Callable[[Counters], Iterator[Counted]]] = {
    (True,): lambda counters: counters.one_step(forward=True),
    (False,): lambda counters: counters.one_step(forward=False),
    (True, True): Counters.compositions,
}
"""The steps whose rules can be counted."""


@dataclass(frozen=True)
class Piece:
    """Work for one thread: paths from some runs of the first relation to some second relations."""

    first: int
    seconds: IntArray
    starts: IntArray
    paths: int


def _pieces(graph: KnowledgeGraph, runs: Runs, paths: sparse.csr_array, at_once: int) -> list[Piece]:
    """All two-step paths in pieces of bounded size, with at most so many second relations each."""
    out_degree = np.bincount(graph.observed.triples[:, HEAD], minlength=len(graph.entities))
    paths_to = np.append(0, np.cumsum(out_degree[runs.tail]))
    pieces = []
    for first in np.unique(graph.train[:, RELATION]).tolist():
        seconds = np.sort(paths.indices[paths.indptr[first] : paths.indptr[first + 1]]).astype(np.int64)
        starts = runs.of_relation(first)
        size = paths_to[runs.begin[starts + 1]] - paths_to[runs.begin[starts]]
        cuts = np.flatnonzero(np.diff(np.cumsum(size) // PATHS_AT_ONCE)) + 1
        for block in range(0, len(seconds), at_once):
            pieces += [
                Piece(first, seconds[block : block + at_once], part, int(part_size.sum()) if block == 0 else 0)
                for part, part_size in zip(np.split(starts, cuts), np.split(size, cuts), strict=True)
            ]
    return pieces


def _workspaces(threads: int, relations: int, each: int) -> tuple[int, int]:
    """On how many threads, and with how many counters a thread, what they count with fits into half of what is free.

    There is one at least, with the counters of one second relation; `each` is what a thread needs besides.
    """
    free = free_bytes() // 2
    threads = max(1, min(threads, free // (each + 8 * min(relations**2, FEW_COUNTERS))))
    return threads, min(COUNTERS, max(relations, (free // threads - each) // 8))
