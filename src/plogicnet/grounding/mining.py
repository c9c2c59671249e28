"""Exhaustive mining: every rule of the paper's four patterns with at least one hit, and the irreflexive constraints."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from plogicnet import config
from plogicnet.graph import HEAD, RELATION, TAIL, IntArray, KnowledgeGraph, expand_ranges
from plogicnet.grounding.walks import Chain, Counting, Move, World, ground, walk
from plogicnet.progress import Progress, silent
from plogicnet.rules import Rule, RuleTable, Step, chain_rule, irreflexive


@dataclass(frozen=True)
class Mined:
    """What mining found: the kept rules, the kept constraints, and how many candidates there were."""

    rules: RuleTable
    constraints: RuleTable
    candidates: int


def mine(graph: KnowledgeGraph, settings: config.Rules, progress: Progress = silent) -> Mined:
    """Counts every candidate rule exactly and keeps those of enough precision and support (Sec. 5.1).

    Example:
        >>> rows = [("a", "husband", "b"), ("b", "wife", "a"), ("c", "husband", "d")]
        >>> mined = mine(KnowledgeGraph.from_names(rows), config.Rules())
        >>> [str(rule) for rule in mined.rules.rules]
        ['husband(X, Y) => wife(Y, X)', 'wife(X, Y) => husband(Y, X)']
    """
    world = World(graph.observed)
    bodies = [(pattern, body) for pattern in settings.patterns for body in _bodies(graph, pattern)]
    candidates = 0
    kept: list[Rule] = []
    supports: list[int] = []
    hits: list[int] = []
    with progress("mining", len(bodies)) as advance:
        for pattern, body in bodies:
            least = getattr(settings.min_precision, pattern)
            for relation, support, hit in _candidates(world, pattern, body, settings.counting):
                candidates += 1
                # dividing rounds as the threshold's own decimal does: 3 of 30 is 0.1
                if hit / support >= least and support >= settings.min_support:
                    kept.append(_rule(graph, body, relation))
                    supports.append(support)
                    hits.append(hit)
            advance()
    return Mined(RuleTable.of(kept, supports, hits), mine_constraints(graph, settings), candidates)


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


def _bodies(graph: KnowledgeGraph, pattern: str) -> Iterator[tuple[Move, ...]]:
    """Every body of a pattern that can be walked at all."""
    used = np.unique(graph.train[:, RELATION])
    if pattern != "composition":
        yield from ((Move(int(r), pattern == "subrelation"),) for r in used)
        return
    shape = (len(graph.relations), len(graph.entities))
    ones = np.ones(len(graph.train), dtype=bool)
    ends = sparse.csr_array((ones, (graph.train[:, RELATION], graph.train[:, TAIL])), shape)
    begins = sparse.csr_array((ones, (graph.train[:, RELATION], graph.train[:, HEAD])), shape)
    firsts, seconds = (ends @ begins.T).nonzero()
    order = np.lexsort((seconds, firsts))
    yield from ((Move(int(a), True), Move(int(b), True)) for a, b in zip(firsts[order], seconds[order], strict=True))


def _candidates(
    world: World, pattern: str, body: tuple[Move, ...], counting: Counting
) -> Iterator[tuple[int, int, int]]:
    """(relation of the hypothesis, support, hits) of every candidate with this body and at least one hit."""
    pairs, counts = _pairs(walk(world, body).entities, world.facts.entities, counting)
    hits = _hits(world, pairs, counts)
    for relation in np.flatnonzero(hits).tolist():
        if pattern == "symmetric" and relation != body[0].relation:
            continue
        if pattern in ("inverse", "subrelation") and relation == body[0].relation:
            continue
        if counting == "paths" or all(move.relation != relation for move in body):
            yield relation, int(counts.sum()), int(hits[relation])
            continue
        # the hypothesis may be among the premises, so this relation's groundings are counted on their own
        own, ones = _pairs(ground(world, Chain(body, relation), counting).entities, world.facts.entities, counting)
        hit = int(_hits(world, own, ones)[relation])
        if hit:
            yield relation, len(own), hit


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


def _rule(graph: KnowledgeGraph, body: Sequence[Move], relation: int) -> Rule:
    steps = [Step(graph.relations.names[move.relation], move.forward) for move in body]
    return chain_rule(steps, graph.relations.names[relation])
