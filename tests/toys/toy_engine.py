"""An example engine in plain Python, which tries all facts for each premise."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from plogicnet.config import Rules
from plogicnet.config.shapes import ChainShape, shapes_of
from plogicnet.graph import FloatArray, IntArray, KnowledgeGraph, TripleSet, as_triples
from plogicnet.grounding.engine import CountingMode, GroundingLookup, GroundingTask, MiningResult, Resources
from plogicnet.grounding.groundings import InMemoryGroundNetwork
from plogicnet.grounding.mining import mine_constraints
from plogicnet.rules import Constant, Rule, RuleTable, Step, chain_rule

Triple = tuple[int, int, int]
Grounding = tuple[Triple, tuple[Triple, ...]]
"""The hypothesis and the premises."""


def iter_groundings(
    rule: Rule, graph: KnowledgeGraph, facts: Sequence[Triple], counting: CountingMode
) -> Iterator[Grounding]:
    """Yield the groundings of a rule with premises in some facts."""

    def match_atom(atom: object, fact: Triple, bindings: dict[object, int]) -> dict[object, int] | None:
        """Return the bindings after an atom is matched with a fact, or None if they do not agree."""
        if fact[1] != graph.relations.id(atom.relation):  # type: ignore[attr-defined]
            return None
        new_bindings = dict(bindings)
        for term, value in ((atom.head, fact[0]), (atom.tail, fact[2])):  # type: ignore[attr-defined]
            expected = (
                graph.entities.id(term.name) if isinstance(term, Constant) else new_bindings.setdefault(term, value)
            )
            if expected != value:
                return None
        return new_bindings

    def match_premises(
        n_matched: int, bindings: dict[object, int], premises: tuple[Triple, ...]
    ) -> Iterator[Grounding]:
        if n_matched == len(rule.body):
            ends = (
                graph.entities.id(t.name) if isinstance(t, Constant) else bindings[t]
                for t in (rule.head.head, rule.head.tail)
            )
            head, tail = ends
            hypothesis = (head, graph.relations.id(rule.head.relation), tail)
            if counting == "paths" or hypothesis not in premises:
                yield hypothesis, premises
            return
        for fact in facts:
            new_bindings = match_atom(rule.body[n_matched], fact, bindings)
            if new_bindings is not None:
                yield from match_premises(n_matched + 1, new_bindings, (*premises, fact))

    return match_premises(0, {}, ())


def to_tuples(triples: IntArray) -> list[Triple]:
    """Convert rows to tuples."""
    return [(h, r, t) for h, r, t in triples.tolist()]


@dataclass(frozen=True)
class PlainEngine:
    """An engine for any rule; see `Engine`."""

    scope: str = "any rule"
    in_memory: bool = True

    def supports(self, rule: Rule) -> bool:
        return not rule.negated

    def check_available(self) -> None:
        """Do nothing: the engine is always available."""

    def supports_shape(self, shape: ChainShape) -> bool:  # noqa: ARG002
        return True

    def mine(self, graph: KnowledgeGraph, settings: Rules, resources: Resources) -> MiningResult:
        names, kept, candidates = graph.relations.names, [], 0
        for shape in shapes_of(settings.patterns):
            for *body, head in product(names, repeat=len(shape.forward) + 1):
                same = all(relation == head for relation in body)
                if shape.repeats_hypothesis is not None and same != shape.repeats_hypothesis:
                    continue
                steps = [Step(relation, forward) for relation, forward in zip(body, shape.forward, strict=True)]
                rule = chain_rule(steps, head)
                [support], [hits] = self.count(GroundingTask(graph, [rule], settings.counting, resources=resources))
                candidates += bool(hits)
                precise = hits and hits / support >= getattr(settings.min_precision, shape.name)
                if precise and support >= settings.min_support:
                    kept.append((rule, int(support), int(hits)))
        columns = zip(*kept, strict=True) if kept else ([], [], [])
        return MiningResult(RuleTable.of(*columns), mine_constraints(graph, settings), candidates)

    def count(self, task: GroundingTask) -> tuple[IntArray, IntArray]:
        facts = to_tuples(task.graph.observed.triples)
        known, counts = set(facts), []
        for rule in task.rules:
            concluded = [hypothesis for hypothesis, _ in iter_groundings(rule, task.graph, facts, task.counting)]
            counted_triples = concluded if task.counting == "paths" else list(set(concluded))
            counts.append((len(counted_triples), sum(hypothesis in known for hypothesis in counted_triples)))
        support, hits = np.array(counts, dtype=np.int64).reshape(-1, 2).T
        return support, hits

    def count_groundings(self, task: GroundingTask) -> FloatArray:
        return self.count(replace(task, counting="paths"))[0].astype(np.float64)

    def ground(self, task: GroundingTask) -> InMemoryGroundNetwork:
        graph, rules, counting = task.graph, task.rules, task.counting
        observed = to_tuples(graph.observed.triples)
        concluded = [h for rule in rules for h, _ in iter_groundings(rule, graph, observed, counting)]
        triples = TripleSet.of(as_triples([*observed, *concluded]), len(graph.entities))
        facts = to_tuples(triples.triples) if task.hidden_premises else observed
        row_of = {triple: row for row, triple in enumerate(to_tuples(triples.triples))}
        width = max((len(rule.body) for rule in rules), default=1)
        rows = []
        for number, rule in enumerate(rules):
            for hypothesis, premises in iter_groundings(rule, graph, facts, counting):
                if hypothesis in row_of:
                    distinct = [row_of[premise] for premise in dict.fromkeys(premises)]
                    rows.append([number, row_of[hypothesis], *distinct, *[-1] * (width - len(distinct))])
        columns = np.array(sorted(rows), dtype=np.int64).reshape(-1, 2 + width)
        is_observed = graph.observed.contains(triples.triples)
        return InMemoryGroundNetwork(triples, is_observed, len(rules), columns[:, 0], columns[:, 1], columns[:, 2:])

    def grounding_lookup(self, task: GroundingTask) -> GroundingLookup:
        graph, rules, counting = task.graph, task.rules, task.counting
        facts = to_tuples(graph.observed.triples)

        def lookup(triple: IntArray) -> dict[int, IntArray]:
            target, by_rule = tuple(triple.tolist()), {}
            for number, rule in enumerate(rules):
                premises_of_rule = [
                    premises
                    for hypothesis, premises in iter_groundings(rule, graph, facts, counting)
                    if hypothesis == target
                ]
                if premises_of_rule:
                    by_rule[number] = np.array(premises_of_rule, dtype=np.int64).reshape(len(premises_of_rule), -1, 3)
            return by_rule

        return lookup


PLAIN = PlainEngine()
