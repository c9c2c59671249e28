"""The rule model p_w as a whole: rules, weights and the network they are grounded in; and the M-step."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse

from plogicnet.config import Config
from plogicnet.graph import RELATION, BoolArray, FloatArray, IntArray, KnowledgeGraph, TripleSet
from plogicnet.grounding.groundings import Grounded, Groundings
from plogicnet.grounding.network import Network
from plogicnet.grounding.rows import Rows
from plogicnet.mln.conditional import Aggregate, Blanket, aggregated, base_log_odds, features, probability
from plogicnet.mln.learning import learn_weights, standard_errors
from plogicnet.mln.scores import RuleScores
from plogicnet.rules import RuleTable
from plogicnet.support.errors import InputError
from plogicnet.support.memory import require_bytes
from plogicnet.support.progress import Progress, silent

ENTRY_BYTES = 40
"""What a grounding in memory takes when the weights are learned, beside the grounding itself."""
TRIPLE_BYTES = 180
"""And a triple of O ∪ H, with the indexes that ranking finds it by."""


@dataclass(frozen=True)
class Evidence:
    """The ground network under an assignment of truth: O is true, and so are those hidden triples that are assumed.

    Attributes:
        assumed: for each hidden triple, whether it is taken as true; None: none of them is.
        base: b of each relation.
    """

    network: Network
    assumed: BoolArray | None
    blanket: Blanket
    aggregate: Aggregate
    base: FloatArray

    @cached_property
    def truth(self) -> BoolArray:
        """The assignment, for every triple of O ∪ H."""
        observed = self.network.grounded.observed
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
    def rows(self) -> Rows:
        """Triples × rules, so that log-odds = base + matrix · weights; equal triples are one row.

        Where only observed premises count, the merged form of the groundings is enough. The full blanket and sampled
        premises need the unmerged form, which must fit into memory.
        """
        self.require_memory()
        relations = self.network.grounded.triples.triples[:, RELATION]
        if not self._is_merged:
            matrix = features(self.network.groundings, self.truth, self.blanket, self.aggregate)
            return Rows.of(matrix, self.base[relations])
        rows = aggregated(self.network.grounded.multisets, self.aggregate)
        base = np.empty(len(rows.base))
        reached = rows.number >= 0
        base[rows.number[reached]] = self.base[relations[reached]]  # rules of one multiset conclude one relation
        return replace(rows, base=base)

    def require_memory(self) -> None:
        """Raises an InputError where a memory limit has no room for the rows and what is made of them."""
        grounded = self.network.grounded
        size = grounded.size if isinstance(grounded, Groundings) or not self._is_merged else 0
        require_bytes(
            ENTRY_BYTES * size + TRIPLE_BYTES * len(grounded.triples),
            f"weights and scores by {grounded.size:,} groundings of {len(grounded.triples):,} triples",
            "raise rules.min_precision, or leave rules out",
        )

    @property
    def _is_merged(self) -> bool:
        """Whether every grounding that concludes a triple counts, and nothing else: its rule multiset is enough."""
        return not self.network.linked

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
    """

    rules: RuleTable
    constraints: RuleTable
    evidence: Evidence

    @property
    def grounded(self) -> Grounded:
        """The ground network, in memory or on disk as its engine has it."""
        return self.evidence.network.grounded

    @property
    def groundings(self) -> Groundings:
        """The ground network in its unmerged form, which must fit into memory."""
        return self.evidence.network.groundings

    @property
    def triples(self) -> TripleSet:
        """O ∪ H."""
        return self.grounded.triples

    @property
    def observed(self) -> BoolArray:
        """For each triple of O ∪ H, whether it is in O."""
        return self.grounded.observed

    @property
    def hidden(self) -> IntArray:
        """H, the hidden triples."""
        return self.grounded.hidden

    @property
    def reached(self) -> BoolArray:
        """For each triple of O ∪ H, whether some rule takes part in its log-odds."""
        return self.rows.number >= 0

    @property
    def truth(self) -> BoolArray:
        """The assignment under which the premises are taken."""
        return self.evidence.truth

    @property
    def rows(self) -> Rows:
        """Triples × rules, so that log-odds = base + matrix · weights; equal triples are one row."""
        return self.evidence.rows

    @property
    def matrix(self) -> sparse.csr_array:
        """The same with a row for every triple of O ∪ H."""
        return self.rows.whole

    @property
    def base(self) -> FloatArray:
        """The log-odds b of each relation."""
        return self.evidence.base

    @property
    def aggregate(self) -> Aggregate:
        """How a rule's groundings are taken together."""
        return self.evidence.aggregate

    def require_memory(self) -> None:
        """Raises an InputError where a memory limit has no room for what weights are learned from."""
        self.evidence.require_memory()

    def reasons(self, triple: IntArray, most: int | None = None) -> list[Reason]:
        """Which rules take part in one triple's log-odds; where that is possible, without building the whole network.

        All groundings are counted; the premises of at most so many of each rule are given.
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
        groundings = self.groundings
        row = int(groundings.triples.find(triple[None, :])[0])
        if row < 0:
            return []
        true = np.append(self.truth, True)  # row -1, the padding, is true
        concluding = groundings.of(row)
        concluding = concluding[true[groundings.premises[concluding]].all(axis=1)]
        broken = groundings.rule[self._broken_by(row)] if self.evidence.blanket == "full" else concluding[:0]
        found = []
        for rule, value in zip(*(part.tolist() for part in self.rows.row(row)), strict=True):
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
        return self.log_odds_of(self.rows.sums(self.rules.weight), self.triples.triples[:, RELATION])

    def log_odds_of(self, sums: FloatArray, relations: IntArray) -> FloatArray:
        """The log-odds of triples of these relations, by the sums of value · weight over their rules."""
        return np.asarray(self.base[relations] + sums)

    @property
    def hidden_p_w(self) -> FloatArray:
        """p_w of the hidden triples."""
        return probability(self.log_odds)[~self.observed]

    def within(self, graph: KnowledgeGraph) -> "RuleModel":
        """The same rules, weights and base rates in a graph that has more facts, perhaps of more entities.

        Hidden triples that were assumed to be true are so still; those that the new facts make hidden are not.
        """
        before = self.evidence
        evidence = replace(before, network=replace(before.network, graph=graph), assumed=None)
        if before.assumed is not None and before.assumed.any():
            true = TripleSet.of(self.hidden[before.assumed], len(graph.entities))
            evidence = replace(evidence, assumed=true.contains(evidence.network.grounded.hidden))
        return replace(self, evidence=evidence)

    def scores(self, graph: KnowledgeGraph) -> RuleScores:
        """What ranking, prediction and calibration need of it."""
        triples, reached = self.triples, self.reached
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
    """The model of rules whose premises are true where observed, or among the hidden triples that are `assumed`.

    The network is grounded when it is first needed.
    """
    # under the full blanket a hidden triple counts as a premise too
    linked = config.mln.blanket == "full" or config.mln.hidden_premises == "sampled"
    network = Network.of(graph, rules.rules, config, linked, progress)
    base = base_log_odds(graph, config.mln.unit_clauses)
    return RuleModel(rules, constraints, Evidence(network, assumed, config.mln.blanket, config.mln.aggregate, base))


def m_step(model: RuleModel, hidden_q: FloatArray, config: Config, seed: int) -> RuleModel:
    """Learns the weights anew with y = 1 on O and y = q on H (Sec. 4.3)."""
    if config.mln.hidden_premises == "sampled":
        assumed = np.random.default_rng([seed, 11]).random(len(hidden_q)) < hidden_q
        model = replace(model, evidence=replace(model.evidence, assumed=assumed))
    targets = np.ones(len(model.observed))
    targets[~model.observed] = hidden_q
    rules = model.rules
    weights = learn_weights(model.rows, targets, config.mln, rules.given, rules.fixed, config.threads)
    return replace(model, rules=rules.with_weights(weights))


def report(model: RuleModel, config: Config) -> RuleTable:
    """The rules as the M-step left them, with each weight's standard error and each rule's groundings counted."""
    rules = model.rules
    errors = standard_errors(model.rows, rules.weight, config.mln.l2, rules.fixed, config.threads)
    return rules.reported(errors, model.grounded.rule_counts)
