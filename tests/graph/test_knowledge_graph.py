"""KnowledgeGraph compared with plain loops: duplicates, categories, statistics, validation triples and answers."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet.graph import CATEGORIES, KnowledgeGraph, Side, as_triples
from plogicnet.graph.knowledge_graph import drop_duplicates
from plogicnet.support.errors import InputError
from reference import Triple, as_set, graphs, triples

rows = st.lists(triples(3, 2), max_size=20)


@given(rows)
def test_drop_duplicates(duplicated: list[Triple]) -> None:
    assert drop_duplicates(as_triples(duplicated), 3).tolist() == [list(row) for row in dict.fromkeys(duplicated)]


@given(st.lists(st.tuples(*[st.sampled_from(["a", "b", "é ü", '"'])] * 3), min_size=1), rows, rows)
def test_from_names(train: list[tuple[str, str, str]], valid: list[Triple], test: list[Triple]) -> None:
    splits = [train, *([(str(h), f"r{r}", str(t)) for h, r, t in split] for split in (valid, test))]
    graph = KnowledgeGraph.from_names(splits[0], splits[1], splits[2])
    for stored, split in zip((graph.train, graph.valid, graph.test), splits, strict=True):
        assert [graph.names(row) for row in stored] == list(dict.fromkeys(split))
        for row in stored:
            np.testing.assert_array_equal(graph.encode(*graph.names(row)), row)
    assert graph.duplicates == sum(len(split) - len(set(split)) for split in splits)
    assert set(graph.entities.names) == {e for split in splits for h, _, t in split for e in (h, t)}
    assert set(graph.relations.names) == {r for split in splits for _, r, _ in split}


def categories(graph: KnowledgeGraph) -> list[str]:
    """Return the categories: a side is N if it has more than 1.5 entities per query on average."""
    result = []
    for relation in range(len(graph.relations)):
        tails, heads = defaultdict(set), defaultdict(set)
        for h, r, t in as_set(graph.train):
            if r == relation:
                tails[h].add(t)
                heads[t].add(h)
        many = [bool(g) and sum(map(len, g.values())) / len(g) > 1.5 for g in (heads, tails)]
        result.append("-".join("N" if m else "1" for m in many))
    return result


@settings(max_examples=100, deadline=None)
@given(graphs(max_entities=5, held_out=True))
def test_categories_and_statistics(graph: KnowledgeGraph) -> None:
    assert list(graph.relation_categories) == categories(graph)
    seen = {e for h, _, t in as_set(graph.train) for e in (h, t)}
    unseen = {s: len({e for h, _, t in as_set(graph.split(s)) for e in (h, t)} - seen) for s in ("valid", "test")}
    assert graph.statistics() == {
        "name": "tiny",
        "entities": len(graph.entities),
        "relations": len(graph.relations),
        "train": len(graph.train),
        "valid": len(graph.valid),
        "test": len(graph.test),
        "duplicates": graph.duplicates,
        "unseen_entities": unseen,
        "relation_categories": {c: categories(graph).count(c) for c in CATEGORIES},
    }


@settings(max_examples=60, deadline=None)
@given(graphs(held_out=True), st.sets(st.sampled_from(["train", "valid", "test"]), min_size=1))
def test_answer_index(graph: KnowledgeGraph, splits: set[str]) -> None:
    facts = [tuple(row) for s in splits for row in graph.split(s).tolist()]
    sides: tuple[Side, Side] = ("head", "tail")
    for side in sides:
        index = graph.answer_index(splits, side)
        for entity in range(len(graph.entities)):
            for relation in range(len(graph.relations)):
                answers = index.lookup(np.array([entity]), np.array([relation]))[1]
                if side == "tail":
                    expected = [t for h, r, t in facts if (h, r) == (entity, relation)]
                else:
                    expected = [h for h, r, t in facts if (t, r) == (entity, relation)]
                assert answers.tolist() == sorted(expected)


@pytest.mark.parametrize(
    ("size", "moved"), [(2, 1), (19, 1), (100, 5), (1_000, 50), (100_001, 5_000), (200_000, 5_000)]
)
def test_with_validation_moves_five_percent_but_at_most_5000_triples(size: int, moved: int) -> None:
    ids = np.arange(size)
    names = [str(i) for i in range(size + 1)]
    rows = np.stack([ids, np.zeros_like(ids), ids + 1], axis=1)
    graph = KnowledgeGraph.from_names((names[i], "next", names[i + 1]) for i in range(size))
    split = graph.with_validation(seed=3)
    assert (len(split.valid), split.moved_to_valid) == (moved, moved)
    np.testing.assert_array_equal(np.unique(np.concatenate([split.train, split.valid]), axis=0), rows)
    assert len(split.train) == size - moved
    np.testing.assert_array_equal(split.valid, graph.with_validation(seed=3).valid)
    assert size < 100 or not np.array_equal(split.valid, graph.with_validation(seed=4).valid)
    assert as_set(split.observed.triples) == as_set(split.train)


def test_with_validation_does_not_change_a_valid_split_or_a_single_triple() -> None:
    with_valid = KnowledgeGraph.from_names([("a", "r", "b"), ("b", "r", "c")], [("a", "r", "c")])
    single = KnowledgeGraph.from_names([("a", "r", "b")])
    assert with_valid.with_validation(0) is with_valid
    assert single.with_validation(0) is single


def test_invalid_names_and_empty_graphs_raise() -> None:
    graph = KnowledgeGraph.from_names([("anna", "knows", "ben")])
    with pytest.raises(InputError, match=r"unknown entity 'ana'.*'anna'"):
        graph.encode("ana", "knows", "ben")
    with pytest.raises(InputError, match=r"unknown relation 'know'.*'knows'"):
        graph.encode("anna", "know", "ben")
    with pytest.raises(InputError, match="unknown split 'dev'"):
        graph.split("dev")
    with pytest.raises(InputError, match="no triple"):
        KnowledgeGraph.from_names([], test=[("a", "r", "b")])


def test_a_graph_is_immutable() -> None:
    graph = KnowledgeGraph.from_names([("anna", "knows", "ben")])
    with pytest.raises(ValueError, match="read-only"):
        graph.train[0, 0] = 1
