"""The mixture model: the weighted sum of the scores of several neural models."""

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from plogicnet.graph import HEAD, RELATION, TAIL, BoolArray, FloatArray, IntArray, KnowledgeGraph, Side
from plogicnet.neural.mixture.explanation import paths_with_shares
from plogicnet.neural.mixture.weights import Weights, fit_weights
from plogicnet.neural.parameters import load_tensors, read_parameters
from plogicnet.neural.protocol import (
    Checkpoint,
    Examples,
    ExtensibleModel,
    NeuralModel,
    ParameterTable,
    ProposingModel,
    Reasons,
    Validate,
)
from plogicnet.rules import Rule
from plogicnet.support.errors import InputError
from plogicnet.support.files import atomic_write
from plogicnet.support.progress import Progress, no_progress


class MixtureModel:
    """A `NeuralModel` whose score is the weighted sum of the scores of its parts: log-linear pooling.

    The parts are trained one after the other on the same examples. Then `fit_weights` fits their weights on valid. If a
    part cannot score a triple, for example one with a new entity, the score is the mean of the other parts' scores,
    each with a slope and an offset that were fitted for the part alone.

    Attributes:
        parts: the models.
        names: their names, for messages.
        graph: the graph.
        weights: the weights of the parts.

    Example:
        >>> from plogicnet.config import Config
        >>> from plogicnet.neural.registry import make_model
        >>> graph = KnowledgeGraph.from_names([("anna", "knows", "ben"), ("ben", "knows", "carl")])
        >>> config = Config().with_assignments(["neural.steps=2", "neural.mixture=[{model: TransE}, {model: Paths}]"])
        >>> model = make_model(graph, config)
        >>> model.fit(Examples.of(graph.train), seed=0)
        >>> model.score_all(np.array([0]), np.array([0]), "tail").shape
        torch.Size([1, 3])
    """

    def __init__(self, parts: Sequence[NeuralModel], names: Sequence[str], graph: KnowledgeGraph) -> None:
        self.parts, self.names, self.graph = tuple(parts), tuple(names), graph
        self.slope, self.offset = 1.0, 0.0
        self._use_only(0)

    def _use_only(self, part: int) -> None:
        self.weights = Weights.only(part, len(self.parts), len(self.graph.relations))

    def bind(self, graph: KnowledgeGraph) -> "MixtureModel":
        """Return a mixture of the bound parts, with the same weights."""
        bound = copy.copy(self)
        bound.parts, bound.graph = tuple(part.bind(graph) for part in self.parts), graph
        return bound

    @property
    def device(self) -> torch.device:
        """The device of all parts."""
        return self.parts[0].device

    @property
    def is_logit(self) -> bool:
        """False: the weights are fitted with a softmax over all entities."""
        return False

    @property
    def is_pairwise(self) -> bool:
        """Whether all parts are pairwise."""
        return all(part.is_pairwise for part in self.parts)

    @property
    def bytes_per_query(self) -> int:
        """The sum over the parts."""
        return sum(part.bytes_per_query for part in self.parts)

    @property
    def unscorable(self) -> BoolArray:
        """A mask of the entities that no part can score."""
        return np.asarray(np.logical_and.reduce([part.unscorable for part in self.parts]))

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
        """Train the parts, then fit the weights. Each part has its own seed and its own checkpoint file.

        A part that is trained completely has a checkpoint of its last step. So a resumed training continues with the
        next part. `validate` measures the part that is being trained.
        """
        self.rescale(1.0, 0.0)
        for i, part in enumerate(self.parts):
            self._use_only(i)
            part_seed = int(np.random.SeedSequence([seed, i]).generate_state(1)[0]) >> 1
            file = checkpoint and replace(checkpoint, path=checkpoint.path.with_stem(f"{checkpoint.path.stem}_part{i}"))
            part.fit(examples, part_seed, warm, progress, validate=validate, checkpoint=file)
        self.weights = fit_weights(self.parts, self.names, self.graph, seed, progress)

    @property
    def has_entity_parameters(self) -> bool:
        """Whether a part has parameters of entities."""
        return any(isinstance(part, ExtensibleModel) and part.has_entity_parameters for part in self.parts)

    def extended(self, entities: IntArray, steps: int, seed: int, progress: Progress = no_progress) -> "MixtureModel":
        """Return a mixture whose parts have learned the entities, if they have parameters of entities."""
        extended = copy.copy(self)
        extended.parts = tuple(
            part.extended(entities, steps, seed, progress) if isinstance(part, ExtensibleModel) else part
            for part in self.parts
        )
        return extended

    def propose_rules(self, facts: IntArray, progress: Progress = no_progress) -> Mapping[Rule, float]:
        """Return the proposals of all parts. A rule that several parts propose has the sum of their shares."""
        shares = Counter[Rule]()
        for part in self.parts:
            if isinstance(part, ProposingModel):
                shares.update(part.propose_rules(facts, progress))
        return shares

    def rescale(self, slope: float, offset: float) -> None:
        """Replace every score by slope · score + offset until the next fit."""
        if not (slope > 0 and np.isfinite([slope, offset]).all()):
            raise ValueError(f"slope must be positive, slope and offset finite; got slope {slope} and offset {offset}")
        self.slope, self.offset = slope, offset

    def score(self, triples: IntArray, hide_self: bool = False) -> Tensor:
        """Score triples. With `hide_self`, each part scores each triple as if it were not in the graph."""
        return self._mix(lambda part: part.score(triples, hide_self), triples[:, RELATION])

    def score_all(self, known: IntArray, relations: IntArray, side: Side) -> Tensor:
        """Score all entities as answers of each query, only in the direction of the query."""
        return self._mix(lambda part: part.score_all(known, relations, side), relations)

    def score_answers(
        self, known: IntArray, relations: IntArray, side: Side, candidates: IntArray | None = None
    ) -> Tensor:
        """Score all entities, or the candidates, as answers of each query. The scores equal those of `score`."""
        return self._mix(lambda part: part.score_answers(known, relations, side, candidates), relations)

    def _mix(self, score: Callable[[NeuralModel], Tensor], relations: IntArray) -> Tensor:
        """Return the weighted sum of the parts' scores. `relations` has the relation of each row."""
        weights = self.weights.together[relations]
        used = self._used(weights)
        scores = [score(self.parts[i]).float() for i in used]
        shape = (len(relations), *[1] * (scores[0].dim() - 1))
        columns = [torch.from_numpy(weights[:, i].astype(np.float32)).to(self.device).view(shape) for i in used]
        if self._all_can_score:
            mixed = sum((w * s for w, s in zip(columns, scores, strict=True)), torch.zeros((), device=self.device))
        else:
            mixed = self._mix_incomplete(columns, scores)
        return mixed if (self.slope, self.offset) == (1.0, 0.0) else self.slope * mixed + self.offset

    def _mix_incomplete(self, columns: Sequence[Tensor], scores: Sequence[Tensor]) -> Tensor:
        """Mix scores, some of which are NaN. `columns` are the weights of each part."""
        missing = torch.zeros_like(scores[0], dtype=torch.bool)
        mixed, alone, count = (torch.zeros_like(scores[0]) for _ in range(3))
        for w, s, (slope, offset) in zip(columns, scores, self.weights.alone.tolist(), strict=True):
            is_scored = ~torch.isnan(s)
            missing |= ~is_scored & (w > 0)
            mixed += torch.where(is_scored, w * s, 0.0)
            alone += torch.where(is_scored, slope * s + offset, 0.0)
            count += is_scored
        return torch.where(missing | (count == 0), alone / count, mixed)  # NaN if no part has a score

    @property
    def _all_can_score(self) -> bool:
        """Whether every part can score every entity."""
        return not any(part.unscorable.any() for part in self.parts)

    def _used(self, weights: FloatArray) -> list[int]:
        """Return the parts with a weight, or all parts if one of them cannot score every entity."""
        every = list(range(len(self.parts)))
        return ([i for i in every if weights[:, i].any()] if self._all_can_score else []) or every

    def tables(self) -> Mapping[str, ParameterTable]:
        """Return the tables of the parts, the weights per relation, the scales of the parts alone, and the scale."""
        tables = {f"part{i}_{name}": t for i, part in enumerate(self.parts) for name, t in part.tables().items()}
        return tables | {
            "weights": ParameterTable(self.weights.together, "relation"),
            "alone": ParameterTable(self.weights.alone),
            "platt": ParameterTable(np.array([self.slope, self.offset])),
        }

    def reasons(self, triple: IntArray) -> Reasons:
        """Return the neighbours and paths of the parts that the score uses, with shares of the mixture's score."""
        reasons = [self.parts[i].reasons(triple) for i in self._used_for(triple)]
        candidates = [path.triples for part in reasons for path in part.paths]
        neighbours = tuple(neighbour for part in reasons for neighbour in part.neighbours)
        return Reasons(neighbours, paths_with_shares(self, self.graph, triple, candidates))

    def _used_for(self, triple: IntArray) -> IntArray:
        """Return the parts whose scores the score of a triple depends on."""
        weights = self.weights.together[triple[RELATION]]
        can_score = np.array([not part.unscorable[triple[[HEAD, TAIL]]].any() for part in self.parts])
        if (weights > 0)[~can_score].any():
            weights = np.where(can_score, self.weights.alone[:, 0], 0.0)
        return np.flatnonzero(weights)

    def save(self, path: Path) -> None:
        """Write the parameters of all parts, the weights and the scale as one safetensors file."""
        tensors = self._own_tensors()
        with atomic_write(path) as temporary:
            for i, part in enumerate(self.parts):
                file = temporary.with_name(f"part{i}.safetensors")
                part.save(file)
                tensors |= {f"part{i}.{name}": tensor for name, tensor in load_tensors(file).items()}
            save_file(tensors, temporary)

    def load(self, path: Path) -> None:
        """Read the output of `save`. Raise InputError if it is the file of another mixture."""
        own = self._own_tensors()
        read_parameters(path, own, ())
        tensors = load_tensors(path)
        with TemporaryDirectory() as folder:
            for i, part in enumerate(self.parts):
                file, prefix = Path(folder) / path.name, f"part{i}."
                save_file({n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}, file)
                try:
                    part.load(file)
                except InputError as error:
                    raise InputError(str(error).replace(str(file), f"{path}, {prefix[:-1]}")) from None
        self.weights = Weights(own["weights"].numpy(), own["alone"].numpy())
        self.rescale(*own["platt"].tolist())

    def _own_tensors(self) -> dict[str, Tensor]:
        platt = torch.tensor([self.slope, self.offset], dtype=torch.float64)
        together, alone = (torch.from_numpy(array.copy()) for array in (self.weights.together, self.weights.alone))
        return {"weights": together, "alone": alone, "platt": platt}
