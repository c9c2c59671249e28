"""Why a triple is probable or not: what the rules and the neural model say, and how its probability is composed."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from plogicnet.evaluation.calibration import columns_of
from plogicnet.graph import HEAD, RELATION, TAIL, FloatArray
from plogicnet.inference.examples import Names
from plogicnet.inference.fitted import Fitted
from plogicnet.mln import Reason
from plogicnet.neural.protocol import Reasons
from plogicnet.support.records import Record

PartName = Literal["intercept", "score", "p_w", "reached"]
PREMISES = 100
"""The default number of groundings of a rule whose premises are given; a hub can have a hundred thousand."""


@dataclass(frozen=True)
class Contribution(Record):
    """A rule's part in the rules' log-odds.

    Attributes:
        groundings: how many of its groundings conclude the triple.
        broken: how many the triple would break as a premise; they count under the full blanket alone.
        contribution: weight × groundings, or with `aggregate` "mean" weight × their share of all groundings.
        premises: the premises of some of the groundings.
    """

    rule: str
    weight: float
    groundings: int
    broken: int
    contribution: float
    premises: tuple[tuple[Names, ...], ...]


@dataclass(frozen=True)
class SimilarEntity(Record):
    """An entity that is similar to one end of the triple and is known to have the same fact with the other end."""

    entity: str
    similar_to: str
    similarity: float
    fact: Names


@dataclass(frozen=True)
class Path(Record):
    """A path from head to tail that carries a share of the neural model's score."""

    path: tuple[Names, ...]
    share: float


@dataclass(frozen=True)
class Part(Record):
    """A part of the calibrated log-odds: value × coefficient."""

    part: PartName
    value: float
    coefficient: float
    contribution: float


@dataclass(frozen=True)
class Composition(Record):
    """How the probability is composed.

    Attributes:
        rules_alone: whether the neural model has no part in it.
        log_odds: the sum of the parts.
    """

    rules_alone: bool
    log_odds: float
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Explanation(Record):
    """Why a triple is probable or not.

    The rules' contributions and the base add up to the rules' log-odds.

    Attributes:
        q, p_w, known, held_out: see `Prediction`.
        log_odds: the rules' log-odds.
        base: the log-odds of the relation's base rate.
        reached: whether a rule reaches it.
        forbidden: whether a constraint rules it out.
        without_vector: its entities that the neural model cannot score.
        rules: the rules that reach it, the largest contribution first.
        neighbours: similar entities, where the neural model has some.
        paths: paths that carry its score, where the neural model gives some.
        calibration: how the probability is composed; a forbidden triple has probability zero all the same.
        aggregate: how a rule's groundings are taken together.
    """

    triple: Names
    probability: float
    q: float | None
    p_w: float
    log_odds: float
    base: float
    known: bool
    held_out: str | None
    reached: bool
    forbidden: bool
    without_vector: tuple[str, ...]
    rules: tuple[Contribution, ...]
    neighbours: tuple[SimilarEntity, ...]
    paths: tuple[Path, ...]
    calibration: Composition
    aggregate: Literal["sum", "mean"]


def explain(fitted: Fitted, head: str, relation: str, tail: str, premises: int = PREMISES) -> Explanation:
    """Explains a triple; of each rule, the premises of at most so many groundings are given.

    The rules are grounded around this triple alone where that is possible.
    """
    model, neural, triple = fitted.outcome.rule_model, fitted.outcome.neural, fitted.graph.numbers(head, relation, tail)
    reasons = model.reasons(triple, premises)
    sums = sum(reason.value * float(model.rules.weight[reason.rule]) for reason in reasons)
    odds = float(model.log_odds_of(np.array([sums]), triple[[RELATION]])[0])
    scores = model.scores_of(fitted.graph, triple, odds if reasons else None)
    judged = fitted.judge(triple[None, :], scores)[0]
    own = Reasons() if neural is None else neural.reasons(triple)
    ends = [] if neural is None else [end for end in triple[[HEAD, TAIL]].tolist() if neural.unscorable[end]]
    entities, names = fitted.graph.entities.names, fitted.graph.names
    return Explanation(
        triple=judged.triple,
        probability=judged.probability,
        q=judged.q,
        p_w=judged.p_w,
        log_odds=odds,
        base=float(model.base[triple[RELATION]]),
        known=judged.known,
        held_out=judged.held_out,
        reached=bool(reasons),
        forbidden=bool(scores.forbidden(triple[None, :])[0]),
        without_vector=tuple(entities[end] for end in dict.fromkeys(ends)),
        rules=_contributions(fitted, reasons),
        neighbours=tuple(
            SimilarEntity(entities[n.entity], entities[n.similar_to], n.similarity, names(n.fact))
            for n in own.neighbours
        ),
        paths=tuple(Path(tuple(names(step) for step in path.triples), path.share) for path in own.paths),
        calibration=_composition(fitted, columns_of(neural, scores, triple[None, :])[0]),
        aggregate=model.aggregate,
    )


def _contributions(fitted: Fitted, reasons: list[Reason]) -> tuple[Contribution, ...]:
    """Each rule's part in a triple's log-odds, the largest first."""
    rules, names = fitted.outcome.rule_model.rules, fitted.graph.names
    entries = [
        Contribution(
            rule=str(rules.rules[reason.rule]),
            weight=float(rules.weight[reason.rule]),
            groundings=reason.groundings,
            broken=reason.broken,
            contribution=float(reason.value * rules.weight[reason.rule]),
            premises=tuple(tuple(names(t) for t in premises) for premises in reason.premises),
        )
        for reason in reasons
    ]
    return tuple(sorted(entries, key=lambda entry: -abs(entry.contribution)))


def _composition(fitted: Fitted, columns: FloatArray) -> Composition:
    """The parts of the regression that makes the probability."""
    score, p_w, reached = columns.tolist()
    alone = fitted.calibration.alone if np.isnan(score) else None
    regression, rules_alone = alone or fitted.calibration, bool(np.isnan(score)) or fitted.outcome.neural is None
    values: dict[PartName, float] = {"intercept": 1.0, "score": score, "p_w": p_w, "reached": reached}
    if rules_alone:
        del values["score"]
    terms = [(name, value, float(getattr(regression, name))) for name, value in values.items()]
    parts = tuple(Part(name, value, coefficient, value * coefficient) for name, value, coefficient in terms)
    return Composition(rules_alone, sum(part.contribution for part in parts), parts)
