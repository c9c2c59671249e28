"""Snapshots: a run is read from one of them, and changed by publishing another one.

A snapshot is written completely, then `CURRENT` is replaced. Its files never change, so a reader needs no lock and
never sees a mixture. If the snapshot is removed while it is read, the reader starts again from `CURRENT`.
"""

import json
import logging
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.rules import RuleTable
from plogicnet.runs import directory
from plogicnet.runs.directory import (
    CONFIG_FILE,
    GRAPH_FILES,
    METRICS_FILE,
    NEURAL_FILE,
    OUTCOME_FILES,
    PENDING_FILE,
    REQUIRED_FILES,
    RULES_FILE,
    SNAPSHOTS_DIR,
    WORK_DIR,
    current_name,
    snapshot_folder,
    snapshot_names,
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
    DAMAGE_EXCEPTIONS,
    DIGEST_KEY,
    DamageError,
    SavedFile,
    damage_as_input_error,
    link_intact,
    read_json,
    read_manifest,
    saved_files,
    write_manifest,
)
from plogicnet.runs.origins import Origin, read_origins, write_origin
from plogicnet.support.errors import InputError
from plogicnet.support.files import (
    atomic_directory,
    make_directory,
    remove_directory,
    remove_partial_files,
    sync,
    write_text,
)
from plogicnet.systems.system import PLOGICNET_STAR_KEY
from plogicnet.training.state import Outcome

log = logging.getLogger(__name__)
T = TypeVar("T")
KEEP = 2
"""Default number of snapshots to keep."""
MIN_AGE_SECONDS = 60.0
"""A snapshot is kept for this time after the next one was published, so that its readers need not start again."""
MAX_ATTEMPTS = 20
"""How often a reader starts again."""
TOO_MANY_ATTEMPTS = "{path}: other snapshots were published while this one was read. Try again."
SNAPSHOT_FILES = (*REQUIRED_FILES, GRAPH_FILES[3], NEURAL_FILE)
"""The files that a snapshot can have."""
UNCHANGED_BY_REFIT = (CONFIG_FILE, *GRAPH_FILES, NEURAL_FILE)
"""The files that a refit does not change."""


@dataclass(frozen=True)
class Content:
    """The content of a snapshot.

    Attributes:
        config: the settings.
        graph: the graph.
        outcome: the trained model.
        metrics: the content of metrics.json: λ, the calibration, and the metrics of the splits.
    """

    config: Config
    graph: KnowledgeGraph
    outcome: Outcome
    metrics: dict[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """A snapshot that was read or published.

    Attributes:
        folder: its absolute path.
        digest: the checksum of its manifest, which identifies its content.
        files: its files, by name.
    """

    folder: Path
    digest: str
    files: Mapping[str, SavedFile]

    @classmethod
    def of(cls, folder: Path) -> "Snapshot":
        """Read the manifest of a snapshot. Its files are not verified."""
        return cls(folder, read_manifest(folder)[0][DIGEST_KEY], saved_files(folder, SNAPSHOT_FILES))

    @property
    def name(self) -> str:
        """The name of the snapshot."""
        return self.folder.name

    def is_in(self, path: Path) -> bool:
        """Return whether the snapshot belongs to the run at `path`."""
        return self.folder.parents[1] == path.resolve()


def publish(
    path: Path, content: Content, origin: Origin, unchanged: Mapping[str, SavedFile] | None = None, keep: int = KEEP
) -> Snapshot:
    """Write a new snapshot, make it the current one, and return it.

    Args:
        path: the run directory. The caller must hold its lock.
        content: the content of the snapshot.
        origin: the command that publishes it.
        unchanged: files with the same content, by name, which are linked instead of written. Those of other runs are
            ignored, so that a copy of a run does not share its files.
        keep: the number of snapshots to keep.
    """
    graph_files = GRAPH_FILES if content.graph.labels else GRAPH_FILES[:3]
    outcome_files = (*(OUTCOME_FILES if content.outcome.neural else OUTCOME_FILES[:3]), METRICS_FILE)

    def write(folder: Path, linked: dict[str, str]) -> None:
        if CONFIG_FILE not in linked:
            write_config(folder, content.config)
        if not linked.keys() >= set(graph_files):
            _forget(linked, graph_files)
            write_graph(folder, content.graph)
        if not linked.keys() >= set(outcome_files):
            _forget(linked, [name for name in outcome_files if name != NEURAL_FILE])
            write_outcome(folder, content.graph, content.outcome)
            write_text(folder / METRICS_FILE, json.dumps(content.metrics, indent=1) + "\n")

    root = path.resolve()
    inside = {name: file for name, file in (unchanged or {}).items() if file.path.is_relative_to(root)}
    return _publish(path, write, origin, inside, keep)


def _forget(linked: dict[str, str], names: Sequence[str]) -> None:
    """Remove the checksums of linked files that are written again."""
    for name in names:
        linked.pop(name, None)


def publish_again(path: Path, name: str, keep: int | None = None) -> Snapshot:
    """Publish a snapshot with the files of an earlier one. An unfinished training is discarded.

    The caller must hold the lock of the run. CURRENT can be missing or damaged.
    """
    directory.require_name(path, name, directory.written_names(path))
    source = path / SNAPSHOTS_DIR / name
    with damage_as_input_error(source):
        verify_files(source, REQUIRED_FILES, SNAPSHOT_FILES)
    with suppress(DamageError):
        if directory.has_unfinished_training(path):
            log.warning("%s: the unfinished training is discarded", path)
        if name == current_name(path):
            remove_directory(path / directory.CHECKPOINT_DIR)
            return Snapshot.of(source.resolve())
    files = saved_files(source.resolve(), SNAPSHOT_FILES)

    def require_all(folder: Path, linked: dict[str, str]) -> None:
        if linked.keys() != files.keys():
            raise DamageError(f"{source} was changed while its files were linked to {folder}. Repeat the command.")

    return _publish(path, require_all, Origin(f"revert {name}"), files, keep)


def _publish(
    path: Path,
    write: Callable[[Path, dict[str, str]], None],
    origin: Origin,
    files: Mapping[str, SavedFile],
    keep: int | None,
) -> Snapshot:
    """Create a snapshot of linked and written files, and make it the current one.

    `write` gets the new directory and the checksums of the linked files. It removes those of files that it replaces.
    """
    directory.require_same_directory(path)
    name = f"{max(map(int, [_current_or_none(path) or '0', *directory.written_names(path)])) + 1:04d}"
    if not directory.is_name(name):
        raise InputError(f"{path}: the number {name} of the next snapshot is too large. Use a new directory.")
    snapshot = path.resolve() / SNAPSHOTS_DIR / name
    make_directory(snapshot.parent)
    write_text(path / PENDING_FILE, f"{name}\n")
    try:
        with atomic_directory(snapshot) as folder:
            linked = link_intact(folder, files)
            write(folder, linked)
            write_manifest(folder, {}, linked)
        write_text(path / directory.CURRENT_FILE, f"{name}\n")
    except BaseException:
        with suppress(OSError):  # free the space, for example on a full disk
            _remove_unpublished(path)
        raise
    try:
        write_origin(path, name, origin)
        remove_leftovers(path, keep)
    except OSError as error:  # the snapshot is published
        log.warning("%s: snapshot %s is current, but tidying up failed: %s", path, name, error)
    return Snapshot.of(snapshot)


def _current_or_none(path: Path) -> str | None:
    """Return the name of the current snapshot, or None if CURRENT is missing or damaged."""
    with suppress(InputError):
        return current_name(path) or None
    return None


def remove_leftovers(path: Path, keep: int | None = None) -> None:
    """Remove a superseded checkpoint and what a killed process left. The caller must hold the lock of the run.

    With `keep`, also remove old snapshots.
    """
    for part in (path / SNAPSHOTS_DIR, path / WORK_DIR):
        remove_partial_files(part)
    for part in path.glob(f".{directory.CURRENT_FILE}.*.part"):
        shutil.rmtree(part, ignore_errors=True)
    _remove_unpublished(path)
    if not _current_or_none(path) and directory.written_names(path):
        return  # CURRENT was lost, so that it is not certain what is superseded
    if not directory.has_unfinished_training(path) and (path / directory.CHECKPOINT_DIR).exists():
        remove_directory(path / directory.CHECKPOINT_DIR)
    if keep is not None:
        _remove_old(path, keep)


def _remove_unpublished(path: Path) -> None:
    """Remove a snapshot whose writer was killed before it replaced CURRENT."""
    file = path / PENDING_FILE
    if file.is_file():
        name = file.read_text(encoding="utf-8", errors="replace").strip()
        if directory.is_name(name) and name != _current_or_none(path):
            remove_directory(path / SNAPSHOTS_DIR / name)
        file.unlink()
        sync(file.parent)


def _remove_old(path: Path, keep: int) -> None:
    """Remove all snapshots except the last `keep` and those that were current in the last minute."""
    names = snapshot_names(path)
    ages = {a: time.time() - (path / SNAPSHOTS_DIR / b).stat().st_mtime for a, b in pairwise(names)}
    old = [name for name in names[: -max(keep, 1)] if ages[name] > MIN_AGE_SECONDS]
    for name in old:
        remove_directory(path / SNAPSHOTS_DIR / name)
    if old:
        log.warning("%s: old snapshots are removed (--keep %d): %s", path, keep, ", ".join(old))


def read_snapshot(
    path: Path,
    name: str | None,
    read: Callable[[Path], T],
    required: Sequence[str] = REQUIRED_FILES,
    optional: Sequence[str] = (),
) -> tuple[T, Snapshot]:
    """Verify files of a snapshot, of the current one by default, then read them.

    All files are verified against one manifest. If the snapshot is removed or replaced meanwhile, start again.

    Args:
        path: the run directory.
        name: the name of the snapshot, or None.
        read: reads the files from a directory.
        required: files that must exist.
        optional: files that can exist.
    """
    for _ in range(MAX_ATTEMPTS):
        folder = snapshot_folder(path, name)
        try:
            with damage_as_input_error(folder):
                digest = verify_files(folder, required, optional)[DIGEST_KEY]
                result, snapshot = read(folder), Snapshot.of(folder)
            if snapshot.digest == digest:
                return result, snapshot
        except (InputError, OSError) as error:
            if not folder.is_dir() and snapshot_folder(path).name != folder.name:
                continue
            if not isinstance(error, InputError | FileNotFoundError):
                raise
            if not folder.is_dir():
                raise InputError(_missing(path, folder.name)) from None
            is_damaged = name is None and isinstance(error, DamageError | FileNotFoundError)
            advice = _intact_advice(path, folder.name) if is_damaged else ""
            text = str(error) if isinstance(error, InputError) else f"{folder} is damaged: {error}"
            raise InputError(text.replace(str(path.resolve()), str(path)) + advice) from None
    raise InputError(TOO_MANY_ATTEMPTS.format(path=path))


def _missing(path: Path, name: str) -> str:
    return f"{path} is damaged: its snapshot {name} is missing. {directory.current_advice(path)}"


def _intact_advice(path: Path, damaged: str) -> str:
    """Return the advice to go back to the last intact snapshot, or an empty string if there is none."""
    for name in reversed([name for name in snapshot_names(path) if name != damaged]):
        with suppress(InputError, OSError):
            verify_files(path / SNAPSHOTS_DIR / name, REQUIRED_FILES, SNAPSHOT_FILES)
            discard = " and discard the unfinished training" if directory.has_unfinished_training(path) else ""
            return f" Or go back to snapshot {name}{discard}: `plogicnet runs revert {path} {name}`."
    return ""


def read_content(path: Path, settings: Mapping[str, object], name: str | None = None) -> tuple[Content, Snapshot]:
    """Return the content of a snapshot. `settings`, by dotted key, override those of the run."""

    def read(folder: Path) -> Content:
        config, graph = read_config(folder).with_values(settings), read_graph(folder)
        outcome, metrics = read_outcome(folder, config, graph)
        return Content(config, graph, outcome, metrics)

    return read_snapshot(path, name, read, optional=SNAPSHOT_FILES)


def current_snapshot(path: Path) -> Snapshot:
    """Return the current snapshot. Its files are not verified."""
    return Snapshot.of(snapshot_folder(path))


def read_rules(path: Path, name: str | None = None) -> RuleTable:
    """Return the rules of a snapshot by descending weight, then the constraints."""
    return read_snapshot(path, name, lambda folder: RuleTable.read(folder / RULES_FILE).by_weight(), [RULES_FILE])[0]


def read_settings(path: Path) -> Config:
    """Return the settings of the current snapshot."""
    return read_snapshot(path, None, read_config, [CONFIG_FILE])[0]


@dataclass(frozen=True)
class Summary:
    """A snapshot as `plogicnet runs list` shows it. Unknown values are None.

    Attributes:
        name: the name of the snapshot.
        current: whether it is the current one.
        published: date and time, in UTC.
        command: the command that published it.
        rules: the number of rules and constraints.
        split: the split on which `mrr` was measured.
        mrr: the MRR of pLogicNet*.
        bytes: the size of its files. Snapshots can share files.
    """

    name: str
    current: bool
    published: str | None
    command: str | None
    rules: int | None
    split: str | None
    mrr: float | None
    bytes: int


def list_snapshots(path: Path) -> list[Summary]:
    """Return the published snapshots of a run, oldest first."""
    for _ in range(MAX_ATTEMPTS):
        current, origins, summaries = snapshot_folder(path).name, read_origins(path), []
        for name in snapshot_names(path):
            with suppress(FileNotFoundError):  # removed meanwhile
                summaries.append(_summary(path, name, name == current, origins.get(name)))
        if any(summary.current for summary in summaries):
            return summaries
        if current_name(path) == current:
            raise DamageError(_missing(path, current))
    raise InputError(TOO_MANY_ATTEMPTS.format(path=path))


def _summary(path: Path, name: str, current: bool, origin: Origin | None) -> Summary:
    folder, rules, split, mrr = path / SNAPSHOTS_DIR / name, None, None, None
    size = sum(file.stat().st_size for file in folder.iterdir())
    with suppress(InputError, *DAMAGE_EXCEPTIONS):  # damaged files
        rules, metrics = len(RuleTable.read(folder / RULES_FILE)), read_json(folder / METRICS_FILE)
        split = next((s for s in ("test", "valid") if s in metrics), None)
        mrr = float(metrics[split][PLOGICNET_STAR_KEY]["mrr"]) if split else None
    published, command = (origin.published, origin.command) if origin else (None, None)
    return Summary(name, current, published, command, rules, split, mrr, size)
