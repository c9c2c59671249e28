"""The geometries: each class says what its query vectors are. A new one is listed in `MODELS` and in `MODEL_NAMES`."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import conv2d, layer_norm, linear, relu

from plogicnet.graph import Side
from plogicnet.neural.vectors.geometry import Geometry, halves, product
from plogicnet.neural.vectors.settings import VectorSettings

CHANNELS = 32
"""The filters of ConvE."""


class TransE(Geometry):
    """TransE: a relation is a translation, and q = σ(γ - ‖h + r - t‖₁) (Sec. 3.3 with the L1 norm).

    Queries are h + r for tails and t - r for heads; candidates are compared with them by L1 distance.

    Example:
        >>> model = TransE(VectorSettings(dim=2, gamma=1.0))
        >>> query = model.query(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]]), "tail")
        >>> model.pair(query, torch.tensor([[1.0, 0.5]]))
        tensor([0.5000])
    """

    kernel = "l1"

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """The vector that the asked entity's should be near."""
        return known + relation if side == "tail" else known - relation


class RotatE(Geometry):
    """RotatE: a relation turns each complex coordinate by an angle, and q = σ(γ - Σ |h·e^(iφ) - t|).

    Queries are heads turned forwards or tails turned back; candidates are compared by the sum of complex moduli.

    A relation's parameters begin as uniform as an entity's, within ±(γ + 2)/dim, and are stretched so that this range
    is the whole circle, as the recipe has it: one learning rate then suits both.

    Example:
        >>> model = RotatE(VectorSettings(dim=1, gamma=1.0))
        >>> half_turn = torch.tensor([[model.bound]])
        >>> model.pair(model.query(torch.tensor([[1.0, 0.0]]), half_turn, "tail"), torch.tensor([[-1.0, 0.0]]))
        tensor([1.0000])
    """

    kernel = "modulus"

    @property
    def widths(self) -> tuple[int, int]:
        """Complex entities, and one angle a coordinate."""
        return 2 * self.dim, self.dim

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """The known entity's coordinates, turned."""
        angle = relation * (math.pi / self.bound)
        return product(known, torch.cat([angle.cos(), angle.sin()], dim=-1), conjugate=side == "head")


class DistMult(Geometry):
    """DistMult: q = σ(Σ h·r·t); every relation is symmetric to it.

    Queries are the products of entity and relation, for either side.

    Example:
        >>> model = DistMult(VectorSettings(dim=2))
        >>> query = model.query(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]), "tail")
        >>> model.pair(query, torch.tensor([[1.0, 1.0]]))
        tensor([11.])
    """

    kernel = "dot"

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:  # noqa: ARG002
        """The products, coordinate by coordinate."""
        return known * relation


class ComplEx(Geometry):
    """ComplEx: q = σ(Re Σ h·r·conj(t)) with complex vectors, so that relations need not be symmetric.

    Queries are h·r for tails and t·conj(r) for heads; the real part of a product is a dot product of halves.

    Example:
        >>> model = ComplEx(VectorSettings(dim=1))
        >>> i = torch.tensor([[0.0, 1.0]])
        >>> model.pair(model.query(torch.tensor([[1.0, 0.0]]), i, "tail"), i)
        tensor([1.])
    """

    kernel = "dot"

    @property
    def widths(self) -> tuple[int, int]:
        """Complex entities and relations."""
        return 2 * self.dim, 2 * self.dim

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """The complex products."""
        return product(known, relation, conjugate=side == "head")

    def cubes(self, vectors: Tensor) -> Tensor:
        """Σ |z|³ of complex coordinates."""
        real, imaginary = halves(vectors)
        return (real * real + imaginary * imaginary).pow(1.5).sum(-1)


class HolE(Geometry):
    """HolE: q = σ(r · (h ⋆ t)), ⋆ the circular correlation, (h ⋆ t)_k = Σ_i h_i t_(i+k).

    Queries are h * r (circular convolution) for tails and r ⋆ t for heads, by Fourier transforms.

    r · (h ⋆ t) = t · (h * r) = h · (r ⋆ t), so that candidates are compared by a dot product.

    Example:
        >>> model = HolE(VectorSettings(dim=2))
        >>> model.query(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 1.0]]), "tail")
        tensor([[2., 1.]])
    """

    kernel = "dot"

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """The convolution or the correlation."""
        entity, wave = torch.fft.rfft(known), torch.fft.rfft(relation)
        query: Tensor = torch.fft.irfft(entity * (wave if side == "tail" else wave.conj()), n=self.dim)
        return query


class ConvE(Geometry):
    """ConvE: entity and relation, laid out as one picture, are convolved into the query vector.

    Queries are relu(norm(W · relu(filters * [entity; relation]))); heads are asked for by reciprocal relations.

    An entity's last coordinate is its bias, and a query's is one, so that candidates are compared by a dot product
    alone. Each query is normalised by itself rather than with its batch: a score then does not depend on what else is
    asked with it.

    Example:
        >>> model = ConvE(VectorSettings(model="ConvE", dim=6))
        >>> model.extra = model.initial_extra(torch.Generator())
        >>> model.query(torch.zeros(3, 7), torch.zeros(3, 6), "tail").shape
        torch.Size([3, 7])
    """

    kernel = "dot"
    reciprocal = True

    @property
    def widths(self) -> tuple[int, int]:
        """An entity has a bias besides its vector."""
        return self.dim + 1, self.dim

    @property
    def height(self) -> int:
        """Of each half of the picture: as square as whole numbers allow."""
        return max(h for h in range(1, math.isqrt(self.dim) + 1) if self.dim % h == 0)

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:  # noqa: ARG002
        """The convolved picture, brought back to the width of an entity."""
        before, x = known.shape[:-1], self.extra
        picture = [v.reshape(-1, 1, self.height, self.dim // self.height) for v in (known[..., :-1], relation)]
        features = relu(conv2d(torch.cat(picture, dim=2), x["filters"], x["filter_bias"], padding=1))
        hidden = layer_norm(linear(features.flatten(1), x["weight"]), (self.dim,), x["scale"], x["shift"])
        hidden = relu(hidden).view(*before, self.dim)
        return torch.cat([hidden, hidden.new_ones(*before, 1)], dim=-1)

    def initial(self, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
        """Normal with the spread of a network's inputs; biases are as the rest."""
        return torch.randn(shape, generator=generator) / math.sqrt(self.dim)

    def initial_extra(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Filters and weights with the spread that keeps the size of what goes through them."""
        inputs = CHANNELS * 2 * self.dim
        return {
            "filters": torch.randn(CHANNELS, 1, 3, 3, generator=generator) / 3,
            "filter_bias": torch.zeros(CHANNELS),
            "weight": torch.randn(self.dim, inputs, generator=generator) / math.sqrt(inputs),
            "scale": torch.ones(self.dim),
            "shift": torch.zeros(self.dim),
        }


MODELS: Mapping[str, type[Geometry]] = {m.__name__: m for m in (TransE, RotatE, DistMult, ComplEx, HolE, ConvE)}


def make_geometry(settings: VectorSettings, device: torch.device | None = None) -> Geometry:
    """The model that the settings name.

    Example:
        >>> type(make_geometry(VectorSettings())).__name__
        'TransE'
    """
    return MODELS[settings.model](settings, device)
