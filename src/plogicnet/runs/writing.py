"""Functions that write the files of a run, except its log and the checkpoints of E-steps, in a safe order.

A file with checksums is written after the files that it covers, and removed before one of these files changes.
"""

import logging
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.rules import Statement
from plogicnet.runs import directory
from plogicnet.runs.directory import GRAPH_FILES, OUTCOME_FILES, State, iteration_folder, saved_iterations, state_of
from plogicnet.runs.files import write_graph, write_outcome, write_timings
from plogicnet.runs.integrity import (
    DamageError,
    read_json_with_checksums,
    write_json_with_checksums,
    write_text_with_checksum,
)
from plogicnet.support.errors import InputError
from plogicnet.support.files import remove_partial_files, still_locked
from plogicnet.training.state import Outcome
from plogicnet.version import VERSION

log = logging.getLogger(__name__)


def write_start(path: Path, config: Config, graph: KnowledgeGraph, statements: Sequence[Statement] | None) -> None:
    """Write the settings, the graph and the rules with which training starts. An existing run is replaced.

    Args:
        path: the run directory.
        config: the settings.
        graph: the graph.
        statements: the user's rules; None if training cannot restart from the beginning.
    """
    for name in (directory.RUN_FILE, directory.METRICS_FILE, "labels.tsv"):
        (path / name).unlink(missing_ok=True)
    _remove_folder(path / directory.CHECKPOINT_DIR)
    (path / directory.CHECKPOINT_DIR).mkdir()
    _write_config(path, config)
    if statements is not None:
        write_text_with_checksum(
            path / directory.WRITTEN_RULES_FILE, "".join(f"{statement}\n" for statement in statements)
        )
    _write_graph_and_run_file(path, graph)


def write_iteration(
    path: Path, graph: KnowledgeGraph, candidates: int, outcome: Outcome, best: Outcome, final: bool = False
) -> None:
    """Write an EM iteration from which training can be resumed, then remove iterations that are no longer needed.

    Args:
        path: the run directory.
        graph: the graph.
        candidates: the number of candidate rules that mining counted.
        outcome: the state after the iteration.
        best: the best state so far.
        final: whether training ends with this iteration, so that only calibration and evaluation remain.
    """
    _restore_files(path, graph)
    if state_of(path) is State.COMPLETE:
        _remove_folder(path / directory.CHECKPOINT_DIR)  # a killed process left it
    folder = iteration_folder(path, outcome.iteration)
    _remove_folder(folder)  # an existing one is incomplete or damaged
    folder.mkdir(parents=True)
    content = {"lambda": outcome.lambda_, "iteration": outcome.iteration, "candidates": candidates}
    try:
        write_outcome(folder, graph, outcome)
        write_json_with_checksums(
            folder / directory.ITERATION_FILE, content | {"best": best.iteration, "final": final}, OUTCOME_FILES
        )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # free the space, for example on a full disk
        raise
    for checkpoint in folder.parent.glob(f"{Path(directory.E_STEP_FILE).stem}*"):
        checkpoint.unlink()  # the E-step is done
    _remove_unneeded(path, outcome.iteration, best.iteration)


def _remove_unneeded(path: Path, iteration: int, best: int) -> None:
    """Remove all saved iterations except the last, the one before it, and the best one that each of them refers to.

    The one before is needed if the last is damaged.
    """
    needed = {iteration, best}
    for previous in [i for i in saved_iterations(path) if i < iteration][-1:]:
        with suppress(DamageError):
            needed |= {
                previous,
                read_json_with_checksums(iteration_folder(path, previous) / directory.ITERATION_FILE)[0]["best"],
            }
    for other in set(saved_iterations(path)) - needed:
        shutil.rmtree(iteration_folder(path, other))


def publish(
    path: Path,
    config: Config,
    graph: KnowledgeGraph,
    outcome: Outcome,
    metrics: Mapping[str, object],
    seconds: Mapping[str, float],
) -> None:
    """Write the files of a complete run. The last one, metrics.json, makes the run complete."""
    _restore_files(path, graph)
    (path / directory.METRICS_FILE).unlink(missing_ok=True)  # before other files change, so that readers notice
    _write_config(path, config)
    write_outcome(path, graph, outcome)
    write_timings(path, seconds)
    write_json_with_checksums(path / directory.METRICS_FILE, metrics, OUTCOME_FILES)
    remove_leftovers(path)


def remove_leftovers(path: Path) -> None:
    """Remove the files that a complete run no longer needs, and the leftovers of a killed process."""
    shutil.rmtree(path / directory.CHECKPOINT_DIR, ignore_errors=True)
    remove_partial_files(path)


def reopen(path: Path, config: Config, graph: KnowledgeGraph, candidates: int, last: Outcome) -> None:
    """Turn a complete run into an unfinished one with settings for more iterations, to be resumed after the last."""
    write_iteration(path, graph, candidates, last, last)
    # the other files stay until the new ones are published
    (path / directory.METRICS_FILE).replace(path / directory.SUPERSEDED_METRICS_FILE)
    _write_config(path, config)


def _write_config(path: Path, config: Config) -> None:
    # the checksum is in the file itself, because the settings can change without any other file
    write_text_with_checksum(path / directory.CONFIG_FILE, config.to_yaml())


def _write_graph_and_run_file(path: Path, graph: KnowledgeGraph) -> None:
    write_graph(path, graph)
    write_json_with_checksums(path / directory.RUN_FILE, {"format": directory.FORMAT, "version": VERSION}, GRAPH_FILES)


def _remove_folder(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _restore_files(path: Path, graph: KnowledgeGraph) -> None:
    """Write missing files of the graph again. Raise InputError if the directory was removed or replaced."""
    if not path.is_dir() or not still_locked(path):
        raise InputError(f"{path}: the run directory was removed or replaced during training. Train the run again.")
    names = (directory.RUN_FILE, *(GRAPH_FILES if graph.labels else GRAPH_FILES[:3]))
    missing = [name for name in names if not (path / name).is_file()]
    if missing:
        log.warning("%s: writing missing files again: %s", path, ", ".join(missing))
        _write_graph_and_run_file(path, graph)
