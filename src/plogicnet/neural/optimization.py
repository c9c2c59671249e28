"""The training loop: any loss of any parameters, with validation, checkpoints and exact resumption."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from plogicnet.neural.checkpoint import Tensors, TrainingState, read_checkpoint, write_checkpoint
from plogicnet.neural.protocol import Checkpoint, Validate
from plogicnet.neural.settings import TrainingSettings
from plogicnet.support.progress import Progress

LOOK_EVERY = 50
"""Steps between two looks at the loss: reading it back would hold up a GPU."""


class Stepper(Protocol):
    """What changes the parameters, a step at a time, and what it must remember from one step to the next."""

    def step(self, number: int) -> None:
        """Takes the step of this number."""

    def loss(self) -> float:
        """The last step's loss; waits for the device."""

    def flush(self) -> None:
        """Brings parameters and state up to the steps taken; called before either is read."""

    def state(self) -> Tensors:
        """What a checkpoint needs besides the parameters."""

    def restore(self, number: int, state: Tensors) -> None:
        """Takes up what `state` gave after so many steps."""


def train(
    parameters: Tensors,
    stepper: Stepper,
    settings: TrainingSettings,
    fingerprint: str,
    progress: Progress,
    validate: Validate | None = None,
    checkpoint: Checkpoint | None = None,
) -> None:
    """Takes the steps that change the parameters, in place; they end as the best that `validate` has seen.

    Example:
        >>> from plogicnet.support.progress import silent
        >>> x, settings = torch.ones(1), TrainingSettings("square", 100, 1, "adam", 0.1, 0, 10, "plain")
        >>> descent = Descent({"x": x}, lambda step: (x * x).sum(), lambda p, step: torch.optim.Adam(p, lr=0.1))
        >>> train({"x": x}, descent, settings, "", silent)
        >>> bool(x.abs() < 0.1)
        True
    """
    training = Training(parameters, stepper, settings, TrainingState(fingerprint), checkpoint)
    training.take_up()
    done = training.place.step
    shown = f"training {settings.model}, steps" + (f" after the first {done:,}" if done else "")
    with progress(shown, settings.steps - done) as advance, _deferred_interrupts() as interrupt:
        try:
            training.run(validate, advance, interrupt)
        except KeyboardInterrupt:
            if training.whole:
                training.write()
            raise
    training.write()
    for name, tensor in training.best.items():
        parameters[name].copy_(tensor)


class Descent:
    """Steps down loss(step) by an optimizer of PyTorch's.

    Attributes:
        make_optimizer: makes the optimizer that the step of this number begins or goes on with.
        restart: the step at which it is made anew, without its state; -1: never.
        after_step: changes the parameters after each step, as by putting them back within bounds.
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
        self.of_step, self.make_optimizer, self.restart, self.after_step = loss, make_optimizer, restart, after_step
        self.value = torch.zeros(())
        self.optimizer = make_optimizer(self.parameters, 0)

    def step(self, number: int) -> None:
        """One step; parameters need gradients only while it is taken."""
        if number == self.restart:
            self.optimizer = self.make_optimizer(self.parameters, number)
        try:
            for parameter in self.parameters:
                parameter.requires_grad_().grad = None
            value = self.of_step(number)
            value.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.value = value.detach()
        finally:
            for parameter in self.parameters:
                parameter.requires_grad_(False).grad = None
        self.after_step()

    def loss(self) -> float:
        """The last step's loss."""
        return float(self.value)

    def flush(self) -> None:
        """Nothing: a step does all that it has to do."""

    def state(self) -> Tensors:
        """The optimizer's state."""
        state: dict[int, dict[str, torch.Tensor]] = self.optimizer.state_dict()["state"]
        return {f"{i}.{key}": tensor for i, of in state.items() for key, tensor in of.items()}

    def restore(self, number: int, state: Tensors) -> None:
        """A new optimizer for the step of this number, with that state."""
        self.optimizer = self.make_optimizer(self.parameters, number)
        of: dict[int, dict[str, Any]] = {}
        for name, tensor in state.items():
            index, _, key = name.partition(".")
            of.setdefault(int(index), {})[key] = tensor
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": of})


@dataclass
class Training:
    """A training under way: its place, its parameters, what changes them, and the best parameters so far.

    Attributes:
        whole: whether parameters, state and place belong together, so that they can be written.
        written: when the last checkpoint was written, and after which step.
    """

    parameters: Tensors
    stepper: Stepper
    settings: TrainingSettings
    place: TrainingState
    checkpoint: Checkpoint | None
    best: Tensors = field(default_factory=dict)
    whole: bool = True
    written: tuple[float, int] = (0.0, 0)

    def run(
        self, validate: Validate | None, advance: Callable[[int, str], None], interrupt: Callable[[], None]
    ) -> None:
        """Steps until the end, or until validation has not gained for too long."""
        s, place = self.settings, self.place
        shown = place.step
        while True:
            # first of all, so that a training that stopped between a step and its validation makes up for it
            due = s.validate_every and (place.step % s.validate_every == 0 or place.step == s.steps)
            if validate and due and place.step > place.judged:
                self.flush()
                self._judge(validate())
            if place.step >= s.steps or place.waited >= s.patience:
                break
            self.whole = False
            self.stepper.step(place.step)
            place.step += 1
            self.whole = True
            if place.step % LOOK_EVERY == 0 or place.step == s.steps:
                note = f"loss {self._finite(self.stepper.loss()):.4f}"
                advance(place.step - shown, note if place.best is None else f"{note}, best {place.best:.4f}")
                shown = place.step
            if self._is_due():
                self.write()
            interrupt()
        if place.step > shown:
            advance(place.step - shown, "")
        self.flush()
        self._finite(sum(float(p.abs().sum()) for p in self.parameters.values()))

    def flush(self) -> None:
        """Parameters and the stepper's state become those of the steps taken."""
        self.whole = False
        self.stepper.flush()
        self.whole = True

    def _judge(self, figure: float) -> None:
        place = self.place
        self.whole = False
        place.judged, place.waited = place.step, place.waited + 1
        if place.best is None or figure > place.best:
            place.best, place.best_step, place.waited = figure, place.step, 0
            self.best = {name: p.clone() for name, p in self.parameters.items()}
        self.whole = True

    def _is_due(self) -> bool:
        """Whether a checkpoint is to be written."""
        if not self.checkpoint:
            return False
        seconds, steps = time.monotonic() - self.written[0], self.place.step - self.written[1]
        return seconds >= self.checkpoint.every_seconds or 0 < self.checkpoint.every_steps <= steps

    def write(self) -> None:
        """Brings all up to the steps taken, and writes the checkpoint, where there is to be one."""
        self.flush()
        if self.checkpoint:
            parts = {"parameter": self.parameters, "best": self.best, "state": self.stepper.state()}
            tensors = {f"{kind}.{name}": tensor for kind, part in parts.items() for name, tensor in part.items()}
            write_checkpoint(self.checkpoint.path, self.place, tensors)
            self.written = (time.monotonic(), self.place.step)

    def take_up(self) -> None:
        """Goes to where a checkpoint of the same training stands, if there is one."""
        found = read_checkpoint(self.checkpoint.path, self.place.fingerprint) if self.checkpoint else None
        if found is not None:
            self.place, tensors = found
            parts: dict[str, Tensors] = {"parameter": {}, "best": {}, "state": {}}
            for name, tensor in tensors.items():
                kind, _, rest = name.partition(".")
                parts[kind][rest] = tensor
            for name, tensor in parts["parameter"].items():
                self.parameters[name].copy_(tensor)
            self.best = {name: tensor.to(self.parameters[name].device) for name, tensor in parts["best"].items()}
            self.stepper.restore(self.place.step, parts["state"])
        self.written = (time.monotonic(), self.place.step)

    def _finite(self, number: float) -> float:
        if not math.isfinite(number):
            raise FloatingPointError(
                f"training left the finite numbers by step {self.place.step}; a smaller neural.learning_rate"
                f" (now {self.settings.learning_rate:g}) usually helps"
            )
        return number


@contextmanager
def _deferred_interrupts() -> Iterator[Callable[[], None]]:
    """Defers SIGINT and SIGTERM to the end of a step, where they are asked for; a second one interrupts at once."""
    pressed: list[int] = []
    here = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if here else ()
    ours = [number for number in numbers if signal.getsignal(number) is signal.default_int_handler]

    def hold(number: int, frame: object) -> None:  # noqa: ARG001
        pressed.append(number)
        restore()

    def restore() -> None:
        for number in ours:
            signal.signal(number, signal.default_int_handler)

    def interrupt() -> None:
        if pressed:
            pressed.clear()
            raise KeyboardInterrupt

    for number in ours:
        signal.signal(number, hold)
    try:
        yield interrupt
    finally:
        restore()
    interrupt()
