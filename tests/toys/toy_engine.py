"""An engine from outside the package, in plain Python: every grounding by trying facts for the premises in turn."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from plogicnet.config import Rules
from plogicnet.config.shapes import ChainShape, shapes_of
from plogicnet.graph import FloatArray, IntArray, KnowledgeGraph, TripleSet, as_triples
from plogicnet.grounding.engine import Counting, Explain, Job, Mined, Resources
from plogicnet.grounding.groundings import Groundings
from plogicnet.grounding.mining import mine_constraints
from plogicnet.rules import Constant, Rule, RuleTable, Step, chain_rule

Triple = tuple[int, int, int]
Grounding = tuple[Triple, tuple[Triple, ...]]
"""The hypothesis and the premises."""


def groundings_of(
    rule: Rule, graph: KnowledgeGraph, facts: Sequence[Triple], counting: Counting
) -> Iterator[Grounding]:
    """Every grounding of a rule with premises among some facts."""

    def extended(atom: object, fact: Triple, known: dict[object, int]) -> dict[object, int] | None:
        """The bindings after an atom is matched with a fact; None where they do not agree."""
        if fact[1] != graph.relations.id(atom.relation):  # type: ignore[attr-defined]
            return None
        bound = dict(known)
        for term, value in ((atom.head, fact[0]), (atom.tail, fact[2])):  # type: ignore[attr-defined]
            own = graph.entities.id(term.name) if isinstance(term, Constant) else bound.setdefault(term, value)
            if own != value:
                return None
        return bound

    def matched(at: int, known: dict[object, int], premises: tuple[Triple, ...]) -> Iterator[Grounding]:
        if at == len(rule.body):
            ends = (
                graph.entities.id(t.name) if isinstance(t, Constant) else known[t]
                for t in (rule.head.head, rule.head.tail)
            )
            head, tail = ends
            hypothesis = (head, graph.relations.id(rule.head.relation), tail)
            if counting == "paths" or hypothesis not in premises:
                yield hypothesis, premises
            return
        for fact in facts:
            bound = extended(rule.body[at], fact, known)
            if bound is not None:
                yield from matched(at + 1, bound, (*premises, fact))

    return matched(0, {}, ())


def facts_of(triples: IntArray) -> list[Triple]:
    """Rows as tuples."""
    return [(h, r, t) for h, r, t in triples.tolist()]


@dataclass(frozen=True)
class Plain:
    """The engine; see `Engine`."""

    scope: str = "any rule"
    in_memory: bool = True

    def supports(self, rule: Rule) -> bool:
        return not rule.negated

    def require(self) -> None:
        """It needs nothing."""

    def mines(self, shape: ChainShape) -> bool:  # noqa: ARG002
        return True

    def mine(self, graph: KnowledgeGraph, settings: Rules, resources: Resources) -> Mined:
        names, kept, candidates = graph.relations.names, [], 0
        for shape in shapes_of(settings.patterns):
            for *body, head in product(names, repeat=len(shape.steps) + 1):
                same = all(relation == head for relation in body)
                if shape.same is not None and same != shape.same:
                    continue
                steps = [Step(relation, forward) for relation, forward in zip(body, shape.steps, strict=True)]
                rule = chain_rule(steps, head)
                [support], [hits] = self.count(Job(graph, [rule], settings.counting, resources=resources))
                candidates += bool(hits)
                precise = hits and hits / support >= getattr(settings.min_precision, shape.name)
                if precise and support >= settings.min_support:
                    kept.append((rule, int(support), int(hits)))
        columns = zip(*kept, strict=True) if kept else ([], [], [])
        return Mined(RuleTable.of(*columns), mine_constraints(graph, settings), candidates)

    def count(self, job: Job) -> tuple[IntArray, IntArray]:
        facts = facts_of(job.graph.observed.triples)
        known, counts = set(facts), []
        for rule in job.rules:
            concluded = [hypothesis for hypothesis, _ in groundings_of(rule, job.graph, facts, job.counting)]
            counted = concluded if job.counting == "paths" else list(set(concluded))
            counts.append((len(counted), sum(hypothesis in known for hypothesis in counted)))
        support, hits = np.array(counts, dtype=np.int64).reshape(-1, 2).T
        return support, hits

    def expect(self, job: Job) -> FloatArray:
        return self.count(replace(job, counting="paths"))[0].astype(np.float64)

    def ground(self, job: Job) -> Groundings:
        graph, rules, counting = job.graph, job.rules, job.counting
        observed = facts_of(graph.observed.triples)
        concluded = [h for rule in rules for h, _ in groundings_of(rule, graph, observed, counting)]
        triples = TripleSet.of(as_triples([*observed, *concluded]), len(graph.entities))
        facts = facts_of(triples.triples) if job.hidden_premises else observed
        place = {triple: row for row, triple in enumerate(facts_of(triples.triples))}
        width = max((len(rule.body) for rule in rules), default=1)
        rows = []
        for number, rule in enumerate(rules):
            for hypothesis, premises in groundings_of(rule, graph, facts, counting):
                if hypothesis in place:
                    distinct = [place[premise] for premise in dict.fromkeys(premises)]
                    rows.append([number, place[hypothesis], *distinct, *[-1] * (width - len(distinct))])
        found = np.array(sorted(rows), dtype=np.int64).reshape(-1, 2 + width)
        is_observed = graph.observed.contains(triples.triples)
        return Groundings(triples, is_observed, len(rules), found[:, 0], found[:, 1], found[:, 2:])

    def explain(self, job: Job) -> Explain:
        graph, rules, counting = job.graph, job.rules, job.counting
        facts = facts_of(graph.observed.triples)

        def explained(triple: IntArray) -> dict[int, IntArray]:
            asked, found = tuple(triple.tolist()), {}
            for number, rule in enumerate(rules):
                own = [
                    premises
                    for hypothesis, premises in groundings_of(rule, graph, facts, counting)
                    if hypothesis == asked
                ]
                if own:
                    found[number] = np.array(own, dtype=np.int64).reshape(len(own), -1, 3)
            return found

        return explained


PLAIN = Plain()
