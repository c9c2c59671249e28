"""Random graphs and queries for tests of the path model."""

import numpy as np
import torch

from plogicnet.graph import Hide, IntArray
from plogicnet.neural.checkpoint import Tensors
from plogicnet.neural.paths.edges import Edges, PathQueries
from plogicnet.neural.paths.network import Scorer


def random_graph(seed: int, n: int, n_triples: int, n_relations: int) -> IntArray:
    """Return triples with a hub, a self-loop and parallel edges; the last entity and relation have none."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, max(1, n - 1), (2, n_triples))
    triples = np.stack([ends[0], rng.integers(0, max(1, n_relations - 1), n_triples), ends[1]], 1)
    triples[: n_triples // 3, 0] = 0  # a hub
    return np.concatenate([triples, triples[:2], [[0, 0, 0]]])


def scores_and_gradients(
    scorer: Scorer, parameters: Tensors, edges: Edges, queries: PathQueries, dtype: torch.dtype
) -> tuple[torch.Tensor, Tensors]:
    """Return the scores of a scorer and the gradients of a loss, with parameters of some type."""
    parameters = {
        name: value.to(queries.known.device, dtype, copy=True).requires_grad_() for name, value in parameters.items()
    }
    scores = scorer(parameters, queries, edges.mean_log_count)
    torch.nn.functional.cross_entropy(scores, queries.answer).backward()  # type: ignore[no-untyped-call]
    return scores.detach().double(), {name: p.grad.double() for name, p in parameters.items() if p.grad is not None}


def sampled_queries(triples: IntArray, n: int, seed: int, hide: Hide, device: torch.device) -> PathQueries:
    """Return queries of some of the triples, which are to be hidden."""
    rows = np.random.default_rng(seed).integers(0, len(triples), n)
    entity, relation, answer = torch.from_numpy(triples[rows].T.copy()).to(device)
    return PathQueries(entity, relation, answer, hide)


def assert_equal_up_to_rounding(found: tuple[torch.Tensor, Tensors], expected: tuple[torch.Tensor, Tensors]) -> None:
    """Compare scores and gradients in float32 with those in float64.

    The gradient of a deviation near its lower bound is large, so rounding in one entry reaches all others. The plain
    layer in float32 has errors of the same size.
    """
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-4)
    for name, gradient in expected[1].items():
        atol = 1e-4 + 1e-3 * float(gradient.abs().max())
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-3, atol=atol, msg=name)
