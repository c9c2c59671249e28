"""Engine: what mines and grounds. Settings name one of the registry `plogicnet.config.ENGINES`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from plogicnet import config
from plogicnet.config.shapes import ChainShape
from plogicnet.graph import FloatArray, IntArray, KnowledgeGraph
from plogicnet.grounding.groundings import Grounded
from plogicnet.rules import Rule, RuleTable
from plogicnet.support.progress import Progress, silent

AUTO = "auto"
"""The setting that tries the engines in the order of their registration."""
Counting = Literal["distinct", "paths"]
"""Whether support and hits count distinct triples or groundings; `paths` also takes self-supporting groundings."""
Explain = Callable[[IntArray], dict[int, IntArray]]
"""The groundings that conclude one triple: for each rule that has some, their premises, (groundings, premises, 3).

A premise that occurs twice in a grounding may be a row of -1 the second time.
"""


@dataclass(frozen=True)
class Mined:
    """What mining found.

    Attributes:
        rules: the kept rules.
        constraints: the kept constraints.
        candidates: the number of rules with at least one hit, kept or not.
    """

    rules: RuleTable
    constraints: RuleTable
    candidates: int


@dataclass(frozen=True)
class Resources:
    """What an engine may use.

    Attributes:
        threads: 0: all cores.
        memory_mb: grounding.memory_mb; 0: half of what is free.
        progress: shows how far long steps are.
        admit: called with the number of groundings of each rule where hidden premises make them more than `expect`
            gave, before they are made; raises an InputError where they do not fit.
    """

    threads: int = 0
    memory_mb: int = 0
    progress: Progress = field(default=silent, repr=False, compare=False)
    admit: Callable[[FloatArray], None] = field(default=lambda _: None, repr=False, compare=False)


@dataclass(frozen=True)
class Job:
    """What an engine is asked about: rules in a graph. Rules are numbered by their place.

    Attributes:
        hidden_premises: whether hidden triples can be premises too; it matters to `ground` alone.
    """

    graph: KnowledgeGraph
    rules: Sequence[Rule]
    counting: Counting
    hidden_premises: bool = False
    resources: Resources = field(default_factory=Resources)


class Engine(Protocol):
    """An engine: a stateless object.

    Attributes:
        scope: the rules that it grounds, in words, for messages.
        in_memory: whether what `ground` returns holds every grounding in memory.
    """

    scope: str
    in_memory: bool

    def supports(self, rule: Rule) -> bool:
        """Whether it can ground a rule."""

    def require(self) -> None:
        """Raises an InputError where it cannot work here, as where a library is not installed."""

    def mines(self, shape: ChainShape) -> bool:
        """Whether it can mine the rules of a shape."""

    def mine(self, graph: KnowledgeGraph, settings: config.Rules, resources: Resources) -> Mined:
        """Counts every candidate rule exactly and keeps those of enough precision and support (Sec. 5.1)."""

    def count(self, job: Job) -> tuple[IntArray, IntArray]:
        """Support and hits of each rule."""

    def expect(self, job: Job) -> FloatArray:
        """The number of groundings of each rule with observed premises, self-supporting ones included."""

    def ground(self, job: Job) -> Grounded:
        """Finds H, and every grounding whose hypothesis is in O ∪ H.

        Premises are from O, or with `hidden_premises` from O ∪ H. H holds what rules conclude from O alone. Under
        `distinct` counting no grounding has its hypothesis among its premises.
        """

    def explain(self, job: Job) -> Explain:
        """Returns a function that finds the groundings of one triple with observed premises, without all others."""


def engines(name: str) -> Iterator[tuple[str, Engine]]:
    """The engines that a setting names, in the order in which they are tried.

    Example:
        >>> [each for each, _ in engines("native")]
        ['native']
    """
    for each in config.ENGINES.names() if name == AUTO else [name]:
        yield each, config.ENGINES.get(each)
