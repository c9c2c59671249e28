"""The kind of model of `neural.mixture`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.neural.mixture.model import MixtureModel
from plogicnet.neural.protocol import Cost, Guide, ModelKind, ProposingKind
from plogicnet.support.errors import InputError


@dataclass(frozen=True)
class MixtureKind:
    """The kind of model of `neural.mixture`; see `ModelKind`.

    Attributes:
        parts: the kind of each part.
    """

    parts: tuple[ModelKind, ...]
    block: str = ""
    settings: type | None = None
    implied_settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def proposes_rules(self) -> bool:
        """Whether a part proposes rules."""
        return any(isinstance(part, ProposingKind) and part.proposes_rules for part in self.parts)

    def make(self, graph: KnowledgeGraph, config: Config, guide: Guide | None = None) -> MixtureModel:
        """Return an untrained model of a graph."""
        if guide is not None:
            raise InputError(f"system={config.system} cannot train a mixture. Set neural.mixture=[].")
        configs = config.model_configs
        models = [kind.make(graph, c) for kind, c in zip(self.parts, configs, strict=True)]
        return MixtureModel(models, [c.neural.model for c in configs], graph)

    def cost(self, graph: KnowledgeGraph, config: Config) -> Cost:
        """Estimate the cost of training.

        The parts are trained one after the other, so the memory is that of the largest part. The parameters of the
        other parts are small in comparison and are not included.
        """
        costs = [kind.cost(graph, c) for kind, c in zip(self.parts, config.model_configs, strict=True)]
        largest, steps = max(costs, key=lambda cost: cost.bytes), sum(cost.steps for cost in costs)
        return Cost(
            steps=steps,
            bytes=largest.bytes,
            work=" and ".join(f"{cost.work} ({cost.steps:,} steps)" for cost in costs),
            purpose=largest.purpose,
            remedy=largest.remedy,
            positives=sum(cost.steps * cost.positives for cost in costs) // max(1, steps),
        )
