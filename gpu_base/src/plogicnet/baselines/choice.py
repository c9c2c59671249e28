"""Which system the settings name: how its rule model is made and learned, and what guides its embedding."""

import logging
from collections.abc import Iterator

import numpy as np

from plogicnet.baselines.blp import NoisyOr
from plogicnet.baselines.nne_aer import make_nne_aer
from plogicnet.baselines.ruge import make_ruge
from plogicnet.config import Config
from plogicnet.errors import InputError
from plogicnet.graph import BoolArray, FloatArray, KnowledgeGraph
from plogicnet.kge import Guide
from plogicnet.mln import RuleModel, build_rule_model, grounding_counts, m_step
from plogicnet.mln import report as report_on_rules
from plogicnet.progress import Progress, silent
from plogicnet.rules import RuleTable
from plogicnet.titles import OTHERS

log = logging.getLogger(__name__)
MORE_RULES = "a lower rules.min_precision or rules.min_support keeps more rules, --rules adds your own"


def vectors_alone(config: Config) -> bool:
    """Whether the system judges by its vectors alone: rules teach it, and have no say in what it then predicts.

    Example:
        >>> vectors_alone(Config().with_values({"system": "ruge"}))
        True
    """
    return config.system in ("ruge", "nne_aer")


def require_sense(config: Config) -> None:
    """An error where settings contradict the system that they name.

    Example:
        >>> require_sense(Config().with_values({"system": "blp"}))
    """
    for wrong, instead in _contradictions(config):
        if wrong:
            raise InputError(f"system={config.system} {instead}")


def _contradictions(config: Config) -> Iterator[tuple[bool, str]]:
    """What is wrong, and what to set; whether it is."""
    if config.system == "plogicnet":
        return
    mln, patterns = config.mln, config.rules.patterns
    local = mln.blanket == "hypothesis" and not mln.hidden_premises
    yield not config.em.rules, "works by rules: set em.rules=true"
    yield not local, "takes observed premises alone: set mln.blanket=hypothesis and mln.hidden_premises=false"
    if config.system == "blp":
        yield config.em.embedding, "has no vectors: set em.embedding=false"
        yield mln.aggregate != "sum", "counts every grounding: set mln.aggregate=sum"
        yield not mln.unit_clauses, "has each relation's base rate for its leak: set mln.unit_clauses=true"
        return
    yield not config.em.embedding, "trains vectors: set em.embedding=true"
    yield config.kge.model != "ComplEx", f"is made for ComplEx: set kge.model=ComplEx (now {config.kge.model})"
    yield config.kge.kernels == "fused", "has a loss of its own, which fused steps lack: set kge.kernels=auto"
    yield config.em.iterations > 1, "is trained once, without EM: set em.iterations=1"
    composed = config.rules.mine and config.system == "nne_aer" and "composition" in patterns
    yield composed, "holds to entailments of one premise: set rules.patterns=[inverse,subrelation]"


def without_rules(config: Config) -> str:
    """What a training is that has no rules.

    Example:
        >>> without_rules(Config().with_values({"system": "nne_aer"}))
        'ComplEx with entities in [0, 1]'
    """
    if not config.em.embedding:
        return "one probability for all of a relation's triples, which ranks nothing"
    return {"ruge": "plain ComplEx", "nne_aer": "ComplEx with entities in [0, 1]"}.get(
        config.system, "the embedding alone"
    )


def warn_of_no_rules(config: Config, model: RuleModel) -> None:
    """Says so where one of the other systems has no rules to work by, and what it then is.

    Example:
        >>> warn_of_no_rules(config, model)  # doctest: +SKIP
    """
    if config.system == "plogicnet":
        return
    none, nothing = not len(model.rules), config.system == "ruge" and not len(model.groundings.hidden)
    if none or nothing:
        why = "no rule is left" if none else "no rule concludes a triple that is not observed"
        log.warning("%s, so %s is %s; %s", why, OTHERS[config.system][0], without_rules(config), MORE_RULES)


def make_rule_model(
    graph: KnowledgeGraph,
    config: Config,
    rules: RuleTable,
    constraints: RuleTable,
    assumed: BoolArray | None = None,
    progress: Progress = silent,
) -> RuleModel:
    """The rule model of the system: a Markov logic network, or a noisy-or.

    Example:
        >>> make_rule_model(graph, config, rules, constraints)  # doctest: +SKIP
    """
    model = build_rule_model(graph, config, rules, constraints, assumed, progress)
    return NoisyOr(model.rules, constraints, model.evidence, model.base) if config.system == "blp" else model


def learn(model: RuleModel, hidden_q: FloatArray, config: Config, seed: int) -> RuleModel:
    """The M-step, or what the system has instead.

    Example:
        >>> learn(model, hidden_q, config, seed=0)  # doctest: +SKIP
    """
    if isinstance(model, NoisyOr):
        return model.learned(config.baselines)
    return m_step(model, hidden_q, config, seed)


def report(model: RuleModel, hidden_q: FloatArray, config: Config) -> RuleTable:
    """The rules with each one's groundings counted, and where it is known how far its weight may be off.

    Example:
        >>> report(model, hidden_q, config).groundings  # doctest: +SKIP
    """
    if isinstance(model, NoisyOr):
        unknown = np.full(len(model.rules), np.nan)
        return model.rules.reported(unknown, grounding_counts(model.groundings).sum(axis=1))
    return report_on_rules(model, hidden_q, config)


def make_guide(graph: KnowledgeGraph, config: Config, model: RuleModel) -> Guide | None:
    """What the system's embedding is held to besides its examples.

    Example:
        >>> make_guide(graph, config, model)  # doctest: +SKIP
    """
    if config.system == "ruge":
        return make_ruge(model, config.baselines)
    if config.system == "nne_aer":
        return make_nne_aer(model.rules, graph, config.baselines.nne_aer_mu)
    return None
