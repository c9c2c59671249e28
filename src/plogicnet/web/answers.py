"""What a page or a program asks of a model, answered as the commands' JSON; each answer is bounded in size and time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from fastapi import Query

from plogicnet.evaluation.metrics import columns
from plogicnet.graph import HEAD, RELATION, Side
from plogicnet.model import PLogicNet, Prediction
from plogicnet.support.errors import InputError, many
from plogicnet.version import VERSION
from plogicnet.web import shapes
from plogicnet.web.roles import ROLES_AT_ONCE, Roles
from plogicnet.web.search import Search

OF_EACH_ROLE = 10
EXAMPLES = 6
SHOWN = 120
NAME_LENGTH = 8192
Name = Annotated[str, Query(max_length=NAME_LENGTH)]
MaybeName = Annotated[str | None, Query(max_length=NAME_LENGTH)]
Top = Annotated[int, Query(ge=1, le=1000)]
Fewest = Annotated[int, Query(ge=1, le=20)]
Few = Annotated[int, Query(ge=1, le=200)]
Offset = Annotated[int, Query(ge=0, le=10**9)]


class UnknownName(InputError):  # noqa: N818
    """A name that the graph does not hold."""


@dataclass(frozen=True)
class Answerer:
    """Answers from one model; what it needs beside the model is made when first asked for, or by `warm`.

    The public methods but `warm` are the routes of the REST interface: it has their parameters and their docstrings.
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

    def info(self) -> shapes.Info:
        """What is served: counts of the graph and figures on held-out triples."""
        graph, config, metrics = self.model.fitted.graph, self.model.config, self.model.metrics
        split = next((s for s in ("test", "valid") if s in metrics), None)
        result: Any = metrics[split] if split else {}
        rankings = {key: title for key, title in self.model.titles.items() if key in result}
        shown = [metric for metric in columns() if all(metric.key in result[key] for key in rankings)]
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
            "model": config.neural.model if config.em.neural else None,
            "split": split,
            "rankings": rankings,
            "metrics": [{"key": metric.key, "title": metric.title, "digits": metric.digits} for metric in shown],
            "figures": {key: {metric.key: result[key][metric.key] for metric in shown} for key in rankings},
        }

    def metrics(self) -> dict[str, Any]:
        """All figures of the run, as `plogicnet evaluate --json` and the run's metrics.json hold them."""
        return self.model.metrics

    def rules(self, q: Name = "", top: Top = 100, offset: Offset = 0) -> shapes.Rules:
        """The learned rules, strongest first: `plogicnet rules --json`; q: all these words are in the rule's text."""
        words = q.casefold().split()
        chosen = [row for text, row in self._rules if all(word in text for word in words)]
        return {"rules": chosen[offset : offset + top], "total": len(chosen), "constraints": _constraints(chosen)}

    def rule(self, number: Offset) -> shapes.RuleExamples:
        """One rule, with some of its groundings."""
        if number >= len(self._rules):
            raise UnknownName(f"rule {number}: the run has {many(len(self._rules), 'rule')}, counted from 0")
        rule = self.model.rules.rules[number]
        examples = self.model.fitted.examples(rule, EXAMPLES)
        shown = [fact for e in examples for fact in (e.hypothesis, *e.premises)]
        labels = self._labels([rule.head.relation, *(name for fact in shown for name in fact)])
        return {**self._rules[number][1], "relation": rule.head.relation, "examples": examples, "labels": labels}

    def search(self, q: Name = "", kind: shapes.Kind = "entity", top: Fewest = 20) -> shapes.Names:
        """Entities (or relations) whose name or label is, begins with or holds a text."""
        search, labels = self._search[kind], self.model.fitted.graph.labels
        found = [(search.names[i], int(search.counts[i])) for i in search.find(q, top)]
        return {"names": [{"name": name, "label": labels.get(name), "facts": facts} for name, facts in found]}

    def entity(self, name: Name) -> shapes.Entity:
        """An entity: its label, and the relations that suit it with the number of known facts."""
        graph, number = self.model.fitted.graph, self._number("entity", name)
        known = self._roles.known(number)
        roles: list[shapes.RoleRow] = [
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

    def known(
        self, entity: Name, relation: MaybeName = None, side: Side | None = None, top: Few = 50, offset: Offset = 0
    ) -> shapes.Predictions:
        """Known facts of an entity with their probabilities; side "tail" are those (entity, relation, ?)."""
        number = self._number("entity", entity)
        facts = self._roles.facts(number)
        if relation is not None:
            facts = facts[facts[:, RELATION] == self._number("relation", relation)]
        if side is not None:
            # a self-loop stands under its head alone, as everywhere
            facts = facts[(facts[:, HEAD] == number) == (side == "tail")]
        return self._predictions(self.model.judge(facts[offset : offset + top])) | {"total": len(facts)}

    def predicted(
        self, entity: Name, relation: MaybeName = None, side: Side | None = None, top: Few = 50
    ) -> shapes.Predictions:
        """The most probable missing facts of an entity, in the relations that suit it or in the one that is named."""
        graph, number = self.model.fitted.graph, self._number("entity", entity)
        if relation is None:
            roles, each = self._roles.of(number), OF_EACH_ROLE
        else:
            asked = self._number("relation", relation)
            roles, each = [(asked, "tail"), (asked, "head")], top
        roles = [role for role in roles if side in (None, role[1])][:ROLES_AT_ONCE]
        found: list[Prediction] = []
        for at, open_end in roles:
            head, tail = (entity, None) if open_end == "tail" else (None, entity)
            found += self.model.predict(head, graph.relations.names[at], tail, min(each, top))
        unique = {p.triple: p for p in found}  # (e, r, e) answers both roles
        best = sorted(unique.values(), key=lambda p: -p.probability)[:top]
        return self._predictions(best) | {"roles": len(roles)}

    def predict(
        self,
        head: MaybeName = None,
        relation: MaybeName = None,
        tail: MaybeName = None,
        top: Top = 10,
        include_known: bool = False,
    ) -> shapes.Predictions:
        """The answers to a query with one part left open: `plogicnet predict --json`."""
        if (head, relation, tail).count(None) > 1:
            raise InputError("leave one of head, relation and tail open, not more")
        self._check(head, relation, tail)
        return self._predictions(self.model.predict(head, relation, tail, top, include_known))

    def explain(
        self, head: Name, relation: Name, tail: Name, premises: Annotated[int, Query(ge=0, le=1000)] = 20
    ) -> shapes.Explained:
        """Why a triple is probable or not: `plogicnet explain --json`, with so many groundings of each rule."""
        self._check(head, relation, tail)
        why = self.model.explain(head, relation, tail, premises)
        shown = [fact for rule in why.rules for grounding in rule.premises for fact in grounding]
        shown += [why.triple, *(entry.fact for entry in why.neighbours), *(fact for p in why.paths for fact in p.path)]
        return shapes.Explained(**vars(why), labels=self._labels(name for fact in shown for name in fact))

    def _predictions(self, found: Sequence[Prediction]) -> shapes.Predictions:
        return {"predictions": found, "labels": self._labels(name for p in found for name in p.triple)}

    def _labels(self, names: Iterable[str]) -> shapes.Labels:
        labels = self.model.fitted.graph.labels
        return {name: labels[name] for name in names if name in labels} if labels else {}

    def _check(self, *triple: str | None) -> None:
        kinds: tuple[shapes.Kind, ...] = ("entity", "relation", "entity")
        for kind, name in zip(kinds, triple, strict=True):
            if name is not None:
                self._number(kind, name)

    def _number(self, kind: shapes.Kind, name: str) -> int:
        """A name's number; the nearest names are not looked for, since that takes long among many."""
        graph = self.model.fitted.graph
        vocabulary = graph.entities if kind == "entity" else graph.relations
        if name not in vocabulary:
            shown = name if len(name) <= SHOWN else name[:SHOWN] + "…"
            raise UnknownName(f"unknown {kind} {shown!r}; /api/search?kind={kind}&q=… finds names")
        return vocabulary.id(name)

    @cached_property
    def _rules(self) -> list[tuple[str, shapes.RuleRow]]:
        """Each rule's text, for searching, and its row."""
        rows: Any = self.model.rules.rows()
        return [(str(row["rule"]).casefold(), {"number": i} | row) for i, row in enumerate(rows)]

    @cached_property
    def _search(self) -> dict[shapes.Kind, Search]:
        """By kind; each entity and relation counts the known facts that it stands in, a self-loop once."""
        graph = self.model.fitted.graph
        heads, relations, tails = graph.train.T
        ends = np.bincount(np.concatenate([heads, tails[heads != tails]]), minlength=len(graph.entities))
        used = np.bincount(relations, minlength=len(graph.relations))
        return {
            "entity": Search(graph.entities.names, graph.labels, ends),
            "relation": Search(graph.relations.names, graph.labels, used),
        }

    @cached_property
    def _roles(self) -> Roles:
        return Roles(self.model.fitted.graph, self.model.rules)


def _constraints(rules: Iterable[shapes.RuleRow]) -> int:
    return sum(rule["weight"] is None for rule in rules)
