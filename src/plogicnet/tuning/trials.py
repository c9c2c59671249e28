"""The trials of a search and their directory: `search.json`, `starts.txt`, `trials.jsonl` and `best.yaml`."""

import hashlib
import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from plogicnet.config import Config, SearchSpace
from plogicnet.config.tree import flat_settings
from plogicnet.graph import KnowledgeGraph
from plogicnet.rules import Statement
from plogicnet.support.errors import InputError
from plogicnet.support.files import lock_directory, make_directory, remove_partial_files, write_text
from plogicnet.support.interrupts import is_interrupt
from plogicnet.support.records import Record, to_jsonable
from plogicnet.tuning.space import Settings, changed_settings, trial_config
from plogicnet.version import VERSION

T = TypeVar("T")
SEARCH_FILE, STARTS_FILE, TRIALS_FILE = "search.json", "starts.txt", "trials.jsonl"
BEST_FILE, LOCK_FILE = "best.yaml", ".lock"
COMPLETE, PRUNED, FAILED = "complete", "pruned", "failed"
"""The states of a trial. A pruned one was stopped early. A failed one raised an error."""


@dataclass(frozen=True)
class Trial(Record):
    """A finished trial.

    Attributes:
        trial: its number, from 0.
        state: `complete`, `pruned` or `failed`.
        mrr: the validation MRR; None unless it is complete.
        seconds: its duration.
        settings: its settings that differ from the base settings.
        validations: the MRR of the neural model at each validation during training.
        error: the error message of a failed trial.
        same_as: the trial with the same settings that this one copies, or None.
    """

    trial: int
    state: str
    mrr: float | None
    seconds: float
    settings: Settings
    validations: tuple[float, ...] = ()
    error: str = ""
    same_as: int | None = None

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> "Trial":
        """Create an instance from the output of `to_json`."""
        return cls(**{**line, "validations": tuple(line["validations"])})


def best_trial(trials: Sequence[Trial]) -> Trial | None:
    """Return the complete trial with the highest validation MRR, the first of equal ones, or None.

    Example:
        >>> best_trial([Trial(0, COMPLETE, 0.5, 1.0, {}), Trial(1, COMPLETE, 0.5, 1.0, {})]).trial
        0
    """
    return max((t for t in trials if t.mrr is not None), key=lambda t: (t.mrr, -t.trial), default=None)


def identity(
    graph: KnowledgeGraph, base: Config, statements: Sequence[Statement], spaces: Mapping[str, SearchSpace]
) -> dict[str, Any]:
    """Return what must not change when a search continues. The test split is not a part of it."""
    digest = hashlib.sha256("\n".join((*graph.entities.names, "", *graph.relations.names)).encode())
    for split in (graph.train, graph.valid):
        digest.update(f"\n{len(split)}\n".encode() + split.tobytes())
    rules = hashlib.sha256("\n".join(map(str, statements)).encode())
    search = {"version": VERSION, "graph checksum": digest.hexdigest()[:16], "rules checksum": rules.hexdigest()[:16]}
    search |= {key: to_jsonable(v) for key, v in flat_settings(base.completed) if key not in ("device", "threads")}
    for model, space in spaces.items():
        for key, domain in space.items():
            search[f"{model} {key}"] = str(domain) + ("" if domain.start is None else f", first {domain.start}")
    return search


@contextmanager
def open_search(directory: Path, search: Mapping[str, Any]) -> Iterator[list[Trial]]:
    """Create the directory of a search, or continue one. It is locked in the block. Yield its finished trials."""
    if directory.is_file():
        raise InputError(f"{directory} is a file. Use a new directory.")
    file = directory / SEARCH_FILE
    if directory.is_dir() and not file.exists() and any(p.name[0] != "." for p in directory.iterdir()):
        raise InputError(f"{directory} contains other files. Use a new directory.")
    make_directory(directory)
    with lock_directory(directory, LOCK_FILE):
        remove_partial_files(directory)
        stored: Mapping[str, Any] = next(iter(_read_lines(file, dict)), {})
        trials = _read_lines(directory / TRIALS_FILE, Trial.from_json)
        for key in [*stored, *search] if trials else ():
            before, now = stored.get(key, "none"), search.get(key, "none")
            if before != now:
                detail = f"({key}: {before}, now {now}). Use another --out, or remove this directory."
                raise InputError(f"{directory} contains another search {detail}")
        if stored != search:  # the search is new, or its first trial failed with other settings
            (directory / STARTS_FILE).unlink(missing_ok=True)
            write_text(file, json.dumps(search) + "\n")
        yield trials


@contextmanager
def record_start(directory: Path, trial: int) -> Iterator[int]:
    """Record that a trial starts, and yield how often it has. The record of an interrupted trial is removed.

    The record of the first trial is also removed if it raises an error, since the settings can be corrected.
    """
    file = directory / STARTS_FILE
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    write_text(file, f"{before}{trial}\n")
    try:
        yield before.split().count(str(trial)) + 1
    except BaseException as error:
        if is_interrupt(error) or not trial:
            write_text(file, before)
        raise


def _read_lines(file: Path, make: Callable[[Any], T]) -> list[T]:
    """Return an object for each line of JSON in a file; none if the file does not exist."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    objects = []
    for number, line in enumerate(lines, 1):
        try:
            objects.append(make(json.loads(line)))
        except (ValueError, TypeError, KeyError):
            raise InputError(f"{file}, line {number}: damaged. Remove this and the later lines.") from None
    return objects


def write_trials(directory: Path, base: Config, trials: Sequence[Trial], source: str) -> None:
    """Write the finished trials and the best settings. `source` names the graph in a comment."""
    lines = (json.dumps(t.to_json()) + "\n" for t in trials)
    write_text(directory / TRIALS_FILE, "".join(lines))
    best = best_trial(trials)
    if best is not None:
        comment = f"# The best of {len(trials)} trials on {source!a}: trial {best.trial}, valid MRR {best.mrr:.4f}.\n"
        write_text(directory / BEST_FILE, comment + settings_yaml(trial_config(base, best.settings), best.settings))


def settings_yaml(config: Config, keys: Container[str] = ()) -> str:
    """Return the settings that differ from the defaults, and those with the given keys, as YAML.

    Example:
        >>> print(settings_yaml(Config().with_values({"neural.steps": 64, "neural.vectors.dim": 8})), end="")
        neural:
          steps: 64
          vectors:
            dim: 8
    """
    tree: dict[str, Any] = {}
    for key, value in changed_settings(config, keys).items():
        *path, name = key.split(".")
        section = tree
        for part in path:
            section = section.setdefault(part, {})
        section[name] = to_jsonable(value)
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True) if tree else ""
