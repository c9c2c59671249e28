"""The search: Optuna proposes settings, and each trial trains with them and returns its validation MRR.

The next trial is a function of the seed, the search spaces and the finished trials. So a search that was killed
continues as if it had not been. Only a trial that ends the process twice is skipped.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from plogicnet.config import Config, Domain, Range, SearchSpace
from plogicnet.config.tree import flat_settings
from plogicnet.graph import KnowledgeGraph, as_triples
from plogicnet.grounding.engine import MiningResult
from plogicnet.neural.device import use_threads
from plogicnet.neural.protocol import NeuralModel
from plogicnet.neural.registry import model_kind
from plogicnet.rules import Statement
from plogicnet.support.errors import InputError
from plogicnet.support.progress import Advance, Progress, no_progress
from plogicnet.systems.system import system_of
from plogicnet.training.em import initial_state, mine, run_em
from plogicnet.training.hooks import Hooks
from plogicnet.training.selection import validation_mrr, with_validation
from plogicnet.tuning.space import MODEL, Settings, first_settings, search_spaces, trial_config, with_limited_steps
from plogicnet.tuning.trials import COMPLETE, FAILED, PRUNED, Trial, identity, open_search, record_start, write_trials

if TYPE_CHECKING:
    import optuna

VALIDATIONS = 5
"""The number of validations per E-step. After each one, the pruner decides whether the trial continues."""
FULL_TRIALS = 5
"""The number of complete trials before the first trial is pruned."""
MAX_DRAWS = 10
"""How often settings are drawn until they differ from those of all finished trials."""
MAX_STARTS = 2
"""How often a trial starts. If it has ended the process this many times, it is skipped."""
FAILURES = (InputError, FloatingPointError, RuntimeError, MemoryError)
"""The errors that end a trial, but not the search. RuntimeError includes the errors of CUDA."""


@dataclass(frozen=True)
class Tuning:
    """What to tune: a graph without its test split, base settings, written rules, and the search space per model.

    `mined` contains the rules of the last trial, by the settings that determine them.
    """

    graph: KnowledgeGraph
    base: Config
    statements: Sequence[Statement]
    spaces: Mapping[str, SearchSpace]
    mined: dict[str, MiningResult] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        graph: KnowledgeGraph,
        base: Config,
        statements: Sequence[Statement],
        models: Sequence[str],
        given: SearchSpace,
    ) -> "Tuning":
        """Remove the test split, hold out a valid split if there is none, and collect the search spaces.

        The base settings get the first of the models, unless theirs is one of them.
        """
        if base.em.neural and base.neural.model not in models:
            base = trial_config(base, {MODEL: models[0]})
        graph = with_validation(replace(graph, test=as_triples([])), base)
        if not len(graph.valid):
            raise InputError(f"{graph.name}: one training triple is not enough to hold out a valid split")
        return cls(graph, base, statements, search_spaces(graph, base, models, given))


def run_search(
    tuning: Tuning,
    directory: Path,
    n_trials: int,
    on_trial: Callable[[Trial], None] = lambda _: None,
    progress: Progress = no_progress,
) -> list[Trial]:
    """Run trials until the directory contains `n_trials`. Return all of them. `progress` displays their steps."""
    use_threads(tuning.base.threads)
    with open_search(directory, identity(tuning.graph, tuning.base, tuning.statements, tuning.spaces)) as trials:
        write_trials(directory, tuning.base, trials, tuning.graph.name)  # a kill can have left old best settings
        while len(trials) < n_trials:
            with record_start(directory, len(trials)) as n_starts:
                trials.append(run_trial(tuning, trials, n_starts, progress))
            write_trials(directory, tuning.base, trials, tuning.graph.name)
            on_trial(trials[-1])
        return trials


def run_trial(tuning: Tuning, finished: Sequence[Trial], n_starts: int = 1, progress: Progress = no_progress) -> Trial:
    """Run the next trial, which now starts for the `n_starts`-th time.

    If a finished trial has the same settings, return a copy of it.

    Raises:
        InputError, RuntimeError, MemoryError: The first trial fails, because the base settings cannot be used.
    """
    import optuna

    started, number, validations = time.perf_counter(), len(finished), list[float]()
    asked, settings = propose(tuning, finished)
    if same := equal_trial(tuning, settings, finished):
        return replace(same, trial=number, seconds=0.0, same_as=same.trial)
    if n_starts > MAX_STARTS:
        return Trial(number, FAILED, None, 0.0, settings, error=f"the program ended {MAX_STARTS} times in this trial")
    stops_early = tuning.base.neural.validate_every > 0 or "neural.validate_every" in settings

    def validate(graph: KnowledgeGraph, config: Config, neural: NeuralModel) -> float:
        validations.append(validation_mrr(graph, config, neural))
        asked.report(validations[-1], len(validations) - 1)
        if asked.should_prune():
            raise optuna.TrialPruned
        # without early stopping, training must keep the last parameters, so each validation counts as an improvement
        return validations[-1] if stops_early else float(len(validations))

    @contextmanager
    def trial_progress(step: str, total: int) -> Iterator[Advance]:
        with progress(f"trial {number}: {step}", total) as advance:
            yield lambda units=1, note="": advance(units)  # noqa: ARG005 (the note has the result of `validate`)

    mrr, state, message = None, COMPLETE, ""
    try:
        mrr = train_trial(tuning, settings, stops_early, Hooks(progress=trial_progress, validate=validate))
    except optuna.TrialPruned:
        state = PRUNED
    except FAILURES as error:
        if not number and not isinstance(error, FloatingPointError):
            raise
        state, message = FAILED, str(error)
    return Trial(number, state, mrr, time.perf_counter() - started, settings, tuple(validations), message)


def train_trial(tuning: Tuning, settings: Settings, stops_early: bool, hooks: Hooks) -> float:
    """Train with the settings of a trial. Return the validation MRR of the EM iteration that `train` would keep."""
    config = trial_config(tuning.base, settings).completed
    system_of(config).check(config)
    if config.em.neural and not stops_early:
        steps = model_kind(config).cost(tuning.graph, config).steps
        config = config.with_values({"neural.validate_every": max(1, math.ceil(steps / VALIDATIONS))})
    key = repr((config.em.rules, config.rules, config.grounding))
    if key not in tuning.mined:
        tuning.mined.clear()
        tuning.mined[key] = mine(tuning.graph, config, tuning.statements, hooks)
    mined = tuning.mined[key]
    start = initial_state(tuning.graph, config, mined.rules, mined.constraints, hooks)
    return run_em(tuning.graph, config, start, hooks).validation_mrr


def equal_trial(tuning: Tuning, settings: Settings, finished: Sequence[Trial]) -> Trial | None:
    """Return the first finished trial with the same settings, including those of the base settings, or None."""
    config = trial_config(tuning.base, settings).completed
    return next((t for t in finished if trial_config(tuning.base, t.settings).completed == config), None)


def propose(tuning: Tuning, finished: Sequence[Trial]) -> "tuple[optuna.Trial, Settings]":
    """Return the next trial and its settings: the first ones are given, the others are Optuna's.

    Optuna's sampler gets a new seed for each trial. It draws again if a finished trial has the same settings.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    seed = np.random.SeedSequence([tuning.base.seed, len(finished)]).generate_state(1)[0]
    sampler = optuna.samplers.TPESampler(seed=int(seed))
    pruner = optuna.pruners.MedianPruner(n_startup_trials=FULL_TRIALS, n_warmup_steps=1)
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
    distributions = _distributions(tuning.spaces)
    study.add_trials([_as_optuna(tuning, trial, distributions) for trial in finished])
    starts = first_settings(tuning.base, tuning.spaces)[len(finished) :]
    for draw in range(MAX_DRAWS):
        if starts and not draw:
            asked, settings = study.ask(), starts[0]
        else:
            asked = study.ask(distributions)  # values for all models; those of the other models are ignored
            model = asked.params[MODEL]
            space = tuning.spaces[model].items()
            settings = {MODEL: model} | {key: _value(domain, asked.params[f"{model} {key}"]) for key, domain in space}
        settings = with_limited_steps(tuning.graph, tuning.base, settings)
        if equal_trial(tuning, settings, finished) is None:
            break
    return asked, settings


def _as_optuna(tuning: Tuning, trial: Trial, distributions: Mapping[str, Any]) -> "optuna.trial.FrozenTrial":
    """Return a finished trial as Optuna's, with all its values that are in the search space."""
    import optuna

    states = optuna.trial.TrialState
    config = trial_config(tuning.base, trial.settings).completed
    model, values = config.neural.model, dict(flat_settings(config))
    space = {key: domain for key, domain in tuning.spaces[model].items() if values[key] in domain}
    params = {MODEL: model} | {f"{model} {key}": _parameter(domain, values[key]) for key, domain in space.items()}
    return optuna.create_trial(
        state={COMPLETE: states.COMPLETE, PRUNED: states.PRUNED, FAILED: states.FAIL}[trial.state],
        value=trial.mrr,
        params=params,
        distributions={name: distributions[name] for name in params},
        intermediate_values=dict(enumerate(trial.validations)),
    )


def _distributions(spaces: Mapping[str, SearchSpace]) -> "dict[str, optuna.distributions.BaseDistribution]":
    """Return Optuna's distributions. Each model has its own, since its domains differ from those of other models."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    found: dict[str, Any] = {MODEL: CategoricalDistribution(list(spaces))}
    for model, space in spaces.items():
        for key, domain in space.items():
            if not isinstance(domain, Range):  # a choice can be a list, so Optuna gets its position
                found[f"{model} {key}"] = CategoricalDistribution(range(len(domain.values)))
            elif domain.of_integers:
                found[f"{model} {key}"] = IntDistribution(int(domain.low), int(domain.high), log=domain.log)
            else:
                found[f"{model} {key}"] = FloatDistribution(domain.low, domain.high, log=domain.log)
    return found


def _value(domain: Domain, parameter: Any) -> Any:
    return domain.round(parameter) if isinstance(domain, Range) else domain.values[parameter]


def _parameter(domain: Domain, value: Any) -> Any:
    return value if isinstance(domain, Range) else domain.values.index(value)
