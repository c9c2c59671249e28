"""The life cycle of a run: how a directory becomes one, is resumed, and is written by one process at a time."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.neural.protocol import Checkpoint
from plogicnet.runs.directory import E_STEP, State, require_begun, require_own, state_of
from plogicnet.runs.reading import Unfinished, read_config, read_unfinished
from plogicnet.runs.writing import keep, reopen, tidy
from plogicnet.support.errors import InputError
from plogicnet.support.files import locked
from plogicnet.systems.system import system_of
from plogicnet.training.hooks import Hooks
from plogicnet.training.state import Outcome

LOG = "log.txt"


def require_new(path: Path) -> None:
    """Raises where a new run cannot be made: a run, a file, or files that are not a run's are there.

    Example:
        >>> require_new(Path("nowhere"))
    """
    if path.is_file():
        raise InputError(f"{path}: a file is there; name a new directory")
    state = state_of(path)
    if state is State.COMPLETE:
        raise InputError(f"{path}: a finished run is there; name another directory or remove it")
    require_own(path)
    if state is State.UNFINISHED:
        with locked(path):  # raises where another process is training it: then there is nothing to remove
            pass
        raise InputError(f"{path}: an unfinished run is there; `plogicnet resume {path}` completes it, or remove it")


def require_compatible(path: Path, config: Config) -> None:
    """Raises unless a directory holds a run with these settings, device and threads apart, or a new run can be made.

    Example:
        >>> require_compatible(Path("nowhere"), Config())
    """
    if state_of(path) is State.ABSENT:
        require_new(path)
        return
    require_begun(path)
    own, asked = (replace(c.completed, device="auto", threads=0) for c in (read_config(path), config))
    if own != asked:
        raise InputError(f"{path}: a run with other settings is there; name another directory or remove it")


@contextmanager
def open_run(path: Path, new: bool = False) -> Iterator[None]:
    """Keeps a run directory locked, and its log open; makes the directory where there is none.

    Args:
        path: the run directory.
        new: whether no run may be there yet.
    """
    (require_new if new else require_own)(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be made: {error.strerror}") from None
    with locked(path):
        (require_new if new else require_own)(path)  # another process may have written here before the lock
        handler = logging.FileHandler(path / LOG, mode="w" if new else "a", encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logging.getLogger("plogicnet").addHandler(handler)
        try:
            yield
        finally:
            logging.getLogger("plogicnet").removeHandler(handler)
            with suppress(OSError):  # a full disk: no result depends on the log
                handler.close()


@contextmanager
def resumed_run(path: Path, settings: Mapping[str, object]) -> Iterator[Unfinished]:
    """Opens a run where its training stopped; a complete one only where the settings ask for more EM iterations."""
    require_begun(path)
    own = read_config(path)
    asked = own.with_values(settings)
    system_of(asked).check(asked)  # before the run is changed
    if state_of(path) is State.COMPLETE and asked.em.iterations <= own.em.iterations:
        with suppress(OSError), locked(path):  # a disk may be read-only
            tidy(path)
        more = f"`plogicnet resume {path} --set em.iterations={own.em.iterations + 1}` adds an EM iteration"
        if not system_of(own).rules_predict or not (own.em.rules and own.em.neural):
            more = "it is trained once, without EM"
        raise InputError(f"{path} is complete; there is nothing to resume ({more})")
    with open_run(path):
        start = read_unfinished(path, settings)
        if state_of(path) is State.COMPLETE and start.last is not None:
            reopen(path, start.config, start.graph, start.candidates, start.last)
        yield start


def saving(path: Path, graph: KnowledgeGraph, candidates: int, hooks: Hooks) -> Hooks:
    """The same hooks, which also save the training in a run directory: each EM iteration, and the current E-step."""

    def save(now: Outcome, best: Outcome) -> None:
        keep(path, graph, candidates, now, best)
        hooks.save(now, best)

    return replace(hooks, save=save, checkpoint=hooks.checkpoint or Checkpoint(path / E_STEP))
