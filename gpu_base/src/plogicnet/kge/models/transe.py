"""TransE: a relation is a translation, and q = σ(γ - ‖h + r - t‖₁) (Sec. 3.3 with the L1 norm)."""

import torch

from plogicnet.graph import Side
from plogicnet.kge.geometry import Geometry


class TransE(Geometry):
    """Queries are h + r for tails and t - r for heads; candidates are compared with them by L1 distance.

    Example:
        >>> from plogicnet.config import KGE
        >>> model = TransE(KGE(dim=2, gamma=1.0))
        >>> query = model.query(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]]), "tail")
        >>> model.pair(query, torch.tensor([[1.0, 0.5]]))
        tensor([0.5000])
    """

    kernel = "l1"

    def query(self, known: torch.Tensor, relation: torch.Tensor, side: Side) -> torch.Tensor:
        """The vector that the asked entity's should be near."""
        return known + relation if side == "tail" else known - relation
