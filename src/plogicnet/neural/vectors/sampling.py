"""Batches of positives, negatives for them, and the subsampling weights: all drawn from (seed, step) alone.

Since nothing but the step's number decides what is drawn, a training that is taken up at a step goes on exactly as if
it had never stopped.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from plogicnet.graph import HEAD, RELATION, TAIL, FloatArray, IntArray, Side
from plogicnet.neural.protocol import Examples

TURNS: tuple[Side, Side] = ("tail", "head")
"""The sides that steps ask for, in turn."""


@dataclass(frozen=True)
class Queries:
    """Triples as queries of one side with their answers; tensors of one shape.

    Attributes:
        weight: what each counts for.
    """

    side: Side
    known: Tensor
    relation: Tensor
    answer: Tensor
    weight: Tensor


@dataclass(frozen=True)
class Batch(Queries):
    """Positives in chunks that share their negatives: shapes (chunks, share) and (chunks, negatives).

    Attributes:
        weight: subsampling weight × example weight; zero for rows that only fill the last chunk.
        negative: entities that corrupt the answer.
        usable: (chunks, share, negatives), false where a corruption is itself a positive.
    """

    negative: Tensor
    usable: Tensor


class Passes:
    """Triples in endless shuffled passes, tails and heads asked for in turn; a step's piece hangs on its number alone.

    Example:
        >>> passes = Passes(np.array([[0, 0, 1], [1, 0, 2]]), np.ones(2), 1, seed=0, device=torch.device("cpu"))
        >>> passes.queries(0).side, passes.queries(1).side
        ('tail', 'head')
    """

    def __init__(
        self, triples: IntArray, weights: FloatArray, size: int, seed: int, device: torch.device, stream: int = 2
    ) -> None:
        self.size, self.seed, self.device, self.stream = min(size, len(triples)), seed, device, stream
        self.triples = torch.from_numpy(triples.copy()).to(device)
        self.weights = torch.from_numpy(weights.astype(np.float32)).to(device)
        self._shuffled: dict[Side, tuple[int, Tensor]] = {}

    def queries(self, step: int, chunks: int = 0) -> Queries:
        """The step's piece; cut in chunks where asked for, the last one filled up with rows of no weight."""
        side, rows = TURNS[step % 2], self._rows(step)
        filled = pad(rows, (0, -len(rows) % chunks)).view(chunks, -1) if chunks else rows
        weight = self.weights[filled]
        weight.view(-1)[len(rows) :] = 0
        h, r, t = self.triples[filled].unbind(-1)
        known, answer = (h, t) if side == "tail" else (t, h)
        return Queries(side, known, r, answer, weight)

    def _rows(self, step: int) -> Tensor:
        """The rows of a step: the next piece of an endless row of shuffled passes over the triples, for its side."""
        side, n, pieces, wanted = TURNS[step % 2], len(self.triples), [], self.size
        at = step // 2 * self.size
        while wanted:
            pass_number, offset = divmod(at, n)
            piece = self._pass(side, pass_number)[offset : offset + wanted]
            pieces.append(piece)
            at, wanted = at + len(piece), wanted - len(piece)
        return torch.cat(pieces)

    def _pass(self, side: Side, number: int) -> Tensor:
        if self._shuffled.get(side, (-1,))[0] != number:
            generator = generator_for(self.seed, self.stream + TURNS.index(side), number)
            order = torch.randperm(len(self.triples), generator=generator).to(self.device)
            self._shuffled[side] = (number, order)
        return self._shuffled[side][1]


def generator_for(seed: int, stream: int, number: int, device: torch.device | None = None) -> torch.Generator:
    """The random numbers of one purpose (stream) at one step or pass.

    Example:
        >>> torch.equal(*(torch.rand(3, generator=generator_for(0, 1, 2)) for _ in range(2)))
        True
    """
    state = np.random.SeedSequence((seed, stream, number)).generate_state(1, np.uint64)[0]
    return torch.Generator(device or "cpu").manual_seed(int(state >> np.uint64(1)))


def explicit_negatives(examples: Examples, batch: int, seed: int, device: torch.device) -> Passes | None:
    """Explicit negatives in pieces for each step: a pass over them lasts as long as one over the positives.

    A piece is never larger than a batch of positives, however many there are.

    Example:
        >>> explicit_negatives(Examples.of(np.array([[0, 0, 1]])), 4, 0, torch.device("cpu")) is None
        True
    """
    negatives, positives = len(examples.negatives), len(examples.positives)
    if not negatives:
        return None
    size = min(batch, positives, -(-negatives * min(batch, positives) // positives))
    return Passes(examples.negatives, np.ones(negatives), size, seed, device, stream=4)


class Sampler:
    """Draws the batch of any step: positives in shuffled passes, and negatives for chunks of them.

    Example:
        >>> examples = Examples.of(np.array([[0, 0, 1], [1, 0, 2]]))
        >>> sampler = Sampler(examples, entities=3, batch=2, negatives=4, share=2, seed=0, device=torch.device("cpu"))
        >>> sampler.batch(0).negative.shape
        torch.Size([1, 4])
    """

    def __init__(
        self, examples: Examples, entities: int, batch: int, negatives: int, share: int, seed: int, device: torch.device
    ) -> None:
        self.entities, self.negatives, self.seed, self.device = entities, negatives, seed, device
        weights = examples.weights * subsampling_weights(examples.positives)
        self.positives = Passes(examples.positives, weights, batch, seed, device)
        self.chunks = -(-self.positives.size // min(share, self.positives.size))

    @cached_property
    def _positive_keys(self) -> dict[Side, Tensor]:
        """For each side the sorted keys of the positives, for exact filtering."""
        h, r, t = self.positives.triples.unbind(1)
        return {side: torch.sort(self._keys(*((h, r, t) if side == "tail" else (t, r, h))))[0] for side in TURNS}

    def batch(self, step: int) -> Batch:
        """The batch of one step."""
        q = self.positives.queries(step, self.chunks)
        generator = generator_for(self.seed, 1, step)
        negative = torch.randint(self.entities, (self.chunks, self.negatives), generator=generator).to(self.device)
        return Batch(q.side, q.known, q.relation, q.answer, q.weight, negative, self._usable(q, negative))

    def _keys(self, known: Tensor, relation: Tensor, answer: Tensor) -> Tensor:
        return (relation * self.entities + known) * self.entities + answer

    def _usable(self, q: Queries, negative: Tensor) -> Tensor:
        keys = self._positive_keys[q.side]
        wanted = self._keys(q.known[:, :, None], q.relation[:, :, None], negative[:, None, :])
        at = torch.searchsorted(keys, wanted).clamp_(max=len(keys) - 1)
        return keys[at] != wanted


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
