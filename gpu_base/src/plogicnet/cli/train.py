"""The commands that train: train, resume, refit; and how a run directory is opened for writing."""

import logging
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
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
    make_config,
    open_source,
    print_json,
    require_reading,
)
from plogicnet.errors import InputError, many
from plogicnet.memory import limit_memory

if TYPE_CHECKING:
    from plogicnet.config import Config
    from plogicnet.em import Watch
    from plogicnet.graph import KnowledgeGraph
    from plogicnet.model import PLogicNet

TRIAL = 5
TRIAL_SECONDS = 0.1
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

    settings = make_config(preset or (None if graph else DEMO_PRESET), config, assignments, seed, device, threads)
    runs = {s: out / f"seed-{s}" for s in parse_seeds(seeds)} if seeds is not None else {settings.seed: out}
    each = {s: settings.with_values({"seed": s}) for s in runs}
    for number, folder in runs.items():
        if seeds is None or not (folder / "run.json").exists():
            _refuse_existing(folder)
        else:
            require_same(folder, each[number])
    opened = open_source(graph, settings, columns, split)
    PLogicNet(settings).statements(rules, opened)  # a mistake is said before anything is made
    print(cost(opened, settings), file=sys.stderr)
    models = {number: trained(folder, each[number], opened, rules) for number, folder in runs.items()}
    if len(models) > 1 or seeds is not None:
        _show_seeds(models, out, as_json)
    else:
        _show_trained(models[settings.seed], out, as_json)


def require_same(folder: Path, settings: "Config") -> None:
    """An error where a directory's run has other settings; the device and the threads may differ.

    Example:
        >>> require_same(Path("runs/family"), config)  # doctest: +SKIP
    """
    from plogicnet.config import Config

    own = Config().with_file(folder / "config.yaml")
    if replace(own, device="auto", threads=0) != replace(settings, device="auto", threads=0):
        raise InputError(f"{folder}: a run with other settings is there; name another directory or remove it")


def trained(
    folder: Path,
    settings: "Config",
    graph: "KnowledgeGraph",
    rules: Path | None = None,
    watch: "Watch" = lambda *_: {},
    shared: Path | None = None,
    again: str | None = None,
) -> "PLogicNet":
    """The run of a directory: opened if it is complete, gone on with if it was begun, trained else.

    A training that is stopped says what goes on with it, `again`; `plogicnet resume` unless told.

    Example:
        >>> trained(Path("runs/family"), config, graph)  # doctest: +SKIP
    """
    from plogicnet.model import PLogicNet
    from plogicnet.progress import for_stderr
    from plogicnet.run import is_complete

    if is_complete(folder):
        return PLogicNet.load(folder)
    if (folder / "run.json").exists():
        with _open_run(folder), _resumable(folder, again):
            where = {"device": settings.device, "threads": settings.threads}
            return PLogicNet.resume(folder, where, for_stderr(), _announce, watch, shared)
    with new_run(folder), _resumable(folder, again):
        return PLogicNet(settings).fit(graph, for_stderr(), rules, folder, _announce, watch, shared)


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
    """Go on with a training that was stopped; or with a complete one, for more EM iterations."""
    limit_memory(memory_limit)
    from plogicnet.baselines import vectors_alone
    from plogicnet.files import locked
    from plogicnet.model import PLogicNet
    from plogicnet.progress import for_stderr
    from plogicnet.run import is_complete, read_config, require_begun, tidy

    for text in assignments or []:
        if not text.startswith(("em.iterations=", "em.patience=")):
            raise InputError(
                f"--set {text}: a run goes on with its own settings; only em.iterations and em.patience may change"
            )
    require_begun(run)
    require_reading(run)
    own = read_config(run)
    asked = own.with_assignments(assignments or [])
    if is_complete(run) and asked.em.iterations <= own.em.iterations:
        with suppress(OSError), locked(run):  # a disk may be read-only
            tidy(run)
        more = f"`plogicnet resume {run} --set em.iterations={own.em.iterations + 1}` gives it one more EM iteration"
        if vectors_alone(own) or not (own.em.rules and own.em.embedding):
            more = "it is trained once, without EM"
        raise InputError(f"{run} is complete; there is nothing to go on with ({more})")
    options = {"device": device, "threads": threads, "em.iterations": asked.em.iterations}
    options["em.patience"] = asked.em.patience
    given = {key: value for key, value in options.items() if value is not None}
    with _open_run(run), _resumable(run):
        model = PLogicNet.resume(run, given, for_stderr(), _announce)
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
    from plogicnet.progress import for_stderr

    model = load_run(run, device, threads, edited=True)
    with _open_run(run), _resumable(run):
        model.refit(rules or run / "rules.tsv", for_stderr(), run)
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


def _announce(line: Mapping[str, Any]) -> None:
    """One line on stderr for each EM iteration."""
    mrr = ", ".join(f"{name} {figures['mrr']:.3f}" for name, figures in line["valid"].items())
    found = "" if line["accepted_precision"] is None else f" ({line['accepted_precision']:.1%} of them held out)"
    hidden = many(line["hidden"], "hidden triple")
    print(
        f"EM iteration {line['iteration']}: {line['accepted']:,} of {hidden} accepted{found};"
        f" MRR on valid: {mrr}; λ = {line['lambda']:g}",
        file=sys.stderr,
    )


def _show_trained(model: "PLogicNet", out: Path, as_json: bool) -> None:
    if as_json:
        print_json({"run": str(out), **model.metrics})
        return
    from plogicnet.cli.show import TEST_COMPETES, console, history_table, metrics_table

    screen, graph, system = console(), model.fitted.graph, model.config.system
    screen.print(history_table(model.history, system, TEST_COMPETES if len(graph.test) else ""))
    for split in ("test", "valid"):
        if split in model.metrics:
            figures: Any = model.metrics[split]
            title = f"{split} ({many(len(graph.split(split)), 'triple')}, filtered)"
            screen.print(metrics_table(title, figures, system))
            break
    screen.print(f"run saved in {out}; next: plogicnet rules {out}", markup=False)


def _show_seeds(models: Mapping[int, "PLogicNet"], out: Path, as_json: bool) -> None:
    """Mean and standard deviation over seeds."""
    from plogicnet.cli.show import console, seeds_table
    from plogicnet.evaluation import over_seeds

    split = next((s for s in ("test", "valid") if all(s in model.metrics for model in models.values())), None)
    if split is None:
        print(f"runs saved in {out}/seed-*; the graph has no triples to evaluate on")
        return
    figures = over_seeds([model.metrics[split] for model in models.values()])  # type: ignore[misc]
    if as_json:
        print_json({"runs": {str(s): str(out / f"seed-{s}") for s in models}, split: figures})
        return
    title = f"{split}, {many(len(models), 'seed')}: mean ± standard deviation"
    console().print(seeds_table(title, figures, next(iter(models.values())).config.system))
    print(f"runs saved in {out}/seed-*")


def load_run(
    run: Path, device: str | None, threads: int | None, edited: bool = False, facts: Path | None = None
) -> "PLogicNet":
    """Opens a complete run on the device and threads that a command names, with the facts of a file added.

    Example:
        >>> load_run(Path("runs/family"), None, None)  # doctest: +SKIP
    """
    from plogicnet.model import PLogicNet

    require_reading(run)
    options = {"device": device, "threads": threads}
    model = PLogicNet.load(run, {key: value for key, value in options.items() if value is not None}, edited)
    return model if facts is None else model.with_facts(facts)


@contextmanager
def new_run(out: Path) -> Iterator[None]:
    """Makes a run directory, with a log in it, that no other process writes to meanwhile.

    Example:
        >>> with new_run(Path("runs/family")):  # doctest: +SKIP
        ...     ...
    """
    _refuse_existing(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {out}: cannot be made: {error.strerror}") from None
    with _open_run(out, log_mode="w"):
        yield


@contextmanager
def _open_run(out: Path, log_mode: str = "a") -> Iterator[None]:
    """Keeps other writers out of a run directory and its log open meanwhile."""
    from plogicnet.files import locked
    from plogicnet.run import require_inside

    require_inside(out)  # before the lock and the log are written
    with locked(out):
        handler = logging.FileHandler(out / "log.txt", mode=log_mode, encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logging.getLogger("plogicnet").addHandler(handler)
        try:
            yield
        finally:
            logging.getLogger("plogicnet").removeHandler(handler)
            with suppress(OSError):  # of a full disk; the log is nobody's result
                handler.close()


@contextmanager
def _resumable(run: Path, again: str | None = None) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the step in hand, save, and say how to go on; so does what the system refuses."""
    again = again or f"`plogicnet resume {run}`"
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        if _is_unfinished(run):
            print(f"plogicnet: stopped; {again} goes on from here", file=sys.stderr)
        raise
    except OSError:
        if _is_unfinished(run):
            print(f"plogicnet: what was saved is kept; {again} goes on from it", file=sys.stderr)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _is_unfinished(run: Path) -> bool:
    return (run / "run.json").is_file() and not (run / "metrics.json").is_file()


def _refuse_existing(out: Path) -> None:
    from plogicnet.files import locked
    from plogicnet.run import require_own

    if out.is_file():
        raise InputError(f"--out {out}: a file is there; name a new directory")
    if (out / "metrics.json").exists():
        raise InputError(f"--out {out}: a finished run is there; name another directory or remove it")
    require_own(out)
    if (out / "run.json").exists():
        with locked(out):  # else another process is at it: nothing to be removed
            pass
        raise InputError(
            f"--out {out}: an unfinished run is there; `plogicnet resume {out}` goes on with it, or remove it"
        )


def cost(graph: "KnowledgeGraph", settings: "Config") -> str:
    """What a training will take, said before it begins; the time by a few steps of trial.

    Example:
        >>> cost(graph, config)  # doctest: +SKIP
    """
    lines = [
        f"{graph.name}: {many(len(graph.train), 'training triple')}, {many(len(graph.entities), 'entity', 'entities')},"
        f" {many(len(graph.relations), 'relation')}"
    ]
    if settings.em.embedding:
        from plogicnet.em import require_training, training_bytes

        require_training(graph, settings)
        kge = settings.kge
        seconds = _seconds_a_step(graph, settings)
        steps = kge.steps * (settings.em.iterations if settings.em.rules else 1)
        compared = kge.negatives if kge.recipe == "sampled" else len(graph.entities)
        passes = kge.steps * min(kge.batch, len(graph.train)) / len(graph.train)
        memory = training_bytes(graph, settings) / 2**20
        lines.append(
            f"cost: {steps:,} steps of {kge.batch:,} × {compared:,} comparisons in {kge.dim} dimensions, about"
            f" {duration(steps * seconds)} here; training takes up to {memory:,.0f} MB on a CPU"
        )
        if passes > MANY_PASSES and steps * seconds > 60:
            fewer = round(kge.steps * MANY_PASSES / passes, -2) or 100
            lines.append(f"hint: that is {passes:,.0f} passes over the triples; --set kge.steps={fewer:.0f} may do")
    return "\n".join(lines)


def _seconds_a_step(graph: "KnowledgeGraph", settings: "Config") -> float:
    """What a training step takes here, by trial."""
    from plogicnet.kge import Examples, VectorModel

    def took(steps: int) -> float:
        kge = replace(settings.kge, steps=steps, validate_every=0)
        if settings.system != "plogicnet":
            kge = replace(kge, kernels="plain")  # its steps are no fused ones, and take a little longer than these
        model = VectorModel(len(graph.entities), len(graph.relations), kge, settings.device)
        started = time.perf_counter()
        model.fit(Examples.of(graph.train), seed=0)
        return time.perf_counter() - started

    took(2)  # warms up
    beginning = took(1)
    trial = TRIAL
    while (more := took(1 + trial) - beginning) < TRIAL_SECONDS and trial < TRIAL * 100:
        trial *= 4
    return max(0.0, more) / trial
