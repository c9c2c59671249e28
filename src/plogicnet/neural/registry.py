"""The kind of model that the settings name, and the models that it creates."""

from typing import cast

from plogicnet.config import MODELS, Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.neural.mixture.kind import MixtureKind
from plogicnet.neural.protocol import Guide, ModelKind, NeuralModel


def make_model(graph: KnowledgeGraph, config: Config, guide: Guide | None = None) -> NeuralModel:
    """Return an untrained model of the kind that the settings name.

    Example:
        >>> graph = KnowledgeGraph.from_names([("anna", "knows", "ben")])
        >>> make_model(graph, Config(device="cpu")).device
        device(type='cpu')
    """
    return model_kind(config).make(graph, config, guide)


def model_kind(config: Config) -> ModelKind:
    """Return the registered kind of model that the settings name, or the mixture of several.

    Example:
        >>> model_kind(Config().with_assignments(["neural.model=Paths"])).block
        'paths'
    """
    if config.neural.mixture:
        return MixtureKind(tuple(model_kind(part) for part in config.model_configs))
    return cast("ModelKind", MODELS.get(config.neural.model))
