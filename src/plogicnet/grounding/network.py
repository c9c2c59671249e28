"""The ground network of a graph and its rules: which engine grounds which rule, and whether the groundings fit."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from plogicnet.config import Config
from plogicnet.graph import FloatArray, IntArray, KnowledgeGraph
from plogicnet.grounding.engine import AUTO, Counting, Engine, Explain, Job, Resources, engines
from plogicnet.grounding.groundings import Grounded, Groundings
from plogicnet.rules import Rule
from plogicnet.support.errors import InputError
from plogicnet.support.memory import allowed_bytes, require_bytes
from plogicnet.support.progress import Progress, silent

GROUNDING_BYTES = 100
"""What one grounding takes at the peak of learning, with all that comes of it."""
FOUND_BYTES = 45
"""What one grounding takes as it is found."""


@dataclass(frozen=True)
class Part:
    """Some rules, by their numbers, and the engine that grounds them."""

    engine: Engine
    numbers: list[int]


@dataclass(frozen=True)
class Network:
    """The groundings of rules in a graph; with `auto`, the first engine that supports a rule grounds it.

    Attributes:
        linked: whether hidden triples can be premises too.
        engine: grounding.engine.

    Example:
        >>> from plogicnet.rules import parse_rule
        >>> graph = KnowledgeGraph.from_names([("a", "husband", "b"), ("c", "wife", "d")])
        >>> network = Network(graph, (parse_rule("husband(X, Y) => wife(Y, X)"),), "distinct")
        >>> len(network.grounded.hidden), network.of_triple(graph.numbers("b", "wife", "a"))[0].tolist()
        (1, [[[0, 0, 1]]])
    """

    graph: KnowledgeGraph
    rules: tuple[Rule, ...]
    counting: Counting
    linked: bool = False
    engine: str = AUTO
    resources: Resources = field(default_factory=Resources)

    @classmethod
    def of(
        cls,
        graph: KnowledgeGraph,
        rules: tuple[Rule, ...],
        config: Config,
        linked: bool = False,
        progress: Progress = silent,
    ) -> "Network":
        """The network that the settings ask for."""
        resources = Resources(config.threads, config.grounding.memory_mb, progress)
        return cls(graph, rules, config.rules.counting, linked, config.grounding.engine, resources)

    @cached_property
    def grounded(self) -> Grounded:
        """O ∪ H and all groundings, in memory or on disk as the engine has them."""
        if self._in_memory:
            self.require_memory()
        found = [(part.numbers, self._ground(part)) for part in self._grounding_parts]
        if len(found) == 1:
            return found[0][1]
        return Groundings.joined([(numbers, part.arrays()) for numbers, part in found], self.graph.observed)

    @cached_property
    def groundings(self) -> Groundings:
        """The unmerged form in memory; raises an InputError where it does not fit."""
        if not self._in_memory:
            known = self.__dict__.get("grounded")
            self._admit(self.expected() if known is None else known.rule_counts.astype(np.float64))
        return self.grounded.arrays()

    def of_triple(self, triple: IntArray) -> dict[int, IntArray]:
        """The groundings that conclude one triple from observed facts: for each rule, its premises; see `Explain`."""
        found: dict[int, IntArray] = {}
        for part, explain in self._explained:
            found |= {part.numbers[i]: premises for i, premises in explain(triple).items()}
        return dict(sorted(found.items()))

    def counts(self) -> tuple[IntArray, IntArray]:
        """Support and hits of each rule."""
        self.require_memory()
        support, hits = np.zeros((2, len(self.rules)), dtype=np.int64)
        for part in self._parts:
            support[part.numbers], hits[part.numbers] = part.engine.count(self._job(part, self.resources))
        return support, hits

    def expected(self) -> FloatArray:
        """How many groundings each rule has, self-supporting ones counted: what grounding will cost."""
        expected = np.zeros(len(self.rules))
        quiet = replace(self.resources, progress=silent)
        for part in self._parts:
            expected[part.numbers] = part.engine.expect(self._job(part, quiet))
        return expected

    def require_engines(self) -> None:
        """Raises an InputError where a rule needs an engine that does not work here."""
        for part in self._parts:
            try:
                part.engine.require()
            except InputError as error:
                raise InputError(f"{self.rules[part.numbers[0]]}: {error}") from None

    def require_memory(self) -> None:
        """Raises an InputError where there are more groundings than the memory holds, before any is made."""
        self._admit(self.expected())

    @cached_property
    def _parts(self) -> list[Part]:
        """The rules by the engine that grounds each."""
        parts: list[Part] = []
        left: Sequence[int] = range(len(self.rules))
        for _, engine in engines(self.engine):
            own = {i for i in left if engine.supports(self.rules[i])}
            parts += [Part(engine, sorted(own))] if own else []
            left = [i for i in left if i not in own]
            if not left:
                return parts
        why = "no engine grounds such a rule"
        if self.engine != AUTO:
            why = f"the {self.engine} engine grounds {engine.scope}; --set grounding.engine=auto tries others too"
        raise InputError(f"{self.rules[left[0]]}: {why}")

    @cached_property
    def _grounding_parts(self) -> list[Part]:
        """The same for grounding: where hidden triples are premises, one engine must know all of them."""
        if self._parts and not (self.linked and len(self._parts) > 1):
            return self._parts
        return [Part(self._engine_of_all(), list(range(len(self.rules))))]

    @property
    def _in_memory(self) -> bool:
        """Whether `grounded` holds every grounding in memory."""
        return len(self._grounding_parts) > 1 or self._grounding_parts[0].engine.in_memory

    def _engine_of_all(self) -> Engine:
        """The first engine that supports all rules."""
        for _, engine in engines(self.engine):
            if all(engine.supports(rule) for rule in self.rules):
                return engine
        raise InputError(
            "no engine grounds all of these rules, as mln.blanket=full and mln.hidden_premises=sampled need; leave"
            f" {self.rules[self._parts[-1].numbers[0]]} out"
        )

    @cached_property
    def _explained(self) -> list[tuple[Part, Explain]]:
        """Each part with what explains a triple by it."""
        return [(part, part.engine.explain(self._job(part, self.resources))) for part in self._parts]

    def _job(self, part: Part, resources: Resources) -> Job:
        return Job(self.graph, [self.rules[i] for i in part.numbers], self.counting, self.linked, resources)

    def _ground(self, part: Part) -> Grounded:
        def admit(expected: FloatArray) -> None:
            every = np.zeros(len(self.rules))
            every[part.numbers] = expected
            self._admit(every)

        return part.engine.ground(self._job(part, replace(self.resources, admit=admit)))

    def _admit(self, expected: FloatArray) -> None:
        if not len(expected):
            return
        worst = int(np.argmax(expected))
        require_bytes(
            expected.sum() * FOUND_BYTES,
            f"up to {expected.sum():,.0f} groundings",
            f"raise rules.min_precision, or leave rules out; the most, {expected[worst]:,.0f}, has {self.rules[worst]}",
        )
        needed, allowed = expected.sum() * GROUNDING_BYTES, allowed_bytes(self.resources.memory_mb)
        if needed > allowed:
            raise InputError(
                f"the rules have up to {expected.sum():,.0f} groundings, which take about {needed / 2**20:,.0f} MB,"
                f" and {allowed / 2**20:,.0f} MB are allowed (grounding.memory_mb). The most, {expected[worst]:,.0f},"
                f" has {self.rules[worst]}. Raise rules.min_precision, leave such rules out, or allow more"
            )
