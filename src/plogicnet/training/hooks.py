"""What a training calls while it runs: one object, whose parts do nothing by default."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.neural.protocol import Checkpoint, NeuralModel
from plogicnet.support.progress import Clock, Progress, silent
from plogicnet.training.state import Iteration, Outcome


@dataclass(frozen=True)
class Hooks:
    """The callbacks of a training.

    Attributes:
        progress: shows how far long steps are.
        clock: takes the times.
        checkpoint: where an E-step saves its state.
        announce: called with the figures of each EM iteration.
        inspect: called with the state after each EM iteration; what it returns is added to the history. It decides
            nothing.
        save: called with the state after each EM iteration and the best state so far.
        fit_first: called instead of the first fit of an unguided model; it may load what another training fitted.
    """

    progress: Progress = silent
    clock: Clock = field(default_factory=Clock)
    checkpoint: Checkpoint | None = None
    announce: Callable[[Iteration], None] = lambda _: None
    inspect: Callable[[KnowledgeGraph, Outcome], Mapping[str, Any]] = lambda *_: {}
    save: Callable[[Outcome, Outcome], None] = lambda *_: None
    fit_first: Callable[[KnowledgeGraph, Config, NeuralModel, int, Callable[[], None]], None] = lambda *args: args[-1]()
