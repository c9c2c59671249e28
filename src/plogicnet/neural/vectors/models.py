"""The geometries. A new geometry must also be listed in `GEOMETRIES` and in `MODEL_NAMES`."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import conv2d, layer_norm, linear, relu

from plogicnet.graph import Side
from plogicnet.neural.vectors.geometry import Geometry, complex_product, split_complex
from plogicnet.neural.vectors.settings import VectorSettings

CHANNELS = 32
"""The number of ConvE's filters."""


class TransE(Geometry):
    """TransE: a relation is a translation, q = σ(γ - ‖h + r - t‖₁) (Sec. 3.3 of the paper, with the L1 norm).

    Queries are h + r for tails and t - r for heads. Candidates are compared by L1 distance.

    Example:
        >>> model = TransE(VectorSettings(dim=2, gamma=1.0))
        >>> query = model.query(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]]), "tail")
        >>> model.pair(query, torch.tensor([[1.0, 0.5]]))
        tensor([0.5000])
    """

    kernel = "l1"

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Return h + r or t - r."""
        return known + relation if side == "tail" else known - relation


class RotatE(Geometry):
    """RotatE: a relation rotates each complex coordinate by an angle, q = σ(γ - Σ |h·e^(iφ) - t|).

    Queries are heads rotated forwards or tails rotated back. Candidates are compared by the sum of complex moduli.

    Relation parameters start uniform within ±(γ + 2)/dim, like those of entities. They are scaled to angles so that
    this range is the whole circle. Entities and relations can then use the same learning rate.

    Example:
        >>> model = RotatE(VectorSettings(dim=1, gamma=1.0))
        >>> half_turn = torch.tensor([[model.bound]])
        >>> model.pair(model.query(torch.tensor([[1.0, 0.0]]), half_turn, "tail"), torch.tensor([[-1.0, 0.0]]))
        tensor([1.0000])
    """

    kernel = "modulus"

    @property
    def widths(self) -> tuple[int, int]:
        """Two real numbers per coordinate of an entity, and one angle per coordinate of a relation."""
        return 2 * self.dim, self.dim

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Return the known entity's coordinates, rotated."""
        angle = relation * (math.pi / self.bound)
        return complex_product(known, torch.cat([angle.cos(), angle.sin()], dim=-1), conjugate=side == "head")


class DistMult(Geometry):
    """DistMult: q = σ(Σ h·r·t). It treats every relation as symmetric.

    Queries are the products of entity and relation, for both sides.

    Example:
        >>> model = DistMult(VectorSettings(dim=2))
        >>> query = model.query(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]), "tail")
        >>> model.pair(query, torch.tensor([[1.0, 1.0]]))
        tensor([11.])
    """

    kernel = "dot"

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:  # noqa: ARG002
        """Return the products, coordinate by coordinate."""
        return known * relation


class ComplEx(Geometry):
    """ComplEx: q = σ(Re Σ h·r·conj(t)) with complex vectors. Relations need not be symmetric.

    Queries are h·r for tails and t·conj(r) for heads. Candidates are compared by a dot product.

    Example:
        >>> model = ComplEx(VectorSettings(dim=1))
        >>> i = torch.tensor([[0.0, 1.0]])
        >>> model.pair(model.query(torch.tensor([[1.0, 0.0]]), i, "tail"), i)
        tensor([1.])
    """

    kernel = "dot"

    @property
    def widths(self) -> tuple[int, int]:
        """Two real numbers per coordinate."""
        return 2 * self.dim, 2 * self.dim

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Return the complex products."""
        return complex_product(known, relation, conjugate=side == "head")

    def sum_cubes(self, vectors: Tensor) -> Tensor:
        """Return Σ |z|³ over complex coordinates."""
        real, imaginary = split_complex(vectors)
        return (real * real + imaginary * imaginary).pow(1.5).sum(-1)


class HolE(Geometry):
    """HolE: q = σ(r · (h ⋆ t)), where ⋆ is the circular correlation, (h ⋆ t)_k = Σ_i h_i t_(i+k).

    Queries are h * r (circular convolution) for tails and r ⋆ t for heads, by Fourier transforms.

    Candidates are compared by a dot product, because r · (h ⋆ t) = t · (h * r) = h · (r ⋆ t).

    Example:
        >>> model = HolE(VectorSettings(dim=2))
        >>> model.query(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 1.0]]), "tail")
        tensor([[2., 1.]])
    """

    kernel = "dot"

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Return the convolution or the correlation."""
        entity, wave = torch.fft.rfft(known), torch.fft.rfft(relation)
        query: Tensor = torch.fft.irfft(entity * (wave if side == "tail" else wave.conj()), n=self.dim)
        return query


class ConvE(Geometry):
    """ConvE: a convolution of the image [entity; relation] gives the query vector.

    Queries are relu(norm(W · relu(filters * [entity; relation]))). Head queries use reciprocal relations.

    An entity's last coordinate is its bias, and a query's last coordinate is one. Candidates are then compared by a dot
    product. Layer normalisation replaces batch normalisation, so that a score does not depend on the batch.

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
        """An entity has a bias in addition to its `dim` coordinates."""
        return self.dim + 1, self.dim

    @property
    def height(self) -> int:
        """The height of each half of the image, as square as possible."""
        return max(h for h in range(1, math.isqrt(self.dim) + 1) if self.dim % h == 0)

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:  # noqa: ARG002
        """Convolve the image and project it to the width of an entity."""
        lead, x = known.shape[:-1], self.extra
        image = [v.reshape(-1, 1, self.height, self.dim // self.height) for v in (known[..., :-1], relation)]
        features = relu(conv2d(torch.cat(image, dim=2), x["filters"], x["filter_bias"], padding=1))
        hidden = layer_norm(linear(features.flatten(1), x["weight"]), (self.dim,), x["scale"], x["shift"])
        hidden = relu(hidden).view(*lead, self.dim)
        return torch.cat([hidden, hidden.new_ones(*lead, 1)], dim=-1)

    def initial(self, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
        """Draw normal values with standard deviation 1/√dim, biases included."""
        return torch.randn(shape, generator=generator) / math.sqrt(self.dim)

    def initial_extra(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Draw filters and weights with standard deviation 1/√inputs."""
        inputs = CHANNELS * 2 * self.dim
        return {
            "filters": torch.randn(CHANNELS, 1, 3, 3, generator=generator) / 3,
            "filter_bias": torch.zeros(CHANNELS),
            "weight": torch.randn(self.dim, inputs, generator=generator) / math.sqrt(inputs),
            "scale": torch.ones(self.dim),
            "shift": torch.zeros(self.dim),
        }


GEOMETRIES: Mapping[str, type[Geometry]] = {m.__name__: m for m in (TransE, RotatE, DistMult, ComplEx, HolE, ConvE)}


def make_geometry(settings: VectorSettings, device: torch.device | None = None) -> Geometry:
    """Return the geometry that the settings name.

    Example:
        >>> type(make_geometry(VectorSettings())).__name__
        'TransE'
    """
    return GEOMETRIES[settings.model](settings, device)
