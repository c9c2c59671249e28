"""Batches of training triples as queries.

Every batch depends only on the seed and the step number. A resumed training therefore draws the same batches as an
uninterrupted one.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from plogicnet.graph import FloatArray, IntArray, Side
from plogicnet.neural.protocol import Examples

STEP_SIDES: tuple[Side, Side] = ("tail", "head")
"""The missing side of the queries at even steps, and at odd steps."""


@dataclass(frozen=True)
class Queries:
    """Triples as queries of one side, with their answers and weights. All tensors have the same shape."""

    side: Side
    known: Tensor
    relation: Tensor
    answer: Tensor
    weight: Tensor


class ShuffledEpochs:
    """Triples in endless shuffled epochs, with tail and head queries in turn.

    Example:
        >>> epochs = ShuffledEpochs(np.array([[0, 0, 1], [1, 0, 2]]), np.ones(2), 1, seed=0, device=torch.device("cpu"))
        >>> epochs.queries(0).side, epochs.queries(1).side
        ('tail', 'head')
    """

    def __init__(
        self, triples: IntArray, weights: FloatArray, size: int, seed: int, device: torch.device, stream: int = 2
    ) -> None:
        self.size, self.seed, self.device, self.stream = min(size, len(triples)), seed, device, stream
        self.triples = torch.from_numpy(triples.copy()).to(device)
        self.weights = torch.from_numpy(weights.astype(np.float32)).to(device)
        self._orders: dict[Side, tuple[int, Tensor]] = {}

    def queries(self, step: int, n_chunks: int = 0) -> Queries:
        """Return the queries of a step. If `n_chunks` is not 0, split them into chunks of equal size.

        The last chunk is padded with rows of weight zero.
        """
        side, rows = STEP_SIDES[step % 2], self._step_rows(step)
        padded = pad(rows, (0, -len(rows) % n_chunks)).view(n_chunks, -1) if n_chunks else rows
        weight = self.weights[padded]
        weight.view(-1)[len(rows) :] = 0
        h, r, t = self.triples[padded].unbind(-1)
        known, answer = (h, t) if side == "tail" else (t, h)
        return Queries(side, known, r, answer, weight)

    def _step_rows(self, step: int) -> Tensor:
        """Return the rows of a step: the next `size` rows of its side's shuffled epochs."""
        side, n, parts, remaining = STEP_SIDES[step % 2], len(self.triples), [], self.size
        position = step // 2 * self.size
        while remaining:
            epoch, offset = divmod(position, n)
            part = self._epoch_order(side, epoch)[offset : offset + remaining]
            parts.append(part)
            position, remaining = position + len(part), remaining - len(part)
        return torch.cat(parts)

    def _epoch_order(self, side: Side, epoch: int) -> Tensor:
        if self._orders.get(side, (-1,))[0] != epoch:
            generator = generator_for(self.seed, self.stream + STEP_SIDES.index(side), epoch)
            order = torch.randperm(len(self.triples), generator=generator).to(self.device)
            self._orders[side] = (epoch, order)
        return self._orders[side][1]


def generator_for(seed: int, stream: int, step_or_epoch: int, device: torch.device | None = None) -> torch.Generator:
    """Return a random number generator for one step or epoch. Each purpose of random numbers has its own `stream`.

    Example:
        >>> torch.equal(*(torch.rand(3, generator=generator_for(0, 1, 2)) for _ in range(2)))
        True
    """
    state = np.random.SeedSequence((seed, stream, step_or_epoch)).generate_state(1, np.uint64)[0]
    return torch.Generator(device or "cpu").manual_seed(int(state >> np.uint64(1)))


def explicit_negatives(examples: Examples, batch: int, seed: int, device: torch.device) -> ShuffledEpochs | None:
    """Return the epochs of explicit negatives, or None if the examples have none.

    The batch size is chosen so that an epoch of negatives takes as many steps as an epoch of positives. It is at most
    the batch size of positives.

    Example:
        >>> explicit_negatives(Examples.of(np.array([[0, 0, 1]])), 4, 0, torch.device("cpu")) is None
        True
    """
    n_negatives, n_positives = len(examples.negatives), len(examples.positives)
    if not n_negatives:
        return None
    size = min(batch, n_positives, -(-n_negatives * min(batch, n_positives) // n_positives))
    return ShuffledEpochs(examples.negatives, np.ones(n_negatives), size, seed, device, stream=4)
