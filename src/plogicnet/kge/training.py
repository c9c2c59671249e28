"""The training loop: any loss of any parameters, with validation, checkpoints and exact resumption."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from plogicnet.config import KGE
from plogicnet.kge.checkpoint import Place, Tensors, read_checkpoint, write_checkpoint
from plogicnet.kge.protocol import Checkpoint, Validate
from plogicnet.progress import Progress

LOOK_EVERY = 50
"""Steps between two looks at the loss: reading it back would hold up a GPU."""


def train(
    parameters: Tensors,
    loss: Callable[[int], torch.Tensor],
    settings: KGE,
    fingerprint: str,
    progress: Progress,
    validate: Validate | None = None,
    checkpoint: Checkpoint | None = None,
) -> None:
    """Minimises loss(step) over the parameters, in place; they end as the best that `validate` has seen.

    Example:
        >>> from plogicnet.progress import silent
        >>> x = torch.ones(1)
        >>> train({"x": x}, lambda step: (x * x).sum(), KGE(steps=100, learning_rate=0.1), "", silent)
        >>> bool(x.abs() < 0.1)
        True
    """
    for parameter in parameters.values():
        parameter.requires_grad_()
    try:
        training = Training(parameters, settings, fingerprint)
        if checkpoint:
            training.take_up(checkpoint)
        with progress(f"training {settings.model}, steps", settings.steps) as advance, _whole_steps() as interrupt:
            if training.place.step:
                advance(training.place.step)
            try:
                training.run(loss, validate, checkpoint, advance, interrupt)
            except KeyboardInterrupt:
                if checkpoint and training.whole:
                    training.write(checkpoint)
                raise
        if checkpoint:
            training.write(checkpoint)
        training.take_best()
    finally:
        for parameter in parameters.values():
            parameter.requires_grad_(False).grad = None


class Training:
    """A training under way: its place, its parameters, its optimiser, and the best parameters so far."""

    def __init__(self, parameters: Tensors, settings: KGE, fingerprint: str) -> None:
        self.parameters, self.settings = parameters, settings
        self.place = Place(fingerprint)
        self.best: Tensors = {}
        self.whole = True
        self.optimizer = self._new_optimizer()
        self._written = (time.monotonic(), 0)

    def run(
        self,
        loss: Callable[[int], torch.Tensor],
        validate: Validate | None,
        checkpoint: Checkpoint | None,
        advance: Callable[[int, str], None],
        interrupt: Callable[[], None],
    ) -> None:
        """Steps until the end, or until validation has not gained for too long."""
        s, place = self.settings, self.place
        value, shown = torch.zeros(()), place.step
        while True:
            # first of all, so that a training that stopped between a step and its validation makes up for it
            if validate and self._to_be_judged():
                self._judge(validate())
            if place.step >= s.steps or place.waited >= s.patience:
                break
            value = self._step(loss)
            if place.step % LOOK_EVERY == 0 or place.step == s.steps:
                note = f"loss {self._finite(value):.4f}" + ("" if place.best is None else f", best {place.best:.4f}")
                shown, done = place.step, place.step - shown
                advance(done, note)
            if checkpoint and self._due(checkpoint):
                self.write(checkpoint)
            interrupt()
        if place.step > shown:
            advance(place.step - shown, "")
        self._finite(sum((p.detach().abs().sum() for p in self.parameters.values()), torch.zeros(())))

    def _step(self, loss: Callable[[int], torch.Tensor]) -> torch.Tensor:
        step = self.place.step
        if step == self._half:
            self.optimizer = self._new_optimizer()
        self.optimizer.zero_grad()
        value = loss(step)
        value.backward()  # type: ignore[no-untyped-call]
        self.whole = False
        self.optimizer.step()
        self.place.step += 1
        self.whole = True
        return value.detach()

    @property
    def _half(self) -> int:
        """Where the rate falls; a softmax is trained at one rate."""
        return self.settings.steps // 2 if self.settings.recipe == "sampled" else -1

    def _new_optimizer(self) -> torch.optim.Optimizer:
        s, parameters = self.settings, list(self.parameters.values())
        rate = s.learning_rate / (10 if 0 < self._half <= self.place.step else 1)
        adam = s.optimizer == "adam" or (s.optimizer == "auto" and s.recipe == "sampled")
        if adam:
            return torch.optim.Adam(parameters, lr=rate, fused=True)
        # one pass over the tables instead of several; PyTorch has Adagrad's for a CPU alone
        return torch.optim.Adagrad(parameters, lr=rate, fused=parameters[0].device.type == "cpu" or None)

    def _to_be_judged(self) -> bool:
        step, every = self.place.step, self.settings.validate_every
        return bool(every) and step > self.place.judged and (step % every == 0 or step == self.settings.steps)

    def _judge(self, figure: float) -> None:
        place = self.place
        place.judged, place.waited = place.step, place.waited + 1
        if place.best is None or figure > place.best:
            place.best, place.best_step, place.waited = figure, place.step, 0
            self.best = {name: p.detach().clone() for name, p in self.parameters.items()}

    def take_best(self) -> None:
        """The parameters become the best that were seen, where any were judged."""
        with torch.no_grad():
            for name, tensor in self.best.items():
                self.parameters[name].copy_(tensor)

    def _due(self, checkpoint: Checkpoint) -> bool:
        seconds, step = time.monotonic() - self._written[0], self.place.step
        return seconds >= checkpoint.every_seconds or bool(
            checkpoint.every_steps and step - self._written[1] >= checkpoint.every_steps
        )

    def write(self, checkpoint: Checkpoint) -> None:
        """Writes where training stands."""
        state: dict[int, dict[str, torch.Tensor]] = self.optimizer.state_dict()["state"]
        tensors = {f"parameter.{name}": p for name, p in self.parameters.items()}
        tensors |= {f"best.{name}": p for name, p in self.best.items()}
        tensors |= {f"optimizer.{i}.{key}": t for i, of in state.items() for key, t in of.items()}
        write_checkpoint(checkpoint.path, self.place, tensors)
        self._written = (time.monotonic(), self.place.step)

    def take_up(self, checkpoint: Checkpoint) -> None:
        """Goes to where a checkpoint of the same training stands, if there is one."""
        found = read_checkpoint(checkpoint.path, self.place.fingerprint)
        if found is None:
            return
        self.place, tensors = found
        self.optimizer = self._new_optimizer()
        state: dict[int, dict[str, Any]] = {}
        for name, tensor in tensors.items():
            kind, _, rest = name.partition(".")
            if kind == "optimizer":
                index, _, key = rest.partition(".")
                state.setdefault(int(index), {})[key] = tensor
            elif kind == "best":
                self.best[rest] = tensor.to(self.parameters[rest].device)
            else:
                with torch.no_grad():
                    self.parameters[rest].copy_(tensor)
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": state})
        self._written = (time.monotonic(), self.place.step)

    def _finite(self, value: torch.Tensor) -> float:
        number = float(value)
        if not math.isfinite(number):
            raise FloatingPointError(
                f"training left the finite numbers by step {self.place.step}; a smaller kge.learning_rate"
                f" (now {self.settings.learning_rate:g}) usually helps"
            )
        return number


@contextmanager
def _whole_steps() -> Iterator[Callable[[], None]]:
    """Ctrl-C waits until it is asked for, so that no step is half done; a second one does not wait."""
    pressed = False

    def hold(number: int, frame: object) -> None:  # noqa: ARG001
        nonlocal pressed
        pressed = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        nonlocal pressed
        if pressed:
            pressed = False
            raise KeyboardInterrupt

    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, hold)
    try:
        yield interrupt
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupt()
