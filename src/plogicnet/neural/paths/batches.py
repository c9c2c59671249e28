"""The training batches of the path model, and their loss."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from plogicnet.graph import SIDES, AnswerIndex, IntArray
from plogicnet.neural.loss import one_vs_all_negative_losses
from plogicnet.neural.protocol import Examples
from plogicnet.neural.sampling import ShuffledEpochs, explicit_negatives, generator_for

CPU = torch.device("cpu")
SEED_STREAM = 6
"""The stream of the random numbers that are seeds; see `generator_for`."""
TENSORS = ("known", "relation", "answer", "weight", "seeds", "left_out")
"""The tensors of a batch, with one row per query."""
TINY = torch.finfo(torch.float32).tiny
MIN_ANSWER_WEIGHT = 0.5
"""Positives of less weight compete with other answers of their query."""


@dataclass(frozen=True)
class Batch:
    """The queries of a step: those of positives first, then those of explicit negatives.

    The tensors of all steps of a training have the same shapes.

    Attributes:
        known: the known entity of each query.
        relation: the relation or inverse relation; see `PathQueries`.
        answer: the answer, or the explicit negative.
        weight: the weight of each query. The weights of positives sum to 1, and so do those of explicit negatives.
        seeds: the seed of each query's noise in a frontier.
        left_out: a mask of shape (queries, entities) of other known answers, which do not compete with the answer.
        n_positives: the number of positives.
    """

    known: Tensor
    relation: Tensor
    answer: Tensor
    weight: Tensor
    seeds: Tensor
    left_out: Tensor
    n_positives: int

    def copy_(self, other: "Batch") -> None:
        """Copy the values of another batch."""
        for name in TENSORS:
            getattr(self, name).copy_(getattr(other, name))

    def split(self, size: int) -> list["Batch"]:
        """Split the batch into parts of at most `size` queries. The sum of their losses is the loss of the batch."""
        parts = []
        for first in range(0, len(self.known), size):
            tensors = {name: getattr(self, name)[first : first + size] for name in TENSORS}
            parts.append(Batch(**tensors, n_positives=max(0, min(size, self.n_positives - first))))
        return parts

    def loss(self, scores: Tensor) -> Tensor:
        """Return the cross-entropy over all entities, plus the loss of the explicit negatives."""
        scores, n = scores.masked_fill(self.left_out, -torch.inf), self.n_positives
        positive = cross_entropy(scores[:n], self.answer[:n], reduction="none")
        negative = one_vs_all_negative_losses(scores[n:], self.answer[n:])
        return (self.weight * torch.cat([positive, negative])).sum()


class Batches:
    """The batch of each step: half of the positives are tail queries, the others are head queries.

    Example:
        >>> batches = Batches(Examples.of(np.array([[0, 0, 1], [1, 0, 2]])), 3, 1, 2, seed=0, device=CPU)
        >>> batches.draw(0).relation
        tensor([0, 1])
    """

    def __init__(
        self, examples: Examples, n_entities: int, n_relations: int, size: int, seed: int, device: torch.device
    ) -> None:
        self.n_entities, self.n_relations, self.device, half = n_entities, n_relations, device, max(1, size // 2)
        self.seed = seed
        self.positives = ShuffledEpochs(examples.positives, examples.weights, half, seed, CPU)
        self.negatives = explicit_negatives(examples, half, seed, CPU)
        probable = examples.positives[examples.weights >= MIN_ANSWER_WEIGHT]
        self.answers = {side: AnswerIndex.of(probable, n_entities, side) for side in SIDES}

    def draw(self, step: int) -> Batch:
        """Return the batch of a step."""
        positives = [self.positives.queries(2 * step + i) for i in (0, 1)]
        asked = positives + [self.negatives.queries(2 * step + i) for i in (0, 1) if self.negatives]
        row, column, first = [], [], 0
        for queries in positives:
            query, other, _ = self.answers[queries.side].lookup(queries.known.numpy(), queries.relation.numpy())
            is_other = other != queries.answer.numpy()[query]
            row.append(query[is_other] + first)
            column.append(other[is_other])
            first += len(queries.known)
        n_queries = sum(len(queries.known) for queries in asked)
        left_out = torch.zeros(n_queries, self.n_entities, dtype=torch.bool, device=self.device)
        left_out[self._on_device(np.concatenate(row)), self._on_device(np.concatenate(column))] = True
        directed = [q.relation + self.n_relations * (q.side == "head") for q in asked]
        weights = [torch.cat([q.weight for q in part]) for part in (positives, asked[len(positives) :]) if part]
        generator = generator_for(self.seed, SEED_STREAM, step)
        return Batch(
            known=self._on_device(torch.cat([q.known for q in asked])),
            relation=self._on_device(torch.cat(directed)),
            answer=self._on_device(torch.cat([q.answer for q in asked])),
            weight=self._on_device(torch.cat([w / w.sum().clamp_min(TINY) for w in weights])),
            seeds=self._on_device(torch.randint(2**62, (n_queries,), generator=generator)),
            left_out=left_out,
            n_positives=sum(len(q.known) for q in positives),
        )

    def _on_device(self, array: IntArray | Tensor) -> Tensor:
        return on_device(array, self.device)


def on_device(array: IntArray | Tensor, device: torch.device) -> Tensor:
    """Return an array or a tensor on the CPU as a tensor on a device.

    Example:
        >>> on_device(np.array([1, 2]), CPU)
        tensor([1, 2])
    """
    tensor = torch.as_tensor(np.ascontiguousarray(array))
    # a copy from memory that is not pinned waits for all earlier work of the device
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
