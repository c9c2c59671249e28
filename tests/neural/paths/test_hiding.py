"""A training query must not see its own fact, nor any trace of it.

Hidden edges are compared with a graph without them. Training on a graph without structure must not beat chance, and
each mistake in hiding must.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plogicnet.graph import AnswerIndex, Hide, IntArray, KnowledgeGraph, Side, Vocabulary, choose_hiding
from plogicnet.neural.paths.edges import Edges, PathQueries
from plogicnet.neural.paths.layer import PlainLayer
from plogicnet.neural.paths.model import PathModel
from plogicnet.neural.paths.network import initial_parameters, score_queries
from plogicnet.neural.paths.settings import PathSettings
from plogicnet.neural.protocol import Examples

CPU = torch.device("cpu")
ENTITIES, RELATIONS, TRIPLES = 200, 2, 1_000


def is_trace(triple: IntArray, asked: IntArray, hide: Hide) -> bool:
    """Return whether a fact is hidden from the query of the asked fact."""
    same_pair = {triple[0], triple[2]} == {asked[0], asked[2]}
    return tuple(triple) == tuple(asked) if hide == "edge" else same_pair


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1), st.integers(0, 4)), min_size=1, max_size=12),
    st.sampled_from(["edge", "pair"]),
    st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_scores_with_hidden_edges_are_those_of_the_graph_without_them(
    facts: list[tuple[int, int, int]], hide: Hide, seed: int
) -> None:
    n, triples = 6, np.array([*facts, facts[0]])  # a fact can occur several times
    parameters = {k: v.double() for k, v in initial_parameters(2, 4, 3, torch.Generator().manual_seed(seed)).items()}
    edges = Edges.of(triples, n, 2, CPU)

    def scores(edges: Edges, asked: IntArray, inverse: bool, hide: Hide) -> torch.Tensor:
        h, r, t = asked.tolist()
        known, relation, answer = (t, r + 2, h) if inverse else (h, r, t)
        queries = PathQueries(torch.tensor([known]), torch.tensor([relation]), torch.tensor([answer]), hide)
        return score_queries(parameters, PlainLayer(edges), queries, n, 1.3, torch.float64)

    for asked in triples[:3]:
        left = triples[[not is_trace(triple, asked, hide) for triple in triples]]
        rest = Edges.of(left, n, 2, CPU)
        for inverse in (False, True):
            expected = scores(rest, asked, inverse, "nothing")
            torch.testing.assert_close(scores(edges, asked, inverse, hide), expected, rtol=1e-9, atol=1e-9)


class DoubledModel(PathModel):
    """A path model whose graph has each fact twice."""

    def _connect(self) -> None:
        super()._connect()
        self.edges = Edges.of(np.repeat(self.graph.train, 2, axis=0), ENTITIES, RELATIONS, CPU)
        self._compiled = None
        self.scorer = self._make_scorer()


def random_graph(seed: int) -> KnowledgeGraph:
    """Return a graph whose heads, relations and tails are drawn independently and uniformly."""
    rng = np.random.default_rng(seed)
    keys = rng.choice(ENTITIES * RELATIONS * ENTITIES, TRIPLES, replace=False)
    triples = np.stack([keys // (RELATIONS * ENTITIES), keys // ENTITIES % RELATIONS, keys % ENTITIES], 1)
    triples = triples[triples[:, 0] != triples[:, 2]]
    entities = Vocabulary("entity", tuple(map(str, range(ENTITIES))))
    relations = Vocabulary("relation", tuple(map(str, range(RELATIONS))))
    return KnowledgeGraph("random", entities, relations, triples)


def distance_from_chance(
    hide: Literal["edge", "pair"], kind: type[PathModel], kernels: Literal["auto", "plain"]
) -> float:
    """Train a model on a random graph and rank the answers in another one, as queries that hide their own fact.

    In the same graph, the model could memorize which degrees are frequent. Return the distance of the MRR from that of
    chance, in standard errors. By chance, all ranks among the candidates have the same probability.
    """
    settings = PathSettings(
        dim=8,
        layers=4,
        steps=150,
        batch=16,
        hide=hide,
        averaging=0.9,
        learning_rate=0.02,
        weight_decay=0.0,
        kernels=kernels,
    )
    trained = kind(random_graph(0), settings)
    trained.fit(Examples.of(trained.graph.train), seed=0)
    model = trained.bind(random_graph(1))
    triples = model.graph.train
    found, expected, variance, generator = 0.0, 0.0, 0.0, torch.Generator().manual_seed(0)
    sides: list[tuple[Side, int, int]] = [("tail", 0, 2), ("head", 2, 0)]
    for side, known, answer in sides:
        index, offset = AnswerIndex.of(triples, ENTITIES, side), RELATIONS * (side == "head")
        for part in np.array_split(triples, 10):
            asked = part[:, [known, 1, answer]] + [0, offset, 0]
            entity, relation, target = torch.from_numpy(asked.T.copy())
            queries = PathQueries(entity, relation, target, hide)
            with torch.no_grad():
                scores = model.scorer(model.parameters, queries, model.mean_log_count).double()
            scores += 1e-9 * torch.rand(scores.shape, generator=generator)
            score = scores.gather(1, queries.answer[:, None])
            row, other, _ = index.lookup(part[:, known], part[:, 1])
            scores[torch.from_numpy(row), torch.from_numpy(other)] = -torch.inf
            scores[torch.arange(len(part)), queries.known] = -torch.inf  # the graph has no self-loops
            rank = 1 + (scores > score).sum(1)
            found += float((1 / rank).sum())
            for n in (torch.isfinite(scores).sum(1) + 1).tolist():
                reciprocal = 1 / np.arange(1, n + 1)
                expected += reciprocal.mean()
                variance += reciprocal.var()
    return float((found - expected) / variance**0.5)


@pytest.mark.parametrize(("hide", "kind"), [("edge", PathModel), ("pair", PathModel), ("edge", DoubledModel)])
def test_a_graph_without_structure_cannot_be_predicted(hide: Literal["edge", "pair"], kind: type[PathModel]) -> None:
    assert abs(distance_from_chance(hide, kind, "auto")) < 3


def uncorrected(layer: PlainLayer, hidden: torch.Tensor) -> torch.Tensor:
    return (layer.edges.degree + 1)[:, None].expand(-1, hidden.shape[1])


HIDDEN = PathQueries.hidden


def without_inverse(queries: PathQueries, edges: Edges) -> torch.Tensor:
    return HIDDEN(queries, edges) & (edges.relation < edges.n_relations)[:, None]


def without_copies(queries: PathQueries, edges: Edges) -> torch.Tensor:
    columns = torch.stack([edges.destination, edges.relation, edges.source])
    is_first = torch.ones(len(edges), dtype=torch.bool)
    is_first[1:] = (columns[:, 1:] != columns[:, :-1]).any(0)
    return HIDDEN(queries, edges) & is_first[:, None]


@pytest.mark.parametrize(
    ("owner", "name", "mistake", "kind"),
    [
        (PlainLayer, "count_messages", uncorrected, PathModel),
        (PathQueries, "hidden", without_inverse, PathModel),
        (PathQueries, "hidden", without_copies, DoubledModel),
    ],
)
def test_each_mistake_in_hiding_is_noticed(
    owner: type,
    name: str,
    mistake: Callable[..., torch.Tensor],
    kind: type[PathModel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner, name, mistake)
    assert distance_from_chance("edge", kind, "plain") > 6


def test_pairs_are_hidden_if_linked_pairs_are_rarer_in_valid() -> None:
    linked = [("a", "r", "b"), ("a", "s", "b"), ("c", "r", "d"), ("d", "s", "c")]
    graph = KnowledgeGraph.from_names(linked, [("a", "r", "c"), ("b", "r", "d")])
    assert choose_hiding(graph) == "pair"
    assert choose_hiding(KnowledgeGraph.from_names(linked, [("b", "r", "a"), ("b", "r", "d")])) == "edge"
