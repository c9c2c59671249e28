"""The rule syntax: printed rules are parsed back, and errors point at the wrong character."""

import contextlib
from typing import Any, get_args

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from plogicnet.rules.rule import (
    PATTERNS,
    Atom,
    Constant,
    Contradiction,
    Evidence,
    Rule,
    Step,
    Term,
    Variable,
    chain_rule,
    irreflexive_constraint,
)
from plogicnet.rules.syntax import MAX_SHOWN_LENGTH, Statement, parse_rule, parse_rules
from plogicnet.support.errors import InputError

# Includes lone surrogates. Characters of the syntax are frequent.
characters = st.characters(exclude_categories=()) | st.sampled_from('(),&=>"#:\\\n\r\t\u2028 notXx1')
names = st.text(characters, max_size=8) | st.sampled_from(["not", "2.5", "X", "Paris", ""])
steps = st.lists(st.builds(Step, names, st.booleans()), min_size=1, max_size=10)
weights = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def general_rules(draw: st.DrawFn) -> Rule:
    """Draw a rule with connected premises over few variables and any constants."""
    pool = [Variable(name) for name in ("X", "Y", "Élan", "Z9")]
    bound = [pool[0]]
    body = []
    for _ in range(draw(st.integers(1, 5))):
        ends = [draw(st.sampled_from(bound)), draw(st.sampled_from(pool) | st.builds(Constant, names))]
        head, tail = draw(st.permutations(ends))
        body.append(Atom(draw(names), head, tail))
        bound += body[-1].variables
    terms = st.sampled_from(bound) | st.builds(Constant, names)
    hypothesis = Atom(draw(names), draw(terms), draw(terms))
    assume(hypothesis not in body)
    return Rule(tuple(body), hypothesis)


def chains(path: list[Step], relation: str) -> Rule:
    assume(path != [Step(relation, True)])
    return chain_rule(path, relation)


def negative(premise: str, hypothesis: str, evidence: Evidence) -> Rule:
    if evidence != "swapped pair":
        assume((premise == hypothesis) == evidence.startswith("other"))
    return Contradiction(premise, hypothesis, evidence).rule


evidence = st.sampled_from(get_args(Evidence))
positive_rules = st.builds(chains, steps, names) | st.builds(irreflexive_constraint, names) | general_rules()
negative_rules = st.tuples(names, names).flatmap(
    lambda pair: st.builds(negative, st.sampled_from(pair), st.just(pair[0]), evidence)
)
rules = positive_rules | negative_rules


@given(rules)
def test_printed_rules_are_parsed_back(rule: Rule) -> None:
    text = str(rule)
    text.encode()  # any name can be written to a file
    assert len(text.splitlines()) == 1
    assert parse_rule(text) == rule
    assert [statement.rule for statement in parse_rules(text, "")] == [rule]  # without the shortcut for plain texts


@given(
    st.lists(st.tuples(rules, st.none() | weights, st.booleans()), max_size=5),
    st.sampled_from(["\n", "\r\n"]),
)
def test_printed_statements_are_parsed_back(lines: list[tuple[Rule, float | None, bool]], newline: str) -> None:
    text, statements = "# rules" + newline, []
    for i, (rule, weight, fixed) in enumerate(lines):
        prefix = "" if weight is None else f"{'=' if fixed else ''}{weight!r}: "
        text += f"\t{prefix}{rule} # why{newline}{newline}"
        statements.append(Statement(rule, weight, fixed and weight is not None, line=2 * i + 2))
    assert parse_rules(text, "f") == statements


@given(st.text(characters) | st.text(st.sampled_from('aX(),&=>"#:\\ \n2.')))
def test_any_text_parses_or_raises_input_error(text: str) -> None:
    try:
        parse_rules(text, "f")
    except InputError as error:
        message, _, caret = str(error).split("\n")
        column = int(message.split(":")[0].rsplit(" ", 1)[1])
        assert caret == "  " + " " * (column - 1) + "^"
        str(error).encode()


def test_unquoted_capitals_are_variables() -> None:
    rule = parse_rule(r'/a/b(X, "X")&_c( X,paris )=>"d e"(X, "\x41\u0042\U00000043")')
    x = Variable("X")
    body = Atom("/a/b", x, Constant("X")), Atom("_c", x, Constant("paris"))
    assert rule == Rule(body, Atom("d e", x, Constant("ABC")))


def test_long_rules_are_parsed_in_linear_time() -> None:
    """Quadratic time would be too slow for this length."""
    steps = tuple(Step("r", i % 3 == 0) for i in range(6_000))
    rule = parse_rule(str(chain_rule(steps, "r")))
    assert rule.chain == steps
    assert rule.canonical == rule
    star = parse_rule(" & ".join(f"r(X, Y{i})" for i in range(6_000)) + " => s(X, Y1)")
    assert star.pattern == "general"
    assert parse_rule(str(star.canonical)) == star.canonical


LONG = 100_000


@pytest.mark.parametrize(
    "text",
    [
        '"' * LONG,
        '"' * (LONG + 1),
        '"' + r"\"" * LONG,
        '"' + r"\n" * LONG + '"(X, Y) => r(Y, X)',
        '"' + r"\U0001F600é" * LONG + '"(X, Y) => r(Y, X)',
        "\\" * LONG,
        "&" * LONG,
        "(" * LONG,
        "=" * LONG,
        "=>" * LONG,
        ":" * LONG,
        "9" * LONG + ": r(X, Y) => s(X, Y)",
        "0." + "3" * LONG + ": r(X, Y) => s(X, Y)",
        " " * LONG + "#" * LONG,
        "\t" * LONG + "r",
        "not " * LONG,
        "r(X, Y) & " * (LONG // 20) + "r(X, Y) => s(X, Y)",
        " & ".join(f"r(X{i}, Y{i})" for i in range(LONG // 15)) + " => s(X0, Y0)",
        " & ".join("r(a, b)" for _ in range(LONG // 10)) + " => s(a, b)",
        "X" * LONG + "(X, Y) => s(X, " + "Z" * LONG + ")",
        "\n" * LONG,
        "r(X, Y) => s(Y, X)\n" * (LONG // 40),
    ],
    ids=lambda text: text[:12],
)
def test_long_texts_parse_or_raise_in_linear_time(text: str) -> None:
    """Quadratic time would be too slow for this length."""
    with contextlib.suppress(InputError):
        for statement in parse_rules(text, "f"):
            assert parse_rule(str(statement.rule.canonical)) == statement.rule.canonical


SYNTAX = 'aXY12.-_(),&=>"#:\\ \t\n\rnot'
PIECES = (
    "a(X, Y)",
    "b(Y, Z)",
    "c(X, anna)",
    " & ",
    " => ",
    "not ",
    "=2.5: ",
    "1e9:",
    '"d\\u00e9"',
    "# why",
    "\n",
    "(",
    ")",
    "=",
)


@settings(max_examples=300, deadline=None)
@given(st.text(SYNTAX, max_size=200) | st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_almost_valid_rules_parse_or_raise_with_a_position(text: str) -> None:
    try:
        statements = parse_rules(text, "f")
    except InputError as error:
        message, source, caret = str(error).split("\n")
        line, column = (int(part.split()[-1]) for part in message.split(": ")[0].split(", ")[1:])
        length = len(text.split("\n")[line - 1].removesuffix("\r"))
        start = max(0, column - 1 - MAX_SHOWN_LENGTH // 2) if length > MAX_SHOWN_LENGTH else 0
        assert caret == "  " + " " * (column - 1 - start) + "^"
        assert len(source) - 2 == min(length - start, MAX_SHOWN_LENGTH)
        assert column - 1 <= length
    else:
        for statement in statements:
            assert parse_rule(str(statement.rule)) == statement.rule
            assert statement.rule.pattern in PATTERNS


@given(rules, st.permutations(["A", "B", "X", "Élan", "Man", "W", "X1", "Z", "Y", "U1", "Q"]), st.booleans())
def test_canonical_does_not_depend_on_variable_names(rule: Rule, fresh: list[str], swap: bool) -> None:
    atoms = (*rule.body, rule.head)
    variables = dict.fromkeys(v for atom in atoms for v in atom.variables)
    named: dict[Term, Any] = {old: Variable(new) for old, new in zip(variables, fresh, strict=False)}
    *body, head = (Atom(a.relation, named.get(a.head, a.head), named.get(a.tail, a.tail)) for a in atoms)
    unequal = tuple((named[b], named[a]) if swap else (named[a], named[b]) for a, b in rule.unequal)
    other = Rule(tuple(body), head, rule.negated, unequal)
    assert other.canonical == rule.canonical
    assert rule.canonical.canonical == rule.canonical
    assert (other.pattern, other.chain, other.contradiction) == (rule.pattern, rule.chain, rule.contradiction)
    assert (rule.canonical.pattern, rule.canonical.chain) == (rule.pattern, rule.chain)
    assert len({v for a in (*rule.canonical.body, rule.canonical.head) for v in a.variables}) == len(variables)
    assert parse_rule(str(rule.canonical)) == rule.canonical


def test_canonical_distinguishes_different_rules() -> None:
    texts = (
        "a(X, Y) => b(X, Y)",
        "a(X, Y) => b(Y, X)",
        "a(X, Y) => b(X, X)",
        'a(X, "Y") => b(X, X)',
        "a(Y, X) & a(X, Y) => b(X, Y)",
    )
    assert len({parse_rule(text).canonical for text in texts}) == len(texts)


NEGATION = (
    "'not' is allowed only after '=>', expected \"=> not r(X, X)\" or one premise as in \"s(X, Y) => not r(X, Y)\"."
    " If a relation is called 'not', write its name in double quotes."
)
CONSTRAINT = 'a constraint must have the same variable twice, expected "=> not r(X, X)"'
EXPECTED = 'expected "s(X, Y)", "s(Y, X)", "r(X, Z) & Z != Y" or "r(Z, Y) & Z != X" before "=> not r(X, Y)"'
CONDITION = f"a negated hypothesis does not allow this condition, {EXPECTED}"
ESCAPES = r"unknown escape, expected one of \\ \" \n \r \t \xHH \uHHHH \UHHHHHHHH"
DISCONNECTED = (
    "no shared variables connect this premise to the first one. "
    "Connect them, because otherwise every match of one would be combined with every match of the other."
)


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ("a(X, Y)", 8, "expected '&' or '=>', found the end of the line"),
        ("a(X, Y) =>", 11, "expected a relation, found the end of the line"),
        ("a(X, Y) b(Y, X)", 9, "expected '&' or '=>', found 'b'"),
        ("a => b(Y, X)", 3, "expected '(' after the relation, found '=>'"),
        ("a(X Y) => b(Y, X)", 5, "expected ',' between the arguments, found 'Y'"),
        ("a(X, ) => b(Y, X)", 6, "expected an argument, found ')'"),
        ("a(X, Y => b(Y, X)", 8, "expected ')' after the second argument, found '=>'"),
        ("a(X, Y) => b(Y, X) & c(X, Y)", 20, "expected the end of the line, found '&'"),
        ("a(X, Y) -> b(Y, X)", 10, "unexpected '>': expected '=>'"),
        (
            "a\\b(X, Y) => b(Y, X)",
            2,
            r"unexpected '\\': a name with a backslash must be in double quotes",
        ),
        (
            'a(X, "y) => b(X, X)',
            6,
            "unclosed quote, expected '\"' before the end of the line",
        ),
        (r'a(X, "\q") => b(X, X)', 7, ESCAPES),
        (r'a(X, "\u12") => b(X, X)', 7, ESCAPES),
        (r'a(X, "\U00110000") => b(X, X)', 7, ESCAPES),
        (
            "ns:a(X, Y) => b(Y, X)",
            1,
            "expected a number before ':', found 'ns'. A name with ':' must be in double quotes.",
        ),
        ("= => b(Y, X)", 3, "expected a weight, found '=>'"),
        ("=2.5 a(X, Y) => b(Y, X)", 6, "expected ':' after the weight, found 'a'"),
        ("1e999: a(X, Y) => b(Y, X)", 1, "the weight must be finite, got 1e999"),
        ("=nan: a(X, Y) => b(Y, X)", 2, "the weight must be finite, got nan"),
        ("not a(X, Y) => b(Y, X)", 1, NEGATION),
        ("=> not(X, X)", 4, NEGATION),
        ("a(X, Y) => not b(X, X)", 16, 'expected two different variables in "not r(X, Y)"'),
        ("a(X, c) => not b(X, c)", 16, 'expected two different variables in "not r(X, Y)"'),
        ("a(X, X) => not b(X, Y)", 1, CONDITION),
        ("a(X, Y) => not a(X, Y)", 1, CONDITION),
        ("a(X, Z) & Z != Y => not b(X, Y)", 1, CONDITION),
        ("a(X, Z) & X != Y => not a(X, Y)", 11, CONDITION),
        (
            "a(X, Y) & b(X, Y) => not c(X, Y)",
            11,
            f"a rule with a negated hypothesis must have one premise, {EXPECTED}",
        ),
        ("Z != Y => not b(X, X)", 1, CONSTRAINT),
        (
            "a(X, Y) & X != Y => b(X, Y)",
            11,
            f"an inequality is allowed only before a negated hypothesis, {EXPECTED}",
        ),
        ("a(X, Z) & Z != c => not a(X, c)", 16, "expected a variable in an inequality, found 'c'"),
        ("a(X, Z) & Z != => not a(X, Y)", 16, "expected a variable after '!=', found '=>'"),
        ("=> not b(X, Y)", 8, CONSTRAINT),
        ("=> not b(x, x)", 8, CONSTRAINT),
        ("=> b(X, X)", 4, "a rule must have at least one premise before '=>'"),
        ("a(X, Y) & b(X, X) => a(X, Y)", 22, "the hypothesis must not be one of the premises"),
        ("a(X, Y) => b(X, Z)", 17, "the variable 'Z' must also be in a premise"),
        ("a(X, Y) & b(Z, U) & c(U, V) => r(X, V)", 11, DISCONNECTED),
        ("a(X, paris) & b(paris, Y) => c(X, Y)", 15, DISCONNECTED),
    ],
)
def test_errors_show_message_and_caret(line: str, column: int, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_rules(f"# first\n{line}\n", "my.rules")
    expected = f"my.rules, line 2, column {column}: {message}\n  {line}\n  {' ' * (column - 1)}^"
    assert str(caught.value) == expected


def test_tabs_do_not_move_the_caret() -> None:
    with pytest.raises(InputError) as caught:
        parse_rules("\ta(X,\tY)\r\n", "f")
    assert str(caught.value) == (
        "f, line 1, column 9: expected '&' or '=>', found the end of the line\n   a(X, Y)\n          ^"
    )


@pytest.mark.parametrize(
    ("text", "line", "found"),
    [
        ("# nothing", 1, "none"),
        ("2: a(X, Y) => b(Y, X)", 1, "a weight"),
        ("a(X, Y) => b(Y, X)\na(X, Y) => b(X, Y)", 2, "another rule"),
    ],
)
def test_parse_rule_accepts_only_a_single_rule(text: str, line: int, found: str) -> None:
    with pytest.raises(InputError, match=f"^rule, line {line}, column 1: expected a single rule, found {found}\n"):
        parse_rule(text)
