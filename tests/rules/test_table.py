"""Rule tables: columns, sorting, and TSV files."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plogicnet.rules import Rule, RuleTable, Step, chain_rule, irreflexive_constraint, parse_rule
from plogicnet.rules.table import is_table
from plogicnet.support.errors import InputError

names = st.one_of(
    st.sampled_from(["r", "born in", "/people/person", 'a"b\\', "not", "tab\there", "\n", "É", "北京"]), st.text()
)
steps = st.lists(st.builds(Step, names, st.booleans()), min_size=1, max_size=3)
chain_rules = st.builds(chain_rule, steps, names).filter(lambda rule: rule.head not in rule.body)  # not a valid rule
rules = st.one_of(chain_rules, st.builds(irreflexive_constraint, names))
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
def test_tables_are_read_back_from_files(tmp_path: Path, rows: list[tuple[Rule, int, int, float]]) -> None:
    written = table(rows)
    written.write(tmp_path / "rules.tsv")
    read = RuleTable.read(tmp_path / "rules.tsv")
    assert read.rules == written.rules
    for column in ("support", "hits", "weight", "precision"):
        np.testing.assert_array_equal(getattr(read, column), getattr(written, column))
    assert [file.name for file in tmp_path.iterdir()] == ["rules.tsv"]


def test_lines_of_the_file(tmp_path: Path) -> None:
    EXAMPLE.take(np.array([0, 1])).write(tmp_path / "rules.tsv")
    assert (tmp_path / "rules.tsv").read_text().splitlines() == [
        "pattern\trule\tsupport\thits\tprecision\tweight",
        "symmetric\ta(X, Y) => a(Y, X)\t4\t3\t0.75\t0.5",
        "irreflexive\t=> not a(X, X)\t10\t10\t1.0\t",
    ]


def test_row_of_a_constraint() -> None:
    assert EXAMPLE.rows()[1] == {
        "pattern": "irreflexive",
        "rule": "=> not a(X, X)",
        "support": 10,
        "hits": 10,
        "precision": 1.0,
        "weight": None,
        "standard_error": None,
        "groundings": None,
    }


def test_precision_and_constraints() -> None:
    assert EXAMPLE.precision.tolist() == [0.75, 1.0, 1.0, 0.25, 0.0]
    assert EXAMPLE.constraints.tolist() == [False, True, False, False, False]
    assert np.isnan(RuleTable.of(EXAMPLE.rules, [1] * 5, [1] * 5).weight).all()


def test_counts_per_pattern() -> None:
    mined = {"composition": 1, "inverse": 2, "symmetric": 1, "subrelation": 0}
    assert EXAMPLE.counts() == mined | {"irreflexive": 1}
    assert EXAMPLE.take(~EXAMPLE.constraints).counts() == mined
    assert RuleTable.of([], [], []).counts() == dict.fromkeys(mined, 0)
    long = RuleTable.of([parse_rule("a(X, Y) & a(Z, Y) & a(Z, U) => a(X, U)")], [1], [1])
    assert long.counts() == dict.fromkeys(mined, 0) | {"chain": 1}


@given(table_rows)
def test_by_weight_is_stable_and_puts_nan_last(rows: list[tuple[Rule, int, int, float]]) -> None:
    with_weight = sorted((row for row in rows if row[3] == row[3]), key=lambda row: -row[3])
    expected = with_weight + [row for row in rows if row[3] != row[3]]
    result = table(rows).by_weight()
    assert result.rules == tuple(row[0] for row in expected)
    np.testing.assert_array_equal(result.weight, [row[3] for row in expected])
    assert result.support.tolist() == [row[1] for row in expected]


def test_take_concat_and_with_weights() -> None:
    parts = EXAMPLE.take(np.array([2])).concat(EXAMPLE.take(np.array([4, 0])))
    assert parts.rules == tuple(EXAMPLE.rules[i] for i in (2, 4, 0))
    assert (parts.support.tolist(), parts.hits.tolist(), parts.weight.tolist()) == (
        [3, 0, 4],
        [3, 0, 3],
        [2.5, 0.5, 0.5],
    )
    other = EXAMPLE.with_weights(np.arange(5.0))
    assert (other.rules, other.weight.tolist()) == (EXAMPLE.rules, [0, 1, 2, 3, 4])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("inverse\ta(X, Y) => b(Y, X)\t4\t3\t0.75", ": expected 6 columns separated by tabs, found 5"),
        ("inverse\ta(X, Y) => b(Y, X)\t4\t3\t0.75\t0.5\tmore", ": expected 6 columns separated by tabs, found 7"),
        (
            "inverse\ta(X, Y) b(Y, X)\t4\t3\t0.75\t0.5",
            ", column rule, character 9: expected '&' or '=>', found 'b'\n  a(X, Y) b(Y, X)\n          ^",
        ),
        (
            "inverse\ta(X, Y) => b(Y, X)\tfour\t3\t0.75\t0.5",
            ", column support: expected an integer between 0 and 2^63 - 1, found 'four'",
        ),
        ("inverse\ta(X, Y) => b(Y, X)\t4\t3\t0.75\theavy", ", column weight: expected a number, found 'heavy'"),
        ("inverse\ta(X, Y) => b(Y, X)\t4\t3\t0.75\tinf", ", column weight: the weight must be finite, got 'inf'"),
        (
            "inverse\ta(X, Y) => b(Y, X)\t4\t-3\t0.75\t0.5",
            ", column hits: expected an integer between 0 and 2^63 - 1, found '-3'",
        ),
        (
            "inverse\ta(X, Y) => b(Y, X)\t99999999999999999999\t3\t0.75\t0.5",
            ", column support: expected an integer between 0 and 2^63 - 1, found '99999999999999999999'",
        ),
        ("no tabs at all", ": expected 6 columns separated by tabs, found 1"),
    ],
)
def test_errors_show_the_line_and_the_column(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "rules.tsv"
    EXAMPLE.write(file)
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(InputError) as caught:
        RuleTable.read(file)
    assert str(caught.value) == f"{file}, line 7{message}"


given_weights = st.tuples(weight, st.booleans())


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(rules, weight, given_weights), max_size=5), st.sampled_from(["\n", "\r\n"]))
def test_given_and_fixed_weights_are_read_back(
    tmp_path: Path, rows: list[tuple[Rule, float, tuple[float, bool]]], newline: str
) -> None:
    n, file = len(rows), tmp_path / "rules.tsv"
    fixed = [kept and given == given for _, _, (given, kept) in rows]  # NaN cannot be fixed
    given_column = [given for _, _, (given, _) in rows]
    written = RuleTable.of([r for r, _, _ in rows], [1] * n, [1] * n, [w for _, w, _ in rows], given_column, fixed)
    written.write(file)
    header = file.read_text(encoding="utf-8").split("\n")[0]
    assert header.endswith("\tgiven") == (not np.isnan(written.given).all())
    file.write_bytes(file.read_bytes().replace(b"\n", newline.encode()))
    read = RuleTable.read(file)
    assert read.rules == written.rules
    for column in ("weight", "given", "fixed"):
        np.testing.assert_array_equal(getattr(read, column), getattr(written, column))


def test_given_weights_are_written_as_in_the_rule_syntax(tmp_path: Path) -> None:
    nan = float("nan")
    table = RuleTable.of(EXAMPLE.rules[:3], [1] * 3, [1] * 3, [0.5, nan, 2.0], [1.5, nan, 2.0], [False, False, True])
    table.write(tmp_path / "rules.tsv")
    assert [line.split("\t")[5:] for line in (tmp_path / "rules.tsv").read_text().splitlines()] == [
        ["weight", "given"],
        ["0.5", "1.5"],
        ["", ""],
        ["2.0", "=2.0"],
    ]


@pytest.mark.parametrize("cell", ["=", "=nan", "==2", "heavy", "=inf"])
def test_an_invalid_given_weight_raises_with_the_line(tmp_path: Path, cell: str) -> None:
    file = tmp_path / "rules.tsv"
    RuleTable.of(EXAMPLE.rules[:1], [1], [1], given=[1.5]).write(file)
    file.write_text(file.read_text().replace("1.5", cell))
    with pytest.raises(InputError, match=r"rules\.tsv, line 2, column given: "):
        RuleTable.read(file)


def precision_lower_bound(hits: int, support: int) -> float:
    return float(RuleTable.of(EXAMPLE.rules[:1], [support], [hits]).precision_lower_bound[0])


@given(st.integers(1, 200), st.data())
def test_lower_bound_increases_with_hits_and_with_support(support: int, data: st.DataObject) -> None:
    """With support, at the same precision."""
    hits = data.draw(st.integers(0, support))
    assert -1e-12 <= precision_lower_bound(hits, support) <= hits / support
    if hits:
        assert (
            precision_lower_bound(2 * hits, 2 * support)
            > precision_lower_bound(hits, support)
            > precision_lower_bound(hits - 1, support)
        )


def test_lower_bound_solves_the_wilson_equation() -> None:
    """(p̂ - p)² = z² p (1 - p) / n."""
    assert precision_lower_bound(75, 100) > precision_lower_bound(3, 4) > precision_lower_bound(1, 1)
    for hits, support in ((3, 4), (75, 100), (1, 1), (1, 30)):
        p = precision_lower_bound(hits, support)
        assert (hits / support - p) ** 2 == pytest.approx(1.96**2 * p * (1 - p) / support, rel=1e-9)
    assert RuleTable.of(EXAMPLE.rules[:1], [0], [0]).precision_lower_bound.tolist() == pytest.approx([0.0], abs=1e-12)


errors = st.one_of(st.floats(0, 1e6), st.just(float("nan")), st.just(float("inf")))
numbers = st.one_of(st.just(-1), st.integers(0, 10**9))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(rules, weight, weight, errors, numbers), max_size=5))
def test_standard_errors_and_groundings_are_read_back(
    tmp_path: Path, rows: list[tuple[Rule, float, float, float, int]]
) -> None:
    n, file = len(rows), tmp_path / "rules.tsv"
    names, weights, given, errors, groundings = ([row[i] for row in rows] for i in range(5))
    written = RuleTable.of(names, [1] * n, [1] * n, weights, given, None, errors, groundings)  # type: ignore[arg-type]
    written.write(file)
    header = file.read_text(encoding="utf-8").split("\n")[0]
    has_report = any(number >= 0 for number in groundings) or not np.isnan(written.standard_error).all()  # type: ignore[operator]
    assert header.endswith("\tstandard_error\tgroundings") == has_report
    assert is_table(header)
    read = RuleTable.read(file)
    np.testing.assert_array_equal(read.standard_error, written.standard_error)
    assert read.groundings.tolist() == groundings
    np.testing.assert_array_equal(read.given, written.given)


def test_take_keeps_the_report_and_with_weights_drops_it() -> None:
    table = EXAMPLE.with_report(np.arange(5.0), np.arange(5))
    parts = table.take(np.array([2])).concat(EXAMPLE.take(np.array([4])))
    assert parts.groundings.tolist() == [2, -1]
    np.testing.assert_array_equal(parts.standard_error, [2.0, np.nan])
    assert table.rows()[3]["standard_error"] == 3.0
    assert table.rows()[3]["groundings"] == 3
    assert table.weight.tolist()[0] == 0.5
    other = table.with_weights(np.zeros(5))
    assert other.groundings.tolist() == [-1] * 5
    assert np.isnan(other.standard_error).all()
    infinite = EXAMPLE.with_report(np.full(5, np.inf), np.zeros(5, dtype=int))
    assert infinite.rows()[0]["standard_error"] is None  # JSON has no infinity


@pytest.mark.parametrize("extra", ["given", "standard_error\tgroundings", "given\tstandard_error\tgroundings"])
def test_headers_with_extra_columns(extra: str) -> None:
    plain = "pattern\trule\tsupport\thits\tprecision\tweight"
    assert is_table(f"{plain}\t{extra}\n")
    assert not is_table(f"{plain}\t{extra}\tmore\n")
    assert not is_table(f"{plain}\t{extra}\t{extra}\n")
