"""From rules and a graph to mined rules, hidden triples and groundings, by walking chains of relations."""

from plogicnet.grounding.groundings import Groundings, chains_of, ground_network, hidden_triples
from plogicnet.grounding.mining import Mined, mine, mine_constraints
from plogicnet.grounding.walks import Chain, Counting, Move, World, chain_of, ground

__all__ = [
    "Chain",
    "Counting",
    "Groundings",
    "Mined",
    "Move",
    "World",
    "chain_of",
    "chains_of",
    "ground",
    "ground_network",
    "hidden_triples",
    "mine",
    "mine_constraints",
]
