"""A run directory: the names of its files, which state it is in, and what it may contain."""

import os
import re
from enum import Enum
from pathlib import Path

from plogicnet.runs.integrity import PUT_BACK, DamageError, read_json, read_sealed, require_present
from plogicnet.support.errors import InputError
from plogicnet.support.files import LOCK
from plogicnet.version import VERSION

FORMAT = 1
"""Rises when an older version could no longer read a run correctly."""
CONFIG, TIMINGS = "config.yaml", "timings.json"
GRAPH = ("graph.parquet", "entities.tsv", "relations.tsv", "labels.tsv")
"""The files of the graph; the last is there only where the graph has labels."""
OUTCOME = RULES, HIDDEN, HISTORY, NEURAL = ("rules.tsv", "hidden.parquet", "history.jsonl", "neural.safetensors")
"""The files of what training left behind; the last is there only where there is a neural model."""
BEGUN = "run.json"
"""Written once a training can be resumed; holds the format and the checksums of the graph's files."""
COMPLETE = "metrics.json"
"""Written last; holds the figures and the checksums of what training left behind."""
CHECKPOINT = "checkpoint"
"""The directory of what an unfinished run is resumed from: a directory for each EM iteration that is kept."""
REACHED = "reached.json"
"""Written last in the directory of an EM iteration; holds the checksums of its files."""
WRITTEN = f"{CHECKPOINT}/written.rules"
"""The rules that were given to the training, perhaps none: with them it can start from the beginning."""
SUPERSEDED = f"{CHECKPOINT}/{COMPLETE}"
"""The metrics.json of a complete run that is given more EM iterations."""
E_STEP = f"{CHECKPOINT}/e_step.safetensors"
"""The checkpoint of the current E-step."""
LOST = f"if it was complete once, put {COMPLETE} back from a copy; else remove the directory and train again"


class State(Enum):
    """What a directory holds: no run, a run that can be resumed, or a run that is trained to its end."""

    ABSENT = "absent"
    UNFINISHED = "unfinished"
    COMPLETE = "complete"


def state_of(path: Path) -> State:
    """The state of a run directory, perhaps a damaged one.

    Example:
        >>> state_of(Path("nowhere"))
        <State.ABSENT: 'absent'>
    """
    begun = (path / BEGUN).is_file()
    if (path / COMPLETE).is_file() and (begun or (path / CONFIG).is_file()):
        return State.COMPLETE
    return State.UNFINISHED if begun else State.ABSENT


def require_inside(path: Path) -> None:
    """Raises where a run directory holds a link that leads out of it, or what is neither file nor directory.

    A run may come from a stranger: such a link would make the program read or write files of the user's own.

    Example:
        >>> require_inside(Path("nowhere"))
    """
    root = path.resolve()
    for folder, folders, files in os.walk(path):
        for entry in (Path(folder) / name for name in (*folders, *files)):
            if entry.is_symlink() and not entry.resolve().is_relative_to(root):
                raise InputError(f"{entry}: a link out of the run directory; put the file itself there, or remove it")
            if entry.exists() and not (entry.is_file() or entry.is_dir()):
                raise InputError(f"{entry}: neither a file nor a directory; it is no part of a run, so remove it")


def require_own(path: Path) -> None:
    """Raises where a directory holds files that are not a run's, which might be overwritten.

    Example:
        >>> require_own(Path("nowhere"))
    """
    require_inside(path)
    if path.is_dir() and any(path.iterdir()) and not ((path / LOCK).exists() or (path / BEGUN).exists()):
        raise InputError(f"{path}: the directory is not empty and holds no run; name a new one")


def require_begun(path: Path) -> None:
    """Raises unless a directory holds a run, complete or not, of a format that this version reads."""
    _require_directory(path)
    if not (path / BEGUN).is_file():
        raise InputError(
            f"{path}: no run is here, or its training was stopped before anything was saved; begin it with"
            f" `plogicnet train GRAPH --out {path}`"
        )
    _require_format(path)


def require_complete(path: Path) -> None:
    """Raises unless a directory holds a complete run with all its files, of a format that this version reads."""
    _require_directory(path)
    state = state_of(path)
    if state is not State.ABSENT:
        _require_format(path)
    if state is not State.COMPLETE:
        advice = "`plogicnet train` makes one"
        if state is State.UNFINISHED:
            advice = f"`plogicnet resume {path}` completes it" if (path / CHECKPOINT).is_dir() else LOST
        raise InputError(f"{path} holds no complete run (there is no {COMPLETE}); {advice}")
    require_present(path, (CONFIG, *GRAPH[:3], RULES, HIDDEN, HISTORY))


def _require_directory(path: Path) -> None:
    if not path.is_dir():
        raise InputError(f"no run at {path}: no such directory; `plogicnet train GRAPH --out {path}` makes one")
    require_inside(path)


def _require_format(path: Path) -> None:
    """Raises where a newer version wrote the run, whose checksums may be others; then where run.json is damaged."""
    require_present(path, [BEGUN])
    about = read_json(path / BEGUN)
    number, version = about.get("format"), about.get("version")
    if type(number) is not int or number < 1:
        raise DamageError(f"{path / BEGUN} is damaged: it names no format of runs; {PUT_BACK}")
    if number > FORMAT:
        named = isinstance(version, str) and re.fullmatch(r"[\w.+!-]{1,40}", version)
        writer = f"plogicnet {version}" if named else "an unknown version of plogicnet"
        raise InputError(f"{path} was written by {writer}, newer than this ({VERSION}); update plogicnet to open it")
    read_sealed(path / BEGUN)


def iteration_folder(path: Path, iteration: int) -> Path:
    """Where an EM iteration is kept.

    Example:
        >>> iteration_folder(Path("runs/family"), 2).as_posix()
        'runs/family/checkpoint/2'
    """
    return path / CHECKPOINT / str(iteration)


def kept_iterations(path: Path) -> list[int]:
    """The EM iterations that were written completely."""
    names = [seal.parent.name for seal in (path / CHECKPOINT).glob(f"*/{REACHED}")]
    return sorted(int(name) for name in names if name.isdecimal())
