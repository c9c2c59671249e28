"""The neural model q_θ as a protocol: what the rest of the program asks of it, whatever kind of model it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch

from plogicnet.config import MODELS, Config
from plogicnet.graph import BoolArray, FloatArray, IntArray, KnowledgeGraph, Side, as_triples
from plogicnet.support.progress import Progress, silent


@dataclass(frozen=True)
class Examples:
    """What an E-step learns from: weighted positives, and explicit negatives beside those that a model samples.

    Example:
        >>> Examples.of(as_triples([(0, 0, 1)])).weights
        array([1.])
    """

    positives: IntArray
    weights: FloatArray
    negatives: IntArray

    @classmethod
    def of(cls, positives: IntArray, weights: FloatArray | None = None) -> "Examples":
        """Positives, by default of weight one, without explicit negatives."""
        return cls(positives, np.ones(len(positives)) if weights is None else weights, as_triples([]))


Validate = Callable[[], float]
"""Judges the model as it stands; higher is better. Decides only when to stop and which parameters to keep."""


@dataclass(frozen=True)
class Checkpoint:
    """Where training saves its state, and how often: every so many seconds, and every so many steps (0: never).

    Example:
        >>> Checkpoint(Path("runs/family/checkpoint/e_step.safetensors"), every_seconds=30.0).every_steps
        0
    """

    path: Path
    every_seconds: float = 60.0
    every_steps: int = 0


@dataclass(frozen=True)
class Cost:
    """What training a model takes, known before it is made.

    Attributes:
        steps: the steps of one E-step.
        bytes: the memory on a CPU.
        work: the work of one step in words, as "1,024 × 256 comparisons in 200 dimensions".
        what: what takes the memory, in words.
        remedy: which settings make it smaller.
        positives: the positives of one step.
    """

    steps: int
    bytes: int
    work: str
    what: str
    remedy: str
    positives: int


@dataclass(frozen=True)
class Table:
    """A table of learned numbers.

    Attributes:
        values: one row an entity or relation, or parameters of any shape.
        rows: what a row belongs to; None for other parameters.
    """

    values: "np.ndarray[Any, Any]"
    rows: Literal["entity", "relation"] | None = None


@dataclass(frozen=True)
class Neighbour:
    """An entity that is similar to one end of a triple and is known to have the same fact with the other end."""

    entity: int
    similar_to: int
    similarity: float
    fact: IntArray


@dataclass(frozen=True)
class ScoredPath:
    """A path from head to tail that carries a share of a score: (steps, 3) triples."""

    triples: IntArray
    share: float


@dataclass(frozen=True)
class Reasons:
    """Why a model gave a score, as far as it can tell."""

    neighbours: tuple[Neighbour, ...] = ()
    paths: tuple[ScoredPath, ...] = ()


class NeuralModel(Protocol):
    """The neural model q_θ of one graph: q(v = 1) = σ(score). A higher score is a more probable triple.

    EM, evaluation, prediction, explanation and export use these members and no others. Tensors stay on the model's
    device. A score is NaN where the model cannot score an entity of the triple.
    """

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""

    @property
    def is_logit(self) -> bool:
        """Whether σ(score) is a probability after training; else EM rescales the scores on validation triples."""

    @property
    def bytes_per_query(self) -> int:
        """What scoring one query against all entities takes, the scores themselves included."""

    @property
    def unscorable(self) -> BoolArray:
        """For each entity of the graph, whether it cannot be scored (vectors: entities that training never saw)."""

    def bind(self, graph: KnowledgeGraph) -> "NeuralModel":
        """The same parameters over a graph with more facts and perhaps more entities; this model stays as it is."""

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
        """Learns from the examples, from new parameters or (warm) from the present ones.

        With `validate` it may stop early and keeps the best parameters. With a checkpoint of the same training it
        resumes there, and ends as if it had never stopped.
        """

    def rescale(self, slope: float, offset: float) -> None:
        """Until the next fit, scores are slope · (the model's own) + offset."""

    def score(self, triples: IntArray, hide_self: bool = False) -> torch.Tensor:
        """The scores of given triples; with `hide_self`, each as if it were not in the graph."""

    def score_all(self, known: IntArray, relations: IntArray, side: Side) -> torch.Tensor:
        """For each query (known entity, relation, asked side) the scores of all entities: (queries, entities).

        The caller may overwrite the tensor.
        """

    def score_answers(
        self, known: IntArray, relations: IntArray, side: Side, candidates: IntArray | None = None
    ) -> torch.Tensor:
        """As `score_all`, for all entities or some, but with what `score` gives for each whole triple, up to rounding.

        The two differ only for a model that asks for heads in another way than for tails.
        """

    def tables(self) -> Mapping[str, Table]:
        """The learned tables by name, for export and checks."""

    def reasons(self, triple: IntArray) -> Reasons:
        """Why it gave a triple its score."""

    def save(self, path: Path) -> None:
        """Writes the parameters as safetensors."""

    def load(self, path: Path) -> None:
        """Reads what `save` wrote."""


class Guide(Protocol):
    """What a system holds a model to besides its examples; a kind of model says which guides it takes."""

    @property
    def digest(self) -> bytes:
        """Identifies the guide, so that a checkpoint of another one is not resumed."""


class ModelKind(Protocol):
    """What the registry `MODELS` holds for a name; see `config.registries.Extension` for its settings."""

    block: str
    settings: type | None
    implied: Mapping[str, object]

    def make(self, graph: KnowledgeGraph, config: Config, guide: Guide | None = None) -> NeuralModel:
        """An untrained model of a graph; an InputError where it cannot take the guide."""

    def cost(self, graph: KnowledgeGraph, config: Config) -> Cost:
        """What training such a model takes."""


def make_model(graph: KnowledgeGraph, config: Config, guide: Guide | None = None) -> NeuralModel:
    """The neural model that the settings name, untrained.

    Example:
        >>> graph = KnowledgeGraph.from_names([("anna", "knows", "ben")])
        >>> make_model(graph, Config(device="cpu")).device
        device(type='cpu')
    """
    return model_kind(config).make(graph, config, guide)


def model_kind(config: Config) -> ModelKind:
    """The registered kind of the model that the settings name."""
    kind: ModelKind = MODELS.get(config.neural.model)
    return kind
