"""A small graph, quick settings, and a neural model with scores from a table."""

import itertools
from pathlib import Path

import numpy as np
import torch

from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.graph import BoolArray, FloatArray, IntArray, KnowledgeGraph, Side
from plogicnet.neural.protocol import Checkpoint, Examples, ParameterTable, Reasons, Validate
from plogicnet.support.progress import Progress, no_progress

SMALL: dict[str, object] = {
    "device": "cpu",
    "threads": 1,
    "neural.vectors.dim": 8,
    "neural.vectors.gamma": 6.0,
    "neural.steps": 20,
    "neural.batch": 32,
    "neural.vectors.negatives": 8,
    "neural.vectors.share_negatives": 8,
    "neural.learning_rate": 0.05,
}


def family_rows() -> list[tuple[str, str, str]]:
    """Return 120 facts about six families of five in random order; rules conclude most of them."""
    rows = []
    for f in range(6):
        man, woman, *children = (f"{role}{f}" for role in ("man", "woman", "a", "b", "c"))
        rows += [(man, "husband", woman), (woman, "wife", man)]
        for child in children:
            rows += [(man, "parent", child), (woman, "parent", child)]
            rows += [(child, "child", man), (child, "child", woman)]
        rows += [(a, "sibling", b) for a, b in itertools.permutations(children, 2)]
    return [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]


def small_graph() -> KnowledgeGraph:
    rows = family_rows()
    return KnowledgeGraph.from_names(rows[:86], rows[86:102], rows[102:], "small")


def write_small_graph(folder: Path) -> Path:
    """Write the small graph as text files for commands."""
    graph = small_graph()
    for split in ("train", "valid", "test"):
        lines = ("\t".join(graph.names(t)) + "\n" for t in graph.split(split))
        (folder / f"{split}.txt").write_text("".join(lines))
    return folder


def fitted(values: dict[str, object] | None = None, graph: KnowledgeGraph | None = None) -> PLogicNet:
    return PLogicNet(Config().with_values(SMALL | (values or {}))).fit(graph or small_graph())


class TableModel:
    """A neural model with scores from a table (relation, head, tail)."""

    device = torch.device("cpu")
    is_logit = True
    is_pairwise = True

    def __init__(self, table: FloatArray) -> None:
        self.table = torch.from_numpy(table.astype(np.float32))

    @property
    def bytes_per_query(self) -> int:
        return 4 * self.table.shape[1]

    @property
    def unscorable(self) -> BoolArray:
        return np.zeros(self.table.shape[1], dtype=bool)

    def bind(self, graph: KnowledgeGraph) -> "TableModel":
        raise NotImplementedError

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
        raise NotImplementedError

    def rescale(self, slope: float, offset: float) -> None:
        raise NotImplementedError

    def score(self, triples: IntArray, hide_self: bool = False) -> torch.Tensor:  # noqa: ARG002
        heads, relations, tails = torch.from_numpy(triples.copy()).unbind(1)
        return self.table[relations, heads, tails]

    def score_all(self, known: IntArray, relations: IntArray, side: Side) -> torch.Tensor:
        r, e = torch.from_numpy(relations.copy()), torch.from_numpy(known.copy())
        return self.table[r, e] if side == "tail" else self.table[r, :, e]

    def score_answers(
        self, known: IntArray, relations: IntArray, side: Side, candidates: IntArray | None = None
    ) -> torch.Tensor:
        scores = self.score_all(known, relations, side)
        return scores if candidates is None else scores[:, torch.from_numpy(candidates.copy())]

    def tables(self) -> dict[str, ParameterTable]:
        return {"scores": ParameterTable(self.table.numpy())}

    def reasons(self, triple: IntArray) -> Reasons:  # noqa: ARG002
        return Reasons()

    def save(self, path: Path) -> None:
        raise NotImplementedError

    def load(self, path: Path) -> None:
        raise NotImplementedError
