"""The order in which the files of a run are written; its log and the checkpoint of an E-step are written elsewhere.

A file with checksums is written after the files that it vouches for, and removed before one of them changes.
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
from plogicnet.runs.directory import GRAPH, OUTCOME, State, iteration_folder, kept_iterations, state_of
from plogicnet.runs.files import write_graph, write_outcome, write_timings
from plogicnet.runs.integrity import DamageError, read_sealed, write_sealed, write_summed
from plogicnet.support.errors import InputError
from plogicnet.support.files import clear_parts, still_locked
from plogicnet.training.state import Outcome
from plogicnet.version import VERSION

log = logging.getLogger(__name__)


def begin(path: Path, config: Config, graph: KnowledgeGraph, statements: Sequence[Statement] | None) -> None:
    """Writes what a training starts from, in the place of a run that is there.

    Args:
        path: the run directory.
        config: its settings.
        graph: its graph.
        statements: the rules given to the training; None where there is no training that could start again.
    """
    for name in (directory.BEGUN, directory.COMPLETE, "labels.tsv"):
        (path / name).unlink(missing_ok=True)
    _remove(path / directory.CHECKPOINT)
    (path / directory.CHECKPOINT).mkdir()
    _write_config(path, config)
    if statements is not None:
        write_summed(path / directory.WRITTEN, "".join(f"{statement}\n" for statement in statements))
    _write_begun(path, graph)


def keep(
    path: Path, graph: KnowledgeGraph, candidates: int, outcome: Outcome, best: Outcome, final: bool = False
) -> None:
    """Writes an EM iteration, so that training can be resumed from it; then removes those that are not needed.

    Args:
        path: the run directory.
        graph: its graph.
        candidates: how many rules were counted when they were mined.
        outcome: the iteration.
        best: the best iteration so far.
        final: whether the iteration is not trained further: only calibration and figures are left to do.
    """
    _restore(path, graph)
    if state_of(path) is State.COMPLETE:
        _remove(path / directory.CHECKPOINT)  # left behind by a process that was killed
    folder = iteration_folder(path, outcome.iteration)
    _remove(folder)  # half written, or damaged
    folder.mkdir(parents=True)
    about = {"lambda": outcome.lambda_, "iteration": outcome.iteration, "candidates": candidates}
    try:
        write_outcome(folder, graph, outcome)
        write_sealed(folder / directory.REACHED, about | {"best": best.iteration, "final": final}, OUTCOME)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # it only takes space on a full disk
        raise
    for checkpoint in folder.parent.glob(f"{Path(directory.E_STEP).stem}*"):
        checkpoint.unlink()  # that E-step is done
    _remove_unneeded(path, outcome.iteration, best.iteration)


def _remove_unneeded(path: Path, iteration: int, best: int) -> None:
    """Leaves the last iteration, the one before in case the last is damaged, and the best one that each refers to."""
    needed = {iteration, best}
    for before in [i for i in kept_iterations(path) if i < iteration][-1:]:
        with suppress(DamageError):
            needed |= {before, read_sealed(iteration_folder(path, before) / directory.REACHED)[0]["best"]}
    for other in set(kept_iterations(path)) - needed:
        shutil.rmtree(iteration_folder(path, other))


def publish(
    path: Path,
    config: Config,
    graph: KnowledgeGraph,
    outcome: Outcome,
    metrics: Mapping[str, object],
    seconds: Mapping[str, float],
) -> None:
    """Writes the files of a complete run; the last one, metrics.json, makes it complete."""
    _restore(path, graph)
    (path / directory.COMPLETE).unlink(missing_ok=True)  # before a file changes: a reader notices that it is gone
    _write_config(path, config)
    write_outcome(path, graph, outcome)
    write_timings(path, seconds)
    write_sealed(path / directory.COMPLETE, metrics, OUTCOME)
    tidy(path)


def tidy(path: Path) -> None:
    """Removes what a complete run no longer needs, perhaps left behind by a process that was killed."""
    shutil.rmtree(path / directory.CHECKPOINT, ignore_errors=True)
    clear_parts(path)


def reopen(path: Path, config: Config, graph: KnowledgeGraph, candidates: int, last: Outcome) -> None:
    """Makes a complete run an unfinished one after its last iteration, with settings that ask for more of them."""
    keep(path, graph, candidates, last, last)
    (path / directory.COMPLETE).replace(path / directory.SUPERSEDED)  # its files stay until the new ones are published
    _write_config(path, config)


def _write_config(path: Path, config: Config) -> None:
    # no other file could hold its checksum, for it may change alone
    write_summed(path / directory.CONFIG, config.to_yaml())


def _write_begun(path: Path, graph: KnowledgeGraph) -> None:
    write_graph(path, graph)
    write_sealed(path / directory.BEGUN, {"format": directory.FORMAT, "version": VERSION}, GRAPH)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _restore(path: Path, graph: KnowledgeGraph) -> None:
    """Writes files of the graph again that vanished during the training; raises where the whole directory did."""
    if not path.is_dir() or not still_locked(path):
        raise InputError(f"{path} is gone: the run directory was removed or replaced while it was being written to")
    names = (directory.BEGUN, *(GRAPH if graph.labels else GRAPH[:3]))
    gone = [name for name in names if not (path / name).is_file()]
    if gone:
        log.warning("%s: these files had vanished and are written again: %s", path, ", ".join(gone))
        _write_begun(path, graph)
