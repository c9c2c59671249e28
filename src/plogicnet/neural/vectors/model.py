"""The vector model: vectors of entities and relations, trained with one of two recipes."""

import copy
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from plogicnet.config import Config
from plogicnet.graph import HEAD, RELATION, TAIL, BoolArray, IntArray, KnowledgeGraph, Side, TripleSet
from plogicnet.neural import loss as losses
from plogicnet.neural.crossfit import cross_fitted_scores
from plogicnet.neural.device import matmul_precision, pick_device, threads_for
from plogicnet.neural.optimization import OptimizerStepper, Stepper, train
from plogicnet.neural.parameters import count_rows, read_parameters, write_parameters
from plogicnet.neural.protocol import Checkpoint, Examples, Guide, ParameterTable, Reasons, Validate
from plogicnet.neural.sampling import Queries, ShuffledEpochs, explicit_negatives, generator_for
from plogicnet.neural.vectors.models import make_geometry
from plogicnet.neural.vectors.neighbours import neighbours
from plogicnet.neural.vectors.sampling import Sampler
from plogicnet.neural.vectors.settings import VectorSettings
from plogicnet.support.errors import InputError
from plogicnet.support.progress import Progress, no_progress

CHUNK_TRIPLES = {"cpu": 8_192, "cuda": 65_536}
"""The number of triples per chunk when scoring. A chunk fits into the caches of a CPU."""
CHUNK_QUERIES = 4_096
"""The number of queries per chunk when both directions of reciprocal relations are scored."""
OTHERS_PER_FACT = 4
"""When new entities are learned, the number of other training triples per triple of theirs."""
DROPOUT_STREAM = 6
"""The stream of random numbers for dropout; see `generator_for`."""
NO_SCORE = float("nan")
"""The score of a triple with an entity that has no vector."""
Loss = Callable[[int], Tensor]
"""Function from a step number to the loss of that step."""


@runtime_checkable
class VectorGuide(Guide, Protocol):
    """A guide for vector models: an extra loss term, and bounds on the parameters."""

    def term(self, model: "VectorModel", seed: int) -> Loss:
        """Return the extra loss term of a training."""

    def project(self, model: "VectorModel") -> None:
        """Project the parameters onto their bounds in place. Called before the first step and after every step."""


class VectorModel:
    """A `NeuralModel` with a vector for each entity and relation, and a geometry that computes scores from vectors.

    With reciprocal relations, each relation has a second vector for head queries, (t, r⁻¹, ?). The score of a
    triple is then the mean of both directions.

    Example:
        >>> model = VectorModel(3, 1, VectorSettings(dim=4, steps=2, batch=2, negatives=2))
        >>> model.fit(Examples.of(np.array([[0, 0, 1], [1, 0, 2]])), seed=0)
        >>> model.score_all(np.array([0]), np.array([0]), "tail").shape
        torch.Size([1, 3])
    """

    def __init__(
        self,
        n_entities: int,
        n_relations: int,
        settings: VectorSettings,
        device: str = "cpu",
        guide: VectorGuide | None = None,
        graph: KnowledgeGraph | None = None,
    ) -> None:
        self.settings, self.guide, self.graph = settings, guide, graph
        self.device = pick_device(device)
        if settings.kernels == "fused" and self.device.type != "cuda":
            raise InputError("neural.kernels: fused kernels need a GPU. Use --device cuda, or set neural.kernels=auto.")
        self.geometry = make_geometry(settings, self.device)
        self.n_entities, self.n_relations = n_entities, n_relations
        self.slope, self.offset = 1.0, 0.0
        width, relation_width = self.geometry.widths
        self.entity = torch.zeros(n_entities, width, device=self.device)
        self.relation = torch.zeros(n_relations * (1 + self.geometry.reciprocal), relation_width, device=self.device)
        extra = self.geometry.initial_extra(torch.Generator())
        self.geometry.extra = {name: torch.zeros_like(value, device=self.device) for name, value in extra.items()}

    @classmethod
    def of(cls, graph: KnowledgeGraph, config: Config, guide: Guide | None = None) -> "VectorModel":
        """Return an untrained model of a graph."""
        settings = VectorSettings.of(config.neural)
        if guide is not None and not isinstance(guide, VectorGuide):
            raise InputError(
                f"system={config.system} cannot train neural.model={settings.model}. Set another neural.model."
            )
        return cls(len(graph.entities), len(graph.relations), settings, config.device, guide, graph)

    def bind(self, graph: KnowledgeGraph) -> "VectorModel":
        """Return a model with the same vectors for a graph with more facts. New entities have no vector."""
        bound = copy.copy(self)
        bound.graph, bound.n_entities = graph, len(graph.entities)
        return bound

    @property
    def is_logit(self) -> bool:
        """Whether the recipe is `sampled`. Its loss makes σ(score) a probability. That of `one_vs_all` does not."""
        return self.settings.recipe == "sampled"

    @property
    def is_pairwise(self) -> bool:
        """True: a score is a comparison of two vectors."""
        return True

    @property
    def bytes_per_query(self) -> int:
        """The memory of one query's scores and of a temporary copy."""
        return 8 * self.n_entities

    @property
    def unscorable(self) -> BoolArray:
        """A mask of the entities without a vector."""
        return np.arange(self.n_entities) >= len(self.entity)

    @property
    def has_entity_parameters(self) -> bool:
        """True: the vectors."""
        return True

    @property
    def parameters(self) -> dict[str, Tensor]:
        """All learned tensors by name."""
        return {"entity": self.entity, "relation": self.relation, **self.geometry.extra}

    def fit(
        self,
        examples: Examples,
        seed: int,
        warm: bool = False,
        progress: Progress = no_progress,
        *,
        validate: Validate | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """Train with the recipe of the settings; see `NeuralModel.fit`.

        Example:
            >>> model = VectorModel(3, 1, VectorSettings(model="ComplEx", recipe="one_vs_all", dim=4, steps=2, batch=2))
            >>> model.fit(Examples.of(np.array([[0, 0, 1], [1, 0, 2]])), seed=0, validate=lambda: 0.5)
        """
        if not len(examples.positives):
            raise InputError("train has no triples; at least one is required")
        self.entity = self._with_new_rows(seed)
        if not warm:
            self._initialise(seed)
        self._project()
        self.rescale(1.0, 0.0)
        s = self.settings
        n_compared = s.negatives if self.is_logit else len(self.entity)
        with threads_for(s.batch * n_compared * s.dim), matmul_precision(s.matmul):
            fingerprint = self._fingerprint(examples, seed, warm, validate is not None) if checkpoint else ""
            train(self.parameters, self._stepper(examples, seed), s, fingerprint, progress, validate, checkpoint)

    def extended(self, entities: IntArray, steps: int, seed: int, progress: Progress = no_progress) -> "VectorModel":
        """Return a copy with newly drawn vectors of some entities, trained with the recipe of the settings.

        The examples are those of `_examples_about`. A guide is not used.
        """
        if self.graph is None:
            raise ValueError("extended needs a model that is bound to a graph")
        model = copy.copy(self)
        model.settings, model.guide = replace(self.settings, steps=steps), None
        known, rows = self._with_new_rows(seed), self._on_device(entities)
        shape = (len(entities), known.shape[1])
        vectors = self.geometry.initial(shape, torch.Generator().manual_seed(seed)).to(self.device)

        def insert() -> None:
            model.entity = known.index_copy(0, rows, vectors)

        def loss(step: int) -> Tensor:
            insert()
            return recipe_loss(step)

        insert()
        recipe_loss = model._loss(_examples_about(entities, self.graph, seed), seed)
        stepper = OptimizerStepper({"vectors": vectors}, loss, model._optimizer, model._restart_step)
        with matmul_precision(self.settings.matmul):
            train({"vectors": vectors}, stepper, model.settings, "", progress)
        insert()
        model.settings, model.guide = self.settings, self.guide
        return model

    def _with_new_rows(self, seed: int) -> Tensor:
        """Return the entity vectors, followed by newly drawn ones of the entities that have none."""
        shape = (self.n_entities - len(self.entity), self.entity.shape[1])
        new = self.geometry.initial(shape, torch.Generator().manual_seed(seed))
        return torch.cat([self.entity, new.to(self.device)]) if len(new) else self.entity

    def _stepper(self, examples: Examples, seed: int) -> Stepper:
        """Return fused GPU steps if settings and device allow them, otherwise steps with a PyTorch optimizer."""
        allowed = self.guide is None and self.settings.kernels != "plain"
        if allowed and self.device.type == "cuda" and find_spec("triton"):
            from plogicnet.neural.vectors.kernels.step import FusedSteps, unsupported_reason

            reason = unsupported_reason(examples, self.settings)
            if reason is None:
                return FusedSteps(self.entity, self.relation, examples, self.settings, seed)
            if self.settings.kernels == "fused":
                raise InputError(f"neural.kernels: {reason}. Set neural.kernels=auto.")
        return OptimizerStepper(
            self.parameters, self._loss(examples, seed), self._optimizer, self._restart_step, self._project
        )

    @property
    def _restart_step(self) -> int:
        """The step at which the sampled recipe restarts Adam with a tenth of the learning rate; -1 for one_vs_all."""
        return self.settings.steps // 2 if self.is_logit else -1

    def _optimizer(self, parameters: list[Tensor], step: int) -> torch.optim.Optimizer:
        s = self.settings
        rate = s.learning_rate / (10 if 0 < self._restart_step <= step else 1)
        if s.optimizer == "adam" or (s.optimizer == "auto" and self.is_logit):
            return torch.optim.Adam(parameters, lr=rate, fused=True)
        # fused is one pass over the tables instead of several; PyTorch has it for Adagrad only on a CPU
        return torch.optim.Adagrad(parameters, lr=rate, fused=self.device.type == "cpu" or None)

    def _project(self) -> None:
        if self.guide is not None:
            self.guide.project(self)

    def _loss(self, examples: Examples, seed: int) -> Loss:
        """Return the recipe's loss plus the terms of explicit negatives and of the guide."""
        terms: list[Loss] = [(self._sampled_loss if self.is_logit else self._one_vs_all_loss)(examples, seed)]
        if (negatives := explicit_negatives(examples, self.settings.batch, seed, self.device)) is not None:
            terms.append(lambda step: self._explicit_negative_loss(negatives.queries(step)))
        if self.guide:
            terms.append(self.guide.term(self, seed))
        return lambda step: sum((term(step) for term in terms[1:]), terms[0](step))

    def _sampled_loss(self, examples: Examples, seed: int) -> Loss:
        """Return the paper's loss: self-adversarial negative sampling, and an L3 penalty on all vectors."""
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

    def _one_vs_all_loss(self, examples: Examples, seed: int) -> Loss:
        """Return cross-entropy over all entities, with an N3 penalty on the vectors of the batch."""
        s = self.settings
        epochs = ShuffledEpochs(examples.positives, examples.weights, s.batch, seed, self.device)

        def loss(step: int) -> Tensor:
            b = epochs.queries(step)
            query = self._query(b, dropout=(seed, step))
            value = losses.one_vs_all_loss(self.geometry.cross(query, self.entity), b.answer, b.weight)
            if s.regularization:
                used = [embedding(b.known, self.entity), self._relation(b), embedding(b.answer, self.entity)]
                cubes = sum((self.geometry.sum_cubes(v) for v in used), torch.zeros_like(b.weight))
                value = value + s.regularization * losses.weighted_mean(cubes, b.weight)
            return value

        return loss

    def _explicit_negative_loss(self, b: Queries) -> Tensor:
        """Return the loss of explicit negatives."""
        if not self.is_logit:
            return losses.one_vs_all_negative_losses(self.geometry.cross(self._query(b), self.entity), b.answer).mean()
        return losses.explicit_negative_loss(self.answer_scores(b))

    def answer_scores(self, b: Queries) -> Tensor:
        """Score the answers of queries as in training: only in the direction of the query, and without rescaling."""
        return self.geometry.pair(self._query(b), embedding(b.answer, self.entity))

    def _query(self, b: Queries, dropout: tuple[int, int] | None = None) -> Tensor:
        # unlike indexing, `embedding` sums gradients in the same order on any number of threads
        inputs = [embedding(b.known, self.entity), self._relation(b)]
        rate = self.settings.dropout
        if dropout and rate:
            generator = generator_for(dropout[0], DROPOUT_STREAM, dropout[1], self.device)
            noise = [torch.rand(v.shape, generator=generator, device=self.device) for v in inputs]
            inputs = [v * (d >= rate) / (1 - rate) for v, d in zip(inputs, noise, strict=True)]
        return self.geometry.query(inputs[0], inputs[1], "tail" if self.geometry.reciprocal else b.side)

    def _relation(self, b: Queries) -> Tensor:
        """Return the relation vectors. The reciprocal ones are in the second half of the table."""
        return embedding(b.relation + self.n_relations * (self.geometry.reciprocal and b.side == "head"), self.relation)

    def score(self, triples: IntArray, hide_self: bool = False) -> Tensor:
        """Score triples. With `hide_self`, training triples are scored by a model that was trained without them.

        This needs several trainings; see `cross_fitted_scores`.
        """
        scores = self._scores(triples)
        if not hide_self:
            return scores
        if self.graph is None:
            raise ValueError("hide_self needs a model that is bound to a graph")
        scorable = ~self.unscorable[self.graph.train[:, [HEAD, TAIL]]].any(axis=1)
        training = TripleSet.of(self.graph.train[scorable], self.n_entities)
        cross_fitted = self._apply_scale(cross_fitted_scores(self, training.triples, seed=0))
        rows = torch.from_numpy(training.find(triples)).to(self.device)
        return torch.where(rows >= 0, cross_fitted[rows.clamp_min(0)], scores)

    @torch.no_grad()
    @matmul_precision("float32")
    def _scores(self, triples: IntArray) -> Tensor:
        scorable = np.asarray(~self.unscorable[triples[:, [HEAD, TAIL]]].any(axis=1))
        if not scorable.all():
            padded = torch.full((len(triples),), NO_SCORE, device=self.device)
            padded[self._on_device(scorable)] = self._scores(triples[scorable])
            return padded
        scores = torch.empty(len(triples), device=self.device)
        sides: list[Side] = ["tail", "head"] if self.geometry.reciprocal else ["tail"]
        step = CHUNK_TRIPLES[self.device.type]
        for start in range(0, len(triples), step):
            part = triples[start : start + step]
            scores[start : start + step] = torch.stack([self._score_pairs(part, side) for side in sides]).mean(0)
        return self._apply_scale(scores)

    def _score_pairs(self, triples: IntArray, side: Side) -> Tensor:
        known, answer = (HEAD, TAIL) if side == "tail" else (TAIL, HEAD)
        entities, relations = triples[:, known], triples[:, RELATION]
        if self.geometry.extra:  # a network's queries cost much more than comparisons: compute each distinct one once
            pairs, inverse = np.unique(entities * self.n_relations + relations, return_inverse=True)
            query = self._query_by_id(*np.divmod(pairs, self.n_relations), side)[self._on_device(inverse)]
        else:
            query = self._query_by_id(entities, relations, side)
        return self.geometry.pair(query, self.entity[self._on_device(triples[:, answer])])

    @torch.no_grad()
    @matmul_precision("float32")
    def score_all(self, known: IntArray, relations: IntArray, side: Side) -> Tensor:
        """Score all entities as answers of each query, only in the direction of the query."""
        query = self._query_by_id(self._replace_unscorable(known), relations, side)
        return self._pad_unscorable(self._apply_scale(self.geometry.cross(query, self.entity)), known, None)

    @torch.no_grad()
    @matmul_precision("float32")
    def score_answers(
        self, known: IntArray, relations: IntArray, side: Side, candidates: IntArray | None = None
    ) -> Tensor:
        """Score all entities, or the candidates, as answers of each query.

        With reciprocal relations, a score is the mean of both directions, as in `score`.
        """
        scorable = np.arange(len(self.entity)) if candidates is None else candidates[~self.unscorable[candidates]]
        vectors = self.entity if candidates is None else self.entity[self._on_device(scorable)]
        with_vector = self._replace_unscorable(known)
        scores = self.geometry.cross(self._query_by_id(with_vector, relations, side), vectors)
        if self.geometry.reciprocal:  # in the other direction, each candidate is queried for the known entities
            other: Side = "head" if side == "tail" else "tail"
            for relation in np.unique(relations):
                rows = np.flatnonzero(relations == relation)
                answers = self.entity[self._on_device(with_vector[rows])]
                for start in range(0, len(scorable), CHUNK_QUERIES):
                    part = scorable[start : start + CHUNK_QUERIES]
                    query = self._query_by_id(part, np.full(len(part), relation), other)
                    scores[self._on_device(rows), start : start + len(part)] += self.geometry.cross(query, answers).T
            scores = scores / 2
        return self._pad_unscorable(self._apply_scale(scores), known, candidates)

    def _replace_unscorable(self, known: IntArray) -> IntArray:
        """Replace entities without a vector by entity 0; the caller discards their scores."""
        return known if self.n_entities == len(self.entity) else np.where(self.unscorable[known], 0, known)

    def _pad_unscorable(self, scores: Tensor, known: IntArray, candidates: IntArray | None) -> Tensor:
        """Insert columns of NaN for candidates without a vector, and set rows of queries without a vector to NaN."""
        if self.n_entities == len(self.entity):
            return scores
        missing = self.unscorable if candidates is None else self.unscorable[candidates]
        padded = scores.new_full((len(known), len(missing)), NO_SCORE)
        padded[:, self._on_device(~missing)] = scores
        padded[self._on_device(self.unscorable[known])] = NO_SCORE
        return padded

    def _on_device(self, array: IntArray | BoolArray) -> Tensor:
        return torch.from_numpy(array.copy()).to(self.device)

    def _query_by_id(self, known: IntArray, relations: IntArray, side: Side) -> Tensor:
        """Return the query vectors of known entities and relations."""
        entity, relation = self._on_device(known), self._on_device(relations)
        return self._query(Queries(side, entity, relation, entity, entity))

    def _apply_scale(self, scores: Tensor) -> Tensor:
        return scores if (self.slope, self.offset) == (1.0, 0.0) else self.slope * scores + self.offset

    def rescale(self, slope: float, offset: float) -> None:
        """Replace every score by slope · score + offset until the next fit."""
        if not (slope > 0 and np.isfinite([slope, offset]).all()):
            raise ValueError(f"slope must be positive, slope and offset finite; got slope {slope} and offset {offset}")
        self.slope, self.offset = slope, offset

    def tables(self) -> Mapping[str, ParameterTable]:
        """Return the vectors, the geometry's extra parameters and the scale."""
        n, relations = self.n_relations, self.relation.cpu().numpy()
        tables = {
            "entities": ParameterTable(self.entity.cpu().numpy(), "entity"),
            "relations": ParameterTable(relations[:n], "relation"),
        }
        if len(relations) > n:  # for head queries
            tables["inverse_relations"] = ParameterTable(relations[n:], "relation")
        extra = {name: ParameterTable(value.cpu().numpy()) for name, value in self.geometry.extra.items()}
        return tables | extra | {"platt": ParameterTable(np.array([self.slope, self.offset]))}

    def reasons(self, triple: IntArray) -> Reasons:
        """Return similar entities that have the same known fact; see `neighbours`."""
        return Reasons() if self.graph is None else Reasons(neighbours(self.entity, self.graph, triple))

    def save(self, path: Path) -> None:
        """Write parameters and scale as safetensors."""
        write_parameters(path, self.parameters, {"platt": torch.tensor([self.slope, self.offset], dtype=torch.float64)})

    def load(self, path: Path) -> None:
        """Read the output of `save`. Raise InputError if a shape differs from this model's.

        The file can have fewer entity vectors. The other entities, which are new, then have none.
        """
        entity = self.entity[: count_rows(path, "entity")]
        others = read_parameters(path, self.parameters | {"entity": entity}, ("platt",))
        self.entity = entity
        self.rescale(*others["platt"].tolist())

    def _initialise(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for table in (self.entity, self.relation):
            table.copy_(self.geometry.initial((table.shape[0], table.shape[1]), generator))
        for name, value in self.geometry.initial_extra(generator).items():
            self.geometry.extra[name].copy_(value)

    def _fingerprint(self, examples: Examples, seed: int, warm: bool, validated: bool) -> str:
        """Return a digest of everything that determines a training; a checkpoint must have the same digest."""
        digest = hashlib.sha256(repr((self.settings, seed, warm, validated, self.entity.shape)).encode())
        start = [p.cpu().numpy() for p in self.parameters.values()] if warm else []
        for array in (examples.positives, examples.weights, examples.negatives, *start):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(self.guide.digest if self.guide else b"")
        return digest.hexdigest()


def _examples_about(entities: IntArray, graph: KnowledgeGraph, seed: int) -> Examples:
    """Return the training triples with one of these entities, and a sample of the others with larger weights.

    The weights make the expected loss that of the whole train split. Without the others, the entities would never be
    wrong answers, and would rank too high in all queries.
    """
    is_about = np.isin(graph.train[:, [HEAD, TAIL]], entities).any(axis=1)
    about, others = graph.train[is_about], graph.train[~is_about]
    n_drawn = min(OTHERS_PER_FACT * len(about), len(others))
    drawn = np.random.default_rng([seed, 17]).choice(len(others), n_drawn, replace=False)
    weights = np.repeat([1.0, len(others) / max(n_drawn, 1)], [len(about), n_drawn])
    return Examples.of(np.concatenate([about, others[drawn]]), weights)
