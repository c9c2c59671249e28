"""What the commands share: the Config and the graph that their options give, checks, and output."""

import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from plogicnet.config import Config
from plogicnet.support.errors import InputError
from plogicnet.support.memory import NO_LIMIT, left_bytes, require_bytes
from plogicnet.support.progress import for_stderr

if TYPE_CHECKING:
    from plogicnet.graph import KnowledgeGraph
    from plogicnet.model import PLogicNet

DEMO_PRESET = "best/family"
READ = {"": 5, ".gz": 25, ".parquet": 25, ".pq": 25, ".safetensors": 2}
"""How many times its size a file takes while it is read, by its ending; what is packed, most."""
STEMS = {
    *("train", "valid", "dev", "val", "validation", "test", "entities", "relations", "labels"),
    *("graph", "rules", "hidden", "history", "metrics", "neural"),
}
"""The names, without their endings, of the files that a graph or a run consists of."""


def make_config(
    preset: str | None = None,
    file: Path | None = None,
    assignments: list[str] | None = None,
    seed: int | None = None,
    device: str | None = None,
    threads: int | None = None,
    start: Config | None = None,
) -> Config:
    """Preset, then file, then --set, then the options of their own: later wins over earlier.

    Example:
        >>> make_config("best/family", None, ["neural.steps=32"], seed=3).neural.steps
        32
    """
    config = start or Config()
    if preset is not None:
        config = config.with_preset(preset)
    if file is not None:
        config = config.with_file(file)
    return config.with_assignments(assignments or []).with_values(given(seed=seed, device=device, threads=threads))


def given(**options: object) -> dict[str, object]:
    """The options that are given.

    Example:
        >>> given(device="cpu", threads=None)
        {'device': 'cpu'}
    """
    return {key: value for key, value in options.items() if value is not None}


def open_source(graph: str | None, settings: Config, columns: str, split: str | None) -> "KnowledgeGraph":
    """The graph that a command names; the demo family where it names none."""
    from plogicnet.graph import demo_family, open_graph, parse_shares
    from plogicnet.graph.datasets.registry import locate

    if graph is None:
        print("no GRAPH is given, so this is the built-in demo family", file=sys.stderr)
        return demo_family(settings.seed)
    shares = parse_shares(split) if split is not None else None
    require_reading(Path(graph) if os.path.exists(graph) else locate(graph))  # noqa: PTH110 (as in open_graph)
    return open_graph(graph, columns, shares, settings.seed, for_stderr())


def load_run(
    run: Path, device: str | None, threads: int | None, edited: bool = False, facts: Path | None = None
) -> "PLogicNet":
    """Opens a complete run on the device and threads that a command names, with the facts of a file added."""
    from plogicnet.model import PLogicNet

    require_reading(run)
    model = PLogicNet.load(run, given(device=device, threads=threads), edited)
    return model if facts is None else model.with_facts(facts)


def require_reading(path: Path | None) -> None:
    """Raises where a memory limit has no room for a graph or a run, by the sizes of its files.

    Example:
        >>> require_reading(Path("runs/family"))  # there is no limit
    """
    if left_bytes() == NO_LIMIT:
        return
    try:
        files = [] if path is None else [path] if path.is_file() else list(filter(_is_read, path.iterdir()))
        needed = sum(READ.get(file.suffix, READ[""]) * file.stat().st_size for file in files if file.is_file())
    except OSError:  # raised again where it is read
        needed = 0
    require_bytes(needed, "the program itself" if path is None else f"reading {path}")


def _is_read(file: Path) -> bool:
    return file.name.split(".")[0] in STEMS or file.name.endswith("2id.txt")


def require_folder(out: Path | None) -> None:
    """Raises before the work begins where its result could not be written.

    Example:
        >>> require_folder(Path("rules.tsv"))
    """
    if out is not None and not out.absolute().parent.is_dir():
        raise InputError(f"--out {out}: there is no directory {out.parent}")


def print_json(value: object) -> None:
    """One JSON object on stdout, for programs.

    Example:
        >>> print_json({"a": 1})
        {
         "a": 1
        }
    """
    print(json.dumps(value, ensure_ascii=False, indent=1))


def say(text: str) -> None:
    """A message on stderr.

    Example:
        >>> say("stopped")
    """
    print(f"plogicnet: {text}", file=sys.stderr)


def log_to_stderr(level: int, *names: str) -> None:
    """Shows what these loggers log from this level on.

    Example:
        >>> log_to_stderr(logging.WARNING)
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(level)
    for name in names:
        logging.getLogger(name).addHandler(handler)
    logging.getLogger("plogicnet").setLevel(logging.INFO)  # a run's own log has more


def duration(seconds: float) -> str:
    """Seconds in words.

    Example:
        >>> duration(7300)
        '2 h'
    """
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
