"""Filtered ranking of test triples by any number of systems at once, and the figures that come of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from plogicnet.evaluation.systems import Keys, System, keys, prepare
from plogicnet.graph import CATEGORIES, HEAD, RELATION, TAIL, FloatArray, IntArray, KnowledgeGraph, Side
from plogicnet.kge import Embedding
from plogicnet.mln import RuleScores
from plogicnet.progress import Progress, silent

SIDES: tuple[Side, Side] = ("head", "tail")
BATCH_MEMORY_MB = 512
BYTES_PER_CANDIDATE = 80
"""Scores, evidence, masks, and two keys of one system with their comparisons."""


@dataclass(frozen=True)
class Ranks:
    """The ranks of each triple's head (column 0) and tail (column 1): competitors better, and competitors level.

    Example:
        >>> Ranks(np.array([[0, 2]]), np.array([[0, 1]])).realistic
        array([[1. , 3.5]])
    """

    better: IntArray
    level: IntArray

    @property
    def optimistic(self) -> FloatArray:
        """The truth stands first among its equals."""
        return np.asarray(self.better + 1.0)

    @property
    def pessimistic(self) -> FloatArray:
        """The truth stands last among its equals."""
        return np.asarray(self.better + self.level + 1.0)

    @property
    def realistic(self) -> FloatArray:
        """The mean of both, the headline."""
        return np.asarray(self.better + self.level / 2 + 1.0)


def filter_splits(split: str) -> list[str]:
    """What is filtered: train and valid on valid, all three on test.

    Example:
        >>> filter_splits("valid")
        ['train', 'valid']
    """
    return ["train", "valid", "test"] if split == "test" else ["train", "valid"]


def rank(
    graph: KnowledgeGraph,
    split: str,
    embedding: Embedding | None,
    rules: RuleScores,
    systems: Mapping[str, System],
    batch_memory_mb: int = 0,
    progress: Progress = silent,
) -> dict[str, Ranks]:
    """Ranks the head and the tail of every triple of a split against all entities, for each system.

    Example:
        >>> rank(graph, "test", embedding, rules, {"pLogicNet": System()})  # doctest: +SKIP
    """
    triples = graph.split(split)
    better = {name: np.zeros((len(triples), 2), dtype=np.int64) for name in systems}
    level = {name: np.zeros((len(triples), 2), dtype=np.int64) for name in systems}
    budget = (batch_memory_mb or BATCH_MEMORY_MB) * 2**20
    size = max(1, budget // (BYTES_PER_CANDIDATE * len(graph.entities)))
    with progress(f"ranking {split}, queries", 2 * len(triples)) as advance:
        for column, side in enumerate(SIDES):
            answers = graph.known(filter_splits(split), side)
            known_column, asked_column = (TAIL, HEAD) if side == "head" else (HEAD, TAIL)
            for start in range(0, len(triples), size):
                part = triples[start : start + size]
                known, relations, truth = part[:, known_column], part[:, RELATION], part[:, asked_column]
                owners, others, _ = answers.lookup(known, relations)
                rivals = others != truth[owners]  # the truth itself competes
                queries = prepare(embedding, rules, known, relations, side, (owners[rivals], others[rivals]))
                for name, system in systems.items():
                    counts = _count(keys(system, queries), truth, queries.known)
                    better[name][start : start + size, column] = counts[0]
                    level[name][start : start + size, column] = counts[1]
                advance(len(part))
    return {name: Ranks(better[name], level[name]) for name in systems}


def _count(by: Keys, truth: IntArray, known: torch.Tensor) -> tuple[IntArray, IntArray]:
    """How many unknown candidates stand above the truth, and how many level with it.

    The truth's own keys are read from the same matrix as its competitors', so that no rounding tells them apart.
    """
    rows = torch.arange(len(truth), device=known.device)
    at = torch.from_numpy(truth.copy()).to(known.device)
    first, second = by.first[rows, at][:, None], by.second[rows, at][:, None]
    same = by.first == first
    better = ((by.first > first) | (same & (by.second > second))) & ~known
    level = same & (by.second == second) & ~known
    return better.sum(1).cpu().numpy(), level.sum(1).cpu().numpy() - 1  # the truth is level with itself


def summary(ranks: FloatArray) -> dict[str, float]:
    """MR, MRR and Hits@1/3/10 of some ranks; zeros for none.

    Example:
        >>> summary(np.array([1.0, 4.0]))["mrr"]
        0.625
    """
    if not ranks.size:
        return dict.fromkeys(("mr", "mrr", "hits_at_1", "hits_at_3", "hits_at_10"), 0.0)
    figures = {"mr": float(ranks.mean()), "mrr": float((1.0 / ranks).mean())}
    return figures | {f"hits_at_{k}": float((ranks <= k).mean()) for k in (1, 3, 10)}


def report(graph: KnowledgeGraph, split: str, ranks: Ranks) -> dict[str, object]:
    """All figures of one system: overall under three tie policies, by side, relation and category.

    Example:
        >>> report(graph, "test", ranks)["mrr"]  # doctest: +SKIP
    """
    realistic, relations = ranks.realistic, graph.split(split)[:, RELATION]
    category = np.array([CATEGORIES.index(c) for c in graph.relation_categories])[relations]

    def of(rows: Iterable[object]) -> dict[str, float]:
        return summary(realistic[np.asarray(rows)])

    return {
        **summary(realistic),
        "optimistic": summary(ranks.optimistic),
        "pessimistic": summary(ranks.pessimistic),
        "by_side": {side: summary(realistic[:, column]) for column, side in enumerate(SIDES)},
        "by_relation": {graph.relations.names[r]: of(relations == r) for r in np.unique(relations)},
        "by_category": {name: of(category == i) for i, name in enumerate(CATEGORIES) if (category == i).any()},
    }
