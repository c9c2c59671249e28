"""Why a triple is held probable or not: what rules and vectors say of it, and how its probability comes of that."""

from typing import Any

import numpy as np

from plogicnet.evaluation import columns_of
from plogicnet.graph import HEAD, RELATION, TAIL, FloatArray, IntArray
from plogicnet.inference.fitted import Fitted
from plogicnet.mln import Reason
from plogicnet.neural.protocol import Reasons

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
        **_neural_reasons(fitted, triple),
        "calibration": _calibration(fitted, columns_of(fitted.outcome.neural, scores, triple[None, :])[0]),
    }


def _without_vector(fitted: Fitted, triple: IntArray) -> list[str]:
    """The entities of a triple that have no vector though others have."""
    if fitted.outcome.neural is None:
        return []
    unscorable, ends = fitted.outcome.neural.unscorable, dict.fromkeys(triple[[HEAD, TAIL]].tolist())
    return [fitted.graph.entities.names[end] for end in ends if unscorable[end]]


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


def _neural_reasons(fitted: Fitted, triple: IntArray) -> dict[str, object]:
    """Why the neural model gave its score, in names: similar entities (vectors), or paths."""
    neural, entities, names = fitted.outcome.neural, fitted.graph.entities.names, fitted.graph.names
    reasons = Reasons() if neural is None else neural.reasons(triple)
    neighbours = [
        {
            "entity": entities[n.entity],
            "similar_to": entities[n.similar_to],
            "similarity": n.similarity,
            "fact": list(names(n.fact)),
        }
        for n in reasons.neighbours
    ]
    paths = [{"path": [list(names(t)) for t in path.triples], "share": path.share} for path in reasons.paths]
    return {"neighbours": neighbours, **({"paths": paths} if paths else {})}


def _calibration(fitted: Fitted, columns: FloatArray) -> dict[str, object] | None:
    """The regression's parts, each value × coefficient; None where p_w itself is the probability."""
    joint, alone = fitted.calibration, bool(np.isnan(columns[0]))
    regression = joint.alone if alone else joint
    if regression is None:
        return None
    names = ("intercept", "score", "p_w", "reached")
    values = dict(zip(names, (1.0, *columns.tolist()), strict=True))
    if alone or fitted.outcome.neural is None:
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
