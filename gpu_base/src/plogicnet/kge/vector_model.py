"""The embedding model itself: vectors for entities and relations, trained by one of two recipes."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
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
from plogicnet.kge.loss import (
    one_vs_all_loss,
    one_vs_all_rejected_loss,
    rejected_loss,
    self_adversarial_loss,
    weighted_mean,
)
from plogicnet.kge.models import make_geometry
from plogicnet.kge.protocol import Checkpoint, Examples, Validate
from plogicnet.kge.sampling import Passes, Queries, Sampler, explicit_negatives, generator_for
from plogicnet.kge.training import Descent, Stepper, train
from plogicnet.progress import Progress, silent

SCORE_AT_ONCE = {"cpu": 8_192, "cuda": 65_536}
"""So many triples are gathered at once: on a CPU no more than its caches hold."""
ASK_AT_ONCE = 4_096
WORTH_THREADS = 1 << 24
"""From so many differences of coordinates a step on, several threads are worth their overhead."""
DROPOUT = 6
"""The stream of random numbers that dropout draws from."""
Loss = Callable[[int], torch.Tensor]


class Guide(Protocol):
    """What a model is held to besides its examples: a further term of each step's loss, and bounds."""

    @property
    def digest(self) -> bytes:
        """What it hangs on, so that a checkpoint of another guide does not serve."""
        ...

    def term(self, model: "VectorModel", seed: int) -> Loss:
        """The term of each step of a training."""
        ...

    def bound(self, model: "VectorModel") -> None:
        """Puts the parameters back within their bounds, in place: before the first step and after each."""
        ...


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
def _threads_for(work: int) -> Iterator[None]:
    """One thread for small steps: more gain nothing, and wait long for each other where a core is busy elsewhere."""
    before = torch.get_num_threads()
    if work < WORTH_THREADS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _matmul(precision: str) -> Iterator[None]:
    """A GPU's matrix units, which round inputs to ten bits, for training alone; ranking is done in full float32."""
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before


class VectorModel:
    """Entity and relation vectors under a geometry; an `Embedding`.

    A model with reciprocal relations has two vectors a relation, the second for asking after heads: (t, r⁻¹, ?). The
    score of a triple is then the mean of both ways of asking.

    Example:
        >>> model = VectorModel(entities=3, relations=1, settings=config.KGE(dim=4, steps=2, batch=2, negatives=2))
        >>> model.fit(Examples.of(np.array([[0, 0, 1], [1, 0, 2]])), seed=0)
        >>> model.score_all(np.array([0]), np.array([0]), "tail").shape
        torch.Size([1, 3])
    """

    def __init__(
        self, entities: int, relations: int, settings: config.KGE, device: str = "cpu", guide: Guide | None = None
    ) -> None:
        self.settings, self.guide = settings, guide
        self.device = pick_device(device)
        if settings.kernels == "fused" and self.device.type != "cuda":
            raise InputError("kge.kernels: fused steps need a GPU; use --device cuda, or kge.kernels=auto")
        self.geometry = make_geometry(settings, self.device)
        self.relations = relations
        self.slope, self.offset = 1.0, 0.0
        width, relation_width = self.geometry.widths
        self.entity = torch.zeros(entities, width, device=self.device)
        self.relation = torch.zeros(relations * (1 + self.geometry.reciprocal), relation_width, device=self.device)
        extra = self.geometry.initial_extra(torch.Generator())
        self.geometry.extra = {name: torch.zeros_like(value, device=self.device) for name, value in extra.items()}

    @property
    def parameters(self) -> dict[str, torch.Tensor]:
        """Everything that is learned, by name."""
        return {"entity": self.entity, "relation": self.relation, **self.geometry.extra}

    def fit(
        self,
        examples: Examples,
        seed: int,
        warm: bool = False,
        progress: Progress = silent,
        *,
        validate: Validate | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """Trains by the recipe of the settings; see `Embedding.fit`.

        Example:
            >>> model = VectorModel(3, 1, config.KGE(model="ComplEx", recipe="one_vs_all", dim=4, steps=2, batch=2))
            >>> model.fit(Examples.of(np.array([[0, 0, 1], [1, 0, 2]])), seed=0, validate=lambda: 0.5)
        """
        if not len(examples.positives):
            raise InputError("there is no triple to learn from: the embedding needs at least one in train")
        if not warm:
            self._initialise(seed)
        if self.guide:
            self.guide.bound(self)
        self.rescale(1.0, 0.0)
        compared = len(self.entity) if self.settings.recipe == "one_vs_all" else self.settings.negatives
        with _threads_for(self.settings.batch * compared * self.settings.dim), _matmul(self.settings.matmul):
            fingerprint = self._fingerprint(examples, seed, warm, validate is not None) if checkpoint else ""
            stepper = self._stepper(examples, seed)
            train(self.parameters, stepper, self.settings, fingerprint, progress, validate, checkpoint)

    def _stepper(self, examples: Examples, seed: int) -> Stepper:
        """The GPU's fused steps where they are wanted and can be had, else steps down the plain loss."""
        if self.guide:
            guide = self.guide
            return Descent(self.parameters, self._loss(examples, seed), self.settings, lambda: guide.bound(self))
        if self.device.type == "cuda" and self.settings.kernels != "plain" and find_spec("triton"):
            from plogicnet.kge.kernels.step import Trainer, lack

            missing = lack(examples, self.settings)
            if missing is None:
                return Trainer(self.entity, self.relation, examples, self.settings, seed)
            if self.settings.kernels == "fused":
                raise InputError(f"kge.kernels: {missing}; set kge.kernels=auto")
        return Descent(self.parameters, self._loss(examples, seed), self.settings)

    def _loss(self, examples: Examples, seed: int) -> Loss:
        """The loss of each step by the recipe, explicit negatives included."""
        positive = (self._one_vs_all if self.settings.recipe == "one_vs_all" else self._sampled)(examples, seed)
        passes = explicit_negatives(examples, self.settings.batch, seed, self.device)
        terms: list[Loss] = []
        if passes is not None:
            terms.append(lambda step: self._rejected(passes.queries(step)))
        if self.guide:
            terms.append(self.guide.term(self, seed))
        return lambda step: sum((term(step) for term in terms), positive(step))

    def _sampled(self, examples: Examples, seed: int) -> Loss:
        """The paper's recipe: self-adversarial sampled negatives, and the L3 penalty on the whole tables."""
        s = self.settings
        sampler = Sampler(examples, len(self.entity), s.batch, s.negatives, s.share_negatives, seed, self.device)

        def loss(step: int) -> torch.Tensor:
            b = sampler.batch(step)
            query = self._query(b, dropout=(seed, step))
            positive = self.geometry.pair(query, embedding(b.answer, self.entity))
            negative = self.geometry.cross(query, embedding(b.negative, self.entity))
            value = self_adversarial_loss(positive, negative, b.usable, b.weight, s.adversarial_temperature)
            if s.regularization:
                value = value + s.regularization * (self.entity.norm(p=3) ** 3 + self.relation.norm(p=3) ** 3)
            return value

        return loss

    def _one_vs_all(self, examples: Examples, seed: int) -> Loss:
        """Cross-entropy over all entities, and the N3 penalty on the batch's own vectors."""
        s = self.settings
        passes = Passes(examples.positives, examples.weights, s.batch, seed, self.device)

        def loss(step: int) -> torch.Tensor:
            b = passes.queries(step)
            query = self._query(b, dropout=(seed, step))
            value = one_vs_all_loss(self.geometry.cross(query, self.entity), b.answer, b.weight)
            if s.regularization:
                used = [embedding(b.known, self.entity), self._relation(b), embedding(b.answer, self.entity)]
                cubes = sum((self.geometry.cubes(v) for v in used), torch.zeros_like(b.weight))
                value = value + s.regularization * weighted_mean(cubes, b.weight)
            return value

        return loss

    def _rejected(self, b: Queries) -> torch.Tensor:
        """The explicit negatives' part of the loss."""
        if self.settings.recipe == "one_vs_all":
            return one_vs_all_rejected_loss(self.geometry.cross(self._query(b), self.entity), b.answer)
        return rejected_loss(self.answers(b))

    def answers(self, b: Queries) -> torch.Tensor:
        """The scores of the queries' answers, as they are trained: in their own way of asking, without a scale."""
        return self.geometry.pair(self._query(b), embedding(b.answer, self.entity))

    def _query(self, b: Queries, dropout: tuple[int, int] | None = None) -> torch.Tensor:
        # `embedding` gathers rows as indexing does, but adds up gradients in the same order on any number of threads
        inputs = [embedding(b.known, self.entity), self._relation(b)]
        rate = self.settings.dropout
        if dropout and rate:
            generator = generator_for(dropout[0], DROPOUT, dropout[1], self.device)
            keep = (torch.rand(v.shape, generator=generator, device=self.device) >= rate for v in inputs)
            inputs = [v * k / (1 - rate) for v, k in zip(inputs, keep, strict=True)]
        return self.geometry.query(inputs[0], inputs[1], "tail" if self.geometry.reciprocal else b.side)

    def _relation(self, b: Queries) -> torch.Tensor:
        """The relations' vectors; the reciprocal ones stand in the second half of the table."""
        return embedding(b.relation + self.relations * (self.geometry.reciprocal and b.side == "head"), self.relation)

    @torch.no_grad()
    @_matmul("float32")
    def score(self, triples: IntArray) -> torch.Tensor:
        """The scores of given triples."""
        scores = torch.empty(len(triples), device=self.device)
        sides: list[Side] = ["tail", "head"] if self.geometry.reciprocal else ["tail"]
        step = SCORE_AT_ONCE[self.device.type]
        for start in range(0, len(triples), step):
            part = triples[start : start + step]
            scores[start : start + step] = torch.stack([self._pairs(part, side) for side in sides]).mean(0)
        return self._scaled(scores)

    def _pairs(self, triples: IntArray, side: Side) -> torch.Tensor:
        known, asked = (HEAD, TAIL) if side == "tail" else (TAIL, HEAD)
        entities, relations = triples[:, known], triples[:, RELATION]
        if self.geometry.extra:  # a network: its queries cost far more than comparisons, so each is made once
            pairs, place = np.unique(entities * self.relations + relations, return_inverse=True)
            query = self._query(self._queries(*np.divmod(pairs, self.relations), side))[self._on_device(place)]
        else:
            query = self._query(self._queries(entities, relations, side))
        return self.geometry.pair(query, self.entity[self._on_device(triples[:, asked])])

    @torch.no_grad()
    @_matmul("float32")
    def score_all(self, known: IntArray, relations: IntArray, side: Side) -> torch.Tensor:
        """The scores of all entities for each query."""
        return self._scaled(self.geometry.cross(self._query(self._queries(known, relations, side)), self.entity))

    @torch.no_grad()
    @_matmul("float32")
    def score_answers(
        self, known: IntArray, relations: IntArray, side: Side, candidates: IntArray | None = None
    ) -> torch.Tensor:
        """The scores of the triples that all entities, or some, make of each query."""
        among = self.entity if candidates is None else self.entity[self._on_device(candidates)]
        scores = self.geometry.cross(self._query(self._queries(known, relations, side)), among)
        if self.geometry.reciprocal:  # the mean of both ways of asking: each candidate is asked for the known ones too
            every = np.arange(len(self.entity)) if candidates is None else candidates
            other: Side = "head" if side == "tail" else "tail"
            for relation in np.unique(relations):
                rows = np.flatnonzero(relations == relation)
                asked = self.entity[self._on_device(known[rows])]
                for at in range(0, len(every), ASK_AT_ONCE):
                    part = every[at : at + ASK_AT_ONCE]
                    query = self._query(self._queries(part, np.full(len(part), relation), other))
                    scores[self._on_device(rows), at : at + len(part)] += self.geometry.cross(query, asked).T
            scores = scores / 2
        return self._scaled(scores)

    def _on_device(self, numbers: IntArray) -> torch.Tensor:
        return torch.from_numpy(numbers.copy()).to(self.device)

    def _queries(self, known: IntArray, relations: IntArray, side: Side) -> Queries:
        entity, relation = self._on_device(known), self._on_device(relations)
        return Queries(side, entity, relation, entity, entity)

    def _scaled(self, scores: torch.Tensor) -> torch.Tensor:
        return scores if (self.slope, self.offset) == (1.0, 0.0) else self.slope * scores + self.offset

    def rescale(self, slope: float, offset: float) -> None:
        """From now on scores are slope · (the model's own) + offset, until the next fit."""
        if not (slope > 0 and np.isfinite([slope, offset]).all()):
            raise ValueError(f"a scale of slope {slope} and offset {offset} would not keep the order of scores")
        self.slope, self.offset = slope, offset

    def vectors(self) -> torch.Tensor:
        """The entities' vectors."""
        return self.entity

    def save(self, path: Path) -> None:
        """Writes parameters and scale as safetensors."""
        tensors = {name: p.cpu() for name, p in self.parameters.items()}
        with replacing(path) as beside:
            save_file(tensors | {"platt": torch.tensor([self.slope, self.offset], dtype=torch.float64)}, beside)

    def load(self, path: Path) -> None:
        """Reads what `save` wrote; it must have this model's shapes."""
        tensors = load_file(path)
        for name, own in self.parameters.items():
            if name not in tensors or tensors[name].shape != own.shape:
                found = tuple(tensors[name].shape) if name in tensors else "none"
                raise InputError(f"{path}: {name} vectors of shape {tuple(own.shape)} expected, found {found}")
        for name, own in self.parameters.items():
            own.copy_(tensors[name])
        self.rescale(*(tensors["platt"].tolist() if "platt" in tensors else (1.0, 0.0)))

    def _initialise(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for table in (self.entity, self.relation):
            table.copy_(self.geometry.initial((table.shape[0], table.shape[1]), generator))
        for name, value in self.geometry.initial_extra(generator).items():
            self.geometry.extra[name].copy_(value)

    def _fingerprint(self, examples: Examples, seed: int, warm: bool, validated: bool) -> str:
        """What a training hangs on; a checkpoint serves only where all of it is the same."""
        digest = hashlib.sha256(repr((self.settings, seed, warm, validated, self.entity.shape)).encode())
        start = [p.cpu().numpy() for p in self.parameters.values()] if warm else []
        for array in (examples.positives, examples.weights, examples.negatives, *start):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(self.guide.digest if self.guide else b"")
        return digest.hexdigest()
