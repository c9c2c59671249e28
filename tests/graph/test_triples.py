"""Sets of triples and their indexes against Python's own sets and lists."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet.graph import HEAD, TAIL, Answers, Side, TripleSet, as_triples
from plogicnet.graph.triples import expand_ranges
from plogicnet.support.errors import InputError
from reference import Triple, as_set, triples

rows = st.lists(triples(4, 3), max_size=20)


@settings(max_examples=100, deadline=None)
@given(rows, rows)
def test_find_and_contains(inside: list[Triple], asked: list[Triple]) -> None:
    found = TripleSet.of(inside, entities=4)
    assert len(found) == len(set(inside)) == len(found.triples)
    assert as_set(found.triples) == set(inside)
    assert found.triples.tolist() == sorted(found.triples.tolist(), key=lambda row: (row[1], row[0], row[2]))
    wanted = as_triples(asked)
    places = {tuple(row): place for place, row in enumerate(found.triples.tolist())}
    assert found.find(wanted).tolist() == [places.get(triple, -1) for triple in asked]
    assert found.contains(wanted).tolist() == [triple in set(inside) for triple in asked]


def test_keys_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="64-bit"):
        TripleSet.of([(0, 10, 1)], entities=2**30)
    largest = TripleSet.of([(2**30 - 1, 6, 2**30 - 1), (0, 0, 0)], entities=2**30)
    assert largest.find(largest.triples).tolist() == [0, 1]


@settings(max_examples=100, deadline=None)
@given(rows, st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=8), st.sampled_from(["head", "tail"]))
def test_answers(facts: list[Triple], queries: list[tuple[int, int]], side: Side) -> None:
    known, asked = (HEAD, TAIL) if side == "tail" else (TAIL, HEAD)
    expected = [
        (query, triple[asked], row)
        for query, (entity, relation) in enumerate(queries)
        for row, triple in enumerate(facts)
        if (triple[known], triple[1]) == (entity, relation)
    ]
    entities, relations = np.array(queries, dtype=np.int64).reshape(-1, 2).T
    owners, answers, places = Answers.of(as_triples(facts), 4, side).lookup(entities, relations)
    found = list(zip(owners.tolist(), answers.tolist(), places.tolist(), strict=True))
    assert sorted(found) == sorted(expected)
    assert [f[:2] for f in found] == sorted(f[:2] for f in found)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4))))
def test_expand_ranges(ranges: list[tuple[int, int]]) -> None:
    starts, lengths = np.array(ranges, dtype=np.int64).reshape(-1, 2).T
    owners, at = expand_ranges(starts, starts + lengths)
    expected = [(owner, start + i) for owner, (start, length) in enumerate(ranges) for i in range(length)]
    assert list(zip(owners.tolist(), at.tolist(), strict=True)) == expected
