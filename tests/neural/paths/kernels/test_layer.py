"""The fused layer equals the plain layer and its autograd gradients, on random graphs."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plogicnet.graph import IntArray
from plogicnet.neural.paths.edges import Edges, Hide, PathQueries
from plogicnet.neural.paths.layer import Layer, PlainLayer
from plogicnet.neural.paths.network import initial_parameters, score_queries

triton = pytest.importorskip("triton")
from plogicnet.neural.paths.kernels.layer import FusedLayer  # noqa: E402

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DIM = 16


def random_graph(seed: int, n: int, n_triples: int, n_relations: int) -> IntArray:
    """Return triples with a hub, a self-loop and parallel edges; the last entity and relation have none."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, max(1, n - 1), (2, n_triples))
    triples = np.stack([ends[0], rng.integers(0, max(1, n_relations - 1), n_triples), ends[1]], 1)
    triples[: n_triples // 3, 0] = 0  # a hub
    return np.concatenate([triples, triples[:2], [[0, 0, 0]]])


def losses_and_gradients(
    layer: Layer, edges: Edges, queries: PathQueries, seed: int, dtype: torch.dtype, dim: int = DIM
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    drawn = initial_parameters(edges.n_relations, dim, 3, torch.Generator().manual_seed(seed))
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    parameters = {name: value.to(DEVICE, wide).requires_grad_() for name, value in drawn.items()}
    scores = score_queries(parameters, layer, queries, edges.n_entities, edges.mean_log_count, dtype)
    torch.nn.functional.cross_entropy(scores, queries.answer).backward()  # type: ignore[no-untyped-call]
    return scores.detach().double(), {name: p.grad.double() for name, p in parameters.items() if p.grad is not None}


def sampled_queries(triples: IntArray, n: int, seed: int, hide: Hide) -> PathQueries:
    rows = np.random.default_rng(seed).integers(0, len(triples), n)
    entity, relation, answer = torch.from_numpy(triples[rows].T.copy()).to(DEVICE)
    return PathQueries(entity, relation, answer, hide)


@example(seed=92, n=7, n_triples=9, n_queries=16, hide="nothing", max_piece=3)  # a variance just above the smallest
@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    n=st.integers(1, 8),
    n_triples=st.integers(1, 20),
    n_queries=st.sampled_from([16, 32]),
    hide=st.sampled_from(["nothing", "edge", "pair"]),
    max_piece=st.sampled_from([3, 256]),
)
def test_scores_and_gradients_equal_those_of_the_plain_layer(
    seed: int, n: int, n_triples: int, n_queries: int, hide: Hide, max_piece: int
) -> None:
    n_relations = 1 + seed % 3
    triples = random_graph(seed, n, n_triples, n_relations)
    edges, queries = Edges.of(triples, n, n_relations, DEVICE), sampled_queries(triples, n_queries, seed, hide)
    expected, expected_gradients = losses_and_gradients(PlainLayer(edges), edges, queries, seed, torch.float64)
    scores, gradients = losses_and_gradients(FusedLayer(edges, max_piece), edges, queries, seed, torch.float32)
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-4)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected_gradients[name], rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.skipif(DEVICE.type == "cpu", reason="the interpreter has no bfloat16 products")
@pytest.mark.parametrize("dim", [16, 32, 64, 128])
@pytest.mark.parametrize("hide", ["edge", "pair"])
def test_states_in_bfloat16_give_nearly_the_same(dim: int, hide: Hide) -> None:
    triples = random_graph(1, 200, 3_000, 5)
    edges, queries = Edges.of(triples, 200, 5, DEVICE), sampled_queries(triples, 48, 1, hide)
    expected, expected_gradients = losses_and_gradients(PlainLayer(edges), edges, queries, 1, torch.float64, dim)
    scores, gradients = losses_and_gradients(FusedLayer(edges), edges, queries, 1, torch.bfloat16, dim)
    assert float((scores - expected).norm() / expected.norm()) < 0.02
    for name, gradient in gradients.items():
        cosine = torch.nn.functional.cosine_similarity(gradient.flatten(), expected_gradients[name].flatten(), dim=0)
        assert float(cosine) > 0.97, name
