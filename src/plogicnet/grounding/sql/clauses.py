"""Horn clauses with ids instead of names, and the tables of clauses that SQL queries join with the facts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from plogicnet.graph import IntArray, KnowledgeGraph
from plogicnet.rules import Atom, Constant, Rule, Variable, parse_rule
from plogicnet.rules.syntax import find_problem
from plogicnet.support.errors import InputError

MAX_PREMISES = 20
"""The largest number of premises. Planning a join takes seconds with 30 premises and minutes with 40."""


@dataclass(frozen=True)
class EncodedAtom:
    """An atom with ids instead of names. Each term is a variable or the id of an entity."""

    relation: int
    head: Variable | int
    tail: Variable | int


@dataclass(frozen=True)
class Clause:
    """A connected Horn clause with ids instead of names. All variables of the hypothesis occur in the premises.

    Example:
        >>> x, y = Variable("X"), Variable("Y")
        >>> clause = Clause((EncodedAtom(0, x, y), EncodedAtom(0, y, x)), EncodedAtom(1, x, 7))
        >>> clause.hypothesis.tail  # entity 7
        7
    """

    premises: tuple[EncodedAtom, ...]
    hypothesis: EncodedAtom


def clause_of(rule: Rule, graph: KnowledgeGraph) -> Clause:
    """Replace the names of a rule by the ids of a graph.

    Raises:
        InputError: The graph does not contain a name, or the rule is a constraint or not a connected Horn clause.

    Example:
        >>> graph = KnowledgeGraph.from_names([("anna", "lives_in", "paris")])
        >>> clause_of(parse_rule("lives_in(X, paris) => lives_in(paris, X)"), graph).hypothesis
        EncodedAtom(relation=0, head=1, tail=Variable(name='X'))
    """
    if rule.negated:
        raise InputError(f"{rule}: a constraint has no groundings")
    if len(rule.body) > MAX_PREMISES:
        raise InputError(
            f"{rule.head}: the SQL engine grounds rules with at most {MAX_PREMISES} premises, got {len(rule.body):,}"
        )
    if rule.chain is None and find_problem(rule.body, rule.head) is not None:
        parse_rule(str(rule))  # raises the parser's error, for rules that were created in code

    def encode_atom(atom: Atom) -> EncodedAtom:
        ends = (graph.entities.id(t.name) if isinstance(t, Constant) else t for t in (atom.head, atom.tail))
        return EncodedAtom(graph.relations.id(atom.relation), *ends)

    return Clause(tuple(encode_atom(atom) for atom in rule.body), encode_atom(rule.head))


@dataclass(frozen=True)
class ClauseTemplate:
    """Clauses that differ only in relations and entities, so that one query grounds all of them.

    Relations and entities are in a table with one row per clause, never in the text of the query.

    Attributes:
        terms: one entry per position (head and tail of each premise, then of the hypothesis): the first position with
            the same variable, or -1 for an entity. For r(X, Y) => s(Y, 7), terms is (0, 1, 1, -1).
        clause_indices: the indices of the clauses among all clauses.
        clauses: the clauses.
    """

    terms: tuple[int, ...]
    clause_indices: IntArray
    clauses: Sequence[Clause]

    @property
    def columns(self) -> dict[str, IntArray]:
        """The table's columns: clause, relation0, relation1, …, and entity<position> for positions with entities."""
        columns = {"clause": self.clause_indices}
        for i in range(len(self.terms) // 2):
            atoms = [(*clause.premises, clause.hypothesis)[i] for clause in self.clauses]
            columns[f"relation{i}"] = np.array([atom.relation for atom in atoms], dtype=np.int64)
            for position, ends in ((2 * i, [a.head for a in atoms]), (2 * i + 1, [a.tail for a in atoms])):
                if self.terms[position] < 0:
                    columns[f"entity{position}"] = np.array(ends, dtype=np.int64)
        return columns


def templates_of(indexed_clauses: Iterable[tuple[int, Clause]]) -> list[ClauseTemplate]:
    """Group pairs (index, clause) into templates."""
    groups: dict[tuple[int, ...], dict[int, Clause]] = {}
    for index, clause in indexed_clauses:
        ends = [end for atom in (*clause.premises, clause.hypothesis) for end in (atom.head, atom.tail)]
        terms = tuple(ends.index(end) if isinstance(end, Variable) else -1 for end in ends)
        groups.setdefault(terms, {})[index] = clause
    return [ClauseTemplate(terms, np.array(list(group)), list(group.values())) for terms, group in groups.items()]
