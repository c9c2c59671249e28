"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from plogicnet.support.memory import limit_memory

Graph = Annotated[
    str | None,
    Argument(
        help="Data set name, directory with train/valid/test files, or one file. Default: the built-in graph family."
    ),
]
Source = Annotated[str, Argument(help="Data set name, directory or file.")]
Run = Annotated[Path, Argument(help="Run directory.")]
Snapshot = Annotated[
    str | None, Option("--snapshot", help="Name of a snapshot, as `runs list` shows it. Default: the current one.")
]
Keep = Annotated[
    int,
    Option("--keep", min=1, help="Number of snapshots to keep, and those that were current in the last minute."),
]
RulesFile = Annotated[
    Path | None,
    Option(
        "--rules",
        help="File of rules to add to the mined ones: rule syntax, rules.tsv, AMIE or AnyBURL."
        " With --set rules.mine=false, only these are used.",
    ),
]
FactsFile = Annotated[
    Path | None,
    Option("--facts", help="File of additional facts. Entities can be new, relations cannot."),
]
Preset = Annotated[str | None, Option("--preset", help="Built-in settings, such as best/family.")]
ConfigFile = Annotated[Path | None, Option("--config", help="YAML file with settings.")]
Assignments = Annotated[
    list[str] | None, Option("--set", help="One setting, such as neural.vectors.dim=100. Can be repeated.")
]
Seed = Annotated[int | None, Option("--seed", help="Random seed.")]
Device = Annotated[str | None, Option("--device", help="Device: auto, cpu or cuda.")]
Threads = Annotated[int | None, Option("--threads", help="Number of CPU threads. 0: all cores.")]
_LIMIT = "Memory limit of the process, such as 2GB or 800MB. Not saved in runs."
MemoryLimit = Annotated[str | None, Option("--memory-limit", callback=limit_memory, help=_LIMIT)]
"""The callback sets the limit before the command starts; commands do not read the value."""
Columns = Annotated[str, Option("--columns", help="Column order of text files without a header: hrt or htr.")]
SplitShares = Annotated[
    str | None, Option("--split", help="Split one file into train, valid and test, for example 0.8,0.1,0.1.")
]
Json = Annotated[bool, Option("--json", help="Print one JSON object on stdout.")]
