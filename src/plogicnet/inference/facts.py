"""Facts added to a trained model, including facts about new entities."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from plogicnet.config import Config
from plogicnet.graph import HEAD, RELATION, TAIL, IntArray, KnowledgeGraph, TripleSet, add_facts, read_facts
from plogicnet.inference.fitted import FittedModel
from plogicnet.support.errors import InputError
from plogicnet.support.records import Record
from plogicnet.training.hooks import Hooks
from plogicnet.training.state import Outcome
from plogicnet.training.updating import update

log = logging.getLogger(__name__)
MAX_NAMES = 3
"""Maximum number of names in a message."""


@dataclass(frozen=True)
class Update(Record):
    """What an update changed.

    Attributes:
        facts: number of facts that were added.
        known: number of given facts that were training triples before.
        moved_from_valid, moved_from_test: number of triples that were removed from valid or test.
        entities: number of new entities.
        trained_steps: number of steps in which the neural model learned new entities.
        hidden: number of hidden triples after the update.
    """

    facts: int
    known: int
    moved_from_valid: int
    moved_from_test: int
    entities: int
    trained_steps: int
    hidden: int

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed."""
        return not (self.facts or self.moved_from_valid or self.moved_from_test or self.trained_steps)


def with_facts(fitted: FittedModel, facts: Any) -> FittedModel:
    """Return the model with facts added to its graph. `facts` is a file, a data frame, or rows of three names.

    Nothing is trained: rule weights, base rates, the neural model and the calibration stay the same. The rules are
    grounded in the larger graph when they are first used. An explanation grounds only the rules of its triple.
    """
    graph, outcome = add_facts(fitted.graph, facts), fitted.outcome
    outcome = replace(
        outcome,
        neural=None if outcome.neural is None else outcome.neural.bind(graph),
        rule_model=outcome.rule_model.bind(graph),
        hidden_q=np.empty(0),  # the old values belong to other hidden triples
        accepted=np.empty(0, dtype=bool),
    )
    added = _added(fitted.graph, graph)
    _warn(_source(facts), graph, outcome, added)
    return replace(fitted, graph=graph, outcome=outcome, added=fitted.added + len(added))


def update_model(
    fitted: FittedModel, config: Config, facts: Any, steps: int, hooks: Hooks
) -> tuple[FittedModel, Update]:
    """Return the model with facts that stay in its graph, and what changed. `facts` are as in `with_facts`.

    Given facts that are in valid or test are removed from there, so that they are not used to evaluate. If the neural
    model has parameters of entities, it learns those of new entities in `steps` steps.
    """
    old = fitted.graph
    with hooks.clock("read"):
        entities, given = read_facts(old, facts)
        graph = old.with_facts(entities, given)
        added, distinct = _added(old, graph), TripleSet.of(given, len(entities))
        graph = graph.without_held_out(distinct)
    if len(old.valid) and not len(graph.valid):
        raise InputError(
            f"{_source(facts)}: contains all valid triples of the run. `refit` and `resume` need some of them for λ and"
            " probabilities. Leave some out, or train a new run."
        )
    outcome, trained_steps = update(old, graph, config, fitted.outcome, steps, hooks)
    _warn(_source(facts), graph, outcome, added)
    change = Update(
        facts=len(added),
        known=len(distinct) - len(added),
        moved_from_valid=len(old.valid) - len(graph.valid),
        moved_from_test=len(old.test) - len(graph.test),
        entities=len(graph.entities) - len(old.entities),
        trained_steps=trained_steps,
        hidden=len(outcome.hidden_q),
    )
    return replace(fitted, graph=graph, outcome=outcome), change


def _source(facts: Any) -> str:
    """Return the name of facts in messages."""
    return str(facts) if isinstance(facts, str | Path) else "facts"


def _added(old: KnowledgeGraph, graph: KnowledgeGraph) -> IntArray:
    """Return the training triples of a graph that are not in the old one."""
    before = TripleSet.of(old.train, len(graph.entities))
    return graph.observed.triples[~before.contains(graph.observed.triples)]


def _warn(source: str, graph: KnowledgeGraph, outcome: Outcome, added: IntArray) -> None:
    """Log which entities the neural model cannot score, and which added facts a constraint excludes."""
    neural = outcome.neural
    unscorable = [] if neural is None else graph.entities.take(np.flatnonzero(neural.unscorable))
    if unscorable:
        log.warning(
            "%s: the neural model cannot score these entities, so only rules predict their facts: %s",
            source,
            _first_names(unscorable),
        )
    irreflexive = outcome.rule_model.irreflexive_relations(graph)
    loops = added[(added[:, HEAD] == added[:, TAIL]) & irreflexive[added[:, RELATION]]]
    if len(loops):
        excluded = _first_names(["{1}({0}, {2})".format(*graph.names(triple)) for triple in loops])
        log.warning("%s: these facts were added although a constraint excludes them: %s", source, excluded)


def _first_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more
