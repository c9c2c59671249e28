"""Rules in numbers for SQL: any connected Horn clause, and the tables in which clauses of one form stand."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from plogicnet.graph import IntArray, KnowledgeGraph
from plogicnet.rules import Atom, Constant, Rule, Variable, parse_rule
from plogicnet.support.errors import InputError

MOST_PREMISES = 20
"""Planning a join of more takes longer and longer: seconds at 30, minutes at 40."""


@dataclass(frozen=True)
class NumberedAtom:
    """A relation's number between two terms, each a variable or an entity's number."""

    relation: int
    head: Variable | int
    tail: Variable | int


@dataclass(frozen=True)
class Clause:
    """A rule in numbers: any connected Horn clause whose hypothesis's variables are in its premises.

    Example:
        >>> x, y = Variable("X"), Variable("Y")
        >>> clause = Clause((NumberedAtom(0, x, y), NumberedAtom(0, y, x)), NumberedAtom(1, x, 7))
    """

    premises: tuple[NumberedAtom, ...]
    hypothesis: NumberedAtom


def clause_of(rule: Rule, graph: KnowledgeGraph) -> Clause:
    """A rule in the graph's numbers.

    Raises:
        InputError: The graph has no such relation or entity, or the rule is a constraint or no connected Horn clause.

    Example:
        >>> graph = KnowledgeGraph.from_names([("anna", "lives_in", "paris")])
        >>> clause_of(parse_rule("lives_in(X, paris) => lives_in(paris, X)"), graph).hypothesis
        NumberedAtom(relation=0, head=1, tail=Variable(name='X'))
    """
    if rule.negated:
        raise InputError(f"{rule}: a constraint has no groundings")
    if len(rule.body) > MOST_PREMISES:
        raise InputError(
            f"{rule.head} is concluded from {len(rule.body):,} premises; the SQL engine joins {MOST_PREMISES} at most"
        )
    if rule.chain is None:
        parse_rule(str(rule))  # what the syntax refuses, a rule made in code cannot have either

    def numbered(atom: Atom) -> NumberedAtom:
        ends = (graph.entities.id(t.name) if isinstance(t, Constant) else t for t in (atom.head, atom.tail))
        return NumberedAtom(graph.relations.id(atom.relation), *ends)

    return Clause(tuple(numbered(atom) for atom in rule.body), numbered(rule.head))


@dataclass(frozen=True)
class Form:
    """Clauses that differ in relations and entities alone: one query grounds them all.

    Relations and entities stand in a table, one row a clause, never in the query's text.

    Attributes:
        terms: for each place (the premises' heads and tails in turn, then the hypothesis's) the first place with the
            same variable, -1 where an entity stands.
        numbers: the clauses' numbers.
        clauses: the clauses.
    """

    terms: tuple[int, ...]
    numbers: IntArray
    clauses: Sequence[Clause]

    @property
    def columns(self) -> dict[str, IntArray]:
        """The table: clause, relation0, relation1, …, and entity0, entity1, … of the places where entities stand."""
        columns = {"clause": self.numbers}
        for i in range(len(self.terms) // 2):
            atoms = [(*clause.premises, clause.hypothesis)[i] for clause in self.clauses]
            columns[f"relation{i}"] = np.array([atom.relation for atom in atoms], dtype=np.int64)
            for place, ends in ((2 * i, [a.head for a in atoms]), (2 * i + 1, [a.tail for a in atoms])):
                if self.terms[place] < 0:
                    columns[f"entity{place}"] = np.array(ends, dtype=np.int64)
        return columns


def forms_of(numbered: Iterable[tuple[int, Clause]]) -> list[Form]:
    """Numbered clauses by their form."""
    groups: dict[tuple[int, ...], dict[int, Clause]] = {}
    for number, clause in numbered:
        ends = [end for atom in (*clause.premises, clause.hypothesis) for end in (atom.head, atom.tail)]
        terms = tuple(ends.index(end) if isinstance(end, Variable) else -1 for end in ends)
        groups.setdefault(terms, {})[number] = clause
    return [Form(terms, np.array(list(group)), list(group.values())) for terms, group in groups.items()]
