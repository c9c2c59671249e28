"""The file names of a run directory, its state, and checks of its content."""

import os
import re
from enum import Enum
from pathlib import Path

from plogicnet.runs.integrity import RESTORE_ADVICE, DamageError, read_json, read_json_with_checksums, require_present
from plogicnet.support.errors import InputError
from plogicnet.support.files import LOCK_FILE
from plogicnet.version import VERSION

FORMAT = 1
"""The version of the run format. It is increased when older versions of the program could misread a run."""
CONFIG_FILE, TIMINGS_FILE = "config.yaml", "timings.json"
GRAPH_FILES = ("graph.parquet", "entities.tsv", "relations.tsv", "labels.tsv")
"""The files of the graph. The last one exists only if the graph has labels."""
OUTCOME_FILES = RULES_FILE, HIDDEN_FILE, HISTORY_FILE, NEURAL_FILE = (
    "rules.tsv",
    "hidden.parquet",
    "history.jsonl",
    "neural.safetensors",
)
"""The files of the trained model. The last one exists only if there is a neural model."""
RUN_FILE = "run.json"
"""Written as soon as the run can be resumed. Contains the format and the checksums of the graph's files."""
METRICS_FILE = "metrics.json"
"""Written last. Contains the metrics and the checksums of the trained model's files."""
CHECKPOINT_DIR = "checkpoint"
"""The directory from which an unfinished run is resumed, with one directory per saved EM iteration."""
ITERATION_FILE = "reached.json"
"""Written last in the directory of an EM iteration. Contains the checksums of its files."""
WRITTEN_RULES_FILE = f"{CHECKPOINT_DIR}/written.rules"
"""The user's rules, possibly none. With this file, training can restart from the beginning."""
SUPERSEDED_METRICS_FILE = f"{CHECKPOINT_DIR}/{METRICS_FILE}"
"""The metrics.json of a run that was complete and is trained for more EM iterations."""
E_STEP_FILE = f"{CHECKPOINT_DIR}/e_step.safetensors"
"""The checkpoint of the current E-step."""
LOST_ADVICE = (
    f"If the run was complete, restore {METRICS_FILE} from a copy. Otherwise remove the directory and train again."
)


class State(Enum):
    """The state of a directory: no run, a run that can be resumed, or a complete run."""

    ABSENT = "absent"
    UNFINISHED = "unfinished"
    COMPLETE = "complete"


def state_of(path: Path) -> State:
    """Return the state of a run directory. Its files are not checked for damage.

    Example:
        >>> state_of(Path("nowhere"))
        <State.ABSENT: 'absent'>
    """
    started = (path / RUN_FILE).is_file()
    if (path / METRICS_FILE).is_file() and (started or (path / CONFIG_FILE).is_file()):
        return State.COMPLETE
    return State.UNFINISHED if started else State.ABSENT


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
            if entry.is_symlink() and not entry.resolve().is_relative_to(root):
                raise InputError(
                    f"{entry}: the link leads out of the run directory. Replace it with the file itself, or remove it."
                )
            if entry.exists() and not (entry.is_file() or entry.is_dir()):
                raise InputError(f"{entry}: not a file or directory, so it does not belong to a run. Remove it.")


def require_only_run_files(path: Path) -> None:
    """Raise InputError if a directory contains files that do not belong to a run and could be overwritten.

    Example:
        >>> require_only_run_files(Path("nowhere"))
    """
    require_inside(path)
    if path.is_dir() and any(path.iterdir()) and not ((path / LOCK_FILE).exists() or (path / RUN_FILE).exists()):
        raise InputError(f"{path} is not empty and contains no run. Use a new directory.")


def require_started(path: Path) -> None:
    """Raise InputError unless a directory contains a run, complete or not, in a supported format."""
    _require_directory(path)
    if not (path / RUN_FILE).is_file():
        raise InputError(
            f"{path} contains no run, or its training stopped before anything was saved. Start training with"
            f" `plogicnet train GRAPH --out {path}`."
        )
    _require_format(path)


def require_complete(path: Path) -> None:
    """Raise InputError unless a directory contains a complete run with all its files, in a supported format."""
    _require_directory(path)
    state = state_of(path)
    if state is not State.ABSENT:
        _require_format(path)
    if state is not State.COMPLETE:
        advice = "Create one with `plogicnet train`."
        if state is State.UNFINISHED:
            advice = f"Complete it with `plogicnet resume {path}`." if (path / CHECKPOINT_DIR).is_dir() else LOST_ADVICE
        raise InputError(f"{path} contains no complete run ({METRICS_FILE} is missing). {advice}")
    require_present(path, (CONFIG_FILE, *GRAPH_FILES[:3], RULES_FILE, HIDDEN_FILE, HISTORY_FILE))


def _require_directory(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file, not the directory of a run")
    if not path.is_dir():
        raise InputError(
            f"no run at {path}: the directory does not exist. Create a run with `plogicnet train GRAPH --out {path}`."
        )
    require_inside(path)


def _require_format(path: Path) -> None:
    """Raise InputError if a newer version wrote the run, then DamageError if run.json is damaged.

    The version is checked first, because a newer version can use other checksums.
    """
    require_present(path, [RUN_FILE])
    content = read_json(path / RUN_FILE)
    format_number, version = content.get("format"), content.get("version")
    if type(format_number) is not int or format_number < 1:
        raise DamageError(f"{path / RUN_FILE} is damaged: the format number is missing or invalid. {RESTORE_ADVICE}")
    if format_number > FORMAT:
        is_valid = isinstance(version, str) and re.fullmatch(r"[\w.+!-]{1,40}", version)
        writer = f"plogicnet {version}" if is_valid else "an unknown version of plogicnet"
        raise InputError(
            f"{path / RUN_FILE} has a newer format, written by {writer}. This version ({VERSION}) reads"
            f" formats up to {FORMAT}. Update plogicnet."
        )
    read_json_with_checksums(path / RUN_FILE)


def iteration_folder(path: Path, iteration: int) -> Path:
    """Return the directory of an EM iteration.

    Example:
        >>> iteration_folder(Path("runs/family"), 2).as_posix()
        'runs/family/checkpoint/2'
    """
    return path / CHECKPOINT_DIR / str(iteration)


def saved_iterations(path: Path) -> list[int]:
    """Return the numbers of the EM iterations that were written completely, in ascending order."""
    names = [file.parent.name for file in (path / CHECKPOINT_DIR).glob(f"*/{ITERATION_FILE}")]
    return sorted(int(name) for name in names if name.isdecimal())
