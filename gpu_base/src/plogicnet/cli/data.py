"""The commands about graphs: list, fetch, convert, count and examine them; the last also for runs."""

from pathlib import Path
from typing import Annotated

import typer

from plogicnet.cli.settings import (
    Columns,
    Device,
    Json,
    Seed,
    SplitShares,
    Threads,
    make_config,
    open_source,
    print_json,
)
from plogicnet.errors import InputError

data = typer.Typer(help="Benchmark data sets, and statistics of any graph.", no_args_is_help=True)
DATA_SET_KEYS = ("entities", "relations", "train", "valid", "test")


@data.command("list")
def data_list(as_json: Json = False) -> None:
    """The data sets that are known, and where those on this machine lie."""
    from plogicnet.graph.datasets import DATA_SETS, available, locate

    rows = [
        {
            "name": name,
            **{key: getattr(DATA_SETS[name], key) if name in DATA_SETS else None for key in DATA_SET_KEYS},
            "here": str(locate(name) or "") or None,
        }
        for name in sorted({*DATA_SETS, *available()})
    ]
    if as_json:
        print_json({"data_sets": rows})
        return
    from plogicnet.cli.show import console, table

    columns = ("name", *DATA_SET_KEYS, "here")
    cells = [["–" if row[key] is None else row[key] for key in columns] for row in rows]
    console().print(table("data sets", columns, cells))
    console().print("`plogicnet data get NAME` fetches one that is not here.", highlight=False)


@data.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="A data set's name, as FB15k-237.")], as_json: Json = False
) -> None:
    """Fetch a benchmark data set, checked by its sha256, and go on where a broken download stopped."""
    from plogicnet.errors import nearest
    from plogicnet.graph.datasets import DATA_SETS, cache_directory, canonical, locate
    from plogicnet.graph.download import fetch
    from plogicnet.progress import for_stderr

    known = canonical(name)
    if known is None:
        raise InputError(f"unknown data set {name!r}.{nearest(name, list(DATA_SETS))} `plogicnet data list` shows all.")
    place = locate(known) or fetch(DATA_SETS[known], cache_directory(), for_stderr())
    if as_json:
        print_json({"name": known, "path": str(place)})
    else:
        print(f"{known} is in {place}")


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
    """What a careful person would check in a graph before training on it, or in a run before believing it."""
    from plogicnet.graph.doctor import examine
    from plogicnet.run import is_run

    if is_run(Path(target)):
        checkup = _examined(Path(target), device, threads)
    else:
        checkup = examine(open_source(target, make_config(None, None, None, seed), columns, split)).to_json()
    if as_json:
        print_json(checkup)
        return
    from plogicnet.cli.show import checkup_table, console

    console().print(checkup_table(checkup))


def _examined(run: Path, device: str | None, threads: int | None) -> dict[str, object]:
    from plogicnet.checkup import examine_run
    from plogicnet.cli.train import load_run
    from plogicnet.run_files import read_vectors
    from plogicnet.seals import damage_said

    model = load_run(run, device, threads)
    with damage_said(run):
        return examine_run(str(run), model.fitted, model.config, model.metrics, read_vectors(run)).to_json()
