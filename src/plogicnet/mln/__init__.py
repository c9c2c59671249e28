"""The rule model, a Markov logic network: conditional probabilities and weight learning."""

from plogicnet.mln.conditional import aggregate_rows, base_log_odds, features, probability
from plogicnet.mln.learning import Pseudolikelihood, gradient_ascent, learn_weights, newton, standard_errors
from plogicnet.mln.query_model import QueryRuleModel, query_rule_model
from plogicnet.mln.rule_model import Reason, RuleModel, build_rule_model
from plogicnet.mln.scores import RuleScores

__all__ = [
    "Pseudolikelihood",
    "QueryRuleModel",
    "Reason",
    "RuleModel",
    "RuleScores",
    "aggregate_rows",
    "base_log_odds",
    "build_rule_model",
    "features",
    "gradient_ascent",
    "learn_weights",
    "newton",
    "probability",
    "query_rule_model",
    "standard_errors",
]
