"""The ground network of a graph and its rules: as a whole once that is asked for, or around one triple alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec

import numpy as np

from plogicnet import config
from plogicnet.errors import InputError
from plogicnet.graph import FloatArray, IntArray, KnowledgeGraph, TripleSet
from plogicnet.grounding.groundings import Groundings, expected_groundings, ground_network
from plogicnet.grounding.sql import clause_of, count_sql, ground_sql, ground_triple_sql
from plogicnet.grounding.walks import Chain, Counting, World, chain_of, count, ground
from plogicnet.memory import allowed_bytes, engine_mb, require_bytes
from plogicnet.progress import Progress, silent
from plogicnet.rules import Rule

GROUNDING_BYTES = 100
"""What one grounding takes at the peak of learning, with all that comes of it."""
FOUND_BYTES = 45
"""What one grounding takes as it is found."""


@dataclass(frozen=True)
class Network:
    """The groundings of rules in a graph; chains go to the native engine, other clauses to the SQL engine.

    Attributes:
        linked: whether hidden triples can be premises too.

    Example:
        >>> from plogicnet.rules import parse_rule
        >>> graph = KnowledgeGraph.from_names([("a", "husband", "b"), ("c", "wife", "d")])
        >>> network = Network(graph, (parse_rule("husband(X, Y) => wife(Y, X)"),), "distinct")
        >>> len(network.groundings.hidden), network.of_triple(graph.numbers("b", "wife", "a"))[0].tolist()
        (1, [[[0, 0, 1]]])
    """

    graph: KnowledgeGraph
    rules: tuple[Rule, ...]
    counting: Counting
    linked: bool = False
    settings: config.Grounding = field(default_factory=config.Grounding)
    threads: int = 0
    progress: Progress = field(default=silent, repr=False, compare=False)

    @cached_property
    def groundings(self) -> Groundings:
        """Every grounding, and the hidden triples."""
        self.require_memory()
        walked, joined = self._walked, self._joined
        # where hidden triples can be premises, each engine would need the hidden triples of the other
        if not walked or (joined and self.linked):
            walked, joined = [], list(range(len(self.rules)))
        observed = self.graph.observed
        parts = []
        if walked or not joined:
            chains = [self._chain(i) for i in walked]
            numbers = np.array(walked, dtype=np.int64)

            def check(world: World) -> None:
                """With hidden premises there are more groundings than O alone has."""
                expected = np.zeros(len(self.rules))
                expected[numbers] = expected_groundings(world, chains)
                self._refuse_beyond_memory(expected)

            native = ground_network(observed, chains, self.counting, self.linked, self.threads, self.progress, check)
            parts.append((walked, native))
        if joined:
            clauses = [clause_of(self.rules[i], self.graph) for i in joined]
            by_sql = ground_sql(
                observed, clauses, self.counting, self.linked, self.threads, self.progress, self._sql_memory
            )
            parts.append((joined, by_sql))
        return parts[0][1] if len(parts) == 1 else _merged(parts, observed, len(self.rules))

    def of_triple(self, triple: IntArray) -> dict[int, IntArray]:
        """The groundings that conclude one triple from observed facts: for each rule, its premises, (n, premises, 3).

        The whole network is not built for it.
        """
        facts = self.graph.observed
        head, relation, tail = (int(part) for part in triple)
        found: dict[int, IntArray] = {}
        for i in self._walked:
            if self._chain(i).relation == relation:
                walks = list(ground(self.world, self._chain(i), self.counting, start=head, end=tail))
                found[i] = facts.triples[np.concatenate([w.premises for w in walks])]
        joined = [i for i in self._joined if self.graph.relations.id(self.rules[i].head.relation) == relation]
        if joined:
            clauses = [clause_of(self.rules[i], self.graph) for i in joined]
            asked = (head, relation, tail)
            by_sql = ground_triple_sql(facts, clauses, asked, self.counting, self.threads, self._sql_memory)
            for at, i in enumerate(joined):
                rows = by_sql.premises[by_sql.rule == at][:, : len(self.rules[i].body)]
                found[i] = np.where((rows >= 0)[:, :, None], by_sql.triples.triples[rows], -1)
        return {i: found[i] for i in sorted(found) if len(found[i])}

    def counts(self) -> tuple[IntArray, IntArray]:
        """Support and hits of each rule."""
        self.require_memory()
        support, hits = np.zeros((2, len(self.rules)), dtype=np.int64)
        with self.progress("counting written rules", len(self._walked)) as advance:
            for i in self._walked:
                support[i], hits[i] = count(self.world, self._chain(i), self.counting)
                advance()
        if self._joined:
            support[self._joined], hits[self._joined] = self._counted_by_sql(self.counting)
        return support, hits

    def require_engines(self) -> None:
        """Says before any work which rule needs an engine that is not there."""
        if self._joined and find_spec("duckdb") is None:
            rule = self.rules[self._joined[0]]
            why = "is no chain of relations, so" if rule.chain is None else "is to go to the SQL engine:"
            raise InputError(f"{rule} {why} it needs DuckDB; install it with: pip install 'plogicnet[sql]'")

    def expected(self) -> FloatArray:
        """How many groundings each rule has, self-supporting ones counted: what grounding will cost."""
        expected = np.zeros(len(self.rules))
        expected[self._walked] = expected_groundings(self.world, [self._chain(i) for i in self._walked])
        if self._joined:
            expected[self._joined] = self._counted_by_sql("paths")[0]
        return expected

    @cached_property
    def world(self) -> World:
        """The observed facts, indexed for walking in both directions."""
        return World(self.graph.observed)

    @cached_property
    def _walked(self) -> list[int]:
        """The rules that the native engine grounds."""
        if self.settings.engine == "sql":
            return []
        general = [rule for rule in self.rules if rule.chain is None]
        if general and self.settings.engine == "native":
            raise InputError(
                f"{general[0]}: the native engine grounds chains of relations only; --set grounding.engine=auto"
                " sends other rules to the SQL engine"
            )
        return [i for i, rule in enumerate(self.rules) if rule.chain is not None]

    @cached_property
    def _joined(self) -> list[int]:
        """The rules that the SQL engine grounds."""
        walked = set(self._walked)
        return [i for i in range(len(self.rules)) if i not in walked]

    @cached_property
    def _chains(self) -> dict[int, Chain]:
        return {i: chain_of(self.rules[i], self.graph.relations) for i in self._walked}

    def _chain(self, number: int) -> Chain:
        return self._chains[number]

    @property
    def _sql_memory(self) -> int:
        return engine_mb(self.settings.memory_mb)

    def _counted_by_sql(self, counting: Counting) -> tuple[IntArray, IntArray]:
        clauses = [clause_of(self.rules[i], self.graph) for i in self._joined]
        return count_sql(self.graph.observed, clauses, counting, self.threads, memory_mb=self._sql_memory)

    def require_memory(self) -> None:
        """Refuses, before any is made, more groundings than the memory holds."""
        self._refuse_beyond_memory(self.expected())

    def _refuse_beyond_memory(self, expected: FloatArray) -> None:
        if not len(expected):
            return
        worst = int(np.argmax(expected))
        require_bytes(
            expected.sum() * FOUND_BYTES,
            f"up to {expected.sum():,.0f} groundings",
            f"raise rules.min_precision, or leave rules out; the most, {expected[worst]:,.0f}, has {self.rules[worst]}",
        )
        needed, allowed = expected.sum() * GROUNDING_BYTES, allowed_bytes(self.settings.memory_mb)
        if needed > allowed:
            raise InputError(
                f"the rules have up to {expected.sum():,.0f} groundings, which take about {needed / 2**20:,.0f} MB,"
                f" and {allowed / 2**20:,.0f} MB are allowed (grounding.memory_mb). The most, {expected[worst]:,.0f},"
                f" has {self.rules[worst]}. Raise rules.min_precision, leave such rules out, or allow more"
            )


def _merged(parts: Sequence[tuple[list[int], Groundings]], observed: TripleSet, rules: int) -> Groundings:
    """The groundings of several engines over all their triples, in the order of rules."""
    keys = np.unique(np.concatenate([part.triples.keys for _, part in parts]))
    triples = TripleSet.of_keys(keys, observed.entities)
    width = max(part.premises.shape[1] for _, part in parts)
    columns = []
    for numbers, part in parts:
        rows = np.append(np.searchsorted(keys, part.triples.keys), -1)  # the padding stays -1
        missing = width - part.premises.shape[1]
        premises = np.pad(rows[part.premises], ((0, 0), (0, missing)), constant_values=-1)
        columns.append((np.array(numbers, dtype=np.int64)[part.rule], rows[part.hypothesis], premises))
    rule, hypothesis, premises = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.argsort(rule, kind="stable")
    is_observed = observed.contains_keys(keys)
    return Groundings(triples, is_observed, rule[order], hypothesis[order], premises[order], rules)
