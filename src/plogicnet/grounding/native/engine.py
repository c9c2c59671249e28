"""The native engine."""

import logging
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from plogicnet import config
from plogicnet.config.shapes import ChainShape
from plogicnet.graph import HEAD, RELATION, TAIL, FloatArray, IntArray, KnowledgeGraph
from plogicnet.grounding.engine import Engine, GroundingLookup, GroundingTask, MiningResult, Resources
from plogicnet.grounding.groundings import InMemoryGroundNetwork
from plogicnet.grounding.mining import RULE_BYTES
from plogicnet.grounding.native.adjacency import Adjacency
from plogicnet.grounding.native.chains import CountedChains, chain_rules, mine_chains
from plogicnet.grounding.native.constants import constant_rules, mine_constants
from plogicnet.grounding.native.grounding import count_groundings_per_chain, ground_network
from plogicnet.grounding.native.mining import COUNT_FUNCTIONS, mine
from plogicnet.grounding.native.sampling import mine_sampled_chains
from plogicnet.grounding.native.subjects import SubjectLookup, SubjectRules, Subjects
from plogicnet.grounding.native.walks import Chain, TripleIndex, chain_of, count, ground
from plogicnet.rules import Rule, RuleTable
from plogicnet.support.errors import InputError
from plogicnet.support.memory import require_bytes

log = logging.getLogger(__name__)


class NativeEngine:
    """The engine for chains of relations, and for rules with constants; see `Engine`."""

    scope = "chains of relations, and rules such as r(X, a) => s(X, b), where a and b are entities"
    in_memory = True

    def supports(self, rule: Rule) -> bool:
        """Return whether the rule is a chain, or has one premise and a constant in the hypothesis."""
        return rule.chain is not None or rule.pattern == "constant"

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
        tables, n_candidates, record = [mined.rules], mined.n_candidates, dict(mined.mined)
        if mines_chains:
            found_chains, record["chains"] = _mine_chains(adjacency, settings, resources)
            for chains in found_chains:
                require_bytes(RULE_BYTES * len(chains.hits), f"{len(chains.hits):,} rules", "raise rules.min_precision")
                rules = list(chain_rules(chains, graph.relations.names))
                tables.append(RuleTable.of(rules, chains.support.tolist(), chains.hits.tolist()))
                n_candidates += chains.n_candidates
        if settings.constants:
            found, n_found = mine_constants(adjacency, settings, resources)
            require_bytes(RULE_BYTES * len(found.hits), f"{len(found.hits):,} rules", "lower rules.max_constants")
            rules = list(constant_rules(found, graph.relations.names, graph.entities.names))
            tables.append(RuleTable.of(rules, found.support.tolist(), found.hits.tolist()))
            n_candidates += n_found
            record["constants"] = {"exhaustive": True, "kept": len(rules)}
        return MiningResult(reduce(RuleTable.concat, tables), mined.constraints, n_candidates, record)

    def count(self, task: GroundingTask) -> tuple[IntArray, IntArray]:
        """Count the conclusions of each rule."""
        triple_index, encoded = TripleIndex(task.graph.observed), EncodedRules.of(task)
        counts = np.zeros((2, len(task.rules)), dtype=np.int64)
        with task.resources.progress("counting conclusions, rules", len(task.rules)) as advance:
            counts[:, encoded.subject_rows] = Subjects.of(triple_index, encoded.subjects).count(task.counting)
            advance(len(encoded.subjects))
            for i, chain in zip(encoded.chain_rows.tolist(), encoded.chains, strict=True):
                counts[:, i] = count(triple_index, chain, task.counting)
                advance()
        return counts[0], counts[1]

    def count_groundings(self, task: GroundingTask) -> FloatArray:
        """Count the paths of each rule without visiting every path."""
        triple_index, encoded = TripleIndex(task.graph.observed), EncodedRules.of(task)
        return encoded.in_order(
            count_groundings_per_chain(triple_index, encoded.chains),
            Subjects.of(triple_index, encoded.subjects).n_groundings,
        )

    def ground(self, task: GroundingTask) -> InMemoryGroundNetwork:
        """Ground the rules into arrays."""
        encoded = EncodedRules.of(task)

        def check_memory(counts: FloatArray) -> None:
            task.resources.check_memory(encoded.in_order(*np.split(counts, [len(encoded.chains)])))

        network = ground_network(
            task.graph.observed,
            encoded.chains,
            task.counting,
            task.hidden_premises,
            replace(task.resources, check_memory=check_memory),
            encoded.subjects,
        )
        rows = np.append(encoded.chain_rows, encoded.subject_rows)
        np.take(rows, network.rule, out=network.rule)
        return network

    def grounding_lookup(self, task: GroundingTask) -> GroundingLookup:
        """Return a function that finds the groundings that conclude a triple. All calls share one index."""
        triple_index, encoded = TripleIndex(task.graph.observed), EncodedRules.of(task)
        chains: dict[int, list[tuple[int, Chain]]] = {}
        for i, chain in zip(encoded.chain_rows.tolist(), encoded.chains, strict=True):
            chains.setdefault(chain.relation, []).append((i, chain))
        subjects = SubjectLookup.of(triple_index, encoded.subjects)

        def lookup(triple: IntArray) -> dict[int, IntArray]:
            by_rule = {}
            start, end = int(triple[HEAD]), int(triple[TAIL])
            for i, chain in chains.get(int(triple[RELATION]), []):
                batches = ground(triple_index, chain, task.counting, start=start, end=end)
                by_rule[i] = triple_index.facts.triples[np.concatenate([batch.premises for batch in batches])]
            for i, premises in subjects.groundings(triple, task.counting).items():
                by_rule[int(encoded.subject_rows[i])] = premises
            return {i: premises for i, premises in sorted(by_rule.items()) if len(premises)}

        return lookup


def _mine_chains(
    adjacency: Adjacency, settings: config.Rules, resources: Resources
) -> tuple[list[CountedChains], dict[str, object]]:
    """Mine the chains that match no other pattern. Also return whether the search was exhaustive."""
    if settings.max_length < 3 or not settings.sampled_walks:
        return [mine_chains(adjacency, settings, resources)], {"max_length": settings.max_length, "exhaustive": True}
    shorter = [mine_chains(adjacency, replace(settings, max_length=2), resources)] if settings.backward else []
    sampled, sampling = mine_sampled_chains(adjacency, settings, resources)
    log.info(
        "chains of three steps: %d of %d walks drawn, all walks of %d of %d relations; %d candidates, %d counted,"
        " %d left out because of rules.counted_paths",
        sampling.walks, sampling.possible_walks, sampling.exhausted, adjacency.n_relations, sampling.candidates,
        sampling.counted, sampling.limited,
    )  # fmt: skip
    plan = {"sampled_walks": settings.sampled_walks, "counted_paths": settings.counted_paths}
    return [*shorter, sampled], {"max_length": 3, **sampling.to_json(), **plan}


@dataclass(frozen=True)
class EncodedRules:
    """The rules of a task with ids instead of names.

    Attributes:
        chains, chain_rows: the chains, and their indices in the task.
        subjects, subject_rows: the rules with constants, and their indices.
    """

    chains: list[Chain]
    chain_rows: IntArray
    subjects: SubjectRules
    subject_rows: IntArray

    @classmethod
    def of(cls, task: GroundingTask) -> "EncodedRules":
        """Encode the rules of a task. Raise InputError if the native engine does not support one."""
        is_subject = np.array([rule.pattern == "constant" for rule in task.rules], dtype=bool)
        chain_rows, subject_rows = np.flatnonzero(~is_subject), np.flatnonzero(is_subject)
        chains = [chain_of(task.rules[i], task.graph.relations) for i in chain_rows.tolist()]
        subjects = SubjectRules.of([task.rules[i] for i in subject_rows.tolist()], task.graph)
        return cls(chains, chain_rows, subjects, subject_rows)

    def in_order(self, of_chains: FloatArray, of_subjects: IntArray | FloatArray) -> FloatArray:
        """Return numbers of the rules in the order of the task."""
        numbers = np.empty(len(self.chain_rows) + len(self.subject_rows))
        numbers[self.chain_rows], numbers[self.subject_rows] = of_chains, of_subjects
        return numbers


NATIVE: Engine = NativeEngine()
