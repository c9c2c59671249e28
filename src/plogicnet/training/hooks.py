"""The callbacks of training."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.neural.protocol import Checkpoint, NeuralModel
from plogicnet.support.progress import Progress, Timer, no_progress
from plogicnet.training.selection import validation_mrr
from plogicnet.training.state import Iteration, Outcome


@dataclass(frozen=True)
class Hooks:
    """The callbacks of training. The defaults do nothing.

    Attributes:
        progress: progress display for long steps.
        clock: timer of the parts of training.
        checkpoint: the checkpoint file of E-steps.
        on_iteration: called with the metrics of each EM iteration.
        inspect: called with the graph and the state after each EM iteration. Its result is added to the history, and
            has no effect on training.
        save: called after each EM iteration, with the current state and the best state so far.
        validate: called in an E-step after every `neural.validate_every` steps. It returns the metric for early
            stopping. If it raises an error, training ends.
        fit_first: called in the first E-step instead of `NeuralModel.fit`, unless the system adds an extra objective.
            The last argument is a function that fits the model. The callback can load the parameters from another run
            instead.
    """

    progress: Progress = no_progress
    clock: Timer = field(default_factory=Timer)
    checkpoint: Checkpoint | None = None
    on_iteration: Callable[[Iteration], None] = lambda _: None
    inspect: Callable[[KnowledgeGraph, Outcome], Mapping[str, Any]] = lambda *_: {}
    save: Callable[[Outcome, Outcome], None] = lambda *_: None
    validate: Callable[[KnowledgeGraph, Config, NeuralModel], float] = validation_mrr
    fit_first: Callable[[KnowledgeGraph, Config, NeuralModel, int, Callable[[], None]], None] = lambda *args: args[-1]()
