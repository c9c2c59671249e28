"""What every model has in common: it makes a query vector, and candidates are compared with it by a kernel."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from plogicnet.graph import Side
from plogicnet.neural.vectors.compare import PAIRS, Kernel, choose_cross
from plogicnet.neural.vectors.settings import VectorSettings
from plogicnet.support.errors import InputError


class Geometry(ABC):
    """How a model turns (entity, relation, side) into a query vector and compares it with candidates.

    A model names its kernel, says how wide its vectors are, and writes `query`. Scores are γ - distance, or the dot
    product as it is.

    Attributes:
        kernel: how queries and candidates are compared.
        reciprocal: whether heads are asked for by relation vectors of their own, as tails of the inverse relation.
        extra: parameters besides the vectors, by name.
    """

    kernel: Kernel
    reciprocal: bool = False

    def __init__(self, settings: VectorSettings, device: torch.device | None = None) -> None:
        if settings.dim < 1:
            raise InputError(f"neural.vectors.dim: {settings.dim} is out of range; it is at least 1")
        if settings.recipe == "one_vs_all" and self.kernel != "dot":
            raise InputError(
                f"neural.vectors.recipe: one_vs_all is for models that compare by dot products, not {settings.model};"
                " set neural.vectors.recipe=sampled, or neural.model to DistMult, ComplEx, HolE or ConvE"
            )
        self.dim, self.gamma = settings.dim, settings.gamma
        self.bound = (settings.gamma + 2.0) / settings.dim
        self.reciprocal = self.reciprocal or settings.recipe == "one_vs_all"
        self.extra: dict[str, Tensor] = {}
        self._cross = choose_cross(self.kernel, settings.kernels, device or torch.device("cpu"))

    @property
    def widths(self) -> tuple[int, int]:
        """The lengths of an entity's and of a relation's vector, in real numbers."""
        return self.dim, self.dim

    @abstractmethod
    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """The vectors that the asked entities' are compared with: as wide as an entity's."""

    def pair(self, queries: Tensor, candidates: Tensor) -> Tensor:
        """Scores of queries with one candidate each: (..., w) and (..., w) give (...)."""
        return self._scored(PAIRS[self.kernel](queries, candidates))

    def cross(self, queries: Tensor, candidates: Tensor) -> Tensor:
        """Scores of every query with every candidate: (..., n, w) and (..., m, w) give (..., n, m)."""
        return self._scored(self._cross(queries, candidates))

    def _scored(self, compared: Tensor) -> Tensor:
        return compared if self.kernel == "dot" else self.gamma - compared

    def cubes(self, vectors: Tensor) -> Tensor:
        """Σ |x|³ over each vector's coordinates (complex ones by their moduli): what the N3 penalty adds up."""
        return vectors.abs().pow(3).sum(-1)

    def initial(self, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
        """A table of vectors to begin with: uniform within ±(γ + 2)/dim, as the recipe has it."""
        return (torch.rand(shape, generator=generator) * 2 - 1) * self.bound

    def initial_extra(self, generator: torch.Generator) -> dict[str, Tensor]:  # noqa: ARG002
        """The extra parameters to begin with."""
        return {}


def halves(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """The real and the imaginary parts of complex vectors, which lie one after the other.

    Example:
        >>> halves(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        (tensor([1., 2.]), tensor([3., 4.]))
    """
    real, imaginary = vectors.chunk(2, dim=-1)
    return real, imaginary


def product(a: Tensor, b: Tensor, conjugate: bool = False) -> Tensor:
    """The products a·b (or a·conj(b)) of complex vectors, coordinate by coordinate.

    Example:
        >>> product(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0]))  # i · i
        tensor([-1.,  0.])
    """
    (a_re, a_im), (b_re, b_im) = halves(a), halves(b)
    if conjugate:
        return torch.cat([a_re * b_re + a_im * b_im, a_im * b_re - a_re * b_im], dim=-1)
    return torch.cat([a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re], dim=-1)
