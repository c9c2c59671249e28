"""Rules: recognition of chains, patterns, and printing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plogicnet.rules.rule import (
    PATTERNS,
    Atom,
    Constant,
    Rule,
    Step,
    Variable,
    chain_rule,
    irreflexive_constraint,
)
from plogicnet.support.errors import InputError

X, Y, Z = map(Variable, "XYZ")
steps = st.lists(st.builds(Step, st.sampled_from(["a", "b", "c"]), st.booleans()), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("path", "text", "pattern"),
    [
        ([("a", True)], "a(X, Y) => r(X, Y)", "subrelation"),
        ([("a", False)], "a(X, Y) => r(Y, X)", "inverse"),
        ([("r", False)], "r(X, Y) => r(Y, X)", "symmetric"),
        ([("a", True), ("b", True)], "a(X, Y) & b(Y, Z) => r(X, Z)", "composition"),
        ([("r", True), ("r", True)], "r(X, Y) & r(Y, Z) => r(X, Z)", "composition"),
        ([("a", False), ("b", False)], "a(X, Y) & b(Z, X) => r(Y, Z)", "chain"),
        ([("a", True)] * 3, "a(X, Y) & a(Y, Z) & a(Z, U) => r(X, U)", "chain"),
    ],
)
def test_text_and_pattern_of_chain_rules(path: list[tuple[str, bool]], text: str, pattern: str) -> None:
    rule = chain_rule([Step(*step) for step in path], "r")
    assert (str(rule), rule.pattern) == (text, pattern)


def test_variable_names_never_run_out() -> None:
    rule = chain_rule([Step("a", True)] * 8, "r")
    assert [atom.tail for atom in rule.body] == [Variable(v) for v in ("Y", "Z", "U", "V", "W", "X1", "X2", "X3")]


def test_irreflexive_constraint() -> None:
    rule = irreflexive_constraint("knows")
    assert (str(rule), rule.pattern, rule.chain) == ("=> not knows(X, X)", "irreflexive", None)


@given(steps, st.randoms(use_true_random=False))
def test_chain_is_found_in_any_order_of_the_premises(path: list[Step], random: object) -> None:
    rule = chain_rule(path, "r")
    body = list(rule.body)
    random.shuffle(body)  # type: ignore[attr-defined]
    assert rule.chain == Rule(tuple(body), rule.head).chain == tuple(path)
    assert rule.pattern in PATTERNS


@pytest.mark.parametrize(
    "rule",
    [
        Rule((Atom("a", X, Y),), Atom("r", X, X)),
        Rule((Atom("a", X, X),), Atom("r", X, X)),
        Rule((Atom("a", X, Y), Atom("b", Y, X)), Atom("r", X, X)),
        Rule((Atom("a", X, Y), Atom("b", X, Y)), Atom("r", X, Y)),
        Rule((Atom("a", X, Y), Atom("a", X, Y)), Atom("r", X, Y)),
        Rule((Atom("a", X, Y), Atom("b", Y, Y)), Atom("r", X, Y)),
        Rule((Atom("a", X, Y), Atom("b", Y, Z)), Atom("r", X, Y)),
        Rule((Atom("a", X, Constant("c")), Atom("b", Constant("c"), Z)), Atom("r", X, Z)),
        Rule((Atom("a", X, Y), Atom("b", X, Y)), Atom("r", X, Y), negated=True),
        Rule((Atom("r", X, Y),), Atom("r", X, Y), negated=True),
        Rule((Atom("r", X, Z),), Atom("r", X, Y), negated=True),
        Rule((), Atom("r", X, Y)),
        Rule((), Atom("r", Constant("c"), Constant("c")), negated=True),
    ],
    ids=str,
)
def test_rules_that_are_not_chains_are_general(rule: Rule) -> None:
    assert (rule.chain, rule.pattern) == (None, "general")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("/people/person", "/people/person"),
        ("Paris", '"Paris"'),
        ("", '""'),
        ("new york", '"new york"'),
        ("a:b", '"a:b"'),
        ('say "hi"\\', r'"say \"hi\"\\"'),
        ("tab\tline\n", r'"tab\tline\n"'),
        ("\ud800\u2028", r'"\ud800\u2028"'),
        ("zoë", "zoë"),
    ],
)
def test_names_are_quoted_only_if_needed(name: str, text: str) -> None:
    assert str(Constant(name)) == text


def test_a_relation_called_not_is_quoted() -> None:
    assert str(Atom("not", Constant("not"), X)) == '"not"(not, X)'


@pytest.mark.parametrize("name", ["", "x", "_X", "X Y", "X)"])
def test_invalid_variable_names_raise(name: str) -> None:
    with pytest.raises(InputError, match="a variable must be a word"):
        Variable(name)


def test_a_chain_without_steps_raises() -> None:
    with pytest.raises(InputError, match="at least one step"):
        chain_rule([], "r")
