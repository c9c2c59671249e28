"""The fused layer equals the plain layer and its autograd gradients, on random graphs."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from path_graphs import assert_equal_up_to_rounding, random_graph, sampled_queries, scores_and_gradients
from plogicnet.graph import Hide
from plogicnet.neural.paths.edges import Edges
from plogicnet.neural.paths.layer import PlainLayer
from plogicnet.neural.paths.network import LayerScorer, initial_parameters

triton = pytest.importorskip("triton")
from plogicnet.neural.paths.kernels.layer import FusedLayer  # noqa: E402

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DIM = 16


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
    edges = Edges.of(triples, n, n_relations, DEVICE)
    queries = sampled_queries(triples, n_queries, seed, hide, DEVICE)
    parameters = initial_parameters(n_relations, DIM, 3, torch.Generator().manual_seed(seed))
    plain, fused = LayerScorer(PlainLayer(edges), n, torch.float64), LayerScorer(FusedLayer(edges, max_piece), n)
    expected = scores_and_gradients(plain, parameters, edges, queries, torch.float64)
    found = scores_and_gradients(fused, parameters, edges, queries, torch.float32)
    assert_equal_up_to_rounding(found, expected)


@pytest.mark.skipif(DEVICE.type == "cpu", reason="the interpreter has no bfloat16 products")
@pytest.mark.parametrize("dim", [16, 32, 64, 128])
@pytest.mark.parametrize("hide", ["edge", "pair"])
def test_states_in_bfloat16_give_nearly_the_same(dim: int, hide: Hide) -> None:
    triples = random_graph(1, 200, 3_000, 5)
    edges, queries = Edges.of(triples, 200, 5, DEVICE), sampled_queries(triples, 48, 1, hide, DEVICE)
    parameters = initial_parameters(5, dim, 3, torch.Generator().manual_seed(1))
    plain, fused = (
        LayerScorer(PlainLayer(edges), 200, torch.float64),
        LayerScorer(FusedLayer(edges), 200, torch.bfloat16),
    )
    expected, expected_gradients = scores_and_gradients(plain, parameters, edges, queries, torch.float64)
    scores, gradients = scores_and_gradients(fused, parameters, edges, queries, torch.float32)
    assert float((scores - expected).norm() / expected.norm()) < 0.02
    for name, gradient in gradients.items():
        cosine = torch.nn.functional.cosine_similarity(gradient.flatten(), expected_gradients[name].flatten(), dim=0)
        assert float(cosine) > 0.97, name
