"""The Markov logic network: conditional probabilities and weight learning over groundings."""

from plogicnet.mln.conditional import base_log_odds, features, log_odds, probability
from plogicnet.mln.learning import Pseudolikelihood, learn_weights, newton
from plogicnet.mln.rule_model import Reason, RuleModel, build_rule_model, m_step
from plogicnet.mln.scores import RuleScores

__all__ = [
    "Pseudolikelihood",
    "Reason",
    "RuleModel",
    "RuleScores",
    "base_log_odds",
    "build_rule_model",
    "features",
    "learn_weights",
    "log_odds",
    "m_step",
    "newton",
    "probability",
]
