"""The roles of entities. A role is a relation together with the side, head or tail, on which the entity is.

An entity has known facts in its known roles. Missing facts are searched for in known and in suggested roles.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from plogicnet.graph import HEAD, RELATION, TAIL, IntArray, KnowledgeGraph, Side
from plogicnet.rules import RuleTable, Variable

Role = tuple[int, Side]
"""The id of a relation, and the missing side: for the role (r, "tail"), the query is (entity, r, ?)."""

MAX_ROLES = 24
"""Maximum number of roles in which one response searches for missing facts."""


@dataclass(frozen=True)
class Roles:
    """The known and the suggested roles of the entities of a graph.

    Example:
        >>> rows = [("a", "husband", "b"), ("c", "husband", "d"), ("c", "plays", "chess")]
        >>> roles = Roles(KnowledgeGraph.from_names(rows), RuleTable.of([], [], []))
        >>> roles.known_counts(0), roles.candidates(0)
        ({(0, 'tail'): 1}, [(0, 'tail'), (1, 'tail')])
    """

    graph: KnowledgeGraph
    rules: RuleTable

    @cached_property
    def _rows_by_end(self) -> list[tuple[IntArray, IntArray]]:
        """Two arrays for heads, and two for tails, to look up the facts of an entity.

        The first has the rows of `train`, sorted by entity and relation. The second has the start of each entity in it.
        """
        train, entities = self.graph.train, np.arange(len(self.graph.entities) + 1)
        orders = [(end, np.lexsort((train[:, RELATION], train[:, end]))) for end in (HEAD, TAIL)]
        return [(rows, np.searchsorted(train[rows, end], entities)) for end, rows in orders]

    def facts(self, entity: int) -> IntArray:
        """Return the known facts of an entity without duplicates: as head, then as tail, sorted by relation."""
        train = self.graph.train
        as_head, as_tail = (train[rows[start[entity] : start[entity + 1]]] for rows, start in self._rows_by_end)
        return np.concatenate([as_head, as_tail[as_tail[:, HEAD] != entity]])

    def known_counts(self, entity: int) -> dict[Role, int]:
        """Return the number of known facts of an entity per role, largest first."""
        facts = self.facts(entity).tolist()
        counts = Counter[Role]((relation, "tail" if head == entity else "head") for head, relation, _ in facts)
        return dict(counts.most_common())

    def candidates(self, entity: int) -> list[Role]:
        """Return the known roles of an entity, then roles that rules conclude from them, then roles of similar ones.

        All known roles are returned. Others are added up to a total of `MAX_ROLES`.
        """
        known = self.known_counts(entity)
        by_rule: dict[Role, float] = {}
        for role in known:
            for concluded, weight in self._concluded_roles.get(role, {}).items():
                by_rule[concluded] = max(by_rule.get(concluded, 0.0), weight)
        suggested = dict.fromkeys([*sorted(by_rule, key=lambda role: -by_rule[role]), *self._roles_of_similar(entity)])
        others = [role for role in suggested if role not in known]
        return [*known, *others[: max(0, MAX_ROLES - len(known))]]

    @cached_property
    def _concluded_roles(self) -> dict[Role, dict[Role, float]]:
        """For each role, the roles that rules conclude from it, with the largest weight of these rules.

        Only rules with a positive weight are used.
        """
        relations, table = self.graph.relations, self.rules
        roles: dict[Role, dict[Role, float]] = defaultdict(dict)
        for rule, weight in zip(table.rules, table.weight.tolist(), strict=True):
            if rule.negated or not weight > 0:
                continue
            ends: dict[Side, object] = {"tail": rule.head.head, "head": rule.head.tail}
            for side, term in ends.items():
                concluded = (relations.id(rule.head.relation), side)
                for atom in rule.body:
                    if isinstance(term, Variable) and term in (atom.head, atom.tail):
                        weights = roles[relations.id(atom.relation), "tail" if term == atom.head else "head"]
                        weights[concluded] = max(weights.get(concluded, 0.0), weight)
        return roles

    @cached_property
    def _role_matrix(self) -> sparse.csr_array:
        """The matrix entities × roles, 1 for known roles. Columns 2r and 2r + 1 are heads and tails of relation r."""
        graph = self.graph
        rows = graph.train[:, [HEAD, TAIL]].ravel()
        columns = np.add(2 * graph.train[:, [RELATION]], [0, 1]).ravel()
        shape = (len(graph.entities), 2 * len(graph.relations))
        matrix = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape)
        matrix.data[:] = 1.0  # duplicates were summed
        return matrix

    def _roles_of_similar(self, entity: int) -> list[Role]:
        """Return the most frequent roles of entities with similar roles, weighted by cosine similarity."""
        matrix = self._role_matrix
        shared = matrix @ matrix[[entity]].toarray()[0]
        norm = np.sqrt(np.maximum(matrix.sum(axis=1) * matrix[[entity]].sum(), 1))
        frequency = (shared / norm) ** 4 @ matrix
        best = np.argsort(-frequency, kind="stable")[:MAX_ROLES]
        return [(int(i) // 2, "head" if i % 2 else "tail") for i in best if frequency[i] > 0]
