"""The SQL engine: the native engine's questions in plain SQL, for every connected Horn clause.

Joins, GROUP BY and DISTINCT alone, over tables of whole numbers, so that another engine can run the same text. DuckDB
runs it here, within a given memory; what does not fit is written to a temporary directory.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from plogicnet import config
from plogicnet.errors import InputError
from plogicnet.graph import (
    HEAD,
    RELATION,
    TAIL,
    BoolArray,
    IntArray,
    KnowledgeGraph,
    TripleSet,
    as_triples,
    triple_keys,
)
from plogicnet.grounding.groundings import Groundings
from plogicnet.grounding.mining import Mined, mine_constraints
from plogicnet.grounding.walks import Counting
from plogicnet.progress import Advance, Progress, silent
from plogicnet.rules import Atom, Constant, Rule, RuleTable, Step, Variable, chain_rule, parse_rule

if TYPE_CHECKING:
    import duckdb

MEMORY_MB = 2048
"""What DuckDB may use unless told otherwise; the arrays that come back are not counted in it."""

MOST_PREMISES = 20
"""Planning a join of more takes longer and longer: seconds at 30, minutes at 40."""

PATHS_AT_ONCE = 1 << 22
"""How many two-step paths are about to be grouped at a time: progress between pieces, and hardly ever a spill."""


@dataclass(frozen=True)
class NumberedAtom:
    """A relation's number between two terms, each a variable or an entity's number."""

    relation: int
    head: Variable | int
    tail: Variable | int


@dataclass(frozen=True)
class Clause:
    """A rule in numbers: any connected Horn clause whose hypothesis's variables are in its premises.

    Example:
        >>> x, y = Variable("X"), Variable("Y")
        >>> clause = Clause((NumberedAtom(0, x, y), NumberedAtom(0, y, x)), NumberedAtom(1, x, 7))
    """

    premises: tuple[NumberedAtom, ...]
    hypothesis: NumberedAtom


def clause_of(rule: Rule, graph: KnowledgeGraph) -> Clause:
    """A rule in the graph's numbers.

    Raises:
        InputError: The graph has no such relation or entity, or the rule is a constraint or no connected Horn clause.

    Example:
        >>> graph = KnowledgeGraph.from_names([("anna", "lives_in", "paris")])
        >>> clause_of(parse_rule("lives_in(X, paris) => lives_in(paris, X)"), graph).hypothesis
        NumberedAtom(relation=0, head=1, tail=Variable(name='X'))
    """
    if rule.negated:
        raise InputError(f"{rule}: a constraint has no groundings")
    if len(rule.body) > MOST_PREMISES:
        raise InputError(
            f"{rule.head} is concluded from {len(rule.body):,} premises; the SQL engine joins {MOST_PREMISES} at most"
        )
    if rule.chain is None:
        parse_rule(str(rule))  # what the syntax refuses, a rule made in code cannot have either

    def numbered(atom: Atom) -> NumberedAtom:
        ends = (graph.entities.id(t.name) if isinstance(t, Constant) else t for t in (atom.head, atom.tail))
        return NumberedAtom(graph.relations.id(atom.relation), *ends)

    return Clause(tuple(numbered(atom) for atom in rule.body), numbered(rule.head))


# Mining


def mine_sql(
    graph: KnowledgeGraph,
    settings: config.Rules,
    threads: int = 0,
    progress: Progress = silent,
    memory_mb: int = MEMORY_MB,
) -> Mined:
    """What `mine` gives, counted by SQL.

    Example:
        >>> rows = [("a", "husband", "b"), ("b", "wife", "a"), ("c", "husband", "d")]
        >>> mined = mine_sql(KnowledgeGraph.from_names(rows), config.Rules())
        >>> [str(rule) for rule in mined.rules.rules]
        ['husband(X, Y) => wife(Y, X)', 'wife(X, Y) => husband(Y, X)']
    """
    piece = _pieces(graph.observed, PATHS_AT_ONCE)
    pieces = int(piece.max(initial=0)) + 1
    names = graph.relations.names
    rules: list[Rule] = []
    counts: list[IntArray] = [np.empty((0, 2), dtype=np.int64)]
    candidates = 0
    with (
        _database(threads, memory_mb) as database,
        progress("mining by SQL, pieces", pieces * len(settings.patterns)) as advance,
    ):
        _fill(database, "facts", _columns(graph.observed) | {"piece": piece})
        for pattern in settings.patterns:
            first, second, relation, support, hits = _candidates(database, pattern, pieces, settings.counting, advance)
            candidates += len(support)
            # dividing rounds as the threshold's own decimal does: 3 of 30 is 0.1
            kept = (hits / support >= getattr(settings.min_precision, pattern)) & (support >= settings.min_support)
            counts.append(np.column_stack([support, hits])[kept])
            forward = pattern in ("composition", "subrelation")
            for *body, concluded in np.column_stack([first, second, relation])[kept].tolist():
                steps = [Step(names[r], forward) for r in body if r >= 0]
                rules.append(chain_rule(steps, names[concluded]))
    support, hits = np.concatenate(counts).T
    return Mined(RuleTable.of(rules, support.tolist(), hits.tolist()), mine_constraints(graph, settings), candidates)


# Each pattern's paths from head to tail. own1 says that the path has (head, relation1, tail) among its premises,
# own2 that it has (head, relation2, tail): a rule with that hypothesis would support itself.
_PATHS = {
    "composition": """
        SELECT a.relation AS relation1, b.relation AS relation2, a.head AS head, b.tail AS tail,
            CASE WHEN a.tail = b.tail THEN 1 ELSE 0 END AS own1, CASE WHEN a.head = a.tail THEN 1 ELSE 0 END AS own2
        FROM facts a JOIN facts b ON a.tail = b.head""",
    "subrelation": """
        SELECT a.relation AS relation1, -1 AS relation2, a.head AS head, a.tail AS tail, 1 AS own1, 0 AS own2
        FROM facts a""",
    "inverse": """
        SELECT a.relation AS relation1, -1 AS relation2, a.tail AS head, a.head AS tail,
            CASE WHEN a.head = a.tail THEN 1 ELSE 0 END AS own1, 0 AS own2
        FROM facts a""",
}
_PATHS["symmetric"] = _PATHS["inverse"]

# Which hypotheses are meant, beside all of them.
_HYPOTHESES = {
    "inverse": "WHERE f.relation <> p.relation1",
    "symmetric": "WHERE f.relation = p.relation1",
    "subrelation": "WHERE f.relation <> p.relation1",
}

# A pair of entities with all its paths; it is own where every path is.
_PAIRS = """
    CREATE TABLE pairs AS
    SELECT relation1, relation2, head, tail, COUNT(*) AS paths, MIN(own1) AS own1, MIN(own2) AS own2,
        MIN(CASE WHEN own1 = 1 OR own2 = 1 THEN 1 ELSE 0 END) AS own_either
    FROM ({paths} WHERE a.piece = {piece:d}) s
    GROUP BY relation1, relation2, head, tail"""

_BODIES = """
    INSERT INTO bodies
    SELECT relation1, relation2, SUM({weight}) FROM pairs p GROUP BY relation1, relation2"""

_RULES = """
    INSERT INTO rules
    SELECT p.relation1, p.relation2, f.relation, SUM({weight}), SUM({own})
    FROM pairs p JOIN facts f ON f.head = p.head AND f.tail = p.tail {hypotheses}
    GROUP BY p.relation1, p.relation2, f.relation"""

_OWN = """
    CASE WHEN f.relation = p.relation1 AND f.relation = p.relation2 THEN p.own_either
        WHEN f.relation = p.relation1 THEN p.own1
        WHEN f.relation = p.relation2 THEN p.own2 ELSE 0 END"""

# What supports only itself has its hypothesis among the facts, so it is both a lost hit and lost support.
_CANDIDATES = """
    SELECT r.relation1 AS relation1, r.relation2 AS relation2, r.relation AS relation,
        CAST(b.support - r.own AS BIGINT) AS support, CAST(r.hits - r.own AS BIGINT) AS hits
    FROM (SELECT relation1, relation2, relation, SUM(hits) AS hits, SUM(own) AS own
            FROM rules GROUP BY relation1, relation2, relation) r
        JOIN (SELECT relation1, relation2, SUM(support) AS support FROM bodies GROUP BY relation1, relation2) b
        ON b.relation1 = r.relation1 AND b.relation2 = r.relation2
    WHERE r.hits > r.own
    ORDER BY r.relation1, r.relation2, r.relation"""


def _candidates(
    database: "duckdb.DuckDBPyConnection", pattern: str, pieces: int, counting: Counting, advance: Advance
) -> list[IntArray]:
    """All rules of a pattern with at least one hit: relation1, relation2 (or -1), relation, support, hits."""
    weight, own = ("p.paths", "0") if counting == "paths" else ("1", _OWN)
    database.execute("CREATE TABLE bodies (relation1 BIGINT, relation2 BIGINT, support BIGINT)")
    database.execute(
        "CREATE TABLE rules (relation1 BIGINT, relation2 BIGINT, relation BIGINT, hits BIGINT, own BIGINT)"
    )
    for piece in range(pieces):
        database.execute(_PAIRS.format(paths=_PATHS[pattern], piece=piece))
        database.execute(_BODIES.format(weight=weight))
        database.execute(_RULES.format(weight=weight, own=own, hypotheses=_HYPOTHESES.get(pattern, "")))
        database.execute("DROP TABLE pairs")
        advance()
    found = _fetch(database, _CANDIDATES)
    database.execute("DROP TABLE bodies")
    database.execute("DROP TABLE rules")
    return list(found.values())


def _pieces(facts: TripleSet, paths_at_once: int) -> IntArray:
    """Each fact's piece: one begins about so many two-step paths; facts of one relation and head stay together.

    Example:
        >>> _pieces(TripleSet.of([(0, 0, 1), (0, 0, 2), (1, 0, 0), (2, 0, 0)], entities=3), 2)
        array([0, 0, 1, 2])
    """
    head, tail = facts.triples[:, HEAD], facts.triples[:, TAIL]
    before = np.cumsum(np.append(0, np.bincount(head, minlength=facts.entities)[tail]))[:-1]
    key = facts.keys // facts.entities  # (relation, head)
    return np.asarray(before[np.searchsorted(key, key)] // paths_at_once)


# Grounding


def ground_sql(
    observed: TripleSet,
    clauses: Sequence[Clause],
    counting: Counting,
    hidden_premises: bool = False,
    threads: int = 0,
    progress: Progress = silent,
    memory_mb: int = MEMORY_MB,
) -> Groundings:
    """What `ground_network` gives, for any clauses; rows are sorted by rule, hypothesis and premises.

    Example:
        >>> x, y = Variable("X"), Variable("Y")
        >>> mutual = Clause((NumberedAtom(0, x, y), NumberedAtom(0, y, x)), NumberedAtom(1, x, y))
        >>> network = ground_sql(TripleSet.of([(0, 0, 1), (1, 0, 0)], entities=2), [mutual], "distinct")
        >>> network.hidden.tolist(), network.hypothesis.tolist(), network.premises.tolist()
        ([[0, 1, 1], [1, 1, 0]], [2, 3], [[0, 1], [1, 0]])
    """
    shapes = _by_shape(enumerate(clauses))
    with (
        _database(threads, memory_mb) as database,
        progress("grounding by SQL, rules", 2 * len(clauses)) as advance,
    ):
        _fill(database, "facts", _columns(observed))
        keys = [observed.keys]
        for shape in shapes:
            shape.fill(database)
            found = _fetch(database, shape.conclusions(counting))
            rows = np.column_stack([found["head"], found["relation"], found["tail"]])
            keys.append(triple_keys(rows, observed.entities))
            advance(len(shape.numbers))
        triples = TripleSet.of_keys(np.unique(np.concatenate(keys)), observed.entities)
        is_observed = observed.contains(triples.triples)
        _fill(database, "facts", _columns(triples, None if hidden_premises else is_observed))
        rows = _linked(database, shapes, triples, counting, _width(clauses), advance)
    return Groundings(triples, is_observed, rows[:, 0], rows[:, 1], rows[:, 2:], len(clauses))


def ground_triple_sql(
    observed: TripleSet,
    clauses: Sequence[Clause],
    triple: tuple[int, int, int],
    counting: Counting = "distinct",
    threads: int = 0,
    memory_mb: int = MEMORY_MB,
) -> Groundings:
    """The groundings that conclude one triple from observed premises, over the variables O and the triple alone.

    Example:
        >>> x, y = Variable("X"), Variable("Y")
        >>> inverse = Clause((NumberedAtom(0, x, y),), NumberedAtom(1, y, x))
        >>> found = ground_triple_sql(TripleSet.of([(0, 0, 1), (1, 0, 1)], entities=2), [inverse], (1, 1, 0))
        >>> found.triples.triples[found.premises[0]].tolist()
        [[0, 0, 1]]
    """
    triples = TripleSet.of(np.concatenate([observed.triples, as_triples(triple)]), observed.entities)
    is_observed = observed.contains(triples.triples)
    with _database(threads, memory_mb) as database, silent("", 0) as advance:
        _fill(database, "facts", _columns(triples, is_observed))
        shapes = _by_shape((i, c) for i, c in enumerate(clauses) if c.hypothesis.relation == triple[RELATION])
        rows = _linked(database, shapes, triples, counting, _width(clauses), advance, triple)
    return Groundings(triples, is_observed, rows[:, 0], rows[:, 1], rows[:, 2:], len(clauses))


def count_sql(
    observed: TripleSet,
    clauses: Sequence[Clause],
    counting: Counting,
    threads: int = 0,
    progress: Progress = silent,
    memory_mb: int = MEMORY_MB,
) -> tuple[IntArray, IntArray]:
    """Support and hits of each clause.

    Example:
        >>> x, y = Variable("X"), Variable("Y")
        >>> inverse = Clause((NumberedAtom(0, x, y),), NumberedAtom(1, y, x))
        >>> count_sql(TripleSet.of([(0, 0, 1), (1, 0, 1), (1, 1, 0)], entities=2), [inverse], "distinct")
        (array([2]), array([1]))
    """
    support, hits = np.zeros((2, len(clauses)), dtype=np.int64)
    with _database(threads, memory_mb) as database, progress("counting by SQL, rules", len(clauses)) as advance:
        _fill(database, "facts", _columns(observed))
        for shape in _by_shape(enumerate(clauses)):
            shape.fill(database)
            found = _fetch(database, shape.counts(counting))
            support[found["clause"]], hits[found["clause"]] = found["support"], found["hits"]
            advance(len(shape.numbers))
    return support, hits


@dataclass(frozen=True)
class Shape:
    """Clauses that differ in relations and entities alone: one query grounds them all.

    Relations and entities stand in the table `clauses`, one row a clause, never in the query's text.

    Attributes:
        terms: for each place (the premises' heads and tails in turn, then the hypothesis's) the first place with the
            same variable, -1 where an entity stands.
        numbers: the clauses' numbers.
        clauses: the clauses.
    """

    terms: tuple[int, ...]
    numbers: IntArray
    clauses: list[Clause]

    def fill(self, database: "duckdb.DuckDBPyConnection") -> None:
        """Makes the table `clauses`."""
        columns = {"clause": self.numbers}
        for i in range(len(self.terms) // 2):
            atoms = [(*clause.premises, clause.hypothesis)[i] for clause in self.clauses]
            columns[f"relation{i}"] = np.array([atom.relation for atom in atoms], dtype=np.int64)
            for place, ends in ((2 * i, [a.head for a in atoms]), (2 * i + 1, [a.tail for a in atoms])):
                if self.terms[place] < 0:
                    columns[f"entity{place}"] = np.array(ends, dtype=np.int64)
        _fill(database, "clauses", columns)

    def conclusions(self, counting: Counting) -> str:
        """Every triple that is concluded, once."""
        relation, head, tail = self._hypothesis
        return f"SELECT DISTINCT {relation} AS relation, {head} AS head, {tail} AS tail {self._groundings(counting)}"

    def counts(self, counting: Counting) -> str:
        """For each clause that concludes anything, its support and hits."""
        relation, head, tail = self._hypothesis
        distinct = "DISTINCT" if counting == "distinct" else ""
        concluded = f"SELECT {distinct} c.clause AS clause, {relation} AS relation, {head} AS head, {tail} AS tail"
        return f"""
            SELECT s.clause AS clause, COUNT(*) AS support, COUNT(f.id) AS hits
            FROM ({concluded} {self._groundings(counting)}) s
                LEFT JOIN facts f ON f.relation = s.relation AND f.head = s.head AND f.tail = s.tail
            GROUP BY s.clause"""  # nosec B608 # made of column names of ours; what people give stands in tables

    def links(self, counting: Counting, triple: tuple[int, int, int] | None = None) -> str:
        """Every grounding, or those that conclude one triple; a premise that occurs twice counts once."""
        relation, head, tail = self._hypothesis
        bound = [] if triple is None else [f"{v} = {n:d}" for v, n in zip((head, relation, tail), triple, strict=True)]
        ids = [f"p{i}.id" for i in range(self._premises)]
        once = [
            f"CASE WHEN {ids[i]} IN ({', '.join(ids[:i])}) THEN -1 ELSE {ids[i]} END" if i else ids[i]
            for i in range(self._premises)
        ]
        premises = ", ".join(f"{text} AS premise{i}" for i, text in enumerate(once))
        return f"""
            SELECT c.clause AS clause, {head} AS head, {relation} AS relation, {tail} AS tail, {premises}
            {self._groundings(counting, *bound)}"""

    @property
    def _premises(self) -> int:
        return len(self.terms) // 2 - 1

    @property
    def _hypothesis(self) -> tuple[str, str, str]:
        """Its relation, head and tail as SQL."""
        n = self._premises
        return f"c.relation{n}", self._value(2 * n), self._value(2 * n + 1)

    def _value(self, place: int) -> str:
        """What stands in a place: the clause's entity, or what the variable's first place has."""
        return f"c.entity{place}" if self.terms[place] < 0 else _place(self.terms[place])

    def _groundings(self, counting: Counting, *more: str) -> str:
        """FROM and WHERE of all groundings; under `distinct`, but for those with their hypothesis as a premise."""
        tables = [*(f"facts p{i}" for i in range(self._premises)), "clauses c"]
        conditions = [*more, *(f"p{i}.relation = c.relation{i}" for i in range(self._premises))]
        for place in range(2 * self._premises):
            if self._value(place) != _place(place):
                conditions.append(f"{_place(place)} = {self._value(place)}")
        if counting == "distinct":
            relation, head, tail = self._hypothesis
            conditions += [
                f"NOT (p{i}.relation = {relation} AND p{i}.head = {head} AND p{i}.tail = {tail})"
                for i in range(self._premises)
            ]
        return f"FROM {', '.join(tables)} WHERE {' AND '.join(conditions)}"


def _place(place: int) -> str:
    return f"p{place // 2}.{'tail' if place % 2 else 'head'}"


def _by_shape(numbered: Iterable[tuple[int, Clause]]) -> list[Shape]:
    groups: dict[tuple[int, ...], dict[int, Clause]] = {}
    for number, clause in numbered:
        ends = [end for atom in (*clause.premises, clause.hypothesis) for end in (atom.head, atom.tail)]
        terms = tuple(ends.index(end) if isinstance(end, Variable) else -1 for end in ends)
        groups.setdefault(terms, {})[number] = clause
    return [Shape(terms, np.array(list(group)), list(group.values())) for terms, group in groups.items()]


def _linked(
    database: "duckdb.DuckDBPyConnection",
    shapes: Sequence[Shape],
    triples: TripleSet,
    counting: Counting,
    width: int,
    advance: Advance,
    triple: tuple[int, int, int] | None = None,
) -> IntArray:
    """Groundings with hypotheses among the triples: sorted rows of rule, hypothesis, premises; -1 fills the rest."""
    parts = [np.empty((0, 2 + width), dtype=np.int64)]
    for shape in shapes:
        shape.fill(database)
        clause, head, relation, tail, *premises = _fetch(database, shape.links(counting, triple)).values()
        # found here rather than by one more join, which could be tried before the selective ones
        hypothesis = triples.find(np.column_stack([head, relation, tail]))
        found = np.column_stack([clause, hypothesis, *premises])[hypothesis >= 0]
        parts.append(np.pad(found, ((0, 0), (0, width - len(premises))), constant_values=-1))
        advance(len(shape.numbers))
    rows = np.concatenate(parts)
    return np.asarray(rows[np.lexsort(rows.T[::-1])])


def _width(clauses: Sequence[Clause]) -> int:
    return max((len(clause.premises) for clause in clauses), default=1)


# DuckDB


@contextmanager
def _database(threads: int, memory_mb: int) -> Iterator["duckdb.DuckDBPyConnection"]:
    try:
        import duckdb
    except ImportError:
        raise InputError("the SQL engine needs DuckDB; install it with: pip install 'plogicnet[sql]'") from None
    with tempfile.TemporaryDirectory(prefix="plogicnet-sql-") as spill:
        given: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{memory_mb}MB",
            "temp_directory": spill,
            "preserve_insertion_order": False,
        }
        database = duckdb.connect(":memory:", config=given | ({"threads": threads} if threads else {}))
        try:
            yield database
        except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"the SQL engine had too little with {memory_mb:,} MB of memory and the disk at {spill}: {reason}"
            ) from None
        finally:
            database.close()


def _columns(triples: TripleSet, kept: BoolArray | None = None) -> dict[str, IntArray]:
    """A table of (some of) the triples, each with its row as id."""
    rows = np.arange(len(triples)) if kept is None else np.flatnonzero(kept)
    chosen = triples.triples[rows]
    return {"id": rows, "head": chosen[:, HEAD], "relation": chosen[:, RELATION], "tail": chosen[:, TAIL]}


def _fill(database: "duckdb.DuckDBPyConnection", name: str, columns: Mapping[str, IntArray]) -> None:
    """Makes a table of whole numbers, in place of an earlier one of that name."""
    # half the width where numbers are small enough is half the memory of every join
    narrow = {c: v.astype(np.int32) if v.max(initial=0) < 2**31 else v for c, v in columns.items()}
    database.register("given", pa.table(narrow))
    database.execute(f"DROP TABLE IF EXISTS {name}")
    database.execute(f"CREATE TABLE {name} AS SELECT * FROM given")  # nosec B608 # the name is one of ours
    database.unregister("given")


def _fetch(database: "duckdb.DuckDBPyConnection", query: str) -> dict[str, IntArray]:
    return {name: np.asarray(values, dtype=np.int64) for name, values in database.execute(query).fetchnumpy().items()}
