"""The native engine."""

import numpy as np

from plogicnet import config
from plogicnet.config.shapes import ChainShape
from plogicnet.graph import HEAD, RELATION, TAIL, FloatArray, IntArray, KnowledgeGraph
from plogicnet.grounding.engine import Engine, Explain, Job, Mined, Resources
from plogicnet.grounding.groundings import Groundings
from plogicnet.grounding.native.grounding import expected_groundings, ground_network
from plogicnet.grounding.native.mining import COUNTED, mine
from plogicnet.grounding.native.walks import Chain, World, chain_of, count, ground
from plogicnet.rules import Rule


class NativeEngine:
    """Chains of relations, walked over sorted arrays in compiled code; see `Engine`."""

    scope = "chains of relations only"
    in_memory = True

    def supports(self, rule: Rule) -> bool:
        """Chains alone."""
        return rule.chain is not None

    def require(self) -> None:
        """It works everywhere."""

    def mines(self, shape: ChainShape) -> bool:
        """One step, and two steps forwards."""
        return shape.steps in COUNTED

    def mine(self, graph: KnowledgeGraph, settings: config.Rules, resources: Resources) -> Mined:
        """One look at every two-step path."""
        return mine(graph, settings, resources)

    def count(self, job: Job) -> tuple[IntArray, IntArray]:
        """Support and hits, by walking piece by piece."""
        world, counts = World(job.graph.observed), np.zeros((2, len(job.rules)), dtype=np.int64)
        with job.resources.progress("counting written rules", len(job.rules)) as advance:
            for i, chain in enumerate(_chains(job)):
                counts[:, i] = count(world, chain, job.counting)
                advance()
        return counts[0], counts[1]

    def expect(self, job: Job) -> FloatArray:
        """Numbers of walks, without walking."""
        return expected_groundings(World(job.graph.observed), _chains(job))

    def ground(self, job: Job) -> Groundings:
        """Arrays."""
        return ground_network(job.graph.observed, _chains(job), job.counting, job.hidden_premises, job.resources)

    def explain(self, job: Job) -> Explain:
        """Walks from the triple's head to its tail; the index of the facts is made once."""
        world, chains = World(job.graph.observed), _chains(job)

        def of_triple(triple: IntArray) -> dict[int, IntArray]:
            found = {}
            start, end = int(triple[HEAD]), int(triple[TAIL])
            for i, chain in enumerate(chains):
                if chain.relation == triple[RELATION]:
                    walks = ground(world, chain, job.counting, start=start, end=end)
                    found[i] = world.facts.triples[np.concatenate([w.premises for w in walks])]
            return {i: premises for i, premises in found.items() if len(premises)}

        return of_triple


def _chains(job: Job) -> list[Chain]:
    return [chain_of(rule, job.graph.relations) for rule in job.rules]


NATIVE: Engine = NativeEngine()
