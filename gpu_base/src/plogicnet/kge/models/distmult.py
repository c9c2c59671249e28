"""DistMult: q = σ(Σ h·r·t); every relation is symmetric to it."""

import torch

from plogicnet.graph import Side
from plogicnet.kge.geometry import Geometry


class DistMult(Geometry):
    """Queries are the products of entity and relation, for either side.

    Example:
        >>> from plogicnet.config import KGE
        >>> model = DistMult(KGE(dim=2))
        >>> query = model.query(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]), "tail")
        >>> model.pair(query, torch.tensor([[1.0, 1.0]]))
        tensor([11.])
    """

    kernel = "dot"

    def query(self, known: torch.Tensor, relation: torch.Tensor, side: Side) -> torch.Tensor:  # noqa: ARG002
        """The products, coordinate by coordinate."""
        return known * relation
