"""Collecting the rules of a run: mined rules, written rules, and rules that are both."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.grounding.engine import CountingMode, MiningResult
from plogicnet.grounding.native.mining import mine
from plogicnet.grounding.native.walks import chain_of
from plogicnet.grounding.rulebook import collect_rules
from plogicnet.rules import parse_statements
from plogicnet.support.errors import InputError
from reference import COUNTINGS, as_set, graphs, support_and_hits

ROWS = [
    *(("a", "husband", "b"), ("b", "wife", "a"), ("c", "husband", "d"), ("d", "wife", "c"), ("e", "husband", "f")),
    *(("a", "parent", "g"), ("b", "parent", "g"), ("c", "parent", "h"), ("g", "knows", "g"), ("g", "knows", "h")),
]
GRAPH = KnowledgeGraph.from_names(ROWS)


def collect(text: str, graph: KnowledgeGraph = GRAPH, **values: object) -> MiningResult:
    settings = Config().with_values({key.replace("__", "."): value for key, value in values.items()})
    return collect_rules(graph, settings, parse_statements(text, graph))


def table(mined: MiningResult) -> dict[str, tuple[int, int]]:
    rows = zip(map(str, mined.rules.rules), mined.rules.support.tolist(), mined.rules.hits.tolist(), strict=True)
    return {rule: (support, hits) for rule, support, hits in rows}


def test_without_mining_there_are_only_the_written_rules() -> None:
    text = "husband(A, B) & parent(A, C) => parent(B, C)\n=1.5: wife(X, Y) => husband(Y, X)"
    mined = collect(text, rules__mine=False)
    assert table(mined) == {
        "husband(A, B) & parent(A, C) => parent(B, C)": (2, 1),
        "wife(X, Y) => husband(Y, X)": (2, 2),
    }
    assert (len(mined.constraints), mined.n_candidates) == (0, 0)
    assert mined.rules.fixed.tolist() == [False, True]
    assert math.isnan(mined.rules.given[0])
    assert mined.rules.given[1] == 1.5


def test_written_rules_are_added_with_any_precision() -> None:
    mined = mine(GRAPH, Config().rules)
    both = collect("2: knows(X, Y) => husband(Y, X)\nknows(X, g) => parent(X, h)")
    assert both.rules.rules[: len(mined.rules)] == mined.rules.rules
    assert both.n_candidates == mined.n_candidates
    assert both.constraints.rules == mined.constraints.rules
    added = both.rules.take(np.arange(len(mined.rules), len(both.rules)))
    assert [*map(str, added.rules)] == ["knows(X, Y) => husband(Y, X)", "knows(X, g) => parent(X, h)"]
    assert (added.support.tolist(), added.hits.tolist()) == ([2, 1], [0, 0])
    assert added.patterns == ["inverse", "constant"]
    assert added.given.tolist()[0] == 2.0
    assert not both.rules.fixed.any()


@pytest.mark.parametrize(
    ("prefix", "given", "fixed"), [("", None, False), ("0.5: ", 0.5, False), ("=-2: ", -2.0, True)]
)
@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("husband(Man, Woman) => wife(Woman, Man)", "husband(X, Y) => wife(Y, X)"),
        ("parent(B, C) & husband(A, B) => parent(A, C)", "husband(X, Y) & parent(Y, Z) => parent(X, Z)"),
    ],
)
def test_a_written_rule_that_is_also_mined_sets_the_given_weight(
    text: str, rule: str, prefix: str, given: float | None, fixed: bool
) -> None:
    mined = mine(GRAPH, Config().rules)
    both = collect(prefix + text)
    assert both.rules.rules == mined.rules.rules
    assert table(both) == table(mined)
    row = [*map(str, both.rules.rules)].index(rule)
    for i in range(len(both.rules)):
        assert both.rules.fixed[i] == (fixed and i == row)
        assert math.isnan(both.rules.given[i]) == (given is None or i != row)
    assert given is None or both.rules.given[row] == given


def test_written_constraints_are_added_once() -> None:
    """One is also mined. The other has too low precision."""
    mined = mine(GRAPH, Config().rules)
    assert "=> not knows(X, X)" not in map(str, mined.constraints.rules)
    both = collect("=> not husband(A, A)\n=> not knows(A, A)\nknows(X, Y) => parent(Y, X)")
    assert [*map(str, both.constraints.rules)] == [*map(str, mined.constraints.rules), "=> not knows(X, X)"]
    assert (both.constraints.support[-1], both.constraints.hits[-1]) == (2, 1)
    assert both.rules.constraints.sum() == 0
    assert len(both.rules) == len(mined.rules) + 1
    only_written = collect("=> not knows(A, A)", rules__mine=False)
    assert ([*map(str, only_written.constraints.rules)], len(only_written.rules)) == (["=> not knows(X, X)"], 0)


def test_the_sql_engine_collects_the_same_rules() -> None:
    text = "=2: husband(A, B) => wife(B, A)\nhusband(A, B) & parent(A, C) => parent(B, C)\n=> not knows(X, X)"
    native, sql = collect(text), collect(text, grounding__engine="sql")
    order = [sql.rules.rules.index(rule) for rule in native.rules.rules]
    assert len(order) == len(sql.rules)
    reordered = sql.rules.take(np.array(order))
    for column in ("support", "hits", "given", "fixed"):
        np.testing.assert_array_equal(getattr(reordered, column), getattr(native.rules, column))
    assert sql.constraints.rules == native.constraints.rules
    assert sql.n_candidates == native.n_candidates


def test_the_native_engine_raises_for_a_general_rule() -> None:
    with pytest.raises(InputError, match=r"knows\(X, X\) => parent\(X, h\): the native engine grounds only chains"):
        collect("knows(X, X) => parent(X, h)", grounding__engine="native")


@settings(max_examples=30, deadline=None)
@given(graphs(max_entities=4, max_relations=3), st.sampled_from(COUNTINGS), st.data())
def test_counts_of_written_rules_as_by_brute_force(
    graph: KnowledgeGraph, counting: CountingMode, data: st.DataObject
) -> None:
    r = [data.draw(st.sampled_from(graph.relations.names)) for _ in range(4)]
    text = f"{r[0]}(X, Y) & {r[1]}(Z, Y) & {r[2]}(Z, U) => {r[3]}(U, X)"
    mined = collect(text, graph, rules__counting=counting, rules__mine=False)
    chain = chain_of(mined.rules.rules[0], graph.relations)
    expected = support_and_hits(as_set(graph.train), len(graph.entities), chain, counting)
    assert [*table(mined).values()] == [expected]
