"""The training loop: any loss of any parameters, with validation, checkpoints and exact resumption."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from plogicnet.config import KGE
from plogicnet.kge.checkpoint import Place, Tensors, read_checkpoint, write_checkpoint
from plogicnet.kge.protocol import Checkpoint, Validate
from plogicnet.progress import Progress

LOOK_EVERY = 50
"""Steps between two looks at the loss: reading it back would hold up a GPU."""


class Stepper(Protocol):
    """What changes the parameters, a step at a time, and what it must remember from one step to the next."""

    def take(self, step: int) -> None:
        """Takes the step of this number."""
        ...

    def loss(self) -> float:
        """The last step's loss; waits for the device."""
        ...

    def settle(self) -> None:
        """Makes parameters and state those of the steps taken; asked for before either is read."""
        ...

    def state(self) -> Tensors:
        """What a checkpoint needs besides the parameters."""
        ...

    def go_to(self, step: int, state: Tensors) -> None:
        """Takes up what `state` gave after so many steps."""
        ...


def train(
    parameters: Tensors,
    stepper: Stepper,
    settings: KGE,
    fingerprint: str,
    progress: Progress,
    validate: Validate | None = None,
    checkpoint: Checkpoint | None = None,
) -> None:
    """Takes the steps that change the parameters, in place; they end as the best that `validate` has seen.

    Example:
        >>> from plogicnet.progress import silent
        >>> x, settings = torch.ones(1), KGE(steps=100, learning_rate=0.1)
        >>> train({"x": x}, Descent({"x": x}, lambda step: (x * x).sum(), settings), settings, "", silent)
        >>> bool(x.abs() < 0.1)
        True
    """
    training = Training(parameters, stepper, settings, fingerprint)
    if checkpoint:
        training.take_up(checkpoint)
    done = training.place.step
    shown = f"training {settings.model}, steps" + (f" after the first {done:,}" if done else "")
    with progress(shown, settings.steps - done) as advance, _whole_steps() as interrupt:
        try:
            training.run(validate, checkpoint, advance, interrupt)
        except KeyboardInterrupt:
            if training.whole:
                training.settle()
                if checkpoint:
                    training.write(checkpoint)
            raise
    if checkpoint:
        training.write(checkpoint)
    training.take_best()


class Descent:
    """Steps down loss(step) by Adam or Adagrad; the sampled recipe begins anew, at a tenth of the rate, half-way.

    After each step `bound` puts the parameters back within their bounds, where they have any.
    """

    def __init__(
        self,
        parameters: Tensors,
        loss: Callable[[int], torch.Tensor],
        settings: KGE,
        bound: Callable[[], None] = lambda: None,
    ) -> None:
        self.parameters, self.settings = list(parameters.values()), settings
        self.of_step, self.bound = loss, bound
        self.value = torch.zeros(())
        self.optimizer = self._new_optimizer(0)

    def take(self, step: int) -> None:
        """One step; parameters need gradients only while it is taken."""
        if step == self._half:
            self.optimizer = self._new_optimizer(step)
        try:
            for parameter in self.parameters:
                parameter.requires_grad_().grad = None
            value = self.of_step(step)
            value.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.value = value.detach()
        finally:
            for parameter in self.parameters:
                parameter.requires_grad_(False).grad = None
        self.bound()

    def loss(self) -> float:
        """The last step's loss."""
        return float(self.value)

    def settle(self) -> None:
        """Nothing: a step does all that it has to do."""

    def state(self) -> Tensors:
        """The optimiser's state."""
        state: dict[int, dict[str, torch.Tensor]] = self.optimizer.state_dict()["state"]
        return {f"{i}.{key}": tensor for i, of in state.items() for key, tensor in of.items()}

    def go_to(self, step: int, state: Tensors) -> None:
        """A new optimiser of the step's rate with that state."""
        self.optimizer = self._new_optimizer(step)
        of: dict[int, dict[str, Any]] = {}
        for name, tensor in state.items():
            index, _, key = name.partition(".")
            of.setdefault(int(index), {})[key] = tensor
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": of})

    @property
    def _half(self) -> int:
        """Where the rate falls; a softmax is trained at one rate."""
        return self.settings.steps // 2 if self.settings.recipe == "sampled" else -1

    def _new_optimizer(self, step: int) -> torch.optim.Optimizer:
        s = self.settings
        rate = s.learning_rate / (10 if 0 < self._half <= step else 1)
        if s.optimizer == "adam" or (s.optimizer == "auto" and s.recipe == "sampled"):
            return torch.optim.Adam(self.parameters, lr=rate, fused=True)
        # one pass over the tables instead of several; PyTorch has Adagrad's for a CPU alone
        on_cpu = self.parameters[0].device.type == "cpu"
        return torch.optim.Adagrad(self.parameters, lr=rate, fused=on_cpu or None)


class Training:
    """A training under way: its place, its parameters, what changes them, and the best parameters so far."""

    def __init__(self, parameters: Tensors, stepper: Stepper, settings: KGE, fingerprint: str) -> None:
        self.parameters, self.stepper, self.settings = parameters, stepper, settings
        self.place = Place(fingerprint)
        self.best: Tensors = {}
        self.whole = True
        self._written = (time.monotonic(), 0)

    def run(
        self,
        validate: Validate | None,
        checkpoint: Checkpoint | None,
        advance: Callable[[int, str], None],
        interrupt: Callable[[], None],
    ) -> None:
        """Steps until the end, or until validation has not gained for too long."""
        s, place = self.settings, self.place
        shown = place.step
        while True:
            # first of all, so that a training that stopped between a step and its validation makes up for it
            if validate and self._to_be_judged():
                self.settle()
                self._judge(validate())
            if place.step >= s.steps or place.waited >= s.patience:
                break
            self.whole = False
            self.stepper.take(place.step)
            place.step += 1
            self.whole = True
            if place.step % LOOK_EVERY == 0 or place.step == s.steps:
                note = f"loss {self._finite(self.stepper.loss()):.4f}" + (
                    "" if place.best is None else f", best {place.best:.4f}"
                )
                shown, done = place.step, place.step - shown
                advance(done, note)
            if checkpoint and self._due(checkpoint):
                self.write(checkpoint)
            interrupt()
        if place.step > shown:
            advance(place.step - shown, "")
        self.settle()
        self._finite(sum(float(p.abs().sum()) for p in self.parameters.values()))

    def settle(self) -> None:
        """Parameters and the stepper's state become those of the steps taken."""
        self.whole = False
        self.stepper.settle()
        self.whole = True

    def _to_be_judged(self) -> bool:
        step, every = self.place.step, self.settings.validate_every
        return bool(every) and step > self.place.judged and (step % every == 0 or step == self.settings.steps)

    def _judge(self, figure: float) -> None:
        place = self.place
        self.whole = False
        place.judged, place.waited = place.step, place.waited + 1
        if place.best is None or figure > place.best:
            place.best, place.best_step, place.waited = figure, place.step, 0
            self.best = {name: p.clone() for name, p in self.parameters.items()}
        self.whole = True

    def take_best(self) -> None:
        """The parameters become the best that were seen, where any were judged."""
        for name, tensor in self.best.items():
            self.parameters[name].copy_(tensor)

    def _due(self, checkpoint: Checkpoint) -> bool:
        seconds, step = time.monotonic() - self._written[0], self.place.step
        return seconds >= checkpoint.every_seconds or bool(
            checkpoint.every_steps and step - self._written[1] >= checkpoint.every_steps
        )

    def write(self, checkpoint: Checkpoint) -> None:
        """Writes where training stands."""
        self.settle()
        tensors = {f"parameter.{name}": p for name, p in self.parameters.items()}
        tensors |= {f"best.{name}": p for name, p in self.best.items()}
        tensors |= {f"state.{name}": tensor for name, tensor in self.stepper.state().items()}
        write_checkpoint(checkpoint.path, self.place, tensors)
        self._written = (time.monotonic(), self.place.step)

    def take_up(self, checkpoint: Checkpoint) -> None:
        """Goes to where a checkpoint of the same training stands, if there is one."""
        found = read_checkpoint(checkpoint.path, self.place.fingerprint)
        if found is None:
            return
        self.place, tensors = found
        state: Tensors = {}
        for name, tensor in tensors.items():
            kind, _, rest = name.partition(".")
            if kind == "state":
                state[rest] = tensor
            elif kind == "best":
                self.best[rest] = tensor.to(self.parameters[rest].device)
            else:
                self.parameters[rest].copy_(tensor)
        self.stepper.go_to(self.place.step, state)
        self._written = (time.monotonic(), self.place.step)

    def _finite(self, number: float) -> float:
        if not math.isfinite(number):
            raise FloatingPointError(
                f"training left the finite numbers by step {self.place.step}; a smaller kge.learning_rate"
                f" (now {self.settings.learning_rate:g}) usually helps"
            )
        return number


@contextmanager
def _whole_steps() -> Iterator[Callable[[], None]]:
    """Ctrl-C, and SIGTERM where it does the same, waits until asked for: no step is half done. A second does not."""
    pressed = False

    def hold(number: int, frame: object) -> None:  # noqa: ARG001
        nonlocal pressed
        pressed = True
        restore()

    def restore() -> None:
        for number in ours:
            signal.signal(number, signal.default_int_handler)

    def interrupt() -> None:
        nonlocal pressed
        if pressed:
            pressed = False
            raise KeyboardInterrupt

    ours = [
        number
        for number in (signal.SIGINT, signal.SIGTERM)
        if threading.current_thread() is threading.main_thread()
        and signal.getsignal(number) is signal.default_int_handler
    ]
    for number in ours:
        signal.signal(number, hold)
    try:
        yield interrupt
    finally:
        restore()
    interrupt()
