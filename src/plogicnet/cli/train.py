"""The commands that train: train, resume, refit."""

import signal
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
    given,
    load_run,
    make_config,
    open_source,
    print_json,
    require_reading,
    say,
)
from plogicnet.config import Config, parse_assignments
from plogicnet.support.errors import InputError, many
from plogicnet.support.progress import for_stderr

if TYPE_CHECKING:
    from plogicnet.graph import KnowledgeGraph
    from plogicnet.model import PLogicNet
    from plogicnet.training.hooks import Hooks
    from plogicnet.training.state import Iteration

MANY_PASSES = 500
Seeds = Annotated[str | None, Option("--seeds", help="Several seeds, as 0,1,2: a run each, and their mean.")]


def train(
    out: Annotated[Path, Option("--out", help="The run directory to make.")],
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
    """Train rules and vectors together on a graph, into a run directory."""
    from plogicnet.model import PLogicNet
    from plogicnet.runs.lifecycle import require_compatible, require_new

    settings = make_config(preset or (None if graph else DEMO_PRESET), config, assignments, seed, device, threads)
    runs = {out: settings}
    if seeds is None:
        require_new(out)
    else:
        runs = {out / f"seed-{s}": settings.with_values({"seed": s}) for s in parse_seeds(seeds)}
    for folder, own in runs.items():
        require_compatible(folder, own)
    opened = open_source(graph, settings, columns, split)
    PLogicNet(settings).statements(rules, opened)  # raises before anything is made
    print(cost(opened, settings), file=sys.stderr)
    models = [trained(folder, own, opened, terminal_hooks(), rules) for folder, own in runs.items()]
    if seeds is None:
        _show_trained(models[0], out, as_json)
    else:
        _show_seeds(models, out, as_json)


def trained(
    folder: Path, settings: Config, graph: "KnowledgeGraph", hooks: "Hooks", rules: Path | None = None, again: str = ""
) -> "PLogicNet":
    """The model of a run directory, trained or resumed if needed; a training that is stopped prints how to resume it.

    Args:
        folder: the run directory.
        settings: its settings.
        graph: what to learn from.
        hooks: what is called on the way.
        rules: a file of rules.
        again: what resumes the training; by default `plogicnet resume`.
    """
    from plogicnet.model import PLogicNet

    with _interruptible(folder, again):
        return PLogicNet.load_or_train(folder, settings, graph, rules, hooks)


def resume(
    run: options.Run,
    assignments: Annotated[
        list[str] | None, Option("--set", help="em.iterations=N, to give a complete run more of them.")
    ] = None,
    device: options.Device = None,
    threads: options.Threads = None,
    _memory_limit: options.MemoryLimit = None,
    as_json: options.Json = False,
) -> None:
    """Continue a training that was stopped; or a complete one, for more EM iterations."""
    from plogicnet.model import PLogicNet

    for text in assignments or []:
        if not text.startswith(("em.iterations=", "em.patience=")):
            raise InputError(
                f"--set {text}: a run keeps its own settings; only em.iterations and em.patience may change"
            )
    require_reading(run)
    settings = given(device=device, threads=threads) | parse_assignments(assignments or [])
    with _interruptible(run):
        model = PLogicNet.resume(run, settings, terminal_hooks())
    _show_trained(model, run, as_json)


def refit(
    run: options.Run,
    rules: Annotated[Path | None, Option("--rules", help="A file of rules, instead of all that the run has.")] = None,
    device: options.Device = None,
    threads: options.Threads = None,
    _memory_limit: options.MemoryLimit = None,
    as_json: options.Json = False,
) -> None:
    """Learn the rule weights again, after rules were edited (in the run's rules.tsv, or given by --rules).

    The run is changed in place; to keep it as it was, copy its directory first.
    """
    from plogicnet.runs.directory import RULES

    model = load_run(run, device, threads, edited=True)
    with _interruptible(run):
        model.refit(rules or run / RULES, run, terminal_hooks())
    _show_trained(model, run, as_json)


@contextmanager
def _interruptible(path: Path, again: str = "") -> Iterator[None]:
    """Makes SIGTERM interrupt as Ctrl-C does, at the end of a step; prints how to resume a training that was stopped.

    Args:
        path: the run directory.
        again: what resumes the training; by default `plogicnet resume`.
    """
    from plogicnet.runs.directory import State, state_of

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except (KeyboardInterrupt, OSError) as error:  # the system may refuse something, as space on a disk
        if state_of(path) is State.UNFINISHED:
            stopped = "stopped" if isinstance(error, KeyboardInterrupt) else "what was saved is kept"
            say(f"{stopped}; {again or f'`plogicnet resume {path}`'} continues from here")
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


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
    from plogicnet.training.hooks import Hooks

    return Hooks(progress=for_stderr(), announce=_announce)


def _announce(line: "Iteration") -> None:
    """One line on stderr for each EM iteration."""
    mrr = ", ".join(f"{name} {figures['mrr']:.3f}" for name, figures in line.valid.items())
    found = "" if line.accepted_precision is None else f" ({line.accepted_precision:.1%} of them held out)"
    accepted = f"{line.accepted:,} of {many(line.hidden, 'hidden triple')} accepted{found}"
    print(f"EM iteration {line.iteration}: {accepted}; MRR on valid: {mrr}; λ = {line.lambda_:g}", file=sys.stderr)


def _show_trained(model: "PLogicNet", out: Path, as_json: bool) -> None:
    if as_json:
        print_json({"run": str(out), **model.metrics})
        return
    screen, graph, titles = show.console(), model.fitted.graph, model.titles
    screen.print(show.history_table(model.history, titles, show.TEST_COMPETES if len(graph.test) else ""))
    for split in [s for s in ("test", "valid") if s in model.metrics][:1]:
        title = f"{split} ({many(len(graph.split(split)), 'triple')}, filtered)"
        screen.print(show.metrics_table(title, model.metrics[split], titles))
    screen.print(f"run saved in {out}; next: plogicnet rules {out}", markup=False)


def _show_seeds(models: Sequence["PLogicNet"], out: Path, as_json: bool) -> None:
    """Mean and standard deviation over seeds."""
    from plogicnet.evaluation.figures import SplitFigures
    from plogicnet.evaluation.seeds import over_seeds

    split = next((s for s in ("test", "valid") if all(s in model.metrics for model in models)), None)
    if split is None:
        print(f"runs saved in {out}/seed-*; the graph has no triples to evaluate on")
        return
    figures = over_seeds([SplitFigures.of_json(model.metrics[split]) for model in models])
    if as_json:
        seeds = [model.config.seed for model in models]
        print_json({"runs": {str(s): str(out / f"seed-{s}") for s in seeds}, split: figures})
        return
    title = f"{split}, {many(len(models), 'seed')}: mean ± standard deviation"
    show.console().print(show.metrics_table(title, figures, models[0].titles))
    print(f"runs saved in {out}/seed-*")


def cost(graph: "KnowledgeGraph", settings: Config) -> str:
    """What a training takes, in words; the time is measured by a few steps."""
    lines = [
        f"{graph.name}: {many(len(graph.train), 'training triple')}, {many(len(graph.entities), 'entity', 'entities')},"
        f" {many(len(graph.relations), 'relation')}"
    ]
    if settings.em.neural:
        from plogicnet.neural.protocol import model_kind
        from plogicnet.training.cost import require_memory, seconds_per_step

        require_memory(graph, settings)
        spent = model_kind(settings).cost(graph, settings)
        steps = spent.steps * (settings.em.iterations if settings.em.rules else 1)
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
