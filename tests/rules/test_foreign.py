"""Rules of AnyBURL, PyClause and AMIE: real files, errors with positions, and round trips with hostile names."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from plogicnet.graph import KnowledgeGraph
from plogicnet.rules import Atom, Constant, Rule, RuleTable, Step, Variable, chain_rule, parse_rule, write_foreign
from plogicnet.rules.amie import format_amie, read_amie
from plogicnet.rules.anyburl import format_anyburl, read_anyburl
from plogicnet.rules.foreign import MAX_LINE_LENGTH, ForeignRule, LeftOut, NotExpressibleError
from plogicnet.rules.rule_files import MAX_PREMISES, read_rule_file
from plogicnet.support.errors import InputError

# Lines that AnyBURL 23-1 wrote. It writes names as they are, and drops entities with one character.
ANYBURL = """\
153\t33\t0.21568627450980393\taffects(X,Y) <= measures(X,A), causes(A,B), result_of(B,Y)
223\t115\t0.515695067264574\tissue_in(X,occupation_or_discipline) <=\x20
60\t14\t0.23333333333333334\tknows(X,{weird}3) <= knows(X,A)
5\t4\t0.8\twife(of)(ben, jr.2,Y) <= wife(of)(Y,ben, jr.4)
17\t7\t0.4117647058823529\t<http://e.org/p>(me_myself_i,Y) <= knows(a\\b2,Y)
8\t8\t1.0\ts => t(X,me_myself_i) <= r,s(X,me2)
59\t14\t0.23728813559322035\tknows(X,a\\b3) <= s => t(X,me_myself_i)
24\t5\t0.20833333333333334\tknows(X,ben, jr.2) <= knows(<http://e.org/a#b>2,X)
12\t3\t0.25\twife(of)(X,Anna (1)0) <= wife(of)(ben, jr.5,X)
19\t7\t0.3684210526315789\t<http://e.org/p>(X,carl "k"5) <= knows(me_myself_i,X)
14\t4\t0.2857142857142857\t<http://e.org/p>(Anna (1)5,Y) <= knows(Y,{weird}1)
"""
ANYBURL_RULES = {
    1: "measures(X, Y) & causes(Y, Z) & result_of(Z, U) => affects(X, U)",
    3: "knows(X, Y) => knows(X, {weird}3)",
    4: '"wife(of)"(X, "ben, jr.4") => "wife(of)"("ben, jr.2", X)',
    5: r'knows("a\\b2", X) => <http://e.org/p>(X, X)'.replace("<http://e.org/p>", '"<http://e.org/p>"'),
    6: '"r,s"(X, me2) => "s => t"(X, X)',
    7: r'"s => t"(X, X) => knows(X, "a\\b3")',
    8: 'knows("<http://e.org/a#b>2", X) => knows(X, "ben, jr.2")',
    9: '"wife(of)"("ben, jr.5", X) => "wife(of)"(X, "Anna (1)0")',
    10: r'knows(X, X) => "<http://e.org/p>"(X, "carl \"k\"5")',
    11: 'knows(X, {weird}1) => "<http://e.org/p>"("Anna (1)5", X)',
}
# The layout of AMIE 3: messages, a header, rows, messages. One rule has a name with a space, one a constant.
AMIE = """\
Assuming <rdf:type> as type relation
Loading files...
  Starting family.tsv
  Finished family.tsv, still running: 0
Loaded 9 facts in 0.01 s using 2 MB
Using HeadCoverage as pruning metric with minimum threshold 0.01
Using recursivity limit 3
MRT calls: 0
Starting the mining phase... Rule\tHead Coverage\tStd Confidence\tPCA Confidence\tPositive Examples\tBody size\tPCA Body size\tFunctional variable
?b  husband  ?a   => ?a  wife  ?b\t0.75\t0.6\t1\t3\t5\t3\t?a
?a  <http://e.org/p>  ?h  ?h  born in  ?b   => ?a  wife  ?b\t0,044692737\t0,012084592\t0,101265823\t8\t662\t79\t?b
?a  born in  New York   => ?a  husband  ?b  \t0.1\t0.1\t0.1\t1\t10\t10\t?a
?a  born in  New York   => ?a  speaks  English\t0.1\t0.1\t0.1\t1\t10\t10\t?a

Mining done in 0.02 s
Total time 0.03 s
4 rules mined.
"""  # noqa: E501


def graph_of(relations: set[str], entities: set[str]) -> KnowledgeGraph:
    return KnowledgeGraph.from_names([(e, r, e) for r in relations | {"r0"} for e in entities | {"e0"}])


def names_in(rules: list[Rule]) -> tuple[set[str], set[str]]:
    atoms = [atom for rule in rules for atom in (*rule.body, rule.head)]
    terms = [term for atom in atoms for term in (atom.head, atom.tail)]
    return {atom.relation for atom in atoms}, {term.name for term in terms if isinstance(term, Constant)}


def test_lines_of_anyburl_are_read() -> None:
    rules = {line: parse_rule(text) for line, text in ANYBURL_RULES.items()}
    graph = graph_of(*names_in(list(rules.values())))
    found = list(read_anyburl(ANYBURL, graph, "f"))
    assert {f.line: f.rule for f in found if isinstance(f, ForeignRule)} == rules
    assert [f for f in found if isinstance(f, LeftOut)] == [LeftOut(2, "without premises")]
    counts = {f.line: f.counts for f in found if isinstance(f, ForeignRule)}
    assert (counts[1], counts[11]) == ((153, 33), (14, 4))


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("speaks(X,english) <= lives(X,london)", "lives(X, london) => speaks(X, english)"),
        ("3\t2\t0.67\tlives(X, Y) <= speaks(Y, X)\r", "speaks(X, Y) => lives(Y, X)"),
        ("3\t2\t0.67\tlives(X,X) <= speaks(A,X)", "speaks(X, Y) => lives(Y, Y)"),
    ],
)
def test_variants_of_pyclause_are_read(line: str, rule: str) -> None:
    graph = graph_of({"speaks", "lives"}, {"english", "london"})
    [found] = read_anyburl(line, graph, "f")
    assert isinstance(found, ForeignRule)
    assert found.rule == parse_rule(rule)


def test_a_table_of_amie_is_read() -> None:
    graph = graph_of({"wife", "husband", "http://e.org/p", "born in", "speaks"}, {"New York", "English"})
    text = AMIE.replace("Starting the mining phase... Rule", "Starting the mining phase...\nRule")
    found = [f for f in read_amie(text, graph, "f") if isinstance(f, ForeignRule)]
    assert [(str(f.rule), f.counts) for f in found] == [
        ("husband(X, Y) => wife(Y, X)", (5, 3)),
        (
            'http://e.org/p(X, Y) & "born in"(Y, Z) => wife(X, Z)'.replace("http://e.org/p", '"http://e.org/p"'),
            (662, 8),
        ),
        ('"born in"(X, "New York") => husband(X, Y)', (10, 1)),
        ('"born in"(X, "New York") => speaks(X, "English")', (10, 1)),
    ]


def test_columns_of_amie_are_found_by_name() -> None:
    graph = graph_of({"wife", "husband"}, set())
    rule = "?b  husband  ?a   => ?a  wife  ?b"
    without_std = "Rule\tHead Coverage\tPCA Confidence\tPositive Examples\tPCA Body size\tFunctional variable"
    texts = {
        f"{without_std}\n{rule}\t0.75\t1\t3\t3\t?a": None,
        f"{rule}\t0.75\t0.6\t1\t3\t5\t3\t?a": (5, 3),
        f"{rule}\t0.75\t0.6\t1\t3\t5\t3\t?a\t0.0\t0.0\t0.0": (5, 3),
        f"{rule}\t0.75\t0.6\t1\t3\t-1\t3\t?a": None,
        rule: None,
        "?b husband ?a => ?a wife ?b": None,
    }
    for text, counts in texts.items():
        [found] = read_amie(text, graph, "f")
        assert isinstance(found, ForeignRule)
        assert (str(found.rule), found.counts) == ("husband(X, Y) => wife(Y, X)", counts)


ERRORS = [
    ("9\t4\t0.4\tr(X,Y) <= s(X,A), (A,Y)", 27, "expected 'head <= body' with atoms such as r(X,Y)"),
    ("9\t4\t0.4\tr(X,Y)", 15, "expected 'head <= body'"),
    ("9\t4\t0.4\tr X,Y <= s(X,Y)", 9, "expected 'head <= body'"),
    ("9\t4\t0.4\tr X <=", 9, "expected a hypothesis such as r(X,name) before '<='"),
    ("9\t4\tr(X,Y) <= s(X,Y)", 1, "expected predictions, correct predictions, confidence and a rule"),
    ("9\tfour\t0.4\tr(X,Y) <= s(X,Y)", 3, "expected a count, found 'four'"),
    ("9\t14\t0.4\tr(X,Y) <= s(X,Y)", 3, "expected at most 9 correct predictions, found 14"),
    ("9\t4\tx\tr(X,Y) <= s(X,Y)", 5, "expected a confidence, found 'x'"),
    ("?a  r  ?b  => ?a  s", 15, "expected one hypothesis of three parts"),
    ("?a  r   => ?a  s  ?b", 1, "expected premises of three parts (head, relation, tail), separated by two spaces"),
    ("?a  r  ?b\t0.1\t0.1\t0.1\t1\t10\t10\t?a", 1, "expected a rule such as"),
    ("?a  r  ?b   => ?a  s  ?b\t0.1\t0.1\t0.1\tone\t10\t10\t?a", 38, "expected a count, found 'one'"),
    (f"9\t4\t0.4\tr(X,{'x' * MAX_LINE_LENGTH}) <= s(X,Y)", MAX_LINE_LENGTH + 1, "a line must have at most 20,000"),
]


@pytest.mark.parametrize(("line", "column", "reason"), ERRORS, ids=[error[2][:30] for error in ERRORS])
def test_a_mistake_is_marked(tmp_path: Path, line: str, column: int, reason: str) -> None:
    good = "4\t3\t0.75\tr(X,Y) <= s(Y,X)" if "?a" not in line else "?b  s  ?a   => ?a  r  ?b"
    file = tmp_path / "theirs.txt"
    file.write_text(f"{good}\n{line}\n")
    with pytest.raises(InputError) as caught:
        read_rule_file(file, graph_of({"r", "s"}, set()))
    message, _, caret = ValueError.__str__(caught.value).split("\n")
    assert message.startswith(f"{file}, line 2, column {column}: {reason}")
    assert caret.endswith("^")
    assert column > 200 or len(caret) == 2 + column


def test_rules_that_cannot_be_used_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = [
        "9\t4\t0.4\tr(X,Y) <= s(Y,X)",
        "9\t4\t0.4\tr(X,me_myself_i) <= s(X,anna)",
        "9\t4\t0.4\tr(me_myself_i,Y) <= s(Y,anna)",
        "9\t4\t0.4\tr(X,anna) <=",
        "9\t4\t0.4\tr(anna,Y) <= ",
        "9\t4\t0.4\tr(X,anna) <= s(X,carl, jr.)",
        "9\t4\t0.4\tt(X,anna) <= s(X,anna)",
        "9\t4\t0.4\tr(X,Y) <= s(X,A)",
        "9\t4\t0.4\tr(X,Y) <= s(X,Y), s(A,B)",
        "9\t4\t0.4\tr(X,Y) <= r(X,Y), s(X,Y)",
        "9\t4\t0.4\tr(X,Y) <= " + ", ".join(["s(X,A)", *["s(A,A)"] * MAX_PREMISES, "s(A,Y)"]),
    ]
    file = tmp_path / "rules-100"
    file.write_text("\n".join(lines))
    with caplog.at_level(logging.WARNING):
        statements = read_rule_file(file, graph_of({"r", "s"}, {"anna"}))
    assert [(str(s.rule), s.line, s.file_counts, s.weight) for s in statements] == [
        ("s(X, Y) => r(Y, X)", 1, (9, 4), None),
        ("s(X, anna) => r(X, X)", 2, (9, 4), None),
    ]
    [record] = caplog.records
    assert record.message == (
        f"{file}: 2 of 11 rules used. Left out: 1 rule equal to an earlier rule (first: line 3); 2 rules without"
        " premises (first: line 4); 2 rules with a name that the graph does not contain (first: line 6: 'carl, jr.');"
        " 3 rules that no engine can ground (first: line 8: the variable 'Z' must also be in a premise); 1 rule with"
        " more than 100 premises (first: line 11)."
    )
    file.write_text("9\t4\t0.4\tr(X,anna) <= \n")
    with pytest.raises(InputError, match=r"no rule can be used. Left out: 1 rule without premises \(first: line 1\)"):
        read_rule_file(file, graph_of({"r"}, {"anna"}))
    file.write_text("?a  s  ?b  ?a!=?b  => ?a  r  ?b\n?a  s  ?b   => ?b  r  ?a\n => ?a  r  ?b\n")
    assert [s.line for s in read_rule_file(file, graph_of({"r", "s"}, set()))] == [2]
    assert "1 rule with an inequality (first: line 1); 1 rule without premises (first: line 3)" in caplog.text


def test_the_format_is_found_from_the_first_rule(tmp_path: Path) -> None:
    graph = graph_of({"r", "s"}, {"a <= b", "?a"})
    file = tmp_path / "rules"
    texts = {
        "# r(X,Y) <= s(X,Y)\n\nr(X, Y) => s(Y, X)": "r(X, Y) => s(Y, X)",
        's(X, "a <= b") => r(X, X)': 's(X, "a <= b") => r(X, X)',
        "r(X, ?a)   => s(?a, X)": "r(X, ?a) => s(?a, X)",
        "\ufeffs(X,Y) <= r(Y,X)": "r(X, Y) => s(Y, X)",
        "Using 2 threads\n\n?a  r  ?b   => ?b  s  ?a": "r(X, Y) => s(Y, X)",
        "?a  r  ?b   => ?b  s  ?a\t0.1": None,
    }
    for text, rule in texts.items():
        file.write_bytes(text.encode())
        if rule is None:
            read = read_rule_file(file, graph)
            assert read[0].file_counts is None
        else:
            assert [str(s.rule) for s in read_rule_file(file, graph)] == [rule]


# Round trips

characters = st.characters(exclude_categories=()) | st.sampled_from('(),<=>?!"\\\n\t  _XYab')
pieces = st.sampled_from(["), ", "(X,", ",Y)", " <= ", "me_myself_i", "   => ", "  ", "?a", "X", "ab", "<p>", "p"])
hostile = st.lists(st.text(characters, max_size=4) | pieces, max_size=4).map("".join)
allowed = ["knows", "born in", "New York", "s=>t", "r,s", "<p>", "a)", "b,", "AZ", "not", "2.5", "a <=", "X,ab", "q?"]
names = st.sampled_from(allowed) | st.sampled_from([*allowed, "Anna (1)", "ben,jr"]) | hostile


@st.composite
def path_rules(draw: st.DrawFn, names: st.SearchStrategy[str] = names) -> Rule:
    """Draw a rule in one of AnyBURL's shapes: a chain, a path with constants, or a loop."""
    steps = draw(st.lists(st.builds(Step, names, st.booleans()), min_size=1, max_size=5))
    shape, relation = draw(st.sampled_from(["chain", "path", "loop"])), draw(names)
    chain = chain_rule(steps[: 1 if shape == "loop" else None], relation)
    if shape == "chain":
        return chain
    first, last = chain.head.head, chain.head.tail
    constant = draw(st.none() | names)
    end = last if constant is None else Constant(constant)
    swap = {last: end}
    body = tuple(Atom(a.relation, swap.get(a.head, a.head), swap.get(a.tail, a.tail)) for a in chain.body)
    other = first if shape == "loop" else Constant(draw(names))
    head = Atom(relation, *((first, other) if draw(st.booleans()) else (other, first)))
    return Rule(body, head).canonical


@st.composite
def horn_rules(draw: st.DrawFn) -> Rule:
    """Draw a rule with any atoms."""
    terms = st.sampled_from([Variable(name) for name in "XYZ"]) | st.builds(Constant, names)
    atoms = st.builds(Atom, names, terms, terms)
    return Rule(tuple(draw(st.lists(atoms, min_size=1, max_size=4))), draw(atoms))


def read_back(
    line: str, rule: Rule, decoys: list[str], reader: Callable[..., Iterator[ForeignRule | LeftOut]]
) -> ForeignRule:
    relations, entities = names_in([rule])
    extra = {name for name in decoys if name}
    [found] = reader(line, graph_of(relations | extra, entities | extra), "f")
    assert isinstance(found, ForeignRule), found
    return found


def is_refused(rule: Rule, writer: Callable[[Rule, int, int], str]) -> bool:
    try:
        writer(rule, 4, 3)
    except NotExpressibleError:
        return True
    return False


@given(path_rules(), st.lists(hostile, max_size=5))
def test_paths_survive_anyburl(rule: Rule, decoys: list[str]) -> None:
    assume(not is_refused(rule, format_anyburl))
    found = read_back(format_anyburl(rule, 40, 30), rule, decoys, read_anyburl)
    assert (found.rule, found.counts) == (rule, (40, 30))


@given(path_rules() | horn_rules(), st.lists(hostile, max_size=5))
def test_rules_survive_amie(rule: Rule, decoys: list[str]) -> None:
    assume(not is_refused(rule, format_amie))
    found = read_back(format_amie(rule, 40, 30), rule, decoys, read_amie)
    assert (found.rule, found.counts) == (rule.canonical, (40, 30))


@given(horn_rules(), st.permutations(range(4)))
def test_anyburl_writes_premises_in_the_order_of_the_path(rule: Rule, order: list[int]) -> None:
    """Writing what was read gives the same line, and the premises are the same."""
    rule = Rule(tuple(rule.body[i] for i in order if i < len(rule.body)), rule.head)
    if not is_refused(rule, format_anyburl):
        line = format_anyburl(rule, 4, 3)
        again = read_back(line, rule, [], read_anyburl).rule
        assert format_anyburl(again, 4, 3) == line
        assert sorted(a.relation for a in again.body) == sorted(a.relation for a in rule.body)


plain = st.text(st.sampled_from("abcYZ_/.:'é"), min_size=2, max_size=9)


@given(path_rules(plain))
def test_plain_names_are_never_refused(rule: Rule) -> None:
    assert not is_refused(rule, format_anyburl)
    assert not is_refused(rule, format_amie)


REFUSED = [
    ("=> not r(X, X)", "anyburl", "with the pattern irreflexive"),
    ("=> not r(X, X)", "amie", "with the pattern irreflexive"),
    ("r(X, Z) & Z != Y => not r(X, Y)", "anyburl", "with the pattern functional"),
    ("r(Y, X) => not r(X, Y)", "amie", "with the pattern disjoint"),
    ("r(X, Y) & s(X, Z) & t(Y, Z) => r(Y, X)", "anyburl", "whose premises are not a path"),
    ("r(X, Y) & s(X, Z) => t(Y, Y)", "anyburl", "whose premises are not a path"),
    ("r(X, X) => t(X, anna)", "anyburl", "whose premises are not a path"),
    ("r(X, Y) => t(anna, ben)", "anyburl", "whose premises are not a path"),
    ("r(X, anna) & s(X, Y) => t(X, Y)", "anyburl", "whose premises are not a path"),
    ('"r(s)"(X, Y) => t(Y, X)', "anyburl", "with a name that breaks the format"),
    ('r(X, "anna, sr.") => t(X, X)', "anyburl", "with a name that breaks the format"),
    ('r(X, "A") => t(X, X)', "anyburl", "with a name that breaks the format"),
    ('r(X, "DE") => t(X, X)', "anyburl", "with a name that breaks the format"),
    ('r("Xena", X) => t(X, X)', "anyburl", "with a name that breaks the format"),
    ("r(X, me_myself_i) => t(X, X)", "anyburl", "with a name that breaks the format"),
    ('r(X, "ben,Y") => t(X, X)', "anyburl", "with a name that breaks the format"),
    ('r(X, "a  b") => t(X, X)', "amie", "with a name that breaks the format"),
    ("r(X, ?a) => t(X, X)", "amie", "with a name that breaks the format"),
]


@pytest.mark.parametrize(("text", "file_format", "reason"), REFUSED)
def test_rules_that_a_format_cannot_express_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, file_format: str, reason: str
) -> None:
    rules = [parse_rule("husband(X, Y) => wife(Y, X)"), parse_rule(text)]
    table, file = RuleTable.of(rules, [4, 4], [3, 3]), tmp_path / "theirs"
    with caplog.at_level(logging.WARNING):
        assert write_foreign(table, file, file_format) == {reason: 1}
    assert f"1 of 2 rules written. Left out: 1 rule {reason} (first: " in caplog.text
    assert len(file.read_text().splitlines()) == (2 if file_format == "amie" else 1)
    with pytest.raises(InputError, match="no rule can be written in this format"):
        write_foreign(table.take(np.array([1])), file, file_format)


def test_files_have_the_layout_of_the_programs(tmp_path: Path) -> None:
    texts = ["husband(X, Y) => wife(Y, X)", "lives(X, london) => speaks(english, X)", "a(X, Y) & b(Z, Y) => c(X, Z)"]
    table = RuleTable.of([parse_rule(text) for text in texts], [4, 0, 153], [3, 0, 33])
    write_foreign(table, tmp_path / "anyburl", "anyburl")
    assert (tmp_path / "anyburl").read_text() == (
        "4\t3\t0.75\twife(X,Y) <= husband(Y,X)\n"
        "0\t0\t0.0\tspeaks(english,Y) <= lives(Y,london)\n"
        "153\t33\t0.21568627450980393\tc(X,Y) <= a(X,A), b(Y,A)\n"
    )
    write_foreign(table, tmp_path / "amie", "amie")
    assert (tmp_path / "amie").read_text() == (
        "Rule\tHead Coverage\tStd Confidence\tPCA Confidence\tPositive Examples\tBody size\tPCA Body size"
        "\tFunctional variable\n"
        "?b  husband  ?a   => ?a  wife  ?b\tNaN\t0.75\tNaN\t3\t4\tNaN\t?a\n"
        "?a  lives  london   => english  speaks  ?a\tNaN\t0\tNaN\t0\t0\tNaN\t?a\n"
        "?a  a  ?c  ?b  b  ?c   => ?a  c  ?b\tNaN\t0.215686275\tNaN\t33\t153\tNaN\t?a\n"
    )
