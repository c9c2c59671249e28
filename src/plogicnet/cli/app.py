"""The commands. Each parses its options, calls the library, and prints a table or one JSON object."""

import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from plogicnet import __version__
from plogicnet.cli.data import data, doctor
from plogicnet.cli.explain import explain
from plogicnet.cli.mine import mine
from plogicnet.cli.predict import export, predict
from plogicnet.cli.report import report
from plogicnet.cli.serve import serve
from plogicnet.cli.settings import (
    DEMO_PRESET,
    Assignments,
    ConfigFile,
    Device,
    Json,
    MemoryLimit,
    Preset,
    Run,
    Seed,
    Threads,
    load_run,
    make_config,
    print_json,
)
from plogicnet.cli.train import refit, resume, train
from plogicnet.support.errors import many
from plogicnet.support.memory import limit_memory

app = typer.Typer(
    help="Which facts is a knowledge graph missing, how probable is each, and why.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(data, name="data")
app.command()(doctor)
app.command()(mine)
for command in (train, resume, refit, predict, explain, export, serve, report):
    app.command()(command)


@app.callback(invoke_without_command=True)
def start(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Tell more on stderr.")] = False,
) -> None:
    """What every command shares."""
    if version:
        print(f"plogicnet {__version__}")
        raise typer.Exit
    logger = logging.getLogger("plogicnet")
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.INFO if verbose else logging.WARNING)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


@app.command()
def demo(
    out: Annotated[Path | None, typer.Option("--out", help="Keep the run in this directory.")] = None,
    preset: Preset = None,
    config: ConfigFile = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """The whole story on the built-in family graph, on a CPU, in under a minute."""
    from plogicnet.cli.demo import tell
    from plogicnet.config import Config

    start = Config(device="cpu")
    settings = make_config(preset or DEMO_PRESET, config, assignments, seed, device, threads, start)
    if out is not None:
        from plogicnet.runs.lifecycle import require_new

        require_new(out)
    result = tell(settings, out, quiet=as_json)
    if as_json:
        print_json(result)


@app.command("config")
def show_config(
    preset: Preset = None, config: ConfigFile = None, assignments: Assignments = None, as_json: Json = False
) -> None:
    """Every setting with its value and its meaning, as YAML."""
    settings = make_config(preset, config, assignments)
    if as_json:
        import yaml

        print_json(yaml.safe_load(settings.to_yaml()))
    else:
        print(settings.to_yaml(comments=True), end="")


@app.command()
def evaluate(
    run: Run,
    split: Annotated[str | None, typer.Option("--split", help="valid or test; test, where the graph has one.")] = None,
    device: Device = None,
    threads: Threads = None,
    memory_limit: MemoryLimit = None,
    as_json: Json = False,
) -> None:
    """Filtered ranking of held-out triples: each half alone, pLogicNet and pLogicNet*."""
    limit_memory(memory_limit)
    from plogicnet.support.progress import for_stderr

    model = load_run(run, device, threads)
    graph = model.fitted.graph
    split = split or ("test" if len(graph.test) else "valid")
    result = model.evaluate(split, for_stderr())
    if as_json:
        print_json(result)
        return
    from plogicnet.cli.show import TEST_COMPETES, console, metrics_table

    screen = console()
    title = f"{split} ({many(len(graph.split(split)), 'triple')}, filtered)"
    note = TEST_COMPETES if split == "valid" and len(graph.test) else ""
    screen.print(metrics_table(title, result, model.titles, note))
    quality: Any = result["calibration"]
    screen.print(
        f"λ = {result['lambda']:g}; probabilities: Brier score {quality['brier']:.4f},"
        f" expected calibration error {quality['ece']:.4f} (uncalibrated: {quality['uncalibrated']['brier']:.4f})"
    )


@app.command("rules")
def show_rules(
    run: Run,
    top: Annotated[int | None, typer.Option("--top", min=1, help="Only so many.")] = None,
    as_json: Json = False,
) -> None:
    """The learned rules, by weight, in the rule syntax."""
    from plogicnet.runs.reading import read_rules

    rows = read_rules(run).rows()[:top]
    if as_json:
        print_json({"rules": rows})
        return
    from plogicnet.cli.show import console, rules_table

    console().print(rules_table(many(len(rows), "rule"), rows))
