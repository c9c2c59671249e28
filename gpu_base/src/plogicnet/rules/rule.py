"""Rules as data: terms, atoms, Horn clauses, and the chains of relations that most of them are."""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from plogicnet.errors import InputError

PATTERNS = ("composition", "inverse", "symmetric", "subrelation", "irreflexive", "chain", "general")
"""Every value of `Rule.pattern`."""

RESERVED = frozenset('(),&=>"#:\\')
"""The characters that, beside whitespace, end a plain word of the rule syntax."""


def is_word(name: str) -> bool:
    """Whether a name can stand in a rule's text without quotes.

    Example:
        >>> is_word("/people/person/nationality"), is_word("born in")
        (True, False)
    """
    return bool(name) and not any(c.isspace() or c in RESERVED for c in name)


@dataclass(frozen=True)
class Variable:
    """A placeholder for any entity; its name is a plain word that begins with a capital.

    Example:
        >>> str(Variable("X"))
        'X'
    """

    name: str

    def __post_init__(self) -> None:
        # Any other name would print as something that reads back as a constant, or not at all.
        if not (is_word(self.name) and self.name[0].isupper()):
            raise InputError(f"{self.name!r} names no variable: expected a plain word that begins with a capital")

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Constant:
    """One entity, by its name.

    Example:
        >>> str(Constant("paris")), str(Constant("Paris"))
        ('paris', '"Paris"')
    """

    name: str

    def __str__(self) -> str:
        return _quoted(self.name) if self.name[:1].isupper() else _name(self.name)


Term = Variable | Constant


@dataclass(frozen=True)
class Atom:
    """A relation between two terms.

    Example:
        >>> str(Atom("born in", Variable("X"), Constant("paris")))
        '"born in"(X, paris)'
    """

    relation: str
    head: Term
    tail: Term

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables among the two terms, head first."""
        return tuple(term for term in (self.head, self.tail) if isinstance(term, Variable))

    def __str__(self) -> str:
        relation = _quoted("not") if self.relation == "not" else _name(self.relation)
        return f"{relation}({self.head}, {self.tail})"


@dataclass(frozen=True)
class Step:
    """One step along a relation, from head to tail (forward) or from tail to head.

    Example:
        >>> Step("husband", forward=False)
        Step(relation='husband', forward=False)
    """

    relation: str
    forward: bool


@dataclass(frozen=True)
class Rule:
    """Premises (the body) that together suggest a hypothesis (the head), or its negation.

    Example:
        >>> x, y = Variable("X"), Variable("Y")
        >>> rule = Rule((Atom("husband", x, y),), Atom("wife", y, x))
        >>> str(rule), rule.pattern, rule.chain
        ('husband(X, Y) => wife(Y, X)', 'inverse', (Step(relation='husband', forward=False),))
    """

    body: tuple[Atom, ...]
    head: Atom
    negated: bool = False

    @cached_property
    def chain(self) -> tuple[Step, ...] | None:
        """The steps from the hypothesis's head to its tail, None unless the premises are exactly such a path.

        Example:
            >>> chain_rule([Step("a", True), Step("b", False)], "c").chain
            (Step(relation='a', forward=True), Step(relation='b', forward=False))
        """
        if self.negated:
            return None
        touching: dict[Term, list[int]] = defaultdict(list)
        for i, atom in enumerate(self.body):
            for term in {atom.head, atom.tail}:
                touching[term].append(i)
        here, came = self.head.head, -1
        steps: list[Step] = []
        visited = {here}
        for _ in self.body:
            onward = [i for i in touching[here] if i != came]
            if len(onward) != 1:
                return None
            came = onward[0]
            atom = self.body[came]
            forward = atom.head == here
            steps.append(Step(atom.relation, forward))
            here = atom.tail if forward else atom.head
            if here in visited:
                return None
            visited.add(here)
        is_path = bool(steps) and here == self.head.tail
        return tuple(steps) if is_path and all(isinstance(term, Variable) for term in visited) else None

    @cached_property
    def renamed(self) -> "Rule":
        """The same rule with variables named in the order of the text; a chain also with its premises in order.

        Example:
            >>> a, b = Variable("Man"), Variable("Wife")
            >>> str(Rule((Atom("husband", a, b),), Atom("wife", b, a)).renamed)
            'husband(X, Y) => wife(Y, X)'
        """
        if self.chain is not None:
            return chain_rule(self.chain, self.head.relation)
        atoms = (*self.body, self.head)
        shown = dict.fromkeys(variable for atom in atoms for variable in atom.variables)
        new: dict[Term, Term] = dict(zip(shown, _variables(), strict=False))
        *body, head = (Atom(a.relation, new.get(a.head, a.head), new.get(a.tail, a.tail)) for a in atoms)
        return Rule(tuple(body), head, self.negated)

    @cached_property
    def pattern(self) -> str:
        """What kind of rule this is, one of PATTERNS.

        Example:
            >>> chain_rule([Step("a", True), Step("b", True)], "c").pattern
            'composition'
        """
        head = self.head
        if self.chain is None:
            is_constraint = self.negated and not self.body and head.head == head.tail
            return "irreflexive" if is_constraint and isinstance(head.head, Variable) else "general"
        match [(step.relation == head.relation, step.forward) for step in self.chain]:
            case [(False, True)]:
                return "subrelation"
            case [(False, False)]:
                return "inverse"
            case [(True, False)]:
                return "symmetric"
            case [(_, True), (_, True)]:
                return "composition"
        return "chain"

    def __str__(self) -> str:
        hypothesis = f"not {self.head}" if self.negated else str(self.head)
        return " & ".join(map(str, self.body)) + (" => " if self.body else "=> ") + hypothesis


def chain_rule(steps: Sequence[Step], relation: str) -> Rule:
    """The rule that concludes the relation between the two ends of a chain of at least one step.

    Its variables are named in the order in which the text shows them, so equal chains give equal rules.

    Example:
        >>> str(chain_rule([Step("husband", False)], "wife"))
        'husband(X, Y) => wife(Y, X)'
        >>> str(chain_rule([Step("born_in", True), Step("city_of", True)], "nationality"))
        'born_in(X, Y) & city_of(Y, Z) => nationality(X, Z)'
    """
    if not steps:
        raise InputError(f"a chain for {relation!r} without steps: expected at least one")
    ends = [(i, i + 1) if step.forward else (i + 1, i) for i, step in enumerate(steps)]
    shown = dict.fromkeys(node for pair in ends for node in pair)
    named = dict(zip(shown, _variables(), strict=False))
    body = (Atom(step.relation, named[head], named[tail]) for step, (head, tail) in zip(steps, ends, strict=True))
    rule = Rule(tuple(body), Atom(relation, named[0], named[len(steps)]))
    rule.__dict__["chain"] = tuple(steps)  # known already; mining makes thousands of these
    return rule


def irreflexive(relation: str) -> Rule:
    """The constraint that nothing has this relation to itself.

    Example:
        >>> str(irreflexive("knows"))
        '=> not knows(X, X)'
    """
    x = Variable("X")
    return Rule((), Atom(relation, x, x), negated=True)


def _variables() -> Iterator[Variable]:
    return map(_variable, itertools.chain("XYZUVW", (f"X{i}" for i in itertools.count(1))))


@cache
def _variable(name: str) -> Variable:
    return Variable(name)


def _name(name: str) -> str:
    # Unprintable characters, lone surrogates among them, are escaped: a file can hold every rule.
    return name if is_word(name) and name.isprintable() else _quoted(name)


def _quoted(name: str) -> str:
    return '"' + "".join(_escaped(c) for c in name) + '"'


def _escaped(c: str) -> str:
    if c in '"\\':
        return "\\" + c
    return c if c.isprintable() else c.encode("unicode_escape").decode("ascii")
