"""Exhaustive mining: every rule of the paper's four patterns with at least one hit, and the irreflexive constraints."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import sparse

from plogicnet import config
from plogicnet.graph import HEAD, RELATION, TAIL, IntArray, KnowledgeGraph, expand_ranges
from plogicnet.grounding.native import Runs, count_compositions
from plogicnet.grounding.walks import Chain, Counting, Move, World, ground, walk
from plogicnet.progress import Progress, silent
from plogicnet.rules import Rule, RuleTable, Step, chain_rule, irreflexive

COUNTERS = 1 << 22
"""How many counters of (second relation, hypothesis) one thread holds at a time; more relations take more passes."""


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
    world = World(graph.observed)
    relations = np.unique(graph.train[:, RELATION])
    found: list[Candidates] = []
    with (
        progress("mining, relations", len(relations) * len(settings.patterns)) as advance,
        ThreadPoolExecutor(threads or os.cpu_count()) as pool,
    ):
        for pattern in settings.patterns:
            of_body = _compositions(graph) if pattern == "composition" else partial(_one_step, world, pattern)
            # results come in the order of relations, whichever thread is done first
            for candidates in pool.map(partial(of_body, settings.counting), relations.tolist()):
                found.append(candidates)
                advance()
    kept = [c.at_least(settings) for c in found]
    rules = [rule for c in kept for rule in c.rules(graph)]
    support = [n for c in kept for n in c.support.tolist()]
    hits = [n for c in kept for n in c.hits.tolist()]
    total = sum(len(c.support) for c in found)
    return Mined(RuleTable.of(rules, support, hits), mine_constraints(graph, settings), total)


@dataclass(frozen=True)
class Candidates:
    """Candidate rules of one pattern that begin with one relation: arrays of one entry a rule.

    Attributes:
        first: the relation of the (first) premise.
        second: for compositions, the relation of the second premise.
        relation: the hypothesis's relation.
        support, hits: the counts.
    """

    pattern: str
    first: int
    second: IntArray
    relation: IntArray
    support: IntArray
    hits: IntArray

    def at_least(self, settings: config.Rules) -> "Candidates":
        """Those of enough precision and support."""
        # dividing rounds as the threshold's own decimal does: 3 of 30 is 0.1
        precise = self.hits / self.support >= getattr(settings.min_precision, self.pattern)
        kept = precise & (self.support >= settings.min_support)
        columns = (self.second, self.relation, self.support, self.hits)
        return Candidates(self.pattern, self.first, *(column[kept] for column in columns))

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


def _compositions(graph: KnowledgeGraph) -> Callable[[Counting, int], Candidates]:
    """Counts, for one first relation, the compositions with every second relation that can follow it."""
    shape = (len(graph.relations), len(graph.entities))
    ones = np.ones(len(graph.train), dtype=bool)
    ends = sparse.csr_array((ones, (graph.train[:, RELATION], graph.train[:, TAIL])), shape)
    begins = sparse.csr_array((ones, (graph.train[:, RELATION], graph.train[:, HEAD])), shape)
    follows = sparse.csr_array(ends @ begins.T)
    runs = Runs.of(graph.observed)

    def count(counting: Counting, first: int) -> Candidates:
        seconds = np.sort(follows.indices[follows.indptr[first] : follows.indptr[first + 1]]).astype(np.int64)
        at_once = max(1, COUNTERS // len(graph.relations))
        blocks = [
            count_compositions(runs, first, seconds[start : start + at_once], *shape, counting == "paths")
            for start in range(0, len(seconds), at_once)
        ] or [(np.empty(0, dtype=np.int64),) * 4]
        return Candidates("composition", first, *(np.concatenate(column) for column in zip(*blocks, strict=True)))

    return count


def _one_step(world: World, pattern: str, counting: Counting, first: int) -> Candidates:
    """Counts the rules of a one-step pattern whose premise has one relation."""
    move = Move(first, forward=pattern == "subrelation")
    pairs, counts = _pairs(walk(world, [move]).entities, world.facts.entities, counting)
    hits = _hits(world, pairs, counts)
    relations = np.flatnonzero(hits)
    relations = relations[(relations == first) == (pattern == "symmetric")]
    support = np.full(len(relations), counts.sum())
    hit = hits[relations]
    if pattern == "symmetric" and len(relations) and counting == "distinct":
        # a self-loop is its own mirror image, so it does not count
        own, ones = _pairs(ground(world, Chain((move,), first), counting).entities, world.facts.entities, counting)
        support, hit = np.array([len(own)]), _hits(world, own, ones)[relations]
        relations, support, hit = (column[hit > 0] for column in (relations, support, hit))
    return Candidates(pattern, first, np.full(len(relations), -1), relations, support, hit)


def _pairs(entities: IntArray, n: int, counting: Counting) -> tuple[IntArray, IntArray]:
    """The distinct (head, tail) of walks as keys, and what each counts for."""
    pairs, counts = np.unique(entities[:, 0] * n + entities[:, -1], return_counts=True)
    return pairs, counts if counting == "paths" else np.ones_like(counts)


def _hits(world: World, pairs: IntArray, counts: IntArray) -> IntArray:
    """For each relation, how much of the pairs' count is observed under it."""
    keys, relations = world.by_pair
    owners, at = expand_ranges(np.searchsorted(keys, pairs, "left"), np.searchsorted(keys, pairs, "right"))
    hits = np.bincount(relations[at], weights=counts[owners], minlength=int(relations.max()) + 1)
    return hits.astype(np.int64)
