"""Reads runs, each file checked: complete ones, and unfinished ones where their training stopped."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.rules import RuleTable, Statement, statements_of
from plogicnet.runs import directory
from plogicnet.runs.directory import OUTCOME, RULES, State, kept_iterations, require_begun, require_complete, state_of
from plogicnet.runs.files import read_graph, read_outcome
from plogicnet.runs.integrity import DamageError, damage_as_input_error, read_sealed, read_summed
from plogicnet.support.errors import InputError
from plogicnet.support.files import checksum, in_use
from plogicnet.training.state import Outcome

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Unfinished:
    """Where a training starts, or is resumed.

    Attributes:
        statements: the rules given to it.
        last: the last EM iteration; None before the first is done.
        best: the best EM iteration so far; None without em.patience.
        candidates: how many rules were counted when they were mined.
        final: whether `last` is not trained further.
    """

    config: Config
    graph: KnowledgeGraph
    statements: Sequence[Statement] = ()
    last: Outcome | None = None
    best: Outcome | None = None
    candidates: int = 0
    final: bool = False


def read_config(path: Path) -> Config:
    """The settings of a run as they were written; a DamageError where they were edited since."""
    file = path / directory.CONFIG
    advice = (
        "these are not the settings that the run was made with. Put it back as it was. --device and --threads are given"
        f" on the command line, more EM iterations by `plogicnet resume {path} --set em.iterations=N`; for any other"
        f" setting train a new run (`plogicnet train GRAPH --config {file} --out ANOTHER`)"
    )
    return Config().with_yaml(read_summed(file, advice), str(file))


def read_complete(
    path: Path, settings: Mapping[str, object], edited: bool = False
) -> tuple[Config, KnowledgeGraph, Outcome, dict[str, Any]]:
    """Opens a complete run: settings, graph, what training left behind, and figures.

    Args:
        path: the run directory.
        settings: dotted keys that override its own settings.
        edited: whether its rules may have been edited by hand.
    """
    with _undisturbed(path), damage_as_input_error(path):
        require_complete(path)
        config, graph = read_config(path).with_values(settings), read_graph(path)
        seal = path / directory.COMPLETE
        if not edited:
            _require_unedited(path, seal)
        return config, graph, *read_outcome(path, seal, config, graph, OUTCOME[1:])


def read_rules(path: Path) -> RuleTable:
    """The learned rules of a complete run, strongest first, then the constraints."""
    with _undisturbed(path):
        require_complete(path)
        _require_unedited(path, path / directory.COMPLETE)
        return RuleTable.read(path / RULES).by_weight()


def read_unfinished(path: Path, settings: Mapping[str, object]) -> Unfinished:
    """Where the training of a run is resumed; a complete run is resumed after its last iteration.

    What is damaged is left out with a warning, and the training is resumed from before it.
    """
    with damage_as_input_error(path):
        require_begun(path)
        config, graph = read_config(path).with_values(settings), read_graph(path)
        damaged: list[tuple[str, DamageError]] = []
        for name, read in _starts(path, config, graph):
            try:
                found = read()
            except DamageError as error:
                damaged.append((name, error))
                continue
            for other, fault in damaged:
                log.warning("%s. %s is left out", fault, other)
            if damaged:
                log.warning("%s: training is resumed from %s", path, name)
            return found
        raise damaged[-1][1] if damaged else DamageError(f"{path}: there is nothing to resume from; {directory.LOST}")


def _starts(path: Path, config: Config, graph: KnowledgeGraph) -> Iterator[tuple[str, Callable[[], Unfinished]]]:
    """What a training can be resumed from, the latest first: its name, and a function that reads it."""
    if state_of(path) is State.COMPLETE:
        yield "the complete run", partial(_read_end, path, path / directory.COMPLETE, config, graph)
        return
    for iteration in reversed(kept_iterations(path)):
        yield f"EM iteration {iteration}", partial(_read_iteration, path, config, graph, iteration)
    seal, rules = path / directory.SUPERSEDED, path / directory.WRITTEN
    if seal.is_file():
        yield "the run as it was when it was complete", partial(_read_end, path, seal, config, graph)
    if rules.is_file():
        yield "the beginning", partial(_read_beginning, rules, config, graph)


def _read_end(path: Path, seal: Path, config: Config, graph: KnowledgeGraph) -> Unfinished:
    """The end of a complete run, of which later iterations that were no better are forgotten."""
    _require_unedited(path, seal)
    whole, metrics = read_outcome(path, seal, config, graph, OUTCOME[1:])
    last = replace(whole, history=whole.history[: whole.iteration])
    return Unfinished(config, graph, (), last, last if config.em.patience else None, metrics["candidates"])


def _read_iteration(path: Path, config: Config, graph: KnowledgeGraph, iteration: int) -> Unfinished:
    """An EM iteration, with the best one by then."""

    def read(number: int) -> tuple[Outcome, dict[str, Any]]:
        folder = directory.iteration_folder(path, number)
        return read_outcome(folder, folder / directory.REACHED, config, graph)

    last, about = read(iteration)
    best, number = None, about["best"]
    if config.em.patience:
        if number not in kept_iterations(path):
            raise DamageError(f"{path} is damaged: its best EM iteration, {number}, is missing")
        best = last if number == iteration else read(number)[0]
    return Unfinished(config, graph, (), last, best, about["candidates"], about["final"])


def _read_beginning(rules: Path, config: Config, graph: KnowledgeGraph) -> Unfinished:
    """The start of a training, with the rules that were given to it."""
    content = read_summed(rules)
    given = content.partition("\n")[2]  # below the checksum
    return Unfinished(config, graph, statements_of(content, graph, str(rules)) if given else [])


def _require_unedited(path: Path, seal: Path) -> None:
    """Raises where rules.tsv does not match its checksum; `seal` is the run's metrics.json, moved or not."""
    if checksum(path / RULES) != read_sealed(seal)[1].get(RULES):
        raise InputError(
            f"{path}: {RULES} was edited, or is damaged (converted line ends are enough);"
            f" `plogicnet refit {path}` learns the weights of the rules in it, or put it back as it was"
        )


@contextmanager
def _undisturbed(path: Path) -> Iterator[None]:
    """Raises an InputError about another process where one wrote to the run while it was read."""
    before, error = _published(path), None
    try:
        yield
    except (InputError, FileNotFoundError) as found:
        error = found
    in_writing = error is not None and in_use(path)  # asked first: the writer may end meanwhile
    appeared = error is None and before is None  # and may be gone and rewritten by now
    if in_writing or appeared or _published(path) != before:
        raise InputError(f"{path}: another process is writing here; try again when it is done") from error
    if error is not None:
        raise error


def _published(path: Path) -> tuple[int, int] | None:
    """Which metrics.json is there: it is removed before any other file of a complete run changes."""
    with suppress(OSError):
        about = (path / directory.COMPLETE).stat()
        return about.st_ino, about.st_mtime_ns
    return None
