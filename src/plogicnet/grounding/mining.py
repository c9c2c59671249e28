"""What all engines share in mining: candidate rules of a chain shape, which of them are kept, and the constraints."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from plogicnet import config
from plogicnet.config.shapes import ChainShape
from plogicnet.graph import HEAD, RELATION, TAIL, BoolArray, IntArray, KnowledgeGraph
from plogicnet.grounding.engine import Mined
from plogicnet.rules import Rule, RuleTable, Step, chain_rule, irreflexive
from plogicnet.support.memory import require_bytes

RULE_BYTES = 2000
"""The memory of one rule, with its names."""


@dataclass(frozen=True)
class Candidates:
    """Rules of one shape with at least one hit: arrays of one entry a rule.

    Attributes:
        shape: the shape of all of them.
        steps: the relations of the steps, (rules, steps).
        relation: the hypothesis's relation.
        support, hits: the counts.
        found: how many there were; those that are not kept are dropped from the arrays.
    """

    shape: ChainShape
    steps: IntArray
    relation: IntArray
    support: IntArray
    hits: IntArray
    found: int

    @classmethod
    def kept(
        cls, shape: ChainShape, columns: Sequence[IntArray], support: IntArray, hits: IntArray, settings: config.Rules
    ) -> "Candidates":
        """Those of the shape that have enough precision and support; columns: the steps' relations, the hypothesis's.

        Columns may hold rules that do not have the shape: where it depends on their being the same relation.
        """
        steps, relation = np.column_stack(columns[:-1]), columns[-1]
        every = cls(shape, steps, relation, support, hits, 0)
        if shape.same is not None:
            every = every._take(np.all(steps == relation[:, None], axis=1) == shape.same)
        # dividing rounds as the threshold's own decimal does: 3 of 30 is 0.1
        precise = every.hits / every.support >= getattr(settings.min_precision, shape.name)
        return replace(every._take(precise & (every.support >= settings.min_support)), found=len(every.hits))

    def _take(self, rows: BoolArray) -> "Candidates":
        columns = {name: getattr(self, name)[rows] for name in ("steps", "relation", "support", "hits")}
        return replace(self, **columns)

    def rules(self, names: Sequence[str]) -> Iterator[Rule]:
        """The rules in names."""
        for steps, relation in zip(self.steps.tolist(), self.relation.tolist(), strict=True):
            walked = zip(steps, self.shape.steps, strict=True)
            yield chain_rule([Step(names[step], forward) for step, forward in walked], names[relation])


def mined_of(graph: KnowledgeGraph, settings: config.Rules, found: Sequence[Candidates]) -> Mined:
    """The kept candidates as a table of rules, and the constraints."""
    size = sum(len(c.support) for c in found)
    require_bytes(RULE_BYTES * size, f"{size:,} rules", "raise rules.min_precision or rules.min_support")
    rules = [rule for c in found for rule in c.rules(graph.relations.names)]
    support, hits = ([n for c in found for n in getattr(c, name).tolist()] for name in ("support", "hits"))
    table = RuleTable.of(rules, support, hits)
    return Mined(table, mine_constraints(graph, settings), sum(c.found for c in found))


def mine_constraints(graph: KnowledgeGraph, settings: config.Rules) -> RuleTable:
    """The relations that hold hardly ever between an entity and itself.

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
    rules = [irreflexive(graph.relations.names[r]) for r in kept]
    return RuleTable.of(rules, facts[kept].tolist(), (facts - loops)[kept].tolist())
