"""Batches of positives with sampled negatives and subsampling weights."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from plogicnet.graph import HEAD, RELATION, TAIL, FloatArray, IntArray, Side
from plogicnet.neural.protocol import Examples
from plogicnet.neural.sampling import STEP_SIDES, Queries, ShuffledEpochs, generator_for


@dataclass(frozen=True)
class Batch(Queries):
    """Positives in chunks, of shape (chunks, chunk size). The positives of a chunk share their negatives.

    Attributes:
        weight: subsampling weight × example weight; zero for rows that pad the last chunk.
        negative: (chunks, negatives), entities that replace the answer.
        usable: (chunks, chunk size, negatives), false if the corrupted triple is a positive.
    """

    negative: Tensor
    usable: Tensor


class Sampler:
    """Draws the batch of each step: positives from shuffled epochs, and sampled negatives for each chunk of positives.

    At most `chunk_size` positives share one set of sampled entities. `negatives` is the size of the set.

    Example:
        >>> examples = Examples.of(np.array([[0, 0, 1], [1, 0, 2]]))
        >>> sampler = Sampler(examples, 3, batch=2, negatives=4, chunk_size=2, seed=0, device=torch.device("cpu"))
        >>> sampler.batch(0).negative.shape
        torch.Size([1, 4])
    """

    def __init__(
        self,
        examples: Examples,
        n_entities: int,
        batch: int,
        negatives: int,
        chunk_size: int,
        seed: int,
        device: torch.device,
    ) -> None:
        self.n_entities, self.negatives, self.seed, self.device = n_entities, negatives, seed, device
        weights = examples.weights * subsampling_weights(examples.positives)
        self.positives = ShuffledEpochs(examples.positives, weights, batch, seed, device)
        self.n_chunks = -(-self.positives.size // min(chunk_size, self.positives.size))

    @cached_property
    def _positive_keys(self) -> dict[Side, Tensor]:
        """The sorted keys of the positives for each side. Sampled negatives that are positives are not used."""
        h, r, t = self.positives.triples.unbind(1)
        return {side: torch.sort(self._keys(*((h, r, t) if side == "tail" else (t, r, h))))[0] for side in STEP_SIDES}

    def batch(self, step: int) -> Batch:
        """Return the batch of one step."""
        q = self.positives.queries(step, self.n_chunks)
        generator = generator_for(self.seed, 1, step)
        negative = torch.randint(self.n_entities, (self.n_chunks, self.negatives), generator=generator).to(self.device)
        return Batch(q.side, q.known, q.relation, q.answer, q.weight, negative, self._usable(q, negative))

    def _keys(self, known: Tensor, relation: Tensor, answer: Tensor) -> Tensor:
        return (relation * self.n_entities + known) * self.n_entities + answer

    def _usable(self, q: Queries, negative: Tensor) -> Tensor:
        keys = self._positive_keys[q.side]
        candidates = self._keys(q.known[:, :, None], q.relation[:, :, None], negative[:, None, :])
        position = torch.searchsorted(keys, candidates).clamp_(max=len(keys) - 1)
        return keys[position] != candidates


def subsampling_weights(triples: IntArray) -> FloatArray:
    """Return 1/√(count(h, r) + count(r, t)) for each triple, so that triples with frequent pairs weigh less.

    count(pair) is the number of occurrences of the pair plus 3, so it is 4 for a pair that occurs once.

    Example:
        >>> subsampling_weights(np.array([[0, 0, 1]])) == 1 / np.sqrt(8)
        array([ True])
    """

    def count(known: int) -> IntArray:
        _, group, size = np.unique(triples[:, [RELATION, known]], axis=0, return_inverse=True, return_counts=True)
        return np.asarray(size[group.reshape(-1)] + 3)

    return np.asarray(1.0 / np.sqrt(count(HEAD) + count(TAIL)))
