"""The rule model p_w (rules, weights and ground network), and the M-step."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse

from plogicnet.config import Config
from plogicnet.graph import RELATION, BoolArray, FloatArray, IntArray, KnowledgeGraph, TripleSet
from plogicnet.grounding.grounder import Grounder
from plogicnet.grounding.groundings import GroundNetwork, InMemoryGroundNetwork
from plogicnet.grounding.negative import NegativeEvidence
from plogicnet.grounding.rows import DistinctRows
from plogicnet.grounding.rulebook import count_again
from plogicnet.mln.conditional import Aggregate, Blanket, aggregate_rows, base_log_odds, features, probability, saturate
from plogicnet.mln.learning import learn_weights, standard_errors
from plogicnet.mln.scores import RuleScores
from plogicnet.rules import Rule, RuleTable
from plogicnet.support.errors import InputError
from plogicnet.support.memory import require_bytes
from plogicnet.support.progress import Progress, no_progress

ENTRY_BYTES = 40
"""The additional memory of weight learning per grounding in memory."""
TRIPLE_BYTES = 180
"""The memory per triple of O ∪ H, including the indexes for ranking."""


@dataclass(frozen=True)
class TruthAssignment:
    """The ground network with a truth value for each triple. Observed triples are true.

    With mln.hidden_premises=sampled, the M-step draws from q which hidden triples are assumed to be true.

    Attributes:
        assumed_true: whether each hidden triple is assumed to be true. None means that all are false.
        base: the base log-odds b of each relation.
        negative: the rules that are negative evidence, which the grounder does not ground.
    """

    grounder: Grounder
    assumed_true: BoolArray | None
    blanket: Blanket
    aggregate: Aggregate
    base: FloatArray
    negative: tuple[Rule, ...] = ()

    @cached_property
    def evidence(self) -> NegativeEvidence:
        """The training triples that contradict others by negative evidence."""
        return NegativeEvidence.of(self.negative, self.grounder.graph)

    @cached_property
    def truth(self) -> BoolArray:
        """Whether each triple of O ∪ H is true."""
        observed = self.grounder.network.observed
        truth = observed.copy()
        if self.assumed_true is not None:
            n_hidden = len(truth) - int(truth.sum())
            if len(self.assumed_true) != n_hidden:
                raise InputError(
                    f"the run has {len(self.assumed_true):,} hidden triples, but the rules conclude {n_hidden:,},"
                    " because the rules were edited. Learn the weights again with `plogicnet refit`."
                )
            truth[~observed] = self.assumed_true
        return truth

    @cached_property
    def rows(self) -> DistinctRows:
        """The distinct rows of the triples × rules matrix, with log-odds = base + matrix · weights.

        If only observed triples can be premises, the rows are computed from the rule multisets. Otherwise (full blanket
        or sampled premises) all groundings must be in memory. The columns of negative evidence are last: -1 if a
        training triple contradicts the triple. A triple that only negative evidence concerns has no row.
        """
        rows = self._positive_rows()
        if not self.negative:
            return rows
        values = sparse.csr_array(self.evidence.values(self.grounder.network.triples.triples))
        return rows.append_columns(DistinctRows.of(values))

    def _positive_rows(self) -> DistinctRows:
        """Return the rows with the columns of the rules that the grounder grounds."""
        self.require_memory()
        relations = self.grounder.network.triples.triples[:, RELATION]
        if not self._uses_multisets:
            matrix = features(self.grounder.groundings, self.truth, self.blanket, self.aggregate)
            return DistinctRows.of(matrix, self.base[relations])
        rows = aggregate_rows(self.grounder.network.multisets, self.aggregate)
        base = np.empty(len(rows.base))
        is_reached = rows.row_of_triple >= 0
        # all rules of a multiset conclude the same relation, so triples with the same multiset have the same base
        base[rows.row_of_triple[is_reached]] = self.base[relations[is_reached]]
        return replace(rows, base=base)

    def require_memory(self) -> None:
        """Raise InputError if the memory limit is too low for learning and ranking."""
        network = self.grounder.network
        n_in_memory = network.size if isinstance(network, InMemoryGroundNetwork) or not self._uses_multisets else 0
        require_bytes(
            ENTRY_BYTES * n_in_memory + TRIPLE_BYTES * len(network.triples),
            f"weights and scores of {network.size:,} groundings and {len(network.triples):,} triples",
            "raise rules.min_precision or remove rules",
        )

    @property
    def _uses_multisets(self) -> bool:
        """Whether the rows depend only on the rule multisets, because all premises are observed."""
        return not self.grounder.hidden_premises

    @property
    def is_local(self) -> bool:
        """Whether a triple's row depends only on groundings with observed premises. It then needs no ground network."""
        return self.blanket == "hypothesis" and (self.assumed_true is None or not self.assumed_true.any())


@dataclass(frozen=True)
class Reason:
    """The contribution of a rule to the log-odds of a triple.

    Attributes:
        rule: the index of the rule.
        value: the factor by which the rule's weight is multiplied.
        n_groundings: the number of groundings that conclude the triple from true premises, or for negative evidence
            the number of training triples that contradict the triple. The value is then -1 for any number.
        n_violated: the number of groundings that become false if the triple is true. In these the triple is a premise,
            the other premises are true and the hypothesis is false. They are counted only with mln.blanket=full.
        premises: the premises of the first groundings, as triples.
    """

    rule: int
    value: float
    n_groundings: int
    n_violated: int
    premises: list[IntArray]


@dataclass(frozen=True)
class RuleModel:
    """The rule model after an M-step, over the triples of O ∪ H.

    Attributes:
        rules: the rules with their weights, negative evidence last.
        constraints: the irreflexive constraints.
        assignment: the ground network and the truth of the premises.
    """

    rules: RuleTable
    constraints: RuleTable
    assignment: TruthAssignment

    @property
    def network(self) -> GroundNetwork:
        """The ground network, in memory or on disk, depending on the engine."""
        return self.assignment.grounder.network

    @property
    def groundings(self) -> InMemoryGroundNetwork:
        """The ground network in memory. Raises InputError if it does not fit into memory."""
        return self.assignment.grounder.groundings

    @property
    def triples(self) -> TripleSet:
        """O ∪ H."""
        return self.network.triples

    @property
    def observed(self) -> BoolArray:
        """Whether each triple of O ∪ H is in O."""
        return self.network.observed

    @property
    def hidden(self) -> IntArray:
        """H, the hidden triples."""
        return self.network.hidden

    @property
    def reached(self) -> BoolArray:
        """Whether a rule contributes to the log-odds of each triple of O ∪ H."""
        return self.rows.row_of_triple >= 0

    @property
    def truth(self) -> BoolArray:
        """Whether each triple of O ∪ H is true as a premise."""
        return self.assignment.truth

    @property
    def rows(self) -> DistinctRows:
        """The distinct rows of the triples × rules matrix, with log-odds = base + matrix · weights."""
        return self.assignment.rows

    @property
    def matrix(self) -> sparse.csr_array:
        """The matrix with one row per triple of O ∪ H."""
        return self.rows.full_matrix

    @property
    def base(self) -> FloatArray:
        """The base log-odds b of each relation."""
        return self.assignment.base

    @property
    def aggregate(self) -> Aggregate:
        """How groundings are aggregated: `sum`, `mean` or `saturating`."""
        return self.assignment.aggregate

    def require_memory(self) -> None:
        """Raise InputError if the memory limit is too low for learning and ranking."""
        self.assignment.require_memory()

    def reasons(self, triple: IntArray, max_groundings: int | None = None) -> list[Reason]:
        """Return the contributions of rules to a triple's log-odds, without grounding all rules if possible.

        Each reason contains the premises of at most `max_groundings` groundings.
        """
        if not self.assignment.is_local:
            return self._reasons_from_network(triple, max_groundings)
        groundings = self.assignment.grounder.groundings_of_triple(triple)
        if not groundings:
            return []
        counts = np.array([len(premises) for premises in groundings.values()], dtype=np.float64)
        return [
            Reason(
                rule,
                value,
                len(premises),
                0,
                [_drop_duplicates(p[p[:, 0] >= 0]) for p in premises[:max_groundings]],
            )
            for (rule, premises), value in zip(groundings.items(), self._values(counts).tolist(), strict=True)
        ] + self._negative_reasons(triple, max_groundings)

    def _negative_reasons(self, triple: IntArray, max_groundings: int | None) -> list[Reason]:
        n_positive = len(self.rules) - len(self.assignment.negative)
        return [
            Reason(n_positive + i, -1.0, len(facts), 0, list(facts[:max_groundings, None, :]))
            for i, facts in self.assignment.evidence.premises(triple).items()
        ]

    def _values(self, counts: FloatArray) -> FloatArray:
        """Return the values of the rules that conclude a triple, from their numbers of groundings."""
        if self.aggregate == "saturating":
            return saturate(counts)
        return counts / counts.sum() if self.aggregate == "mean" else counts

    def _reasons_from_network(self, triple: IntArray, max_groundings: int | None) -> list[Reason]:
        groundings = self.groundings
        row = int(groundings.triples.find(triple[None, :])[0])
        if row < 0:
            return []
        is_true = np.append(self.truth, True)  # row -1, the padding, is true
        concluding = groundings.groundings_of(row)
        concluding = concluding[is_true[groundings.premises[concluding]].all(axis=1)]
        violated = groundings.rule[self._violated_by(row)] if self.assignment.blanket == "full" else concluding[:0]
        reasons = []
        n_positive = len(self.rules) - len(self.assignment.negative)
        for rule, value in zip(*(part.tolist() for part in self.rows.row(row)), strict=True):
            if rule >= n_positive:
                continue
            concluding_by_rule = concluding[groundings.rule[concluding] == rule]
            premises = [
                groundings.triples.triples[p[p >= 0]] for p in groundings.premises[concluding_by_rule[:max_groundings]]
            ]
            reasons.append(Reason(rule, value, len(concluding_by_rule), int((violated == rule).sum()), premises))
        return reasons + self._negative_reasons(triple, max_groundings) if reasons else []

    def _violated_by(self, row: int) -> IntArray:
        """Return the groundings that become false if the triple in this row is true.

        The triple is a premise, the other premises are true and the hypothesis is false.
        """
        groundings, is_true = self.groundings, np.append(self.truth, True)
        candidates = np.flatnonzero((groundings.premises == row).any(axis=1))
        others_true = (is_true[groundings.premises[candidates]] | (groundings.premises[candidates] == row)).all(axis=1)
        return np.asarray(candidates[others_true & ~self.truth[groundings.hypothesis[candidates]]])

    @property
    def groundings_per_rule(self) -> IntArray:
        """The number of groundings of each rule; for negative evidence, of the reached triples that it concerns."""
        counts, n_negative = self.network.groundings_per_rule, len(self.assignment.negative)
        if not n_negative:
            return counts
        merged = self.rows.merge(np.zeros(len(self.observed)))
        concerned = -merged.matrix.T @ merged.count
        return np.concatenate([counts, concerned[len(counts) :].astype(np.int64)])

    @property
    def log_odds(self) -> FloatArray:
        """The log-odds of every triple of O ∪ H."""
        return self.log_odds_of(self.rows.sums(self.rules.weight), self.triples.triples[:, RELATION])

    def log_odds_of(self, sums: FloatArray, relations: IntArray) -> FloatArray:
        """Return the log-odds of triples, from their relations and from `sums`, their sums of value · weight."""
        return np.asarray(self.base[relations] + sums)

    def likelihood(self, hidden_q: FloatArray) -> dict[str, float]:
        """Return the pseudolikelihood under q, which approximates E_q log p (Eq. 4 of the paper).

        It sums over the triples that a rule concludes. The others do not depend on the weights. Triples without q are
        left out.
        """
        log_odds = self.log_odds
        terms = self.targets(hidden_q) * log_odds - np.logaddexp(0.0, log_odds)
        return {"pseudolikelihood": float(np.nansum(terms[self.reached]))}

    def counted_again(self) -> "RuleModel":
        """Return the model with support and hits of the rules counted in its graph."""
        rules, constraints = count_again(self.assignment.grounder, self.rules, self.constraints)
        return replace(self, rules=rules, constraints=constraints)

    def targets(self, hidden_q: FloatArray) -> FloatArray:
        """Return the target y of every triple of O ∪ H: 1 on O and q on H."""
        targets = np.ones(len(self.observed))
        targets[~self.observed] = hidden_q
        return targets

    @property
    def hidden_p_w(self) -> FloatArray:
        """p_w of the hidden triples."""
        return probability(self.log_odds)[~self.observed]

    def learn(self, hidden_q: FloatArray, config: Config, seed: int) -> "RuleModel":
        """Return the model with weights learned from the targets y = 1 on O and y = q on H (Sec. 4.3 of the paper).

        Hidden triples whose q is NaN are left out. p_w as their target would move with the weights, so it teaches
        nothing either.
        """
        model = self
        if config.mln.hidden_premises == "sampled":
            assumed_true = np.random.default_rng([seed, 11]).random(len(hidden_q)) < hidden_q
            model = replace(model, assignment=replace(model.assignment, assumed_true=assumed_true))
        rules, targets = model.rules, model.targets(hidden_q)
        weights = learn_weights(model.rows, targets, config.mln, rules.given, rules.fixed, config.threads)
        return replace(model, rules=rules.with_weights(weights))

    def report(self, hidden_q: FloatArray, config: Config) -> RuleTable:
        """Return the rules with the standard errors of their weights and the number of groundings of each rule."""
        rules, is_known = self.rules, ~np.isnan(self.targets(hidden_q))
        errors = standard_errors(self.rows, rules.weight, config.mln.l2, rules.fixed, config.threads, is_known)
        return rules.with_report(errors, self.groundings_per_rule)

    def bind(self, graph: KnowledgeGraph, progress: Progress = no_progress) -> "RuleModel":
        """Return the model for a graph with more facts or entities, with the same rules, weights and base rates.

        Hidden triples that are assumed to be true stay so. New hidden triples are not assumed to be true.
        """
        old = self.assignment
        resources = replace(old.grounder.resources, progress=progress)
        assignment = replace(old, grounder=replace(old.grounder, graph=graph, resources=resources), assumed_true=None)
        if old.assumed_true is not None and old.assumed_true.any():
            still_true = TripleSet.of(self.hidden[old.assumed_true], len(graph.entities))
            assignment = replace(assignment, assumed_true=still_true.contains(assignment.grounder.network.hidden))
        return replace(self, assignment=assignment)

    def without_idle_evidence(self, kept: Collection[Rule]) -> "RuleModel":
        """Return the model without negative evidence against no triple of O ∪ H, whose weight would be 0.

        Rules in `kept`, in canonical form, stay.
        """
        old = self.assignment
        if not old.negative:
            return self
        is_idle = old.evidence.values(self.triples.triples).sum(axis=0) == 0
        stays = np.array([bool(kept) and rule.canonical in kept for rule in old.negative]) | ~is_idle
        rules = self.rules.take(np.append(np.ones(len(self.rules) - len(stays), dtype=bool), stays))
        negative = tuple(rule for rule, stay in zip(old.negative, stays, strict=True) if stay)
        return replace(self, rules=rules, assignment=replace(old, negative=negative))

    def with_base(self, base: FloatArray) -> "RuleModel":
        """Return the model with other base log-odds."""
        if np.array_equal(base, self.base):
            return self  # with its cached rows
        return replace(self, assignment=replace(self.assignment, base=base))

    def scores(self, graph: KnowledgeGraph) -> RuleScores:
        """Return the scores for ranking, prediction and calibration."""
        triples, is_reached = self.triples, self.reached
        subset = TripleSet(triples.triples[is_reached], triples.keys[is_reached], triples.entities)
        return RuleScores(
            subset, self.log_odds[is_reached], self.base, self.irreflexive_relations(graph), graph.observed
        )

    def scores_of(self, graph: KnowledgeGraph, triple: IntArray, log_odds: float | None) -> RuleScores:
        """Return the scores of one triple with known log-odds. They are None if no rule concludes the triple."""
        reached = TripleSet.of(triple[None, :] if log_odds is not None else [], len(graph.entities))
        values = np.array([] if log_odds is None else [log_odds])
        return RuleScores(reached, values, self.base, self.irreflexive_relations(graph), graph.observed)

    def irreflexive_relations(self, graph: KnowledgeGraph) -> BoolArray:
        """Return whether each relation has the constraint that excludes r(x, x)."""
        constrained = np.zeros(len(graph.relations), dtype=bool)
        constrained[[graph.relations.id(rule.head.relation) for rule in self.constraints.rules]] = True
        return constrained


def _drop_duplicates(triples: IntArray) -> IntArray:
    """Return the distinct triples in the order of first occurrence."""
    return triples[np.sort(np.unique(triples, axis=0, return_index=True)[1])]


def build_rule_model(
    graph: KnowledgeGraph,
    config: Config,
    rules: RuleTable,
    constraints: RuleTable,
    assumed_true: BoolArray | None = None,
    progress: Progress = no_progress,
) -> RuleModel:
    """Return the model of rules. Observed triples and the hidden triples in `assumed_true` are true premises.

    The rules are grounded on first use. Only observed triples are premises of negative evidence.
    """
    rules = rules.positive_first()
    n_positive = len(rules) - int(rules.negative.sum())
    # the full blanket also needs hidden triples as premises
    hidden_premises = config.mln.blanket == "full" or config.mln.hidden_premises == "sampled"
    grounder = Grounder.of(graph, rules.rules[:n_positive], config, hidden_premises, progress)
    base = base_log_odds(graph, config.mln.unit_clauses)
    negative, mln = rules.rules[n_positive:], config.mln
    assignment = TruthAssignment(grounder, assumed_true, mln.blanket, mln.aggregate, base, negative)
    return RuleModel(rules, constraints, assignment)
