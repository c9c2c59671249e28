"""Hidden triples, and every grounding as rows of arrays: which rule, which hypothesis, which premises."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plogicnet.graph import BoolArray, IntArray, KnowledgeGraph, TripleSet
from plogicnet.grounding.walks import Chain, Counting, World, chain_of, ground, hypothesis_triples
from plogicnet.progress import Progress, silent
from plogicnet.rules import RuleTable


@dataclass(frozen=True)
class Groundings:
    """The ground Markov logic network: variables are the triples of O ∪ H, factors are groundings over them.

    Attributes:
        triples: O ∪ H.
        observed: for each of them, whether it is in O.
        rule: for each grounding, its rule's number.
        hypothesis: for each grounding, the row of its hypothesis in `triples`.
        premises: for each grounding, the rows of its premises, each once; -1 fills the rest.
        rules: the number of rules.
    """

    triples: TripleSet
    observed: BoolArray
    rule: IntArray
    hypothesis: IntArray
    premises: IntArray
    rules: int

    def of(self, row: int) -> IntArray:
        """The numbers of the groundings that conclude one triple."""
        return np.flatnonzero(self.hypothesis == row)

    @property
    def hidden(self) -> IntArray:
        """H, the hidden triples."""
        return self.triples.triples[~self.observed]


def chains_of(rules: RuleTable, graph: KnowledgeGraph) -> list[Chain]:
    """The rules of a table in numbers.

    Example:
        >>> chains_of(RuleTable.of([], [], []), KnowledgeGraph.from_names([("a", "r", "b")]))
        []
    """
    return [chain_of(rule, graph.relations) for rule in rules.rules]


def hidden_triples(observed: TripleSet, chains: Sequence[Chain], counting: Counting) -> IntArray:
    """H: the unobserved conclusions of the rules from observed premises (Sec. 4.4).

    Example:
        >>> from plogicnet.grounding.walks import Move
        >>> inverse = Chain((Move(0, forward=False),), relation=1)
        >>> hidden_triples(TripleSet.of([(0, 0, 1)], entities=2), [inverse], "distinct").tolist()
        [[1, 1, 0]]
    """
    world = World(observed)
    found = [np.empty((0, 3), dtype=np.int64)]
    for chain in chains:
        concluded = hypothesis_triples(ground(world, chain, counting), chain.relation)
        found.append(np.unique(concluded[~observed.contains(concluded)], axis=0))
    return TripleSet.of(np.concatenate(found), observed.entities).triples


def ground_network(
    observed: TripleSet,
    chains: Sequence[Chain],
    counting: Counting,
    hidden_premises: bool = False,
    progress: Progress = silent,
) -> Groundings:
    """Finds H and links every grounding whose hypothesis is in O ∪ H.

    Premises are taken from O, or from O ∪ H where hidden triples can be premises too: then no grounding leads beyond
    O ∪ H, because H holds the conclusions from O alone.

    Example:
        >>> from plogicnet.grounding.walks import Move
        >>> inverse = Chain((Move(0, forward=False),), relation=1)
        >>> network = ground_network(TripleSet.of([(0, 0, 1)], entities=2), [inverse], "distinct")
        >>> network.hypothesis, network.premises
        (array([1]), array([[0]]))
    """
    variables = TripleSet.of(
        np.concatenate([observed.triples, hidden_triples(observed, chains, counting)]), observed.entities
    )
    world = World(variables if hidden_premises else observed)
    row_of_fact = variables.find(world.facts.triples)
    width = max((len(chain.moves) for chain in chains), default=1)
    rules, hypotheses = [_none()], [_none()]
    premises = [np.empty((0, width), dtype=np.int64)]
    with progress("grounding", len(chains)) as advance:
        for number, chain in enumerate(chains):
            walks = ground(world, chain, counting)
            rows = variables.find(hypothesis_triples(walks, chain.relation))
            inside = rows >= 0
            rules.append(np.full(int(inside.sum()), number))
            hypotheses.append(rows[inside])
            premises.append(_padded(row_of_fact[walks.premises[inside]], width))
            advance()
    return Groundings(
        triples=variables,
        observed=observed.contains(variables.triples),
        rule=np.concatenate(rules),
        hypothesis=np.concatenate(hypotheses),
        premises=np.concatenate(premises),
        rules=len(chains),
    )


def _padded(premises: IntArray, width: int) -> IntArray:
    """Rows of the same width; a premise that occurs twice in a grounding counts once."""
    for later in range(1, premises.shape[1]):
        repeated = np.any(premises[:, :later] == premises[:, [later]], axis=1)
        premises[repeated, later] = -1
    missing = width - premises.shape[1]
    return np.pad(premises, ((0, 0), (0, missing)), constant_values=-1)


def _none() -> IntArray:
    return np.empty(0, dtype=np.int64)
