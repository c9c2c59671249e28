"""A neural model from outside the package: two rounds of message passing from the known entity.

The query's relation gives each edge kind (relation and direction) a weight. A candidate's score is the sum over the
paths of one and two steps that lead to it. The model has no entity table, so it can score entities unseen in training.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from plogicnet.config import Config, Neural, setting
from plogicnet.graph import HEAD, RELATION, TAIL, BoolArray, IntArray, KnowledgeGraph, Side
from plogicnet.neural.optimization import OptimizerStepper, train
from plogicnet.neural.protocol import Checkpoint, Cost, Examples, Guide, ParameterTable, Reasons, ScoredPath, Validate
from plogicnet.neural.settings import TrainingSettings
from plogicnet.support.errors import InputError
from plogicnet.support.files import atomic_write
from plogicnet.support.progress import Progress, no_progress


@dataclass(frozen=True)
class MessageBlock:
    """The block `neural.messages`."""

    spread: float = setting(0.1, "standard deviation of the initial weights", low=0)
    note: str = setting("no: quotes needed", "a text that needs quotes in YAML")


@dataclass(frozen=True)
class MessageSettings(MessageBlock, TrainingSettings):
    """All settings of the model."""

    steps: int = 60
    batch: int = 32
    learning_rate: float = 0.05
    optimizer: str = "adam"


@dataclass(frozen=True)
class Edges:
    """The message graph, with both directions of every fact. Relation r has kind 2r forwards and 2r + 1 backwards."""

    source: torch.Tensor
    kind: torch.Tensor
    target: torch.Tensor
    entities: int

    @classmethod
    def of(cls, graph: KnowledgeGraph) -> "Edges":
        """Return the edges of the known facts."""
        h, r, t = torch.from_numpy(graph.observed.triples.copy()).unbind(1)
        columns = torch.cat([h, t]), torch.cat([2 * r, 2 * r + 1]), torch.cat([t, h])
        return cls(*columns, len(graph.entities))

    def without(self, triple: IntArray) -> "Edges":
        """Return the edges without one fact."""
        h, r, t = triple.tolist()
        forwards = (self.source == h) & (self.kind == 2 * r) & (self.target == t)
        backwards = (self.source == t) & (self.kind == 2 * r + 1) & (self.target == h)
        others = ~(forwards | backwards)
        return Edges(self.source[others], self.kind[others], self.target[others], self.entities)

    def propagate(self, state: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Pass (queries, entities) states along all edges, weighted by (queries, kinds)."""
        messages = state[:, self.source] * weight[:, self.kind]
        return torch.zeros_like(state).index_add(1, self.target, messages)


class Messages:
    """The message-passing model; see `NeuralModel`."""

    def __init__(self, graph: KnowledgeGraph, settings: MessageSettings) -> None:
        self.settings, self.graph, self.edges = settings, graph, Edges.of(graph)
        self.device, self.is_logit, self.is_pairwise = torch.device("cpu"), False, True
        kinds = 2 * len(graph.relations)
        self.first, self.second = (torch.zeros(kinds, kinds) for _ in range(2))
        self.bias = torch.zeros(kinds)
        self.slope, self.offset = 1.0, 0.0

    @property
    def parameters(self) -> dict[str, torch.Tensor]:
        return {"first": self.first, "second": self.second, "bias": self.bias}

    @property
    def bytes_per_query(self) -> int:
        return 8 * (len(self.edges.source) + self.edges.entities)

    @property
    def unscorable(self) -> BoolArray:
        return np.zeros(self.edges.entities, dtype=bool)

    def bind(self, graph: KnowledgeGraph) -> "Messages":
        bound = Messages(graph, self.settings)
        bound.first, bound.second, bound.bias = self.first, self.second, self.bias
        bound.slope, bound.offset = self.slope, self.offset
        return bound

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
        if not len(examples.positives):
            raise InputError("train has no triples; at least one is required")
        if not warm:
            generator = torch.Generator().manual_seed(seed)
            for parameter in self.parameters.values():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * self.settings.spread)
        self.rescale(1.0, 0.0)
        digest = hashlib.sha256(repr((self.settings, seed, warm, validate is not None)).encode())
        for array in (examples.positives, examples.weights, examples.negatives):
            digest.update(np.ascontiguousarray(array).tobytes())
        rate = self.settings.learning_rate
        stepper = OptimizerStepper(
            self.parameters, lambda step: self._loss(examples, seed, step), lambda p, _: torch.optim.Adam(p, lr=rate)
        )
        train(self.parameters, stepper, self.settings, digest.hexdigest(), progress, validate, checkpoint)

    def _loss(self, examples: Examples, seed: int, step: int) -> torch.Tensor:
        """Return cross-entropy over all entities. Each fact is hidden from its own query."""
        rng = np.random.default_rng([seed, step])
        rows = rng.integers(len(examples.positives), size=min(self.settings.batch, len(examples.positives)))
        side: Side = "tail" if step % 2 else "head"
        answer = TAIL if side == "tail" else HEAD
        loss = torch.zeros(())
        for row in rows:
            triple = examples.positives[row]
            scores = self._score_hidden(triple, side)
            weight = float(examples.weights[row])
            loss = loss - weight * torch.log_softmax(scores, 0)[int(triple[answer])]
        if len(examples.negatives):
            triple = examples.negatives[rng.integers(len(examples.negatives))]
            loss = loss + torch.softmax(self._score_hidden(triple, side), 0)[int(triple[answer])]
        return loss / len(rows)

    def _score_hidden(self, triple: IntArray, side: Side) -> torch.Tensor:
        known, relation = triple[[HEAD if side == "tail" else TAIL]], triple[[RELATION]]
        return self._score_entities(known, relation, side, self.edges.without(triple))[0]

    def _score_entities(self, known: IntArray, relations: IntArray, side: Side, edges: Edges) -> torch.Tensor:
        """Score all entities in the direction of the query, without the scale: (queries, entities)."""
        query = torch.from_numpy(2 * relations + (side == "head"))
        state = torch.zeros(len(known), edges.entities)
        state[torch.arange(len(known)), torch.from_numpy(known.copy())] = 1.0
        one = edges.propagate(state, self.first[query])
        return self.bias[query][:, None] + one + edges.propagate(one, self.second[query])

    @torch.no_grad()
    def score_all(self, known: IntArray, relations: IntArray, side: Side) -> torch.Tensor:
        return self.slope * self._score_entities(known, relations, side, self.edges) + self.offset

    @torch.no_grad()
    def score(self, triples: IntArray, hide_self: bool = False) -> torch.Tensor:
        if not hide_self:
            rows = [self._score_both(t[None, :], self.edges) for t in triples]
        else:
            rows = [self._score_both(t[None, :], self.edges.without(t)) for t in triples]
        return self.slope * torch.cat([torch.zeros(0), *rows]) + self.offset

    def _score_both(self, triple: IntArray, edges: Edges) -> torch.Tensor:
        """Return the mean of both directions."""
        h, r, t = triple.T
        forwards, backwards = self._score_entities(h, r, "tail", edges), self._score_entities(t, r, "head", edges)
        return (forwards[:, int(t[0])] + backwards[:, int(h[0])]) / 2

    def score_answers(
        self, known: IntArray, relations: IntArray, side: Side, candidates: IntArray | None = None
    ) -> torch.Tensor:
        answer = np.arange(self.edges.entities) if candidates is None else candidates
        shape = len(known), len(answer)
        known_, relation = np.repeat(known, shape[1]), np.repeat(relations, shape[1])
        ends = (known_, np.tile(answer, shape[0]))
        head, tail = ends if side == "tail" else ends[::-1]
        return self.score(np.stack([head, relation, tail], axis=1)).view(shape)

    def rescale(self, slope: float, offset: float) -> None:
        self.slope, self.offset = slope, offset

    def tables(self) -> Mapping[str, ParameterTable]:
        return {}

    def reasons(self, triple: IntArray) -> Reasons:
        """Return the facts that lead from head to tail in one step."""
        facts = self.graph.observed.triples
        direct = facts[(facts[:, HEAD] == triple[HEAD]) & (facts[:, TAIL] == triple[TAIL])]
        weights = self.first[2 * int(triple[RELATION])][2 * direct[:, RELATION]].softmax(0)
        paths = zip(direct, weights.tolist(), strict=True)
        return Reasons(paths=tuple(ScoredPath(fact[None, :], share) for fact, share in paths))

    def save(self, path: Path) -> None:
        with atomic_write(path) as temporary:
            scale = torch.tensor([self.slope, self.offset], dtype=torch.float64)
            save_file({**self.parameters, "scale": scale}, temporary)

    def load(self, path: Path) -> None:
        tensors = load_file(path)
        for name, parameter in self.parameters.items():
            parameter.copy_(tensors[name])
        self.rescale(*tensors["scale"].tolist())


@dataclass(frozen=True)
class MessageKind:
    """The registered kind of model."""

    block: str = "messages"
    settings: type = MessageBlock
    implied_settings: Mapping[str, object] = field(default_factory=dict)

    def make(self, graph: KnowledgeGraph, config: Config, guide: Guide | None = None) -> Messages:
        if guide is not None:
            raise InputError("neural.model=Messages does not support a guide. Use another system or another model.")
        return Messages(graph, self._settings(config.neural))

    def cost(self, graph: KnowledgeGraph, config: Config) -> Cost:
        s = self._settings(config.neural)
        size = 16 * s.batch * (len(graph.entities) + 2 * len(graph.train))
        return Cost(s.steps, size, f"{s.batch:,} queries", "passing messages", "use a smaller neural.batch", s.batch)

    def _settings(self, neural: Neural) -> MessageSettings:
        return MessageSettings.resolved(neural, neural.blocks.get("messages", MessageBlock()))


MESSAGES = MessageKind()
