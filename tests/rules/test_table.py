"""Rule tables: columns, order, and the TSV file that gives every rule back."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plogicnet.errors import InputError
from plogicnet.rules import Rule, RuleTable, Step, chain_rule, irreflexive, parse_rule

names = st.one_of(
    st.sampled_from(["r", "born in", "/people/person", 'a"b\\', "not", "tab\there", "\n", "É", "北京"]), st.text()
)
steps = st.lists(st.builds(Step, names, st.booleans()), min_size=1, max_size=3)
chain_rules = st.builds(chain_rule, steps, names).filter(lambda rule: rule.head not in rule.body)  # which says nothing
rules = st.one_of(chain_rules, st.builds(irreflexive, names))
count = st.integers(0, 10**12)
weight = st.one_of(st.just(float("nan")), st.floats(allow_nan=False, allow_infinity=False))
table_rows = st.lists(st.tuples(rules, count, count, weight), max_size=5)

EXAMPLE = RuleTable.of(
    [
        parse_rule("a(X, Y) => a(Y, X)"),
        parse_rule("=> not a(X, X)"),
        parse_rule("a(X, Y) & b(Y, Z) => c(X, Z)"),
        parse_rule("a(X, Y) => b(Y, X)"),
        parse_rule("b(X, Y) => a(Y, X)"),
    ],
    support=[4, 10, 3, 8, 0],
    hits=[3, 10, 3, 2, 0],
    weight=[0.5, float("nan"), 2.5, -1.0, 0.5],
)


def table(rows: list[tuple[Rule, int, int, float]]) -> RuleTable:
    return RuleTable.of(*([row[i] for row in rows] for i in range(4)))  # type: ignore[arg-type]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table_rows)
def test_a_file_gives_the_table_back(tmp_path: Path, rows: list[tuple[Rule, int, int, float]]) -> None:
    written = table(rows)
    written.write(tmp_path / "rules.tsv")
    read = RuleTable.read(tmp_path / "rules.tsv")
    assert read.rules == written.rules
    for column in ("support", "hits", "weight", "precision"):
        np.testing.assert_array_equal(getattr(read, column), getattr(written, column))
    assert [file.name for file in tmp_path.iterdir()] == ["rules.tsv"]


def test_the_file_is_what_it_says(tmp_path: Path) -> None:
    EXAMPLE.take(np.array([0, 1])).write(tmp_path / "rules.tsv")
    assert (tmp_path / "rules.tsv").read_text().splitlines() == [
        "pattern\trule\tsupport\thits\tprecision\tweight",
        "symmetric\ta(X, Y) => a(Y, X)\t4\t3\t0.75\t0.5",
        "irreflexive\t=> not a(X, X)\t10\t10\t1.0\t",
    ]


def test_rows_for_json() -> None:
    assert EXAMPLE.rows()[1] == {
        "pattern": "irreflexive",
        "rule": "=> not a(X, X)",
        "support": 10,
        "hits": 10,
        "precision": 1.0,
        "weight": None,
    }


def test_precision_and_constraints() -> None:
    assert EXAMPLE.precision.tolist() == [0.75, 1.0, 1.0, 0.25, 0.0]
    assert EXAMPLE.constraints.tolist() == [False, True, False, False, False]
    assert np.isnan(RuleTable.of(EXAMPLE.rules, [1] * 5, [1] * 5).weight).all()


def test_counts() -> None:
    mined = {"composition": 1, "inverse": 2, "symmetric": 1, "subrelation": 0}
    assert EXAMPLE.counts() == mined | {"irreflexive": 1}
    assert EXAMPLE.take(~EXAMPLE.constraints).counts() == mined
    assert RuleTable.of([], [], []).counts() == dict.fromkeys(mined, 0)
    long = RuleTable.of([parse_rule("a(X, Y) & a(Z, Y) & a(Z, U) => a(X, U)")], [1], [1])
    assert long.counts() == dict.fromkeys(mined, 0) | {"chain": 1}


@given(table_rows)
def test_by_weight(rows: list[tuple[Rule, int, int, float]]) -> None:
    """Strongest first, rows of equal weight in their old order, those without a weight last."""
    weighed = sorted((row for row in rows if row[3] == row[3]), key=lambda row: -row[3])
    expected = weighed + [row for row in rows if row[3] != row[3]]
    found = table(rows).by_weight()
    assert found.rules == tuple(row[0] for row in expected)
    np.testing.assert_array_equal(found.weight, [row[3] for row in expected])
    assert found.support.tolist() == [row[1] for row in expected]


def test_take_join_and_with_weights() -> None:
    parts = EXAMPLE.take(np.array([2])).joined(EXAMPLE.take(np.array([4, 0])))
    assert parts.rules == tuple(EXAMPLE.rules[i] for i in (2, 4, 0))
    assert (parts.support.tolist(), parts.hits.tolist(), parts.weight.tolist()) == (
        [3, 0, 4],
        [3, 0, 3],
        [2.5, 0.5, 0.5],
    )
    other = EXAMPLE.with_weights(np.arange(5.0))
    assert (other.rules, other.weight.tolist()) == (EXAMPLE.rules, [0, 1, 2, 3, 4])


@pytest.mark.parametrize(
    "line",
    [
        "inverse\ta(X, Y) => b(Y, X)\t4\t3\t0.75",
        "inverse\ta(X, Y) => b(Y, X)\t4\t3\t0.75\t0.5\tmore",
        "inverse\ta(X, Y) b(Y, X)\t4\t3\t0.75\t0.5",
        "inverse\ta(X, Y) => b(Y, X)\tfour\t3\t0.75\t0.5",
        "inverse\ta(X, Y) => b(Y, X)\t4\t\t0.75\t0.5",
        "inverse\ta(X, Y) => b(Y, X)\t4\t3\t0.75\theavy",
        "no tabs at all",
    ],
)
def test_a_bad_line_is_reported_with_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / "rules.tsv"
    EXAMPLE.write(file)
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(InputError, match=r"rules\.tsv, line 7: "):
        RuleTable.read(file)
