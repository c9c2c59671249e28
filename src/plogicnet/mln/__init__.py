"""The Markov logic network: conditional probabilities and weight learning over groundings."""

from plogicnet.mln.conditional import aggregated, base_log_odds, features, probability
from plogicnet.mln.learning import Pseudolikelihood, ascend, learn_weights, newton, standard_errors
from plogicnet.mln.rule_model import Reason, RuleModel, build_rule_model, m_step, report
from plogicnet.mln.scores import RuleScores

__all__ = [
    "Pseudolikelihood",
    "Reason",
    "RuleModel",
    "RuleScores",
    "aggregated",
    "ascend",
    "base_log_odds",
    "build_rule_model",
    "features",
    "learn_weights",
    "m_step",
    "newton",
    "probability",
    "report",
    "standard_errors",
]
