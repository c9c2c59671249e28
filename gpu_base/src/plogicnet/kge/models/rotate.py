"""RotatE: a relation turns each complex coordinate by an angle, and q = σ(γ - Σ |h·e^(iφ) - t|)."""

import math

import torch

from plogicnet.graph import Side
from plogicnet.kge.geometry import Geometry, product


class RotatE(Geometry):
    """Queries are heads turned forwards or tails turned back; candidates are compared by the sum of complex moduli.

    A relation's parameters begin as uniform as an entity's, within ±(γ + 2)/dim, and are stretched so that this range
    is the whole circle, as the recipe has it: one learning rate then suits both.

    Example:
        >>> from plogicnet.config import KGE
        >>> model = RotatE(KGE(dim=1, gamma=1.0))
        >>> half_turn = torch.tensor([[model.bound]])
        >>> model.pair(model.query(torch.tensor([[1.0, 0.0]]), half_turn, "tail"), torch.tensor([[-1.0, 0.0]]))
        tensor([1.0000])
    """

    kernel = "modulus"

    @property
    def widths(self) -> tuple[int, int]:
        """Complex entities, and one angle a coordinate."""
        return 2 * self.dim, self.dim

    def query(self, known: torch.Tensor, relation: torch.Tensor, side: Side) -> torch.Tensor:
        """The known entity's coordinates, turned."""
        angle = relation * (math.pi / self.bound)
        return product(known, torch.cat([angle.cos(), angle.sin()], dim=-1), conjugate=side == "head")
