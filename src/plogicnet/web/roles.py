"""Which relations suit an entity, and at which end: where its missing facts are looked for."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from plogicnet.graph import HEAD, RELATION, TAIL, IntArray, KnowledgeGraph, Side
from plogicnet.rules import RuleTable, Variable

Role = tuple[int, Side]
"""A relation and the end that is asked for: an entity in the role (r, "tail") is the head of (entity, r, ?)."""

ROLES_AT_ONCE = 24
"""In how many roles an entity's missing facts are looked for in one answer; others are asked for by name."""


@dataclass(frozen=True)
class Roles:
    """The roles of every entity of a graph, known and suggested.

    Example:
        >>> rows = [("a", "husband", "b"), ("c", "husband", "d"), ("c", "plays", "chess")]
        >>> roles = Roles(KnowledgeGraph.from_names(rows), RuleTable.of([], [], []))
        >>> roles.known(0), roles.of(0)
        ({(0, 'tail'): 1}, [(0, 'tail'), (1, 'tail')])
    """

    graph: KnowledgeGraph
    rules: RuleTable

    @cached_property
    def _by_end(self) -> list[tuple[IntArray, IntArray]]:
        """For head and for tail: the facts' rows ordered by that entity and relation, and where each entity begins."""
        train, entities = self.graph.train, np.arange(len(self.graph.entities) + 1)
        orders = [(end, np.lexsort((train[:, RELATION], train[:, end]))) for end in (HEAD, TAIL)]
        return [(rows, np.searchsorted(train[rows, end], entities)) for end, rows in orders]

    def facts(self, entity: int) -> IntArray:
        """The known facts of an entity, each once: as head, then as tail, by relation."""
        train = self.graph.train
        as_head, as_tail = (train[rows[at[entity] : at[entity + 1]]] for rows, at in self._by_end)
        return np.concatenate([as_head, as_tail[as_tail[:, HEAD] != entity]])

    def known(self, entity: int) -> dict[Role, int]:
        """How many facts of an entity are known in each role, most first."""
        facts = self.facts(entity).tolist()
        counts = Counter[Role]((relation, "tail" if head == entity else "head") for head, relation, _ in facts)
        return dict(counts.most_common())

    def of(self, entity: int) -> list[Role]:
        """Roles that suit an entity: its known ones; those that rules conclude from these; those of similar entities.

        A hub keeps all its known roles; others come up to as many as one answer looks into.
        """
        known = self.known(entity)
        by_rule: dict[Role, float] = {}
        for role in known:
            for concluded, weight in self._concluded.get(role, {}).items():
                by_rule[concluded] = max(by_rule.get(concluded, 0.0), weight)
        suggested = dict.fromkeys([*sorted(by_rule, key=lambda role: -by_rule[role]), *self._of_similar(entity)])
        others = [role for role in suggested if role not in known]
        return [*known, *others[: max(0, ROLES_AT_ONCE - len(known))]]

    @cached_property
    def _concluded(self) -> dict[Role, dict[Role, float]]:
        """Which roles rules of positive weight conclude from a role, each with the greatest such weight."""
        relations, table = self.graph.relations, self.rules
        found: dict[Role, dict[Role, float]] = defaultdict(dict)
        for rule, weight in zip(table.rules, table.weight.tolist(), strict=True):
            if rule.negated or not weight > 0:
                continue
            ends: dict[Side, object] = {"tail": rule.head.head, "head": rule.head.tail}
            for side, term in ends.items():
                concluded = (relations.id(rule.head.relation), side)
                for atom in rule.body:
                    if isinstance(term, Variable) and term in (atom.head, atom.tail):
                        has = found[relations.id(atom.relation), "tail" if term == atom.head else "head"]
                        has[concluded] = max(has.get(concluded, 0.0), weight)
        return found

    @cached_property
    def _taken(self) -> sparse.csr_array:
        """Entities × roles, 1 where a fact is known: role 2r is the head's in relation r, 2r + 1 the tail's."""
        graph = self.graph
        rows = graph.train[:, [HEAD, TAIL]].ravel()
        columns = np.add(2 * graph.train[:, [RELATION]], [0, 1]).ravel()
        shape = (len(graph.entities), 2 * len(graph.relations))
        matrix = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape)
        matrix.data[:] = 1.0  # however often
        return matrix

    def _of_similar(self, entity: int) -> list[Role]:
        """The commonest roles of the entities that share roles with this one; more shared (by cosine), more counted."""
        taken = self._taken
        shared = taken @ taken[[entity]].toarray()[0]
        size = np.sqrt(np.maximum(taken.sum(axis=1) * taken[[entity]].sum(), 1))
        share = (shared / size) ** 4 @ taken
        best = np.argsort(-share, kind="stable")[:ROLES_AT_ONCE]
        return [(int(i) // 2, "head" if i % 2 else "tail") for i in best if share[i] > 0]
