"""The rules that are shown first, compared with a plain search."""

import itertools
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plogicnet.rules import RuleIndex, RuleTable, Step, chain_rule, irreflexive_constraint
from plogicnet.support.errors import InputError

names = st.sampled_from(["likes", "Knows", "is a"])
steps = st.lists(st.builds(Step, names, st.booleans()), min_size=1, max_size=2)
chains = st.builds(chain_rule, steps, names).filter(lambda rule: rule.head not in rule.body)
weights = st.sampled_from([-2.0, -0.5, 0.0, 0.5, 1.0, 3.0])
rows = st.lists(st.tuples(chains, st.integers(0, 3), weights), max_size=25, unique_by=lambda row: row[0])
searches = st.sampled_from(["", "likes", "KNOWS likes", "is a", "none", "(x, y)"])


@given(rows, st.integers(0, 2), searches, st.none() | names, st.sampled_from([None, "inverse", "chain"]))
def test_rules_are_found_and_ordered(
    rows: list[tuple[object, int, float]], n_constraints: int, search: str, relation: str | None, pattern: str | None
) -> None:
    rules = [row[0] for row in rows] + [irreflexive_constraint(name) for name in ("likes", "Knows")[:n_constraints]]
    hits = [row[1] for row in rows] + [5] * n_constraints
    weight = [row[2] for row in rows] + [float("nan")] * n_constraints
    table = RuleTable.of(rules, hits, hits, weight)  # type: ignore[arg-type]
    index = RuleIndex(table)
    found = index.find(search, relation, pattern).tolist()
    texts = [str(rule).casefold() for rule in table.rules]
    assert found == [
        i
        for i, rule in enumerate(table.rules)
        if all(word in texts[i] for word in search.casefold().split())
        and relation in (None, rule.head.relation)
        and pattern in (None, rule.pattern)
    ]
    counts = index.pattern_counts(np.array(found, dtype=np.int64))
    assert counts == {p: n for p in counts if (n := sum(table.rules[i].pattern == p for i in found))}
    assert sum(counts.values()) == len(found)

    def importance(i: int) -> float:
        return 0.0 if np.isnan(weight[i]) else abs(weight[i]) * hits[i] ** 0.5

    of_relation: dict[str, list[int]] = defaultdict(list)
    for i in sorted(found, key=lambda i: (np.isnan(weight[i]), -importance(i))):
        of_relation[table.rules[i].head.relation].append(i)
    place = {i: n for members in of_relation.values() for n, i in enumerate(members)}
    ordered = index.by_importance(np.array(found, dtype=np.int64)).tolist()
    expected = sorted(found, key=lambda i: (np.isnan(weight[i]), place[i], -importance(i)))
    assert sorted(ordered) == found
    assert [(place[i], importance(i)) for i in ordered] == [(place[i], importance(i)) for i in expected]
    grouped = index.grouped(np.array(found, dtype=np.int64)).tolist()
    relations = [table.rules[i].head.relation for i in grouped]
    assert sorted(grouped) == found
    assert [name for name, _ in itertools.groupby(relations)] == list(dict.fromkeys(relations))
    for name, members in of_relation.items():
        shown = [importance(i) for i in grouped if table.rules[i].head.relation == name]
        assert shown == sorted(map(importance, members), reverse=True)
    best = [max(map(importance, of_relation[name])) for name in dict.fromkeys(relations)]
    assert best == sorted(best, reverse=True)


def test_filters_that_match_no_rule_are_reported() -> None:
    index = RuleIndex(RuleTable.of([chain_rule([Step("husband", False)], "wife")], [1], [1]))
    index.check_filters("wife", "composition")
    with pytest.raises(InputError, match=r"no rule concludes the relation 'wive'. Did you mean 'wife'?"):
        index.check_filters("wive")
    with pytest.raises(InputError, match=r"unknown pattern 'inverted'. Expected one of composition, inverse, "):
        index.check_filters(pattern="inverted")
