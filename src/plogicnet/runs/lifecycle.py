"""The life cycle of a run: creating, locking, resuming and saving it."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.neural.protocol import Checkpoint
from plogicnet.runs.directory import E_STEP_FILE, State, require_only_run_files, require_started, state_of
from plogicnet.runs.reading import ResumePoint, read_config, read_resume_point
from plogicnet.runs.writing import remove_leftovers, reopen, write_iteration
from plogicnet.support.errors import InputError
from plogicnet.support.files import lock_directory
from plogicnet.systems.system import system_of
from plogicnet.training.hooks import Hooks
from plogicnet.training.state import Outcome

LOG_FILE = "log.txt"


def require_new(path: Path) -> None:
    """Raise InputError if the path is a file, or a directory that contains a run or other files.

    Example:
        >>> require_new(Path("nowhere"))
    """
    if path.is_file():
        raise InputError(f"{path} is a file. Use a new directory.")
    state = state_of(path)
    if state is State.COMPLETE:
        raise InputError(f"{path} contains a complete run. Use another directory, or remove this one.")
    require_only_run_files(path)
    if state is State.UNFINISHED:
        with lock_directory(path):  # raises InputError if another process is training the run
            pass
        raise InputError(
            f"{path} contains an unfinished run. Complete it with `plogicnet resume {path}`, or remove it."
        )


def require_compatible(path: Path, config: Config) -> None:
    """Raise InputError unless a directory has a run with these settings, or a new run can be created in it.

    The values of `device` and `threads` can differ.

    Example:
        >>> require_compatible(Path("nowhere"), Config())
    """
    if state_of(path) is State.ABSENT:
        require_new(path)
        return
    require_started(path)
    existing, requested = (replace(c.completed, device="auto", threads=0) for c in (read_config(path), config))
    if existing != requested:
        raise InputError(f"{path} contains a run with other settings. Use another directory, or remove this one.")


@contextmanager
def open_run(path: Path, new: bool = False) -> Iterator[None]:
    """Create a run directory if it does not exist, lock it, and write log messages to its log file.

    Args:
        path: the run directory.
        new: whether the directory must not contain a run yet.
    """
    (require_new if new else require_only_run_files)(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot create the directory: {error.strerror}") from None
    with lock_directory(path):
        # check again, because another process could have written before the directory was locked
        (require_new if new else require_only_run_files)(path)
        handler = logging.FileHandler(path / LOG_FILE, mode="w" if new else "a", encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logging.getLogger("plogicnet").addHandler(handler)
        try:
            yield
        finally:
            logging.getLogger("plogicnet").removeHandler(handler)
            with suppress(OSError):  # ignore, for example, a full disk: no result depends on the log
                handler.close()


@contextmanager
def resume_run(path: Path, settings: Mapping[str, object]) -> Iterator[ResumePoint]:
    """Open a run to continue its training. For a complete run, the settings must add EM iterations."""
    require_started(path)
    current = read_config(path)
    requested = current.with_values(settings)
    system_of(requested).check(requested)  # raises InputError before the run is changed
    if state_of(path) is State.COMPLETE and requested.em.iterations <= current.em.iterations:
        with suppress(OSError), lock_directory(path):  # ignore a read-only disk
            remove_leftovers(path)
        advice = f"Add an EM iteration with `plogicnet resume {path} --set em.iterations={current.em.iterations + 1}`."
        if not system_of(current).rules_predict or not (current.em.rules and current.em.neural):
            advice = "It is trained once, without EM, so more iterations have no effect."
        raise InputError(f"{path} is complete, so there is nothing to resume. {advice}")
    with open_run(path):
        start = read_resume_point(path, settings)
        if state_of(path) is State.COMPLETE and start.last is not None:
            reopen(path, start.config, start.graph, start.candidates, start.last)
        yield start


def saving_hooks(path: Path, graph: KnowledgeGraph, candidates: int, hooks: Hooks) -> Hooks:
    """Return the hooks, extended to save each EM iteration and checkpoints of E-steps in a run directory."""

    def save(state: Outcome, best: Outcome) -> None:
        write_iteration(path, graph, candidates, state, best)
        hooks.save(state, best)

    return replace(hooks, save=save, checkpoint=hooks.checkpoint or Checkpoint(path / E_STEP_FILE))
