"""The layout of a run directory, its state, and checks of its content.

```
CURRENT            the name of the current snapshot
snapshots/0001/    a complete, immutable state of the run; `manifest.json` has the checksums of its files
work/              what changes: lock, log.txt, timings.json, and checkpoint/ with the state of an unfinished training
```
"""

import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path

from plogicnet.runs.integrity import MANIFEST_FILE, DamageError, read_manifest
from plogicnet.support.errors import InputError
from plogicnet.support.files import is_locked, still_locked

CURRENT_FILE = "CURRENT"
SNAPSHOTS_DIR = "snapshots"
WORK_DIR = "work"
LOCK_FILE, LOG_FILE, TIMINGS_FILE = f"{WORK_DIR}/lock", f"{WORK_DIR}/log.txt", f"{WORK_DIR}/timings.json"
PENDING_FILE = f"{WORK_DIR}/pending"
"""The name of a snapshot while it is written. If its writer is killed before CURRENT, the next writer removes it."""
CHECKPOINT_DIR = f"{WORK_DIR}/checkpoint"
"""The directory from which an unfinished training is resumed: `start`, and one directory per saved EM iteration."""
START_DIR = f"{CHECKPOINT_DIR}/start"
"""The settings, the graph and the user's rules with which the training started."""
E_STEP_FILE = f"{CHECKPOINT_DIR}/e_step.safetensors"
"""The checkpoint of the current E-step."""
CONFIG_FILE, METRICS_FILE, WRITTEN_RULES_FILE = "config.yaml", "metrics.json", "written.rules"
GRAPH_FILES = ("graph.parquet", "entities.tsv", "relations.tsv", "labels.tsv")
"""The files of the graph. The last one exists only if the graph has labels."""
OUTCOME_FILES = RULES_FILE, HIDDEN_FILE, HISTORY_FILE, NEURAL_FILE = (
    "rules.tsv",
    "hidden.parquet",
    "history.jsonl",
    "neural.safetensors",
)
"""The files of the trained model. The last one exists only if there is a neural model."""
BASE_LOG_ODDS_KEY = "base_log_odds"
"""The key in metrics.json: the base log-odds by relation, if facts were added since the rule weights were learned."""
REQUIRED_FILES = (CONFIG_FILE, *GRAPH_FILES[:3], *OUTCOME_FILES[:3], METRICS_FILE)
"""The files that every snapshot has."""
MAX_NAME_LENGTH = 18
"""Maximum length of the name of a snapshot, which is a number with at least four digits."""
RUN_NAMES, WORK_NAMES, CHECKPOINT_NAMES = (
    r"snapshots|work|report\.html|\..*\.part",
    r"lock|log\.txt|timings\.json|pending|checkpoint|\..*\.part",
    r"start|\d+|e_step.*|\..*\.part",
)
"""What a run directory, `work` and `checkpoint` can contain before the first snapshot, as regular expressions."""
BASE_KEY = "base"
"""The key in the manifest of `start`: the name of the snapshot that was current when the training started."""


class State(Enum):
    """The state of a directory: no run, a run whose first training is unfinished, or a run with a snapshot."""

    ABSENT = "absent"
    UNFINISHED = "unfinished"
    COMPLETE = "complete"


def state_of(path: Path) -> State:
    """Return the state of a run directory. Its files are not checked for damage.

    Example:
        >>> state_of(Path("nowhere"))
        <State.ABSENT: 'absent'>
    """
    if (path / CURRENT_FILE).is_file():
        return State.COMPLETE
    if has_unfinished_training(path):
        return State.UNFINISHED
    return State.COMPLETE if written_names(path) else State.ABSENT  # CURRENT was lost, which `snapshot_folder` reports


def current_name(path: Path) -> str:
    """Return the name of the current snapshot, or an empty string if none was published.

    Example:
        >>> current_name(Path("nowhere"))
        ''
    """
    file = path / CURRENT_FILE
    if not file.is_file():
        return ""
    try:
        with file.open("rb") as opened:
            name = opened.read(MAX_NAME_LENGTH + 2).decode("ascii", "replace").strip()
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    if not is_name(name):
        raise DamageError(f"{file} is damaged: it does not contain the name of a snapshot. {current_advice(path)}")
    return name


def snapshot_names(path: Path) -> list[str]:
    """Return the names of the snapshots up to the current one in ascending order.

    Example:
        >>> snapshot_names(Path("nowhere"))
        []
    """
    current = current_name(path)
    return [name for name in written_names(path) if int(name) <= int(current or 0)]


def written_names(path: Path) -> list[str]:
    """Return the names of all snapshots in ascending order, including one whose writer was killed before `CURRENT`.

    Example:
        >>> written_names(Path("nowhere"))
        []
    """
    if not (path / SNAPSHOTS_DIR).is_dir():
        return []
    names = [folder.name for folder in (path / SNAPSHOTS_DIR).iterdir() if is_name(folder.name) and folder.is_dir()]
    return sorted(names, key=int)


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a snapshot.

    Example:
        >>> is_name("0001"), is_name("1"), is_name("latest")
        (True, False, False)
    """
    return re.fullmatch(r"[0-9]{4,}", text) is not None and len(text) <= MAX_NAME_LENGTH


def current_advice(path: Path) -> str:
    """Return what to do if CURRENT is missing or damaged, or names a missing snapshot.

    Example:
        >>> current_advice(Path("nowhere"))
        'Train the run again.'
    """
    names = written_names(path)
    return f"Restore it with `plogicnet runs revert {path} {names[-1]}`." if names else "Train the run again."


def snapshot_folder(path: Path, name: str | None = None) -> Path:
    """Return the absolute path of a snapshot, of the current one by default. Raise InputError if there is none.

    It contains no links, so that a link to the run can be changed while the snapshot is read.
    """
    require_run_directory(path)
    current = current_name(path)
    if not current:
        raise InputError(_no_snapshot(path))
    if name is not None:
        require_name(path, name, snapshot_names(path))
    return path.resolve() / SNAPSHOTS_DIR / (name or current)


def require_name(path: Path, name: str, names: Sequence[str]) -> None:
    """Raise InputError if a name is not one of the names of a run's snapshots.

    Example:
        >>> require_name(Path("runs/family"), "0002", ["0001"])
        Traceback (most recent call last):
        plogicnet.support.errors.InputError: runs/family has no snapshot '0002'. It has: 0001.
    """
    if name not in names:
        raise InputError(f"{path} has no snapshot {name[:40]!r}. It has: {', '.join(names) or 'none'}.")


def _no_snapshot(path: Path) -> str:
    if is_locked(path, LOCK_FILE):
        return f"{path}: another process is writing its first snapshot. Try again when it is done."
    if state_of(path) is State.UNFINISHED:
        return f"{path} contains no complete run. Complete it with `plogicnet resume {path}`."
    if written_names(path):
        return f"{path} contains no complete run: its file {CURRENT_FILE} is missing. {current_advice(path)}"
    return f"{path} contains no complete run ({CURRENT_FILE} is missing). Create one with `plogicnet train`."


def has_unfinished_training(path: Path) -> bool:
    """Return whether a training can be resumed. One that started from another snapshot has been superseded.

    Example:
        >>> has_unfinished_training(Path("nowhere"))
        False
    """
    if not (path / START_DIR / MANIFEST_FILE).is_file():
        return False
    try:
        base = read_manifest(path / START_DIR)[0].get(BASE_KEY)
    except DamageError:  # reported when the training is resumed
        return True
    return base == current_name(path)


def require_inside(path: Path) -> None:
    """Raise InputError if a run directory contains a link to the outside, or anything but files and directories.

    A run can come from an untrusted source. A link could make the program read or write the user's other files.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     Path(folder, "rules.tsv").symlink_to("/etc/passwd")
        ...     require_inside(Path(folder))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        plogicnet.support.errors.InputError: ...rules.tsv: the link leads out of the run directory. ...
    """
    root = path.resolve()
    for folder, folders, files in os.walk(path):
        for entry in (Path(folder) / name for name in (*folders, *files)):
            if entry.is_symlink() and not _resolves_inside(entry, root):
                raise InputError(
                    f"{entry}: the link leads out of the run directory. Replace it with the file itself, or remove it."
                )
            with suppress(FileNotFoundError):  # a writer removed it meanwhile
                mode = entry.stat().st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    raise InputError(f"{entry}: not a file or directory, so it does not belong to a run. Remove it.")


def _resolves_inside(entry: Path, root: Path) -> bool:
    try:
        return entry.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # a loop of links
        return False


def require_only_run_files(path: Path) -> None:
    """Raise InputError if a directory contains no run but other files, which could be lost.

    Example:
        >>> require_only_run_files(Path("nowhere"))
    """
    require_inside(path)
    if not path.is_dir() or (path / CURRENT_FILE).is_file() or (path / START_DIR / MANIFEST_FILE).is_file():
        return
    allowed = {path: RUN_NAMES, path / WORK_DIR: WORK_NAMES, path / CHECKPOINT_DIR: CHECKPOINT_NAMES}
    for folder, pattern in allowed.items():
        if folder.is_dir() and any(not re.fullmatch(pattern, entry.name) for entry in folder.iterdir()):
            raise InputError(f"{path} is not empty and contains no run. Use a new directory.")


def require_run_directory(path: Path) -> None:
    """Raise InputError unless a path is a directory without links to the outside."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file, not the directory of a run")
    if not path.is_dir():
        raise InputError(
            f"no run at {path}: the directory does not exist. Create a run with `plogicnet train GRAPH --out {path}`."
        )
    require_inside(path)


def require_started(path: Path) -> None:
    """Raise InputError unless a directory contains a run, complete or not."""
    require_run_directory(path)
    if state_of(path) is State.ABSENT:
        raise InputError(
            f"{path} contains no run, or its training stopped before anything was saved. Start training with"
            f" `plogicnet train GRAPH --out {path}`."
        )


def require_same_directory(path: Path) -> None:
    """Raise InputError if the run directory was removed or replaced since it was locked."""
    if not path.is_dir() or not still_locked(path, LOCK_FILE):
        raise InputError(f"{path}: the run directory was removed or replaced meanwhile. Repeat the command.")
