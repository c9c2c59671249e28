"""The rule syntax: everything printed is read back, and every mistake is shown with a caret."""

import contextlib

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from plogicnet.rules.rule import (
    PATTERNS,
    Atom,
    Constant,
    Rule,
    Step,
    Term,
    Variable,
    chain_rule,
    irreflexive,
)
from plogicnet.rules.syntax import Statement, parse_rule, parse_rules
from plogicnet.support.errors import InputError

# Lone surrogates too, and often what the syntax itself is made of.
characters = st.characters(exclude_categories=()) | st.sampled_from('(),&=>"#:\\\n\r\t\u2028 notXx1')
names = st.text(characters, max_size=8) | st.sampled_from(["not", "2.5", "X", "Paris", ""])
steps = st.lists(st.builds(Step, names, st.booleans()), min_size=1, max_size=10)
weights = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def general_rules(draw: st.DrawFn) -> Rule:
    """Connected premises over few variables and any constants, and a hypothesis over what they bind."""
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


rules = st.builds(chains, steps, names) | st.builds(irreflexive, names) | general_rules()


@given(rules)
def test_printed_rules_are_read_back(rule: Rule) -> None:
    text = str(rule)
    text.encode()  # whatever the names, a file can hold it
    assert len(text.splitlines()) == 1
    assert parse_rule(text) == rule


@given(
    st.lists(st.tuples(rules, st.none() | weights, st.booleans()), max_size=5),
    st.sampled_from(["\n", "\r\n"]),
)
def test_files_are_read_back(lines: list[tuple[Rule, float | None, bool]], newline: str) -> None:
    text, statements = "# rules" + newline, []
    for i, (rule, weight, fixed) in enumerate(lines):
        prefix = "" if weight is None else f"{'=' if fixed else ''}{weight!r}: "
        text += f"\t{prefix}{rule} # why{newline}{newline}"
        statements.append(Statement(rule, weight, fixed and weight is not None, line=2 * i + 2))
    assert parse_rules(text, "f") == statements


@given(st.text(characters) | st.text(st.sampled_from('aX(),&=>"#:\\ \n2.')))
def test_any_text_is_read_or_refused(text: str) -> None:
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


def test_long_rules_are_read_and_recognised() -> None:
    """Not in a time that grows with the square: that would be felt here."""
    steps = tuple(Step("r", i % 3 == 0) for i in range(6_000))
    rule = parse_rule(str(chain_rule(steps, "r")))
    assert rule.chain == steps
    assert rule.renamed == rule
    star = parse_rule(" & ".join(f"r(X, Y{i})" for i in range(6_000)) + " => s(X, Y1)")
    assert star.pattern == "general"
    assert parse_rule(str(star.renamed)) == star.renamed


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
def test_long_texts_are_read_or_refused(text: str) -> None:
    """Each ends at once; a time that grows with the square would be felt here."""
    with contextlib.suppress(InputError):
        for statement in parse_rules(text, "f"):
            assert parse_rule(str(statement.rule.renamed)) == statement.rule.renamed


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
def test_what_nearly_is_a_rule_is_read_or_refused(text: str) -> None:
    try:
        statements = parse_rules(text, "f")
    except InputError as error:
        message, source, caret = str(error).split("\n")
        line, column = (int(part.split()[-1]) for part in message.split(": ")[0].split(", ")[1:])
        assert caret == "  " + " " * (column - 1) + "^"
        assert len(source) - 2 == len(text.split("\n")[line - 1].removesuffix("\r"))
        assert column - 1 <= len(source) - 2
    else:
        for statement in statements:
            assert parse_rule(str(statement.rule)) == statement.rule
            assert statement.rule.pattern in PATTERNS


@given(rules, st.permutations(["A", "B", "X", "Élan", "Man", "W", "X1", "Z", "Y", "U1", "Q"]))
def test_renamed_is_the_same_whatever_the_variables_are_called(rule: Rule, fresh: list[str]) -> None:
    atoms = (*rule.body, rule.head)
    shown = dict.fromkeys(v for atom in atoms for v in atom.variables)
    named: dict[Term, Term] = {old: Variable(new) for old, new in zip(shown, fresh, strict=False)}
    *body, head = (Atom(a.relation, named.get(a.head, a.head), named.get(a.tail, a.tail)) for a in atoms)
    other = Rule(tuple(body), head, rule.negated)
    assert other.renamed == rule.renamed
    assert rule.renamed.renamed == rule.renamed
    assert (rule.renamed.pattern, rule.renamed.chain) == (rule.pattern, rule.chain)
    assert len({v for a in (*rule.renamed.body, rule.renamed.head) for v in a.variables}) == len(shown)
    assert parse_rule(str(rule.renamed)) == rule.renamed


def test_other_rules_stay_apart_when_renamed() -> None:
    texts = (
        "a(X, Y) => b(X, Y)",
        "a(X, Y) => b(Y, X)",
        "a(X, Y) => b(X, X)",
        'a(X, "Y") => b(X, X)',
        "a(Y, X) & a(X, Y) => b(X, Y)",
    )
    assert len({parse_rule(text).renamed for text in texts}) == len(texts)


NEGATION = 'negation stands only before the hypothesis, expected "=> not r(X, X)"'
NOT = ' (a relation of that name is written "not")'
ESCAPES = r"unknown escape, expected one of \\ \" \n \r \t \xHH \uHHHH \UHHHHHHHH"
LOOSE = (
    "no shared variables tie this premise to the first: "
    "every match of the one would pair with every match of the other, expected connected premises"
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
        ("a(X, Y) -> b(Y, X)", 10, "a stray '>', expected an arrow, '=>'"),
        (
            "a\\b(X, Y) => b(Y, X)",
            2,
            r"a stray '\\', expected a name with a backslash to be in double quotes",
        ),
        (
            'a(X, "y) => b(X, X)',
            6,
            "this quote is never closed, expected '\"' before the end of the line",
        ),
        (r'a(X, "\q") => b(X, X)', 7, ESCAPES),
        (r'a(X, "\u12") => b(X, X)', 7, ESCAPES),
        (r'a(X, "\U00110000") => b(X, X)', 7, ESCAPES),
        (
            "ns:a(X, Y) => b(Y, X)",
            1,
            "expected a number before ':', found 'ns' (a name with ':' in it is written in double quotes)",
        ),
        ("= => b(Y, X)", 3, "expected a weight, found '=>'"),
        ("=2.5 a(X, Y) => b(Y, X)", 6, "expected ':' after the weight, found 'a'"),
        ("1e999: a(X, Y) => b(Y, X)", 1, "the weight 1e999 is not finite, expected a finite number"),
        ("=nan: a(X, Y) => b(Y, X)", 2, "the weight nan is not finite, expected a finite number"),
        ("not a(X, Y) => b(Y, X)", 1, NEGATION + NOT),
        ("=> not(X, X)", 4, NEGATION + NOT),
        ("a(X, Y) => not b(X, X)", 16, "a negated hypothesis with premises: " + NEGATION),
        ("=> not b(X, Y)", 8, "a negated hypothesis takes one variable twice, expected r(X, X)"),
        ("=> not b(x, x)", 8, "a negated hypothesis takes one variable twice, expected r(X, X)"),
        ("=> b(X, X)", 4, "a rule without premises, expected at least one before '=>'"),
        (
            "a(X, Y) & b(X, X) => a(X, Y)",
            22,
            "the hypothesis is one of the premises, expected it to say something new",
        ),
        ("a(X, Y) => b(X, Z)", 17, "'Z' is in no premise, expected it in at least one"),
        ("a(X, Y) & b(Z, U) & c(U, V) => r(X, V)", 11, LOOSE),
        ("a(X, paris) & b(paris, Y) => c(X, Y)", 15, LOOSE),
    ],
)
def test_each_mistake_is_shown(line: str, column: int, message: str) -> None:
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
        ("2: a(X, Y) => b(Y, X)", 1, "a weight before it"),
        ("a(X, Y) => b(Y, X)\na(X, Y) => b(X, Y)", 2, "a second one"),
    ],
)
def test_one_rule_is_one_rule(text: str, line: int, found: str) -> None:
    with pytest.raises(InputError, match=f"^rule, line {line}, column 1: expected a single rule .* found {found}\n"):
        parse_rule(text)
