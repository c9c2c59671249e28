"""The training loop for any loss and parameters, with early stopping, and with checkpoints that resume exactly."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from plogicnet.neural.checkpoint import Tensors, TrainingState, read_checkpoint, write_checkpoint
from plogicnet.neural.protocol import Checkpoint, Validate
from plogicnet.neural.settings import TrainingSettings
from plogicnet.support.interrupts import deferred_interrupts
from plogicnet.support.progress import Progress

REPORT_EVERY = 50
"""The number of steps between two progress updates. They are rare, because reading the loss makes a GPU wait."""


class Stepper(Protocol):
    """An object that updates the parameters step by step and keeps its own state between steps."""

    def step(self, number: int) -> None:
        """Perform step `number`, counted from 0."""

    def loss(self) -> float:
        """Return the last step's loss. This waits for the device."""

    def flush(self) -> None:
        """Apply pending updates to the parameters and the state. The training loop calls it before it reads either."""

    def state(self) -> Tensors:
        """Return the state that a checkpoint saves in addition to the parameters."""

    def restore(self, number: int, state: Tensors) -> None:
        """Restore `state`, which the method `state` returned after `number` steps."""


def train(
    parameters: Tensors,
    stepper: Stepper,
    settings: TrainingSettings,
    fingerprint: str,
    progress: Progress,
    validate: Validate | None = None,
    checkpoint: Checkpoint | None = None,
) -> None:
    """Train the parameters in place. With `validate`, the parameters with the best validation metric are kept.

    Args:
        parameters: the parameters by name.
        stepper: updates the parameters.
        settings: the number of steps, and how often to validate.
        fingerprint: the digest of the training; see `TrainingState`.
        progress: displays the progress.
        validate: returns the validation metric of the current parameters.
        checkpoint: the file of the training state. If it belongs to the same training, training resumes.

    Example:
        >>> from plogicnet.support.progress import no_progress
        >>> x, settings = torch.ones(1), TrainingSettings("square", 100, 1, "adam", 0.1, 0, 10, "plain")
        >>> stepper = OptimizerStepper({"x": x}, lambda step: (x * x).sum(), lambda p, _: torch.optim.Adam(p, lr=0.1))
        >>> train({"x": x}, stepper, settings, "", no_progress)
        >>> bool(x.abs() < 0.1)
        True
    """
    training = Training(parameters, stepper, settings, TrainingState(fingerprint), checkpoint)
    training.restore_checkpoint()
    done = training.state.step
    description = f"training {settings.model}, steps" + (f" after the first {done:,}" if done else "")
    with progress(description, settings.steps - done) as advance, deferred_interrupts() as interrupt:
        try:
            training.run(validate, advance, interrupt)
        except KeyboardInterrupt:
            if training.consistent:
                training.write()
            raise
    training.write()
    for name, tensor in training.best.items():
        parameters[name].copy_(tensor)


class OptimizerStepper:
    """A stepper that minimises loss(step) with a PyTorch optimizer.

    Attributes:
        make_optimizer: creates the optimizer for some parameters and a step.
        restart: the step before which a new optimizer without state is created; -1: never.
        after_step: called after each step, for example to project the parameters onto their bounds.
    """

    def __init__(
        self,
        parameters: Tensors,
        loss: Callable[[int], torch.Tensor],
        make_optimizer: Callable[[list[torch.Tensor], int], torch.optim.Optimizer],
        restart: int = -1,
        after_step: Callable[[], None] = lambda: None,
    ) -> None:
        self.parameters = list(parameters.values())
        self.loss_at, self.make_optimizer, self.restart, self.after_step = loss, make_optimizer, restart, after_step
        self.last_loss = torch.zeros(())
        self.optimizer = make_optimizer(self.parameters, 0)

    def step(self, number: int) -> None:
        """Perform one step. Parameters require gradients only during the step."""
        if number == self.restart:
            self.optimizer = self.make_optimizer(self.parameters, number)
        try:
            for parameter in self.parameters:
                parameter.requires_grad_().grad = None
            value = self.loss_at(number)
            value.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.last_loss = value.detach()
        finally:
            for parameter in self.parameters:
                parameter.requires_grad_(False).grad = None
        self.after_step()

    def loss(self) -> float:
        """Return the last step's loss."""
        return float(self.last_loss)

    def flush(self) -> None:
        """Do nothing: steps leave no pending updates."""

    def state(self) -> Tensors:
        """Return the optimizer's state."""
        state: dict[int, dict[str, torch.Tensor]] = self.optimizer.state_dict()["state"]
        return {f"{i}.{key}": tensor for i, tensors in state.items() for key, tensor in tensors.items()}

    def restore(self, number: int, state: Tensors) -> None:
        """Create an optimizer for step `number`, with this state."""
        self.optimizer = self.make_optimizer(self.parameters, number)
        by_parameter: dict[int, dict[str, Any]] = {}
        for name, tensor in state.items():
            index, _, key = name.partition(".")
            by_parameter.setdefault(int(index), {})[key] = tensor
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": by_parameter})


@dataclass
class Training:
    """A running training.

    Attributes:
        state: the counters.
        best: the parameters with the best validation metric so far; empty without validation.
        consistent: whether parameters, stepper and state belong to the same step, so that a checkpoint can be written.
        last_write: time and step of the last checkpoint.
    """

    parameters: Tensors
    stepper: Stepper
    settings: TrainingSettings
    state: TrainingState
    checkpoint: Checkpoint | None
    best: Tensors = field(default_factory=dict)
    consistent: bool = True
    last_write: tuple[float, int] = (0.0, 0)

    def run(
        self, validate: Validate | None, advance: Callable[[int, str], None], interrupt: Callable[[], None]
    ) -> None:
        """Run all steps, or stop early when the validation metric no longer improves.

        `interrupt` is called after each step. It raises KeyboardInterrupt if a signal arrived.
        """
        s, state = self.settings, self.state
        reported = state.step
        while True:
            # validation comes first, because a resumed training may have stopped between a step and its validation
            due = s.validate_every and (state.step % s.validate_every == 0 or state.step == s.steps)
            if validate and due and state.step > state.judged:
                self.flush()
                self._record_validation(validate())
            if state.step >= s.steps or state.waited >= s.patience:
                break
            self.consistent = False
            self.stepper.step(state.step)
            state.step += 1
            self.consistent = True
            if state.step % REPORT_EVERY == 0 or state.step == s.steps:
                note = f"loss {self._require_finite(self.stepper.loss()):.4f}"
                advance(state.step - reported, note if state.best is None else f"{note}, best {state.best:.4f}")
                reported = state.step
            if self._is_due():
                self.write()
            interrupt()
        if state.step > reported:
            advance(state.step - reported, "")
        self.flush()
        self._require_finite(sum(float(p.abs().sum()) for p in self.parameters.values()))

    def flush(self) -> None:
        """Apply the stepper's pending updates."""
        self.consistent = False
        self.stepper.flush()
        self.consistent = True

    def _record_validation(self, metric: float) -> None:
        state = self.state
        self.consistent = False
        state.judged, state.waited = state.step, state.waited + 1
        if state.best is None or metric > state.best:
            state.best, state.best_step, state.waited = metric, state.step, 0
            self.best = {name: p.clone() for name, p in self.parameters.items()}
        self.consistent = True

    def _is_due(self) -> bool:
        """Return whether to write a checkpoint now."""
        if not self.checkpoint:
            return False
        seconds, steps = time.monotonic() - self.last_write[0], self.state.step - self.last_write[1]
        return seconds >= self.checkpoint.every_seconds or 0 < self.checkpoint.every_steps <= steps

    def write(self) -> None:
        """Apply pending updates. If the training has a checkpoint file, write it."""
        self.flush()
        if self.checkpoint:
            parts = {"parameter": self.parameters, "best": self.best, "state": self.stepper.state()}
            tensors = {f"{kind}.{name}": tensor for kind, part in parts.items() for name, tensor in part.items()}
            write_checkpoint(self.checkpoint.path, self.state, tensors)
            self.last_write = (time.monotonic(), self.state.step)

    def restore_checkpoint(self) -> None:
        """Restore the checkpoint of the same training, if it exists."""
        checkpoint = read_checkpoint(self.checkpoint.path, self.state.fingerprint) if self.checkpoint else None
        if checkpoint is not None:
            self.state, tensors = checkpoint
            parts: dict[str, Tensors] = {"parameter": {}, "best": {}, "state": {}}
            for name, tensor in tensors.items():
                kind, _, rest = name.partition(".")
                parts[kind][rest] = tensor
            for name, tensor in parts["parameter"].items():
                self.parameters[name].copy_(tensor)
            self.best = {name: tensor.to(self.parameters[name].device) for name, tensor in parts["best"].items()}
            self.stepper.restore(self.state.step, parts["state"])
        self.last_write = (time.monotonic(), self.state.step)

    def _require_finite(self, value: float) -> float:
        if not math.isfinite(value):
            raise FloatingPointError(
                f"the loss or the parameters are not finite after step {self.state.step}. Use a smaller"
                f" neural.learning_rate (now {self.settings.learning_rate:g})."
            )
        return value
