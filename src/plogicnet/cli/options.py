"""The options that commands share."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from plogicnet.support.memory import limit_memory

Graph = Annotated[str | None, Argument(help="A data set's name, a directory with train/valid/test files, or one file.")]
Source = Annotated[str, Argument(help="A data set's name, a directory or a file.")]
Run = Annotated[Path, Argument(help="A run directory.")]
RulesFile = Annotated[Path | None, Option("--rules", help="A file of rules; rules.mine=false uses them alone.")]
FactsFile = Annotated[
    Path | None, Option("--facts", help="A file of facts that training never saw; entities may be new, relations not.")
]
Preset = Annotated[str | None, Option("--preset", help="Settings that come with the program, as best/family.")]
ConfigFile = Annotated[Path | None, Option("--config", help="A YAML file with settings.")]
Assignments = Annotated[
    list[str] | None, Option("--set", help="One setting, as neural.vectors.dim=100; any number of times.")
]
Seed = Annotated[int | None, Option("--seed", help="One seed for everything random.")]
Device = Annotated[str | None, Option("--device", help="auto, cpu or cuda.")]
Threads = Annotated[int | None, Option("--threads", help="Processor threads; 0: all cores.")]
_LIMIT = "The most memory that the program may hold, as 2GB or 800MB. Not kept in runs."
MemoryLimit = Annotated[str | None, Option("--memory-limit", callback=limit_memory, help=_LIMIT)]
"""The limit is set before the command begins; commands do not read it."""
Columns = Annotated[str, Option("--columns", help="Order of columns in text without a header: hrt or htr.")]
SplitShares = Annotated[
    str | None, Option("--split", help="For one file: shares of train, valid, test, as 0.8,0.1,0.1.")
]
Json = Annotated[bool, Option("--json", help="Print one JSON object on stdout.")]
