"""Rules and their parts: terms, atoms, and steps of chains."""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Literal, NamedTuple

from plogicnet.config.shapes import CHAIN_SHAPES, NEGATIVE_PATTERNS
from plogicnet.support.errors import InputError

MINED_PATTERNS = tuple(shape.name for shape in CHAIN_SHAPES)
PATTERNS = (*MINED_PATTERNS, "irreflexive", "chain", "constant", "general", "formula", *NEGATIVE_PATTERNS)
"""All values of `Rule.pattern`, the mined patterns first."""
FORMULA_PREFIX = "$"
FORMULAS = (
    "reached",
    "best_rule",
    "second_rule",
    "noisy_or",
    "best_chain",
    "best_tail_constant",
    "best_head_constant",
    "tail_in_relation",
    "tail_facts",
    "head_in_relation",
    "head_facts",
    "other_head",
    "other_tail",
    "linked",
)
"""The names of formulas, which are rules with a built-in predicate such as `$best_rule(X, Y)` as their premise."""
Evidence = Literal["other tail", "other head", "same pair", "swapped pair"]
"""What contradicts r(X, Y) in a rule with a negated hypothesis: r(X, Z), r(Z, Y), s(X, Y) or s(Y, X)."""

RESERVED_CHARACTERS = frozenset('(),&=>"#:\\')
"""The characters that, like whitespace, end a plain word of the rule syntax."""


def is_plain_word(name: str) -> bool:
    """Return whether a name needs no quotes in the text of a rule.

    Example:
        >>> is_plain_word("/people/person/nationality"), is_plain_word("born in")
        (True, False)
    """
    return bool(name) and not any(c.isspace() or c in RESERVED_CHARACTERS for c in name)


@dataclass(frozen=True)
class Variable:
    """A placeholder for any entity. Its name is a plain word that begins with a capital letter.

    Example:
        >>> str(Variable("X"))
        'X'
    """

    name: str

    def __post_init__(self) -> None:
        # The text of any other name would parse as a constant or not at all.
        if not (is_plain_word(self.name) and self.name[0].isupper()):
            raise InputError(f"a variable must be a word that begins with a capital letter, got {self.name!r}")

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Constant:
    """An entity in a rule, by name. A capitalised name is quoted in text, because unquoted it would be a variable.

    Example:
        >>> str(Constant("paris")), str(Constant("Paris"))
        ('paris', '"Paris"')
    """

    name: str

    def __str__(self) -> str:
        return _quote(self.name) if self.name[:1].isupper() else _format_name(self.name)


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
        relation = _quote("not") if self.relation == "not" else _format_name(self.relation)
        return f"{relation}({self.head}, {self.tail})"


@dataclass(frozen=True)
class Step:
    """One step of a chain: from a fact's head to its tail (forward), or from its tail to its head (backward).

    Example:
        >>> Step("husband", forward=False)
        Step(relation='husband', forward=False)
    """

    relation: str
    forward: bool


class Contradiction(NamedTuple):
    """The meaning of a rule with one premise and a negated hypothesis: which facts contradict a triple.

    Attributes:
        premise: the relation of the premise.
        hypothesis: the relation of the hypothesis.
        evidence: how the entities of premise and hypothesis are related.
    """

    premise: str
    hypothesis: str
    evidence: Evidence

    @property
    def rule(self) -> "Rule":
        """The rule with this meaning.

        Example:
            >>> str(Contradiction("born_in", "born_in", "other tail").rule)
            'born_in(X, Z) & Z != Y => not born_in(X, Y)'
            >>> str(Contradiction("son", "daughter", "same pair").rule)
            'son(X, Y) => not daughter(X, Y)'
        """
        x, y, z = map(_variable, "XYZ")
        ends, unequal = {
            "other tail": ((x, z), ((z, y),)),
            "other head": ((z, y), ((z, x),)),
            "same pair": ((x, y), ()),
            "swapped pair": ((y, x), ()),
        }[self.evidence]
        return Rule((Atom(self.premise, *ends),), Atom(self.hypothesis, x, y), True, unequal)


@dataclass(frozen=True)
class Rule:
    """A Horn clause: premises (the body) and a hypothesis (the head), which can be negated.

    Attributes:
        body: the premises.
        head: the hypothesis.
        negated: whether the hypothesis is negated.
        unequal: pairs of variables that must be different entities. Only rules with a negated hypothesis have them.

    Example:
        >>> x, y = Variable("X"), Variable("Y")
        >>> rule = Rule((Atom("husband", x, y),), Atom("wife", y, x))
        >>> str(rule), rule.pattern, rule.chain
        ('husband(X, Y) => wife(Y, X)', 'inverse', (Step(relation='husband', forward=False),))
    """

    body: tuple[Atom, ...]
    head: Atom
    negated: bool = False
    unequal: tuple[tuple[Variable, Variable], ...] = ()

    @property
    def is_negative(self) -> bool:
        """Whether the rule is negative evidence: its premises count against the hypothesis."""
        return self.negated and bool(self.body)

    @cached_property
    def contradiction(self) -> Contradiction | None:
        """The meaning of negative evidence; None for all other rules.

        Example:
            >>> x, y, z = map(Variable, "XYZ")
            >>> rule = Rule((Atom("born_in", x, z),), Atom("born_in", x, y), True, ((z, y),))
            >>> rule.contradiction
            Contradiction(premise='born_in', hypothesis='born_in', evidence='other tail')
        """
        if not self.is_negative:
            return None
        premise, hypothesis = self.body[0].relation, self.head.relation
        evidence: list[Evidence] = ["swapped pair"]
        evidence += ["other tail", "other head"] if premise == hypothesis else ["same pair"]
        meanings = (Contradiction(premise, hypothesis, each) for each in evidence)
        return next((meaning for meaning in meanings if self.canonical == meaning.rule), None)

    @cached_property
    def chain(self) -> tuple[Step, ...] | None:
        """The steps of the premises, if they are one path from the hypothesis's head to its tail; otherwise None.

        All terms must be different variables.

        Example:
            >>> chain_rule([Step("a", True), Step("b", False)], "c").chain
            (Step(relation='a', forward=True), Step(relation='b', forward=False))
        """
        if self.negated or self.is_formula:
            return None
        atoms_with: dict[Term, list[int]] = defaultdict(list)
        for i, atom in enumerate(self.body):
            for term in {atom.head, atom.tail}:
                atoms_with[term].append(i)
        current, last = self.head.head, -1
        steps: list[Step] = []
        visited = {current}
        for _ in self.body:
            candidates = [i for i in atoms_with[current] if i != last]
            if len(candidates) != 1:
                return None
            last = candidates[0]
            atom = self.body[last]
            forward = atom.head == current
            steps.append(Step(atom.relation, forward))
            current = atom.tail if forward else atom.head
            if current in visited:
                return None
            visited.add(current)
        is_path = bool(steps) and current == self.head.tail
        return tuple(steps) if is_path and all(isinstance(term, Variable) for term in visited) else None

    @cached_property
    def canonical(self) -> "Rule":
        """The same rule with standard variable names. The premises of a chain are also put in order.

        Example:
            >>> a, b = Variable("Man"), Variable("Wife")
            >>> str(Rule((Atom("husband", a, b),), Atom("wife", b, a)).canonical)
            'husband(X, Y) => wife(Y, X)'
        """
        if self.chain is not None:
            return chain_rule(self.chain, self.head.relation)
        if self.is_negative:
            return _renamed(self)
        atoms = (*self.body, self.head)
        variables = dict.fromkeys(variable for atom in atoms for variable in atom.variables)
        names: dict[Term, Term] = dict(zip(variables, _fresh_variables(), strict=False))
        *body, head = (Atom(a.relation, names.get(a.head, a.head), names.get(a.tail, a.tail)) for a in atoms)
        return Rule(tuple(body), head, self.negated)

    @cached_property
    def pattern(self) -> str:
        """The pattern of the rule, one of PATTERNS.

        Example:
            >>> chain_rule([Step("a", True), Step("b", True)], "c").pattern
            'composition'
        """
        head = self.head
        if self.contradiction is not None:
            return "functional" if self.unequal else "disjoint"
        if self.chain is None:
            is_constraint = self.negated and not (self.body or self.unequal) and head.head == head.tail
            if is_constraint and isinstance(head.head, Variable):
                return "irreflexive"
            if self.is_formula:
                return "formula"
            return "constant" if self._has_constant_hypothesis else "general"
        directions, same = [step.forward for step in self.chain], all(s.relation == head.relation for s in self.chain)
        return next((shape.name for shape in CHAIN_SHAPES if shape.matches(directions, same)), "chain")

    @property
    def is_formula(self) -> bool:
        """Whether the premise is a built-in predicate; see `plogicnet.mln.formulas`."""
        if len(self.body) != 1 or not self.body[0].relation.startswith(FORMULA_PREFIX):
            return False
        return self.body[0].relation.removeprefix(FORMULA_PREFIX) in FORMULAS

    @property
    def _has_constant_hypothesis(self) -> bool:
        """Whether the hypothesis is about a variable and a constant, and one premise about the same variable."""
        if self.negated or len(self.body) != 1 or len(self.head.variables) != 1:
            return False
        (premise,), (subject,) = self.body, self.head.variables
        return subject in (premise.head, premise.tail) and premise.head != premise.tail

    def __str__(self) -> str:
        hypothesis = f"not {self.head}" if self.negated else str(self.head)
        conditions = [*map(str, self.body), *(f"{a} != {b}" for a, b in self.unequal)]
        return " & ".join(conditions) + (" => " if self.body else "=> ") + hypothesis


def _renamed(rule: Rule) -> Rule:
    """Return the rule with the variables X, Y, Z, …, those of the hypothesis first. Inequalities begin with the last.

    Example:
        >>> a, b = Variable("A"), Variable("B")
        >>> str(_renamed(Rule((Atom("son", b, a),), Atom("daughter", a, b), True)))
        'son(Y, X) => not daughter(X, Y)'
    """
    atoms = (rule.head, *rule.body)
    variables = dict.fromkeys(variable for atom in atoms for variable in atom.variables)
    names: dict[Term, Variable] = dict(zip(variables, _fresh_variables(), strict=False))
    head, *body = (Atom(a.relation, names.get(a.head, a.head), names.get(a.tail, a.tail)) for a in atoms)
    pairs = (sorted((names.get(a, a), names.get(b, b)), key=str, reverse=True) for a, b in rule.unequal)
    return replace(rule, body=tuple(body), head=head, unequal=tuple((a, b) for a, b in pairs))


def chain_rule(steps: Sequence[Step], relation: str) -> Rule:
    """Return the rule that concludes `relation` between the first and the last entity of a chain.

    Variables are named in the order in which they appear in the text, so equal chains give equal rules.

    Example:
        >>> str(chain_rule([Step("husband", False)], "wife"))
        'husband(X, Y) => wife(Y, X)'
        >>> str(chain_rule([Step("born_in", True), Step("city_of", True)], "nationality"))
        'born_in(X, Y) & city_of(Y, Z) => nationality(X, Z)'
    """
    if not steps:
        raise InputError(f"a chain for {relation!r} must have at least one step, got none")
    ends = [(i, i + 1) if step.forward else (i + 1, i) for i, step in enumerate(steps)]
    nodes = dict.fromkeys(node for pair in ends for node in pair)
    variables = dict(zip(nodes, _fresh_variables(), strict=False))
    body = (
        Atom(step.relation, variables[head], variables[tail]) for step, (head, tail) in zip(steps, ends, strict=True)
    )
    rule = Rule(tuple(body), Atom(relation, variables[0], variables[len(steps)]))
    rule.__dict__["chain"] = tuple(steps)  # Fills the cached property: mining creates thousands of rules.
    return rule


def irreflexive_constraint(relation: str) -> Rule:
    """Return the constraint that excludes r(x, x) for every entity x.

    Example:
        >>> str(irreflexive_constraint("knows"))
        '=> not knows(X, X)'
    """
    x = Variable("X")
    return Rule((), Atom(relation, x, x), negated=True)


def _fresh_variables() -> Iterator[Variable]:
    return map(_variable, itertools.chain("XYZUVW", (f"X{i}" for i in itertools.count(1))))


@cache
def _variable(name: str) -> Variable:
    return Variable(name)


def _format_name(name: str) -> str:
    # Unprintable characters, including lone surrogates, are escaped, so every rule can be written to a file.
    return name if is_plain_word(name) and name.isprintable() else _quote(name)


def _quote(name: str) -> str:
    return '"' + "".join(_escape(c) for c in name) + '"'


def _escape(c: str) -> str:
    if c in '"\\':
        return "\\" + c
    return c if c.isprintable() else c.encode("unicode_escape").decode("ascii")
