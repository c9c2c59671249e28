"""The checkpoint of an unfinished training: its start, and the EM iterations that were saved."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.rules import Statement, read_statements, write_statements
from plogicnet.runs.directory import (
    BASE_KEY,
    CHECKPOINT_DIR,
    CONFIG_FILE,
    E_STEP_FILE,
    GRAPH_FILES,
    METRICS_FILE,
    NEURAL_FILE,
    OUTCOME_FILES,
    SNAPSHOTS_DIR,
    START_DIR,
    WRITTEN_RULES_FILE,
    current_name,
    require_same_directory,
    require_started,
)
from plogicnet.runs.files import (
    read_config,
    read_graph,
    read_outcome,
    verify_files,
    write_config,
    write_graph,
    write_outcome,
)
from plogicnet.runs.integrity import (
    MANIFEST_FILE,
    RESTORE_ADVICE,
    DamageError,
    NewerFormatError,
    damage_as_input_error,
    link_intact,
    read_json,
    saved_files,
    write_manifest,
)
from plogicnet.support.errors import InputError
from plogicnet.support.files import atomic_directory, make_directory, remove_directory, write_text
from plogicnet.training.state import Outcome

log = logging.getLogger(__name__)
START_FILES = (CONFIG_FILE, *GRAPH_FILES[:3])
"""The files that every start of a training has."""


@dataclass(frozen=True)
class ResumePoint:
    """The point from which training starts or is resumed.

    Attributes:
        config: the settings.
        graph: the graph.
        statements: the user's rules; used only if `last` is None.
        last: the state after the last EM iteration; None if the first iteration is not done.
        best: the best state so far; None without em.patience.
        candidates: the number of candidate rules that mining counted.
    """

    config: Config
    graph: KnowledgeGraph
    statements: Sequence[Statement] = ()
    last: Outcome | None = None
    best: Outcome | None = None
    candidates: int = 0


def write_start(path: Path, config: Config, graph: KnowledgeGraph, statements: Sequence[Statement] | None) -> None:
    """Write the settings, the graph and the rules with which training starts. A previous checkpoint is removed.

    Args:
        path: the run directory. The caller must hold its lock.
        config: the settings.
        graph: the graph, equal to that of the current snapshot if there is one.
        statements: the user's rules; None if training starts from the current snapshot.
    """
    base = current_name(path)
    remove_directory(path / CHECKPOINT_DIR)
    make_directory(path / CHECKPOINT_DIR)
    with atomic_directory(path / START_DIR) as folder:
        linked = link_intact(folder, saved_files(path / SNAPSHOTS_DIR / base, GRAPH_FILES)) if base else {}
        if not linked.keys() >= set(GRAPH_FILES[:3]):
            linked = {}
            write_graph(folder, graph)
        write_config(folder, config)
        if statements is not None:
            write_statements(folder / WRITTEN_RULES_FILE, statements)
        write_manifest(folder, {BASE_KEY: base}, linked)


def write_iteration(path: Path, graph: KnowledgeGraph, candidates: int, outcome: Outcome, best: Outcome) -> None:
    """Write an EM iteration from which training can be resumed, then remove iterations that are no longer needed.

    Args:
        path: the run directory. The caller must hold its lock.
        graph: the graph.
        candidates: the number of candidate rules that mining counted.
        outcome: the state after the iteration.
        best: the best state so far.
    """
    require_same_directory(path)
    folder = iteration_folder(path, outcome.iteration)
    remove_directory(folder)  # an existing one is damaged
    make_directory(folder.parent)
    content = {"lambda": outcome.lambda_, "iteration": outcome.iteration, "candidates": candidates}
    with atomic_directory(folder) as temporary:
        write_outcome(temporary, graph, outcome)
        write_text(temporary / METRICS_FILE, json.dumps(content | {"best": best.iteration}, indent=1) + "\n")
        write_manifest(temporary, {})
    for checkpoint in folder.parent.glob(f"{Path(E_STEP_FILE).stem}*"):
        checkpoint.unlink()  # the E-step is done
    _remove_unneeded(path, outcome.iteration, best.iteration)


def _remove_unneeded(path: Path, iteration: int, best: int) -> None:
    """Remove all saved iterations except the last, the one before it, and the best one that each of them refers to.

    The one before is needed if the last is damaged.
    """
    needed = {iteration, best}
    for previous in [i for i in saved_iterations(path) if i < iteration][-1:]:
        with suppress(DamageError, LookupError):
            needed |= {previous, read_json(iteration_folder(path, previous) / METRICS_FILE)["best"]}
    for other in set(saved_iterations(path)) - needed:
        remove_directory(iteration_folder(path, other))


def iteration_folder(path: Path, iteration: int) -> Path:
    """Return the directory of an EM iteration.

    Example:
        >>> iteration_folder(Path("runs/family"), 2).as_posix()
        'runs/family/work/checkpoint/2'
    """
    return path / CHECKPOINT_DIR / str(iteration)


def saved_iterations(path: Path) -> list[int]:
    """Return the numbers of the saved EM iterations in ascending order."""
    names = [file.parent.name for file in (path / CHECKPOINT_DIR).glob(f"*/{MANIFEST_FILE}")]
    return sorted(int(name) for name in names if name.isdecimal())


def read_resume_point(path: Path, settings: Mapping[str, object]) -> ResumePoint:
    """Return the point from which to resume an unfinished training.

    Damaged points are skipped with a warning, and the latest intact point is returned.
    """
    with damage_as_input_error(path):
        require_started(path)
        start = path / START_DIR
        verify_files(start, START_FILES, GRAPH_FILES)
        config, graph = read_config(start).with_values(settings), read_graph(start)
        damaged: list[tuple[str, InputError]] = []
        for name, read in _resume_points(path, config, graph):
            try:
                point = read()
            except (DamageError, NewerFormatError) as error:  # the same version wrote `start`, so the number is wrong
                damaged.append((name, error))
                continue
            for skipped, reason in damaged:
                log.warning("%s is skipped: %s", skipped, str(reason).removesuffix(f" {RESTORE_ADVICE}"))
            if damaged:
                log.warning("%s: resuming the training from %s", path, name)
            return point
        raise damaged[-1][1]


def _resume_points(
    path: Path, config: Config, graph: KnowledgeGraph
) -> Iterator[tuple[str, Callable[[], ResumePoint]]]:
    """Yield the name of each possible resume point and a function that reads it, latest first."""
    for iteration in reversed(saved_iterations(path)):
        yield f"EM iteration {iteration}", partial(_read_iteration, path, config, graph, iteration)
    if base := current_name(path):
        yield f"snapshot {base}", partial(read_last, path / SNAPSHOTS_DIR / base, config, graph)
    else:
        yield "the beginning", partial(_read_beginning, path / START_DIR, config, graph)


def read_last(folder: Path, config: Config, graph: KnowledgeGraph) -> ResumePoint:
    """Return the resume point after the iteration that a snapshot contains. Later iterations are removed."""
    verify_files(folder, (*OUTCOME_FILES[:3], METRICS_FILE, *[NEURAL_FILE] * config.em.neural))
    outcome, metrics = read_outcome(folder, config, graph)
    last = replace(outcome, history=outcome.history[: outcome.iteration])
    return ResumePoint(config, graph, (), last, last if config.em.patience else None, metrics["candidates"])


def _read_iteration(path: Path, config: Config, graph: KnowledgeGraph, iteration: int) -> ResumePoint:
    """Return the resume point after an EM iteration."""

    def read(saved: int) -> tuple[Outcome, dict[str, Any]]:
        folder = iteration_folder(path, saved)
        verify_files(folder, (*OUTCOME_FILES[:3], METRICS_FILE, *[NEURAL_FILE] * config.em.neural))
        return read_outcome(folder, config, graph)

    last, content = read(iteration)
    best, best_iteration = None, content["best"]
    if config.em.patience:
        if best_iteration not in saved_iterations(path):
            raise DamageError(
                f"{path} is damaged: its best EM iteration, {best_iteration}, is missing. {RESTORE_ADVICE}"
            )
        best = last if best_iteration == iteration else read(best_iteration)[0]
    return ResumePoint(config, graph, (), last, best, content["candidates"])


def _read_beginning(start: Path, config: Config, graph: KnowledgeGraph) -> ResumePoint:
    """Return the resume point before the first EM iteration."""
    verify_files(start, [WRITTEN_RULES_FILE])
    file = start / WRITTEN_RULES_FILE
    return ResumePoint(config, graph, read_statements(file, graph))
