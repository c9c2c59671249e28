"""The plan of a time budget: how many walks and paths mining can afford, measured on a small part of the work."""

import time
from dataclasses import dataclass, replace

import numpy as np

from plogicnet import config
from plogicnet.graph import KnowledgeGraph
from plogicnet.grounding.engine import Resources
from plogicnet.grounding.native.adjacency import Adjacency
from plogicnet.grounding.native.bounds import count_paths
from plogicnet.grounding.native.chains import MAX_PATHS, count_three_step_paths
from plogicnet.grounding.native.sampling import (
    Candidates,
    StagedCounter,
    pair_limit,
    possible_walks,
    propose,
)
from plogicnet.support.progress import no_progress

PROPOSING_SHARE, COUNTING_SHARE = 0.35, 0.3
"""The shares of a budget for the two main parts. The rest is for other rules and for measuring errors."""
MEASURED_SHARE = 0.02
"""The share of a budget after which a measurement ends."""
PATHS_PER_SECOND = 1e7
"""The number of paths that are counted per second, if the measured walks find too few candidates to measure it."""
EXHAUSTIVE_FACTOR = 4.0
"""Exhaustive mining reads both ends of each fact, with and without the fact itself."""


def plan_sampling(graph: KnowledgeGraph, settings: config.Rules, resources: Resources) -> dict[str, int]:
    """Return `sampled_walks` and `counted_paths` that fit `rules.budget_s`, or zeros if no sampling is needed."""
    if settings.max_length < 3:
        return {}
    begin = time.perf_counter()
    adjacency = Adjacency.of(graph.observed, len(graph.relations))
    work = MeasuredWork(adjacency, settings, replace(resources, progress=no_progress))
    all_walks, walks = possible_walks(adjacency), max(2 * adjacency.n_relations, 1)
    work.count(work.propose(walks)[0], 1)  # compiles, or loads compiled code
    candidates, drawn, seconds = work.propose(walks)
    while seconds < MEASURED_SHARE * settings.budget_s and drawn < all_walks:
        walks *= 4
        candidates, drawn, seconds = work.propose(walks)
    fits = EXHAUSTIVE_FACTOR * seconds / drawn * all_walks <= settings.budget_s
    if fits and count_three_step_paths(adjacency) <= MAX_PATHS:
        return {"sampled_walks": 0, "counted_paths": 0}
    size, paths, seconds_of_paths = 256, PATHS_PER_SECOND, 1.0
    while size < 4 * len(candidates):
        paths, seconds_of_paths = work.count(candidates, size)
        size *= 4
        if seconds_of_paths >= MEASURED_SHARE * settings.budget_s:
            break
    left = max(settings.budget_s - (time.perf_counter() - begin), settings.budget_s / 10)
    return {
        "sampled_walks": _rounded(min(all_walks, PROPOSING_SHARE * left * drawn / seconds)),
        "counted_paths": _rounded(COUNTING_SHARE * left * paths / max(seconds_of_paths, 1e-6)),
    }


@dataclass(frozen=True)
class MeasuredWork:
    """Small parts of the work, with their times in seconds."""

    adjacency: Adjacency
    settings: config.Rules
    resources: Resources

    def propose(self, walks: int) -> tuple[Candidates, int, float]:
        """Return the candidates of about so many walks, the number of walks, and the seconds."""
        start = time.perf_counter()
        candidates, drawn = propose(self.adjacency, replace(self.settings, sampled_walks=walks), self.resources)
        return candidates, drawn.walks, time.perf_counter() - start

    def count(self, candidates: Candidates, size: int) -> tuple[float, float]:
        """Count about `size` candidates from an eighth of the entities. Return the number of paths, and the seconds."""
        limit = pair_limit(self.adjacency, self.settings)
        paths, bound = count_paths(self.adjacency, candidates.steps, self.resources)
        possible = np.flatnonzero(bound <= limit[candidates.relation])
        rows = possible[:: max(len(possible) // size, 1)]
        counter = StagedCounter(self.adjacency, self.settings, self.resources, limit)
        entities = np.random.default_rng(self.resources.seed).permutation(self.adjacency.n_entities)
        entities = entities[: len(entities) // 8 + 1]
        start = time.perf_counter()
        counter.walk(candidates.take(rows), entities)
        seconds = time.perf_counter() - start
        _, first = np.unique(candidates.steps[rows], axis=0, return_index=True)
        return float(paths[rows][first].sum()) * len(entities) / self.adjacency.n_entities, seconds


def _rounded(number: float) -> int:
    """Round to two digits, to be read and repeated easily.

    Example:
        >>> _rounded(123_456.7)
        120000
    """
    return max(int(float(f"{number:.1e}")), 1)
