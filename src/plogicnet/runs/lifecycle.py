"""The life cycle of a run: creating, locking, resuming, saving and reverting it."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.neural.protocol import Checkpoint
from plogicnet.runs import snapshots
from plogicnet.runs.checkpoints import (
    START_FILES,
    ResumePoint,
    read_last,
    read_resume_point,
    write_iteration,
    write_start,
)
from plogicnet.runs.directory import (
    CONFIG_FILE,
    E_STEP_FILE,
    GRAPH_FILES,
    LOCK_FILE,
    LOG_FILE,
    START_DIR,
    State,
    current_name,
    has_unfinished_training,
    require_name,
    require_only_run_files,
    require_run_directory,
    require_started,
    snapshot_folder,
    state_of,
    written_names,
)
from plogicnet.runs.files import read_config, read_graph, verify_files
from plogicnet.runs.integrity import DamageError, damage_as_input_error
from plogicnet.runs.snapshots import Snapshot, current_snapshot
from plogicnet.support.errors import InputError, quote_argument
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
            f"{path} contains an unfinished run. Complete it with `plogicnet resume {quote_argument(path)}`, or"
            " remove it."
        )


def require_compatible(path: Path, config: Config) -> None:
    """Raise InputError unless a directory has a run with these settings, or a new run can be created in it.

    The values of `device` and `threads` can differ, and so can the plan of a mining budget.

    Example:
        >>> require_compatible(Path("nowhere"), Config())
    """
    if state_of(path) is State.ABSENT:
        require_new(path)
        return
    existing, requested = (replace(c.completed, device="auto", threads=0) for c in (_config(path), config))
    if requested.rules.budget_s:
        names = ("budget_s", "sampled_walks", "counted_paths")
        existing = existing.with_values({f"rules.{name}": getattr(requested.rules, name) for name in names})
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
            f"{path} contains an unfinished training. Complete it with `plogicnet resume {quote_argument(path)}`, or"
            f" {discard or 'remove the directory'}."
        )


def require_current(path: Path, snapshot: Snapshot | None) -> None:
    """Raise InputError if another snapshot of a run was published since this one was loaded.

    Example:
        >>> require_current(Path("runs/family"), None)
    """
    if snapshot is None or not snapshot.is_in(path):
        return
    name, is_same = snapshot_folder(path).name, True
    with suppress(DamageError):  # a damaged one is replaced
        is_same = current_snapshot(path).digest == snapshot.digest
    if name != snapshot.name or not is_same:
        raise InputError(
            f"{path}: the current snapshot is {name}, but the model was loaded from another one ({snapshot.name})."
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
            verify_files(path / START_DIR, [CONFIG_FILE])
            return read_config(path / START_DIR)
    return snapshots.read_settings(path)


@contextmanager
def open_run(path: Path, new: bool = False, check: Callable[[Path], None] | None = None) -> Iterator[None]:
    """Create a run directory if it does not exist, lock it, and write log messages to its log file.

    Args:
        path: the run directory.
        new: whether the directory must not contain a run yet.
        check: raises InputError if the directory cannot be used, instead of the default checks.
    """
    check = check or (require_new if new else _require_writable)
    check(path)
    try:
        make_directory((path / LOCK_FILE).parent)
    except OSError as error:
        raise InputError(f"{path}: cannot create the directory: {error.strerror}") from None
    with lock_directory(path, LOCK_FILE):
        check(path)  # again, because another process could have written before the directory was locked
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
    if message := _nothing_to_resume(path, settings):
        with suppress(OSError), lock_directory(path, LOCK_FILE):  # ignore a read-only disk
            snapshots.remove_leftovers(path)
        raise InputError(message)
    with open_run(path):
        if has_unfinished_training(path):
            yield read_resume_point(path, settings)
            return
        if message := _nothing_to_resume(path, settings):  # another process added the iterations
            raise InputError(message)
        folder = snapshot_folder(path)
        with damage_as_input_error(path):
            verify_files(folder, START_FILES, GRAPH_FILES)
            config, graph = read_config(folder).with_values(settings), read_graph(folder)
            start = read_last(folder, config, graph)
        write_start(path, config, graph, None)
        yield start


def _nothing_to_resume(path: Path, settings: Mapping[str, object]) -> str:
    """Return the reason why a run cannot be resumed, or an empty string. Raise InputError if the settings are wrong."""
    current = _config(path)
    requested = current.with_values(settings)
    system_of(requested).check(requested)
    if has_unfinished_training(path) or requested.em.iterations > current.em.iterations:
        return ""
    advice = f"Add an EM iteration with `plogicnet resume {path} --set em.iterations={current.em.iterations + 1}`."
    if not system_of(current).rules_predict or not (current.em.rules and current.em.neural):
        advice = "It is trained once, without EM, so more iterations have no effect."
    return f"{path} is complete, so there is nothing to resume. {advice}"


def revert(path: Path, name: str, keep: int | None = None) -> str:
    """Make an earlier snapshot the current state of a run again. Return the name of the current snapshot.

    This also restores a run whose file CURRENT is missing or damaged. Old snapshots are removed only with `keep`.
    """
    require_run_directory(path)
    require_name(path, name, written_names(path))  # before the run is locked
    with open_run(path, check=require_only_run_files):
        return snapshots.publish_again(path, name, keep).name


def saving_hooks(path: Path, graph: KnowledgeGraph, candidates: int, hooks: Hooks) -> Hooks:
    """Return the hooks, extended to save each EM iteration and checkpoints of E-steps in a run directory."""

    def save(state: Outcome, best: Outcome) -> None:
        write_iteration(path, graph, candidates, state, best)
        hooks.save(state, best)

    return replace(hooks, save=save, checkpoint=hooks.checkpoint or Checkpoint(path / E_STEP_FILE))
