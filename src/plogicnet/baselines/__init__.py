"""The other systems of the paper's tables, BLP, RUGE and NNE-AER: on the same rules, vectors, ranking and run files."""

from plogicnet.baselines.choice import learn, make_guide, make_rule_model, report, require_sense, vectors_alone

__all__ = ["learn", "make_guide", "make_rule_model", "report", "require_sense", "vectors_alone"]
