"""The shapes of the answers, for types and for OpenAPI: the records of `inference`, and what a page needs besides."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from plogicnet.graph import Side
from plogicnet.inference.examples import Example
from plogicnet.model import Explanation, Prediction

Kind = Literal["entity", "relation"]
Labels = dict[str, str]


class Failure(TypedDict):
    """What went wrong, in words."""

    error: str


class Predictions(TypedDict):
    """Judged triples, as `predict` gives them; `labels` are readable names of the names in it."""

    predictions: Sequence[Prediction]
    labels: Labels
    total: NotRequired[int]
    roles: NotRequired[int]


@dataclass(frozen=True)
class Explained(Explanation):
    """Why a triple is probable or not, as `explain` gives it; `labels` are readable names of the names in it."""

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
    standard_error: float | None
    groundings: int | None


class Rules(TypedDict):
    """Some of the rules, strongest first; how many there are of such, and how many of them are constraints."""

    rules: list[RuleRow]
    total: int
    constraints: int


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


class Column(TypedDict):
    """A metric: its key in the figures, its title, and its decimal places in tables."""

    key: str
    title: str
    digits: int


class Info(TypedDict):
    """What is served: `rules` counts constraints too; the figures are of the split that is named.

    `rankings` are the titles of the figures' keys, `metrics` the metrics of each, both in the order of tables.
    """

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
    rankings: dict[str, str]
    metrics: list[Column]
    figures: dict[str, dict[str, float]]
