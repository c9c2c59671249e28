"""The protocol of a neural model q_θ, and the types of its inputs and results."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch

from plogicnet.config import Config, Extension, SearchSpace
from plogicnet.graph import BoolArray, FloatArray, IntArray, KnowledgeGraph, Side, as_triples
from plogicnet.rules import Rule
from plogicnet.support.progress import Progress, no_progress


@dataclass(frozen=True)
class Examples:
    """The training data of an E-step: weighted positives and explicit negatives.

    A model can also sample other negatives.

    Attributes:
        positives: the triples that are trained as true.
        weights: the weight of each positive.
        negatives: triples that are trained as false.

    Example:
        >>> Examples.of(as_triples([(0, 0, 1)])).weights
        array([1.])
    """

    positives: IntArray
    weights: FloatArray
    negatives: IntArray

    @classmethod
    def of(cls, positives: IntArray, weights: FloatArray | None = None) -> "Examples":
        """Create examples without explicit negatives. The default weight of a positive is 1."""
        return cls(positives, np.ones(len(positives)) if weights is None else weights, as_triples([]))


Validate = Callable[[], float]
"""A callback for early stopping that returns a metric of the current model; higher is better."""


@dataclass(frozen=True)
class Checkpoint:
    """A file in which training saves its state, every `every_seconds` seconds and every `every_steps` steps (0: never).

    Example:
        >>> Checkpoint(Path("runs/family/work/checkpoint/e_step.safetensors"), every_seconds=30.0).every_steps
        0
    """

    path: Path
    every_seconds: float = 60.0
    every_steps: int = 0


@dataclass(frozen=True)
class Cost:
    """The estimated cost of training a model.

    Attributes:
        steps: steps per E-step.
        bytes: memory on a CPU.
        work: the work of one step as text, such as "1,024 triples with 256 negatives each".
        purpose: what needs the memory, such as "training vectors of 200 dimensions".
        remedy: how to reduce the memory, such as "use a smaller neural.batch".
        positives: positives per step.
    """

    steps: int
    bytes: int
    work: str
    purpose: str
    remedy: str
    positives: int


@dataclass(frozen=True)
class ParameterTable:
    """An array of learned parameters.

    Attributes:
        values: the parameters, with one row per entity or relation, or of any other shape.
        row_kind: whether each row belongs to an entity or a relation; None if the rows belong to neither.
    """

    values: "np.ndarray[Any, Any]"
    row_kind: Literal["entity", "relation"] | None = None


@dataclass(frozen=True)
class Neighbour:
    """An entity that is similar to the head or tail of a triple and has the same known fact.

    Attributes:
        entity: the similar entity.
        similar_to: the head or tail of the triple.
        similarity: the similarity of both entities.
        fact: the triple with `similar_to` replaced by `entity`. It is a known fact.
    """

    entity: int
    similar_to: int
    similarity: float
    fact: IntArray


@dataclass(frozen=True)
class ScoredPath:
    """A path from head to tail, an array of triples of shape (steps, 3), and its share of the score.

    The score falls by the share if the facts of the path are removed from the graph, in addition to those of the paths
    before it. So the shares add up to the score minus the score without the facts of all paths.
    """

    triples: IntArray
    share: float


@dataclass(frozen=True)
class Reasons:
    """The neighbours and paths that explain a score. Both can be empty."""

    neighbours: tuple[Neighbour, ...] = ()
    paths: tuple[ScoredPath, ...] = ()


class NeuralModel(Protocol):
    """The neural model q_θ of one graph, which scores triples. A triple with a higher score is more probable.

    q(triple is true) is σ(score), if `is_logit` is true or after `rescale`. EM, evaluation, prediction, explanation and
    export use only these members. Tensors are on the model's device. A score is NaN if the model cannot score an entity
    of the triple.
    """

    @property
    def device(self) -> torch.device:
        """The device of the model's tensors."""

    @property
    def is_logit(self) -> bool:
        """Whether the training loss makes σ(score) the probability of a triple.

        It is false, for example, if scores are trained with a softmax. EM then fits `rescale` on validation triples.
        """

    @property
    def is_pairwise(self) -> bool:
        """Whether scoring a triple costs much less than scoring a query against all entities.

        If not, probabilities are fitted on fewer triples.
        """

    @property
    def bytes_per_query(self) -> int:
        """The memory for scoring one query against all entities, including the scores."""

    @property
    def unscorable(self) -> BoolArray:
        """A mask of the entities that cannot be scored, for example new entities of a graph that was bound later."""

    def bind(self, graph: KnowledgeGraph) -> "NeuralModel":
        """Return a copy of this model, with the same parameters, for a graph with more facts or entities.

        `save` and `load` also work for a bound model. A `fit` gives parameters to all entities.
        """

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
        """Train on the examples, starting from new parameters or, if `warm`, from the current ones.

        With `validate`, training can stop early and keeps the best parameters. If `checkpoint` contains the state of a
        training with the same settings, seed and examples, training continues from it. The result is then the same as
        without the interruption.
        """

    def rescale(self, slope: float, offset: float) -> None:
        """Replace every score by slope · score + offset until the next fit."""

    def score(self, triples: IntArray, hide_self: bool = False) -> torch.Tensor:
        """Score triples. With `hide_self`, score each triple as if it were not in the graph.

        Otherwise training triples can score too high, because the model has seen them. A model can also hide each
        triple always.
        """

    def score_all(self, known: IntArray, relations: IntArray, side: Side) -> torch.Tensor:
        """Score all entities as answers of each query, as a tensor of shape (queries, entities), for ranking.

        Only the direction of the query is used. A model can score (h, r, ?) and (?, r, t) differently, so these scores
        can differ from those of `score` and `score_answers`. `side` is the missing side. The caller can overwrite the
        tensor.
        """

    def score_answers(
        self, known: IntArray, relations: IntArray, side: Side, candidates: IntArray | None = None
    ) -> torch.Tensor:
        """Score the candidates (default: all entities) as answers of each query, for probabilities of triples.

        Unlike those of `score_all`, these scores equal `score` of the completed triple, up to rounding. If the model
        scores both directions differently, the scores combine both directions, for example by the mean.
        """

    def tables(self) -> Mapping[str, ParameterTable]:
        """Return the learned parameters by name, for `export` and `doctor`."""

    def reasons(self, triple: IntArray) -> Reasons:
        """Return the reasons for a triple's score."""

    def save(self, path: Path) -> None:
        """Write the parameters as safetensors."""

    def load(self, path: Path) -> None:
        """Read the output of `save`."""


@runtime_checkable
class ExtensibleModel(NeuralModel, Protocol):
    """A neural model that can have parameters of entities, and can learn those of new entities alone."""

    @property
    def has_entity_parameters(self) -> bool:
        """Whether it has parameters of entities. `extended` is called only if it has."""

    def extended(
        self, entities: IntArray, steps: int, seed: int, progress: Progress = no_progress
    ) -> "ExtensibleModel":
        """Return a copy with new parameters of some entities, trained for `steps` steps on the facts of its graph.

        All other parameters, and thus the scores of triples without these entities, stay the same. Every entity that
        the model cannot score must be in `entities`.
        """


@runtime_checkable
class ProposingModel(NeuralModel, Protocol):
    """A neural model that can propose rules. Its kind is a `ProposingKind`."""

    def propose_rules(self, facts: IntArray, progress: Progress = no_progress) -> Mapping[Rule, float]:
        """Return rules with the relations of the paths behind the scores of facts, and how much each rule is used."""


class Guide(Protocol):
    """An extra training objective with which a system (such as RUGE or NNE-AER) guides the training of a neural model.

    Each kind of model has its own type of guide, such as `VectorGuide`.
    """

    @property
    def digest(self) -> bytes:
        """A digest of the objective. Training does not resume from a checkpoint with another digest."""


class ModelKind(Extension, Protocol):
    """A kind of model that is registered in `MODELS`."""

    def make(self, graph: KnowledgeGraph, config: Config, guide: Guide | None = None) -> NeuralModel:
        """Return an untrained model of a graph. Raise InputError if it does not support the guide."""

    def cost(self, graph: KnowledgeGraph, config: Config) -> Cost:
        """Estimate the cost of training."""


@runtime_checkable
class SearchableKind(Protocol):
    """A kind of model that also states which settings `plogicnet tune` searches over by default."""

    def search_space(self, graph: KnowledgeGraph, config: Config) -> SearchSpace:
        """Return the settings that are worth searching on a graph, with their ranges."""


@runtime_checkable
class ProposingKind(Protocol):
    """A kind of model that also states whether its models propose rules."""

    @property
    def proposes_rules(self) -> bool:
        """Whether they do."""
