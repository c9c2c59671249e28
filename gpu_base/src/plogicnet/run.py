"""A run directory: which state it is in, and the order in which its files are written and read."""

import json
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plogicnet.config import Config
from plogicnet.errors import InputError
from plogicnet.files import checksum, clear_parts, in_use, still_locked, write_text
from plogicnet.graph import KnowledgeGraph
from plogicnet.rules import RuleTable, Statement, statements_of
from plogicnet.run_files import GRAPH, OUTCOME, VECTORS, read_graph, read_outcome, write_graph, write_outcome
from plogicnet.seals import (
    PUT_BACK,
    DamageError,
    damage_said,
    read_json,
    read_sealed,
    read_summed,
    require_whole,
    write_sealed,
    write_summed,
)
from plogicnet.version import VERSION

if TYPE_CHECKING:
    from plogicnet.em import Outcome

log = logging.getLogger(__name__)
FORMAT = 1
"""Rises when an older version could no longer read a run right."""
BEGUN = "run.json"
"""Written when all that training goes on from is there; holds the checksums of the graph's files."""
COMPLETE = "metrics.json"
"""Written last of all; holds the checksums of what training left behind."""
CHECKPOINT = "checkpoint"
WRITTEN = "written.rules"
"""The rules that a person gave, perhaps none; as long as it is there, training can begin anew."""
E_STEP = "e_step.safetensors"
"""Where the E-step in hand keeps its place; an earlier place stands beside it."""
REACHED = "reached.json"
"""Written last in the directory of each EM iteration; holds the checksums of its files."""
LOST = "if it was complete once, put metrics.json back from a copy; else remove the directory and train again"
FILES = (
    *("config.yaml", "graph.parquet", "entities.tsv", "relations.tsv"),
    *("rules.tsv", "hidden.parquet", "history.jsonl", "metrics.json"),
)


def require_inside(path: Path) -> None:
    """An error where a run directory holds a link that leads out of it, or what is neither file nor directory.

    A run may be a stranger's: what is read or written through such a link would be this person's own files.

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


def begin(path: Path, config: Config, graph: KnowledgeGraph, statements: Sequence[Statement] | None) -> None:
    """Writes all that a training goes on from, should it be stopped before its first EM iteration is over.

    Args:
        path: the run directory.
        config: its settings.
        graph: what is learned from.
        statements: the written rules; None where there is no training that could begin anew.

    Example:
        >>> begin(Path("runs/family"), config, graph, [])  # doctest: +SKIP
    """
    require_own(path)
    path.mkdir(parents=True, exist_ok=True)
    (path / ".lock").touch()
    for name in (BEGUN, COMPLETE, "labels.tsv"):
        (path / name).unlink(missing_ok=True)
    if (path / CHECKPOINT).exists():
        shutil.rmtree(path / CHECKPOINT)
    (path / CHECKPOINT).mkdir()
    _write_config(path, config)
    if statements is not None:
        write_summed(path / CHECKPOINT / WRITTEN, "".join(f"{statement}\n" for statement in statements))
    _write_begun(path, graph)


def _write_begun(path: Path, graph: KnowledgeGraph) -> None:
    write_graph(path, graph)
    write_sealed(path / BEGUN, {"format": FORMAT, "version": VERSION}, GRAPH)


def _restore(path: Path, graph: KnowledgeGraph) -> None:
    """Writes again what vanished of the graph's files while training went; an error where all did."""
    if not path.is_dir() or not still_locked(path):
        raise InputError(f"{path} is gone: the run directory was removed or replaced while it was being written to")
    names = (BEGUN, *(GRAPH if graph.labels else GRAPH[:3]))
    gone = [name for name in names if not (path / name).is_file()]
    if gone:
        log.warning("%s: written again, for it had vanished: %s", path, ", ".join(gone))
        for file in (path / "config.yaml", path / CHECKPOINT / WRITTEN):
            text, whole = read_summed(file) if file.is_file() else ("", True)
            if whole is None:  # an older version's; beside a run.json with checksums it would pass for edited
                write_summed(file, text)
        _write_begun(path, graph)


def require_own(path: Path) -> None:
    """An error where a directory holds files that are no run's: they might be written over.

    Example:
        >>> require_own(Path("nowhere"))
    """
    require_inside(path)
    if path.is_dir() and any(path.iterdir()) and not ((path / ".lock").exists() or (path / BEGUN).exists()):
        raise InputError(f"{path}: the directory is not empty and holds no run; name a new one")


def keep(
    path: Path, graph: KnowledgeGraph, outcome: "Outcome", candidates: int, best: int, final: bool = False
) -> None:
    """Keeps what an EM iteration left behind, so that training can go on from it.

    With it, the iteration before stays, should this one be damaged, and the best that each of the two had seen.
    A final one is not trained further: only calibration and figures are left to do.

    Example:
        >>> keep(Path("runs/family"), graph, outcome, candidates=10, best=1)  # doctest: +SKIP
    """
    _restore(path, graph)
    folder = path / CHECKPOINT / str(outcome.iteration)
    old = path / CHECKPOINT if is_complete(path) else folder  # of a training that is over, or an iteration left out
    if old.exists():
        shutil.rmtree(old)
    folder.mkdir(parents=True)
    reached = {"candidates": candidates, "lambda": outcome.lambda_, "best": best, "final": final}
    try:
        write_outcome(folder, graph, outcome)
        write_sealed(folder / REACHED, reached, OUTCOME)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # half of it is of no use, and takes room on a full disk
        raise
    for place in (path / CHECKPOINT).glob(f"{Path(E_STEP).stem}*"):
        place.unlink()  # that E-step is over
    needed = [outcome.iteration, best]
    for before in [i for i in _kept(path) if i < outcome.iteration][-1:]:
        with suppress(DamageError):
            needed += [before, read_sealed(path / CHECKPOINT / str(before) / REACHED)[0].get("best", before)]
    for other in _kept(path):
        if other not in needed:
            shutil.rmtree(path / CHECKPOINT / str(other))


def write(
    path: Path,
    config: Config,
    graph: KnowledgeGraph,
    outcome: "Outcome",
    metrics: dict[str, object],
    seconds: dict[str, float],
) -> None:
    """Writes every file of a run that was begun; metrics.json comes last and marks it as complete.

    Example:
        >>> write(Path("runs/family"), config, graph, outcome, metrics, {})  # doctest: +SKIP
    """
    _restore(path, graph)
    (path / COMPLETE).unlink(missing_ok=True)  # before any file changes: who reads meanwhile sees it gone
    _write_config(path, config)
    write_outcome(path, graph, outcome)
    write_text(path / "timings.json", json.dumps({k: round(v, 3) for k, v in seconds.items()}, indent=1) + "\n")
    write_sealed(path / COMPLETE, metrics, OUTCOME)
    tidy(path)


def tidy(path: Path) -> None:
    """Removes what a complete run no longer needs, left perhaps by a process that was killed.

    Example:
        >>> tidy(Path("runs/family"))  # doctest: +SKIP
    """
    shutil.rmtree(path / CHECKPOINT, ignore_errors=True)
    clear_parts(path)


def reopen(path: Path, config: Config, graph: KnowledgeGraph, last: "Outcome", candidates: int) -> None:
    """Makes a complete run one that stands after its last iteration, with settings that ask for more of them.

    Example:
        >>> reopen(Path("runs/family"), config, graph, outcome, candidates=10)  # doctest: +SKIP
    """
    keep(path, graph, last, candidates, last.iteration)
    (path / COMPLETE).replace(path / CHECKPOINT / COMPLETE)  # the files it stands for stay until all is done
    _write_config(path, config)


def _write_config(path: Path, config: Config) -> None:
    """The settings may change on the way, and no other file could change with them: their checksum is in the file."""
    write_summed(path / "config.yaml", config.to_yaml())


def read_config(path: Path) -> Config:
    """The settings of a run as they were written; an error where they were edited since.

    Example:
        >>> read_config(Path("runs/family"))  # doctest: +SKIP
    """
    file = path / "config.yaml"
    config = Config().with_file(file)
    whole = read_summed(file)[1]
    if whole is False or (whole is None and _read_begun(path)[1]):  # else it is of an older version
        raise DamageError(
            f"{file} was edited by hand, or is damaged: these are not the settings that the run was made with. Put it"
            f" back as it was. --device and --threads are given on the command line, more EM iterations by `plogicnet"
            f" resume {path} --set em.iterations=N`; for any other setting train a new run (`plogicnet train GRAPH"
            f" --config {file} --out ANOTHER`)"
        )
    return config


@dataclass(frozen=True)
class Unfinished:
    """A run that training can go on with.

    Attributes:
        statements: the written rules.
        last: what the last EM iteration left behind; None before the first is over.
        best: what the best one left behind, where it is another.
        candidates: how many rules were counted; 0 before the first iteration is over.
        complete: whether it was trained to its end; `last` then is what it holds, and later iterations that were no
            better are forgotten.
        final: whether `last` is not to be trained further.
    """

    config: Config
    graph: KnowledgeGraph
    statements: list[Statement]
    last: "Outcome | None"
    best: "Outcome | None"
    candidates: int
    complete: bool = False
    final: bool = False


def is_complete(path: Path) -> bool:
    """Whether a run is trained to its end.

    Example:
        >>> is_complete(Path("nowhere"))
        False
    """
    return (path / COMPLETE).is_file()


def is_run(path: Path) -> bool:
    """Whether a directory holds a run, complete or not.

    Example:
        >>> is_run(Path("nowhere"))
        False
    """
    return (path / BEGUN).is_file() or (is_complete(path) and (path / "config.yaml").is_file())


def require_begun(path: Path) -> None:
    """An error unless there is something to go on with.

    Example:
        >>> require_begun(Path("runs/family"))  # doctest: +SKIP
    """
    if not path.is_dir():
        raise InputError(f"no run at {path}: no such directory; `plogicnet train GRAPH --out {path}` makes one")
    require_inside(path)
    if not (path / BEGUN).is_file():
        raise InputError(
            f"{path}: no run is here, or its training was stopped before anything was saved; begin it with"
            f" `plogicnet train GRAPH --out {path}`"
        )
    _require_format(path)


def read_unfinished(path: Path, settings: Mapping[str, object]) -> Unfinished:
    """Opens a run where its training stopped; a complete one too, to give it more EM iterations.

    Example:
        >>> read_unfinished(Path("runs/family"), {})  # doctest: +SKIP
    """
    with damage_said(path):
        return _read_unfinished(path, settings)


def _read_unfinished(path: Path, settings: Mapping[str, object]) -> Unfinished:
    require_begun(path)
    config = read_config(path).with_values(settings)
    graph = _read_begun_graph(path)
    if is_complete(path):
        _require_complete(path)
        return _read_complete(path, config, graph, path / COMPLETE)
    damage = None
    for iteration in reversed(_kept(path)):
        try:
            return _read_kept(path, config, graph, iteration)
        except DamageError as error:
            damage = error
            log.warning("%s. EM iteration %d is left out, and training goes on from before it", error, iteration)
    return _from_the_beginning(path, config, graph, damage)


def _read_complete(path: Path, config: Config, graph: KnowledgeGraph, file: Path) -> Unfinished:
    """Where training stood when it ended; the file is the run's metrics.json, wherever it lies."""
    metrics = _read_metrics(path, file)
    whole = read_outcome(path, config, graph, metrics["lambda"], metrics.get("iteration"))
    last = replace(whole, history=whole.history[: whole.iteration])
    _require_vectors(path, config, last, best=bool(config.em.patience))
    best = last if config.em.patience else None
    return Unfinished(config, graph, [], last, best, metrics["candidates"], complete=file.parent == path)


def _from_the_beginning(path: Path, config: Config, graph: KnowledgeGraph, damage: DamageError | None) -> Unfinished:
    """Where no EM iteration is kept, or none that is whole."""
    file, older = path / CHECKPOINT / WRITTEN, not _read_begun(path)[1]
    if not file.is_file():
        if (path / CHECKPOINT / COMPLETE).is_file():
            log.warning("%s: training goes on from the run as it was when it was complete", path)
            return _read_complete(path, config, graph, path / CHECKPOINT / COMPLETE)
        if damage is not None:  # a refitted, saved or once complete run: the rules it began with are not to be had
            raise damage
        if not older:
            raise DamageError(f"{path}: there is nothing here to go on from; {LOST}")
        return Unfinished(config, graph, [], None, None, 0)
    text, whole = read_summed(file)
    if whole is False or (whole is None and not older):
        raise DamageError(f"{file} is damaged, or was edited by hand: it does not fit its checksum; {PUT_BACK}")
    if damage is not None:
        log.warning("%s: no EM iteration is whole; training begins anew with the first", path)
    return Unfinished(config, graph, statements_of(text, graph, str(file)) if text else [], None, None, 0)


def _read_kept(path: Path, config: Config, graph: KnowledgeGraph, iteration: int) -> Unfinished:
    """Where training stands after an iteration, with the best that it had seen by then."""

    def outcome(i: int, best: bool) -> "Outcome":
        folder = path / CHECKPOINT / str(i)
        about, sums = read_sealed(folder / REACHED)
        require_whole(folder, sums, [n for n in OUTCOME if n != VECTORS or (folder / VECTORS).is_file()])
        found = read_outcome(folder, config, graph, about["lambda"], i)
        _require_vectors(folder, config, found, best)
        return found

    reached, _ = read_sealed(path / CHECKPOINT / str(iteration) / REACHED)
    patience, leader = bool(config.em.patience), reached["best"]
    last = outcome(iteration, patience and leader == iteration)
    if leader not in _kept(path):
        raise DamageError(f"{path / CHECKPOINT} is damaged: the best EM iteration is missing")
    best = (last if leader == iteration else outcome(leader, best=True)) if patience else None
    return Unfinished(config, graph, [], last, best, reached["candidates"], final=reached.get("final", False))


def _require_vectors(folder: Path, config: Config, outcome: "Outcome", best: bool) -> None:
    """An error where an iteration's vectors are missing that nothing will train again."""
    from plogicnet.em import is_over

    file = folder / VECTORS
    if not config.em.embedding or file.is_file():
        return
    if config.em.warm_start:
        raise DamageError(f"{file} is missing, and with em.warm_start=true training goes on from these vectors")
    if best:
        raise DamageError(f"{file} is missing: the vectors of the best iteration so far, which em.patience keeps")
    if is_over(outcome, config):
        more = f"`plogicnet resume RUN --set em.iterations={outcome.iteration + 1}` trains them anew"
        raise DamageError(f"{file} is missing, and no EM iteration is left to train vectors in; {more}")


def _kept(path: Path) -> list[int]:
    """The EM iterations whose outcome is whole on disk."""
    folders = (path / CHECKPOINT).glob("*") if (path / CHECKPOINT).is_dir() else []
    return sorted(int(f.name) for f in folders if f.name.isdecimal() and (f / REACHED).is_file())


def _read_begun(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    return read_sealed(path / BEGUN) if (path / BEGUN).is_file() else ({}, {})


def _read_begun_graph(path: Path) -> KnowledgeGraph:
    require_whole(path, _read_begun(path)[1], GRAPH)
    return read_graph(path)


def _require_format(path: Path) -> None:
    about = read_json(path / BEGUN) if (path / BEGUN).is_file() else {}
    number, version = about.get("format", FORMAT), about.get("version")
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise DamageError(f"{path / BEGUN} is damaged: it tells no format of runs; {PUT_BACK}")
    if number > FORMAT:
        named = isinstance(version, str) and re.fullmatch(r"[\w.+!-]{1,40}", version)
        writer = version if named else "of a version that is no version"
        raise InputError(
            f"{path} was written by plogicnet {writer}, a newer version than this ({VERSION});"
            " update plogicnet to open it"
        )
    _read_begun(path)


def read_rules(path: Path) -> RuleTable:
    """The learned rules of a complete run, strongest first, then the constraints.

    Example:
        >>> read_rules(Path("runs/family"))  # doctest: +SKIP
    """
    with _undisturbed(path):
        _require_complete(path)
        _require_unedited(path, read_sealed(path / COMPLETE)[1])
        return RuleTable.read(path / "rules.tsv").by_weight()


def _read_metrics(path: Path, file: Path, edited: bool = False) -> dict[str, Any]:
    """What metrics.json holds, once the files that it stands for are as it says; rules may be edited, if that is said.

    Vectors may be missing: whether they are needed, others know.
    """
    metrics, sums = read_sealed(file)
    older = metrics.pop("rules_sha256", None)
    if not edited:
        _require_unedited(path, {"rules.tsv": older} if older else sums)
    require_whole(path, sums, [n for n in OUTCOME[1:] if n != VECTORS or (path / VECTORS).is_file()])
    return metrics


def _require_unedited(path: Path, sums: Mapping[str, str]) -> None:
    if "rules.tsv" in sums and checksum(path / "rules.tsv") != sums["rules.tsv"]:
        raise InputError(
            f"{path}: rules.tsv was edited, or is damaged (line ends that were converted are enough);"
            f" `plogicnet refit {path}` learns the weights of the rules in it, or put it back as it was"
        )


def read(
    path: Path, settings: Mapping[str, object], edited: bool = False
) -> tuple[Config, KnowledgeGraph, "Outcome", dict[str, Any]]:
    """Opens a complete run; settings by dotted key override its own. Rules may be edited only where that is said.

    Example:
        >>> config, graph, outcome, metrics = read(Path("runs/family"), {})  # doctest: +SKIP
    """
    with _undisturbed(path), damage_said(path):
        return _read(path, settings, edited)


@contextmanager
def _undisturbed(path: Path) -> Iterator[None]:
    """What is read beside a process that writes is of one piece, or that process is named as the cause."""
    before, error = _written(path), None
    try:
        yield
    except (InputError, FileNotFoundError) as found:
        error = found
    if _written(path) != before or (error is not None and in_use(path)):
        raise InputError(f"{path}: another process is writing here; try again when it is done") from error
    if error is not None:
        raise error


def _written(path: Path) -> tuple[int, int] | None:
    """Which metrics.json is there: it goes before any other file of a run changes."""
    try:
        about = (path / COMPLETE).stat()
    except OSError:
        return None
    return about.st_ino, about.st_mtime_ns


def _read(
    path: Path, settings: Mapping[str, object], edited: bool
) -> tuple[Config, KnowledgeGraph, "Outcome", dict[str, Any]]:
    _require_complete(path)
    config = read_config(path).with_values(settings)
    metrics = _read_metrics(path, path / COMPLETE, edited)
    graph = _read_begun_graph(path)
    if config.em.embedding and not (path / VECTORS).is_file():
        raise InputError(f"{path} is damaged: its file embeddings.safetensors is missing")
    return config, graph, read_outcome(path, config, graph, metrics["lambda"], metrics.get("iteration")), metrics


def _require_complete(path: Path) -> None:
    if not path.is_dir():
        raise InputError(f"no run at {path}: no such directory; `plogicnet train GRAPH --out {path}` makes one")
    require_inside(path)
    _require_format(path)
    if not is_complete(path):
        how = "`plogicnet train` makes one"
        if (path / BEGUN).is_file():
            how = f"`plogicnet resume {path}` goes on with it" if (path / CHECKPOINT).is_dir() else LOST
        raise InputError(f"{path} holds no complete run (there is no metrics.json); {how}")
    missing = [name for name in FILES if not (path / name).is_file()]
    # a run without run.json is of an older version, but for one whose settings have a checksum
    if not missing and not (path / BEGUN).is_file() and read_summed(path / "config.yaml")[1] is not None:
        missing = [BEGUN]
    if missing:
        raise InputError(f"{path} is damaged: its file {missing[0]} is missing; {PUT_BACK}")
