"""Mining steps that all engines share: applying the thresholds and mining constraints."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from plogicnet import config
from plogicnet.config.shapes import ChainShape
from plogicnet.graph import HEAD, RELATION, TAIL, BoolArray, IntArray, KnowledgeGraph
from plogicnet.grounding.engine import MiningResult
from plogicnet.rules import Rule, RuleTable, Step, chain_rule, irreflexive_constraint
from plogicnet.support.memory import require_bytes

RULE_BYTES = 2000
"""The memory of one rule with the names of its relations."""


@dataclass(frozen=True)
class CandidateRules:
    """Rules of one shape that reach the thresholds, as arrays with one entry per rule.

    Attributes:
        shape: the shape of all rules.
        steps: the relation ids of the steps, of shape (rules, steps).
        relation: the relation id of the hypothesis.
        support, hits: the counts.
        n_candidates: the number of rules with at least one hit, before the thresholds are applied.
    """

    shape: ChainShape
    steps: IntArray
    relation: IntArray
    support: IntArray
    hits: IntArray
    n_candidates: int

    @classmethod
    def from_counts(
        cls, shape: ChainShape, columns: Sequence[IntArray], support: IntArray, hits: IntArray, settings: config.Rules
    ) -> "CandidateRules":
        """Select the rules that have the shape and reach the thresholds.

        `columns` has an array of relation ids for each step, and one for the hypothesis. It can contain rules that do
        not match `shape.repeats_hypothesis`.
        """
        steps, relation = np.column_stack(columns[:-1]), columns[-1]
        rules = cls(shape, steps, relation, support, hits, 0)
        if shape.repeats_hypothesis is not None:
            rules = rules._take(np.all(steps == relation[:, None], axis=1) == shape.repeats_hypothesis)
        # division rounds like the decimal literal of the threshold: 3 / 30 == 0.1
        is_precise = rules.hits / rules.support >= getattr(settings.min_precision, shape.name)
        return replace(rules._take(is_precise & (rules.support >= settings.min_support)), n_candidates=len(rules.hits))

    def _take(self, rows: BoolArray) -> "CandidateRules":
        columns = {name: getattr(self, name)[rows] for name in ("steps", "relation", "support", "hits")}
        return replace(self, **columns)

    def rules(self, names: Sequence[str]) -> Iterator[Rule]:
        """Yield the rules. `names` are the names of the relations by id."""
        for steps, relation in zip(self.steps.tolist(), self.relation.tolist(), strict=True):
            pairs = zip(steps, self.shape.forward, strict=True)
            yield chain_rule(
                [Step(names[step], forward) for step, forward in pairs],
                names[relation],
            )


def mining_result(graph: KnowledgeGraph, settings: config.Rules, candidates: Sequence[CandidateRules]) -> MiningResult:
    """Return the rules of all shapes in one table, and the constraints."""
    n_rules = sum(len(group.support) for group in candidates)
    require_bytes(RULE_BYTES * n_rules, f"{n_rules:,} rules", "raise rules.min_precision or rules.min_support")
    rules = [rule for group in candidates for rule in group.rules(graph.relations.names)]
    support, hits = ([n for group in candidates for n in getattr(group, name).tolist()] for name in ("support", "hits"))
    table = RuleTable.of(rules, support, hits)
    return MiningResult(table, mine_constraints(graph, settings), sum(group.n_candidates for group in candidates))


def mine_constraints(graph: KnowledgeGraph, settings: config.Rules) -> RuleTable:
    """Return the irreflexive constraints that reach the threshold.

    The precision of `=> not r(X, X)` is the share of r's facts that are not self-loops.

    Example:
        >>> graph = KnowledgeGraph.from_names([("a", "husband", "b")])
        >>> [str(rule) for rule in mine_constraints(graph, config.Rules()).rules]
        ['=> not husband(X, X)']
    """
    if not settings.irreflexive:
        return RuleTable.of([], [], [])
    n = len(graph.relations)
    facts = np.bincount(graph.train[:, RELATION], minlength=n)
    loops = np.bincount(graph.train[graph.train[:, HEAD] == graph.train[:, TAIL]][:, RELATION], minlength=n)
    kept = np.flatnonzero((facts > 0) & ((facts - loops) / np.maximum(facts, 1) >= settings.min_precision.irreflexive))
    rules = [irreflexive_constraint(graph.relations.names[r]) for r in kept]
    return RuleTable.of(rules, facts[kept].tolist(), (facts - loops)[kept].tolist())
