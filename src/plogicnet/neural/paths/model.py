"""The path model: a query is answered for all entities at once by message passing from its known entity."""

import copy
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from plogicnet.config import Config
from plogicnet.graph import (
    HEAD,
    RELATION,
    SIDES,
    TAIL,
    AnswerIndex,
    BoolArray,
    Hide,
    IntArray,
    KnowledgeGraph,
    Side,
    TripleSet,
    as_triples,
    choose_hiding,
)
from plogicnet.neural.checkpoint import Tensors
from plogicnet.neural.device import single_threaded
from plogicnet.neural.optimization import train
from plogicnet.neural.parameters import read_parameters, write_parameters
from plogicnet.neural.paths.backend import choose_backend, device_for
from plogicnet.neural.paths.batches import CPU, Batch, Batches, on_device
from plogicnet.neural.paths.compiled.scorer import CompiledScorer
from plogicnet.neural.paths.cost import PART_QUERIES, scoring_bytes
from plogicnet.neural.paths.edges import Edges, PathQueries
from plogicnet.neural.paths.explanation import PathExplainer
from plogicnet.neural.paths.layer import PlainLayer
from plogicnet.neural.paths.network import LayerScorer, Scorer, initial_parameters
from plogicnet.neural.paths.settings import PathSettings
from plogicnet.neural.paths.steps import PathSteps
from plogicnet.neural.protocol import Checkpoint, Examples, Guide, ParameterTable, Reasons, Validate
from plogicnet.rules import Rule, Step, chain_rule
from plogicnet.support.errors import InputError
from plogicnet.support.progress import Progress, no_progress

log = logging.getLogger(__name__)
MAX_CHUNK_QUERIES, MAX_CHUNK_BYTES = 64, {"cpu": 2**28, "cuda": 2**32}
"""Maximum number and memory of the queries of a chunk when scoring with up to 8 threads. Larger is not faster."""
MAX_PATHS = 5
"""Maximum number of paths that explain a score."""
TIMED_CHUNKS, LONG_SECONDS = 3, 60.0
"""After this many chunks, the remaining time is estimated. Times longer than this are logged."""
HIDDEN_FACTS = {"edge": "their own fact", "pair": "any fact between their two entities"}
MIN_ACCEPTED_WEIGHT = 0.5
"""Minimum weight of a positive that becomes an edge, with message_graph: accepted."""


class PathModel:
    """A `NeuralModel` that scores a candidate by the paths that connect it with the known entity.

    It has parameters for relations and for each layer, but none for entities. So it scores new entities, too. The
    equations are those of NBFNet (Zhu et al. 2021); see `PlainLayer`. The score of a triple is the mean of both
    directions.

    Example:
        >>> graph = KnowledgeGraph.from_names([("anna", "knows", "ben"), ("ben", "knows", "carl")])
        >>> model = PathModel(graph, PathSettings(dim=4, layers=2, steps=2, batch=2))
        >>> model.fit(Examples.of(graph.train), seed=0)
        >>> model.score_all(np.array([0]), np.array([0]), "tail").shape
        torch.Size([1, 3])
    """

    def __init__(self, graph: KnowledgeGraph, settings: PathSettings, device: str = "cpu") -> None:
        if settings.optimizer == "adagrad":
            raise InputError("neural.optimizer: the path model is trained with adam. Set neural.optimizer=auto.")
        self.settings, self.device = settings, device_for(settings, device)
        self.n_relations = len(graph.relations)
        self.backend = choose_backend(settings, self.device)
        self.slope, self.offset = 1.0, 0.0
        drawn = self._initial_parameters(torch.Generator())
        self.parameters = {name: torch.zeros_like(value, device=self.device) for name, value in drawn.items()}
        self.graph, self.accepted = graph, as_triples([])
        self._connect()
        self.mean_log_count = self.edges.mean_log_count

    def _initial_parameters(self, generator: torch.Generator) -> Tensors:
        s = self.settings
        return initial_parameters(self.n_relations, s.dim, s.layers, generator, s.frontier > 0)

    @classmethod
    def of(cls, graph: KnowledgeGraph, config: Config, guide: Guide | None = None) -> "PathModel":
        """Return an untrained model of a graph."""
        if guide is not None:
            raise InputError(f"system={config.system} cannot train neural.model=Paths. Set another neural.model.")
        return cls(graph, PathSettings.of(config.neural), config.device)

    def bind(self, graph: KnowledgeGraph) -> "PathModel":
        """Return a model with the same parameters for a graph with more facts or entities."""
        bound = copy.copy(self)
        bound.graph = graph
        bound._connect()
        return bound

    def _connect(self) -> None:
        """Create the edges along which messages travel."""
        n, observed = len(self.graph.entities), self.graph.observed
        new = self.accepted[~observed.contains(self.accepted)]  # facts of a bound graph can be accepted triples
        self.facts = TripleSet.of(np.concatenate([observed.triples, new]), n)
        self.new_answers = {side: AnswerIndex.of(new, n, side) for side in SIDES}
        self.edges = Edges.of(self.facts.triples, n, self.n_relations, self.device)
        self._compiled: CompiledScorer | None = None
        self.scorer = self._make_scorer()

    def _make_scorer(self) -> Scorer:
        if self.backend == "compiled":
            return self._compiled_scorer()
        if self.backend == "plain" or not len(self.edges):
            return LayerScorer(PlainLayer(self.edges), self.edges.n_entities)
        from plogicnet.neural.paths.kernels.layer import QUERY_MULTIPLE, FusedLayer

        return LayerScorer(FusedLayer(self.edges), self.edges.n_entities, torch.bfloat16, QUERY_MULTIPLE)

    def _compiled_scorer(self) -> CompiledScorer:
        """Return the scorer of explanations, which is also the scorer of queries if the backend is `compiled`."""
        if self._compiled is None:
            self._compiled = CompiledScorer(self.edges.on(CPU), self.settings.frontier)
        return self._compiled

    @property
    def is_logit(self) -> bool:
        """False: the training loss is a softmax over all entities."""
        return False

    @property
    def is_pairwise(self) -> bool:
        """False: each distinct query needs message passing over the whole graph."""
        return False

    @property
    def bytes_per_query(self) -> int:
        """The memory for scoring one query against all entities."""
        return scoring_bytes(len(self.graph.entities), len(self.edges), self.settings, self.backend)

    @property
    def unscorable(self) -> BoolArray:
        """A mask without a true value: every entity can be scored."""
        return np.zeros(len(self.graph.entities), dtype=bool)

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
        """Train with a softmax over all entities; see `NeuralModel.fit`. Other known answers are left out of it."""
        if not len(examples.positives):
            raise InputError("train has no triples; at least one is required")
        self.accepted = self._accepted_positives(examples)
        self._connect()
        self.mean_log_count = self.edges.mean_log_count
        if not warm:
            for name, value in self._initial_parameters(torch.Generator().manual_seed(seed)).items():
                self.parameters[name].copy_(value)
        self.rescale(1.0, 0.0)
        fingerprint = self._fingerprint(examples, seed, warm, validate is not None) if checkpoint else ""
        stepper = self._stepper(examples, seed)
        train(self.parameters, stepper, self.settings, fingerprint, progress, validate, checkpoint)

    def _accepted_positives(self, examples: Examples) -> IntArray:
        """Return the positives that become edges although they are not observed."""
        if self.settings.message_graph == "observed":
            return as_triples([])
        probable = examples.positives[examples.weights >= MIN_ACCEPTED_WEIGHT]
        return probable[~self.graph.observed.contains(probable)]

    @property
    def hide(self) -> Hide:
        """What is hidden from a training query."""
        return choose_hiding(self.graph) if self.settings.hide == "auto" else self.settings.hide

    def _stepper(self, examples: Examples, seed: int) -> PathSteps:
        s = self.settings
        hide = self.hide
        log.info("training queries do not see %s", HIDDEN_FACTS[hide])
        batches = Batches(examples, len(self.graph.entities), self.n_relations, s.batch, seed, self.device)

        def score(parameters: Tensors, batch: Batch) -> Tensor:
            queries = PathQueries(batch.known, batch.relation, batch.answer, hide, batch.seeds)
            return self.scorer(parameters, queries, self.mean_log_count)

        return PathSteps(self.parameters, score, batches, s, PART_QUERIES if self.backend == "compiled" else 0)

    @torch.no_grad()
    def _score_chunks(
        self, known: IntArray, relations: IntArray, answers: IntArray | None, use: Callable[[int, Tensor], None]
    ) -> None:
        """Score all entities as answers of each query, and call use(start, scores) for each chunk of queries.

        If `answers` is given, the fact of each query and its answer is hidden.
        """
        size = max(MAX_CHUNK_QUERIES, PART_QUERIES * torch.get_num_threads())
        size = max(1, min(size, MAX_CHUNK_BYTES[self.device.type] // self.bytes_per_query))
        hide: Hide = "nothing" if answers is None else "edge"
        for start in self._starts(len(known), size):
            asked = (known, relations, known if answers is None else answers)
            known_part, relation, answer = (self._on_device(x[start : start + size]) for x in asked)
            queries = PathQueries(known_part, relation, answer, hide)
            use(start, self.slope * self._scores(queries) + self.offset)

    def _scores(self, queries: PathQueries) -> Tensor:
        @torch.no_grad()  # threads do not inherit it
        def score(part: PathQueries) -> Tensor:
            return self.scorer(self.parameters, part, self.mean_log_count)

        if self.backend != "compiled":
            return score(queries)
        with single_threaded() as map_in_parallel:
            return torch.cat(list(map_in_parallel(score, queries.split(PART_QUERIES))))

    def _starts(self, total: int, size: int) -> Iterator[int]:
        """Yield the start of each chunk. After a few chunks, log how long the others take, if it is long."""
        started = 0.0
        for number, start in enumerate(range(0, total, size)):
            if number in (1, 1 + TIMED_CHUNKS) and self.device.type == "cuda":
                torch.cuda.synchronize()
            if number == 1:
                started = time.perf_counter()
            elif number == 1 + TIMED_CHUNKS:
                seconds = (time.perf_counter() - started) * (total - start) / (TIMED_CHUNKS * size)
                if seconds > LONG_SECONDS:
                    log.warning("scoring %s queries takes about %.0f seconds", f"{total:,}", seconds)
            yield start

    def score(self, triples: IntArray, hide_self: bool = False) -> Tensor:  # noqa: ARG002
        """Score triples, grouped by query. A fact is always scored as if it were not in the graph.

        In training, the model never sees the fact that it is asked for. It would take the fact's edge for a sign that
        the fact is not the answer.
        """
        is_fact = self.facts.contains(triples)
        scores = torch.zeros(len(triples), device=self.device)
        for mask, scorer in ((~is_fact, self._score_grouped), (is_fact, self._score_facts)):
            scores[self._on_device(np.flatnonzero(mask))] = scorer(triples[mask])
        return scores

    def _score_grouped(self, triples: IntArray) -> Tensor:
        """Score triples in both directions. Each distinct query is computed once."""
        scores = torch.zeros(len(triples), device=self.device)
        for side in SIDES:
            known, answer = (HEAD, TAIL) if side == "tail" else (TAIL, HEAD)
            asked = np.stack([triples[:, known], self._directed(triples[:, RELATION], side)], 1)
            queries, query_of_triple = np.unique(asked, axis=0, return_inverse=True)
            order = np.argsort(query_of_triple.reshape(-1), kind="stable")
            ordered = query_of_triple.reshape(-1)[order]

            def add(start: int, part: Tensor, order: IntArray = order, ordered: IntArray = ordered) -> None:
                first, last = np.searchsorted(ordered, [start, start + len(part)])
                rows = order[first:last]
                row, column = ordered[first:last] - start, triples[rows, answer]  # noqa: B023
                scores[self._on_device(rows)] += part[self._on_device(row), self._on_device(column)] / 2

            self._score_chunks(queries[:, 0], queries[:, 1], None, add)
        return scores

    def _score_facts(self, triples: IntArray) -> Tensor:
        """Score facts in both directions, each as if it were not in the graph."""
        heads, relations, tails = triples.T
        forwards = self._score_hidden(heads, self._directed(relations, "tail"), tails)
        return (forwards + self._score_hidden(tails, self._directed(relations, "head"), heads)) / 2

    def _score_hidden(self, known: IntArray, relations: IntArray, answers: IntArray) -> Tensor:
        """Score the answer of each query as if the fact were not in the graph."""
        scores = torch.zeros(len(known), device=self.device)

        def keep(start: int, part: Tensor) -> None:
            column = self._on_device(answers[start : start + len(part)])
            scores[start : start + len(part)] = part.gather(1, column[:, None])[:, 0]

        self._score_chunks(known, relations, answers, keep)
        return scores

    def score_all(self, known: IntArray, relations: IntArray, side: Side) -> Tensor:
        """Score all entities as answers of each query, only in the direction of the query.

        The scores of observed facts have no meaning (see `score`). A ranking filters them.
        """
        scores = torch.empty(len(known), len(self.graph.entities), device=self.device)
        directed = self._directed(relations, side)

        def keep(start: int, part: Tensor) -> None:
            scores[start : start + len(part)] = part

        self._score_chunks(known, directed, None, keep)
        row, answers, _ = self.new_answers[side].lookup(known, relations)
        scores[self._on_device(row), self._on_device(answers)] = self._score_hidden(known[row], directed[row], answers)
        return scores

    def score_answers(
        self, known: IntArray, relations: IntArray, side: Side, candidates: IntArray | None = None
    ) -> Tensor:
        """Score all entities, or the candidates, as answers of each query, as the mean of both directions.

        In the other direction, each candidate is a query, so this needs a query per relation and candidate. Each fact
        also needs two queries of its own.
        """
        every = np.arange(len(self.graph.entities)) if candidates is None else candidates
        scores = self.score_all(known, relations, side)[:, self._on_device(every)]
        other: Side = "tail" if side == "head" else "head"
        for relation in np.unique(relations):
            rows = np.flatnonzero(relations == relation)
            row, answers = self._on_device(rows), self._on_device(known[rows])

            def add(start: int, part: Tensor, row: Tensor = row, answers: Tensor = answers) -> None:
                scores[row, start : start + len(part)] += part[:, answers].T

            self._score_chunks(every, self._directed(np.full(len(every), relation), other), None, add)
        scores = scores / 2
        for i in range(len(known)):
            h, t = (known[i], every) if side == "tail" else (every, known[i])
            triples = np.stack(np.broadcast_arrays(h, relations[i], t), 1)
            column = np.flatnonzero(self.facts.contains(triples))
            scores[i, self._on_device(column)] = self._score_facts(triples[column])
        return scores

    def _directed(self, relations: IntArray, side: Side) -> IntArray:
        """Return the relations of queries: the inverse ones if the head is missing."""
        return relations + self.n_relations if side == "head" else relations

    def _on_device(self, array: IntArray) -> Tensor:
        return on_device(array, self.device)

    def rescale(self, slope: float, offset: float) -> None:
        """Replace every score by slope · score + offset until the next fit."""
        if not (slope > 0 and np.isfinite([slope, offset]).all()):
            raise ValueError(f"slope must be positive, slope and offset finite; got slope {slope} and offset {offset}")
        self.slope, self.offset = slope, offset

    def tables(self) -> Mapping[str, ParameterTable]:
        """Return the vectors of relations and their inverses, the other parameters and the scale."""
        arrays = {name: value.cpu().numpy() for name, value in self.parameters.items()}
        relations, n = arrays.pop("relation"), self.n_relations
        tables = {
            "relations": ParameterTable(relations[:n], "relation"),
            "inverse_relations": ParameterTable(relations[n:], "relation"),
        }
        others = {name: ParameterTable(value) for name, value in arrays.items()}
        return tables | others | {"platt": ParameterTable(np.array([self.slope, self.offset]))}

    def reasons(self, triple: IntArray) -> Reasons:
        """Return the paths that carry a triple's score; see `PathExplainer.paths`. They are computed on the CPU."""
        hide: Hide = "edge" if self.facts.contains(triple[None, :])[0] else "nothing"
        return Reasons(paths=self._explainer().paths(triple, hide, self.graph.observed, MAX_PATHS))

    def _explainer(self) -> PathExplainer:
        parameters = {name: value.cpu() for name, value in self.parameters.items()}
        return PathExplainer(self._compiled_scorer(), parameters, self.mean_log_count, self.slope)

    def propose_rules(self, facts: IntArray, progress: Progress = no_progress) -> Mapping[Rule, float]:
        """Return rules with the relations of the paths behind the scores of facts, and the sum of their shares.

        A fact is hidden from its own paths, as in training. They are computed on the CPU.
        """
        names = self.graph.relations.names
        shares = Counter[Rule]()
        with progress("paths that propose rules, facts", len(facts)) as advance:
            chains = self._explainer().chains(facts, self.hide)
            for relation, chains_of_fact in zip(facts[:, RELATION].tolist(), chains, strict=True):
                for chain, share in chains_of_fact.items():
                    rule = chain_rule([Step(names[step], forward) for step, forward in chain], names[relation])
                    shares[rule] += share
                advance()
        return shares

    def save(self, path: Path) -> None:
        """Write the parameters, the scale and the accepted edges as safetensors."""
        others = {
            "platt": torch.tensor([self.slope, self.offset], dtype=torch.float64),
            "mean_log_count": torch.tensor([self.mean_log_count], dtype=torch.float64),
            "accepted": torch.from_numpy(self.accepted.copy()),
        }
        write_parameters(path, self.parameters, others)

    def load(self, path: Path) -> None:
        """Read the output of `save`. Raise InputError if it is the file of another model."""
        others = read_parameters(path, self.parameters, ("platt", "mean_log_count", "accepted"))
        accepted = others["accepted"].numpy()
        n = len(self.graph.entities)
        if accepted.shape != (len(accepted), 3) or (accepted < 0).any() or (accepted >= (n, self.n_relations, n)).any():
            raise InputError(f"{path}: the accepted triples do not belong to the graph")
        self.accepted = accepted
        self._connect()
        self.mean_log_count = others["mean_log_count"].item()
        self.rescale(*others["platt"].tolist())

    def _fingerprint(self, examples: Examples, seed: int, warm: bool, validated: bool) -> str:
        """Return a digest of everything that determines a training; a checkpoint must have the same digest."""
        digest = hashlib.sha256(repr((self.settings, self.hide, seed, warm, validated, self.backend)).encode())
        start = [p.cpu().numpy() for p in self.parameters.values()] if warm else []
        for array in (examples.positives, examples.weights, examples.negatives, self.graph.train, *start):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()
