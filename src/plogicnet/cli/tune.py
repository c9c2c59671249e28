"""The command `tune`."""

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from plogicnet.cli import options, show
from plogicnet.cli.settings import DEMO_PRESET, duration, make_config, open_source, print_json, print_message
from plogicnet.config import Choices, Config, parse_search
from plogicnet.support.errors import InputError
from plogicnet.support.interrupts import is_interrupt, sigterm_as_interrupt
from plogicnet.support.progress import no_progress, progress_bar

if TYPE_CHECKING:
    from plogicnet.tuning.trials import Trial


def tune(
    graph: options.Graph = None,
    out: Annotated[
        Path | None, Option("--out", help="Directory of the search. Default: tune-NAME, with the name of the graph.")
    ] = None,
    trials: Annotated[int, Option("--trials", min=1, help="Total number of trials.")] = 30,
    models: Annotated[
        str | None, Option("--model", help="Models to search over, such as ComplEx,TransE,Paths.")
    ] = None,
    search: Annotated[
        list[str] | None,
        Option("--search", help="Values of a setting: key=low..high, key=low..high:log or key=a,b. Can be repeated."),
    ] = None,
    rules: options.RulesFile = None,
    columns: options.Columns = "hrt",
    split: options.SplitShares = None,
    preset: options.Preset = None,
    config: options.ConfigFile = None,
    assignments: options.Assignments = None,
    seed: options.Seed = None,
    device: options.Device = None,
    threads: options.Threads = None,
    _memory_limit: options.MemoryLimit = None,
    as_json: options.Json = False,
) -> None:
    """Search for settings with a high validation MRR. To continue after a stop, run the same command again.

    The first trial has the base settings (--preset, --config, --set). The best settings are saved in best.yaml.
    """
    if find_spec("optuna") is None:
        raise InputError("`tune` needs Optuna. Install it with: pip install 'plogicnet[tune]'")
    from plogicnet.model import PLogicNet
    from plogicnet.tuning.space import MODEL, QUICK_MODELS
    from plogicnet.tuning.study import Tuning, run_search
    from plogicnet.tuning.trials import BEST_FILE, best_trial

    preset = preset or (None if graph else DEMO_PRESET)
    base, other = (
        make_config(preset, config, assignments, seed, device, threads, start)
        for start in (Config(), Config().with_values({MODEL: QUICK_MODELS[0]}))
    )
    domains = parse_search([*([f"{MODEL}={models}"] if models else []), *(search or [])], base)
    is_set = base.neural.model == other.neural.model  # whatever the default is
    chosen = domains.pop(MODEL, None)  # a range needs numbers, so it can only be choices
    default = (base.neural.model,) if is_set else QUICK_MODELS
    names = chosen.values if isinstance(chosen, Choices) else default
    opened = open_source(graph, base, columns, split)
    statements = PLogicNet(base).statements(rules, opened)
    tuning = Tuning.of(opened, base, statements, names, domains)
    directory = out or Path(f"tune-{opened.name}")
    try:
        with sigterm_as_interrupt():
            progress = progress_bar if sys.stderr.isatty() else no_progress
            finished = run_search(tuning, directory, trials, _print_trial, progress)
    except BaseException as error:
        if is_interrupt(error) and directory.is_dir():
            print_message(f"Stopped. To continue, run the same command again. Its trials are in {directory}.")
        raise
    best = best_trial(finished)
    if best is None:
        raise InputError(f"no trial succeeded. The first error: {finished[0].error}")
    if as_json:
        kept = {"trial": best.trial, "mrr": best.mrr, "settings": best.settings}
        print_json({"directory": str(directory), "trials": [t.to_json() for t in finished], "best": kept})
        return
    show.console().print(show.trials_table(finished, best))
    values = {"rules": rules, "columns": columns if columns != "hrt" else None, "split": split}
    values |= {"config": directory / BEST_FILE, "out": "RUN"}
    words = [word for key, value in values.items() if value is not None for word in (f"--{key}", str(value))]
    command = shlex.join(["plogicnet", "train", *([graph] if graph else []), *words])
    print(f"Best settings saved in {directory / BEST_FILE}. Next: {command}")


def _print_trial(trial: "Trial") -> None:
    """Print one line about a finished trial on stderr."""
    result = {"pruned": "stopped early", "failed": f"failed: {trial.error}"}.get(trial.state)
    result = result or f"valid MRR {trial.mrr:.4f}"
    time = duration(trial.seconds) if trial.same_as is None else f"same settings as trial {trial.same_as}"
    print(f"Trial {trial.trial}: {result}, {time}", file=sys.stderr)
