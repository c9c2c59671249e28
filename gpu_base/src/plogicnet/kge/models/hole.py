"""HolE: q = σ(r · (h ⋆ t)), ⋆ the circular correlation, (h ⋆ t)_k = Σ_i h_i t_(i+k)."""

import torch

from plogicnet.graph import Side
from plogicnet.kge.geometry import Geometry


class HolE(Geometry):
    """Queries are h * r (circular convolution) for tails and r ⋆ t for heads, by Fourier transforms.

    r · (h ⋆ t) = t · (h * r) = h · (r ⋆ t), so that candidates are compared by a dot product.

    Example:
        >>> from plogicnet.config import KGE
        >>> model = HolE(KGE(dim=2))
        >>> model.query(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 1.0]]), "tail")
        tensor([[2., 1.]])
    """

    kernel = "dot"

    def query(self, known: torch.Tensor, relation: torch.Tensor, side: Side) -> torch.Tensor:
        """The convolution or the correlation."""
        entity, wave = torch.fft.rfft(known), torch.fft.rfft(relation)
        query: torch.Tensor = torch.fft.irfft(entity * (wave if side == "tail" else wave.conj()), n=self.dim)
        return query
