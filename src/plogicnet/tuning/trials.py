"""The trials of a search and their directory: `search.json`, `trials.jsonl` and `best.yaml`."""

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
from plogicnet.support.records import Record, to_jsonable
from plogicnet.tuning.space import Settings, changed_settings, trial_config

T = TypeVar("T")
SEARCH_FILE, TRIALS_FILE, BEST_FILE, LOCK_FILE = "search.json", "trials.jsonl", "best.yaml", ".lock"
COMPLETE, PRUNED, FAILED = "complete", "pruned", "failed"
"""The states of a trial. A pruned one was stopped early. A failed one raised an error."""

PARTS = {
    "graph": "another graph",
    "rules": "other rules",
    "settings": "other settings",
    "spaces": "other search spaces",
}
"""The parts of `identity`, and how a message names another one."""


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
    """

    trial: int
    state: str
    mrr: float | None
    seconds: float
    settings: Settings
    validations: tuple[float, ...] = ()
    error: str = ""

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
    """Return what a search must not change when it continues. The test split is not a part of it."""
    digest = hashlib.sha256("\n".join((*graph.entities.names, "", *graph.relations.names)).encode())
    for split in (graph.train, graph.valid):
        digest.update(f"\n{len(split)}\n".encode() + split.tobytes())
    settings = {key: value for key, value in flat_settings(base.completed) if key not in ("device", "threads")}
    return {
        "graph": digest.hexdigest(),
        "rules": "\n".join(map(str, statements)),
        "settings": to_jsonable(settings),
        "spaces": {f"{model} {key}": str(domain) for model, space in spaces.items() for key, domain in space.items()},
    }


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
        if file.exists():
            _require_same(directory, next(iter(_read_lines(file, dict)), {}), search)
        else:
            write_text(file, json.dumps(search) + "\n")
        yield _read_lines(directory / TRIALS_FILE, Trial.from_json)


def _require_same(directory: Path, stored: Mapping[str, Any], search: Mapping[str, Any]) -> None:
    for part, other in PARTS.items():
        before, now = stored.get(part), search[part]
        if before != now:
            detail = ""
            if isinstance(before, dict) and isinstance(now, dict):
                key = next(key for key in before | now if before.get(key) != now.get(key))
                detail = f" ({key}: {before.get(key, 'none')}, now {now.get(key, 'none')})"
            remedy = "Use another --out, or remove this directory."
            raise InputError(f"{directory} contains a search with {other}{detail}. {remedy}")


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
