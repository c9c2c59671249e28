"""An embedding among more entities than it was trained with."""

from pathlib import Path

import numpy as np
import torch

from plogicnet.graph import HEAD, TAIL, BoolArray, IntArray, Side
from plogicnet.kge.protocol import Checkpoint, Embedding, Examples, Validate
from plogicnet.progress import Progress, silent

NO_VECTOR = float("nan")
"""The score of a triple with an entity that has no vector: it says neither yes nor no."""


class Widened:
    """An `Embedding` whose last entities have no vector: the scores of triples with one of them are NaN.

    It is for asking only; what would change the vectors is refused.

    Example:
        >>> from plogicnet.config import KGE
        >>> from plogicnet.kge.vector_model import VectorModel
        >>> wide = Widened(VectorModel(3, 1, KGE(dim=4)), known=3, entities=5)
        >>> wide.score(np.array([[0, 0, 1], [0, 0, 4]])).isnan().tolist()
        [False, True]
    """

    def __init__(self, own: Embedding, known: int, entities: int) -> None:
        self.own, self.known, self.entities = own, known, entities

    def lacks(self, entities: IntArray) -> BoolArray:
        """Which of some entities have no vector."""
        return np.asarray(entities >= self.known)

    def score(self, triples: IntArray) -> torch.Tensor:
        """The scores of given triples."""
        inside = ~self.lacks(triples[:, [HEAD, TAIL]]).any(axis=1)
        scores = self.own.score(triples[inside])
        wide = scores.new_full((len(triples),), NO_VECTOR)
        wide[torch.from_numpy(inside).to(wide.device)] = scores
        return wide

    def score_all(self, known: IntArray, relations: IntArray, side: Side) -> torch.Tensor:
        """The scores of all entities for each query."""
        scores = self.own.score_all(np.where(self.lacks(known), 0, known), relations, side)
        return self._wide(scores, known, np.arange(self.entities))

    def score_answers(
        self, known: IntArray, relations: IntArray, side: Side, candidates: IntArray | None = None
    ) -> torch.Tensor:
        """What `score` says of the whole triples, for all entities or some."""
        asked = np.arange(self.entities) if candidates is None else candidates
        own = asked[~self.lacks(asked)]
        return self._wide(
            self.own.score_answers(np.where(self.lacks(known), 0, known), relations, side, own), known, asked
        )

    def _wide(self, scores: torch.Tensor, known: IntArray, asked: IntArray) -> torch.Tensor:
        """The scores of those that have a vector, among all that are asked for."""
        wide = scores.new_full((len(known), len(asked)), NO_VECTOR)
        wide[:, torch.from_numpy(~self.lacks(asked)).to(wide.device)] = scores
        wide[torch.from_numpy(self.lacks(known)).to(wide.device)] = NO_VECTOR
        return wide

    def vectors(self) -> torch.Tensor | None:
        """The vectors of the entities that have one."""
        return self.own.vectors()

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
        """Refused."""
        raise NotImplementedError("train the embedding itself")

    def rescale(self, slope: float, offset: float) -> None:
        """Refused."""
        raise NotImplementedError("rescale the embedding itself")

    def save(self, path: Path) -> None:
        """Refused."""
        raise NotImplementedError("save the embedding itself")

    def load(self, path: Path) -> None:
        """Refused."""
        raise NotImplementedError("load the embedding itself")
