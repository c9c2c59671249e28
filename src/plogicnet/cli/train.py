"""The commands `train`, `resume`, `refit` and `update`."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from plogicnet.cli import options, show
from plogicnet.cli.settings import (
    DEMO_PRESET,
    duration,
    load_run,
    make_config,
    open_source,
    print_json,
    print_message,
    require_read_memory,
    without_none,
)
from plogicnet.config import UPDATE_STEPS, Config, parse_assignments
from plogicnet.support.errors import InputError, pluralize, quote_argument
from plogicnet.support.interrupts import is_interrupt, sigterm_as_interrupt
from plogicnet.support.progress import for_stderr

if TYPE_CHECKING:
    from plogicnet.graph import KnowledgeGraph
    from plogicnet.model import PLogicNet
    from plogicnet.runs.snapshots import Snapshot
    from plogicnet.training.hooks import Hooks
    from plogicnet.training.state import Iteration

MAX_EPOCHS = 500
"""More epochs are rarely useful, so `train` prints a hint."""
Seeds = Annotated[str | None, Option("--seeds", help="Several seeds, such as 0,1,2: one run per seed, and the mean.")]


def train(
    out: Annotated[Path, Option("--out", help="Run directory to create.")],
    graph: options.Graph = None,
    rules: options.RulesFile = None,
    columns: options.Columns = "hrt",
    split: options.SplitShares = None,
    preset: options.Preset = None,
    config: options.ConfigFile = None,
    assignments: options.Assignments = None,
    seed: options.Seed = None,
    seeds: Seeds = None,
    device: options.Device = None,
    threads: options.Threads = None,
    _memory_limit: options.MemoryLimit = None,
    as_json: options.Json = False,
) -> None:
    """Train a rule model and a neural model together on a graph."""
    from plogicnet.model import PLogicNet
    from plogicnet.runs.lifecycle import require_compatible, require_new

    settings = make_config(preset or (None if graph else DEMO_PRESET), config, assignments, seed, device, threads)
    runs = {out: settings}
    if seeds is None:
        require_new(out)
    else:
        runs = {out / f"seed-{s}": settings.with_values({"seed": s}) for s in parse_seeds(seeds)}
    for folder, run_settings in runs.items():
        require_compatible(folder, run_settings)
    opened = open_source(graph, settings, columns, split)
    PLogicNet(settings).statements(rules, opened)  # raises InputError before any work is done
    print(cost(opened, settings), file=sys.stderr)
    models = [train_run(folder, s, opened, terminal_hooks(), rules) for folder, s in runs.items()]
    if seeds is None:
        _show_trained(models[0], out, as_json)
    else:
        _show_seeds(models, out, as_json)


def train_run(
    folder: Path,
    settings: Config,
    graph: "KnowledgeGraph",
    hooks: "Hooks",
    rules: Path | None = None,
    resume_command: str = "",
) -> "PLogicNet":
    """Return the model of a run directory. The run is trained or resumed first if needed.

    If training is interrupted, a message explains how to resume it.

    Args:
        folder: the run directory.
        settings: its settings.
        graph: the graph to train on.
        hooks: the callbacks of training.
        rules: a file of rules.
        resume_command: the command that resumes training, for the message. Default: `plogicnet resume`.
    """
    from plogicnet.model import PLogicNet

    with _interruptible(folder, resume_command):
        return PLogicNet.load_or_train(folder, settings, graph, rules, hooks)


def resume(
    run: options.Run,
    assignments: Annotated[
        list[str] | None,
        Option("--set", help="em.iterations=N (new total number of EM iterations) or em.patience=N. Can be repeated."),
    ] = None,
    device: options.Device = None,
    threads: options.Threads = None,
    keep: options.Keep = 2,
    _memory_limit: options.MemoryLimit = None,
    as_json: options.Json = False,
) -> None:
    """Continue an interrupted run, or train a complete run for more EM iterations."""
    from plogicnet.model import PLogicNet

    for text in assignments or []:
        if not text.startswith(("em.iterations=", "em.patience=")):
            raise InputError(
                f"--set {text}: only em.iterations and em.patience can change. Train a new run for other settings."
            )
    require_read_memory(run)
    settings = without_none(device=device, threads=threads) | parse_assignments(assignments or [])
    with _interruptible(run):
        model = PLogicNet.resume(run, settings, terminal_hooks(), keep)
    _show_trained(model, run, as_json)


def refit(
    run: options.Run,
    rules: Annotated[
        Path | None,
        Option("--rules", help="File of rules that replaces the rules of the run, in any of the formats of `train`."),
    ] = None,
    add_rules: Annotated[
        Path | None, Option("--add-rules", help="File of rules to add to the rules of the run, in the same formats.")
    ] = None,
    device: options.Device = None,
    threads: options.Threads = None,
    keep: options.Keep = 2,
    _memory_limit: options.MemoryLimit = None,
    as_json: options.Json = False,
) -> None:
    """Learn the rule weights again, for the rules of the run or of a file. The neural model stays as it is.

    The result is a new snapshot. `plogicnet runs revert` goes back to the previous one.
    """
    if rules is not None and add_rules is not None:
        raise InputError("--rules replaces the rules of the run, and --add-rules adds to them. Use only one.")
    model = load_run(run, device, threads)
    previous = model.snapshot
    with _interruptible(run):
        model.refit(rules, run, terminal_hooks(), keep, add_rules)
    _show_trained(model, run, as_json)
    if not as_json:
        _show_snapshots(run, previous, model.snapshot)


def update(
    run: options.Run,
    facts: Annotated[Path, Option("--facts", help="File of facts to add. Entities can be new, relations cannot.")],
    steps: Annotated[
        int,
        Option("--steps", min=0, help="Training steps for new entities, if the neural model has vectors. 0: none."),
    ] = UPDATE_STEPS,
    evaluate: Annotated[
        bool, Option("--evaluate", help="Evaluate on valid and test, for `runs list`, `report` and `serve`.")
    ] = False,
    device: options.Device = None,
    threads: options.Threads = None,
    keep: options.Keep = 2,
    _memory_limit: options.MemoryLimit = None,
    as_json: options.Json = False,
) -> None:
    """Add facts to the graph of a run. Rules use them at once, with the learned weights. New entities are learned.

    The result is a new snapshot. `plogicnet runs revert` goes back to the previous one.
    """
    model = load_run(run, device, threads)
    previous, hooks = model.snapshot, terminal_hooks()
    with _interruptible(run):
        model.update(facts, run, steps, evaluate, hooks, keep)
    change, current = model.last_update, model.snapshot
    if change is None or current is None:
        raise RuntimeError("the update has no result")
    if as_json:
        seconds = {part: round(value, 3) for part, value in hooks.clock.seconds.items()}
        print_json({"run": str(run), "snapshot": current.name, **change.to_json(), "seconds": seconds})
        return
    print(show.update_text(change))
    _show_snapshots(run, previous, current)


def _show_snapshots(run: Path, previous: "Snapshot | None", current: "Snapshot | None") -> None:
    """Print the current snapshot, and how to go back to the previous one."""
    if previous and current and previous.name != current.name:
        print(f"Snapshot {current.name} is current. To go back: plogicnet runs revert {run} {previous.name}")


@contextmanager
def _interruptible(path: Path, resume_command: str = "") -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, and print how to resume an interrupted run.

    Args:
        path: the run directory.
        resume_command: the command that resumes training, for the message. Default: `plogicnet resume`.
    """
    from plogicnet.runs.directory import has_unfinished_training

    try:
        with sigterm_as_interrupt():
            yield
    except BaseException as error:
        stopped = is_interrupt(error)
        if (stopped or isinstance(error, OSError)) and has_unfinished_training(path):
            reason = "Stopped" if stopped else "Failed, but the last checkpoint is kept"  # for example a full disk
            print_message(
                f"{reason}. To continue, run {resume_command or f'`plogicnet resume {quote_argument(path)}`'}."
            )
        raise


def parse_seeds(text: str) -> list[int]:
    """Parse a list of seeds such as `0,1,2`.

    Example:
        >>> parse_seeds("0,1")
        [0, 1]
    """
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--seeds {text}: expected integers such as 0,1,2") from None
    if len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise InputError(f"--seeds {text}: expected different integers of at least 0, such as 0,1,2")
    return seeds


def terminal_hooks() -> "Hooks":
    """Return hooks that print progress and one line per EM iteration on stderr."""
    from plogicnet.training.hooks import Hooks

    return Hooks(progress=for_stderr(), on_iteration=_print_iteration)


def _print_iteration(line: "Iteration") -> None:
    """Print one line about an EM iteration on stderr."""
    from plogicnet.systems.system import RANKING_TITLES

    mrr = ", ".join(f"{RANKING_TITLES[key]} {metrics['mrr']:.3f}" for key, metrics in line.valid.items())
    held_out = "" if line.accepted_precision is None else f" ({line.accepted_precision:.1%} of these are held out)"
    accepted = f"{line.accepted:,} of {pluralize(line.hidden, 'hidden triple')} accepted{held_out}"
    print(f"EM iteration {line.iteration}: {accepted}. Valid MRR: {mrr}. λ = {line.lambda_:g}", file=sys.stderr)


def _show_trained(model: "PLogicNet", out: Path, as_json: bool) -> None:
    if as_json:
        print_json({"run": str(out), **model.metrics})
        return
    screen, graph, titles = show.console(), model.fitted.graph, model.titles
    screen.print(show.history_table(model.history, titles, show.TEST_COMPETES if len(graph.test) else ""))
    for split in [s for s in ("test", "valid") if s in model.metrics][:1]:
        title = f"{split} ({pluralize(len(graph.split(split)), 'triple')}, filtered)"
        screen.print(show.metrics_table(title, model.metrics[split], titles))
    screen.print(f"Run saved in {out}. Next: plogicnet rules {quote_argument(out)}", markup=False)


def _show_seeds(models: Sequence["PLogicNet"], out: Path, as_json: bool) -> None:
    """Print the mean and the standard deviation of the metrics over the seeds."""
    from plogicnet.evaluation.results import SplitMetrics
    from plogicnet.evaluation.seeds import aggregate_seeds

    split = next((s for s in ("test", "valid") if all(s in model.metrics for model in models)), None)
    if split is None:
        print(f"Runs saved in {out}/seed-*. The graph has no valid or test triples to evaluate.")
        return
    metrics = aggregate_seeds([SplitMetrics.from_json(model.metrics[split]) for model in models])
    if as_json:
        seeds = [model.config.seed for model in models]
        print_json({"runs": {str(s): str(out / f"seed-{s}") for s in seeds}, split: metrics})
        return
    title = f"{split}, {pluralize(len(models), 'seed')}: mean ± standard deviation"
    show.console().print(show.metrics_table(title, metrics, models[0].titles))
    print(f"Runs saved in {out}/seed-*.")


def cost(graph: "KnowledgeGraph", settings: Config) -> str:
    """Return the cost of training as text. A few steps are run to measure the time."""
    entities = pluralize(len(graph.entities), "entity", "entities")
    lines = [
        f"{graph.name}: {pluralize(len(graph.train), 'training triple')}, {entities},"
        f" {pluralize(len(graph.relations), 'relation')}."
    ]
    if settings.em.neural:
        from plogicnet.neural.registry import model_kind
        from plogicnet.training.cost import require_memory, seconds_per_step

        require_memory(graph, settings)
        model_cost = model_kind(settings).cost(graph, settings)
        steps = model_cost.steps * (settings.em.iterations if settings.em.rules else 1)
        seconds = steps * seconds_per_step(graph, settings)
        epochs = model_cost.steps * min(model_cost.positives, len(graph.train)) / len(graph.train)
        lines.append(
            f"Cost: {steps:,} steps of {model_cost.work}, about {duration(seconds)} on this machine,"
            f" up to {model_cost.bytes / 2**20:,.0f} MB of memory."
        )
        if epochs > MAX_EPOCHS and seconds > 60 and not settings.neural.mixture:
            fewer = round(model_cost.steps * MAX_EPOCHS / epochs, -2) or 100
            lines.append(f"Hint: this is {epochs:,.0f} epochs. --set neural.steps={fewer:.0f} may be enough.")
    return "\n".join(lines)
