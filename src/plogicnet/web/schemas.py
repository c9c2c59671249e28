"""The types of the responses, from which the OpenAPI schema is created."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from plogicnet.graph import Side
from plogicnet.inference.examples import Example
from plogicnet.model import Explanation, Prediction

Kind = Literal["entity", "relation"]
"""What a name refers to."""
RuleOrder = Literal["weight", "importance"]
"""The order of a list of rules."""
Labels = dict[str, str]
"""Readable labels by name."""


class Failure(TypedDict):
    """An error message."""

    error: str


class Predictions(TypedDict):
    """Scored triples, as `predict` prints them.

    `labels` maps names in the predictions to readable labels. /api/known adds `total`, the number of all known facts
    of the request. /api/predicted adds `roles`, the number of roles (relation and side) that were searched.
    """

    predictions: Sequence[Prediction]
    labels: Labels
    total: NotRequired[int]
    roles: NotRequired[int]


class OtherRules(TypedDict):
    """The rules that a response leaves out: their number, their number of groundings, and their sum in log-odds."""

    count: int
    groundings: int
    contribution: float


@dataclass(frozen=True)
class Explained(Explanation):
    """The explanation of a triple, as `explain` prints it. `labels` maps its names to readable labels."""

    labels: Labels
    other_rules: OtherRules


class RuleRow(TypedDict):
    """A rule, as `rules` prints it. `number` is its index in the list of all rules, from 0."""

    number: int
    pattern: str
    rule: str
    support: int
    hits: int
    precision: float
    weight: float | None
    standard_error: float | None
    groundings: int | None


class Rules(TypedDict):
    """Some of the matching rules. `total` counts all of them, and `constraints` their constraints.

    `patterns` has the number of rules per pattern that match the other filters.
    """

    rules: list[RuleRow]
    total: int
    constraints: int
    patterns: dict[str, int]


class RuleExamples(RuleRow):
    """A rule, the relation that it concludes, and some of its groundings."""

    relation: str
    examples: list[Example]
    labels: Labels


class Found(TypedDict):
    """A name found by a search, with its label and its number of known facts."""

    name: str
    label: str | None
    facts: int


class Names(TypedDict):
    """The names found by a search, best match first."""

    names: list[Found]


class RoleRow(TypedDict):
    """A role of an entity: the relation, the missing side, and the number of known facts."""

    relation: str
    side: Side
    known: int


class Entity(TypedDict):
    """An entity, its number of known facts, and the roles in which it has known facts or can have missing ones."""

    name: str
    label: str | None
    facts: int
    roles: list[RoleRow]
    labels: Labels


class Column(TypedDict):
    """A metric: its key in `figures`, its title, and its number of decimal places in tables."""

    key: str
    title: str
    digits: int


class Info(TypedDict):
    """The run that is served.

    `snapshot` is the name of its snapshot. `rules` is the number of rules, including the constraints. `figures`
    contains the metric values on `split`, by ranking and metric. `rankings` maps the keys of the rankings to titles,
    and `metrics` describes the metrics. Both are in the order of tables.
    """

    name: str
    version: str
    snapshot: str
    entities: int
    relations: int
    train: int
    valid: int
    test: int
    rules: int
    constraints: int
    model: str | None
    split: str | None
    rankings: dict[str, str]
    metrics: list[Column]
    figures: dict[str, dict[str, float]]
