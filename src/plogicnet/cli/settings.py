"""Functions that commands share. They create settings and graphs from options, check memory, and print results."""

import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from plogicnet.config import Config
from plogicnet.support.errors import InputError
from plogicnet.support.memory import NO_LIMIT, remaining_bytes, require_bytes
from plogicnet.support.progress import for_stderr

if TYPE_CHECKING:
    from plogicnet.graph import KnowledgeGraph
    from plogicnet.model import PLogicNet

DEMO_PRESET = "best/family"
"""The preset of `demo`, and of `train` without a graph."""
READ_FACTORS = {"": 5, ".gz": 25, ".parquet": 25, ".pq": 25, ".safetensors": 2}
"""Memory needed to read a file, as a multiple of its size, by file extension; "" is the default."""
READ_STEMS = {
    *("train", "valid", "dev", "val", "validation", "test", "entities", "relations", "labels"),
    *("graph", "rules", "hidden", "history", "metrics", "neural"),
}
"""Names, without extension, of the files of a graph or a run."""


def make_config(
    preset: str | None = None,
    file: Path | None = None,
    assignments: list[str] | None = None,
    seed: int | None = None,
    device: str | None = None,
    threads: int | None = None,
    start: Config | None = None,
) -> Config:
    """Return the settings of a command. Later sources override earlier ones: preset, file, --set, other options.

    Example:
        >>> make_config("best/family", None, ["neural.steps=32"], seed=3).neural.steps
        32
    """
    config = start or Config()
    if preset is not None:
        config = config.with_preset(preset)
    if file is not None:
        config = config.with_file(file)
    return config.with_assignments(assignments or []).with_values(
        without_none(seed=seed, device=device, threads=threads)
    )


def without_none(**options: object) -> dict[str, object]:
    """Return the options that are not None.

    Example:
        >>> without_none(device="cpu", threads=None)
        {'device': 'cpu'}
    """
    return {key: value for key, value in options.items() if value is not None}


def open_source(graph: str | None, settings: Config, columns: str, split: str | None) -> "KnowledgeGraph":
    """Return the graph of a command, or the demo family if no graph is given."""
    from plogicnet.graph import demo_family, open_graph, parse_shares
    from plogicnet.graph.datasets.registry import locate

    if graph is None:
        print("no graph was given: using the built-in graph family", file=sys.stderr)
        return demo_family(settings.seed)
    shares = parse_shares(split) if split is not None else None
    require_read_memory(Path(graph) if os.path.exists(graph) else locate(graph))  # noqa: PTH110 (as in open_graph)
    return open_graph(graph, columns, shares, settings.seed, for_stderr())


def load_run(
    run: Path,
    device: str | None,
    threads: int | None,
    snapshot: str | None = None,
    facts: Path | None = None,
) -> "PLogicNet":
    """Load a complete run. The device, the threads, the snapshot and the file of additional facts are optional."""
    from plogicnet.model import PLogicNet

    require_read_memory(run, snapshot)
    model = PLogicNet.load(run, without_none(device=device, threads=threads), snapshot)
    return model if facts is None else model.with_facts(facts)


def require_read_memory(path: Path | None, snapshot: str | None = None) -> None:
    """Raise InputError if reading a graph or a run would exceed the memory limit, estimated from file sizes.

    Example:
        >>> require_read_memory(Path("runs/family"))  # no limit is set
    """
    if remaining_bytes() == NO_LIMIT:
        return
    from plogicnet.runs.directory import START_DIR, State, snapshot_folder, state_of

    default, state = READ_FACTORS[""], State.ABSENT if path is None else state_of(path)
    if path is not None and state is not State.ABSENT:
        path = snapshot_folder(path, snapshot) if state is State.COMPLETE else path / START_DIR
    try:
        files = [] if path is None else [path] if path.is_file() else list(filter(_is_read, path.iterdir()))
        needed = sum(READ_FACTORS.get(file.suffix, default) * file.stat().st_size for file in files if file.is_file())
    except OSError:  # the error is raised again when the file is read
        needed = 0
    require_bytes(needed, "the program" if path is None else f"reading {path}")


def _is_read(file: Path) -> bool:
    return file.name.split(".")[0] in READ_STEMS or file.name.endswith("2id.txt")


def require_folder(out: Path | None) -> None:
    """Raise InputError if the directory of an output file does not exist.

    Example:
        >>> require_folder(Path("nowhere/rules.tsv"))
        Traceback (most recent call last):
        plogicnet.support.errors.InputError: --out nowhere/rules.tsv: directory nowhere does not exist. Create it first.
    """
    if out is not None and not out.absolute().parent.is_dir():
        raise InputError(f"--out {out}: directory {out.parent} does not exist. Create it first.")


def print_json(value: object) -> None:
    """Print one JSON object on stdout.

    Example:
        >>> print_json({"a": 1})
        {
         "a": 1
        }
    """
    print(json.dumps(value, ensure_ascii=False, indent=1))


def print_message(text: str) -> None:
    """Print a message on stderr.

    Example:
        >>> print_message("stopped")
    """
    print(f"plogicnet: {text}", file=sys.stderr)


def log_to_stderr(level: int, *names: str) -> None:
    """Print the messages of these loggers on stderr if they have at least this level.

    Example:
        >>> log_to_stderr(logging.WARNING)
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(level)
    for name in names:
        logging.getLogger(name).addHandler(handler)
    logging.getLogger("plogicnet").setLevel(logging.INFO)  # the log file of a run also contains INFO messages


def duration(seconds: float) -> str:
    """Return a duration as text.

    Example:
        >>> duration(7300)
        '2 h'
    """
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
