"""The variational EM loop: the one place where the rule model and the neural model meet."""

import copy
import logging
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from scipy import special

from plogicnet.config import Config
from plogicnet.graph import BoolArray, FloatArray, IntArray, KnowledgeGraph, TripleSet
from plogicnet.mln import RuleModel
from plogicnet.neural.protocol import Examples, NeuralModel, make_model
from plogicnet.rules import RuleTable
from plogicnet.support.errors import InputError
from plogicnet.systems.system import system_of
from plogicnet.training.cost import require_memory
from plogicnet.training.hooks import Hooks
from plogicnet.training.selection import choose_lambda, merit, rescale
from plogicnet.training.state import Iteration, Outcome

log = logging.getLogger(__name__)


def begin(graph: KnowledgeGraph, config: Config, rules: RuleTable, constraints: RuleTable, hooks: Hooks) -> Outcome:
    """The state before the first iteration: rules without weights, an untrained neural model."""
    if config.em.targets == "soft" and config.em.hidden_negatives == "explicit":
        raise InputError("em.hidden_negatives=explicit goes with em.targets=hard: soft targets reject no triple")
    system = system_of(config)
    model = system.rule_model(graph, config, rules, constraints, progress=hooks.progress)
    system.warn(config, model)
    hidden_q = np.zeros(len(model.hidden))
    model.require_memory()  # now, not after an E-step of hours
    neural = make_model(graph, config, system.guide(graph, config, model)) if config.em.neural else None
    return Outcome(neural, model, hidden_q, np.zeros(len(hidden_q), dtype=bool), 0.0, (), 0)


def run_em(graph: KnowledgeGraph, config: Config, start: Outcome, hooks: Hooks, best: Outcome | None = None) -> Outcome:
    """Trains q_θ and p_w in turn; the first E-step learns from the observed triples alone.

    Args:
        graph: what to learn from.
        config: the settings.
        start: the state to continue from; `begin` gives the first one.
        hooks: what is called on the way.
        best: the best state before `start`; with em.patience, the best of all is returned.
    """
    now = start
    while not is_over(now, config):
        now = _m_step(graph, config, _e_step(graph, config, now, hooks), hooks)
        line = replace(now.history[-1], extra=hooks.inspect(graph, now))
        now = replace(now, history=(*now.history[:-1], line))
        log.info("EM iteration %d: %s", now.iteration, line.to_json())
        if config.em.patience and (best is None or now.merit > best.merit):
            best = now
        hooks.announce(line)
        hooks.save(now, best or now)
    return now if best is None else replace(best, history=now.history)


def is_over(now: Outcome, config: Config) -> bool:
    """Whether all iterations are done, or as many without gain as em.patience allows."""
    # without one of the halves there is nothing to iterate over
    iterations = config.em.iterations if config.em.neural and len(now.rule_model.rules) else 1
    merits = [line.merit for line in now.history]
    stalled = config.em.patience and merits and len(merits) - 1 - int(np.argmax(merits)) >= config.em.patience
    return now.iteration >= iterations or bool(stalled)


def refit(
    graph: KnowledgeGraph, config: Config, last: Outcome, rules: RuleTable, constraints: RuleTable, hooks: Hooks
) -> Outcome:
    """An M-step for these rules, with the neural model as it is; the history ends with it."""
    with hooks.clock("ground"):
        model = system_of(config).rule_model(graph, config, rules, constraints, progress=hooks.progress)
        hidden_q = _hidden_q(last.neural, model)
    before = replace(last, rule_model=model, hidden_q=hidden_q, iteration=last.iteration - 1)
    return _m_step(graph, config, before, hooks)


def _e_step(graph: KnowledgeGraph, config: Config, last: Outcome, hooks: Hooks) -> Outcome:
    """Trains the neural model on O and the accepted part of H, and asks it about H."""
    if last.neural is None:
        return last
    first, seed = last.iteration == 0, _seed(config, last)
    # an E-step trains in place, and the last parameters may be the best
    neural = copy.deepcopy(last.neural) if config.em.patience else last.neural
    require_memory(graph, config)
    examples = Examples.of(graph.train) if first else examples_of(graph, last.rule_model, last.accepted, config)
    judge = partial(merit, graph, config, neural) if config.neural.validate_every else None
    warm = config.em.warm_start and not first
    fit = partial(neural.fit, examples, seed, warm, hooks.progress, validate=judge, checkpoint=hooks.checkpoint)
    with hooks.clock("e_step"):
        if first and not system_of(config).guides:
            hooks.fit_first(graph, config, neural, seed, fit)
        else:
            fit()
        if not neural.is_logit:
            rescale(graph, config, neural)
    return replace(last, neural=neural, hidden_q=_hidden_q(neural, last.rule_model))


def _m_step(graph: KnowledgeGraph, config: Config, last: Outcome, hooks: Hooks) -> Outcome:
    """Learns the rule weights with the neural model as it is, and measures both on validation."""
    with hooks.clock("m_step"):
        model = system_of(config).learn(last.rule_model, last.hidden_q, config, _seed(config, last))
    accepted = model.hidden_p_w >= config.em.tau_triplet
    with hooks.clock("validate"):
        lambda_, figures = choose_lambda(graph, config, last.neural, model.scores(graph), hooks.progress)
    line = Iteration(
        iteration=last.iteration + 1,
        hidden=len(accepted),
        accepted=int(accepted.sum()),
        accepted_precision=_held_out_share(graph, model.hidden[accepted]),
        elbo=_elbo_parts(model, last.hidden_q),
        lambda_=lambda_,
        valid=figures,
    )
    history = (*last.history[: last.iteration], line)
    return Outcome(last.neural, model, last.hidden_q, accepted, lambda_, history, line.iteration)


def examples_of(graph: KnowledgeGraph, model: RuleModel, accepted: BoolArray, config: Config) -> Examples:
    """What an E-step learns from: O, and H's triples as the rules judge them (Eq. 7 and 8)."""
    hidden = model.hidden
    weight = accepted.astype(np.float64) if config.em.targets == "hard" else model.hidden_p_w
    taken = weight > 0
    positives = np.concatenate([graph.train, hidden[taken]])
    rejected = hidden[~accepted] if config.em.hidden_negatives == "explicit" else hidden[:0]
    return Examples(positives, np.concatenate([np.ones(len(graph.train)), weight[taken]]), rejected)


def _seed(config: Config, last: Outcome) -> int:
    """The seed of the iteration after a state."""
    return config.seed * 1000 + last.iteration + 1


def _hidden_q(neural: NeuralModel | None, model: RuleModel) -> FloatArray:
    hidden = model.hidden
    return np.zeros(len(hidden)) if neural is None else torch.sigmoid(neural.score(hidden).double()).cpu().numpy()


def _held_out_share(graph: KnowledgeGraph, accepted: IntArray) -> float | None:
    """The share of accepted triples that valid or test holds (Table 5)."""
    held_out = TripleSet.of(np.concatenate([graph.valid, graph.test]), len(graph.entities))
    return float(held_out.contains(accepted).mean()) if len(accepted) else None


def _elbo_parts(model: RuleModel, hidden_q: FloatArray) -> dict[str, float]:
    """The parts of Eq. 4's bound that can be computed: the pseudolikelihood under q for E_q log p, and q's entropy.

    Both over the triples that some rule reaches; what no rule reaches is the same for all weights.
    """
    reached = model.reached
    target = np.ones(len(reached))
    target[~model.observed] = hidden_q
    odds = model.log_odds
    likelihood = np.sum((target * odds - np.logaddexp(0.0, odds))[reached])
    return {"pseudolikelihood": float(likelihood), "entropy": float(np.sum(special.entr([hidden_q, 1 - hidden_q])))}
