"""The shapes of the answers, for types and for OpenAPI; an answer may hold further keys."""

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from plogicnet.graph import Side
from plogicnet.model import Prediction

Kind = Literal["entity", "relation"]
Labels = dict[str, str]


class Predictions(TypedDict):
    """Judged triples, as `predict` gives them; `labels` are readable names of the names in it."""

    predictions: list[Prediction]
    labels: Labels
    total: NotRequired[int]
    roles: NotRequired[int]


class Contribution(TypedDict):
    """A rule's part in an explanation."""

    rule: str
    weight: float
    groundings: int
    broken: int
    contribution: float
    premises: list[list[tuple[str, str, str]]]


class Explanation(TypedDict):
    """Why a triple is held probable or not, as `explain` gives it.

    With `aggregate` "mean" a rule's contribution is its weight times its share of all groundings.
    """

    triple: tuple[str, str, str]
    probability: float
    q: float | None
    p_w: float
    log_odds: float
    base: float
    rules: list[Contribution]
    neighbours: list[dict[str, Any]]
    held_out: str | None
    aggregate: Literal["sum", "mean"]
    labels: Labels


class RuleRow(TypedDict):
    """A rule as `rules` gives it; `number` is its place among all."""

    number: int
    pattern: str
    rule: str
    support: int
    hits: int
    precision: float
    weight: float | None


class Rules(TypedDict):
    """Some of the rules, strongest first; how many there are of such, and how many of them are constraints."""

    rules: list[RuleRow]
    total: int
    constraints: int


class Example(TypedDict):
    """One grounding of a rule."""

    hypothesis: tuple[str, str, str]
    premises: list[tuple[str, str, str]]
    known: bool
    held_out: str | None


class RuleExamples(RuleRow):
    """A rule, the relation that it concludes, and some of its groundings."""

    relation: str
    examples: list[Example]
    labels: Labels


class Found(TypedDict):
    """A name that a search found."""

    name: str
    label: str | None
    facts: int


class Names(TypedDict):
    """What a search found, the best first."""

    names: list[Found]


class RoleRow(TypedDict):
    """A role of an entity: the relation, the end that is asked for, and how many facts are known."""

    relation: str
    side: Side
    known: int


class Entity(TypedDict):
    """An entity and the roles in which facts of it are known or looked for."""

    name: str
    label: str | None
    facts: int
    roles: list[RoleRow]
    labels: Labels


class Info(TypedDict):
    """What is served: `rules` counts constraints too; the figures are of the split that is named."""

    name: str
    version: str
    entities: int
    relations: int
    train: int
    valid: int
    test: int
    rules: int
    constraints: int
    model: str | None
    split: str | None
    figures: dict[str, dict[str, float]]
