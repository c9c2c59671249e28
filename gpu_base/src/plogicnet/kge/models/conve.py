"""ConvE: entity and relation, laid out as one picture, are convolved into the query vector."""

import math

import torch
from torch.nn.functional import conv2d, layer_norm, linear, relu

from plogicnet.graph import Side
from plogicnet.kge.geometry import Geometry

CHANNELS = 32


class ConvE(Geometry):
    """Queries are relu(norm(W · relu(filters * [entity; relation]))); heads are asked for by reciprocal relations.

    An entity's last coordinate is its bias, and a query's is one, so that candidates are compared by a dot product
    alone. Each query is normalised by itself rather than with its batch: a score then does not depend on what else is
    asked with it.

    Example:
        >>> from plogicnet.config import KGE
        >>> model = ConvE(KGE(model="ConvE", dim=6))
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

    def query(self, known: torch.Tensor, relation: torch.Tensor, side: Side) -> torch.Tensor:  # noqa: ARG002
        """The convolved picture, brought back to the width of an entity."""
        before, x = known.shape[:-1], self.extra
        halves = [v.reshape(-1, 1, self.height, self.dim // self.height) for v in (known[..., :-1], relation)]
        features = relu(conv2d(torch.cat(halves, dim=2), x["filters"], x["filter_bias"], padding=1))
        hidden = layer_norm(linear(features.flatten(1), x["weight"]), (self.dim,), x["scale"], x["shift"])
        hidden = relu(hidden).view(*before, self.dim)
        return torch.cat([hidden, hidden.new_ones(*before, 1)], dim=-1)

    def initial(self, shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
        """Normal with the spread of a network's inputs; biases are as the rest."""
        return torch.randn(shape, generator=generator) / math.sqrt(self.dim)

    def initial_extra(self, generator: torch.Generator) -> dict[str, torch.Tensor]:
        """Filters and weights with the spread that keeps the size of what goes through them."""
        inputs = CHANNELS * 2 * self.dim
        return {
            "filters": torch.randn(CHANNELS, 1, 3, 3, generator=generator) / 3,
            "filter_bias": torch.zeros(CHANNELS),
            "weight": torch.randn(self.dim, inputs, generator=generator) / math.sqrt(inputs),
            "scale": torch.ones(self.dim),
            "shift": torch.zeros(self.dim),
        }
