"""TransE: a relation is a translation, and q = σ(γ - ‖h + r - t‖₁) (Sec. 3.3 with the L1 norm)."""

import torch

from plogicnet.graph import Side


class TransE:
    """Queries are h + r for tails and t - r for heads; candidates are compared with them by L1 distance.

    Example:
        >>> model = TransE(gamma=1.0)
        >>> query = model.query(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]]), "tail")
        >>> model.pair(query, torch.tensor([[1.0, 0.5]]))
        tensor([0.5000])
    """

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma

    def query(self, known: torch.Tensor, relation: torch.Tensor, side: Side) -> torch.Tensor:
        """The vector that the asked entity's should be near."""
        return known + relation if side == "tail" else known - relation

    def pair(self, queries: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """Scores of queries with one candidate each: (..., d) and (..., d) give (...)."""
        return self.gamma - (queries - candidates).abs().sum(-1)

    def cross(self, queries: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """Scores of every query with every candidate: (..., n, d) and (..., m, d) give (..., n, m).

        cdist never writes the n × m × d differences, which broadcasting would.
        """
        return self.gamma - torch.cdist(queries, candidates, p=1.0)
