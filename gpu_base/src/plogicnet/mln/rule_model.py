"""The rule model p_w as a whole: rules, weights and the network they are grounded in; and the M-step."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse

from plogicnet.config import Config
from plogicnet.errors import InputError
from plogicnet.graph import RELATION, BoolArray, FloatArray, IntArray, KnowledgeGraph, TripleSet
from plogicnet.grounding import Groundings, Network
from plogicnet.memory import require_bytes
from plogicnet.mln.conditional import (
    Aggregate,
    Blanket,
    base_log_odds,
    features,
    grounding_counts,
    probability,
)
from plogicnet.mln.learning import Pseudolikelihood, learn_weights, standard_errors
from plogicnet.mln.scores import RuleScores
from plogicnet.progress import Progress, silent
from plogicnet.rules import RuleTable

ENTRY_BYTES = 40
"""What a grounding takes when the weights are learned, beside the grounding itself."""
TRIPLE_BYTES = 180
"""And a triple of O ∪ H, with the indexes that ranking finds it by."""


@dataclass(frozen=True)
class Evidence:
    """The ground network under an assignment of truth: O is true, and so are those hidden triples that are assumed.

    Attributes:
        assumed: for each hidden triple, whether it is taken as true; None: none of them is.
    """

    network: Network
    assumed: BoolArray | None
    blanket: Blanket
    aggregate: Aggregate

    @cached_property
    def truth(self) -> BoolArray:
        """The assignment, for every triple of O ∪ H."""
        observed = self.network.groundings.observed
        truth = observed.copy()
        if self.assumed is not None:
            hidden = len(truth) - int(truth.sum())
            if len(self.assumed) != hidden:
                raise InputError(
                    f"{len(self.assumed):,} hidden triples were judged, but these rules conclude {hidden:,}: rules were"
                    " edited since; `plogicnet refit` learns their weights again"
                )
            truth[~observed] = self.assumed
        return truth

    @cached_property
    def matrix(self) -> sparse.csr_array:
        """Triples × rules, so that log-odds = base + matrix · weights."""
        self.require_memory()
        return features(self.network.groundings, self.truth, self.blanket, self.aggregate)

    def require_memory(self) -> None:
        """Refuses, before it is made, a matrix that a memory limit has no room for, with what is made of it."""
        groundings = self.network.groundings
        size, triples = len(groundings.rule), len(groundings.triples)
        require_bytes(
            ENTRY_BYTES * size + TRIPLE_BYTES * triples,
            f"weights and scores by {size:,} groundings of {triples:,} triples",
            "raise rules.min_precision, or leave rules out",
        )

    @property
    def is_local(self) -> bool:
        """Whether a triple's row depends on observed premises alone, and can be had without the whole network."""
        return self.blanket == "hypothesis" and (self.assumed is None or not self.assumed.any())


@dataclass(frozen=True)
class Reason:
    """A rule's part in one triple's log-odds.

    Attributes:
        rule: the rule's number.
        value: what its weight is multiplied with.
        groundings: how many of its groundings conclude the triple from true premises.
        broken: how many the triple would break: it is a premise, the others are true, the hypothesis is not. They
            count under the full blanket alone.
        premises: the premises of the first of the groundings, as triples.
    """

    rule: int
    value: float
    groundings: int
    broken: int
    premises: list[IntArray]


@dataclass(frozen=True)
class RuleModel:
    """The rule model after an M-step, over the triples of O ∪ H.

    Attributes:
        rules: the rules with their weights.
        constraints: the irreflexive constraints.
        evidence: the ground network and the assignment under which premises are taken.
        base: b of each relation.
    """

    rules: RuleTable
    constraints: RuleTable
    evidence: Evidence
    base: FloatArray

    @property
    def groundings(self) -> Groundings:
        """The ground network."""
        return self.evidence.network.groundings

    @property
    def truth(self) -> BoolArray:
        """The assignment under which the premises are taken."""
        return self.evidence.truth

    @property
    def matrix(self) -> sparse.csr_array:
        """Triples × rules, so that log-odds = base + matrix · weights."""
        return self.evidence.matrix

    def reasons(self, triple: IntArray, most: int | None = None) -> list[Reason]:
        """Which rules take part in one triple's log-odds; where that is possible, without building the whole network.

        All groundings are counted; the premises of at most so many of each rule are given.

        Example:
            >>> model.reasons(graph.numbers("anna", "mother", "ben"))  # doctest: +SKIP
        """
        if not self.evidence.is_local:
            return self._reasons_of_row(triple, most)
        found = self.evidence.network.of_triple(triple)
        every = sum(len(premises) for premises in found.values()) if self.evidence.aggregate == "mean" else 1
        return [
            Reason(
                rule, len(premises) / every, len(premises), 0, [_each_once(p[p[:, 0] >= 0]) for p in premises[:most]]
            )
            for rule, premises in found.items()
        ]

    def _reasons_of_row(self, triple: IntArray, most: int | None) -> list[Reason]:
        groundings, matrix = self.groundings, self.matrix
        row = int(groundings.triples.find(triple[None, :])[0])
        if row < 0:
            return []
        true = np.append(self.truth, True)  # row -1, the padding, is true
        concluding = groundings.of(row)
        concluding = concluding[true[groundings.premises[concluding]].all(axis=1)]
        broken = groundings.rule[self._broken_by(row)] if self.evidence.blanket == "full" else concluding[:0]
        found = []
        start, stop = matrix.indptr[row : row + 2]
        for rule, value in zip(matrix.indices[start:stop].tolist(), matrix.data[start:stop].tolist(), strict=True):
            own = concluding[groundings.rule[concluding] == rule]
            premises = [groundings.triples.triples[p[p >= 0]] for p in groundings.premises[own[:most]]]
            found.append(Reason(rule, value, len(own), int((broken == rule).sum()), premises))
        return found

    def _broken_by(self, row: int) -> IntArray:
        """The groundings that a triple would break as a premise: all others are true, and the hypothesis is not."""
        groundings, true = self.groundings, np.append(self.truth, True)
        used = np.flatnonzero((groundings.premises == row).any(axis=1))
        others = (true[groundings.premises[used]] | (groundings.premises[used] == row)).all(axis=1)
        return np.asarray(used[others & ~self.truth[groundings.hypothesis[used]]])

    @property
    def log_odds(self) -> FloatArray:
        """The log-odds of every triple of O ∪ H."""
        return self.log_odds_of(self.matrix @ self.rules.weight, self.groundings.triples.triples[:, RELATION])

    def log_odds_of(self, sums: FloatArray, relations: IntArray) -> FloatArray:
        """The log-odds of triples of these relations, by the sums of value · weight over their rules."""
        return np.asarray(self.base[relations] + sums)

    @property
    def hidden_p_w(self) -> FloatArray:
        """p_w of the hidden triples."""
        return probability(self.log_odds)[~self.groundings.observed]

    def within(self, graph: KnowledgeGraph) -> "RuleModel":
        """The same rules, weights and base rates in a graph that has more facts, perhaps of more entities.

        Hidden triples that were assumed to be true are so still; those that the new facts make hidden are not.

        Example:
            >>> model.within(add_facts(graph, [("kim", "sister", "anna")]))  # doctest: +SKIP
        """
        before = self.evidence
        evidence = replace(before, network=replace(before.network, graph=graph), assumed=None)
        if before.assumed is not None and before.assumed.any():
            true = TripleSet.of(self.groundings.hidden[before.assumed], len(graph.entities))
            evidence = replace(evidence, assumed=true.contains(evidence.network.groundings.hidden))
        return replace(self, evidence=evidence)

    def scores(self, graph: KnowledgeGraph) -> RuleScores:
        """What ranking, prediction and calibration need of it."""
        triples, reached = self.groundings.triples, np.diff(self.matrix.indptr) > 0
        subset = TripleSet(triples.triples[reached], triples.keys[reached], triples.entities)
        return RuleScores(subset, self.log_odds[reached], self.base, self.irreflexive(graph), graph.observed)

    def scores_of(self, graph: KnowledgeGraph, triple: IntArray, odds: float | None) -> RuleScores:
        """The same for one triple alone, which has these log-odds, or none where no rule reaches it."""
        reached = TripleSet.of(triple[None, :] if odds is not None else [], len(graph.entities))
        own = np.array([] if odds is None else [odds])
        return RuleScores(reached, own, self.base, self.irreflexive(graph), graph.observed)

    def irreflexive(self, graph: KnowledgeGraph) -> BoolArray:
        """Which relations have the constraint that r(x, x) does not hold."""
        constrained = np.zeros(len(graph.relations), dtype=bool)
        constrained[[graph.relations.id(rule.head.relation) for rule in self.constraints.rules]] = True
        return constrained


def _each_once(triples: IntArray) -> IntArray:
    """The distinct ones, in the order of their first appearance."""
    return triples[np.sort(np.unique(triples, axis=0, return_index=True)[1])]


def build_rule_model(
    graph: KnowledgeGraph,
    config: Config,
    rules: RuleTable,
    constraints: RuleTable,
    assumed: BoolArray | None = None,
    progress: Progress = silent,
) -> RuleModel:
    """The model of rules whose premises are true where observed, or where `assumed` says so of hidden triples.

    The network is grounded when it is first needed.

    Example:
        >>> build_rule_model(graph, config, rules, constraints)  # doctest: +SKIP
    """
    # under the full blanket a hidden triple counts as a premise too
    linked = config.mln.blanket == "full" or config.mln.hidden_premises == "sampled"
    network = Network(graph, rules.rules, config.rules.counting, linked, config.grounding, config.threads, progress)
    evidence = Evidence(network, assumed, config.mln.blanket, config.mln.aggregate)
    return RuleModel(rules, constraints, evidence, base_log_odds(graph, config.mln.unit_clauses))


def m_step(model: RuleModel, hidden_q: FloatArray, config: Config, seed: int) -> RuleModel:
    """Learns the weights anew with y = 1 on O and y = q on H (Sec. 4.3).

    Example:
        >>> m_step(model, hidden_q, config, seed=0)  # doctest: +SKIP
    """
    evidence = model.evidence
    if config.mln.hidden_premises == "sampled":
        assumed = np.random.default_rng([seed, 11]).random(len(hidden_q)) < hidden_q
        evidence = replace(evidence, assumed=assumed)
    model = replace(model, evidence=evidence)
    objective = _objective(model, hidden_q, config)
    weights = learn_weights(objective, config.mln, model.rules.given, model.rules.fixed, config.threads)
    return replace(model, rules=model.rules.with_weights(weights))


def report(model: RuleModel, hidden_q: FloatArray, config: Config) -> RuleTable:
    """The rules as the M-step left them, with each weight's standard error and each rule's groundings counted.

    Example:
        >>> report(model, hidden_q, config).standard_error  # doctest: +SKIP
    """
    rules = model.rules
    errors = standard_errors(_objective(model, hidden_q, config), rules.weight, rules.fixed, config.threads)
    return rules.reported(errors, grounding_counts(model.groundings).sum(axis=1))


def _objective(model: RuleModel, hidden_q: FloatArray, config: Config) -> Pseudolikelihood:
    """What the M-step maximises."""
    observed = model.groundings.observed
    target = np.ones(len(observed))
    target[~observed] = hidden_q
    base = model.base[model.groundings.triples.triples[:, RELATION]]
    return Pseudolikelihood(model.matrix, base, target, config.mln.l2)
