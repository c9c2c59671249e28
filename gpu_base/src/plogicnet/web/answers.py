"""What a page or a program asks of a model, answered as the commands' JSON; each answer is bounded in size and time."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from plogicnet.errors import InputError, many
from plogicnet.graph import HEAD, RELATION, TAIL, IntArray, Side, TripleSet, Vocabulary
from plogicnet.grounding import Network, World, chain_of, ground
from plogicnet.model import PLogicNet, Prediction, prediction_rows
from plogicnet.rules import Rule
from plogicnet.version import VERSION
from plogicnet.web.roles import ROLES_AT_ONCE, Role, Roles
from plogicnet.web.search import Search
from plogicnet.web.shapes import (
    Entity,
    Example,
    Info,
    Kind,
    Labels,
    Names,
    Predictions,
    RoleRow,
    RuleExamples,
    RuleRow,
    Rules,
)

OF_EACH_ROLE = 10
EXAMPLES = 6
WALKS_FOR_EXAMPLES = 4096
MEMORY_FOR_EXAMPLES = 256
"""In MB: of a rule that is no chain, all groundings are made for a few examples, unless they are more than this."""
SHOWN = 120


class UnknownName(InputError):  # noqa: N818
    """A name that the graph does not hold."""


@dataclass(frozen=True)
class Answerer:
    """Answers from one model; what it needs beside the model is made when first asked for, or by `warm`.

    Example:
        >>> Answerer(PLogicNet.load("runs/family")).search("anna")  # doctest: +SKIP
    """

    model: PLogicNet

    def warm(self) -> None:
        """Makes everything that the first questions would wait for."""
        graph = self.model.fitted.graph
        head, relation, tail = graph.names(graph.train[0])
        self.search("", "relation")
        self.entity(head)
        self.explain(head, relation, tail)
        self.model.predict(head=head, relation=relation, top=1)
        self.model.predict(relation=relation, tail=tail, top=1)
        self.rules(top=1)

    def info(self) -> Info:
        """What is served: counts, and figures on held-out triples."""
        graph, metrics = self.model.fitted.graph, self.model.metrics
        split = next((s for s in ("test", "valid") if s in metrics), None)
        systems: Any = metrics[split] if split else {}
        figures = {
            system: {k: v for k, v in values.items() if isinstance(v, float)}
            for system, values in systems.items()
            if isinstance(values, dict) and "mrr" in values
        }
        config = self.model.config
        return {
            "name": graph.name,
            "version": VERSION,
            "entities": len(graph.entities),
            "relations": len(graph.relations),
            "train": len(graph.train),
            "valid": len(graph.valid),
            "test": len(graph.test),
            "rules": len(self._rules),
            "constraints": _constraints(row for _, row in self._rules),
            "model": config.kge.model if config.em.embedding else None,
            "split": split,
            "figures": figures,
        }

    def search(self, query: str, kind: Kind = "entity", top: int = 20) -> Names:
        """Names and labels that a query finds; without a query, the most frequent."""
        counts = self._counts[kind]
        vocabulary = self._vocabulary(kind)
        labels = self.model.fitted.graph.labels
        return {
            "names": [
                {"name": name, "label": labels.get(name), "facts": int(counts[i])}
                for i in self._search[kind].find(query, top)
                for name in (vocabulary.names[i],)
            ]
        }

    def entity(self, name: str) -> Entity:
        """An entity, and its roles: those it is known in, then those that rules or similar entities suggest."""
        graph, number = self.model.fitted.graph, self._number("entity", name)
        known = self._roles.known(number)
        roles: list[RoleRow] = [
            {"relation": graph.relations.names[relation], "side": side, "known": known.get((relation, side), 0)}
            for relation, side in self._roles.of(number)
        ]
        return {
            "name": name,
            "label": graph.labels.get(name),
            "facts": sum(known.values()),
            "roles": roles,
            "labels": self._labels([name, *(role["relation"] for role in roles)]),
        }

    def known(self, name: str, relation: str | None, side: Side | None, top: int, offset: int) -> Predictions:
        """Known facts of an entity, judged too, in the order of their roles."""
        graph, number = self.model.fitted.graph, self._number("entity", name)
        facts = self._roles.facts(number)
        if relation is not None:
            facts = facts[facts[:, RELATION] == self._number("relation", relation)]
        if side is not None:
            # a self-loop stands under its head alone, as everywhere
            facts = facts[(facts[:, HEAD] == number) == (side == "tail")]
        shown = [graph.names(fact) for fact in facts[offset : offset + top]]
        return self._predictions(p for names in shown for p in self.model.predict(*names)) | {"total": len(facts)}

    def predicted(self, name: str, relation: str | None, side: Side | None, top: int) -> Predictions:
        """The most probable missing facts of an entity, in its likeliest roles or in those that are named."""
        graph, number = self.model.fitted.graph, self._number("entity", name)
        roles: list[Role]
        if relation is None:
            roles = [role for role in self._roles.of(number) if side in (None, role[1])][:ROLES_AT_ONCE]
            each = OF_EACH_ROLE
        else:
            asked = self._number("relation", relation)
            roles, each = [(asked, s) for s in _sides(side)], top
        found: list[Prediction] = []
        for at, s in roles:
            head, tail = (name, None) if s == "tail" else (None, name)
            found += self.model.predict(head, graph.relations.names[at], tail, min(each, top))
        unique = {(p.head, p.relation, p.tail): p for p in found}  # (e, r, e) answers both roles
        best = sorted(unique.values(), key=lambda p: -p.probability)[:top]
        return self._predictions(best) | {"roles": len(roles)}

    def predict(
        self, head: str | None, relation: str | None, tail: str | None, top: int, include_known: bool
    ) -> Predictions:
        """The answers to a query with one part left open, or the judgement of a triple."""
        kinds: tuple[Kind, ...] = ("entity", "relation", "entity")
        if sum(name is None for name in (head, relation, tail)) > 1:
            raise InputError("leave one of head, relation and tail open, not more")
        for kind, name in zip(kinds, (head, relation, tail), strict=True):
            if name is not None:
                self._number(kind, name)
        return self._predictions(self.model.predict(head, relation, tail, top, include_known))

    def explain(self, head: str, relation: str, tail: str, premises: int = 20) -> dict[str, Any]:
        """Why a triple is held probable or not; of each rule, so many groundings at most."""
        for kind, name in (("entity", head), ("relation", relation), ("entity", tail)):
            self._number(kind, name)  # type: ignore[arg-type]
        why: dict[str, Any] = dict(self.model.explain(head, relation, tail))
        why["rules"] = [rule | {"premises": rule["premises"][:premises]} for rule in why["rules"]]
        shown = [fact for rule in why["rules"] for grounding in rule["premises"] for fact in grounding]
        shown += [why["triple"], *(entry["fact"] for entry in why["neighbours"])]
        said = {"held_out": self._held_out([(head, relation, tail)])[0], "aggregate": self.model.config.mln.aggregate}
        return why | said | {"labels": self._labels(name for fact in shown for name in fact)}

    def rules(self, query: str = "", top: int = 100, offset: int = 0) -> Rules:
        """The learned rules, strongest first, whose text holds all words of a query."""
        words = query.casefold().split()
        rows = [row for text, row in self._rules if all(word in text for word in words)] if words else None
        chosen = [row for _, row in self._rules] if rows is None else rows
        return {"rules": chosen[offset : offset + top], "total": len(chosen), "constraints": _constraints(chosen)}

    def rule(self, number: int) -> RuleExamples:
        """A rule with some of its groundings, of which the graph knows some conclusions and others not."""
        if number >= len(self._rules):
            raise UnknownName(f"rule {number}: the run has {many(len(self._rules), 'rule')}, counted from 0")
        graph, rule = self.model.fitted.graph, self.model.rules.rules[number]
        examples: list[Example] = [
            {
                "hypothesis": graph.names(hypothesis),
                "premises": [graph.names(premise) for premise in premises],
                "known": bool(graph.observed.contains(hypothesis[None, :])[0]),
                "held_out": self._held_out([graph.names(hypothesis)])[0],
            }
            for hypothesis, premises in self._groundings(rule)
        ]
        shown = [fact for e in examples for fact in (e["hypothesis"], *e["premises"])]
        labels = self._labels([rule.head.relation, *(name for fact in shown for name in fact)])
        return {**self._rules[number][1], "relation": rule.head.relation, "examples": examples, "labels": labels}

    def metrics(self) -> dict[str, Any]:
        """All figures of the run on its held-out triples, as metrics.json holds them."""
        return dict(self.model.metrics)

    def _groundings(self, rule: Rule) -> Iterator[tuple[IntArray, IntArray]]:
        """Some hypotheses of a rule and the premises of each, spread over those found first."""
        if rule.negated:
            return
        graph = self.model.fitted.graph
        if rule.chain is None:
            settings = replace(self.model.config.grounding, memory_mb=MEMORY_FOR_EXAMPLES)
            try:
                grounded = Network(graph, (rule,), self.model.config.rules.counting, settings=settings).groundings
            except InputError:  # there are too many of them
                return
            for row in _spread(len(grounded.rule)):
                premises = grounded.premises[row]
                triples = grounded.triples.triples
                yield triples[grounded.hypothesis[row]], triples[premises[premises >= 0]]
            return
        chain = chain_of(rule, graph.relations)
        walks = ground(self._world, chain, self.model.config.rules.counting, at_once=WALKS_FOR_EXAMPLES)
        for piece in islice((w for w in walks if len(w.entities)), 1):
            for row in _spread(len(piece.entities)):
                ends = piece.entities[row]
                yield np.array([ends[0], chain.relation, ends[-1]]), graph.observed.triples[piece.premises[row]]

    def _predictions(self, found: Iterable[Prediction]) -> Predictions:
        rows: Any = prediction_rows(list(found))
        return {"predictions": rows, "labels": self._labels(r[k] for r in rows for k in ("head", "relation", "tail"))}

    def _held_out(self, facts: Sequence[tuple[str, str, str]]) -> list[str | None]:
        """The split that holds a fact back from training, if one does."""
        graph = self.model.fitted.graph
        numbers = np.array([graph.numbers(*fact) for fact in facts], dtype=np.int64).reshape(-1, 3)
        found: list[str | None] = [None] * len(facts)
        for split, triples in self._held.items():
            for at in np.flatnonzero(triples.contains(numbers)).tolist():
                found[at] = split
        return found

    def _labels(self, names: Iterable[str]) -> Labels:
        labels = self.model.fitted.graph.labels
        return {name: labels[name] for name in names if name in labels} if labels else {}

    def _vocabulary(self, kind: Kind) -> Vocabulary:
        graph = self.model.fitted.graph
        return graph.entities if kind == "entity" else graph.relations

    def _number(self, kind: Kind, name: str) -> int:
        """A name's number; the nearest names are not looked for, since that takes long among many."""
        vocabulary = self._vocabulary(kind)
        if name not in vocabulary:
            shown = name if len(name) <= SHOWN else name[:SHOWN] + "…"
            raise UnknownName(f"unknown {kind} {shown!r}; /api/search?kind={kind}&q=… finds names")
        return vocabulary.id(name)

    @cached_property
    def _rules(self) -> list[tuple[str, RuleRow]]:
        """Each rule's text, for searching, and its row."""
        rows: Any = self.model.rules.rows()
        return [(str(row["rule"]).casefold(), {"number": i} | row) for i, row in enumerate(rows)]

    @cached_property
    def _world(self) -> World:
        return World(self.model.fitted.graph.observed)

    @cached_property
    def _held(self) -> dict[str, TripleSet]:
        graph = self.model.fitted.graph
        return {split: TripleSet.of(graph.split(split), len(graph.entities)) for split in ("valid", "test")}

    @cached_property
    def _counts(self) -> dict[Kind, IntArray]:
        """In how many known facts each entity and each relation stands; a self-loop is one."""
        graph = self.model.fitted.graph
        loops = graph.train[:, HEAD] == graph.train[:, TAIL]
        ends = np.concatenate([graph.train[:, HEAD], graph.train[~loops, TAIL]])
        entities = np.bincount(ends, minlength=len(graph.entities))
        return {
            "entity": entities,
            "relation": np.bincount(graph.train[:, RELATION], minlength=len(graph.relations)),
        }

    @cached_property
    def _search(self) -> dict[Kind, Search]:
        kinds: tuple[Kind, Kind] = ("entity", "relation")
        labels = self.model.fitted.graph.labels
        return {kind: Search(self._vocabulary(kind).names, labels, self._counts[kind]) for kind in kinds}

    @cached_property
    def _roles(self) -> Roles:
        return Roles(self.model.fitted.graph, self.model.rules)


def _constraints(rules: Iterable[RuleRow]) -> int:
    return sum(rule["weight"] is None for rule in rules)


def _sides(side: Side | None) -> tuple[Side, ...]:
    return ("tail", "head") if side is None else (side,)


def _spread(count: int) -> list[int]:
    """A few places, evenly spread over so many.

    Example:
        >>> _spread(12), _spread(2)
        ([0, 2, 4, 6, 8, 10], [0, 1])
    """
    most = min(count, EXAMPLES)
    return [i * count // most for i in range(most)]
