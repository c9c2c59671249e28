"""The embedding model itself: vectors for entities and relations, trained by the paper's recipe."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import embedding

from plogicnet import config
from plogicnet.errors import InputError
from plogicnet.files import replacing
from plogicnet.graph import HEAD, RELATION, TAIL, IntArray, Side
from plogicnet.kge.loss import self_adversarial_loss
from plogicnet.kge.protocol import Examples
from plogicnet.kge.sampling import Sampler
from plogicnet.kge.transe import TransE
from plogicnet.progress import Progress, silent

LOOK_EVERY = 50
"""Steps between two looks at the loss: reading it back would hold up a GPU."""
SCORE_AT_ONCE = 65_536
WORTH_THREADS = 1 << 24
"""From so many differences of coordinates a step on, several threads are worth their overhead."""


class Geometry(Protocol):
    """How a model turns (entity, relation, side) into a query vector and compares it with candidates."""

    def query(self, known: torch.Tensor, relation: torch.Tensor, side: Side) -> torch.Tensor:
        """The query vectors."""
        ...

    def pair(self, queries: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """Scores of queries with one candidate each: (..., d) and (..., d) give (...)."""
        ...

    def cross(self, queries: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """Scores of every query with every candidate: (..., n, d) and (..., m, d) give (..., n, m)."""
        ...


def make_geometry(settings: config.KGE) -> Geometry:
    """The geometry that the settings name.

    Example:
        >>> type(make_geometry(config.KGE())).__name__
        'TransE'
    """
    return {"TransE": TransE}[settings.model](settings.gamma)


def pick_device(name: str) -> torch.device:
    """The device for a setting `auto`, `cpu` or `cuda`.

    Example:
        >>> pick_device("cpu")
        device(type='cpu')
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device: no CUDA device is available here; use --device cpu or auto")
    return torch.device("cuda" if name == "cuda" or (name == "auto" and torch.cuda.is_available()) else "cpu")


@contextmanager
def _threads_for(settings: config.KGE) -> Iterator[None]:
    """One thread for small steps: more gain nothing, and wait long for each other where a core is busy elsewhere."""
    before = torch.get_num_threads()
    if settings.batch * settings.negatives * settings.dim < WORTH_THREADS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class VectorModel:
    """Entity and relation vectors under a geometry; an `Embedding`.

    Example:
        >>> model = VectorModel(entities=3, relations=1, settings=config.KGE(dim=4, steps=2, batch=2, negatives=2))
        >>> model.fit(Examples.of(np.array([[0, 0, 1], [1, 0, 2]])), seed=0)
        >>> model.score_all(np.array([0]), np.array([0]), "tail").shape
        torch.Size([1, 3])
    """

    def __init__(self, entities: int, relations: int, settings: config.KGE, device: str = "cpu") -> None:
        self.settings = settings
        self.geometry = make_geometry(settings)
        self.device = pick_device(device)
        self.entity = torch.zeros(entities, settings.dim, device=self.device)
        self.relation = torch.zeros(relations, settings.dim, device=self.device)

    def fit(self, examples: Examples, seed: int, warm: bool = False, progress: Progress = silent) -> None:
        """Adam on the self-adversarial loss; the rate falls to a tenth, with fresh Adam state, at half of the steps."""
        with _threads_for(self.settings):
            self._fit(examples, seed, warm, progress)

    def _fit(self, examples: Examples, seed: int, warm: bool, progress: Progress) -> None:
        s = self.settings
        if len(examples.negatives):
            raise InputError("em.hidden_negatives: explicit negatives are planned but not built yet")
        if not warm:
            self._initialise(seed)
        parameters = [self.entity.requires_grad_(), self.relation.requires_grad_()]
        sampler = Sampler(examples, len(self.entity), s.batch, s.negatives, s.share_negatives, seed, self.device)
        try:
            with progress(f"training {s.model}, steps", s.steps) as advance:
                for step in range(s.steps):
                    if step in (0, s.steps // 2):
                        optimizer = torch.optim.Adam(parameters, lr=s.learning_rate / (10 if step else 1))
                    optimizer.zero_grad()
                    loss = self._loss(sampler, step)
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
                    if (step + 1) % LOOK_EVERY == 0 or step + 1 == s.steps:
                        advance((step % LOOK_EVERY) + 1, f"loss {self._looked_at(loss.detach(), step):.4f}")
            self._looked_at(self.entity.detach().abs().sum(), s.steps)  # the last update may have been one too far
        finally:
            for parameter in parameters:
                parameter.requires_grad_(False).grad = None

    @torch.no_grad()
    def score(self, triples: IntArray) -> torch.Tensor:
        """The scores of given triples."""
        pieces = [torch.empty(0, device=self.device)]
        for start in range(0, len(triples), SCORE_AT_ONCE):
            part = torch.from_numpy(triples[start : start + SCORE_AT_ONCE].copy()).to(self.device)
            query = self.geometry.query(self.entity[part[:, HEAD]], self.relation[part[:, RELATION]], "tail")
            pieces.append(self.geometry.pair(query, self.entity[part[:, TAIL]]))
        return torch.cat(pieces)

    @torch.no_grad()
    def score_all(self, known: IntArray, relations: IntArray, side: Side) -> torch.Tensor:
        """The scores of all entities for each query."""
        entity = self.entity[torch.from_numpy(known.copy()).to(self.device)]
        relation = self.relation[torch.from_numpy(relations.copy()).to(self.device)]
        return self.geometry.cross(self.geometry.query(entity, relation, side), self.entity)

    def vectors(self) -> torch.Tensor:
        """The entities' vectors."""
        return self.entity

    def save(self, path: Path) -> None:
        """Writes the vectors as safetensors."""
        with replacing(path) as beside:
            save_file({"entity": self.entity.cpu(), "relation": self.relation.cpu()}, beside)

    def load(self, path: Path) -> None:
        """Reads the vectors; they must have this model's shapes."""
        tensors = load_file(path)
        own = {"entity": self.entity, "relation": self.relation}
        for name, table in own.items():
            if name not in tensors or tensors[name].shape != table.shape:
                found = tuple(tensors[name].shape) if name in tensors else "none"
                raise InputError(f"{path}: {name} vectors of shape {tuple(table.shape)} expected, found {found}")
        for name, table in own.items():
            table.copy_(tensors[name])

    def _initialise(self, seed: int) -> None:
        """Uniform within ±(γ + 2)/dim, as the recipe has it."""
        generator = torch.Generator().manual_seed(seed)
        bound = (self.settings.gamma + 2.0) / self.settings.dim
        for table in (self.entity, self.relation):
            table.copy_((torch.rand(table.shape, generator=generator) * 2 - 1) * bound)

    def _loss(self, sampler: Sampler, step: int) -> torch.Tensor:
        b = sampler.batch(step)
        # `embedding` gathers rows as indexing does, but adds up gradients in the same order on any number of threads
        query = self.geometry.query(embedding(b.known, self.entity), embedding(b.relation, self.relation), b.side)
        positive = self.geometry.pair(query, embedding(b.answer, self.entity))
        negative = self.geometry.cross(query, embedding(b.negative, self.entity))
        loss = self_adversarial_loss(positive, negative, b.usable, b.weight, self.settings.adversarial_temperature)
        if self.settings.regularization:
            loss = loss + self.settings.regularization * (self.entity.norm(p=3) ** 3 + self.relation.norm(p=3) ** 3)
        return loss

    def _looked_at(self, loss: torch.Tensor, step: int) -> float:
        value = float(loss)
        if not np.isfinite(value):
            raise FloatingPointError(
                f"training left the finite numbers by step {step + 1}; a smaller kge.learning_rate"
                f" (now {self.settings.learning_rate:g}) usually helps"
            )
        return value
