"""The commands. Each parses its options, calls the library, and prints a table or one JSON object."""

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plogicnet import __version__
from plogicnet.cli.data import data, doctor
from plogicnet.cli.mine import mine
from plogicnet.cli.report import report
from plogicnet.cli.reproduce import reproduce
from plogicnet.cli.settings import (
    DEMO_PRESET,
    Assignments,
    ConfigFile,
    Device,
    Json,
    Preset,
    Run,
    Seed,
    Threads,
    make_config,
    print_json,
    require_folder,
)
from plogicnet.cli.train import load_run, new_run, refit, resume, train
from plogicnet.errors import InputError

if TYPE_CHECKING:
    pass

app = typer.Typer(
    help="Which facts is a knowledge graph missing, how probable is each, and why.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(data, name="data")
app.command()(doctor)
app.command()(mine)
for command in (train, resume, refit, reproduce, report):
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
    if out is None:
        result = tell(settings, None, quiet=as_json)
    else:
        with new_run(out):
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
    as_json: Json = False,
) -> None:
    """Filtered ranking of held-out triples: each half alone, pLogicNet and pLogicNet*."""
    from plogicnet.progress import for_stderr

    model = load_run(run, device, threads)
    split = split or ("test" if len(model.fitted.graph.test) else "valid")
    result = model.evaluate(split, for_stderr())
    if as_json:
        print_json(result)
        return
    from plogicnet.cli.show import console, metrics_table

    screen = console()
    screen.print(metrics_table(f"{split} ({len(model.fitted.graph.split(split)):,} triples, filtered)", result))
    quality: Any = result["calibration"]
    screen.print(
        f"λ = {result['lambda']:g}; probabilities: Brier score {quality['brier']:.4f},"
        f" expected calibration error {quality['ece']:.4f} (uncalibrated: {quality['uncalibrated']['brier']:.4f})"
    )


@app.command()
def predict(
    run: Run,
    head: Annotated[str | None, typer.Option("--head", help="The head's name.")] = None,
    relation: Annotated[str | None, typer.Option("--relation", help="The relation's name.")] = None,
    tail: Annotated[str | None, typer.Option("--tail", help="The tail's name.")] = None,
    triples: Annotated[Path | None, typer.Option("--triples", help="A TSV file of triples to judge.")] = None,
    complete: Annotated[bool, typer.Option("--complete", help="All missing facts of --min-probability.")] = False,
    min_probability: Annotated[float, typer.Option("--min-probability", min=0, max=1)] = 0.5,
    top: Annotated[
        int | None, typer.Option("--top", min=1, help="Only so many; 10 answers to a query unless told.")
    ] = None,
    include_known: Annotated[
        bool, typer.Option("--include-known", help="Show training triples among the answers.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write the predictions to this TSV file.")] = None,
    device: Device = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """The most probable answers to a query with one part left open; or judge triples; or complete the graph."""
    from plogicnet.graph import read_triples
    from plogicnet.model import prediction_rows
    from plogicnet.progress import for_stderr

    named = [part is not None for part in (head, relation, tail)]
    if sum([any(named), triples is not None, complete]) != 1 or (any(named) and sum(named) != 2):
        raise InputError("ask one thing: two of --head, --relation, --tail; or --triples FILE; or --complete")
    require_folder(out)
    model = load_run(run, device, threads)
    if complete:
        found = model.complete(min_probability, top, for_stderr())
    elif triples is not None:
        found = model.judge(read_triples(triples, model.fitted.graph))[:top]
    else:
        found = model.predict(head, relation, tail, top or 10, include_known)
    rows = prediction_rows(found)
    if out is not None:
        from plogicnet.files import write_text

        columns = list(rows[0]) if rows else ["head", "relation", "tail", "probability"]
        lines = ["\t".join(columns)] + ["\t".join("" if r[c] is None else str(r[c]) for c in columns) for r in rows]
        write_text(out, "\n".join(lines) + "\n")
    if as_json:
        print_json({"predictions": rows})
        return
    from plogicnet.cli.show import console, fact, predictions_table

    asked = fact([head or "?", relation or "?", tail or "?"]) if any(named) else f"{len(rows):,} triples"
    shown = rows if out is None else rows[:10]
    console().print(predictions_table(asked, shown, model.fitted.graph.labels))
    if out is not None:
        print(f"{len(rows):,} predictions written to {out}")


@app.command()
def explain(
    run: Run,
    head: Annotated[str, typer.Argument(help="The head's name.")],
    relation: Annotated[str, typer.Argument(help="The relation's name.")],
    tail: Annotated[str, typer.Argument(help="The tail's name.")],
    device: Device = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Why a triple is held probable or not."""
    model = load_run(run, device, threads)
    reason = model.explain(head, relation, tail)
    if as_json:
        print_json(reason)
        return
    from plogicnet.cli.show import console, explanation_tree

    console().print(explanation_tree(reason, model.fitted.graph.labels))


@app.command("rules")
def show_rules(
    run: Run,
    top: Annotated[int | None, typer.Option("--top", min=1, help="Only so many.")] = None,
    as_json: Json = False,
) -> None:
    """The learned rules, by weight, in the rule syntax."""
    from plogicnet.run import read_rules

    rows = read_rules(run).rows()[:top]
    if as_json:
        print_json({"rules": rows})
        return
    from plogicnet.cli.show import console, rules_table

    console().print(rules_table(f"{len(rows):,} rules", rows))
