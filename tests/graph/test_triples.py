"""Sets and indexes of triples compared with Python sets and lists."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet.graph import HEAD, TAIL, AnswerIndex, Side, TripleSet, as_triples
from plogicnet.graph.triples import expand_ranges
from plogicnet.support.errors import InputError
from reference import Triple, as_set, triples

rows = st.lists(triples(4, 3), max_size=20)


@settings(max_examples=100, deadline=None)
@given(rows, rows)
def test_find_and_contains(members: list[Triple], queries: list[Triple]) -> None:
    facts = TripleSet.of(members, entities=4)
    assert len(facts) == len(set(members)) == len(facts.triples)
    assert as_set(facts.triples) == set(members)
    assert facts.triples.tolist() == sorted(facts.triples.tolist(), key=lambda row: (row[1], row[0], row[2]))
    array = as_triples(queries)
    positions = {tuple(row): position for position, row in enumerate(facts.triples.tolist())}
    assert facts.find(array).tolist() == [positions.get(triple, -1) for triple in queries]
    assert facts.contains(array).tolist() == [triple in set(members) for triple in queries]


def test_keys_that_exceed_64_bits_raise() -> None:
    with pytest.raises(InputError, match="64-bit"):
        TripleSet.of([(0, 10, 1)], entities=2**30)
    largest = TripleSet.of([(2**30 - 1, 6, 2**30 - 1), (0, 0, 0)], entities=2**30)
    assert largest.find(largest.triples).tolist() == [0, 1]


@settings(max_examples=100, deadline=None)
@given(rows, st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=8), st.sampled_from(["head", "tail"]))
def test_answer_index(facts: list[Triple], queries: list[tuple[int, int]], side: Side) -> None:
    known, answer = (HEAD, TAIL) if side == "tail" else (TAIL, HEAD)
    expected = [
        (query, triple[answer], row)
        for query, (entity, relation) in enumerate(queries)
        for row, triple in enumerate(facts)
        if (triple[known], triple[1]) == (entity, relation)
    ]
    entities, relations = np.array(queries, dtype=np.int64).reshape(-1, 2).T
    query_index, answers, triple_rows = AnswerIndex.of(as_triples(facts), 4, side).lookup(entities, relations)
    found = list(zip(query_index.tolist(), answers.tolist(), triple_rows.tolist(), strict=True))
    assert sorted(found) == sorted(expected)
    assert [f[:2] for f in found] == sorted(f[:2] for f in found)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4))))
def test_expand_ranges(ranges: list[tuple[int, int]]) -> None:
    starts, lengths = np.array(ranges, dtype=np.int64).reshape(-1, 2).T
    range_index, positions = expand_ranges(starts, starts + lengths)
    expected = [(index, start + i) for index, (start, length) in enumerate(ranges) for i in range(length)]
    assert list(zip(range_index.tolist(), positions.tolist(), strict=True)) == expected
