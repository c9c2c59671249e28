"""The variational EM loop, which trains the rule model and the neural model in turn.

Equations and tables in this module refer to the pLogicNet paper.
"""

import copy
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from scipy import special

from plogicnet.config import Config
from plogicnet.graph import BoolArray, FloatArray, IntArray, KnowledgeGraph, TripleSet
from plogicnet.grounding.engine import MiningResult
from plogicnet.grounding.proposals import facts_to_explain, with_proposals
from plogicnet.grounding.rulebook import collect_rules
from plogicnet.mln import RuleModel
from plogicnet.neural.protocol import Examples, NeuralModel, ProposingModel
from plogicnet.neural.registry import make_model
from plogicnet.rules import RuleTable, Statement
from plogicnet.support.errors import InputError
from plogicnet.systems.system import system_of
from plogicnet.training.cost import memory_checked
from plogicnet.training.hooks import Hooks
from plogicnet.training.selection import choose_lambda, rescale
from plogicnet.training.state import Iteration, Outcome

log = logging.getLogger(__name__)


def mine_and_ground(
    graph: KnowledgeGraph, config: Config, statements: Sequence[Statement], hooks: Hooks
) -> tuple[Outcome, int]:
    """Mine rules, and return the state before the first EM iteration and the number of candidate rules.

    Mined negative evidence against no triple of O ∪ H is left out, unless more rules are proposed later, which can
    conclude such triples.
    """
    mined = mine(graph, config, statements, hooks)
    with hooks.clock("ground"):
        state = initial_state(graph, config, mined.rules, mined.constraints, hooks)
        if config.rules.propose == "none":
            model = state.rule_model.without_idle_evidence({statement.rule.canonical for statement in statements})
            state = replace(state, rule_model=model)
    return state, mined.n_candidates


def mine(graph: KnowledgeGraph, config: Config, statements: Sequence[Statement], hooks: Hooks) -> MiningResult:
    """Mine rules and add the written rules. Without `em.rules`, return no rules."""
    with hooks.clock("mine"):
        if config.em.rules:
            return collect_rules(graph, config, statements, hooks.progress)
    no_rules = RuleTable.of([], [], [])
    return MiningResult(no_rules, no_rules, 0)


def initial_state(
    graph: KnowledgeGraph, config: Config, rules: RuleTable, constraints: RuleTable, hooks: Hooks
) -> Outcome:
    """Return the state before the first EM iteration: rules without weights, and an untrained neural model."""
    if config.em.targets == "soft" and config.em.hidden_negatives == "explicit":
        raise InputError("em.hidden_negatives=explicit requires em.targets=hard: soft targets do not reject any triple")
    system = system_of(config)
    model = system.rule_model(graph, config, rules, constraints, progress=hooks.progress)
    system.warn(config, model)
    # rules that are proposed later make these groundings useless
    hidden_q = np.zeros(len(model.hidden) if config.rules.propose == "none" else 0)
    model.require_memory()  # fail now, not after an E-step of several hours
    neural = make_model(graph, config, system.guide(graph, config, model)) if config.em.neural else None
    return Outcome(neural, model, hidden_q, np.zeros(len(hidden_q), dtype=bool), 0.0, (), 0)


def run_em(graph: KnowledgeGraph, config: Config, start: Outcome, hooks: Hooks, best: Outcome | None = None) -> Outcome:
    """Run the remaining EM iterations and return the last state, or with em.patience the best state.

    Each iteration trains the neural model, then the rule weights. The first E-step learns only from observed triples.

    Args:
        graph: the graph.
        config: the settings.
        start: the state to continue from, at first the result of `initial_state`.
        hooks: the callbacks.
        best: the best state up to `start`; None without em.patience.
    """
    state = start
    while not is_finished(state, config):
        state = _m_step(graph, config, _e_step(graph, config, state, hooks), hooks)
        entry = replace(state.history[-1], extra=hooks.inspect(graph, state))
        state = replace(state, history=(*state.history[:-1], entry))
        log.info("EM iteration %d: %s", state.iteration, entry.to_json())
        if config.em.patience and (best is None or state.validation_mrr > best.validation_mrr):
            best = state
        hooks.on_iteration(entry)
        hooks.save(state, best or state)
    return state if best is None else replace(best, history=state.history)


def is_finished(state: Outcome, config: Config) -> bool:
    """Return whether all iterations are done, or the last em.patience iterations brought no improvement."""
    # without rules or without a neural model, one iteration is enough
    iterations = config.em.iterations if config.em.neural and len(state.rule_model.rules) else 1
    mrrs = [entry.validation_mrr for entry in state.history]
    stalled = config.em.patience and mrrs and len(mrrs) - 1 - int(np.argmax(mrrs)) >= config.em.patience
    return state.iteration >= iterations or bool(stalled)


def refit(
    graph: KnowledgeGraph, config: Config, state: Outcome, rules: RuleTable, constraints: RuleTable, hooks: Hooks
) -> Outcome:
    """Run an M-step for these rules with an unchanged neural model. It replaces the last iteration of the history."""
    with hooks.clock("ground"):
        model = system_of(config).rule_model(graph, config, rules, constraints, progress=hooks.progress)
        hidden_q = q_of_hidden(state.neural, model)
    previous = replace(state, rule_model=model, hidden_q=hidden_q, iteration=state.iteration - 1)
    return _m_step(graph, config, previous, hooks)


def _e_step(graph: KnowledgeGraph, config: Config, state: Outcome, hooks: Hooks) -> Outcome:
    """Train the neural model on the triples of `make_examples`, then compute q of the hidden triples.

    After the first E-step, the neural model can propose rules. Their conclusions are hidden triples as well.
    """
    if state.neural is None:
        return state
    is_first, seed = state.iteration == 0, _seed(config, state)
    # with em.patience, train a copy: training works in place, and the current parameters can be the best
    neural = copy.deepcopy(state.neural) if config.em.patience else state.neural
    examples = Examples.of(graph.train) if is_first else make_examples(graph, state.rule_model, state.accepted, config)
    validates = any(c.neural.validate_every for c in config.model_configs)
    validate = partial(hooks.validate, graph, config, neural) if validates else None
    warm = config.em.warm_start and not is_first

    def fit() -> None:
        with memory_checked(graph, config):
            neural.fit(examples, seed, warm, hooks.progress, validate=validate, checkpoint=hooks.checkpoint)

    with hooks.clock("e_step"):
        if is_first and not system_of(config).guides:
            hooks.fit_first(graph, config, neural, seed, fit)
        else:
            fit()
        if not neural.is_logit:
            rescale(graph, config, neural)
    model = _with_proposed_rules(graph, config, neural, state.rule_model, hooks) if is_first else state.rule_model
    return replace(state, neural=neural, rule_model=model, hidden_q=q_of_hidden(neural, model))


def _with_proposed_rules(
    graph: KnowledgeGraph, config: Config, neural: NeuralModel, model: RuleModel, hooks: Hooks
) -> RuleModel:
    """Return the rule model with the rules that the neural model proposes, if `rules.propose` is set."""
    if config.rules.propose == "none" or not isinstance(neural, ProposingModel):
        return model
    with hooks.clock("propose"):
        facts = facts_to_explain(graph, config.rules.proposal_facts, config.seed)
        proposals = neural.propose_rules(facts, hooks.progress)
        rules = with_proposals(model.rules.take(~model.rules.formulas), proposals, graph, config, hooks.progress)
        return system_of(config).rule_model(graph, config, rules, model.constraints, progress=hooks.progress)


def _m_step(graph: KnowledgeGraph, config: Config, state: Outcome, hooks: Hooks) -> Outcome:
    """Learn the rule weights with an unchanged neural model, and compute the validation metrics.

    The base rates are those of the graph, also if `update` kept those of a smaller graph.
    """
    with hooks.clock("m_step"):
        model = state.rule_model.with_base(base_in(graph, config, state.rule_model))
        model = system_of(config).m_step(model, state.hidden_q, config, _seed(config, state))
    accepted = model.hidden_p_w >= config.em.tau_triplet
    with hooks.clock("validate"):
        lambda_, metrics = choose_lambda(graph, config, state.neural, model.scores(graph), hooks.progress)
    entry = Iteration(
        iteration=state.iteration + 1,
        hidden=len(accepted),
        accepted=int(accepted.sum()),
        accepted_precision=_held_out_share(graph, model.hidden[accepted]),
        elbo=_elbo_parts(model, state.hidden_q),
        lambda_=lambda_,
        valid=metrics,
    )
    history = (*state.history[: state.iteration], entry)
    return Outcome(state.neural, model, state.hidden_q, accepted, lambda_, history, entry.iteration)


def make_examples(graph: KnowledgeGraph, model: RuleModel, accepted: BoolArray, config: Config) -> Examples:
    """Return the examples of an E-step: observed triples, and hidden triples weighted by the rules (Eq. 7 and 8)."""
    hidden = model.hidden
    weight = accepted.astype(np.float64) if config.em.targets == "hard" else model.hidden_p_w
    is_positive = weight > 0
    positives = np.concatenate([graph.train, hidden[is_positive]])
    rejected = hidden[~accepted] if config.em.hidden_negatives == "explicit" else hidden[:0]
    return Examples(positives, np.concatenate([np.ones(len(graph.train)), weight[is_positive]]), rejected)


def _seed(config: Config, state: Outcome) -> int:
    """Return the seed of the next iteration."""
    return config.seed * 1000 + state.iteration + 1


def q_of_hidden(neural: NeuralModel | None, model: RuleModel) -> FloatArray:
    """Return q of each hidden triple; see `q_of`."""
    return q_of(neural, model.hidden)


def q_of(neural: NeuralModel | None, triples: IntArray) -> FloatArray:
    """Return q of each triple: 0 without a neural model, NaN if the model cannot score an entity."""
    if neural is None:
        return np.zeros(len(triples))
    return np.asarray(torch.sigmoid(neural.score(triples).double()).cpu().numpy())


def base_in(graph: KnowledgeGraph, config: Config, model: RuleModel) -> FloatArray:
    """Return the base log-odds with which the weights of these rules are learned in a graph."""
    return system_of(config).rule_model(graph, config, model.rules, model.constraints).base


def _held_out_share(graph: KnowledgeGraph, accepted: IntArray) -> float | None:
    """Return the share of accepted triples that are in valid or test (Table 5); None without triples."""
    held_out = TripleSet.of(np.concatenate([graph.valid, graph.test]), len(graph.entities))
    return float(held_out.contains(accepted).mean()) if len(accepted) else None


def _elbo_parts(model: RuleModel, hidden_q: FloatArray) -> dict[str, float]:
    """Return the parts of the evidence lower bound (Eq. 4) that can be computed: pseudolikelihood and entropy."""
    return model.likelihood(hidden_q) | {"entropy": float(np.nansum(special.entr([hidden_q, 1 - hidden_q])))}
