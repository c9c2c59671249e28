"""The fused layer equals the plain layer and its autograd gradients, on random graphs."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plogicnet.neural.paths.edges import Edges, Hide, PathQueries
from plogicnet.neural.paths.layer import PlainLayer
from plogicnet.neural.paths.network import initial_parameters, score_queries

triton = pytest.importorskip("triton")
from plogicnet.neural.paths.kernels.layer import FusedLayer  # noqa: E402

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DIM, QUERIES = 16, 16


def random_graph(
    seed: int, n: int, n_triples: int, n_relations: int
) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    """Return triples with a hub, a self-loop and parallel edges; the last entity and relation have none."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, max(1, n - 1), (2, n_triples))
    triples = np.stack([ends[0], rng.integers(0, max(1, n_relations - 1), n_triples), ends[1]], 1)
    triples[: n_triples // 3, 0] = 0  # a hub
    return np.concatenate([triples, triples[:2], [[0, 0, 0]]])


def losses_and_gradients(
    layer: object, edges: Edges, queries: PathQueries, seed: int, dtype: torch.dtype
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    drawn = initial_parameters(edges.n_relations, DIM, 3, torch.Generator().manual_seed(seed))
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    parameters = {name: value.to(DEVICE, wide).requires_grad_() for name, value in drawn.items()}
    scores = score_queries(parameters, layer, queries, edges.n_entities, edges.mean_log_count, dtype)  # type: ignore[arg-type]
    torch.nn.functional.cross_entropy(scores, queries.answer).backward()  # type: ignore[no-untyped-call]
    return scores.detach().double(), {name: p.grad.double() for name, p in parameters.items() if p.grad is not None}


@example(seed=92, n=7, n_triples=9, n_relations=1, hide="nothing", max_piece=3)  # a variance just above the smallest
@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    n=st.integers(1, 12),
    n_triples=st.integers(1, 40),
    n_relations=st.integers(1, 4),
    hide=st.sampled_from(["nothing", "edge", "pair"]),
    max_piece=st.sampled_from([3, 256]),
)
def test_scores_and_gradients_equal_those_of_the_plain_layer(
    seed: int, n: int, n_triples: int, n_relations: int, hide: Hide, max_piece: int
) -> None:
    triples = random_graph(seed, n, n_triples, n_relations)
    edges = Edges.of(triples, n, n_relations, DEVICE)
    asked = torch.from_numpy(triples[np.random.default_rng(seed).integers(0, len(triples), QUERIES)]).to(DEVICE)
    queries = PathQueries(asked[:, 0].clone(), asked[:, 1].clone(), asked[:, 2].clone(), hide)
    expected, expected_gradients = losses_and_gradients(PlainLayer(edges), edges, queries, seed, torch.float64)
    scores, gradients = losses_and_gradients(FusedLayer(edges, max_piece), edges, queries, seed, torch.float32)
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-4)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected_gradients[name], rtol=1e-3, atol=1e-4, msg=name)
