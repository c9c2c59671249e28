"""The commands that train: train, resume, refit."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plogicnet.cli.settings import (
    DEMO_PRESET,
    Assignments,
    Columns,
    ConfigFile,
    Device,
    Graph,
    Json,
    MemoryLimit,
    Preset,
    RulesFile,
    Run,
    Seed,
    SplitShares,
    Threads,
    duration,
    load_run,
    make_config,
    on_this_machine,
    open_source,
    print_json,
    require_reading,
    say,
)
from plogicnet.support.errors import InputError, many
from plogicnet.support.memory import limit_memory

if TYPE_CHECKING:
    from plogicnet.config import Config
    from plogicnet.graph import KnowledgeGraph
    from plogicnet.model import PLogicNet
    from plogicnet.training.hooks import Hooks
    from plogicnet.training.state import Iteration

MANY_PASSES = 500
Seeds = Annotated[str | None, typer.Option("--seeds", help="Several seeds, as 0,1,2: a run each, and their mean.")]


def train(
    out: Annotated[Path, typer.Option("--out", help="The run directory to make.")],
    graph: Graph = None,
    rules: RulesFile = None,
    columns: Columns = "hrt",
    split: SplitShares = None,
    preset: Preset = None,
    config: ConfigFile = None,
    assignments: Assignments = None,
    seed: Seed = None,
    seeds: Seeds = None,
    device: Device = None,
    threads: Threads = None,
    memory_limit: MemoryLimit = None,
    as_json: Json = False,
) -> None:
    """Train rules and vectors together on a graph, into a run directory."""
    limit_memory(memory_limit)
    from plogicnet.model import PLogicNet
    from plogicnet.runs.lifecycle import require_compatible, require_new

    settings = make_config(preset or (None if graph else DEMO_PRESET), config, assignments, seed, device, threads)
    runs = {s: out / f"seed-{s}" for s in parse_seeds(seeds)} if seeds is not None else {settings.seed: out}
    each = {s: settings.with_values({"seed": s}) for s in runs}
    for number, folder in runs.items():
        if seeds is None:
            require_new(folder)
        else:
            require_compatible(folder, each[number])
    opened = open_source(graph, settings, columns, split)
    PLogicNet(settings).statements(rules, opened)  # raises before anything is made
    print(cost(opened, settings), file=sys.stderr)
    models = {number: trained(folder, each[number], opened, rules) for number, folder in runs.items()}
    if len(models) > 1 or seeds is not None:
        _show_seeds(models, out, as_json)
    else:
        _show_trained(models[settings.seed], out, as_json)


def trained(
    folder: Path,
    settings: "Config",
    graph: "KnowledgeGraph",
    rules: Path | None = None,
    hooks: "Hooks | None" = None,
    again: str | None = None,
) -> "PLogicNet":
    """The model of a run directory, trained or resumed if needed; a training that is stopped prints how to resume it.

    Args:
        folder: the run directory.
        settings: its settings.
        graph: what to learn from.
        rules: a file of rules.
        hooks: what is called on the way; by default, it shows progress on stderr.
        again: what resumes the training; by default `plogicnet resume`.
    """
    from plogicnet.model import PLogicNet
    from plogicnet.runs.lifecycle import interruptible

    with interruptible(folder, say, again):
        return PLogicNet.load_or_train(folder, settings, graph, rules, hooks or terminal_hooks())


def resume(
    run: Run,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="em.iterations=N, to give a complete run more of them.")
    ] = None,
    device: Device = None,
    threads: Threads = None,
    memory_limit: MemoryLimit = None,
    as_json: Json = False,
) -> None:
    """Continue a training that was stopped; or a complete one, for more EM iterations."""
    limit_memory(memory_limit)
    from plogicnet.config import parse_assignments
    from plogicnet.model import PLogicNet
    from plogicnet.runs.lifecycle import interruptible

    for text in assignments or []:
        if not text.startswith(("em.iterations=", "em.patience=")):
            raise InputError(
                f"--set {text}: a run keeps its own settings; only em.iterations and em.patience may change"
            )
    require_reading(run)
    settings = on_this_machine(device, threads) | parse_assignments(assignments or [])
    with interruptible(run, say):
        model = PLogicNet.resume(run, settings, terminal_hooks())
    _show_trained(model, run, as_json)


def refit(
    run: Run,
    rules: Annotated[
        Path | None, typer.Option("--rules", help="A file of rules, instead of all that the run has.")
    ] = None,
    device: Device = None,
    threads: Threads = None,
    memory_limit: MemoryLimit = None,
    as_json: Json = False,
) -> None:
    """Learn the rule weights again, after rules were edited (in the run's rules.tsv, or given by --rules).

    The run is changed in place; to keep it as it was, copy its directory first.
    """
    limit_memory(memory_limit)
    from plogicnet.runs.files import RULES
    from plogicnet.runs.lifecycle import interruptible

    model = load_run(run, device, threads, edited=True)
    with interruptible(run, say):
        model.refit(rules or run / RULES, run, terminal_hooks())
    _show_trained(model, run, as_json)


def parse_seeds(text: str) -> list[int]:
    """`0,1,2` as numbers.

    Example:
        >>> parse_seeds("0,1")
        [0, 1]
    """
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--seeds {text}: expected whole numbers, as 0,1,2") from None
    if len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise InputError(f"--seeds {text}: expected different numbers of at least 0")
    return seeds


def terminal_hooks() -> "Hooks":
    """Progress and a line for each EM iteration on stderr."""
    from plogicnet.support.progress import for_stderr
    from plogicnet.training.hooks import Hooks

    return Hooks(progress=for_stderr(), announce=_announce)


def _announce(line: "Iteration") -> None:
    """One line on stderr for each EM iteration."""
    mrr = ", ".join(f"{name} {figures['mrr']:.3f}" for name, figures in line.valid.items())
    found = "" if line.accepted_precision is None else f" ({line.accepted_precision:.1%} of them held out)"
    hidden = many(line.hidden, "hidden triple")
    print(
        f"EM iteration {line.iteration}: {line.accepted:,} of {hidden} accepted{found};"
        f" MRR on valid: {mrr}; λ = {line.lambda_:g}",
        file=sys.stderr,
    )


def _show_trained(model: "PLogicNet", out: Path, as_json: bool) -> None:
    if as_json:
        print_json({"run": str(out), **model.metrics})
        return
    from plogicnet.cli.show import TEST_COMPETES, console, history_table, metrics_table

    screen, graph, titles = console(), model.fitted.graph, model.titles
    screen.print(history_table(model.history, titles, TEST_COMPETES if len(graph.test) else ""))
    for split in ("test", "valid"):
        if split in model.metrics:
            figures: Any = model.metrics[split]
            title = f"{split} ({many(len(graph.split(split)), 'triple')}, filtered)"
            screen.print(metrics_table(title, figures, titles))
            break
    screen.print(f"run saved in {out}; next: plogicnet rules {out}", markup=False)


def _show_seeds(models: Mapping[int, "PLogicNet"], out: Path, as_json: bool) -> None:
    """Mean and standard deviation over seeds."""
    from plogicnet.cli.show import console, seeds_table
    from plogicnet.evaluation.figures import SplitFigures
    from plogicnet.evaluation.seeds import over_seeds

    split = next((s for s in ("test", "valid") if all(s in model.metrics for model in models.values())), None)
    if split is None:
        print(f"runs saved in {out}/seed-*; the graph has no triples to evaluate on")
        return
    each: list[Any] = [model.metrics[split] for model in models.values()]
    figures = over_seeds([SplitFigures.of_json(metrics) for metrics in each])
    if as_json:
        print_json({"runs": {str(s): str(out / f"seed-{s}") for s in models}, split: figures})
        return
    title = f"{split}, {many(len(models), 'seed')}: mean ± standard deviation"
    console().print(seeds_table(title, figures, next(iter(models.values())).titles))
    print(f"runs saved in {out}/seed-*")


def cost(graph: "KnowledgeGraph", settings: "Config") -> str:
    """What a training takes, in words; the time is measured by a few steps."""
    lines = [
        f"{graph.name}: {many(len(graph.train), 'training triple')}, {many(len(graph.entities), 'entity', 'entities')},"
        f" {many(len(graph.relations), 'relation')}"
    ]
    if settings.em.neural:
        from plogicnet.training.cost import require_memory, seconds_per_step, training_cost

        require_memory(graph, settings)
        spent, iterations = training_cost(graph, settings), settings.em.iterations if settings.em.rules else 1
        steps = spent.steps * iterations
        seconds = steps * seconds_per_step(graph, settings)
        passes = spent.steps * min(spent.positives, len(graph.train)) / len(graph.train)
        lines.append(
            f"cost: {steps:,} steps of {spent.work}, about {duration(seconds)} here; training takes up to"
            f" {spent.bytes / 2**20:,.0f} MB on a CPU"
        )
        if passes > MANY_PASSES and seconds > 60:
            fewer = round(spent.steps * MANY_PASSES / passes, -2) or 100
            lines.append(f"hint: that is {passes:,.0f} passes over the triples; --set neural.steps={fewer:.0f} may do")
    return "\n".join(lines)
