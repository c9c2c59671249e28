"""Facts that join the graph of a trained model. The rules keep their weights, and new entities are learned."""

from dataclasses import replace

import numpy as np

from plogicnet.config import Config
from plogicnet.graph import HEAD, TAIL, FloatArray, IntArray, KnowledgeGraph, triple_keys
from plogicnet.mln import RuleModel
from plogicnet.neural.protocol import ExtensibleModel, NeuralModel
from plogicnet.support.progress import Progress, displayed_until_end
from plogicnet.systems.system import system_of
from plogicnet.training.cost import memory_checked
from plogicnet.training.em import q_of
from plogicnet.training.hooks import Hooks
from plogicnet.training.state import Outcome

UNTRAINED = "do not train new entities (--steps 0), so that rules alone predict their facts"
"""What to do if the memory is not enough, for messages."""


def update(
    old: KnowledgeGraph, graph: KnowledgeGraph, config: Config, state: Outcome, steps: int, hooks: Hooks
) -> tuple[Outcome, int]:
    """Return the state for a larger graph, and the number of steps that the neural model was trained.

    The rules are grounded and counted again. Their weights and base rates, λ and the history stay the same.

    Args:
        old: the graph of `state`.
        graph: the same graph with more facts.
        config: the settings.
        state: the trained model.
        steps: the number of steps in which new entities are learned, if the neural model has parameters for them.
        hooks: the callbacks.
    """
    neural, trained_steps = None, 0
    if state.neural is not None:
        with hooks.clock("train"):
            neural, trained_steps = _bind(state.neural, old, graph, config, steps, hooks.progress)
    with hooks.clock("ground"), displayed_until_end(hooks.progress) as progress:
        model = state.rule_model.bind(graph, progress)
        model = model.counted_again()
        hidden_q = _q_of_hidden(neural, model, state, len(graph.entities))
        rules = system_of(config).report(model, hidden_q, config)
    model = replace(model, rules=rules)
    accepted = model.hidden_p_w >= config.em.tau_triplet
    return replace(state, neural=neural, rule_model=model, hidden_q=hidden_q, accepted=accepted), trained_steps


def _q_of_hidden(neural: NeuralModel | None, model: RuleModel, old: Outcome, n_entities: int) -> FloatArray:
    """Return q of the hidden triples of the larger graph.

    A path model needs message passing for each query, hours for all hidden triples of a large graph. So if the model is
    not pairwise, triples that were hidden before keep their q.
    """
    hidden, q = model.hidden, np.full(len(model.hidden), np.nan)
    if neural is not None and not neural.is_pairwise:
        keys, old_keys = (triple_keys(triples, n_entities) for triples in (hidden, old.rule_model.hidden))
        _, row, old_row = np.intersect1d(keys, old_keys, assume_unique=True, return_indices=True)
        q[row] = old.hidden_q[old_row]
    unknown = np.isnan(q)
    q[unknown] = q_of(neural, hidden[unknown])
    return q


def _bind(
    neural: NeuralModel, old: KnowledgeGraph, graph: KnowledgeGraph, config: Config, steps: int, progress: Progress
) -> tuple[NeuralModel, int]:
    """Bind the neural model to the graph. If possible, train it on entities that no fact of the old graph contains."""
    bound = neural.bind(graph)
    entities = _first_seen(old, graph, bound)
    if not (steps and len(entities) and isinstance(bound, ExtensibleModel) and bound.has_entity_parameters):
        return bound, 0
    with memory_checked(graph, config, remedy=UNTRAINED):
        return bound.extended(entities, steps, config.seed, progress), steps


def _first_seen(old: KnowledgeGraph, graph: KnowledgeGraph, neural: NeuralModel) -> IntArray:
    """Return the entities that the neural model cannot score, and those that have training triples only now."""
    seen, seen_now = (np.zeros(len(graph.entities), dtype=bool) for _ in range(2))
    seen[old.train[:, [HEAD, TAIL]]] = True
    seen_now[graph.train[:, [HEAD, TAIL]]] = True
    return np.flatnonzero(neural.unscorable | (seen_now & ~seen))
