"""The mixture: several neural models as one, with weights that are fitted on validation triples.

Importing this package does not import PyTorch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plogicnet.support.errors import InputError

if TYPE_CHECKING:
    from plogicnet.config import Config
    from plogicnet.graph import KnowledgeGraph
    from plogicnet.neural.mixture.model import MixtureModel
    from plogicnet.neural.protocol import Cost, Guide


@dataclass(frozen=True)
class MixtureKind:
    """The kind of model of `neural.mixture`; see `ModelKind`. Each part has its own kind."""

    block: str = ""
    settings: type | None = None
    implied_settings: Mapping[str, object] = field(default_factory=dict)

    def make(self, graph: "KnowledgeGraph", config: "Config", guide: "Guide | None" = None) -> "MixtureModel":
        """Return an untrained model of a graph."""
        from plogicnet.neural.mixture.model import MixtureModel
        from plogicnet.neural.protocol import make_model

        if guide is not None:
            raise InputError(f"system={config.system} cannot train a mixture. Set neural.mixture=[].")
        configs = config.model_configs
        return MixtureModel([make_model(graph, c) for c in configs], [c.neural.model for c in configs], graph)

    def cost(self, graph: "KnowledgeGraph", config: "Config") -> "Cost":
        """Estimate the cost of training: the sum over the parts."""
        from plogicnet.neural.protocol import Cost, model_kind

        costs = [model_kind(c).cost(graph, c) for c in config.model_configs]
        steps = sum(cost.steps for cost in costs)
        return Cost(
            steps=steps,
            bytes=sum(cost.bytes for cost in costs),
            work=" and ".join(f"{cost.work} ({cost.steps:,} steps)" for cost in costs),
            purpose=" and ".join(cost.purpose for cost in costs),
            remedy=", or ".join(dict.fromkeys(cost.remedy for cost in costs)),
            positives=sum(cost.steps * cost.positives for cost in costs) // max(1, steps),
        )


MIXTURE = MixtureKind()
