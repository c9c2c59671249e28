"""The commands about graphs: list, download, convert, count and check them; the last also for runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plogicnet.cli.settings import (
    Columns,
    Device,
    Json,
    Seed,
    SplitShares,
    Threads,
    load_run,
    make_config,
    open_source,
    print_json,
)

if TYPE_CHECKING:
    from plogicnet.diagnostics.finding import Checkup

data = typer.Typer(help="Benchmark data sets, and statistics of any graph.", no_args_is_help=True)


@data.command("list")
def data_list(as_json: Json = False) -> None:
    """The known data sets, and where those on this machine are."""
    from plogicnet.graph.datasets.registry import COUNTS, listing

    rows = listing()
    if as_json:
        print_json({"data_sets": rows})
        return
    from plogicnet.cli.show import console, table

    columns = ("name", *COUNTS, "here")
    cells = [["–" if row[key] is None else row[key] for key in columns] for row in rows]
    console().print(table("data sets", columns, cells))
    console().print("`plogicnet data get NAME` downloads one that is not here.", highlight=False)


@data.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="A data set's name, as FB15k-237.")], as_json: Json = False
) -> None:
    """Download a benchmark data set, checked by its sha256. A broken download starts its file again."""
    from plogicnet.graph.datasets.download import fetch
    from plogicnet.graph.datasets.registry import cache_directory, find, locate
    from plogicnet.support.progress import for_stderr

    data_set = find(name)
    place = locate(data_set.name) or fetch(data_set, cache_directory(), for_stderr())
    if as_json:
        print_json({"name": data_set.name, "path": str(place)})
    else:
        print(f"{data_set.name} is in {place}")


@data.command("convert")
def data_convert(
    graph: Annotated[str, typer.Argument(help="A data set's name, a directory or a file.")],
    out: Annotated[Path, typer.Argument(help="The directory to write train, valid and test into.")],
    kind: Annotated[str, typer.Option("--format", help="tsv, csv, parquet or nt.")] = "tsv",
    columns: Columns = "hrt",
    split: SplitShares = None,
    seed: Seed = None,
) -> None:
    """Write a graph in another format."""
    from plogicnet.graph import write_graph

    for file in write_graph(open_source(graph, make_config(None, None, None, seed), columns, split), out, kind):
        print(file)


@data.command("info")
def data_info(
    graph: Annotated[str, typer.Argument(help="A data set's name, a directory or a file.")],
    columns: Columns = "hrt",
    split: SplitShares = None,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Counts of a graph."""
    opened = open_source(graph, make_config(None, None, None, seed), columns, split)
    statistics = opened.statistics()
    if as_json:
        print_json(statistics)
        return
    from plogicnet.cli.show import console, table

    rows: list[list[object]] = []
    for key, value in statistics.items():
        inner = value.items() if isinstance(value, dict) else [("", value)]
        rows += [
            [f"{key} {name}".replace("_", " ").strip(), f"{v:,}" if isinstance(v, int) else v] for name, v in inner
        ]
    console().print(table(opened.name, ["", "count"], rows[1:]))


def doctor(
    target: Annotated[str, typer.Argument(help="A run directory; or a data set's name, a directory or a file.")],
    columns: Columns = "hrt",
    split: SplitShares = None,
    seed: Seed = None,
    device: Device = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Check a graph before training on it, or a run before believing its figures."""
    from plogicnet.runs.directory import State, state_of

    if state_of(Path(target)) is not State.ABSENT:
        checkup = _examined_run(Path(target), device, threads)
    else:
        from plogicnet.diagnostics.graphs import examine_graph

        checkup = examine_graph(open_source(target, make_config(None, None, None, seed), columns, split))
    if as_json:
        print_json(checkup.to_json())
        return
    from plogicnet.cli.show import checkup_table, console

    console().print(checkup_table(checkup))


def _examined_run(run: Path, device: str | None, threads: int | None) -> "Checkup":
    from plogicnet.diagnostics.runs import examine_run
    from plogicnet.runs.integrity import damage_as_input_error

    model = load_run(run, device, threads)
    with damage_as_input_error(run):
        return examine_run(str(run), model.fitted, model.config, model.metrics)
