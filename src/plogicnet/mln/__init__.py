"""The Markov logic network: conditional probabilities and weight learning over groundings."""

from plogicnet.mln.conditional import base_log_odds, features, log_odds, probability
from plogicnet.mln.learning import Pseudolikelihood, learn_weights, newton
from plogicnet.mln.scores import RuleScores

__all__ = [
    "Pseudolikelihood",
    "RuleScores",
    "base_log_odds",
    "features",
    "learn_weights",
    "log_odds",
    "newton",
    "probability",
]
