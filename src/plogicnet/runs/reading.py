"""Functions that read complete and unfinished runs, and verify their files."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.rules import RuleTable, Statement, parse_statements
from plogicnet.runs import directory
from plogicnet.runs.directory import (
    OUTCOME_FILES,
    RULES_FILE,
    State,
    require_complete,
    require_started,
    saved_iterations,
    state_of,
)
from plogicnet.runs.files import read_graph, read_outcome
from plogicnet.runs.integrity import (
    RESTORE_ADVICE,
    DamageError,
    damage_as_input_error,
    read_json_with_checksums,
    read_text_with_checksum,
)
from plogicnet.support.errors import InputError
from plogicnet.support.files import checksum, is_locked
from plogicnet.training.state import Outcome

log = logging.getLogger(__name__)


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
        final: whether training ended with `last`, so that only calibration and evaluation remain.
    """

    config: Config
    graph: KnowledgeGraph
    statements: Sequence[Statement] = ()
    last: Outcome | None = None
    best: Outcome | None = None
    candidates: int = 0
    final: bool = False


def read_config(path: Path) -> Config:
    """Return the settings of a run, or raise DamageError if the file was edited."""
    file = path / directory.CONFIG_FILE
    advice = (
        "Restore the file, because the run was trained with other settings. Set the device and the threads with"
        f" --device and --threads. For more EM iterations, use `plogicnet resume {path} --set em.iterations=N`. For any"
        f" other setting, train a new run with `plogicnet train GRAPH --config {file} --out ANOTHER`."
    )
    return Config().with_yaml(read_text_with_checksum(file, advice), str(file))


def read_complete(
    path: Path, settings: Mapping[str, object], edited: bool = False
) -> tuple[Config, KnowledgeGraph, Outcome, dict[str, Any]]:
    """Return the settings, the graph, the trained model and the content of metrics.json of a complete run.

    Args:
        path: the run directory.
        settings: settings to override, by dotted key.
        edited: whether to accept an edited rules.tsv.
    """
    with _detect_writer(path), damage_as_input_error(path):
        require_complete(path)
        config, graph = read_config(path).with_values(settings), read_graph(path)
        metrics_file = path / directory.METRICS_FILE
        if not edited:
            _require_unedited(path, metrics_file)
        return config, graph, *read_outcome(path, metrics_file, config, graph, OUTCOME_FILES[1:])


def read_rules(path: Path) -> RuleTable:
    """Return the rules of a complete run by descending weight, then the constraints."""
    with _detect_writer(path):
        require_complete(path)
        _require_unedited(path, path / directory.METRICS_FILE)
        return RuleTable.read(path / RULES_FILE).by_weight()


def read_resume_point(path: Path, settings: Mapping[str, object]) -> ResumePoint:
    """Return the point from which to resume a run. A complete run is resumed after its last iteration.

    Damaged points are skipped with a warning, and the latest intact point is returned.
    """
    with damage_as_input_error(path):
        require_started(path)
        config, graph = read_config(path).with_values(settings), read_graph(path)
        damaged: list[tuple[str, DamageError]] = []
        for name, read in _resume_points(path, config, graph):
            try:
                point = read()
            except DamageError as error:
                damaged.append((name, error))
                continue
            for skipped, reason in damaged:
                log.warning("%s is skipped: %s", skipped, str(reason).removesuffix(f" {RESTORE_ADVICE}"))
            if damaged:
                log.warning("%s: resuming the training from %s", path, name)
            return point
        raise (
            damaged[-1][1]
            if damaged
            else DamageError(f"{path}: nothing was saved to resume from. {directory.LOST_ADVICE}")
        )


def _resume_points(
    path: Path, config: Config, graph: KnowledgeGraph
) -> Iterator[tuple[str, Callable[[], ResumePoint]]]:
    """Yield the name of each possible resume point and a function that reads it, latest first."""
    if state_of(path) is State.COMPLETE:
        yield "the complete run", partial(_read_complete_run, path, path / directory.METRICS_FILE, config, graph)
        return
    for iteration in reversed(saved_iterations(path)):
        yield f"EM iteration {iteration}", partial(_read_iteration, path, config, graph, iteration)
    metrics_file, rules = path / directory.SUPERSEDED_METRICS_FILE, path / directory.WRITTEN_RULES_FILE
    if metrics_file.is_file():
        yield "the previously complete run", partial(_read_complete_run, path, metrics_file, config, graph)
    if rules.is_file():
        yield "the beginning", partial(_read_beginning, rules, config, graph)


def _read_complete_run(path: Path, metrics_file: Path, config: Config, graph: KnowledgeGraph) -> ResumePoint:
    """Return the resume point at the end of a complete run. Iterations after the best are removed."""
    _require_unedited(path, metrics_file)
    outcome, metrics = read_outcome(path, metrics_file, config, graph, OUTCOME_FILES[1:])
    last = replace(outcome, history=outcome.history[: outcome.iteration])
    return ResumePoint(config, graph, (), last, last if config.em.patience else None, metrics["candidates"])


def _read_iteration(path: Path, config: Config, graph: KnowledgeGraph, iteration: int) -> ResumePoint:
    """Return the resume point after an EM iteration."""

    def read(saved: int) -> tuple[Outcome, dict[str, Any]]:
        folder = directory.iteration_folder(path, saved)
        return read_outcome(folder, folder / directory.ITERATION_FILE, config, graph)

    last, content = read(iteration)
    best, best_iteration = None, content["best"]
    if config.em.patience:
        if best_iteration not in saved_iterations(path):
            raise DamageError(
                f"{path} is damaged: its best EM iteration, {best_iteration}, is missing. {RESTORE_ADVICE}"
            )
        best = last if best_iteration == iteration else read(best_iteration)[0]
    return ResumePoint(config, graph, (), last, best, content["candidates"], content["final"])


def _read_beginning(rules: Path, config: Config, graph: KnowledgeGraph) -> ResumePoint:
    """Return the resume point before the first EM iteration."""
    content = read_text_with_checksum(rules)
    statements = content.partition("\n")[2]  # after the line with the checksum
    return ResumePoint(config, graph, parse_statements(content, graph, str(rules)) if statements else [])


def _require_unedited(path: Path, metrics_file: Path) -> None:
    """Raise InputError if rules.tsv does not match its checksum in `metrics_file`."""
    if checksum(path / RULES_FILE) != read_json_with_checksums(metrics_file)[1].get(RULES_FILE):
        raise InputError(
            f"{path}: {RULES_FILE} was changed after the run was saved (converted line endings are also a change)."
            f" Learn the weights of its rules with `plogicnet refit {path}`, or restore the file."
        )


@contextmanager
def _detect_writer(path: Path) -> Iterator[None]:
    """Raise InputError if another process writes to the run while it is read."""
    before, error = _metrics_file_id(path), None
    try:
        yield
    except (InputError, FileNotFoundError) as caught:
        error = caught
    being_written = error is not None and is_locked(path)  # check this first, because the writer can end at any time
    appeared = error is None and before is None  # metrics.json appeared during reading, and can be gone again
    if being_written or appeared or _metrics_file_id(path) != before:
        raise InputError(f"{path}: another process is writing here. Try again when it is done.") from error
    if error is not None:
        raise error


def _metrics_file_id(path: Path) -> tuple[int, int] | None:
    """Return the inode and time of metrics.json, which is removed before any other file of a complete run changes."""
    with suppress(OSError):
        status = (path / directory.METRICS_FILE).stat()
        return status.st_ino, status.st_mtime_ns
    return None
