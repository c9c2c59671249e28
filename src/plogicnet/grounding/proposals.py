"""Rules that a neural model proposes: chains of two or three steps, counted like mined rules."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from plogicnet import config
from plogicnet.config import Config
from plogicnet.graph import RELATION, IntArray, KnowledgeGraph
from plogicnet.grounding.engine import Resources
from plogicnet.grounding.native.adjacency import Adjacency
from plogicnet.grounding.native.chains import chain_rules, mine_chains
from plogicnet.grounding.native.sampling import Candidates, count_candidates
from plogicnet.rules import Rule, RuleTable
from plogicnet.support.errors import pluralize
from plogicnet.support.progress import Progress, no_progress

log = logging.getLogger(__name__)
MAX_STEPS = 3
"""Longer chains are not proposed."""


def facts_to_explain(graph: KnowledgeGraph, size: int, seed: int) -> IntArray:
    """Draw training triples. Each relation gets the same number of them, if it has enough; the order is drawn, too."""
    train = graph.train[np.random.default_rng([seed, 23]).permutation(len(graph.train))]
    order = np.argsort(train[:, RELATION], kind="stable")
    relation, number = train[order, RELATION], np.empty(len(train), dtype=np.int64)
    number[order] = np.arange(len(train)) - np.searchsorted(relation, relation)
    return train[np.argsort(number, kind="stable")[:size]]


def with_proposals(
    rules: RuleTable,
    proposals: Mapping[Rule, float],
    graph: KnowledgeGraph,
    settings: Config,
    progress: Progress = no_progress,
) -> RuleTable:
    """Return the rules and, before negative evidence, the proposals that reach the thresholds of `rules`.

    Proposals that match a pattern of `rules.patterns` are left out, because `rules.patterns` decides about these. So
    are proposals with more than three steps. With `rules.counted_paths`, chains of three steps that are used most, in
    relation to the number of their paths, are counted first.
    """
    known = {rule.canonical for rule in rules.rules}
    new = [rule for rule in proposals if rule.pattern == "chain" and len(rule.body) <= MAX_STEPS and rule not in known]
    new.sort(key=str)
    resources = Resources(settings.threads, settings.grounding.memory_mb, progress, settings.seed)
    found = _counted(new, proposals, graph, settings.rules, resources)
    log.info("%s proposed by paths, %d of them kept", pluralize(len(new), "new rule"), len(found))
    return rules.concat(found).positive_first()


def _counted(
    rules: Sequence[Rule],
    proposals: Mapping[Rule, float],
    graph: KnowledgeGraph,
    settings: config.Rules,
    resources: Resources,
) -> RuleTable:
    """Return the rules that reach the thresholds, with support and hits.

    Chains of two steps are mined exhaustively, which takes less time than to count some of them.
    """
    adjacency, names = Adjacency.of(graph.observed, len(graph.relations)), graph.relations.names
    longer = [rule for rule in rules if len(rule.body) == MAX_STEPS]
    wanted, found = set(rules), []
    if len(longer) < len(rules):
        found.append(mine_chains(adjacency, replace(settings, max_length=2, backward=True), resources))
    if longer:
        candidates = _candidates(longer, proposals, graph)
        found.append(count_candidates(adjacency, candidates, settings, resources)[0])
    rows = [
        (rule, support, hits)
        for chains in found
        for rule, support, hits in zip(
            chain_rules(chains, names), chains.support.tolist(), chains.hits.tolist(), strict=True
        )
        if rule in wanted
    ]
    return RuleTable.of(*(zip(*rows, strict=True) if rows else ([], [], [])))


def _candidates(rules: Sequence[Rule], proposals: Mapping[Rule, float], graph: KnowledgeGraph) -> Candidates:
    """Return chains of three steps as candidates. Instead of drawn facts, how much they are used gives the order."""
    ids, n = graph.relations, len(graph.relations)
    chains = [rule.chain or () for rule in rules]
    steps = np.array([[ids.id(step.relation) + n * (not step.forward) for step in chain] for chain in chains])
    share = np.array([proposals[rule] for rule in rules])
    return Candidates(steps, np.array([ids.id(rule.head.relation) for rule in rules]), share)
