"""The training steps of the path model."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch import Tensor

from plogicnet.neural.checkpoint import Tensors
from plogicnet.neural.device import single_threaded
from plogicnet.neural.paths.batches import Batch, Batches
from plogicnet.neural.paths.settings import PathSettings

WARM_UP_STEPS = 100
"""The learning rate rises linearly in these steps."""
FINAL_RATE = 0.02
"""The learning rate of the last step, as a share of the highest one."""
MAX_GRADIENT_NORM = 1.0
"""A longer gradient is scaled down to this norm."""
EAGER_STEPS = 3
"""Steps before the work is captured. They compile the kernels."""


class Score(Protocol):
    """A function that scores all entities as answers of the queries of a batch."""

    def __call__(self, parameters: Tensors, batch: Batch) -> Tensor:
        """Return the scores, of shape (queries, entities)."""


class PathSteps:
    """A `Stepper` that trains a copy of the parameters. The parameters are the moving average of the copy.

    On a GPU, the work of a step is captured once in a CUDA graph and then replayed. Launching its hundreds of kernels
    one by one takes longer than running them.

    Attributes:
        average: the parameters.
        copies: the copy that is trained.
        batch: the current batch. All steps use the same memory.
        rate: the learning rate of the step.
        share: the share of the copy that the step adds to the average.
        part_queries: if not 0, the batch is cut into parts of this many queries, and several threads compute the
            gradients of different parts. The result does not depend on the number of threads.
    """

    def __init__(
        self, average: Tensors, score: Score, batches: Batches, settings: PathSettings, part_queries: int = 0
    ) -> None:
        self.average, self.score, self.batches, self.settings = average, score, batches, settings
        self.part_queries = part_queries
        self.copies = {name: tensor.clone() for name, tensor in average.items()}
        self.on_gpu = batches.device.type == "cuda"
        self.batch = batches.draw(0)
        self.rate, self.share, self.last_loss = (torch.zeros((), device=batches.device) for _ in range(3))
        self._prepare_optimizer()

    def _prepare_optimizer(self) -> None:
        s, parameters = self.settings, list(self.copies.values())
        self.optimizer = torch.optim.AdamW(parameters, weight_decay=s.weight_decay, fused=True, capturable=self.on_gpu)
        self.graph: Any = None
        self.eager_steps = EAGER_STEPS

    def step(self, number: int) -> None:
        """Perform step `number`."""
        if self.part_queries:
            with single_threaded() as map_in_parallel:
                self._prepare_step(number)
                self._compute(map_in_parallel)
            return
        self._prepare_step(number)
        if not self.on_gpu or self.eager_steps:
            self._compute()
            self.eager_steps -= 1
            return
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self._compute()
        self.graph.replay()

    def _prepare_step(self, number: int) -> None:
        self.batch.copy_(self.batches.draw(number))
        self.rate.fill_(self.settings.learning_rate * rate_factor(number, self.settings.steps))
        self.share.fill_(1 - averaging_decay(self.settings.averaging, number))

    def _compute(self, map_parts: Callable[..., Iterable[list[Tensor]]] = map) -> None:
        """Update copy and average. The gradients of parts of the batch are summed."""
        parameters = list(self.copies.values())
        parts = self.batch.split(self.part_queries or len(self.batch.known))
        loss, *gradients = sum_in_order(map_parts(self._gradients, parts))
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        torch.nn.utils.clip_grad_norm_(parameters, MAX_GRADIENT_NORM)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate
        self.optimizer.step()
        self.last_loss.copy_(loss)
        for name, parameter in self.copies.items():
            parameter.grad = None
            self.average[name].lerp_(parameter, self.share)

    def _gradients(self, part: Batch) -> list[Tensor]:
        """Return the loss of a part, and its gradients."""
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in self.copies.items()}
        loss = part.loss(self.score(leaves, part))
        gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
        return [loss.detach(), *gradients]

    def loss(self) -> float:
        """Return the last step's loss."""
        return float(self.last_loss)

    def flush(self) -> None:
        """Do nothing: steps leave no pending updates."""

    def state(self) -> Tensors:
        """Return the copy and the optimizer's state."""
        by_parameter: dict[int, Tensors] = self.optimizer.state_dict()["state"]
        state = {f"optimizer.{i}.{name}": t for i, tensors in by_parameter.items() for name, t in tensors.items()}
        return state | {f"copy.{name}": tensor for name, tensor in self.copies.items()}

    def restore(self, number: int, state: Tensors) -> None:  # noqa: ARG002
        """Restore the copy and the optimizer's state."""
        by_parameter: dict[int, Tensors] = {}
        for name, tensor in state.items():
            kind, _, rest = name.partition(".")
            if kind == "copy":
                self.copies[rest].copy_(tensor)
            else:
                index, _, key = rest.partition(".")
                by_parameter.setdefault(int(index), {})[key] = tensor
        self._prepare_optimizer()
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": by_parameter})


def sum_in_order(parts: Iterable[list[Tensor]]) -> list[Tensor]:
    """Return the sums of the first tensors, of the second tensors and so on. The first tensors are overwritten.

    Example:
        >>> sum_in_order([[torch.ones(1), torch.ones(2)], [torch.ones(1), torch.zeros(2)]])
        [tensor([2.]), tensor([1., 1.])]
    """
    first, *others = parts
    for tensors in others:
        for total, tensor in zip(first, tensors, strict=True):
            total += tensor
    return first


def rate_factor(step: int, steps: int) -> float:
    """Return the learning rate of a step as a share of the highest one.

    It rises linearly during the warm-up, is constant up to half of the steps, and then falls linearly.

    Example:
        >>> [round(rate_factor(step, 1_000), 2) for step in (0, 99, 500, 1_000)]
        [0.01, 1.0, 1.0, 0.02]
    """
    warm_up = min(1.0, (step + 1) / WARM_UP_STEPS)
    falling = 1 - (1 - FINAL_RATE) * max(0.0, 2 * step / max(1, steps) - 1)
    return warm_up * falling


def averaging_decay(decay: float, step: int) -> float:
    """Return the decay of the moving average in a step. It starts small, so that the average forgets its first values.

    Example:
        >>> [round(averaging_decay(0.998, step), 3) for step in (0, 90, 10_000)]
        [0.1, 0.91, 0.998]
    """
    return min(decay, (step + 1) / (step + 10))
