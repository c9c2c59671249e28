"""The path model: message passing from the known entity of a query to all candidates.

Importing this package does not import PyTorch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plogicnet.neural.paths.settings import PathBlock, PathSettings, search_space

if TYPE_CHECKING:
    from plogicnet.config import Config, SearchSpace
    from plogicnet.graph import KnowledgeGraph
    from plogicnet.neural.paths.model import PathModel
    from plogicnet.neural.protocol import Cost, Guide


@dataclass(frozen=True)
class PathKind:
    """The kind of model that is registered in `MODELS` as Paths; see `ModelKind`."""

    block: str = "paths"
    settings: type = PathBlock
    implied_settings: Mapping[str, object] = field(default_factory=dict)
    proposes_rules: bool = True

    def make(self, graph: "KnowledgeGraph", config: "Config", guide: "Guide | None" = None) -> "PathModel":
        """Return an untrained model of a graph."""
        from plogicnet.neural.paths.model import PathModel

        return PathModel.of(graph, config, guide)

    def cost(self, graph: "KnowledgeGraph", config: "Config") -> "Cost":
        """Estimate the cost of training."""
        from plogicnet.neural.paths.backend import choose_backend, device_for
        from plogicnet.neural.paths.cost import training_cost

        settings = PathSettings.of(config.neural)
        backend = choose_backend(settings, device_for(settings, config.device))
        return training_cost(graph, settings, backend, config.em.hidden_negatives == "explicit")

    def search_space(self, graph: "KnowledgeGraph", config: "Config") -> "SearchSpace":  # noqa: ARG002
        """Return the settings that are worth searching on a graph, with their ranges."""
        return search_space(len(graph.train))


PATHS = PathKind()
