"""The same scores, with and without ties, give the same metrics as PyKEEN's evaluator."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from plogicnet.evaluation.metrics import compute_metrics
from plogicnet.evaluation.orders import CombinedOrder
from plogicnet.evaluation.ranking import rank
from plogicnet.graph import IntArray, KnowledgeGraph, Side, TripleSet, demo_family
from plogicnet.mln import RuleScores
from plogicnet.neural.protocol import Examples
from plogicnet.neural.vectors.model import VectorModel
from plogicnet.neural.vectors.settings import VectorSettings

REASON = "PyKEEN is not installed (pip install 'plogicnet[pykeen]')"
PYKEEN_NAMES = {
    "mr": "arithmetic_mean_rank",
    "mrr": "inverse_harmonic_mean_rank",
    "hits_at_1": "hits_at_1",
    "hits_at_3": "hits_at_3",
    "hits_at_10": "hits_at_10",
}


class Rounded(VectorModel):
    """A trained model with scores rounded to integers, so that most candidates are tied."""

    def score_all(self, known: IntArray, relations: IntArray, side: Side) -> torch.Tensor:
        return super().score_all(known, relations, side).round()


def trained(kind: type[VectorModel], graph: KnowledgeGraph) -> VectorModel:
    model = kind(
        len(graph.entities),
        len(graph.relations),
        VectorSettings(dim=16, steps=200, batch=128, negatives=16, share_negatives=16, gamma=6.0, learning_rate=0.01),
    )
    model.fit(Examples.of(graph.train), seed=0)
    return model


def pykeen_metrics(graph: KnowledgeGraph, model: VectorModel) -> dict[str, float]:
    """Return PyKEEN's metrics, computed by its evaluator from a PyKEEN model that returns our scores."""
    pytest.importorskip("pykeen", reason=REASON)
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.models.mocks import FixedModel
    from pykeen.triples import CoreTriplesFactory

    class Ours(FixedModel):  # type: ignore[misc]
        def score_t(self, hr_batch: torch.Tensor, **_: Any) -> torch.Tensor:
            return model.score_all(hr_batch[:, 0].numpy(), hr_batch[:, 1].numpy(), "tail")

        def score_h(self, rt_batch: torch.Tensor, **_: Any) -> torch.Tensor:
            return model.score_all(rt_batch[:, 1].numpy(), rt_batch[:, 0].numpy(), "head")

    splits = [torch.from_numpy(graph.split(split).copy()) for split in ("train", "valid", "test")]
    factory = CoreTriplesFactory(splits[0], len(graph.entities), len(graph.relations))
    results = RankBasedEvaluator(filtered=True).evaluate(
        Ours(triples_factory=factory),
        splits[2],
        additional_filter_triples=splits[:2],
        batch_size=32,
        use_tqdm=False,
    )
    get: Callable[[str], float] = results.get_metric
    return {
        f"{policy} {ours}": get(f"both.{policy}.{theirs}")
        for policy in ("realistic", "optimistic", "pessimistic")
        for ours, theirs in PYKEEN_NAMES.items()
    }


@pytest.mark.parametrize("kind", [VectorModel, Rounded])
def test_metrics_equal_those_of_pykeen(kind: type[VectorModel]) -> None:
    pytest.importorskip("pykeen", reason=REASON)
    graph = demo_family()
    model, relations = trained(kind, graph), len(graph.relations)
    none = TripleSet.of([], len(graph.entities))
    rules = RuleScores(none, np.empty(0), np.zeros(relations), np.zeros(relations, dtype=bool), graph.observed)
    ranks = rank(graph, "test", model, rules, {"neural": CombinedOrder(constraint=False)})["neural"]
    if kind is Rounded:
        assert ranks.n_tied.mean() > 1
    ours = {
        f"{policy} {metric}": value
        for policy in ("realistic", "optimistic", "pessimistic")
        for metric, value in compute_metrics(getattr(ranks, policy)).items()
    }
    assert ours == pytest.approx(pykeen_metrics(graph, model), rel=1e-6)
