"""Rule files in the rule syntax and as tables, validated against a graph."""

from pathlib import Path

import numpy as np
import pytest

from plogicnet.graph import KnowledgeGraph
from plogicnet.rules import (
    RuleTable,
    Statement,
    parse_rule,
    parse_statements,
    read_rule_file,
    read_statements,
    write_statements,
)
from plogicnet.support.errors import InputError

GRAPH = KnowledgeGraph.from_names(
    [("anna", "wife", "ben"), ("ben", "husband", "anna"), ("anna", "mother", "Carl Berg"), ("ben", "father", "dora")]
)
TEXT = """\
# marriage
2.5: husband(X, Y) => wife(Y, X)   # initial weight

=-1: wife(Woman, Man) => husband(Man, Woman)
mother(anna, X) => father(ben, X)
mother(X, "Carl Berg") => father(X, "Carl Berg")
=> not wife(X, X)
"""


def error_message(tmp_path: Path, content: str | bytes) -> str:
    file = tmp_path / "my.rules"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError) as caught:
        read_rule_file(file, GRAPH)
    message = str(caught.value)
    assert message.startswith(str(file))
    return message.removeprefix(str(file))


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_reads_a_file_in_the_rule_syntax(tmp_path: Path, newline: str, mark: str) -> None:
    file = tmp_path / "my.rules"
    file.write_bytes((mark + TEXT.replace("\n", newline)).encode())
    expected = [
        Statement(parse_rule("husband(X, Y) => wife(Y, X)"), 2.5, fixed=False, line=2),
        Statement(parse_rule("wife(Woman, Man) => husband(Man, Woman)"), -1.0, fixed=True, line=4),
        Statement(parse_rule("mother(anna, X) => father(ben, X)"), None, fixed=False, line=5),
        Statement(parse_rule('mother(X, "Carl Berg") => father(X, "Carl Berg")'), None, fixed=False, line=6),
        Statement(parse_rule("=> not wife(X, X)"), None, fixed=False, line=7),
    ]
    assert read_rule_file(file, GRAPH) == expected
    assert parse_statements(TEXT, GRAPH) == expected


def test_a_file_without_rules_raises(tmp_path: Path) -> None:
    (tmp_path / "none.rules").write_text("# nothing\n\n")
    with pytest.raises(InputError, match="the file contains no rules"):
        read_rule_file(tmp_path / "none.rules", GRAPH)


def learned_table() -> RuleTable:
    texts = ("husband(X, Y) => wife(Y, X)", "wife(X, Y) => husband(Y, X)", "mother(X, Y) => father(X, Y)")
    rules = [parse_rule(text) for text in (*texts, "=> not wife(X, X)")]
    nan = float("nan")
    return RuleTable.of(
        rules, [1] * 4, [1] * 4, [1.25, -1.0, 0.5, nan], [2.5, -1.0, nan, nan], [False, True, False, False]
    )


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_reads_the_table_of_a_run(tmp_path: Path, newline: str) -> None:
    """Given weights are kept, learned weights are ignored."""
    file = tmp_path / "rules.tsv"
    learned_table().write(file)
    lines = file.read_text().splitlines()
    lines.insert(2, "")  # empty lines are skipped but numbered
    file.write_bytes(newline.join([*lines, ""]).encode())
    assert [(s.weight, s.fixed, s.line) for s in read_rule_file(file, GRAPH)] == [
        (2.5, False, 2),
        (-1.0, True, 4),
        (None, False, 5),
        (None, False, 6),
    ]
    assert tuple(s.rule for s in read_rule_file(file, GRAPH)) == learned_table().rules


def test_reads_a_mined_table_without_weights(tmp_path: Path) -> None:
    file = tmp_path / "mined.tsv"
    mined = RuleTable.of(learned_table().rules, [3] * 4, [2] * 4)
    mined.write(file)
    assert "given" not in file.read_text()
    statements = read_rule_file(file, GRAPH)
    assert tuple(s.rule for s in statements) == mined.rules
    assert {(s.weight, s.fixed) for s in statements} == {(None, False)}


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ("husbend(X, Y) => wife(Y, X)", 1, "unknown relation 'husbend'. Did you mean 'husband'?"),
        ("husband(X, Y) => wiffe(Y, X)", 18, "unknown relation 'wiffe'. Did you mean 'wife'?"),
        ("mother(X, ana) => father(X, ana)", 11, "unknown entity 'ana'. Did you mean 'anna'?"),
        ('mother(X, "Carl berg") => father(X, X)', 11, "unknown entity 'Carl berg'. Did you mean 'Carl Berg'?"),
        ("=> not qqqqqq(X, X)", 8, "unknown relation 'qqqqqq'."),
        ("husband(X, Y) => wife(Y, Z)", 26, "the variable 'Z' must also be in a premise"),
    ],
)
def test_errors_show_line_and_column(tmp_path: Path, line: str, column: int, message: str) -> None:
    text = "# a comment\n" * 5 + "father(X, Y) => mother(X, Y)\n" + line + "\nnonsense\n"
    assert error_message(tmp_path, text) == f", line 7, column {column}: {message}\n  {line}\n  {' ' * (column - 1)}^"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("husband(X, Y) => wife(Y, X)", "husband(Man, Woman) => wife(Woman, Man)"),
        ("2: mother(X, Y) & father(Y, Z) => wife(X, Z)", "=3: father(B, C) & mother(A, B) => wife(A, C)"),
        ("mother(X, anna) => father(X, anna)", "mother(Who, anna) => father(Who, anna)"),
        ("=> not wife(X, X)", "=> not wife(Y, Y)"),
    ],
)
def test_duplicate_rules_raise_with_any_variable_names(tmp_path: Path, first: str, second: str) -> None:
    message = error_message(tmp_path, f"# rules\n{first}\n\n{second}\n")
    assert message == ", line 4: duplicate of the rule in line 2"
    mirrored = first.replace("wife(", "father(")
    assert mirrored == first or len(parse_statements(f"{first}\n{mirrored}", GRAPH)) == 2


def test_duplicate_rules_in_a_table_raise(tmp_path: Path) -> None:
    table = learned_table()
    table.concat(table.take(np.array([1]))).write(tmp_path / "my.rules")
    assert error_message(tmp_path, (tmp_path / "my.rules").read_bytes()) == ", line 6: duplicate of the rule in line 3"


def test_a_constraint_with_a_weight_raises(tmp_path: Path) -> None:
    message = error_message(tmp_path, "\n=5: => not wife(X, X)")
    assert message == ", line 2: a constraint cannot have a weight. Remove the weight."


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("husbend(X, Y) => wife(Y, X)", "unknown relation 'husbend'. Did you mean 'husband'?"),
        ("mother(X, ana) => father(X, ana)", "unknown entity 'ana'. Did you mean 'anna'?"),
    ],
)
def test_unknown_names_in_a_table_raise(tmp_path: Path, rule: str, message: str) -> None:
    learned_table().concat(RuleTable.of([parse_rule(rule)], [1], [1])).write(tmp_path / "my.rules")
    assert error_message(tmp_path, (tmp_path / "my.rules").read_bytes()) == f", line 6: {message}"


def test_unreadable_files_raise(tmp_path: Path) -> None:
    assert error_message(tmp_path, b"# ren\xe9\n") == ": cannot read the rule file: not UTF-8"
    for path, reason in ((tmp_path / "missing.rules", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(InputError, match=f"cannot read the rule file: {reason}$"):
            read_rule_file(path, GRAPH)


def test_statements_are_read_back_with_weights_and_counts(tmp_path: Path) -> None:
    """A run keeps its written rules in this file until the first EM iteration."""
    statements = [
        Statement(parse_rule("husband(Man, Woman) => wife(Woman, Man)"), -1.5, True, 2),
        Statement(parse_rule('mother(X, "Carl Berg") => father(X, "Carl Berg")'), None, False, 3, (7, 0)),
        Statement(parse_rule("=> not wife(X, X)"), None, False, 4),
    ]
    write_statements(tmp_path / "written.rules", statements)
    assert read_statements(tmp_path / "written.rules", GRAPH) == statements
    write_statements(tmp_path / "written.rules", [])
    assert read_statements(tmp_path / "written.rules", GRAPH) == []
