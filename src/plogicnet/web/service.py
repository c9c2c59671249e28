"""The responses of the REST API. They contain the JSON of the commands, and are limited in size and time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from fastapi import Query

from plogicnet.evaluation.metrics import columns
from plogicnet.graph import HEAD, RELATION, BoolArray, IntArray, Side
from plogicnet.model import PLogicNet, Prediction
from plogicnet.rules import RuleIndex
from plogicnet.support.errors import InputError, pluralize
from plogicnet.version import VERSION
from plogicnet.web import schemas
from plogicnet.web.roles import MAX_ROLES, Roles
from plogicnet.web.search import Search

FACTS_PER_ROLE = 10
"""Number of missing facts to predict per role of an entity."""
MAX_EXAMPLES = 6
"""Maximum number of groundings of a rule."""
MAX_SHOWN_LENGTH = 120
"""Maximum length of a name in an error message."""
MAX_NAME_LENGTH = 8192
"""Maximum length of a name in a request."""
Name = Annotated[str, Query(max_length=MAX_NAME_LENGTH)]
OptionalName = Annotated[str | None, Query(max_length=MAX_NAME_LENGTH)]
Top = Annotated[int, Query(ge=1, le=1000)]
SearchTop = Annotated[int, Query(ge=1, le=20)]
FactsTop = Annotated[int, Query(ge=1, le=200)]
Offset = Annotated[int, Query(ge=0, le=10**9)]


class UnknownNameError(InputError):
    """A name that is not in the graph."""


@dataclass(frozen=True)
class ModelService:
    """A service that creates the responses from one model. Indices for lookups are built on first use, or by `warm`.

    The public methods except `warm` are the endpoints of the REST API, with their parameters and docstrings.
    """

    model: PLogicNet

    @property
    def snapshot(self) -> str:
        """The name of the snapshot that is served; empty if the model was not loaded from a run."""
        return self.model.snapshot.name if self.model.snapshot else ""

    def warm(self) -> None:
        """Run typical requests once, to build the indices and compile code before the first real request."""
        graph = self.model.fitted.graph
        head, relation, tail = graph.names(graph.train[0])
        self.search("", "relation")
        self.entity(head)
        self.explain(head, relation, tail)
        self.model.predict(head=head, relation=relation, top=1)
        self.model.predict(relation=relation, tail=tail, top=1)
        self.rules("a b", top=1)
        self.rules(order="importance", top=1)

    def info(self) -> schemas.Info:
        """Return the run that is served: counts of its graph, and metrics on held-out triples."""
        graph, config, metrics = self.model.fitted.graph, self.model.config, self.model.metrics
        split = next((s for s in ("test", "valid") if s in metrics), None)
        result: Any = metrics[split] if split else {}
        rankings = {key: title for key, title in self.model.titles.items() if key in result}
        used = [metric for metric in columns() if all(metric.key in result[key] for key in rankings)]
        return {
            "name": graph.name,
            "version": VERSION,
            "snapshot": self.snapshot,
            "entities": len(graph.entities),
            "relations": len(graph.relations),
            "train": len(graph.train),
            "valid": len(graph.valid),
            "test": len(graph.test),
            "rules": len(self._rule_index.table),
            "constraints": int(self._is_constraint.sum()),
            "model": config.neural.title if config.em.neural else None,
            "split": split,
            "rankings": rankings,
            "metrics": [{"key": metric.key, "title": metric.title, "digits": metric.digits} for metric in used],
            "figures": {key: {metric.key: result[key][metric.key] for metric in used} for key in rankings},
        }

    def metrics(self) -> dict[str, Any]:
        """Return all metrics of the run, as `plogicnet evaluate --json` prints them and metrics.json stores them."""
        return self.model.metrics

    def rules(
        self,
        q: Name = "",
        relation: OptionalName = None,
        pattern: OptionalName = None,
        order: schemas.RuleOrder = "weight",
        top: Top = 100,
        offset: Offset = 0,
    ) -> schemas.Rules:
        """Return rules as `plogicnet rules --json` prints them.

        `q` selects the rules that contain all its words, and `relation` those that conclude it. With
        order=importance, the most important rule of each relation comes first, then the second one of each.
        """
        index = self._rule_index
        rows = index.find(q, relation, pattern)
        shown = (rows if order == "weight" else index.by_importance(rows))[offset : offset + top]
        patterns = index.pattern_counts(index.find(q, relation))
        return {
            "rules": self._rule_rows(shown),
            "total": len(rows),
            "constraints": int(self._is_constraint[rows].sum()),
            "patterns": patterns,
        }

    def rule(self, number: Offset) -> schemas.RuleExamples:
        """Return the rule with this number (its index in the list of all rules, from 0), and some of its groundings."""
        rules = self._rule_index.table.rules
        if number >= len(rules):
            raise UnknownNameError(
                f"unknown rule {number}: the run has {pluralize(len(rules), 'rule')}, numbered from 0"
            )
        rule = rules[number]
        examples = self.model.fitted.examples(rule, MAX_EXAMPLES)
        facts = [fact for e in examples for fact in (e.hypothesis, *e.premises)]
        labels = self._labels([rule.head.relation, *(name for fact in facts for name in fact)])
        [row] = self._rule_rows(np.array([number]))
        return {**row, "relation": rule.head.relation, "examples": examples, "labels": labels}

    def search(self, q: Name = "", kind: schemas.Kind = "entity", top: SearchTop = 20) -> schemas.Names:
        """Return the entities (or relations) whose name or label equals `q`, starts with it, or contains it."""
        search, labels = self._search[kind], self.model.fitted.graph.labels
        rows = [(search.names[i], int(search.counts[i])) for i in search.find(q, top)]
        return {"names": [{"name": name, "label": labels.get(name), "facts": facts} for name, facts in rows]}

    def entity(self, name: Name) -> schemas.Entity:
        """Return an entity: its label, its number of known facts, and its relations with known or plausible facts."""
        graph, entity_id = self.model.fitted.graph, self._id("entity", name)
        known = self._roles.known_counts(entity_id)
        roles: list[schemas.RoleRow] = [
            {"relation": graph.relations.names[relation], "side": side, "known": known.get((relation, side), 0)}
            for relation, side in self._roles.candidates(entity_id)
        ]
        return {
            "name": name,
            "label": graph.labels.get(name),
            "facts": sum(known.values()),
            "roles": roles,
            "labels": self._labels([name, *(role["relation"] for role in roles)]),
        }

    def known(
        self,
        entity: Name,
        relation: OptionalName = None,
        side: Side | None = None,
        top: FactsTop = 50,
        offset: Offset = 0,
    ) -> schemas.Predictions:
        """Return the known facts of an entity with their probabilities.

        With side=tail, these are the facts (entity, relation, ?). With side=head, the facts (?, relation, entity).
        """
        entity_id = self._id("entity", entity)
        facts = self._roles.facts(entity_id)
        if relation is not None:
            facts = facts[facts[:, RELATION] == self._id("relation", relation)]
        if side is not None:
            # a self-loop counts only as a fact of its head
            facts = facts[(facts[:, HEAD] == entity_id) == (side == "tail")]
        return self._predictions(self.model.predict_triples(facts[offset : offset + top])) | {"total": len(facts)}

    def predicted(
        self, entity: Name, relation: OptionalName = None, side: Side | None = None, top: FactsTop = 50
    ) -> schemas.Predictions:
        """Return the most probable missing facts of an entity, in one relation or in all plausible ones."""
        graph, entity_id = self.model.fitted.graph, self._id("entity", entity)
        if relation is None:
            roles, per_role = self._roles.candidates(entity_id), FACTS_PER_ROLE
        else:
            relation_id = self._id("relation", relation)
            roles, per_role = [(relation_id, "tail"), (relation_id, "head")], top
        roles = [role for role in roles if side in (None, role[1])][:MAX_ROLES]
        predictions: list[Prediction] = []
        for role_relation, missing in roles:
            head, tail = (entity, None) if missing == "tail" else (None, entity)
            predictions += self.model.predict(head, graph.relations.names[role_relation], tail, min(per_role, top))
        unique = {p.triple: p for p in predictions}  # a self-loop (e, r, e) is an answer in both roles of r
        best = sorted(unique.values(), key=lambda p: -p.probability)[:top]
        return self._predictions(best) | {"roles": len(roles)}

    def predict(
        self,
        head: OptionalName = None,
        relation: OptionalName = None,
        tail: OptionalName = None,
        top: Top = 10,
        include_known: bool = False,
    ) -> schemas.Predictions:
        """Answer a query with one missing part, or score a triple, as `plogicnet predict --json` does."""
        if (head, relation, tail).count(None) > 1:
            raise InputError("expected at least two of head, relation and tail")
        self._check_names(head, relation, tail)
        return self._predictions(self.model.predict(head, relation, tail, top, include_known))

    def explain(
        self,
        head: Name,
        relation: Name,
        tail: Name,
        premises: Annotated[int, Query(ge=0, le=1000)] = 20,
        rules: Annotated[int, Query(ge=0, le=10**9)] = 0,
    ) -> schemas.Explained:
        """Explain why a triple is probable or not, as `plogicnet explain --json` does.

        The response lists at most `premises` groundings per rule, and the `rules` rules with the largest
        contributions (0: all); `other_rules` sums up the rest.
        """
        self._check_names(head, relation, tail)
        why = self.model.explain(head, relation, tail, premises)
        others = why.rules[rules:] if rules else ()
        why = replace(why, rules=why.rules[: len(why.rules) - len(others)])
        facts = [fact for rule in why.rules for grounding in rule.premises for fact in grounding]
        facts += [why.triple, *(entry.fact for entry in why.neighbours), *(fact for p in why.paths for fact in p.path)]
        labels = self._labels(name for fact in facts for name in fact)
        rest = schemas.OtherRules(
            count=len(others),
            groundings=sum(entry.groundings + entry.broken for entry in others if not entry.negative),
            contribution=sum(entry.contribution for entry in others),
        )
        return schemas.Explained(**vars(why), labels=labels, other_rules=rest)

    def _predictions(self, predictions: Sequence[Prediction]) -> schemas.Predictions:
        return {"predictions": predictions, "labels": self._labels(name for p in predictions for name in p.triple)}

    def _labels(self, names: Iterable[str]) -> schemas.Labels:
        labels = self.model.fitted.graph.labels
        return {name: labels[name] for name in names if name in labels} if labels else {}

    def _check_names(self, *triple: str | None) -> None:
        kinds: tuple[schemas.Kind, ...] = ("entity", "relation", "entity")
        for kind, name in zip(kinds, triple, strict=True):
            if name is not None:
                self._id(kind, name)

    def _id(self, kind: schemas.Kind, name: str) -> int:
        """Return the id of a name, or raise UnknownNameError without similar names, since that search is slow."""
        graph = self.model.fitted.graph
        vocabulary = graph.entities if kind == "entity" else graph.relations
        if name not in vocabulary:
            shown = name if len(name) <= MAX_SHOWN_LENGTH else name[:MAX_SHOWN_LENGTH] + "…"
            raise UnknownNameError(f"unknown {kind} {shown!r}. Search for names with /api/search?kind={kind}&q=…")
        return vocabulary.id(name)

    def _rule_rows(self, rows: IntArray) -> list[schemas.RuleRow]:
        found: Any = self._rule_index.table.take(rows).rows()
        return [{"number": number} | row for number, row in zip(rows.tolist(), found, strict=True)]

    @cached_property
    def _rule_index(self) -> RuleIndex:
        return RuleIndex(self.model.rules)

    @cached_property
    def _is_constraint(self) -> BoolArray:
        return self._rule_index.table.constraints

    @cached_property
    def _search(self) -> dict[schemas.Kind, Search]:
        """The search indices of entities and relations, with their numbers of known facts. A self-loop counts once."""
        graph = self.model.fitted.graph
        heads, relations, tails = graph.train.T
        entity_counts = np.bincount(np.concatenate([heads, tails[heads != tails]]), minlength=len(graph.entities))
        relation_counts = np.bincount(relations, minlength=len(graph.relations))
        return {
            "entity": Search(graph.entities.names, graph.labels, entity_counts),
            "relation": Search(graph.relations.names, graph.labels, relation_counts),
        }

    @cached_property
    def _roles(self) -> Roles:
        return Roles(self.model.fitted.graph, self.model.rules)
