"""The command that reproduces the paper: trains what a table needs, and prints ours beside the paper's."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plogicnet.cli.settings import Assignments, Device, Json, Threads, print_json
from plogicnet.cli.train import cost, parse_seeds, require_same, trained
from plogicnet.errors import InputError, many, nearest

if TYPE_CHECKING:
    from plogicnet.config import Config
    from plogicnet.reproduction.tables import Paper, Row, Run

RUNS = Path("runs/paper")
RESULTS = Path("docs/results/paper")
WIDE = 110
"""Columns of a screen on which a line has room for the name of its run."""


def reproduce(
    tables: Annotated[
        list[str] | None, typer.Argument(help="1, 2, 3, 4, 5, 8, 9, 10, fig2; all, if none is named.")
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Every row and its state.")] = False,
    together: Annotated[
        bool, typer.Option("--together", help="All systems of Tables 1 and 2 in one, on the same rules.")
    ] = False,
    by_iteration: Annotated[
        bool, typer.Option("--history", help="Every run by EM iteration: what was accepted, and test MRRs.")
    ] = False,
    train: Annotated[bool, typer.Option("--run", help="Train what is missing; the cost is said first.")] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Only this row; or a run's name: that run alone.")
    ] = None,
    data: Annotated[list[str] | None, typer.Option("--data", help="Only this data set.")] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", help="With --run: the seeds, as 0,1; else 0 where no seed has been run.")
    ] = None,
    graph: Annotated[
        str | None, typer.Option("--graph", help="With --run: the same rows on another graph, as umls.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help=f"Where the runs live; {RUNS} unless told.")] = None,
    results: Annotated[
        Path | None, typer.Option("--results", help=f"Where the JSON files are; {RESULTS} unless told.")
    ] = None,
    collect: Annotated[
        list[Path] | None,
        typer.Option("--collect", help="Add this run directory or JSON file, made elsewhere, to the results."),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option("--write", help="Write the page of all tables here; reproduction-notes.yaml beside it discusses."),
    ] = None,
    assignments: Assignments = None,
    commit: Annotated[
        str | None, typer.Option("--commit", help="The commit of the source, where git cannot tell.")
    ] = None,
    device: Device = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """The paper's tables, ours beside theirs. Shows what has been run; --run trains what has not."""
    from plogicnet.config import parse_assignments
    from plogicnet.reproduction import comparison
    from plogicnet.reproduction.results import add_entry, collected, is_of, read_results
    from plogicnet.reproduction.tables import paper

    if together and (train or tables):
        raise InputError("--together shows what has been run of Tables 1 and 2; leave --run and the tables' names out")
    asked_seeds = None if seeds is None else parse_seeds(seeds)
    whole = paper().altered(graph, parse_assignments(assignments or []))
    chosen = [whole.table(key) for key in tables or whole.tables]
    rows = _selected(whole, [t.key for t in chosen], only or [], data or [])
    named = {name.lower() for name in only or [] if name not in whole.runs}
    by_name = [row for row in rows if not only or row.name.lower() in named]  # of a run's name, that run alone counts
    own = bool(graph or assignments)  # figures that are not the paper's rows do not go among those that are
    out = out or (RUNS if graph is None else Path("runs") / f"paper-on-{Path(graph).name}")
    results = results or (out / "results" if own or not RESULTS.is_dir() else RESULTS)
    for place in collect or []:
        run, entries = collected(place, whole)
        for entry in entries:
            print(f"{place}: {add_entry(results, run, entry, whole)}, seed {entry['seed']}", file=sys.stderr)
    if train:
        wanted = [whole.runs[name] for name in only or [] if name in whole.runs]
        wanted += [run for run in comparison.needed(by_name, whole.runs) if run not in wanted]
        options = {key: value for key, value in (("device", device), ("threads", threads)) if value is not None}
        _train(whole, _pending(wanted, asked_seeds, options, out, results), out, results, commit)
    elif graph is not None and not results.is_dir():
        raise InputError(f"nothing has been run on {graph} yet; --run trains, and says the cost first")
    found = {n: r for n, r in read_results(results).items() if n in whole.runs and is_of(r, whole.runs[n])}
    if write is not None:
        from plogicnet.reproduction.page import write_page

        for row in write_page(write, whole, found):
            print(f"{row}: far from the printed figures, and not discussed yet", file=sys.stderr)
        return
    if together:
        _show_together(whole, found, data or [], graph is None, as_json)
        return
    if by_iteration:
        asked = {run for row in by_name for line in row.lines for run in line.runs} | set(only or [])
        _show_history({name: result for name, result in found.items() if name in asked}, as_json)
        return
    shown = comparison.as_json(chosen, rows, found)
    if as_json:
        print_json({"tables": shown})
        return
    _show_tables(shown, [table.figures for table in chosen], graph, show_list)
    waiting = sum(row["state"] == "not run yet" for about in shown for row in about["rows"])
    if waiting and not train:
        altered = [*(["--graph", graph] if graph else []), *(f"--set {each}" for each in assignments or [])]
        again = " ".join(["plogicnet reproduce", *(tables or []), *altered, "--run"])
        if not results.is_dir():
            known = f"those of the paper's rows are in {RESULTS} of the repository; --results names another place"
            print(f"no results are in {results}; {known}", file=sys.stderr)
        print(f"{waiting} rows have not been run yet; `{again}` trains them", file=sys.stderr)


def _selected(whole: "Paper", tables: list[str], only: list[str], data: list[str]) -> "list[Row]":
    """The rows of some tables, of some names or runs, and of some data sets."""
    rows = list(whole.rows(*tables))
    known = {row.name.lower() for row in rows} | set(whole.runs)
    for name in only:
        if name.lower() not in known:
            raise InputError(f"--only {name}: no such row or run here.{nearest(name, sorted(known))}")
    sets = {row.dataset for row in rows}
    for name in data:
        if name not in sets:
            raise InputError(f"--data {name}: not a data set of these tables; there are {', '.join(sorted(sets))}")
    wanted = {name.lower() for name in only}

    def matches(row: "Row") -> bool:
        runs = {name for line in row.lines for name in line.runs}
        return (not only or row.name.lower() in wanted or bool(runs & wanted)) and (not data or row.dataset in data)

    return [row for row in rows if matches(row)]


def _pending(
    wanted: "Sequence[Run]", seeds: Sequence[int] | None, options: Mapping[str, object], out: Path, results: Path
) -> "list[tuple[Run, Config, Path]]":
    """What is to be trained, and where: the seeds that are asked for, or one of each run that has none yet."""
    from plogicnet.reproduction.results import is_of, is_whole, iterations_of, read_results

    there, pending = read_results(results), []
    for run in wanted:
        result = there.get(run.name)
        entries = {e["seed"]: e for e in result["by_seed"]} if result and is_of(result, run) else {}
        done = [seed for seed, entry in entries.items() if is_whole(entry, iterations_of(run.config(seed)))]
        for seed in seeds or ([] if done else list(entries)[:1] or [0]):
            config, folder = run.config(seed).with_values(options), out / run.name / f"seed-{seed}"
            if seed not in done:
                if (folder / "run.json").exists():
                    require_same(folder, config)
                pending.append((run, config, folder))
    return pending


def _train(
    whole: "Paper", pending: "Sequence[tuple[Run, Config, Path]]", out: Path, results: Path, commit: str | None
) -> None:
    """Trains each run, and writes its JSON as soon as it is done."""
    from plogicnet.graph import open_graph
    from plogicnet.progress import for_stderr
    from plogicnet.reproduction.results import add_entry, entry_of
    from plogicnet.reproduction.watching import watching
    from plogicnet.run import is_complete

    graphs = {d: open_graph(d, progress=for_stderr()) for d in dict.fromkeys(run.dataset for run, *_ in pending)}
    for name, graph in graphs.items():
        if not len(graph.test):
            raise InputError(
                f"{name}: there are no test triples, and the tables rank those; give a directory with train, valid and"
                f" test, as `plogicnet data convert {name} DIRECTORY --split 0.8,0.1,0.1` makes one"
            )
    names = ", ".join(f"{run.name} (seed {config.seed})" for run, config, _ in pending)
    print(f"trainings to do: {names or 'none'}", file=sys.stderr)
    # once for all that take the same time
    todo = {(run.dataset, config.kge, config.em): config for run, config, f in pending if not is_complete(f)}
    for (dataset, *_), config in todo.items():
        print(cost(graphs[dataset], config), file=sys.stderr)
    for run, config, folder in pending:
        print(f"{run.name}, seed {config.seed}", file=sys.stderr)
        if not is_complete(folder):
            watch = watching(config, commit, for_stderr())
            again = "the same command"
            trained(folder, config, graphs[run.dataset], None, watch, out / "first-e-steps", again)
        print(add_entry(results, run, entry_of(folder), whole), file=sys.stderr)


def _show_together(whole: "Paper", found: Mapping[str, Any], data: Sequence[str], printed: bool, as_json: bool) -> None:
    """All systems in one table; the printed figures are of the paper's own data sets."""
    from plogicnet.cli.show import console, table
    from plogicnet.reproduction.comparison import TITLES
    from plogicnet.reproduction.overview import FIGURES, overview
    from plogicnet.reproduction.page import beside

    rows = overview(whole, found)
    for row in rows:
        cells = {d: cell for d, cell in row["cells"].items() if not data or d in data}
        row["cells"] = cells if printed else {d: cell | {"paper": {}} for d, cell in cells.items()}
    if as_json:
        print_json({"together": rows})
        return
    screen, names = console(), list(rows[0]["cells"])
    # side by side where the screen is wide enough, else one below the other
    for group in [names] if screen.width >= 24 + 34 * len(names) else [[name] for name in names]:
        columns = [f"{d} {TITLES[figure]}" for d in group for figure in FIGURES]
        lines = [
            [row["system"], row["rules"], *(beside(row["cells"][d], figure) for d in group for figure in FIGURES)]
            for row in rows
        ]
        title = "All systems of Tables 1 and 2 on the same rules: ours (the paper's)"
        screen.print(table(title, ["system", "rules", *columns], lines))


def _show_history(found: Mapping[str, Any], as_json: bool) -> None:
    """What every run accepted, and below it how it ranked: together they are too wide for most screens."""
    from plogicnet.cli.show import console, table
    from plogicnet.reproduction.history import COLUMNS, COUNTS, NAMES, cells, history

    rows = history(found)
    if as_json:
        print_json({"history": rows})
        return
    lines, names, first = [cells(row) for row in rows], len(NAMES), len(NAMES) + len(COUNTS)
    parts = {"Hidden triples that were accepted": slice(names, first), "Test MRR": slice(first, None)}
    for title, part in parts.items():
        told = [[*line[:names], *line[part]] for line in lines]
        console().print(table(f"{title}, by EM iteration", [*NAMES, *COLUMNS[part]], told))


def _show_tables(
    shown: Sequence[Mapping[str, Any]], figures: Sequence[Sequence[str]], graph: str | None, as_list: bool
) -> None:
    """The tables that have rows: the rows' states, or ours beside what is printed."""
    from plogicnet.cli.show import console

    screen = console()
    for about, own in zip(shown, figures, strict=True):
        if about["rows"]:
            parts = [_states(about)] if as_list else _beside(about, own, graph, screen.width >= WIDE)
            screen.print(*parts, sep="\n")
    lines = [line for about in shown for row in about["rows"] for line in row["ours"]]
    if not as_list and graph is None and any(line.get("far") for line in lines):
        print("far: more than .01 MRR from the printed figure (3 % of triples, 2 points of precision)", file=sys.stderr)


def _states(about: Mapping[str, Any]) -> Any:
    from plogicnet.cli.show import table

    cells = []
    for row in about["rows"]:
        runs = dict.fromkeys(line["run"] if line["seeds"] else line["runs"][0] for line in row["ours"])
        cells.append([row["dataset"], row["row"], row["state"], ", ".join(runs)])
    return table(_title(about), ["data set", "row", "state", "runs"], cells)


def _title(about: Mapping[str, Any]) -> str:
    return f"Table {about['table']}: {about['title']}".replace("Table fig2", "Figure 2")


def _beside(about: Mapping[str, Any], figures: Sequence[str], graph: str | None, wide: bool) -> Iterator[Any]:
    """A table a data set: what is printed (nothing is, of another graph), then our lines, those far from it marked."""
    from plogicnet.cli.show import table
    from plogicnet.reproduction.comparison import TITLES

    for dataset in dict.fromkeys(row["dataset"] for row in about["rows"]):
        cells: list[list[str]] = []
        for row in (row for row in about["rows"] if row["dataset"] == dataset):
            theirs = graph is None and bool(row["paper"])
            if theirs:
                printed = [row["paper"].get(figure, "") for figure in figures]
                cells.append([row["row"], "printed", *printed, "" if row["ours"] else row["state"]])
            for line in row["ours"]:
                cells.append(["" if theirs else row["row"], *_line(line, figures, "" if wide else f"{dataset}-")])
                cells[-1][-1] += " (far)" if theirs and line.get("far") else ""
        where = dataset if graph is None else f"{graph}, as {dataset}"
        yield table(f"{_title(about)}: {where}", ["row", "", *(TITLES[f] for f in figures), ""], cells)


def _line(line: Mapping[str, Any], figures: Sequence[str], without: str) -> list[str]:
    """What a line is of, its figures, and its seeds and run, whose name may be said without its beginning."""
    from plogicnet.reproduction.comparison import shown

    what = ", ".join(filter(None, [line["system"], f"iteration {line['iteration']}"]))
    what += "" if line["ties"] == "realistic" else f", {line['ties']} ties"
    seeds, run = ("not run yet", line["runs"][0]) if not line["seeds"] else (many(line["seeds"], "seed"), line["run"])
    values = [shown(f, line["figures"].get(f)) if line["seeds"] else "" for f in figures]
    return [what, *values, f"{seeds}, {run.removeprefix(without)}"]
