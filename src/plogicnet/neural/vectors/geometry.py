"""The base class of geometries, which compute query vectors and compare candidates with them."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from plogicnet.graph import Side
from plogicnet.neural.vectors.compare import PAIRS, Kernel, choose_cross
from plogicnet.neural.vectors.settings import VectorSettings
from plogicnet.support.errors import InputError


class Geometry(ABC):
    """A scoring function: turns (entity, relation, side) into a query vector and compares it with candidates.

    A subclass sets `kernel` and implements `query`, and overrides `widths` if vectors are not `dim` long. A score is
    γ - distance, or the dot product.

    Attributes:
        kernel: how queries and candidates are compared.
        reciprocal: whether head queries are tail queries of the inverse relation, which has its own vector.
        bound: the limit of initial coordinates. They are between -bound and bound.
        extra: the parameters other than vectors, by name.
    """

    kernel: Kernel
    reciprocal: bool = False

    def __init__(self, settings: VectorSettings, device: torch.device | None = None) -> None:
        if settings.dim < 1:
            raise InputError(f"neural.vectors.dim must be at least 1, got {settings.dim}")
        if settings.recipe == "one_vs_all" and self.kernel != "dot":
            raise InputError(
                f"neural.vectors.recipe: one_vs_all requires a model that uses dot products, got {settings.model}. Set"
                " neural.vectors.recipe=sampled, or set neural.model to DistMult, ComplEx, HolE or ConvE."
            )
        self.dim, self.gamma = settings.dim, settings.gamma
        self.bound = (settings.gamma + 2.0) / settings.dim
        self.reciprocal = self.reciprocal or settings.recipe == "one_vs_all"
        self.extra: dict[str, Tensor] = {}
        self._cross = choose_cross(self.kernel, settings.kernels, device or torch.device("cpu"))

    @property
    def widths(self) -> tuple[int, int]:
        """The lengths of entity vectors and relation vectors, in real numbers."""
        return self.dim, self.dim

    @abstractmethod
    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Return the query vectors, which are compared with candidates and have the length of entity vectors."""

    def pair(self, queries: Tensor, candidates: Tensor) -> Tensor:
        """Score each query with one candidate: (..., w) and (..., w) give (...)."""
        return self._to_score(PAIRS[self.kernel](queries, candidates))

    def cross(self, queries: Tensor, candidates: Tensor) -> Tensor:
        """Score every query with every candidate: (..., n, w) and (..., m, w) give (..., n, m)."""
        return self._to_score(self._cross(queries, candidates))

    def _to_score(self, compared: Tensor) -> Tensor:
        return compared if self.kernel == "dot" else self.gamma - compared

    def sum_cubes(self, vectors: Tensor) -> Tensor:
        """Return Σ |x|³ over each vector's real or complex coordinates, for the N3 penalty."""
        return vectors.abs().pow(3).sum(-1)

    def initial(self, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
        """Draw a table of initial vectors, uniform within ±(γ + 2)/dim."""
        return (torch.rand(shape, generator=generator) * 2 - 1) * self.bound

    def initial_extra(self, generator: torch.Generator) -> dict[str, Tensor]:  # noqa: ARG002
        """Draw the initial values of the extra parameters."""
        return {}


def split_complex(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Split complex vectors into their real parts (first half) and imaginary parts (second half).

    Example:
        >>> split_complex(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        (tensor([1., 2.]), tensor([3., 4.]))
    """
    real, imaginary = vectors.chunk(2, dim=-1)
    return real, imaginary


def complex_product(a: Tensor, b: Tensor, conjugate: bool = False) -> Tensor:
    """Return the products a·b (or a·conj(b)) of complex vectors, coordinate by coordinate.

    Example:
        >>> complex_product(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0]))  # i · i
        tensor([-1.,  0.])
    """
    (a_re, a_im), (b_re, b_im) = split_complex(a), split_complex(b)
    if conjugate:
        return torch.cat([a_re * b_re + a_im * b_im, a_im * b_re - a_re * b_im], dim=-1)
    return torch.cat([a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re], dim=-1)
