"""Facts added to a trained model, including facts about new entities."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from plogicnet.graph import HEAD, RELATION, TAIL, TripleSet, add_facts
from plogicnet.inference.fitted import FittedModel

log = logging.getLogger(__name__)
MAX_NAMES = 3
"""Maximum number of names in a message."""


def with_facts(fitted: FittedModel, facts: Any) -> FittedModel:
    """Return the model with facts added to its graph. `facts` is a file, a data frame, or rows of three names.

    Nothing is trained: rule weights, base rates, the neural model and the calibration stay the same. The rules are
    grounded in the larger graph when they are first used. An explanation grounds only the rules of its triple.
    """
    source = str(facts) if isinstance(facts, str | Path) else "facts"
    graph, outcome = add_facts(fitted.graph, facts), fitted.outcome
    model = outcome.rule_model.bind(graph)
    neural = None if outcome.neural is None else outcome.neural.bind(graph)
    unscorable = [] if neural is None else graph.entities.take(np.flatnonzero(neural.unscorable))
    if unscorable:
        log.warning(
            "%s: the neural model cannot score these entities, so only rules predict their facts: %s",
            source,
            _first_names(unscorable),
        )
    before = TripleSet.of(fitted.graph.train, len(graph.entities))
    added = graph.observed.triples[~before.contains(graph.observed.triples)]
    loops = added[(added[:, HEAD] == added[:, TAIL]) & model.irreflexive_relations(graph)[added[:, RELATION]]]
    if len(loops):
        excluded = _first_names(["{1}({0}, {2})".format(*graph.names(triple)) for triple in loops])
        log.warning("%s: these facts were added although a constraint excludes them: %s", source, excluded)
    outcome = replace(
        outcome,
        neural=neural,
        rule_model=model,
        hidden_q=np.empty(0),  # the old values belong to other hidden triples
        accepted=np.empty(0, dtype=bool),
    )
    return replace(fitted, graph=graph, outcome=outcome, added=fitted.added + len(added))


def _first_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more
