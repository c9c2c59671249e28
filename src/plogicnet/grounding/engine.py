"""The interface of engines, which mine and ground rules.

The setting `grounding.engine` names an engine of the registry `plogicnet.config.ENGINES`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from plogicnet import config
from plogicnet.config.shapes import ChainShape
from plogicnet.graph import FloatArray, IntArray, KnowledgeGraph
from plogicnet.grounding.groundings import GroundNetwork
from plogicnet.rules import Rule, RuleTable
from plogicnet.support.progress import Progress, no_progress

AUTO = "auto"
"""The value of `grounding.engine` that tries all engines in the order of their registration."""
CountingMode = Literal["distinct", "paths"]
"""What support and hits count.

`distinct` counts distinct triples and leaves out self-supporting groundings, which have their hypothesis as a premise.
`paths` counts all groundings. For a chain, each grounding is a path.
"""
GroundingLookup = Callable[[IntArray], dict[int, IntArray]]
"""Function from a triple to the groundings that conclude it.

It returns a dictionary. A key is the index of a rule that concludes the triple. Its value is an array of shape
(groundings, premises, 3): the premises of the groundings of this rule that conclude the triple. If two premises of a
grounding are the same triple, an engine can replace the second by a row of -1. The SQL engine does so.
"""


@dataclass(frozen=True)
class MiningResult:
    """The result of mining.

    Attributes:
        rules: the rules that reach `rules.min_support` and the `rules.min_precision` of their pattern.
        constraints: the irreflexive constraints that reach `rules.min_precision.irreflexive`.
        n_candidates: the number of rules with at least one hit.
        mined: what was mined beyond the patterns, and whether all of it was found, as a JSON object.
    """

    rules: RuleTable
    constraints: RuleTable
    n_candidates: int
    mined: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Resources:
    """The resource limits and callbacks of an engine.

    Attributes:
        threads: number of threads; 0 uses all cores.
        memory_mb: the setting `grounding.memory_mb`; 0 uses half of the free memory.
        progress: displays the progress of long steps.
        seed: the setting `seed`, for mining that samples.
        check_memory: raises InputError if the given numbers of groundings per rule do not fit into memory. With hidden
            premises, a rule can have more groundings than `count_groundings` returns. An engine with its result in
            memory then calls `check_memory` with the larger numbers before it creates the groundings.
    """

    threads: int = 0
    memory_mb: int = 0
    progress: Progress = field(default=no_progress, repr=False, compare=False)
    seed: int = 0
    check_memory: Callable[[FloatArray], None] = field(default=lambda _: None, repr=False, compare=False)


@dataclass(frozen=True)
class GroundingTask:
    """The input of an engine: a graph and rules. Results refer to a rule by its index in `rules`.

    Attributes:
        hidden_premises: whether hidden triples can be premises. Only `ground` uses it.
    """

    graph: KnowledgeGraph
    rules: Sequence[Rule]
    counting: CountingMode
    hidden_premises: bool = False
    resources: Resources = field(default_factory=Resources)


class Engine(Protocol):
    """The interface of an engine. Engines are stateless.

    Attributes:
        scope: description of the supported rules, for messages.
        in_memory: whether the result of `ground` is in memory.
    """

    scope: str
    in_memory: bool

    def supports(self, rule: Rule) -> bool:
        """Return whether the engine can ground the rule."""

    def check_available(self) -> None:
        """Raise InputError if the engine cannot run, for example because a library is not installed."""

    def supports_shape(self, shape: ChainShape) -> bool:
        """Return whether the engine can mine rules of the shape."""

    def mine(self, graph: KnowledgeGraph, settings: config.Rules, resources: Resources) -> MiningResult:
        """Count support and hits of all candidates. Return those that reach the thresholds (Sec. 5.1 of the paper)."""

    def count(self, task: GroundingTask) -> tuple[IntArray, IntArray]:
        """Return support and hits of each rule."""

    def count_groundings(self, task: GroundingTask) -> FloatArray:
        """Return, for each rule, the number of groundings with only observed premises.

        Self-supporting groundings are included.
        """

    def ground(self, task: GroundingTask) -> GroundNetwork:
        """Find the hidden triples H and every grounding that concludes a triple of O ∪ H.

        O is the set of training triples. H is the set of other triples that rules conclude from premises in O. The
        premises of a grounding are in O, or in O ∪ H with `hidden_premises`. With `distinct` counting, self-supporting
        groundings are left out.
        """

    def grounding_lookup(self, task: GroundingTask) -> GroundingLookup:
        """Return a function that finds the groundings that conclude a given triple from observed premises."""


def iter_engines(setting: str) -> Iterator[tuple[str, Engine]]:
    """Yield (name, engine) for each engine that a value of `grounding.engine` selects, in the order of trial.

    Example:
        >>> [name for name, _ in iter_engines("native")]
        ['native']
    """
    for engine_name in config.ENGINES.names() if setting == AUTO else [setting]:
        yield engine_name, config.ENGINES.get(engine_name)
