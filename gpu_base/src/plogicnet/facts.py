"""Facts that training never saw, also about entities that it never saw."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from plogicnet.fitted import Fitted
from plogicnet.graph import HEAD, RELATION, TAIL, TripleSet, add_facts
from plogicnet.kge import Embedding, Widened

log = logging.getLogger(__name__)
NAMED = 3
"""So many are named in a message."""


def with_facts(fitted: Fitted, facts: Any) -> Fitted:
    """A trained model in its graph with more facts: a file of triples, a data frame, or rows of three names.

    Nothing is learned from them: weights, base rates, vectors and calibration stay. Rules are grounded in the larger
    graph when they are first asked, around one triple alone for an explanation.

    Example:
        >>> with_facts(model.fitted, [("kim", "sister", "anna_brandt")])  # doctest: +SKIP
    """
    what = str(facts) if isinstance(facts, str | Path) else "facts"
    old, graph, outcome = fitted.graph, add_facts(fitted.graph, facts), fitted.outcome
    model = outcome.rule_model.within(graph)
    n = len(graph.entities)
    new = graph.entities.names[len(old.entities) :]
    if new and outcome.embedding is not None:
        how = (
            ""
            if fitted.calibration.alone
            else "; p_w where a rule reaches, else 0, is their probability until `plogicnet refit` calibrates it"
        )
        log.warning("%s: judged by rules alone, no vector: %s%s", what, _listed(new), how)
    added = graph.observed.triples[~TripleSet.of(old.train, n).contains(graph.observed.triples)]
    loops = added[(added[:, HEAD] == added[:, TAIL]) & model.irreflexive(graph)[added[:, RELATION]]]
    if len(loops):
        shown = _listed(["{1}({0}, {2})".format(*graph.names(triple)) for triple in loops])
        log.warning("%s: a constraint speaks against it, but it is taken as true: %s", what, shown)
    outcome = replace(
        outcome,
        embedding=_widened(outcome.embedding, len(old.entities), n),
        rule_model=model,
        hidden_q=np.empty(0),  # the hidden triples are others now, and what was said of the old ones is not of them
        accepted=np.empty(0, dtype=bool),
    )
    return replace(fitted, graph=graph, outcome=outcome, added=fitted.added + len(added))


def _widened(embedding: Embedding | None, known: int, entities: int) -> Embedding | None:
    if embedding is None or known == entities:
        return embedding
    own, known = (embedding.own, embedding.known) if isinstance(embedding, Widened) else (embedding, known)
    return Widened(own, known, entities)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
