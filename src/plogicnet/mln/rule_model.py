"""The rule model p_w as a whole: rules, weights and the network they are grounded in; and the M-step."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from plogicnet.config import Config
from plogicnet.graph import RELATION, BoolArray, FloatArray, KnowledgeGraph, TripleSet
from plogicnet.grounding import Groundings, chains_of, ground_network
from plogicnet.mln.conditional import base_log_odds, features, log_odds, probability
from plogicnet.mln.learning import Pseudolikelihood, learn_weights
from plogicnet.mln.scores import RuleScores
from plogicnet.progress import Progress, silent
from plogicnet.rules import RuleTable


@dataclass(frozen=True)
class RuleModel:
    """The rule model after an M-step, over the triples of O ∪ H.

    Attributes:
        rules: the rules with their weights.
        constraints: the irreflexive constraints.
        groundings: the ground network.
        truth: the assignment under which the premises were taken.
        matrix: triples × rules, so that log-odds = base + matrix · weights.
        base: b of each relation.
    """

    rules: RuleTable
    constraints: RuleTable
    groundings: Groundings
    truth: BoolArray
    matrix: sparse.csr_array
    base: FloatArray

    @property
    def log_odds(self) -> FloatArray:
        """The log-odds of every triple of O ∪ H."""
        return log_odds(self.matrix, self.rules.weight, self.base[self.groundings.triples.triples[:, RELATION]])

    @property
    def hidden_p_w(self) -> FloatArray:
        """p_w of the hidden triples."""
        return probability(self.log_odds)[~self.groundings.observed]

    def scores(self, graph: KnowledgeGraph) -> RuleScores:
        """What ranking, prediction and calibration need of it."""
        triples, reached = self.groundings.triples, np.diff(self.matrix.indptr) > 0
        irreflexive = np.zeros(len(graph.relations), dtype=bool)
        irreflexive[[graph.relations.id(rule.head.relation) for rule in self.constraints.rules]] = True
        subset = TripleSet(triples.triples[reached], triples.keys[reached], triples.entities)
        return RuleScores(subset, self.log_odds[reached], self.base, irreflexive, graph.observed)


def build_rule_model(
    graph: KnowledgeGraph,
    config: Config,
    rules: RuleTable,
    constraints: RuleTable,
    assumed: BoolArray | None = None,
    progress: Progress = silent,
) -> RuleModel:
    """Grounds the rules and takes their premises as true where observed, or where `assumed` says so of hidden triples.

    Example:
        >>> build_rule_model(graph, config, rules, constraints)  # doctest: +SKIP
    """
    # under the full blanket a hidden triple counts as a premise too
    linked = config.mln.blanket == "full" or config.mln.hidden_premises == "sampled"
    counting = config.rules.counting
    groundings = ground_network(graph.observed, chains_of(rules, graph), counting, linked, config.threads, progress)
    truth = groundings.observed.copy()
    if assumed is not None:
        truth[~groundings.observed] = assumed
    matrix = features(groundings, truth, config.mln.blanket, config.mln.aggregate)
    return RuleModel(rules, constraints, groundings, truth, matrix, base_log_odds(graph, config.mln.unit_clauses))


def m_step(model: RuleModel, hidden_q: FloatArray, config: Config, seed: int) -> RuleModel:
    """Learns the weights anew with y = 1 on O and y = q on H (Sec. 4.3).

    Example:
        >>> m_step(model, hidden_q, config, seed=0)  # doctest: +SKIP
    """
    observed = model.groundings.observed
    truth, matrix = model.truth, model.matrix
    if config.mln.hidden_premises == "sampled":
        truth = observed.copy()
        truth[~observed] = np.random.default_rng([seed, 11]).random(len(hidden_q)) < hidden_q
        matrix = features(model.groundings, truth, config.mln.blanket, config.mln.aggregate)
    target = np.ones(len(observed))
    target[~observed] = hidden_q
    base = model.base[model.groundings.triples.triples[:, RELATION]]
    weights = learn_weights(Pseudolikelihood(matrix, base, target, config.mln.l2), config.mln)
    return RuleModel(model.rules.with_weights(weights), model.constraints, model.groundings, truth, matrix, model.base)
