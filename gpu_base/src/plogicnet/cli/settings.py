"""What the commands share: options, the Config and the graph that they make, and JSON on stdout."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plogicnet.config import Config
from plogicnet.errors import InputError
from plogicnet.memory import NO_LIMIT, left_bytes, require_bytes

if TYPE_CHECKING:
    from plogicnet.graph import KnowledgeGraph

Graph = Annotated[
    str | None,
    typer.Argument(help="A data set's name, a directory with train/valid/test files, or one file."),
]
Run = Annotated[Path, typer.Argument(help="A run directory.")]
DEMO_PRESET = "best/family"
READ = {"": 5, ".gz": 25, ".parquet": 25, ".pq": 25, ".safetensors": 2}
"""How many times its size a file takes while it is read, by its ending; what is packed, most."""
STEMS = {
    *("train", "valid", "dev", "val", "validation", "test", "entities", "relations", "labels"),
    *("graph", "rules", "hidden", "history", "metrics", "embeddings"),
}
RulesFile = Annotated[Path | None, typer.Option("--rules", help="A file of rules; rules.mine=false uses them alone.")]
FactsFile = Annotated[
    Path | None,
    typer.Option("--facts", help="A file of facts that training never saw; entities may be new, relations not."),
]
Preset = Annotated[str | None, typer.Option("--preset", help="Settings that come with the program, as best/family.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="A YAML file with settings.")]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", help="One setting, as kge.dim=100; any number of times.")
]
Seed = Annotated[int | None, typer.Option("--seed", help="One seed for everything random.")]
Device = Annotated[str | None, typer.Option("--device", help="auto, cpu or cuda.")]
Threads = Annotated[int | None, typer.Option("--threads", help="Processor threads; 0: all cores.")]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        "--memory-limit", help="The most memory that the program may hold, as 2GB or 800MB. Not kept in runs."
    ),
]
Columns = Annotated[str, typer.Option("--columns", help="Order of columns in text without a header: hrt or htr.")]
SplitShares = Annotated[
    str | None, typer.Option("--split", help="For one file: shares of train, valid, test, as 0.8,0.1,0.1.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def make_config(
    preset: str | None,
    file: Path | None,
    assignments: list[str] | None,
    seed: int | None = None,
    device: str | None = None,
    threads: int | None = None,
    start: Config | None = None,
) -> Config:
    """Preset, then file, then --set, then the options of their own: later wins over earlier.

    Example:
        >>> make_config("best/family", None, ["kge.dim=32"], seed=3).kge.dim
        32
    """
    config = start or Config()
    if preset is not None:
        config = config.with_preset(preset)
    if file is not None:
        config = config.with_file(file)
    config = config.with_assignments(assignments or [])
    options = {"seed": seed, "device": device, "threads": threads}
    return config.with_values({key: value for key, value in options.items() if value is not None})


def precision_assignments(text: str | None) -> list[str]:
    """`composition=0.6,inverse=0.1` as assignments of settings.

    Example:
        >>> precision_assignments("composition=0.6,inverse=0.1")
        ['rules.min_precision.composition=0.6', 'rules.min_precision.inverse=0.1']
    """
    if text is None:
        return []
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        if "=" not in part:
            raise InputError(f"--min-precision {text}: expected pattern=number pairs, as composition=0.6,inverse=0.1")
    return [f"rules.min_precision.{part}" for part in parts]


def open_source(graph: str | None, settings: "Config", columns: str, split: str | None) -> "KnowledgeGraph":
    """The graph that a command names; the demo family where it names none.

    Example:
        >>> open_source(None, make_config(None, None, None), "hrt", None).name  # doctest: +SKIP
    """
    from plogicnet.graph import demo_family, open_graph, parse_shares
    from plogicnet.graph.datasets import locate
    from plogicnet.progress import for_stderr

    if graph is None:
        print("no GRAPH is given, so this is the built-in demo family", file=sys.stderr)
        return demo_family(settings.seed)
    shares = parse_shares(split) if split is not None else None
    require_reading(Path(graph) if os.path.exists(graph) else locate(graph))  # noqa: PTH110 (as in open_graph)
    return open_graph(graph, columns, shares, settings.seed, for_stderr())


def require_reading(path: Path | None) -> None:
    """Refuses a graph or a run that a memory limit has no room for, by the sizes of its files.

    Example:
        >>> require_reading(Path("runs/family"))  # there is no limit
    """
    if left_bytes() == NO_LIMIT:
        return
    try:
        files = [path] if path and path.is_file() else list(filter(_is_read, path.iterdir())) if path else []
        needed = sum(READ.get(file.suffix, READ[""]) * file.stat().st_size for file in files if file.is_file())
    except OSError:  # who reads it will say so
        needed = 0
    require_bytes(needed, "the program itself" if path is None else f"reading {path}")


def _is_read(file: Path) -> bool:
    """Whether a file of a directory is one that a graph or a run consists of, by its name."""
    return file.name.split(".")[0] in STEMS or file.name.endswith("2id.txt")


def print_json(value: object) -> None:
    """One JSON object on stdout, for programs.

    Example:
        >>> print_json({"a": 1})
        {
         "a": 1
        }
    """
    print(json.dumps(value, ensure_ascii=False, indent=1))


def require_folder(out: Path | None) -> None:
    """Says before the work begins that its result could not be written.

    Example:
        >>> require_folder(Path("rules.tsv"))
    """
    if out is not None and not out.absolute().parent.is_dir():
        raise InputError(f"--out {out}: there is no directory {out.parent}")


def peak_memory_mb() -> int | None:
    """This process's peak memory; None where the system does not tell.

    Example:
        >>> peak_memory_mb()  # doctest: +SKIP
    """
    if sys.platform == "win32":
        return None
    import resource

    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, KiB here
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)


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
