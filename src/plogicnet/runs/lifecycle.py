"""The life cycle of a run: creating, locking, resuming, saving and reverting it."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.neural.protocol import Checkpoint
from plogicnet.runs import snapshots
from plogicnet.runs.checkpoints import ResumePoint, read_last, read_resume_point, write_iteration, write_start
from plogicnet.runs.directory import (
    E_STEP_FILE,
    LOCK_FILE,
    LOG_FILE,
    START_DIR,
    State,
    current_name,
    has_unfinished_training,
    require_only_run_files,
    require_started,
    snapshot_folder,
    state_of,
)
from plogicnet.runs.files import read_config, read_graph
from plogicnet.runs.integrity import damage_as_input_error
from plogicnet.support.errors import InputError
from plogicnet.support.files import lock_directory, make_directory, sync
from plogicnet.systems.system import system_of
from plogicnet.training.hooks import Hooks
from plogicnet.training.state import Outcome


def require_new(path: Path) -> None:
    """Raise InputError if the path is a file, or a directory that contains a run or other files.

    Example:
        >>> require_new(Path("nowhere"))
    """
    if path.is_file():
        raise InputError(f"{path} is a file. Use a new directory.")
    state = state_of(path)
    if state is State.COMPLETE:
        snapshot_folder(path)  # raises InputError if CURRENT was lost
        raise InputError(f"{path} contains a complete run. Use another directory, or remove this one.")
    require_only_run_files(path)
    if state is State.UNFINISHED:
        with lock_directory(path, LOCK_FILE):  # raises InputError if another process is training the run
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
    existing, requested = (replace(c.completed, device="auto", threads=0) for c in (_config(path), config))
    if existing != requested:
        raise InputError(f"{path} contains a run with other settings. Use another directory, or remove this one.")


def require_finished(path: Path) -> None:
    """Raise InputError if a directory contains an unfinished training, which another snapshot would supersede.

    Example:
        >>> require_finished(Path("nowhere"))
    """
    if has_unfinished_training(path):
        discard = f"discard it with `plogicnet runs revert {path} {name}`" if (name := current_name(path)) else ""
        raise InputError(
            f"{path} contains an unfinished training. Complete it with `plogicnet resume {path}`, or"
            f" {discard or 'remove the directory'}."
        )


def require_current(path: Path, snapshot: Path | None) -> None:
    """Raise InputError if another snapshot of a run was published since this one was loaded.

    Example:
        >>> require_current(Path("runs/family"), None)
    """
    is_here = snapshot is not None and snapshot.parents[1].resolve() == path.resolve()
    if snapshot is not None and is_here and snapshot.name != (name := current_name(path)):
        raise InputError(
            f"{path}: the current snapshot is {name or 'missing'}, but the model was loaded from {snapshot.name}."
            f" Load the run again, or go back with `plogicnet runs revert {path} {snapshot.name}`."
        )


def _require_writable(path: Path) -> None:
    """Raise InputError if a directory contains other files, or an unfinished training of a snapshot but no CURRENT."""
    require_only_run_files(path)
    if state_of(path) is State.COMPLETE and (path / START_DIR).exists():
        snapshot_folder(path)  # raises InputError if CURRENT was lost: the training must not be removed


def _config(path: Path) -> Config:
    """Return the settings of the unfinished training, or else of the current snapshot."""
    require_started(path)
    if has_unfinished_training(path):
        with damage_as_input_error(path):
            return read_config(path / START_DIR)
    return snapshots.read_snapshot(path, None, read_config)


@contextmanager
def open_run(path: Path, new: bool = False) -> Iterator[None]:
    """Create a run directory if it does not exist, lock it, and write log messages to its log file.

    Args:
        path: the run directory.
        new: whether the directory must not contain a run yet.
    """
    (require_new if new else _require_writable)(path)
    try:
        make_directory((path / LOCK_FILE).parent)
    except OSError as error:
        raise InputError(f"{path}: cannot create the directory: {error.strerror}") from None
    with lock_directory(path, LOCK_FILE):
        # check again, because another process could have written before the directory was locked
        (require_new if new else _require_writable)(path)
        sync((path / LOCK_FILE).parent)  # so that the directory is known as a run after a power failure
        snapshots.remove_leftovers(path)
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
    current = _config(path)
    requested = current.with_values(settings)
    system_of(requested).check(requested)  # raises InputError before the run is changed
    if not has_unfinished_training(path) and requested.em.iterations <= current.em.iterations:
        with suppress(OSError), lock_directory(path, LOCK_FILE):  # ignore a read-only disk
            snapshots.remove_leftovers(path)
        advice = f"Add an EM iteration with `plogicnet resume {path} --set em.iterations={current.em.iterations + 1}`."
        if not system_of(current).rules_predict or not (current.em.rules and current.em.neural):
            advice = "It is trained once, without EM, so more iterations have no effect."
        raise InputError(f"{path} is complete, so there is nothing to resume. {advice}")
    with open_run(path):
        if has_unfinished_training(path):
            yield read_resume_point(path, settings)
            return
        folder = snapshot_folder(path)
        with damage_as_input_error(path):
            config, graph = read_config(folder).with_values(settings), read_graph(folder)
            start = read_last(folder, config, graph)
        write_start(path, config, graph, None)
        yield start


def revert(path: Path, name: str, keep: int = snapshots.KEEP) -> str:
    """Make an earlier snapshot the current state of a run again. Return the name of the current snapshot."""
    snapshot_folder(path, name)  # raises InputError before the run is locked
    with open_run(path):
        return snapshots.revert(path, name, keep).name


def saving_hooks(path: Path, graph: KnowledgeGraph, candidates: int, hooks: Hooks) -> Hooks:
    """Return the hooks, extended to save each EM iteration and checkpoints of E-steps in a run directory."""

    def save(state: Outcome, best: Outcome) -> None:
        write_iteration(path, graph, candidates, state, best)
        hooks.save(state, best)

    return replace(hooks, save=save, checkpoint=hooks.checkpoint or Checkpoint(path / E_STEP_FILE))
