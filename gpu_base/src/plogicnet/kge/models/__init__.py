"""The models, each a file that says what its query vectors are. A new one is listed here and in the settings."""

from collections.abc import Mapping

import torch

from plogicnet.config import KGE
from plogicnet.kge.geometry import Geometry
from plogicnet.kge.models.complex import ComplEx
from plogicnet.kge.models.conve import ConvE
from plogicnet.kge.models.distmult import DistMult
from plogicnet.kge.models.hole import HolE
from plogicnet.kge.models.rotate import RotatE
from plogicnet.kge.models.transe import TransE

MODELS: Mapping[str, type[Geometry]] = {
    model.__name__: model for model in (TransE, RotatE, DistMult, ComplEx, HolE, ConvE)
}

__all__ = ["MODELS", "ComplEx", "ConvE", "DistMult", "HolE", "RotatE", "TransE", "make_geometry"]


def make_geometry(settings: KGE, device: torch.device | None = None) -> Geometry:
    """The model that the settings name.

    Example:
        >>> type(make_geometry(KGE())).__name__
        'TransE'
    """
    return MODELS[settings.model](settings, device)
