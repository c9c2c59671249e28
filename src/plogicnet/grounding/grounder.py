"""The grounder, which assigns each rule to an engine, checks the memory and grounds the rules."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from plogicnet.config import Config
from plogicnet.graph import FloatArray, IntArray, KnowledgeGraph
from plogicnet.grounding.engine import (
    AUTO,
    CountingMode,
    Engine,
    GroundingLookup,
    GroundingTask,
    Resources,
    iter_engines,
)
from plogicnet.grounding.groundings import GroundNetwork, InMemoryGroundNetwork
from plogicnet.rules import Rule
from plogicnet.support.errors import InputError
from plogicnet.support.memory import allowed_bytes, require_bytes
from plogicnet.support.progress import Progress, no_progress

LEARNING_BYTES = 100
"""The peak memory of weight learning per grounding."""
GROUNDING_BYTES = 45
"""The memory of one grounding during grounding."""


@dataclass(frozen=True)
class EngineAssignment:
    """An engine and the indices of the rules that it grounds."""

    engine: Engine
    rule_indices: list[int]


@dataclass(frozen=True)
class Grounder:
    """Rules to ground in a graph.

    Attributes:
        hidden_premises: whether hidden triples can be premises.
        engine: the setting `grounding.engine`. With `auto`, each rule is grounded by the first engine that supports it.

    Example:
        >>> from plogicnet.rules import parse_rule
        >>> graph = KnowledgeGraph.from_names([("a", "husband", "b"), ("c", "wife", "d")])
        >>> grounder = Grounder(graph, (parse_rule("husband(X, Y) => wife(Y, X)"),), "distinct")
        >>> triple = graph.encode("b", "wife", "a")
        >>> len(grounder.network.hidden), grounder.groundings_of_triple(triple)[0].tolist()
        (1, [[[0, 0, 1]]])
    """

    graph: KnowledgeGraph
    rules: tuple[Rule, ...]
    counting: CountingMode
    hidden_premises: bool = False
    engine: str = AUTO
    resources: Resources = field(default_factory=Resources)

    @classmethod
    def of(
        cls,
        graph: KnowledgeGraph,
        rules: tuple[Rule, ...],
        config: Config,
        hidden_premises: bool = False,
        progress: Progress = no_progress,
    ) -> "Grounder":
        """Create a grounder from the settings."""
        resources = Resources(config.threads, config.grounding.memory_mb, progress)
        return cls(graph, rules, config.rules.counting, hidden_premises, config.grounding.engine, resources)

    @cached_property
    def network(self) -> GroundNetwork:
        """O ∪ H and all groundings, in memory or on disk, depending on the engine."""
        if self._in_memory:
            self.require_memory()
        networks = [(assignment.rule_indices, self._ground(assignment)) for assignment in self._grounding_assignments]
        if len(networks) == 1:
            return networks[0][1]
        return InMemoryGroundNetwork.concat(
            [(rule_indices, network.load()) for rule_indices, network in networks], self.graph.observed
        )

    @cached_property
    def groundings(self) -> InMemoryGroundNetwork:
        """The network in memory. Raises InputError if it does not fit into memory."""
        if not self._in_memory:
            cached = self.__dict__.get("network")
            self._check_memory(
                self.count_groundings() if cached is None else cached.groundings_per_rule.astype(np.float64)
            )
        return self.network.load()

    def groundings_of_triple(self, triple: IntArray) -> dict[int, IntArray]:
        """Return the groundings that conclude a triple from observed premises; see `GroundingLookup`."""
        groundings: dict[int, IntArray] = {}
        for assignment, lookup in self._lookups:
            groundings |= {assignment.rule_indices[i]: premises for i, premises in lookup(triple).items()}
        return dict(sorted(groundings.items()))

    def counts(self) -> tuple[IntArray, IntArray]:
        """Return support and hits of each rule."""
        self.require_memory()
        support, hits = np.zeros((2, len(self.rules)), dtype=np.int64)
        for assignment in self._assignments:
            support[assignment.rule_indices], hits[assignment.rule_indices] = assignment.engine.count(
                self._task(assignment, self.resources)
            )
        return support, hits

    def count_groundings(self) -> FloatArray:
        """Return the number of groundings of each rule, including self-supporting groundings."""
        counts = np.zeros(len(self.rules))
        quiet = replace(self.resources, progress=no_progress)
        for assignment in self._assignments:
            counts[assignment.rule_indices] = assignment.engine.count_groundings(self._task(assignment, quiet))
        return counts

    def check_engines(self) -> None:
        """Raise InputError if a rule needs an engine that is not available."""
        for assignment in self._assignments:
            try:
                assignment.engine.check_available()
            except InputError as error:
                raise InputError(f"{self.rules[assignment.rule_indices[0]]}: {error}") from None

    def require_memory(self) -> None:
        """Raise InputError if the groundings would not fit into memory. They are counted, not created."""
        self._check_memory(self.count_groundings())

    @cached_property
    def _assignments(self) -> list[EngineAssignment]:
        """The engine of each rule."""
        assignments: list[EngineAssignment] = []
        remaining: Sequence[int] = range(len(self.rules))
        for _, engine in iter_engines(self.engine):
            supported = {i for i in remaining if engine.supports(self.rules[i])}
            assignments += [EngineAssignment(engine, sorted(supported))] if supported else []
            remaining = [i for i in remaining if i not in supported]
            if not remaining:
                return assignments
        reason = "no engine can ground this rule"
        if self.engine != AUTO:
            reason = f"the {self.engine} engine grounds only {engine.scope}. Use --set grounding.engine=auto."
        raise InputError(f"{self.rules[remaining[0]]}: {reason}")

    @cached_property
    def _grounding_assignments(self) -> list[EngineAssignment]:
        """The engine of each rule for `ground`. If hidden triples can be premises, one engine must ground all rules."""
        if self._assignments and not (self.hidden_premises and len(self._assignments) > 1):
            return self._assignments
        return [EngineAssignment(self._engine_for_all_rules(), list(range(len(self.rules))))]

    @property
    def _in_memory(self) -> bool:
        """Whether `network` is in memory."""
        return len(self._grounding_assignments) > 1 or self._grounding_assignments[0].engine.in_memory

    def _engine_for_all_rules(self) -> Engine:
        """Return the first engine that supports all rules."""
        for _, engine in iter_engines(self.engine):
            if all(engine.supports(rule) for rule in self.rules):
                return engine
        raise InputError(
            "with mln.blanket=full or mln.hidden_premises=sampled, one engine must ground all rules, but none supports"
            f" them all. Change the setting, or remove the rule {self.rules[self._assignments[-1].rule_indices[0]]}."
        )

    @cached_property
    def _lookups(self) -> list[tuple[EngineAssignment, GroundingLookup]]:
        """The grounding lookup of each engine."""
        return [
            (assignment, assignment.engine.grounding_lookup(self._task(assignment, self.resources)))
            for assignment in self._assignments
        ]

    def _task(self, assignment: EngineAssignment, resources: Resources) -> GroundingTask:
        return GroundingTask(
            self.graph, [self.rules[i] for i in assignment.rule_indices], self.counting, self.hidden_premises, resources
        )

    def _ground(self, assignment: EngineAssignment) -> GroundNetwork:
        def check_memory(counts: FloatArray) -> None:
            counts_by_rule = np.zeros(len(self.rules))
            counts_by_rule[assignment.rule_indices] = counts
            self._check_memory(counts_by_rule)

        return assignment.engine.ground(self._task(assignment, replace(self.resources, check_memory=check_memory)))

    def _check_memory(self, counts: FloatArray) -> None:
        if not len(counts):
            return
        worst = int(np.argmax(counts))
        require_bytes(
            counts.sum() * GROUNDING_BYTES,
            f"up to {counts.sum():,.0f} groundings",
            f"raise rules.min_precision or remove rules. {self.rules[worst]} has the most groundings:"
            f" {counts[worst]:,.0f}",
        )
        needed, allowed = counts.sum() * LEARNING_BYTES, allowed_bytes(self.resources.memory_mb)
        if needed > allowed:
            raise InputError(
                f"the rules have up to {counts.sum():,.0f} groundings, which need about {needed / 2**20:,.0f} MB,"
                f" but only {allowed / 2**20:,.0f} MB are allowed (grounding.memory_mb). {self.rules[worst]} has the"
                f" most groundings: {counts[worst]:,.0f}. Raise rules.min_precision or grounding.memory_mb, or remove"
                " rules."
            )
