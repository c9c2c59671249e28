"""Facts that training never saw, also about entities that it never saw."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from plogicnet.graph import HEAD, RELATION, TAIL, TripleSet, add_facts
from plogicnet.inference.fitted import Fitted

log = logging.getLogger(__name__)
NAMED = 3
"""So many are named in a message."""


def with_facts(fitted: Fitted, facts: Any) -> Fitted:
    """A trained model in its graph with more facts: a file of triples, a data frame, or rows of three names.

    Nothing is learned from them: weights, base rates, the neural model's parameters and calibration stay. Rules are
    grounded in the larger graph when they are first asked, around one triple alone for an explanation.
    """
    what = str(facts) if isinstance(facts, str | Path) else "facts"
    graph, outcome = add_facts(fitted.graph, facts), fitted.outcome
    model = outcome.rule_model.within(graph)
    neural = None if outcome.neural is None else outcome.neural.bind(graph)
    new = [] if neural is None else graph.entities.take(np.flatnonzero(neural.unscorable))
    if new:
        log.warning("%s: judged by rules alone, since the neural model cannot score them: %s", what, _listed(new))
    before = TripleSet.of(fitted.graph.train, len(graph.entities))
    added = graph.observed.triples[~before.contains(graph.observed.triples)]
    loops = added[(added[:, HEAD] == added[:, TAIL]) & model.irreflexive(graph)[added[:, RELATION]]]
    if len(loops):
        shown = _listed(["{1}({0}, {2})".format(*graph.names(triple)) for triple in loops])
        log.warning("%s: a constraint speaks against it, but it is taken as true: %s", what, shown)
    outcome = replace(
        outcome,
        neural=neural,
        rule_model=model,
        hidden_q=np.empty(0),  # for the old hidden triples; there are others now
        accepted=np.empty(0, dtype=bool),
    )
    return replace(fitted, graph=graph, outcome=outcome, added=fitted.added + len(added))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
