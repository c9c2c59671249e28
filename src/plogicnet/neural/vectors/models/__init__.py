"""The models, each a file that says what its query vectors are. A new one is listed here and in the settings."""

from collections.abc import Mapping

import torch

from plogicnet.neural.vectors.geometry import Geometry
from plogicnet.neural.vectors.models.complex import ComplEx
from plogicnet.neural.vectors.models.conve import ConvE
from plogicnet.neural.vectors.models.distmult import DistMult
from plogicnet.neural.vectors.models.hole import HolE
from plogicnet.neural.vectors.models.rotate import RotatE
from plogicnet.neural.vectors.models.transe import TransE
from plogicnet.neural.vectors.settings import VectorSettings

MODELS: Mapping[str, type[Geometry]] = {
    model.__name__: model for model in (TransE, RotatE, DistMult, ComplEx, HolE, ConvE)
}

__all__ = ["MODELS", "ComplEx", "ConvE", "DistMult", "HolE", "RotatE", "TransE", "make_geometry"]


def make_geometry(settings: VectorSettings, device: torch.device | None = None) -> Geometry:
    """The model that the settings name.

    Example:
        >>> type(make_geometry(VectorSettings())).__name__
        'TransE'
    """
    return MODELS[settings.model](settings, device)
