"""The typer application with all commands.

Each command parses its options, calls the library, and prints a table or one JSON object.
"""

import logging
from pathlib import Path
from typing import Annotated, Any

import yaml
from typer import Exit, Option, Typer

from plogicnet import __version__
from plogicnet.cli import options, show
from plogicnet.cli.data import data, doctor
from plogicnet.cli.mine import mine
from plogicnet.cli.pages import report, serve
from plogicnet.cli.predict import explain, export, predict
from plogicnet.cli.runs import runs
from plogicnet.cli.settings import DEMO_PRESET, load_run, log_to_stderr, make_config, print_json, require_folder
from plogicnet.cli.train import refit, resume, train, update
from plogicnet.cli.tune import tune
from plogicnet.config import Config
from plogicnet.support.errors import InputError, pluralize, quote_argument
from plogicnet.support.progress import for_stderr

TOP_RULES = 20
"""Default number of rules that `rules` prints."""
app = Typer(
    help="Find the missing facts of a knowledge graph, with probabilities and explanations.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(data, name="data")
app.add_typer(runs, name="runs")
for command in (doctor, mine, train, tune, resume, refit, update, predict, explain, export, serve, report):
    app.command()(command)


@app.callback(invoke_without_command=True)
def start(
    version: Annotated[bool, Option("--version", help="Print the version and exit.")] = False,
    verbose: Annotated[bool, Option("--verbose", help="Print more messages on stderr.")] = False,
) -> None:
    """Handle the options that all commands share."""
    if version:
        print(f"plogicnet {__version__}")
        raise Exit
    log_to_stderr(logging.INFO if verbose else logging.WARNING, "plogicnet")


@app.command()
def demo(
    out: Annotated[Path | None, Option("--out", help="Save the run in this directory.")] = None,
    preset: options.Preset = None,
    config: options.ConfigFile = None,
    assignments: options.Assignments = None,
    seed: options.Seed = None,
    device: options.Device = None,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Mine, train, evaluate and explain on the built-in graph family, in under a minute on a CPU."""
    from plogicnet.cli.demo import run_demo
    from plogicnet.runs.lifecycle import require_new

    start = Config(device="cpu")
    settings = make_config(preset or DEMO_PRESET, config, assignments, seed, device, threads, start)
    if out is not None:
        require_new(out)
    result = run_demo(settings, out, quiet=as_json)
    if as_json:
        print_json(result)


@app.command("config")
def show_config(
    preset: options.Preset = None,
    config: options.ConfigFile = None,
    assignments: options.Assignments = None,
    as_json: options.Json = False,
) -> None:
    """Print every setting with its value and description, as YAML."""
    settings = make_config(preset, config, assignments).with_all_blocks
    if as_json:
        print_json(yaml.safe_load(settings.to_yaml()))
    else:
        print(settings.to_yaml(comments=True), end="")


@app.command()
def evaluate(
    run: options.Run,
    split: Annotated[str | None, Option("--split", help="Split: valid or test. Default: test if there is one.")] = None,
    snapshot: options.Snapshot = None,
    device: options.Device = None,
    threads: options.Threads = None,
    _memory_limit: options.MemoryLimit = None,
    as_json: options.Json = False,
) -> None:
    """Rank held-out triples by the neural model, the rules, pLogicNet and pLogicNet*."""
    model = load_run(run, device, threads, snapshot)
    graph = model.fitted.graph
    split = split or ("test" if len(graph.test) else "valid")
    result: dict[str, Any] = model.evaluate(split, for_stderr())
    if as_json:
        print_json(result)
        return
    screen, quality = show.console(), result["calibration"]
    title = f"{split} ({pluralize(len(graph.split(split)), 'triple')}, filtered)"
    note = show.TEST_COMPETES if split == "valid" and len(graph.test) else ""
    screen.print(show.metrics_table(title, result, model.titles, note))
    screen.print(
        f"λ = {result['lambda']:g}. Probabilities: Brier score {quality['brier']:.4f}"
        f" (uncalibrated {quality['uncalibrated']['brier']:.4f}), expected calibration error {quality['ece']:.4f}."
    )


@app.command("rules")
def show_rules(
    run: options.Run,
    relation: Annotated[str | None, Option("--relation", help="Only rules that conclude this relation.")] = None,
    pattern: Annotated[str | None, Option("--pattern", help="Only rules of this pattern, such as inverse.")] = None,
    search: Annotated[
        str, Option("--search", help="Only rules that contain all these words.", show_default=False)
    ] = "",
    top: Annotated[
        int | None,
        Option("--top", min=0, help=f"Number of rules. 0: all. Default: {TOP_RULES}; all with --json or --out."),
    ] = None,
    out: Annotated[
        Path | None,
        Option("--out", help="Write the rules to this file, as text to edit, or as a table if it ends in .tsv."),
    ] = None,
    file_format: Annotated[
        str | None,
        Option("--format", help="Format of --out: plogicnet, amie or anyburl. Default: plogicnet."),
    ] = None,
    snapshot: options.Snapshot = None,
    as_json: options.Json = False,
) -> None:
    """Print the learned rules, the most important of each relation first, or write them to a file."""
    import numpy as np

    from plogicnet.inference.export import export_rules
    from plogicnet.rules import FOREIGN_FORMATS, RuleIndex, write_foreign
    from plogicnet.runs.snapshots import read_rules

    require_folder(out)
    if file_format not in (None, "plogicnet", *FOREIGN_FORMATS):
        raise InputError(f"--format {file_format}: expected plogicnet, {' or '.join(FOREIGN_FORMATS)}")
    if file_format is not None and out is None:
        raise InputError("--format needs a file. Add --out FILE.")
    index = RuleIndex(read_rules(run, snapshot))
    index.check_filters(relation, pattern)
    matching = selected = index.find(search, relation, pattern)
    limit = top if top is not None else 0 if as_json or out is not None else TOP_RULES
    if limit:
        selected = np.sort(index.by_importance(matching)[:limit])  # the table is sorted by weight
    if out is None and not as_json:
        show.print_rules(index, selected, len(matching))
        return
    table, left_out = index.table.take(selected), {}
    if out is not None and file_format in FOREIGN_FORMATS:
        left_out = write_foreign(table, out, file_format)
    elif out is not None:
        table.write(out) if out.suffix == ".tsv" else export_rules(table, out)
    n_written = len(table) - sum(left_out.values())
    if as_json:
        rows = {"rules": table.rows(), "total": len(matching)}
        print_json(rows | ({} if out is None else {"written": n_written, "left_out": left_out}))
    else:
        advice = (
            f" Next: plogicnet refit {quote_argument(run)} --rules {quote_argument(out)}"
            if len(selected) == len(index.table)
            else ""
        )
        if file_format in FOREIGN_FORMATS:
            advice = " Weights are left out, because the format has none."
        print(f"{pluralize(n_written, 'rule')} written to {out}.{advice}")
