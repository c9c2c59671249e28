"""The native engine."""

from functools import reduce

import numpy as np

from plogicnet import config
from plogicnet.config.shapes import ChainShape
from plogicnet.graph import HEAD, RELATION, TAIL, FloatArray, IntArray, KnowledgeGraph
from plogicnet.grounding.engine import Engine, GroundingLookup, GroundingTask, MiningResult, Resources
from plogicnet.grounding.groundings import InMemoryGroundNetwork
from plogicnet.grounding.mining import RULE_BYTES
from plogicnet.grounding.native.adjacency import Adjacency
from plogicnet.grounding.native.chains import chain_rules, mine_chains
from plogicnet.grounding.native.constants import constant_rules, mine_constants
from plogicnet.grounding.native.grounding import count_groundings_per_chain, ground_network
from plogicnet.grounding.native.mining import COUNT_FUNCTIONS, mine
from plogicnet.grounding.native.walks import Chain, TripleIndex, chain_of, count, ground
from plogicnet.rules import Rule, RuleTable
from plogicnet.support.errors import InputError
from plogicnet.support.memory import require_bytes


class NativeEngine:
    """The engine for chains of relations; see `Engine`."""

    scope = "chains of relations"
    in_memory = True

    def supports(self, rule: Rule) -> bool:
        """Return whether the rule is a chain."""
        return rule.chain is not None

    def check_available(self) -> None:
        """Do nothing: the engine is always available."""

    def supports_shape(self, shape: ChainShape) -> bool:
        """Return whether the shape is one step or two steps forward."""
        return shape.forward in COUNT_FUNCTIONS

    def mine(self, graph: KnowledgeGraph, settings: config.Rules, resources: Resources) -> MiningResult:
        """Mine the patterns, then other chains and rules with constants, if the settings ask for them."""
        mined = mine(graph, settings, resources)
        mines_chains = settings.max_length == 3 or (settings.backward and settings.max_length == 2)
        if not (mines_chains or settings.constants):
            return mined
        if settings.counting == "paths":
            raise InputError("rules.counting=paths: chains and constants are counted only with rules.counting=distinct")
        adjacency = Adjacency.of(graph.observed, len(graph.relations))
        tables, n_candidates = [mined.rules], mined.n_candidates
        if mines_chains:
            chains = mine_chains(adjacency, settings, resources)
            rules = list(chain_rules(chains, graph.relations.names))
            tables.append(RuleTable.of(rules, chains.support.tolist(), chains.hits.tolist()))
            n_candidates += chains.n_candidates
        if settings.constants:
            found, n_found = mine_constants(adjacency, settings, resources)
            require_bytes(RULE_BYTES * len(found.hits), f"{len(found.hits):,} rules", "lower rules.max_constants")
            rules = list(constant_rules(found, graph.relations.names, graph.entities.names))
            tables.append(RuleTable.of(rules, found.support.tolist(), found.hits.tolist()))
            n_candidates += n_found
        return MiningResult(reduce(RuleTable.concat, tables), mined.constraints, n_candidates)

    def count(self, task: GroundingTask) -> tuple[IntArray, IntArray]:
        """Count the conclusions of all paths of each rule."""
        triple_index, counts = TripleIndex(task.graph.observed), np.zeros((2, len(task.rules)), dtype=np.int64)
        with task.resources.progress("counting conclusions, rules", len(task.rules)) as advance:
            for i, chain in enumerate(_chains(task)):
                counts[:, i] = count(triple_index, chain, task.counting)
                advance()
        return counts[0], counts[1]

    def count_groundings(self, task: GroundingTask) -> FloatArray:
        """Count the paths of each rule without visiting every path."""
        return count_groundings_per_chain(TripleIndex(task.graph.observed), _chains(task))

    def ground(self, task: GroundingTask) -> InMemoryGroundNetwork:
        """Ground the rules into arrays."""
        return ground_network(task.graph.observed, _chains(task), task.counting, task.hidden_premises, task.resources)

    def grounding_lookup(self, task: GroundingTask) -> GroundingLookup:
        """Return a function that finds the paths from a triple's head to its tail. All calls share one index."""
        triple_index, chains = TripleIndex(task.graph.observed), _chains(task)

        def lookup(triple: IntArray) -> dict[int, IntArray]:
            by_rule = {}
            start, end = int(triple[HEAD]), int(triple[TAIL])
            for i, chain in enumerate(chains):
                if chain.relation == triple[RELATION]:
                    batches = ground(triple_index, chain, task.counting, start=start, end=end)
                    by_rule[i] = triple_index.facts.triples[np.concatenate([batch.premises for batch in batches])]
            return {i: premises for i, premises in by_rule.items() if len(premises)}

        return lookup


def _chains(task: GroundingTask) -> list[Chain]:
    return [chain_of(rule, task.graph.relations) for rule in task.rules]


NATIVE: Engine = NativeEngine()
