"""Rules that a neural model proposes: chains of two or three steps, counted like mined rules."""

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from plogicnet.config import Config
from plogicnet.graph import RELATION, IntArray, KnowledgeGraph
from plogicnet.grounding.engine import GroundingTask, Resources
from plogicnet.grounding.native.adjacency import Adjacency
from plogicnet.grounding.native.chains import chain_rules
from plogicnet.grounding.native.engine import NATIVE
from plogicnet.grounding.native.sampling import Candidates, count_candidates
from plogicnet.rules import Rule, RuleTable
from plogicnet.support.errors import InputError, pluralize
from plogicnet.support.progress import Progress, no_progress

log = logging.getLogger(__name__)
MAX_STEPS = 3
"""Longer chains are not proposed."""


def facts_to_explain(graph: KnowledgeGraph, size: int, seed: int) -> IntArray:
    """Draw training triples. Each relation gets the same number of them, if it has enough."""
    train = graph.train[np.random.default_rng([seed, 23]).permutation(len(graph.train))]
    by_relation = np.argsort(train[:, RELATION], kind="stable")
    relation = train[by_relation, RELATION]
    number = np.arange(len(train)) - np.searchsorted(relation, relation)
    return train[by_relation[np.argsort(number, kind="stable")[:size]]]


def with_proposals(
    rules: RuleTable,
    proposals: Mapping[Rule, float],
    graph: KnowledgeGraph,
    config: Config,
    progress: Progress = no_progress,
) -> RuleTable:
    """Return the rules and, before negative evidence, the proposals that reach the thresholds of `rules`.

    Proposals that match a pattern of `rules.patterns` are left out: mining finds these exhaustively, if they are asked
    for. So are proposals with more than three steps. The most used candidates are counted first, which matters with
    `rules.counted_paths`.
    """
    if config.rules.counting == "paths":
        raise InputError("rules.counting=paths: proposed chains are counted only with rules.counting=distinct")
    known = set(rules.rules)
    is_new = [rule for rule in proposals if rule.pattern == "chain" and len(rule.body) <= MAX_STEPS]
    ordered = sorted((rule for rule in is_new if rule not in known), key=lambda rule: (-proposals[rule], str(rule)))
    resources = Resources(config.threads, config.grounding.memory_mb, progress, config.seed)
    counted = [_count(ordered, length, graph, config, resources) for length in (2, 3)]
    found = counted[0].concat(counted[1])
    log.info("%s proposed by paths, %d of them kept", pluralize(len(ordered), "new rule"), len(found))
    return rules.concat(found).positive_first()


def _count(
    rules: Sequence[Rule], length: int, graph: KnowledgeGraph, config: Config, resources: Resources
) -> RuleTable:
    """Return the rules with this number of steps that reach the thresholds, with support and hits."""
    rules = [rule for rule in rules if len(rule.body) == length]
    if not rules:
        return RuleTable.of([], [], [])
    if length < MAX_STEPS:
        support, hits = NATIVE.count(GroundingTask(graph, rules, config.rules.counting, resources=resources))
        settings = config.rules
        is_precise = hits / np.maximum(support, 1) >= settings.min_precision.chain
        kept = np.flatnonzero(is_precise & (support >= settings.min_support) & (hits >= settings.min_hits))
        return RuleTable.of([rules[i] for i in kept.tolist()], support[kept].tolist(), hits[kept].tolist())
    ids, n = graph.relations, len(graph.relations)
    chains = [rule.chain or () for rule in rules]
    steps = np.array([[ids.id(step.relation) + n * (not step.forward) for step in chain] for chain in chains])
    relation = np.array([ids.id(rule.head.relation) for rule in rules])
    candidates = Candidates(steps, relation, np.arange(len(rules), 0, -1))
    found, _, _ = count_candidates(Adjacency.of(graph.observed, n), candidates, config.rules, resources)
    return RuleTable.of(list(chain_rules(found, ids.names)), found.support.tolist(), found.hits.tolist())
