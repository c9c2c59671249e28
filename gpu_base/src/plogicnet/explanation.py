"""Why a triple is held probable or not: what rules and vectors say of it, and how its probability comes of that."""

from typing import Any

import numpy as np
import torch

from plogicnet.evaluation import columns_of
from plogicnet.fitted import Fitted
from plogicnet.graph import HEAD, RELATION, TAIL, FloatArray, IntArray
from plogicnet.kge import Widened
from plogicnet.mln import Reason

NEIGHBOURS = 5
"""So many similar entities are named on either side."""
PREMISES = 100
"""Of so many groundings of a rule are the premises given, unless told; a hub can have a hundred thousand."""


def explain(fitted: Fitted, head: str, relation: str, tail: str, premises: int = PREMISES) -> dict[str, object]:
    """What the rules say, by rule with premises in names; what the vectors say; and how both become a probability.

    The rules' contributions and the base add up to the rules' log-odds, and the parts of the calibration to its own.

    Example:
        >>> explain(model.fitted, "zoe_brandt", "mother", "anna_brandt")["rules"]  # doctest: +SKIP
    """
    model, triple = fitted.outcome.rule_model, fitted.graph.numbers(head, relation, tail)
    reasons = model.reasons(triple, premises)
    base = float(model.base[triple[RELATION]])
    sums = sum(reason.value * float(model.rules.weight[reason.rule]) for reason in reasons)
    odds = float(model.log_odds_of(np.array([sums]), triple[[RELATION]])[0])
    # what the rules say of this triple alone: the whole network is not needed for it
    scores = model.scores_of(fitted.graph, triple, odds if reasons else None)
    judged = fitted.judge(triple[None, :], scores)[0]
    return {
        "triple": [head, relation, tail],
        "probability": judged.probability,
        "q": judged.q,
        "p_w": judged.p_w,
        "log_odds": odds,
        "base": base,
        "known": judged.known,
        "reached": bool(reasons),
        "forbidden": bool(scores.forbidden(triple[None, :])[0]),
        "without_vector": _without_vector(fitted, triple),
        "rules": _contributions(fitted, reasons),
        "neighbours": _neighbours(fitted, triple),
        "calibration": _calibration(fitted, columns_of(fitted.outcome.embedding, scores, triple[None, :])[0]),
    }


def _without_vector(fitted: Fitted, triple: IntArray) -> list[str]:
    """The entities of a triple that have no vector though others have."""
    embedding = fitted.outcome.embedding
    if not isinstance(embedding, Widened):
        return []
    ends = dict.fromkeys(triple[[HEAD, TAIL]].tolist())
    return [fitted.graph.entities.names[end] for end in ends if end >= embedding.known]


def _contributions(fitted: Fitted, reasons: list[Reason]) -> list[dict[str, Any]]:
    """Each rule's part in a triple's log-odds, the largest first: value × weight, and the premises behind it."""
    rules, names = fitted.outcome.rule_model.rules, fitted.graph.names
    entries = [
        {
            "rule": str(rules.rules[reason.rule]),
            "weight": float(rules.weight[reason.rule]),
            "groundings": reason.groundings,
            "broken": reason.broken,
            "contribution": float(reason.value * rules.weight[reason.rule]),
            "premises": [[list(names(t)) for t in premises] for premises in reason.premises],
        }
        for reason in reasons
    ]
    return sorted(entries, key=lambda entry: -abs(entry["contribution"]))


def _neighbours(fitted: Fitted, triple: IntArray) -> list[dict[str, object]]:
    """The entities most similar to the head (tail) that are known to have the same fact with the tail (head)."""
    vectors = fitted.outcome.embedding.vectors() if fitted.outcome.embedding else None
    if vectors is None:
        return []
    graph, found = fitted.graph, []
    world = fitted.outcome.rule_model.evidence.network.world
    for column, other, index in ((HEAD, TAIL, world.backward), (TAIL, HEAD, world.forward)):
        if triple[column] >= len(vectors):
            continue
        _, entities, _ = index.lookup(triple[[other]], triple[[RELATION]])
        entities = entities[(entities != triple[column]) & (entities < len(vectors))]
        own = vectors[int(triple[column])][None, :]
        similarity = torch.cosine_similarity(vectors[torch.from_numpy(entities).to(vectors.device)], own).cpu().numpy()
        for at in np.argsort(-similarity, kind="stable")[:NEIGHBOURS]:
            fact = triple.copy()
            fact[column] = entities[at]
            found.append(
                {
                    "entity": graph.entities.names[entities[at]],
                    "similar_to": graph.entities.names[triple[column]],
                    "similarity": float(similarity[at]),
                    "fact": list(graph.names(fact)),
                }
            )
    return found


def _calibration(fitted: Fitted, columns: FloatArray) -> dict[str, object] | None:
    """The regression's parts, each value × coefficient; None where p_w itself is the probability."""
    joint, alone = fitted.calibration, bool(np.isnan(columns[0]))
    regression = joint.alone if alone else joint
    if regression is None:
        return None
    names = ("intercept", "score", "p_w", "reached")
    values = dict(zip(names, (1.0, *columns.tolist()), strict=True))
    if alone or fitted.outcome.embedding is None:
        del values["score"]
    parts = [
        {
            "part": name,
            "value": value,
            "coefficient": getattr(regression, name),
            "contribution": value * getattr(regression, name),
        }
        for name, value in values.items()
    ]
    return {
        "rules_alone": "score" not in values,
        "log_odds": sum(part["contribution"] for part in parts),
        "parts": parts,
    }
