"""Splitting triples: the shares are met, no triple is lost, and train contains all names if possible."""

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet.graph import SPLITS, KnowledgeGraph
from plogicnet.graph.splitting import parse_shares, split_triples
from plogicnet.support.errors import InputError
from reference import as_set, graphs

SHARES = (0.6, 0.2, 0.2)


@settings(deadline=None)
@given(graphs(), st.integers(0, 3))
def test_no_triple_is_lost_and_train_contains_all_names_if_possible(graph: KnowledgeGraph, seed: int) -> None:
    n = len(graph.train)
    try:
        split = split_triples(graph, SHARES, seed)
    except InputError:
        assert n < 3
        return
    sizes = [len(split.split(s)) for s in SPLITS]
    assert sizes[1:] == [round(0.2 * n)] * 2
    assert sum(sizes) == n
    assert set().union(*(as_set(split.split(s)) for s in SPLITS)) == as_set(graph.train)
    names = len(np.unique(graph.train[:, [0, 2]])) + len(np.unique(graph.train[:, 1]))
    unseen = sum(sum(split.count_unseen(s)) for s in ("valid", "test"))
    # one training triple per name is always sufficient
    if sizes[0] >= names:
        assert unseen == 0


def test_the_split_depends_on_the_seed() -> None:
    graph = KnowledgeGraph.from_names([(str(i % 10), "r", str(i // 10)) for i in range(100)])
    one, two, three = (split_triples(graph, (0.8, 0.1, 0.1), seed) for seed in (1, 1, 2))
    assert as_set(one.test) == as_set(two.test) != as_set(three.test)
    assert one.count_unseen("test") == one.count_unseen("valid") == (0, 0)


def test_unseen_names_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    chain = KnowledgeGraph.from_names([(f"a{i}", "r", f"b{i}") for i in range(10)])
    with caplog.at_level(logging.WARNING):
        split = split_triples(chain, (0.8, 0.1, 0.1), 0)
    assert split.count_unseen("test") == (2, 0)
    assert "too few triples to keep every entity and relation in train" in caplog.text


@pytest.mark.parametrize("text", ["0.8,0.1", "a,b,c", "0.8,0.1,0.3", "0,0.5,0.5", "1.2,-0.1,-0.1", ""])
def test_invalid_shares_raise(text: str) -> None:
    with pytest.raises(InputError, match="--split"):
        parse_shares(text)
