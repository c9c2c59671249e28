"""Batches of positives, negatives for them, and the subsampling weights: all drawn from (seed, step) alone.

Since nothing but the step's number decides what is drawn, a training that is taken up at a step goes on exactly as if
it had never stopped.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from plogicnet.graph import HEAD, RELATION, TAIL, FloatArray, IntArray, Side
from plogicnet.kge.protocol import Examples

SIDES: tuple[Side, Side] = ("tail", "head")


@dataclass(frozen=True)
class Batch:
    """Positives in chunks that share their negatives: shapes (chunks, share) and (chunks, negatives).

    Attributes:
        known, relation, answer: the positives as queries of this side with their answers.
        weight: subsampling weight × example weight; zero for rows that only fill the last chunk.
        negative: entities that corrupt the answer.
        usable: (chunks, share, negatives), false where a corruption is itself a positive.
    """

    side: Side
    known: torch.Tensor
    relation: torch.Tensor
    answer: torch.Tensor
    weight: torch.Tensor
    negative: torch.Tensor
    usable: torch.Tensor


class Sampler:
    """Draws the batch of any step: tail and head corruption in turn, positives in shuffled passes.

    Example:
        >>> examples = Examples.of(np.array([[0, 0, 1], [1, 0, 2]]))
        >>> sampler = Sampler(examples, entities=3, batch=2, negatives=4, share=2, seed=0, device=torch.device("cpu"))
        >>> sampler.batch(0).negative.shape
        torch.Size([1, 4])
    """

    def __init__(
        self,
        examples: Examples,
        entities: int,
        batch: int,
        negatives: int,
        share: int,
        seed: int,
        device: torch.device,
    ) -> None:
        self.entities = entities
        self.size = min(batch, len(examples.positives))
        self.negatives = negatives
        self.share = min(share, self.size)
        self.seed = seed
        self.device = device
        self.positives = torch.from_numpy(examples.positives.copy()).to(device)
        weights = examples.weights * subsampling_weights(examples.positives)
        self.weights = torch.from_numpy(weights.astype(np.float32)).to(device)
        self._shuffled: dict[Side, tuple[int, torch.Tensor]] = {}

    @cached_property
    def _positive_keys(self) -> dict[Side, torch.Tensor]:
        """For each side the sorted keys of the positives, for exact filtering."""
        h, r, t = self.positives.unbind(1)
        return {side: torch.sort(self._keys(*((h, r, t) if side == "tail" else (t, r, h))))[0] for side in SIDES}

    def batch(self, step: int) -> Batch:
        """The batch of one step."""
        side = SIDES[step % 2]
        rows = self._rows(side, step // 2)
        chunks = -(-self.size // self.share)
        filled = torch.nn.functional.pad(rows, (0, chunks * self.share - self.size)).view(chunks, self.share)
        weight = self.weights[filled].flatten()
        weight[self.size :] = 0
        h, r, t = self.positives[filled].unbind(-1)
        known, answer = (h, t) if side == "tail" else (t, h)
        generator = self._generator(1, step)
        negative = torch.randint(self.entities, (chunks, self.negatives), generator=generator).to(self.device)
        usable = ~self._is_positive(side, known[:, :, None], r[:, :, None], negative[:, None, :])
        return Batch(side, known, r, answer, weight.view(chunks, self.share), negative, usable)

    def _rows(self, side: Side, number: int) -> torch.Tensor:
        """The rows of a side's batch: the next piece of an endless row of shuffled passes over the positives."""
        n, pieces, wanted = len(self.positives), [], self.size
        at = number * self.size
        while wanted:
            pass_number, offset = divmod(at, n)
            piece = self._pass(side, pass_number)[offset : offset + wanted]
            pieces.append(piece)
            at, wanted = at + len(piece), wanted - len(piece)
        return torch.cat(pieces)

    def _pass(self, side: Side, number: int) -> torch.Tensor:
        if self._shuffled.get(side, (-1,))[0] != number:
            generator = self._generator(2 + SIDES.index(side), number)
            order = torch.randperm(len(self.positives), generator=generator).to(self.device)
            self._shuffled[side] = (number, order)
        return self._shuffled[side][1]

    def _generator(self, stream: int, number: int) -> torch.Generator:
        state = np.random.SeedSequence((self.seed, stream, number)).generate_state(1, np.uint64)[0]
        return torch.Generator().manual_seed(int(state >> np.uint64(1)))

    def _keys(self, known: torch.Tensor, relation: torch.Tensor, answer: torch.Tensor) -> torch.Tensor:
        return (relation * self.entities + known) * self.entities + answer

    def _is_positive(
        self, side: Side, known: torch.Tensor, relation: torch.Tensor, answer: torch.Tensor
    ) -> torch.Tensor:
        keys, wanted = self._positive_keys[side], self._keys(known, relation, answer)
        at = torch.searchsorted(keys, wanted).clamp_(max=len(keys) - 1)
        return keys[at] == wanted


def subsampling_weights(triples: IntArray) -> FloatArray:
    """1/√(count(h, r) + count(r, t)), so that frequent pairs weigh less; each count starts at 4 for its first triple.

    Example:
        >>> subsampling_weights(np.array([[0, 0, 1]])) == 1 / np.sqrt(8)
        array([ True])
    """

    def count(known: int) -> IntArray:
        _, group, size = np.unique(triples[:, [RELATION, known]], axis=0, return_inverse=True, return_counts=True)
        return np.asarray(size[group.reshape(-1)] + 3)

    return np.asarray(1.0 / np.sqrt(count(HEAD) + count(TAIL)))
