"""The vector model: vectors for entities and relations, trained by one of two recipes."""

import copy
import hashlib
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import embedding

from plogicnet.config import Config
from plogicnet.graph import HEAD, RELATION, TAIL, BoolArray, IntArray, KnowledgeGraph, Side, TripleSet
from plogicnet.neural.crossfit import cross_fitted_scores
from plogicnet.neural.device import matmul_precision, pick_device, threads_for
from plogicnet.neural.optimization import Descent, Stepper, train
from plogicnet.neural.protocol import Checkpoint, Examples, Guide, Reasons, Table, Validate
from plogicnet.neural.vectors import loss as losses
from plogicnet.neural.vectors.models import make_geometry
from plogicnet.neural.vectors.neighbours import neighbours
from plogicnet.neural.vectors.sampling import Passes, Queries, Sampler, explicit_negatives, generator_for
from plogicnet.neural.vectors.settings import VectorSettings
from plogicnet.support.errors import InputError
from plogicnet.support.files import replacing
from plogicnet.support.progress import Progress, silent

SCORE_AT_ONCE = {"cpu": 8_192, "cuda": 65_536}
"""So many triples are gathered at once: on a CPU no more than its caches hold."""
ASK_AT_ONCE = 4_096
DROPOUT = 6
"""The stream of random numbers that dropout draws from."""
NO_SCORE = float("nan")
"""The score of a triple with an entity that has no vector: it says neither yes nor no."""
Loss = Callable[[int], Tensor]


@runtime_checkable
class VectorGuide(Guide, Protocol):
    """A guide of vectors: a further term of each step's loss, and bounds."""

    def term(self, model: "VectorModel", seed: int) -> Loss:
        """The term of each step of a training."""

    def bound(self, model: "VectorModel") -> None:
        """Puts the parameters back within their bounds, in place: before the first step and after each."""


class VectorModel:
    """Entity and relation vectors under a geometry; a `NeuralModel`.

    A model with reciprocal relations has two vectors a relation, the second for asking after heads: (t, r⁻¹, ?). The
    score of a triple is then the mean of both ways of asking.

    Example:
        >>> model = VectorModel(3, 1, VectorSettings(dim=4, steps=2, batch=2, negatives=2))
        >>> model.fit(Examples.of(np.array([[0, 0, 1], [1, 0, 2]])), seed=0)
        >>> model.score_all(np.array([0]), np.array([0]), "tail").shape
        torch.Size([1, 3])
    """

    def __init__(
        self,
        entities: int,
        relations: int,
        settings: VectorSettings,
        device: str = "cpu",
        guide: VectorGuide | None = None,
        graph: KnowledgeGraph | None = None,
    ) -> None:
        self.settings, self.guide, self.graph = settings, guide, graph
        self.device = pick_device(device)
        if settings.kernels == "fused" and self.device.type != "cuda":
            raise InputError("neural.kernels: fused steps need a GPU; use --device cuda, or neural.kernels=auto")
        self.geometry = make_geometry(settings, self.device)
        self.entities, self.relations = entities, relations
        self.slope, self.offset = 1.0, 0.0
        width, relation_width = self.geometry.widths
        self.entity = torch.zeros(entities, width, device=self.device)
        self.relation = torch.zeros(relations * (1 + self.geometry.reciprocal), relation_width, device=self.device)
        extra = self.geometry.initial_extra(torch.Generator())
        self.geometry.extra = {name: torch.zeros_like(value, device=self.device) for name, value in extra.items()}

    @classmethod
    def of(cls, graph: KnowledgeGraph, config: Config, guide: Guide | None = None) -> "VectorModel":
        """The model of a graph that the settings describe."""
        settings = VectorSettings.of(config.neural)
        if guide is not None and not isinstance(guide, VectorGuide):
            raise InputError(f"neural.model={settings.model} cannot take the guide of system={config.system}")
        return cls(len(graph.entities), len(graph.relations), settings, config.device, guide, graph)

    def bind(self, graph: KnowledgeGraph) -> "VectorModel":
        """The same vectors over a graph with more facts; entities that it has besides have no vector."""
        bound = copy.copy(self)
        bound.graph, bound.entities = graph, len(graph.entities)
        return bound

    @property
    def is_logit(self) -> bool:
        """The sampled recipe trains σ(score); a softmax does not."""
        return self.settings.recipe == "sampled"

    @property
    def bytes_per_query(self) -> int:
        """The scores, and as much again while they are made."""
        return 8 * self.entities

    @property
    def unscorable(self) -> BoolArray:
        """The entities without a vector."""
        return np.arange(self.entities) >= len(self.entity)

    @property
    def parameters(self) -> dict[str, Tensor]:
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
        """Trains by the recipe of the settings; see `NeuralModel.fit`.

        Example:
            >>> model = VectorModel(3, 1, VectorSettings(model="ComplEx", recipe="one_vs_all", dim=4, steps=2, batch=2))
            >>> model.fit(Examples.of(np.array([[0, 0, 1], [1, 0, 2]])), seed=0, validate=lambda: 0.5)
        """
        if not len(examples.positives):
            raise InputError("there is no triple to learn from: train must hold at least one")
        if not warm:
            self._initialise(seed)
        self._put_in_bounds()
        self.rescale(1.0, 0.0)
        s = self.settings
        compared = s.negatives if self.is_logit else len(self.entity)
        with threads_for(s.batch * compared * s.dim), matmul_precision(s.matmul):
            fingerprint = self._fingerprint(examples, seed, warm, validate is not None) if checkpoint else ""
            train(self.parameters, self._stepper(examples, seed), s, fingerprint, progress, validate, checkpoint)

    def _stepper(self, examples: Examples, seed: int) -> Stepper:
        """The GPU's fused steps where they are wanted and can be had, else steps down the plain loss."""
        wanted = self.guide is None and self.settings.kernels != "plain"
        if wanted and self.device.type == "cuda" and find_spec("triton"):
            from plogicnet.neural.vectors.kernels.step import FusedSteps, unsupported

            missing = unsupported(examples, self.settings)
            if missing is None:
                return FusedSteps(self.entity, self.relation, examples, self.settings, seed)
            if self.settings.kernels == "fused":
                raise InputError(f"neural.kernels: {missing}; set neural.kernels=auto")
        return Descent(self.parameters, self._loss(examples, seed), self._optimizer, self._half, self._put_in_bounds)

    @property
    def _half(self) -> int:
        """The sampled recipe begins anew half-way, at a tenth of the rate; a softmax is trained at one rate."""
        return self.settings.steps // 2 if self.is_logit else -1

    def _optimizer(self, parameters: list[Tensor], step: int) -> torch.optim.Optimizer:
        s = self.settings
        rate = s.learning_rate / (10 if 0 < self._half <= step else 1)
        if s.optimizer == "adam" or (s.optimizer == "auto" and self.is_logit):
            return torch.optim.Adam(parameters, lr=rate, fused=True)
        # one pass over the tables instead of several; PyTorch has Adagrad's for a CPU alone
        return torch.optim.Adagrad(parameters, lr=rate, fused=self.device.type == "cpu" or None)

    def _put_in_bounds(self) -> None:
        if self.guide is not None:
            self.guide.bound(self)

    def _loss(self, examples: Examples, seed: int) -> Loss:
        """The loss of each step by the recipe, explicit negatives included."""
        terms: list[Loss] = [(self._sampled if self.is_logit else self._one_vs_all)(examples, seed)]
        if (passes := explicit_negatives(examples, self.settings.batch, seed, self.device)) is not None:
            terms.append(lambda step: self._rejected(passes.queries(step)))
        if self.guide:
            terms.append(self.guide.term(self, seed))
        return lambda step: sum((term(step) for term in terms[1:]), terms[0](step))

    def _sampled(self, examples: Examples, seed: int) -> Loss:
        """The paper's recipe: self-adversarial sampled negatives, and the L3 penalty on the whole tables."""
        s = self.settings
        sampler = Sampler(examples, len(self.entity), s.batch, s.negatives, s.share_negatives, seed, self.device)

        def loss(step: int) -> Tensor:
            b = sampler.batch(step)
            query = self._query(b, dropout=(seed, step))
            positive = self.geometry.pair(query, embedding(b.answer, self.entity))
            negative = self.geometry.cross(query, embedding(b.negative, self.entity))
            value = losses.self_adversarial_loss(positive, negative, b.usable, b.weight, s.adversarial_temperature)
            if s.regularization:
                value = value + s.regularization * (self.entity.norm(p=3) ** 3 + self.relation.norm(p=3) ** 3)
            return value

        return loss

    def _one_vs_all(self, examples: Examples, seed: int) -> Loss:
        """Cross-entropy over all entities, and the N3 penalty on the batch's own vectors."""
        s = self.settings
        passes = Passes(examples.positives, examples.weights, s.batch, seed, self.device)

        def loss(step: int) -> Tensor:
            b = passes.queries(step)
            query = self._query(b, dropout=(seed, step))
            value = losses.one_vs_all_loss(self.geometry.cross(query, self.entity), b.answer, b.weight)
            if s.regularization:
                used = [embedding(b.known, self.entity), self._relation(b), embedding(b.answer, self.entity)]
                cubes = sum((self.geometry.cubes(v) for v in used), torch.zeros_like(b.weight))
                value = value + s.regularization * losses.weighted_mean(cubes, b.weight)
            return value

        return loss

    def _rejected(self, b: Queries) -> Tensor:
        """The explicit negatives' part of the loss."""
        if not self.is_logit:
            return losses.one_vs_all_rejected_loss(self.geometry.cross(self._query(b), self.entity), b.answer)
        return losses.rejected_loss(self.answers(b))

    def answers(self, b: Queries) -> Tensor:
        """The scores of the queries' answers, as they are trained: in their own way of asking, without a scale."""
        return self.geometry.pair(self._query(b), embedding(b.answer, self.entity))

    def _query(self, b: Queries, dropout: tuple[int, int] | None = None) -> Tensor:
        # `embedding` gathers rows as indexing does, but adds up gradients in the same order on any number of threads
        inputs = [embedding(b.known, self.entity), self._relation(b)]
        rate = self.settings.dropout
        if dropout and rate:
            generator = generator_for(dropout[0], DROPOUT, dropout[1], self.device)
            drawn = [torch.rand(v.shape, generator=generator, device=self.device) for v in inputs]
            inputs = [v * (d >= rate) / (1 - rate) for v, d in zip(inputs, drawn, strict=True)]
        return self.geometry.query(inputs[0], inputs[1], "tail" if self.geometry.reciprocal else b.side)

    def _relation(self, b: Queries) -> Tensor:
        """The relations' vectors; the reciprocal ones stand in the second half of the table."""
        return embedding(b.relation + self.relations * (self.geometry.reciprocal and b.side == "head"), self.relation)

    def score(self, triples: IntArray, hide_self: bool = False) -> Tensor:
        """The scores of given triples; with `hide_self`, those of training triples by cross-fitted copies."""
        scores = self._scores(triples)
        if not hide_self:
            return scores
        if self.graph is None:
            raise ValueError("hide_self needs a model that is bound to a graph")
        scorable = ~self.unscorable[self.graph.train[:, [HEAD, TAIL]]].any(axis=1)
        own = TripleSet.of(self.graph.train[scorable], self.entities)
        hidden = self._scaled(cross_fitted_scores(self, own.triples, seed=0))
        rows = torch.from_numpy(own.find(triples)).to(self.device)
        return torch.where(rows >= 0, hidden[rows.clamp_min(0)], scores)

    @torch.no_grad()
    @matmul_precision("float32")
    def _scores(self, triples: IntArray) -> Tensor:
        inside = np.asarray(~self.unscorable[triples[:, [HEAD, TAIL]]].any(axis=1))
        if not inside.all():
            wide = torch.full((len(triples),), NO_SCORE, device=self.device)
            wide[self._on_device(inside)] = self._scores(triples[inside])
            return wide
        scores = torch.empty(len(triples), device=self.device)
        sides: list[Side] = ["tail", "head"] if self.geometry.reciprocal else ["tail"]
        step = SCORE_AT_ONCE[self.device.type]
        for start in range(0, len(triples), step):
            part = triples[start : start + step]
            scores[start : start + step] = torch.stack([self._pairs(part, side) for side in sides]).mean(0)
        return self._scaled(scores)

    def _pairs(self, triples: IntArray, side: Side) -> Tensor:
        known, asked = (HEAD, TAIL) if side == "tail" else (TAIL, HEAD)
        entities, relations = triples[:, known], triples[:, RELATION]
        if self.geometry.extra:  # a network: its queries cost far more than comparisons, so each is made once
            pairs, place = np.unique(entities * self.relations + relations, return_inverse=True)
            query = self._ask(*np.divmod(pairs, self.relations), side)[self._on_device(place)]
        else:
            query = self._ask(entities, relations, side)
        return self.geometry.pair(query, self.entity[self._on_device(triples[:, asked])])

    @torch.no_grad()
    @matmul_precision("float32")
    def score_all(self, known: IntArray, relations: IntArray, side: Side) -> Tensor:
        """The scores of all entities for each query."""
        query = self._ask(self._with_vector(known), relations, side)
        return self._padded(self._scaled(self.geometry.cross(query, self.entity)), known, None)

    @torch.no_grad()
    @matmul_precision("float32")
    def score_answers(
        self, known: IntArray, relations: IntArray, side: Side, candidates: IntArray | None = None
    ) -> Tensor:
        """The scores of the triples that all entities, or some, make of each query."""
        asked = np.arange(len(self.entity)) if candidates is None else candidates[~self.unscorable[candidates]]
        among = self.entity if candidates is None else self.entity[self._on_device(asked)]
        own = self._with_vector(known)
        scores = self.geometry.cross(self._ask(own, relations, side), among)
        if self.geometry.reciprocal:  # the mean of both ways of asking: each candidate is asked for the known ones too
            other: Side = "head" if side == "tail" else "tail"
            for relation in np.unique(relations):
                rows = np.flatnonzero(relations == relation)
                answers = self.entity[self._on_device(own[rows])]
                for at in range(0, len(asked), ASK_AT_ONCE):
                    part = asked[at : at + ASK_AT_ONCE]
                    query = self._ask(part, np.full(len(part), relation), other)
                    scores[self._on_device(rows), at : at + len(part)] += self.geometry.cross(query, answers).T
            scores = scores / 2
        return self._padded(self._scaled(scores), known, candidates)

    def _with_vector(self, known: IntArray) -> IntArray:
        """Known entities, with another in place of one that has no vector: its scores are not kept."""
        return known if self.entities == len(self.entity) else np.where(self.unscorable[known], 0, known)

    def _padded(self, scores: Tensor, known: IntArray, candidates: IntArray | None) -> Tensor:
        """The scores of those that have a vector, among all candidates: NaN for the others."""
        if self.entities == len(self.entity):
            return scores
        asked = self.unscorable if candidates is None else self.unscorable[candidates]
        wide = scores.new_full((len(known), len(asked)), NO_SCORE)
        wide[:, self._on_device(~asked)] = scores
        wide[self._on_device(self.unscorable[known])] = NO_SCORE
        return wide

    def _on_device(self, numbers: IntArray | BoolArray) -> Tensor:
        return torch.from_numpy(numbers.copy()).to(self.device)

    def _ask(self, known: IntArray, relations: IntArray, side: Side) -> Tensor:
        """The query vectors of known entities and relations."""
        entity, relation = self._on_device(known), self._on_device(relations)
        return self._query(Queries(side, entity, relation, entity, entity))

    def _scaled(self, scores: Tensor) -> Tensor:
        return scores if (self.slope, self.offset) == (1.0, 0.0) else self.slope * scores + self.offset

    def rescale(self, slope: float, offset: float) -> None:
        """From now on scores are slope · (the model's own) + offset, until the next fit."""
        if not (slope > 0 and np.isfinite([slope, offset]).all()):
            raise ValueError(f"a scale of slope {slope} and offset {offset} would not keep the order of scores")
        self.slope, self.offset = slope, offset

    def tables(self) -> Mapping[str, Table]:
        """The vectors of entities and relations, and the parameters that the geometry and the scale have besides."""
        n, relations = self.relations, self.relation.cpu().numpy()
        tables = {"entities": Table(self.entity.cpu().numpy(), "entity"), "relations": Table(relations[:n], "relation")}
        if len(relations) > n:  # by which heads are asked for
            tables["inverse_relations"] = Table(relations[n:], "relation")
        extra = {name: Table(value.cpu().numpy()) for name, value in self.geometry.extra.items()}
        return tables | extra | {"platt": Table(np.array([self.slope, self.offset]))}

    def reasons(self, triple: IntArray) -> Reasons:
        """Similar entities with such a fact."""
        return Reasons() if self.graph is None else Reasons(neighbours(self.entity, self.graph, triple))

    def save(self, path: Path) -> None:
        """Writes parameters and scale as safetensors."""
        tensors = {name: p.cpu() for name, p in self.parameters.items()}
        with replacing(path) as beside:
            save_file(tensors | {"platt": torch.tensor([self.slope, self.offset], dtype=torch.float64)}, beside)

    def load(self, path: Path) -> None:
        """Reads what `save` wrote; it must have this model's shapes."""
        tensors = load_file(path)
        for name, own in self.parameters.items():
            found = tuple(tensors[name].shape) if name in tensors else "none"
            if found != tuple(own.shape):
                raise InputError(f"{path}: {name} vectors of shape {tuple(own.shape)} expected, found {found}")
        for name, own in self.parameters.items():
            own.copy_(tensors[name])
        self.rescale(*tensors["platt"].tolist())

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
