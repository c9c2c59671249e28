"""The search space: for each neural model, the settings to search and their domains."""

import math
from collections.abc import Container, Mapping, Sequence
from typing import Any

from plogicnet.config import MODELS, Choices, Config, Domain, Range, SearchSpace
from plogicnet.config.tree import block_names, flat_settings
from plogicnet.graph import KnowledgeGraph
from plogicnet.neural.protocol import SearchableKind
from plogicnet.neural.registry import model_kind
from plogicnet.support.errors import InputError
from plogicnet.systems.system import system_of

MODEL, STEPS = "neural.model", "neural.steps"
QUICK_MODELS = ("ComplEx", "RotatE", "TransE", "DistMult")
"""The models to search over if the user names none. They train quickly, also on a CPU."""
EM_SPACE: SearchSpace = {
    "em.tau_triplet": Range(0.5, 0.95),
    "em.combine": Choices(("probability", "log_odds")),
}
"""The settings of EM to search over, if rules and a neural model learn from each other."""
MAX_EPOCHS, MIN_STEPS = 100, 500
"""With `neural.steps: auto`, a trial has at most this many passes over the triples, but at least this many steps."""
Settings = Mapping[str, Any]
"""The settings of a trial that differ from the base settings, by dotted key."""


def search_spaces(
    graph: KnowledgeGraph, base: Config, models: Sequence[str], given: SearchSpace
) -> dict[str, SearchSpace]:
    """Return the search space of each model.

    Args:
        graph: the graph; its size determines some domains.
        base: the base settings.
        models: the names of the models to search over.
        given: domains that replace those that the models state.
    """
    if base.em.neural and base.neural.mixture:
        raise InputError(
            "tune searches the settings of one neural model, but neural.mixture is set. Search with"
            " neural.mixture=[] for each model, then use the best settings in neural.mixture."
        )
    blocks = block_names(MODELS)
    spaces: dict[str, SearchSpace] = {}
    for model in models if base.em.neural else [base.neural.model]:
        config = trial_config(base, {MODEL: model})
        kind, em = model_kind(config), config.em
        space: dict[str, Domain] = {}
        if em.neural and isinstance(kind, SearchableKind):
            space |= kind.search_space(graph, config)
            space |= EM_SPACE if em.rules and system_of(config).rules_predict else {}
        others = {f"neural.{name}" for name in blocks if name != kind.block}
        space |= {key: domain for key, domain in given.items() if key.rpartition(".")[0] not in others}
        if not space:
            who = f"neural.model={model} states no settings to search" if em.neural else "em.neural=false"
            raise InputError(
                f"nothing to search: {who}. Name settings, such as --search"
                f" {'neural.learning_rate=1e-4..0.1:log' if em.neural else 'mln.l2=0.1..10:log'}"
            )
        spaces[model] = space
    for key in given:
        if not any(key in space for space in spaces.values()):
            raise InputError(f"--search {key}: none of the models {', '.join(spaces)} has this setting. See --model.")
    return spaces


def trial_config(base: Config, settings: Settings) -> Config:
    """Return the settings of a trial. The model is set first, since it can imply other settings.

    Example:
        >>> trial_config(Config(), {"neural.vectors.dim": 8, "neural.model": "ComplEx"}).neural.model
        'ComplEx'
    """
    model = settings.get(MODEL, base.neural.model)
    config = base if model == base.neural.model else base.with_values({MODEL: model})
    return config.with_values({key: value for key, value in settings.items() if key != MODEL})


def with_limited_steps(graph: KnowledgeGraph, base: Config, settings: Settings) -> Settings:
    """Return the settings of a trial with a number instead of `neural.steps: auto`.

    The defaults of a model suit large graphs. On a small one, a trial would take hours.
    """
    config = trial_config(base, settings)
    if config.neural.steps != "auto" or not config.em.neural:
        return settings
    cost = model_kind(config).cost(graph, config)
    limit = math.ceil(MAX_EPOCHS * len(graph.train) / max(1, cost.positives))
    return {**settings, STEPS: min(cost.steps, max(limit, MIN_STEPS))}


def first_settings(base: Config, spaces: Mapping[str, SearchSpace]) -> list[Settings]:
    """Return the settings of the first trials: the base settings, then the start values of each model."""
    first: Settings = {MODEL: base.neural.model}
    starts = [first]
    for model, space in spaces.items():
        config = trial_config(base, {MODEL: model}).completed
        current = dict(flat_settings(config))
        starts.append({MODEL: model} | {key: _start(domain, current[key]) for key, domain in space.items()})
    return starts


def _start(domain: Domain, current: Any) -> Any:
    """Return the first value to try: the stated one, the value of the base settings, the first choice or the middle."""
    if domain.start is not None:
        return domain.start
    if current in domain:
        return current
    if isinstance(domain, Choices):
        return domain.values[0]
    return domain.round(math.sqrt(domain.low * domain.high) if domain.log else (domain.low + domain.high) / 2)


def changed_settings(config: Config, keys: Container[str] = ()) -> dict[str, Any]:
    """Return the settings that differ from the defaults, and those with the given keys. No `device` and `threads`.

    The defaults include what the system and the model imply, so that the result works as a settings file.

    Example:
        >>> changed_settings(Config().with_values({"neural.steps": 64, "threads": 1}), ["em.iterations"])
        {'neural.steps': 64, 'em.iterations': 2}
    """
    extensions = {"system": config.system, MODEL: config.neural.model}
    default = Config().with_values(extensions).completed
    defaults, plain = dict(flat_settings(default.with_all_blocks)), dict(flat_settings(Config()))
    changed = {key: value for key, value in extensions.items() if value != plain[key] or key in keys}
    changed |= {key: value for key, value in flat_settings(config.completed) if value != defaults[key] or key in keys}
    return {key: value for key, value in changed.items() if key not in ("device", "threads")}
