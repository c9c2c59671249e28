"""Exhaustive mining: every rule of the paper's four patterns with at least one hit, and the irreflexive constraints."""

import itertools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from queue import SimpleQueue

import numpy as np
from scipy import sparse

from plogicnet import config
from plogicnet.graph import HEAD, RELATION, TAIL, IntArray, KnowledgeGraph
from plogicnet.grounding.native import Counts, Desk, Runs, count_compositions, rules_of
from plogicnet.grounding.walks import Counting, two_step_paths
from plogicnet.memory import free_bytes, require_bytes
from plogicnet.progress import Progress, silent
from plogicnet.rules import Rule, RuleTable, Step, chain_rule, irreflexive

COUNTERS = 1 << 22
"""How many counters of (second relation, hypothesis) one thread holds at a time; more relations take more passes."""
FEW_COUNTERS = 1 << 18
"""Fewer make so many passes that fewer threads are better."""
COMPILED_BYTES = 60 * 2**20
"""What loading compiled code takes."""
FACT_BYTES = 250
"""What mining takes for one fact: the facts sorted in several ways."""
RULE_BYTES = 2000
"""What one rule takes, with its names."""
PATHS_AT_ONCE = 1 << 23
"""About how many two-step paths are counted between two signs of progress."""


@dataclass(frozen=True)
class Mined:
    """What mining found: the kept rules, the kept constraints, and how many candidates there were."""

    rules: RuleTable
    constraints: RuleTable
    candidates: int


def mine(graph: KnowledgeGraph, settings: config.Rules, threads: int = 0, progress: Progress = silent) -> Mined:
    """Counts every candidate rule exactly and keeps those of enough precision and support (Sec. 5.1).

    Example:
        >>> rows = [("a", "husband", "b"), ("b", "wife", "a"), ("c", "husband", "d")]
        >>> mined = mine(KnowledgeGraph.from_names(rows), config.Rules())
        >>> [str(rule) for rule in mined.rules.rules]
        ['husband(X, Y) => wife(Y, X)', 'wife(X, Y) => husband(Y, X)']
    """
    require_bytes(COMPILED_BYTES + FACT_BYTES * len(graph.observed), "the index of the graph for mining")
    found: list[Candidates] = []
    of_one_step = _one_step(graph, [p for p in settings.patterns if p != "composition"], settings.counting)
    for pattern in settings.patterns:
        if pattern == "composition":
            found += _compositions(graph, settings, threads or os.cpu_count() or 1, progress)
        else:
            found += [c.at_least(settings) for c in of_one_step[pattern]]
    size = sum(len(c.support) for c in found)
    require_bytes(RULE_BYTES * size, f"{size:,} rules", "raise rules.min_precision or rules.min_support")
    rules = [rule for c in found for rule in c.rules(graph)]
    support = [n for c in found for n in c.support.tolist()]
    hits = [n for c in found for n in c.hits.tolist()]
    total = sum(c.candidates for c in found)
    return Mined(RuleTable.of(rules, support, hits), mine_constraints(graph, settings), total)


@dataclass(frozen=True)
class Candidates:
    """Candidate rules of one pattern that begin with one relation: arrays of one entry a rule.

    Attributes:
        first: the relation of the (first) premise.
        second: for compositions, the relation of the second premise.
        relation: the hypothesis's relation.
        support, hits: the counts.
        candidates: how many there were; those that do not suffice are not kept.
    """

    pattern: str
    first: int
    second: IntArray
    relation: IntArray
    support: IntArray
    hits: IntArray
    candidates: int

    def at_least(self, settings: config.Rules) -> "Candidates":
        """Those of enough precision and support."""
        # dividing rounds as the threshold's own decimal does: 3 of 30 is 0.1
        precise = self.hits / self.support >= getattr(settings.min_precision, self.pattern)
        kept = precise & (self.support >= settings.min_support)
        columns = {name: getattr(self, name) for name in ("second", "relation", "support", "hits")}
        return replace(self, **{name: column[kept] for name, column in columns.items()})

    def rules(self, graph: KnowledgeGraph) -> Iterator[Rule]:
        """The rules in names."""
        names = graph.relations.names
        for second, relation in zip(self.second.tolist(), self.relation.tolist(), strict=True):
            steps = [Step(names[self.first], self.pattern in ("composition", "subrelation"))]
            if self.pattern == "composition":
                steps.append(Step(names[second], True))
            yield chain_rule(steps, names[relation])


def mine_constraints(graph: KnowledgeGraph, settings: config.Rules) -> RuleTable:
    """The relations that hold hardly ever between an entity and itself.

    Example:
        >>> graph = KnowledgeGraph.from_names([("a", "husband", "b")])
        >>> [str(rule) for rule in mine_constraints(graph, config.Rules()).rules]
        ['=> not husband(X, X)']
    """
    if not settings.irreflexive:
        return RuleTable.of([], [], [])
    n = len(graph.relations)
    facts = np.bincount(graph.train[:, RELATION], minlength=n)
    loops = np.bincount(graph.train[graph.train[:, HEAD] == graph.train[:, TAIL]][:, RELATION], minlength=n)
    kept = np.flatnonzero((facts > 0) & ((facts - loops) / np.maximum(facts, 1) >= settings.min_precision.irreflexive))
    rules = [irreflexive(graph.relations.names[r]) for r in kept]
    return RuleTable.of(rules, facts[kept].tolist(), (facts - loops)[kept].tolist())


def _compositions(graph: KnowledgeGraph, settings: config.Rules, threads: int, progress: Progress) -> list[Candidates]:
    """Counts the compositions of every two relations that can follow each other, in pieces of bounded size."""
    paths = two_step_paths(graph.observed, len(graph.relations))
    runs = Runs.of(graph.observed)
    out_degree = np.bincount(graph.observed.triples[:, HEAD], minlength=len(graph.entities))
    paths_to = np.append(0, np.cumsum(out_degree[runs.tail]))
    threads, counters = _desks(threads, len(graph.relations), 24 * len(graph.entities) + 16 * len(runs.head))
    at_once = max(1, counters // len(graph.relations))
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

    desks: SimpleQueue[Desk] = SimpleQueue()
    counters = len(graph.relations) * min(at_once, len(graph.relations))
    for _ in range(threads):
        desks.put(Desk(runs, len(graph.entities), len(graph.relations), counters))

    def counted(piece: Piece) -> Counts:
        desk = desks.get()
        try:
            return count_compositions(
                runs, piece.starts, piece.first, piece.seconds, desk, settings.counting == "paths"
            )
        finally:
            desks.put(desk)

    found: list[Candidates] = []
    with progress("mining, two-step paths", int(paths.sum())) as advance, ThreadPoolExecutor(threads) as pool:
        # counts come in the order of pieces, whichever thread is done first
        both = zip(pieces, pool.map(counted, pieces), strict=True)
        for (first, _), group in itertools.groupby(both, key=lambda pair: (pair[0].first, pair[0].seconds[0])):
            total: Counts | None = None
            for piece, counts in group:
                total = counts if total is None else total + counts
                advance(piece.paths)
            assert total is not None  # nosec B101 # for the type checker; groupby gives no empty group
            columns = rules_of(total, first, piece.seconds)
            found.append(Candidates("composition", first, *columns, len(columns[0])).at_least(settings))
    return found


def _desks(threads: int, relations: int, each: int) -> tuple[int, int]:
    """On how many threads, and with how many counters a thread, what they count with fits into half of what is free.

    There is one at least, with the counters of one second relation; `each` is what a thread needs besides.
    """
    free = free_bytes() // 2
    threads = max(1, min(threads, free // (each + 8 * min(relations**2, FEW_COUNTERS))))
    return threads, min(COUNTERS, max(relations, (free // threads - each) // 8))


@dataclass(frozen=True)
class Piece:
    """Work for one thread: paths from some runs of the first relation to some second relations."""

    first: int
    seconds: IntArray
    starts: IntArray
    paths: int


def _one_step(graph: KnowledgeGraph, patterns: Sequence[str], counting: Counting) -> dict[str, list[Candidates]]:
    """Counts the rules of the one-step patterns: how many (head, tail) pairs every two relations have in common.

    A pair is reached by one path only, so both countings agree, but for the mirror image of a self-loop, which is the
    self-loop itself.
    """
    facts, n = graph.observed.triples, len(graph.entities)
    relation, shape = facts[:, RELATION], (len(graph.relations), len(facts))
    here, there = facts[:, HEAD] * n + facts[:, TAIL], facts[:, TAIL] * n + facts[:, HEAD]
    # each fact's pair is known by the first place where it stands among all pairs in order
    order = np.argsort(here, kind="stable")
    pairs = here[order]
    known = sparse.csr_array((np.ones(len(facts), np.int64), (relation[order], np.searchsorted(pairs, pairs))), shape)
    of_pairs = {"subrelation": known}
    if {"inverse", "symmetric"} & set(patterns):
        at = np.minimum(np.searchsorted(pairs, there), len(pairs) - 1)
        met = pairs[at] == there
        mirrored = sparse.csr_array((np.ones(met.sum(), np.int64), (relation[met], at[met])), shape)
        of_pairs |= {"inverse": mirrored, "symmetric": mirrored}
    common = {id(matrix): sparse.csr_array(matrix @ known.T) for matrix in of_pairs.values()}
    return {pattern: _of_common(graph, pattern, common[id(of_pairs[pattern])], counting) for pattern in patterns}


def _of_common(graph: KnowledgeGraph, pattern: str, common: sparse.csr_array, counting: Counting) -> list[Candidates]:
    """The candidates of a one-step pattern from how many concluded pairs are observed, for every two relations."""
    facts, relations = graph.observed.triples, len(graph.relations)
    common.sort_indices()
    support = np.bincount(facts[:, RELATION], minlength=relations)
    loops = np.bincount(facts[facts[:, HEAD] == facts[:, TAIL], RELATION], minlength=relations)
    found = []
    for first in np.flatnonzero(support).tolist():
        at = slice(common.indptr[first], common.indptr[first + 1])
        relation, hit = common.indices[at].astype(np.int64), common.data[at]
        lost = int(loops[first]) if pattern == "symmetric" and counting == "distinct" else 0
        kept = ((relation == first) == (pattern == "symmetric")) & (hit > lost)
        relation, hit = relation[kept], hit[kept] - lost
        no_second = np.full(len(relation), -1)
        counted = np.full(len(hit), support[first] - lost)
        found.append(Candidates(pattern, first, no_second, relation, counted, hit, len(hit)))
    return found
