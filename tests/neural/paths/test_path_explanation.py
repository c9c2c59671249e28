"""The paths behind a score: their shares add up, and the search finds what a search without bounds finds."""

from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from path_graphs import random_graph
from plogicnet.graph import IntArray, KnowledgeGraph, Vocabulary
from plogicnet.neural.paths.compiled.scorer import Messages
from plogicnet.neural.paths.explanation import PathExplainer, _contributions, _query, _search
from plogicnet.neural.paths.model import PathModel
from plogicnet.neural.paths.settings import PathSettings
from plogicnet.neural.protocol import Examples
from small import small_graph

N, RELATIONS = 9, 2


def random_model(seed: int, triples: IntArray, kernels: str = "auto", frontier: int = 0) -> PathModel:
    """Return a model with random parameters."""
    names = [tuple(map(str, range(n))) for n in (N, RELATIONS)]
    graph = KnowledgeGraph("random", Vocabulary("entity", names[0]), Vocabulary("relation", names[1]), triples)
    model = PathModel(graph, PathSettings(dim=8, layers=3, kernels=kernels, frontier=frontier))
    for name, value in model._initial_parameters(torch.Generator().manual_seed(seed)).items():
        model.parameters[name].copy_(value)
    model.mean_log_count = 1.3
    model.rescale(2.0, -1.0)
    return model


@given(seed=st.integers(0, 2**31), n_triples=st.integers(1, 20), frontier=st.sampled_from([0, 3]))
@settings(max_examples=40, deadline=None)
def test_shares_add_up_to_the_effect_of_removing_all_paths(seed: int, n_triples: int, frontier: int) -> None:
    triples = np.unique(random_graph(seed, N, n_triples, RELATIONS), axis=0)
    model = random_model(seed, triples, frontier=frontier)
    for asked in (triples[0], np.array([0, 0, 1]), np.array([2, 1, 2]), np.array([0, 1, N - 1])):
        score = float(model.score(asked[None, :])[0])
        left = triples[(triples != asked).any(1)]
        for path in model.reasons(asked).paths:
            ends = path.triples[:, [0, 2]]
            assert asked.tolist() not in path.triples.tolist(), "the fact itself is hidden"
            assert asked[0] in ends[0]
            assert asked[2] in ends[-1]
            assert len(np.unique(path.triples, axis=0)) == len(path.triples)
            assert (triples[:, None] == path.triples).all(-1).any(0).all(), "a path consists of facts"
            left = left[~(left[:, None] == path.triples).all(-1).any(1)]
            lower = random_model(seed, left, frontier=frontier).score(asked[None, :])[0]
            assert score - path.share == pytest.approx(float(lower), abs=1e-4)
            score = float(lower)


def all_paths(layers: list[Messages], layer: int, row: int, share: float, path: list[object]) -> dict[str, float]:
    """Return the shares of all paths from row 0 to a row, without any bound on the search."""
    if row == 0 or layer == 0:
        return {str(path): share} if row == 0 else {}
    options = _contributions(layers[layer - 1], row)
    total, found = sum(value for value, _ in options), defaultdict[str, float](float)
    for value, step in options:
        if step is None or step[0] not in {row, *(v for _, _, v in path)}:  # type: ignore[misc, has-type]
            source, longer = (row, path) if step is None else (step[0], [step, *path])
            for name, part in all_paths(layers, layer - 1, source, share * value / total, longer).items():
                found[name] += part
    return found


@given(seed=st.integers(0, 2**31), n_triples=st.integers(3, 12))
@settings(max_examples=40, deadline=None)
def test_the_search_finds_the_paths_with_the_largest_shares(seed: int, n_triples: int) -> None:
    model = random_model(seed, random_graph(seed, N, n_triples, RELATIONS))
    scorer = model._compiled_scorer()
    explainer = PathExplainer(scorer, model.parameters, model.mean_log_count, 1.0)
    query = _query(np.array([0, 0, 1]), True, RELATIONS, "nothing")
    layers = list(scorer.layers(model.parameters, query, 1.3, explainer._needed(query), explained=True))
    targets = np.flatnonzero(layers[-1].entity == 1)
    if not len(targets):
        assert explainer._flow(query) == {}
        return
    found = explainer._flow(query)
    steps = [rows.messages for rows in layers if rows.messages is not None]
    rng = np.random.default_rng(seed)  # other contributions, since those of the first layers are often all positive
    for messages in steps:
        assert messages.contribution is not None
        assert messages.stay is not None
        messages.contribution[:] = rng.normal(size=len(messages.contribution))
        messages.stay[:] = rng.normal(size=len(messages.stay))
    expected = all_paths(steps, len(steps), int(targets[0]), 1.0, [])
    merged = defaultdict[str, float](float)
    shares = []
    for share, path in _search(steps, int(targets[0])):
        merged[str(path)] += share
        shares.append(share)
    assert merged == pytest.approx(expected)
    assert shares == sorted(shares, reverse=True)
    assert sum(found.values()) <= 1 + 1e-5


def test_a_trained_model_names_the_path_that_decides() -> None:
    """A child's other parent is known only through the spouse or a sibling."""
    graph = small_graph()
    model = PathModel(graph, PathSettings(dim=8, layers=3, steps=400, batch=16, weight_decay=0.0))
    model.fit(Examples.of(graph.train), seed=0)
    for triple in graph.test[:5]:
        paths = model.reasons(triple).paths
        assert paths
        assert paths[0].share > 0
    plain = PathModel(graph, PathSettings(dim=8, layers=3, kernels="plain"))
    plain.parameters, plain.mean_log_count = model.parameters, model.mean_log_count
    for ours, other in zip(plain.reasons(graph.test[0]).paths, model.reasons(graph.test[0]).paths, strict=True):
        assert ours.triples.tolist() == other.triples.tolist()
        assert ours.share == pytest.approx(other.share, rel=1e-4)


def test_the_rule_behind_a_relation_is_proposed() -> None:
    rows = [("x", "t", "y")]
    for i in range(12):
        rows += [(f"a{i}", "r", f"b{i}"), (f"c{i}", "s", f"b{i}"), (f"a{i}", "t", f"c{i}")]
    graph = KnowledgeGraph.from_names(rows)
    model = PathModel(graph, PathSettings(dim=8, layers=2, steps=60, batch=8))
    model.fit(Examples.of(graph.train), seed=0)
    facts = graph.train[graph.train[:, 1] == graph.relations.id("t")]
    found = model.propose_rules(facts)
    # both directions of 12 facts have this path only; the other fact has none
    assert list(map(str, found)) == ["r(X, Y) & s(Z, Y) => t(X, Z)"]
    assert next(iter(found.values())) == pytest.approx(24)


def test_proposals_do_not_use_what_training_hides() -> None:
    rows = [(f"a{i}", relation, f"b{i}") for i in range(5) for relation in ("r", "s")]
    graph = KnowledgeGraph.from_names(rows)
    for hide, expected in (("edge", {"s(X, Y) => r(X, Y)"}), ("pair", set[str]())):
        model = PathModel(graph, PathSettings(dim=8, layers=2, steps=5, batch=4, hide=hide))  # type: ignore[arg-type]
        model.fit(Examples.of(graph.train), seed=0)
        facts = graph.train[graph.train[:, 1] == graph.relations.id("r")]
        assert set(map(str, model.propose_rules(facts))) == expected
