"""ComplEx: q = σ(Re Σ h·r·conj(t)) with complex vectors, so that relations need not be symmetric."""

import torch

from plogicnet.graph import Side
from plogicnet.kge.geometry import Geometry, halves, product


class ComplEx(Geometry):
    """Queries are h·r for tails and t·conj(r) for heads; the real part of a product is a dot product of halves.

    Example:
        >>> from plogicnet.config import KGE
        >>> model = ComplEx(KGE(dim=1))
        >>> i = torch.tensor([[0.0, 1.0]])
        >>> model.pair(model.query(torch.tensor([[1.0, 0.0]]), i, "tail"), i)
        tensor([1.])
    """

    kernel = "dot"

    @property
    def widths(self) -> tuple[int, int]:
        """Complex entities and relations."""
        return 2 * self.dim, 2 * self.dim

    def query(self, known: torch.Tensor, relation: torch.Tensor, side: Side) -> torch.Tensor:
        """The complex products."""
        return product(known, relation, conjugate=side == "head")

    def cubes(self, vectors: torch.Tensor) -> torch.Tensor:
        """Σ |z|³ of complex coordinates."""
        real, imaginary = halves(vectors)
        return (real * real + imaginary * imaginary).pow(1.5).sum(-1)
