"""Vector models: geometries, negative sampling, losses and kernels.

Importing this package does not import PyTorch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plogicnet.neural.vectors.settings import VectorBlock, VectorSettings, search_space

if TYPE_CHECKING:
    from plogicnet.config import Config, SearchSpace
    from plogicnet.graph import KnowledgeGraph
    from plogicnet.neural.protocol import Cost, Guide
    from plogicnet.neural.vectors.model import VectorModel

MODEL_NAMES = ("TransE", "RotatE", "DistMult", "ComplEx", "HolE", "ConvE")
"""The names of the vector models. Each is a geometry, a class in `models.py` with this name."""


@dataclass(frozen=True)
class VectorKind:
    """The kind of model that is registered in `MODELS` for every geometry; see `ModelKind`."""

    block: str = "vectors"
    settings: type = VectorBlock
    implied_settings: Mapping[str, object] = field(default_factory=dict)

    def make(self, graph: "KnowledgeGraph", config: "Config", guide: "Guide | None" = None) -> "VectorModel":
        """Return an untrained model of a graph."""
        from plogicnet.neural.vectors.model import VectorModel

        return VectorModel.of(graph, config, guide)

    def cost(self, graph: "KnowledgeGraph", config: "Config") -> "Cost":
        """Estimate the cost of training."""
        from plogicnet.neural.vectors.cost import training_cost

        return training_cost(graph, config, VectorSettings.of(config.neural))

    def search_space(self, graph: "KnowledgeGraph", config: "Config") -> "SearchSpace":
        """Return the settings that are worth searching on a graph, with their ranges."""
        return search_space(config.neural.model, len(graph.train))


VECTORS = VectorKind()
