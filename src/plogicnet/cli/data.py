"""Commands about graphs: list, download, convert, count and check. `doctor` also checks runs."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from plogicnet.cli import options, show
from plogicnet.cli.settings import load_run, make_config, open_source, print_json
from plogicnet.support.errors import InputError
from plogicnet.support.progress import for_stderr

data = Typer(help="List, download, convert and inspect graphs.", no_args_is_help=True)
LABELS = {"unseen_entities": "unseen entities in", "relation_categories": "relations of category"}
"""The beginning of the row labels, for statistics with several values."""
Target = Annotated[str, Argument(help="Run directory, data set name, graph directory or graph file.")]


@data.command("list")
def data_list(as_json: options.Json = False) -> None:
    """List the known data sets and their location on this machine."""
    from plogicnet.graph.datasets.registry import COUNTS, list_data_sets

    rows = list_data_sets()
    if as_json:
        print_json({"data_sets": rows})
        return
    columns = ("name", *COUNTS, "here")
    cells = [["–" if row[key] is None else row[key] for key in columns] for row in rows]
    show.console().print(show.table("Data sets", (*columns[:-1], "location"), cells))
    show.console().print("Download a data set with `plogicnet data get NAME`.", highlight=False)


@data.command("get")
def data_get(
    name: Annotated[str, Argument(help="Data set name, such as FB15k-237.")], as_json: options.Json = False
) -> None:
    """Download a benchmark data set and verify its SHA-256. Unfinished files are downloaded again."""
    from plogicnet.graph.datasets.download import fetch
    from plogicnet.graph.datasets.registry import cache_directory, find_data_set, locate

    data_set = find_data_set(name)
    directory = locate(data_set.name) or fetch(data_set, cache_directory(), for_stderr())
    if as_json:
        print_json({"name": data_set.name, "path": str(directory)})
    else:
        print(f"{data_set.name} is in {directory}")


@data.command("convert")
def data_convert(
    graph: options.Source,
    out: Annotated[Path, Argument(help="Directory for the train, valid and test files.")],
    file_format: Annotated[str, Option("--format", help="File format: tsv, csv, parquet or nt.")] = "tsv",
    columns: options.Columns = "hrt",
    split: options.SplitShares = None,
    seed: options.Seed = None,
) -> None:
    """Write a graph in another format."""
    from plogicnet.graph import write_graph

    opened = open_source(graph, make_config(seed=seed), columns, split)
    print(*write_graph(opened, out, file_format), sep="\n")


@data.command("info")
def data_info(
    graph: options.Source,
    columns: options.Columns = "hrt",
    split: options.SplitShares = None,
    seed: options.Seed = None,
    as_json: options.Json = False,
) -> None:
    """Count the entities, relations and triples of a graph."""
    opened = open_source(graph, make_config(seed=seed), columns, split)
    statistics = opened.statistics()
    if as_json:
        print_json(statistics)
        return
    rows: list[list[object]] = []
    for key, value in statistics.items():
        inner = value.items() if isinstance(value, dict) else [("", value)]
        label = LABELS.get(key, key)
        rows += [[f"{label} {name}".strip(), f"{n:,}" if key != "name" else n] for name, n in inner]
    show.console().print(show.table(opened.name, ["", "count"], rows[1:]))


def doctor(
    target: Target,
    columns: options.Columns = "hrt",
    split: options.SplitShares = None,
    seed: options.Seed = None,
    snapshot: options.Snapshot = None,
    device: options.Device = None,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Check a graph before training, or a run before trusting its results."""
    from plogicnet.runs.directory import State, state_of

    run = Path(target)
    if state_of(run) is State.ABSENT:
        from plogicnet.diagnostics.graphs import examine_graph

        if snapshot is not None:
            raise InputError(f"--snapshot needs a run, but {target} is not one")
        diagnosis = examine_graph(open_source(target, make_config(seed=seed), columns, split))
    else:
        from plogicnet.diagnostics.runs import examine_run
        from plogicnet.runs.integrity import damage_as_input_error

        model = load_run(run, device, threads, snapshot)
        with damage_as_input_error(run):
            diagnosis = examine_run(str(run), model.fitted, model.config, model.metrics)
    if as_json:
        print_json(diagnosis.to_json())
    else:
        show.console().print(show.findings_table(diagnosis))
