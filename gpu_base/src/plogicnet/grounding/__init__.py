"""From rules and a graph to mined rules, hidden triples and groundings, by walking chains of relations, or by SQL."""

from plogicnet.grounding.groundings import Groundings, chains_of, ground_network
from plogicnet.grounding.mining import Mined, mine, mine_constraints
from plogicnet.grounding.network import Network
from plogicnet.grounding.rulebook import find_rules
from plogicnet.grounding.walks import Chain, Counting, Move, World, chain_of, ground, two_step_paths

__all__ = [
    "Chain",
    "Counting",
    "Groundings",
    "Mined",
    "Move",
    "Network",
    "World",
    "chain_of",
    "chains_of",
    "find_rules",
    "ground",
    "ground_network",
    "mine",
    "mine_constraints",
    "two_step_paths",
]
