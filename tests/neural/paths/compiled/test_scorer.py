"""The compiled scorer equals the plain layer and its autograd gradients; a frontier equals a slow reference."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from path_graphs import assert_equal_up_to_rounding, random_graph, sampled_queries, scores_and_gradients
from plogicnet.graph import Hide
from plogicnet.neural.checkpoint import Tensors
from plogicnet.neural.paths.backend import choose_backend
from plogicnet.neural.paths.compiled.reach import random_number
from plogicnet.neural.paths.compiled.scorer import CompiledScorer
from plogicnet.neural.paths.edges import Edges, PathQueries
from plogicnet.neural.paths.layer import PlainLayer
from plogicnet.neural.paths.network import LayerScorer, initial_parameters
from plogicnet.neural.paths.settings import PathSettings
from plogicnet.support.errors import InputError

CPU = torch.device("cpu")
DIM, LAYERS = 8, 3
RANDOM_GRAPHS = given(
    seed=st.integers(0, 2**31),
    n=st.integers(1, 12),
    n_triples=st.integers(1, 30),
    n_queries=st.integers(1, 5),
    hide=st.sampled_from(["nothing", "edge", "pair"]),
    frontier=st.sampled_from([1, 2, 3, 4, 100]),
)


class FrontierReference:
    """A frontier by masks: in each layer, only members keep their state."""

    def __init__(self, edges: Edges, frontier: int) -> None:
        self.edges, self.frontier = edges, frontier

    def __call__(self, parameters: Tensors, queries: PathQueries, mean_log_count: float) -> torch.Tensor:
        """Return the scores, with a gate of value 1 on each new member as in the straight-through estimator.

        The scores of a query have no gradient if its answer is no member.
        """
        n, n_queries = self.edges.n_entities, len(queries)
        plain, priorities = PlainLayer(self.edges), iter(parameters["priority"])
        member = np.zeros((n, n_queries), dtype=bool)
        member[queries.known, np.arange(n_queries)] = True

        def layer(states: torch.Tensor, inputs, queries: PathQueries) -> torch.Tensor:  # type: ignore[no-untyped-def]
            weight = next(priorities)
            gate = torch.zeros(n, n_queries, dtype=states.dtype)
            gate[torch.from_numpy(member)] = 1
            for q in range(n_queries):
                proposed = self._proposed(states.detach(), inputs.relation_vector.detach(), queries, q, member, weight)
                for v, value in proposed:
                    gate[v, q] = 1 + torch.sigmoid(value) - torch.sigmoid(value).detach()
                    member[v, q] = True
            new: torch.Tensor = plain(states, inputs, queries) * gate[:, :, None]
            return new

        scores = LayerScorer(layer, n, torch.float64)(parameters, queries, mean_log_count)
        is_reached = torch.from_numpy(member[queries.answer, np.arange(n_queries)])
        return torch.where(is_reached[:, None], scores, scores.detach())

    def _proposed(  # type: ignore[no-untyped-def]
        self, states, vector, queries: PathQueries, q: int, member, weight: torch.Tensor
    ) -> list[tuple[int, torch.Tensor]]:
        """Return the new members of a query with their priorities."""
        n_relations, hidden = self.edges.n_relations, queries.hidden(self.edges)[:, q].numpy()
        rows = torch.stack([self.edges.source, self.edges.relation, self.edges.destination], 1).numpy()[~hidden]
        rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
        edges_to = [rows[rows[:, 2] == v] for v in range(self.edges.n_entities)]
        best: dict[int, torch.Tensor] = {}
        for u in np.flatnonzero(member[:, q]):
            out, degree = edges_to[u], len(edges_to[u])
            count = min(self.frontier, degree)
            for j in range(count):  # u sends the inverse of each edge to it
                v, inverse, _ = out[j * degree // count].tolist()
                if not member[v, q]:
                    message = vector[(inverse + n_relations) % (2 * n_relations), q] * states[u, q]
                    value = message @ weight[:-1] + weight[-1] * np.log1p(len(edges_to[v]))
                    best[v] = max(best.get(v, value), value)
        noisy = {v: float(value.detach()) + 1e-6 * random_number(0, v) for v, value in best.items()}
        chosen = sorted(best, key=lambda v: -noisy[v])[: self.frontier]
        return [(v, best[v]) for v in chosen]


@example(seed=8, n=3, n_triples=3, n_queries=1, hide="nothing", frontier=1)  # more edges than entities
@settings(max_examples=40, deadline=None)
@RANDOM_GRAPHS
def test_scores_and_gradients_equal_those_of_the_plain_layer(
    seed: int, n: int, n_triples: int, n_queries: int, hide: Hide, frontier: int
) -> None:
    """Without a frontier, and with one that has room for all entities."""
    n_relations = 1 + seed % 3
    triples = random_graph(seed, n, n_triples, n_relations)
    edges, queries = Edges.of(triples, n, n_relations, CPU), sampled_queries(triples, n_queries, seed, hide, CPU)
    parameters = initial_parameters(n_relations, DIM, LAYERS, torch.Generator().manual_seed(seed))
    plain = LayerScorer(PlainLayer(edges), n, torch.float64)
    expected = scores_and_gradients(plain, parameters, edges, queries, torch.float64)
    exact = CompiledScorer(edges)
    for _ in range(2):  # the second time, the tables are used again
        found = scores_and_gradients(exact, parameters, edges, queries, torch.float32)
        assert_equal_up_to_rounding(found, expected)
    parameters["priority"] = torch.randn(LAYERS, DIM + 1, generator=torch.Generator().manual_seed(seed))
    wide = CompiledScorer(edges, frontier=100 * frontier)
    scores = wide(parameters, queries, edges.mean_log_count)
    torch.testing.assert_close(scores.double(), expected[0], rtol=1e-4, atol=1e-4)


@example(seed=1273331140, n=10, n_triples=8, n_queries=2, hide="pair", frontier=4)  # a variance near the smallest
@settings(max_examples=40, deadline=None)
@RANDOM_GRAPHS
def test_a_frontier_equals_its_reference(
    seed: int, n: int, n_triples: int, n_queries: int, hide: Hide, frontier: int
) -> None:
    n_relations = 1 + seed % 3
    triples = random_graph(seed, n, n_triples, n_relations)
    edges, queries = Edges.of(triples, n, n_relations, CPU), sampled_queries(triples, n_queries, seed, hide, CPU)
    generator = torch.Generator().manual_seed(seed)
    parameters = initial_parameters(n_relations, DIM, LAYERS, generator, has_frontier=True)
    parameters["priority"] = torch.randn(LAYERS, DIM + 1, generator=generator)
    reference = FrontierReference(edges, frontier)
    expected = scores_and_gradients(reference, parameters, edges, queries, torch.float64)
    found = scores_and_gradients(CompiledScorer(edges, frontier), parameters, edges, queries, torch.float32)
    assert_equal_up_to_rounding(found, expected)


def test_seeds_decide_which_entities_training_tries() -> None:
    triples = random_graph(0, 60, 300, 2)
    edges, queries = Edges.of(triples, 60, 2, CPU), sampled_queries(triples, 8, 0, "edge", CPU)
    parameters = initial_parameters(2, DIM, LAYERS, torch.Generator().manual_seed(0), has_frontier=True)
    scorer = CompiledScorer(edges, frontier=3)

    def scores(*seeds: int) -> torch.Tensor:
        noisy = PathQueries(queries.known, queries.relation, queries.answer, queries.hide, torch.tensor(seeds))
        return scorer(parameters, noisy, edges.mean_log_count)

    first, again, other = scores(*range(8)), scores(*range(8)), scores(*range(7), 99)
    assert torch.equal(first, again)
    assert torch.equal(first[:7], other[:7])
    assert not torch.equal(first[7], other[7])


def test_a_frontier_without_compiled_code_is_refused() -> None:
    with pytest.raises(InputError, match=r"neural\.paths\.frontier needs compiled code"):
        choose_backend(PathSettings(frontier=10, kernels="plain"), CPU)
