"""The paths behind a score of the path model, each with its effect on the score."""

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from plogicnet.graph import HEAD, BoolArray, Hide, IntArray, TripleSet, as_triples
from plogicnet.neural.checkpoint import Tensors
from plogicnet.neural.device import single_threaded
from plogicnet.neural.paths.compiled.scorer import CompiledScorer, Messages
from plogicnet.neural.paths.edges import PathQueries
from plogicnet.neural.paths.network import score_states
from plogicnet.neural.protocol import ScoredPath

MAX_VISITS = 400
"""Maximum number of steps of the search for paths."""
MAX_MESSAGES = 20
"""Maximum number of messages to an entity that the search follows: those that contribute most."""

TINY = np.float32(1e-30)

Step = tuple[int, int, int]
"""A fact (head, relation, tail)."""
Path = tuple[Step, ...]
Chain = tuple[tuple[int, bool], ...]
"""The relation of each step of a path, and whether the step leads from head to tail."""


@dataclass(frozen=True)
class PathExplainer:
    """Finds the paths behind scores.

    Attributes:
        scorer: the scorer of the graph.
        parameters: the parameters, on the CPU.
        mean_log_count: see `LayerInputs`.
        slope: the factor of scores; see `NeuralModel.rescale`.
    """

    scorer: CompiledScorer
    parameters: Tensors
    mean_log_count: float
    slope: float

    def paths(self, triple: IntArray, hide: Hide, known: TripleSet, n_paths: int) -> tuple[ScoredPath, ...]:
        """Return the paths from head to tail that carry the score of a triple, at most `n_paths`.

        The search follows the gradient of the score back from the answer: each message to an entity gets a share of the
        entity's, in proportion to its contribution, which is the product of the message and its gradient. The paths
        with the largest shares are candidates.

        The share of a path that is returned is exact; see `ScoredPath`. The path that alone has the largest effect
        comes first. Candidates that contain a triple that is not `known` are left out, and so are those whose removal
        does not lower the score.
        """
        with single_threaded() as map_in_parallel:
            directions = [_query(triple, is_forward, self.scorer.n_relations, hide) for is_forward in (True, False)]
            flow = Counter[Path]()
            for found in map_in_parallel(self._flow, directions):
                flow.update(found)
            ranked = (path for path, _ in flow.most_common())
            candidates = list(islice((path for path in ranked if known.contains(as_triples(path)).all()), n_paths))

            def score_without(removed: frozenset[Step]) -> float:
                scorer = self.scorer.without(as_triples(sorted(removed))) if removed else self.scorer
                scores = [self._score(scorer, query) for query in directions]
                return self.slope * sum(scores) / len(scores)

            score, *alone = map_in_parallel(score_without, [frozenset[Step](), *map(frozenset, candidates)])
            supporting = sorted((value, path) for value, path in zip(alone, candidates, strict=True) if value < score)
            paths = [path for _, path in supporting]
            removed = [frozenset(fact for path in paths[:n] for fact in path) for n in range(2, len(paths) + 1)]
            scores = [score, *(value for value, _ in supporting[:1]), *map_in_parallel(score_without, removed)]
        shares = [before - after for before, after in pairwise(scores)]
        return tuple(ScoredPath(as_triples(path), share) for path, share in zip(paths, shares, strict=True))

    def chains(self, facts: IntArray, hide: Hide) -> Iterator[Counter[Chain]]:
        """Yield for each fact the steps of the paths from head to tail that carry its score, with their shares.

        The shares of both directions are added.
        """

        def work(fact: IntArray) -> Counter[Chain]:
            found = Counter[Chain]()
            for is_forward in (True, False):
                for path, share in self._flow(_query(fact, is_forward, self.scorer.n_relations, hide)).items():
                    found[_chain(path, int(fact[HEAD]))] += share
            return found

        with single_threaded() as map_in_parallel:
            yield from map_in_parallel(work, facts)

    @torch.no_grad()
    def _score(self, scorer: CompiledScorer, query: PathQueries) -> float:
        """Return the score of the answer of a query."""
        *_, rows = scorer.layers(self.parameters, query, self.mean_log_count, self._needed(query))
        states = rows.states[np.flatnonzero(rows.entity == int(query.answer))]
        state = states if len(states) else torch.zeros_like(rows.states[:1])
        return float(score_states(self.parameters, state, query.relation))

    def _needed(self, query: PathQueries) -> BoolArray | None:
        """Return which entities each layer must compute, for the answer's final state. None: all.

        A frontier depends on all states.
        """
        if self.scorer.frontier:
            return None
        starts, source, _, _ = self.scorer.graph
        needed = np.zeros((len(self.parameters["bias"]), self.scorer.n_entities), dtype=bool)
        needed[-1, int(query.answer)] = True
        for layer in range(len(needed) - 1, 0, -1):
            needed[layer - 1] = needed[layer]
            if needed[layer].all():
                continue
            needed[layer - 1, source[np.repeat(needed[layer], np.diff(starts))]] = True
        return needed

    @torch.enable_grad()
    def _flow(self, query: PathQueries) -> Counter[Path]:
        """Return paths, as facts from head to tail, with their shares of the gradient's flow."""
        leaf = self.parameters["relation"].clone().requires_grad_()
        parameters = self.parameters | {"relation": leaf}
        layers = list(self.scorer.layers(parameters, query, self.mean_log_count, self._needed(query), explained=True))
        last = layers[-1]
        (target,) = np.flatnonzero(last.entity == int(query.answer)).tolist() or [0]
        if target == 0:  # the answer is not reached, or it is the known entity
            return Counter()
        score_states(parameters, last.states[[target]], query.relation).backward()  # type: ignore[no-untyped-call]
        steps = [rows.messages for rows in layers if rows.messages is not None]
        n_relations, is_forward = self.scorer.n_relations, int(query.relation) < self.scorer.n_relations
        found = Counter[Path]()
        for share, messages in _search(steps, target):
            entities = [(int(last.entity[u]), r, int(last.entity[v])) for u, r, v in messages]
            facts = [(u, r, v) if r < n_relations else (v, r - n_relations, u) for u, r, v in entities]
            path = tuple(facts if is_forward else reversed(facts))
            found[path] += share  # type: ignore[assignment]
        return found


def _chain(path: Path, start: int) -> Chain:
    """Return the steps of a path.

    Example:
        >>> _chain(((5, 0, 6), (7, 1, 6)), start=5)
        ((0, True), (1, False))
    """
    steps = []
    for head, relation, tail in path:
        steps.append((relation, head == start))
        start = tail if head == start else head
    return tuple(steps)


def _query(triple: IntArray, is_forward: bool, n_relations: int, hide: Hide) -> PathQueries:
    """Return the query for the tail, or the one for the head."""
    head, relation, tail = triple.tolist()
    asked = (head, relation, tail) if is_forward else (tail, relation + n_relations, head)
    known, directed, answer = (torch.tensor([number]) for number in asked)
    return PathQueries(known, directed, answer, hide)


def _search(layers: list[Messages], target: int) -> Iterator[tuple[float, list[Step]]]:
    """Yield paths without repeated entities from row 0 to a row, with their shares, largest share first.

    A path is a list of (source row, relation, destination row). The rows of an entity are the same in all layers.
    """
    heap: list[tuple[float, int, int, int, list[Step]]] = [(-1.0, 0, len(layers), target, [])]
    number = 0  # breaks ties in the heap
    for _ in range(MAX_VISITS):
        if not heap:
            return
        negative_share, _, layer, row, path = heapq.heappop(heap)
        if row == 0:
            yield -negative_share, path
            continue
        if layer == 0:
            continue
        visited = {row, *(v for _, _, v in path)}
        options = _contributions(layers[layer - 1], row)
        total = sum(value for value, _ in options)
        for value, step in options:
            if step is not None and step[0] in visited:
                continue
            number += 1
            extended = path if step is None else [step, *path]
            source = row if step is None else step[0]
            heapq.heappush(heap, (negative_share * value / total, number, layer - 1, source, extended))


def _contributions(messages: Messages, row: int) -> list[tuple[float, Step | None]]:
    """Return the contributions to a row that are followed: those of messages, and that of the old state, with None.

    These are the positive ones. If none is positive, all are followed, in proportion to their sizes: contributions are
    only first-order estimates, so the only path to an entity can have a negative one.
    """
    start, end = messages.start[row : row + 2].tolist()
    contribution: NDArray[np.float32] = messages.contribution[start:end]  # type: ignore[index]
    has_old_state = row < messages.first_source_row[-1]
    stay = float(messages.stay[row]) if has_old_state else 0.0  # type: ignore[index]
    if stay <= 0 and not (contribution > 0).any():
        contribution, stay = np.abs(contribution) + TINY, abs(stay)
    best = np.argsort(-contribution, kind="stable")[:MAX_MESSAGES]
    best = best[contribution[best] > 0]
    found: list[tuple[float, Step | None]] = [
        (float(contribution[j]), (int(messages.source_row[start + j]), int(messages.relation[start + j]), row))
        for j in best.tolist()
    ]
    return [*found, (stay, None)] if stay > 0 else found
