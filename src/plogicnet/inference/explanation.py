"""Explanation of a triple's probability: the rules, the neural model, and how calibration combines both."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from plogicnet.evaluation.calibration import calibration_features
from plogicnet.graph import HEAD, RELATION, TAIL, FloatArray
from plogicnet.inference.examples import NameTriple
from plogicnet.inference.fitted import FittedModel
from plogicnet.mln import Reason
from plogicnet.mln.conditional import Aggregate
from plogicnet.neural.protocol import Reasons
from plogicnet.support.records import Record

PartName = Literal["intercept", "score", "p_w", "reached"]
PREMISES = 100
"""Default number of groundings per rule that are listed with their premises. A triple can have 100,000 groundings."""


@dataclass(frozen=True)
class Contribution(Record):
    """The contribution of one rule to the rules' log-odds.

    Attributes:
        negative: whether the rule is negative evidence. The value is then -1.
        groundings: number of groundings that conclude the triple; for negative evidence, of facts that contradict it.
        broken: number of groundings that the triple would violate if it were true, because it is a premise and the
            hypothesis is false. Counted only with mln.blanket=full.
        value: the factor of the weight: groundings - broken, or with `aggregate` "mean" divided by their number over
            all rules, or with "saturating" log2(1 + groundings) - log2(1 + broken).
        contribution: weight × value.
        premises: the premises of the first groundings, a tuple per grounding.
    """

    rule: str
    negative: bool
    weight: float
    groundings: int
    broken: int
    value: float
    contribution: float
    premises: tuple[tuple[NameTriple, ...], ...]


@dataclass(frozen=True)
class SimilarEntity(Record):
    """An entity that is similar to the head (or tail) and has the same known fact with the tail (or head).

    Attributes:
        entity: the similar entity.
        similar_to: the head or tail of the explained triple.
        similarity: cosine similarity of their vectors.
        fact: the known fact: the explained triple with `entity` instead of `similar_to`.
    """

    entity: str
    similar_to: str
    similarity: float
    fact: NameTriple


@dataclass(frozen=True)
class Path(Record):
    """A path from head to tail, and its share of the neural model's score; see `ScoredPath`."""

    path: tuple[NameTriple, ...]
    share: float


@dataclass(frozen=True)
class LogOddsTerm(Record):
    """A term of the calibrated log-odds: value × coefficient."""

    part: PartName
    value: float
    coefficient: float
    contribution: float


@dataclass(frozen=True)
class Composition(Record):
    """The terms of the calibrated log-odds.

    Attributes:
        rules_alone: whether only the rules determine the probability, without a neural score.
        log_odds: the sum of the terms.
        parts: the terms.
    """

    rules_alone: bool
    log_odds: float
    parts: tuple[LogOddsTerm, ...]


@dataclass(frozen=True)
class Explanation(Record):
    """The explanation of a triple.

    The rules' log-odds are the base rate plus the contributions of the rules.

    Attributes:
        probability, q, p_w, known, held_out: see `Prediction`.
        log_odds: the rules' log-odds.
        base: the relation's base rate, as log-odds.
        reached: whether a rule concludes the triple.
        forbidden: whether a constraint excludes the triple.
        without_vector: entities of the triple that the neural model cannot score.
        rules: the rules that conclude the triple, largest contribution first.
        neighbours: similar entities, if the neural model provides them.
        paths: paths from head to tail, if the neural model provides them.
        calibration: the terms of the probability; ignored if the triple is forbidden, since its probability is then 0.
        aggregate: how the groundings of a rule are combined.
    """

    triple: NameTriple
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
    aggregate: Aggregate


def explain(fitted: FittedModel, head: str, relation: str, tail: str, premises: int = PREMISES) -> Explanation:
    """Explain a triple. At most `premises` groundings per rule are listed with their premises.

    If possible, only the groundings of this triple are computed.
    """
    model, neural, triple = fitted.outcome.rule_model, fitted.outcome.neural, fitted.graph.encode(head, relation, tail)
    reasons = model.reasons(triple, premises)
    evidence = sum(reason.value * float(model.rules.weight[reason.rule]) for reason in reasons)
    log_odds = float(model.log_odds_of(np.array([evidence]), triple[[RELATION]])[0])
    scores = model.scores_of(fitted.graph, triple, log_odds if reasons else None)
    prediction = fitted.predict_triples(triple[None, :], scores)[0]
    neural_reasons = Reasons() if neural is None else neural.reasons(triple)
    unscorable = [] if neural is None else [e for e in triple[[HEAD, TAIL]].tolist() if neural.unscorable[e]]
    entities, names = fitted.graph.entities.names, fitted.graph.names
    return Explanation(
        triple=prediction.triple,
        probability=prediction.probability,
        q=prediction.q,
        p_w=prediction.p_w,
        log_odds=log_odds,
        base=float(model.base[triple[RELATION]]),
        known=prediction.known,
        held_out=prediction.held_out,
        reached=bool(reasons),
        forbidden=bool(scores.forbidden(triple[None, :])[0]),
        without_vector=tuple(entities[e] for e in dict.fromkeys(unscorable)),
        rules=_contributions(fitted, reasons),
        neighbours=tuple(
            SimilarEntity(entities[n.entity], entities[n.similar_to], n.similarity, names(n.fact))
            for n in neural_reasons.neighbours
        ),
        paths=tuple(Path(tuple(names(step) for step in path.triples), path.share) for path in neural_reasons.paths),
        calibration=_composition(fitted, calibration_features(neural, scores, triple[None, :])[0]),
        aggregate=model.aggregate,
    )


def _contributions(fitted: FittedModel, reasons: list[Reason]) -> tuple[Contribution, ...]:
    """Return the contributions of the rules to a triple's log-odds, largest first."""
    rules, names = fitted.outcome.rule_model.rules, fitted.graph.names
    entries = [
        Contribution(
            rule=str(rules.rules[reason.rule]),
            negative=rules.rules[reason.rule].is_negative,
            weight=float(rules.weight[reason.rule]),
            groundings=reason.n_groundings,
            broken=reason.n_violated,
            value=reason.value,
            contribution=float(reason.value * rules.weight[reason.rule]),
            premises=tuple(tuple(names(t) for t in premises) for premises in reason.premises),
        )
        for reason in reasons
    ]
    return tuple(sorted(entries, key=lambda entry: -abs(entry.contribution)))


def _composition(fitted: FittedModel, features: FloatArray) -> Composition:
    """Return the terms of the calibrated log-odds, given the features of one triple."""
    score, p_w, reached = features.tolist()
    fallback = fitted.calibration.alone if np.isnan(score) else None
    regression, rules_alone = fallback or fitted.calibration, bool(np.isnan(score)) or fitted.outcome.neural is None
    values: dict[PartName, float] = {"intercept": 1.0, "score": score, "p_w": p_w, "reached": reached}
    if rules_alone:
        del values["score"]
    terms = [(name, value, float(getattr(regression, name))) for name, value in values.items()]
    parts = tuple(LogOddsTerm(name, value, coefficient, value * coefficient) for name, value, coefficient in terms)
    return Composition(rules_alone, sum(part.contribution for part in parts), parts)
