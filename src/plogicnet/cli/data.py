"""The commands about graphs: list, download, convert, count and check them; the last also for runs."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from plogicnet.cli import options, show
from plogicnet.cli.settings import load_run, make_config, open_source, print_json
from plogicnet.support.progress import for_stderr

data = Typer(help="Benchmark data sets, and statistics of any graph.", no_args_is_help=True)
Target = Annotated[str, Argument(help="A run directory; or a data set's name, a directory or a file.")]


@data.command("list")
def data_list(as_json: options.Json = False) -> None:
    """The known data sets, and where those on this machine are."""
    from plogicnet.graph.datasets.registry import COUNTS, listing

    rows = listing()
    if as_json:
        print_json({"data_sets": rows})
        return
    columns = ("name", *COUNTS, "here")
    cells = [["–" if row[key] is None else row[key] for key in columns] for row in rows]
    show.console().print(show.table("data sets", columns, cells))
    show.console().print("`plogicnet data get NAME` downloads one that is not here.", highlight=False)


@data.command("get")
def data_get(
    name: Annotated[str, Argument(help="A data set's name, as FB15k-237.")], as_json: options.Json = False
) -> None:
    """Download a benchmark data set, checked by its sha256. A broken download starts its file again."""
    from plogicnet.graph.datasets.download import fetch
    from plogicnet.graph.datasets.registry import cache_directory, find, locate

    data_set = find(name)
    place = locate(data_set.name) or fetch(data_set, cache_directory(), for_stderr())
    if as_json:
        print_json({"name": data_set.name, "path": str(place)})
    else:
        print(f"{data_set.name} is in {place}")


@data.command("convert")
def data_convert(
    graph: options.Source,
    out: Annotated[Path, Argument(help="The directory to write train, valid and test into.")],
    kind: Annotated[str, Option("--format", help="tsv, csv, parquet or nt.")] = "tsv",
    columns: options.Columns = "hrt",
    split: options.SplitShares = None,
    seed: options.Seed = None,
) -> None:
    """Write a graph in another format."""
    from plogicnet.graph import write_graph

    opened = open_source(graph, make_config(seed=seed), columns, split)
    print(*write_graph(opened, out, kind), sep="\n")


@data.command("info")
def data_info(
    graph: options.Source,
    columns: options.Columns = "hrt",
    split: options.SplitShares = None,
    seed: options.Seed = None,
    as_json: options.Json = False,
) -> None:
    """Counts of a graph."""
    opened = open_source(graph, make_config(seed=seed), columns, split)
    statistics = opened.statistics()
    if as_json:
        print_json(statistics)
        return
    rows: list[list[object]] = []
    for key, value in statistics.items():
        inner = value.items() if isinstance(value, dict) else [("", value)]
        rows += [[f"{key} {name}".replace("_", " ").strip(), f"{n:,}" if key != "name" else n] for name, n in inner]
    show.console().print(show.table(opened.name, ["", "count"], rows[1:]))


def doctor(
    target: Target,
    columns: options.Columns = "hrt",
    split: options.SplitShares = None,
    seed: options.Seed = None,
    device: options.Device = None,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Check a graph before training on it, or a run before believing its figures."""
    from plogicnet.runs.directory import State, state_of

    run = Path(target)
    if state_of(run) is State.ABSENT:
        from plogicnet.diagnostics.graphs import examine_graph

        checkup = examine_graph(open_source(target, make_config(seed=seed), columns, split))
    else:
        from plogicnet.diagnostics.runs import examine_run
        from plogicnet.runs.integrity import damage_as_input_error

        model = load_run(run, device, threads)
        with damage_as_input_error(run):
            checkup = examine_run(str(run), model.fitted, model.config, model.metrics)
    if as_json:
        print_json(checkup.to_json())
    else:
        show.console().print(show.checkup_table(checkup))
