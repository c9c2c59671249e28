"""RuleScores, compared with loops over dictionaries."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet.graph import Side, TripleSet, as_triples
from plogicnet.mln import RuleScores
from reference import Triple, as_set, triples

ENTITIES, RELATIONS = 4, 3
rows = st.lists(triples(ENTITIES, RELATIONS), max_size=16)
# p_w is 0.5 at log-odds 0; all values are exactly 0 or far from it
odds = st.sampled_from([-2.0, -0.5, 0.0, 0.5, 2.0])


@st.composite
def rule_scores(draw: st.DrawFn) -> tuple[RuleScores, dict[Triple, float]]:
    """Draw rule scores, and the log-odds of the concluded triples as a dictionary."""
    reached = TripleSet.of(draw(rows), ENTITIES)
    values = draw(st.lists(odds, min_size=len(reached), max_size=len(reached)))
    base = np.array(draw(st.lists(odds, min_size=RELATIONS, max_size=RELATIONS)))
    irreflexive = np.array(draw(st.lists(st.booleans(), min_size=RELATIONS, max_size=RELATIONS)))
    observed = TripleSet.of(draw(rows), ENTITIES)
    scores = RuleScores(reached, np.array(values, dtype=float), base, irreflexive, observed)
    known = {(h, r, t): v for (h, r, t), v in zip(reached.triples.tolist(), values, strict=True)}
    return scores, known


@settings(max_examples=100, deadline=None)
@given(rule_scores(), rows)
def test_of_triples(case: tuple[RuleScores, dict[Triple, float]], queries: list[Triple]) -> None:
    scores, known = case
    log_odds, reached = scores.of_triples(as_triples(queries))
    assert log_odds.tolist() == [known.get(v, scores.base[v[1]]) for v in queries]
    assert reached.tolist() == [v in known for v in queries]


@settings(max_examples=100, deadline=None)
@given(
    rule_scores(),
    st.lists(st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1)), max_size=6),
    st.sampled_from(["head", "tail"]),
)
def test_of_queries(case: tuple[RuleScores, dict[Triple, float]], queries: list[tuple[int, int]], side: Side) -> None:
    scores, known = case
    expected = []
    for number, (entity, relation) in enumerate(queries):
        for candidate in range(ENTITIES):
            v = (entity, relation, candidate) if side == "tail" else (candidate, relation, entity)
            if v in known:
                expected.append((number, candidate, known[v]))
    entities, relations = np.array(queries, dtype=np.int64).reshape(-1, 2).T
    found = scores.of_queries(entities, relations, side)
    assert list(zip(*(column.tolist() for column in found), strict=True)) == expected


@settings(max_examples=100, deadline=None)
@given(rule_scores())
def test_forbidden(case: tuple[RuleScores, dict[Triple, float]]) -> None:
    """Self-loops of a constrained relation, except observed triples and triples with p_w ≥ 0.5."""
    scores, known = case
    everything = [(h, r, t) for h in range(ENTITIES) for r in range(RELATIONS) for t in range(ENTITIES)]
    expected = []
    for h, r, t in everything:
        observed = (h, r, t) in as_set(scores.observed.triples)
        probable = (h, r, t) in known and 1 / (1 + math.exp(-known[h, r, t])) >= 0.5
        expected.append(h == t and bool(scores.irreflexive[r]) and not observed and not probable)
    assert scores.forbidden(as_triples(everything)).tolist() == expected
    assert scores.forbidden(as_triples([])).tolist() == []
