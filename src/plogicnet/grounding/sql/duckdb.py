"""The SQL engine. DuckDB runs the queries within a memory limit and spills to a temporary directory."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from plogicnet import config
from plogicnet.config.shapes import ChainShape, shapes_of
from plogicnet.graph import (
    HEAD,
    RELATION,
    TAIL,
    BoolArray,
    FloatArray,
    IntArray,
    KnowledgeGraph,
    TripleSet,
    as_triples,
    triple_keys,
)
from plogicnet.grounding.engine import CountingMode, Engine, GroundingLookup, GroundingTask, MiningResult, Resources
from plogicnet.grounding.groundings import StoredGroundNetwork
from plogicnet.grounding.mining import CandidateRules, mining_result
from plogicnet.grounding.sql.clauses import Clause, clause_of, templates_of
from plogicnet.grounding.sql.text import GroundingQueries, MiningQueries, create_groundings_table, sorted_groundings
from plogicnet.rules import Rule
from plogicnet.support.errors import InputError
from plogicnet.support.memory import engine_mb

if TYPE_CHECKING:
    import duckdb

CHUNK_PATHS = 1 << 22
"""The approximate number of two-step paths per piece (see `MiningQueries`), small enough that DuckDB rarely spills."""
DUCKDB_MISSING = "the SQL engine needs DuckDB. Install it with: pip install 'plogicnet[sql]'"


class SqlEngine:
    """The engine for connected Horn clauses; see `Engine`."""

    scope = "rules with a positive hypothesis"
    in_memory = False

    def supports(self, rule: Rule) -> bool:
        """Return whether the rule is not a constraint."""
        return not rule.negated

    def check_available(self) -> None:
        """Raise InputError if DuckDB is not installed."""
        if find_spec("duckdb") is None:
            raise InputError(DUCKDB_MISSING)

    def supports_shape(self, shape: ChainShape) -> bool:  # noqa: ARG002
        """Return True: the engine mines chains of any shape."""
        return True

    def mine(self, graph: KnowledgeGraph, settings: config.Rules, resources: Resources) -> MiningResult:
        """Mine rules by grouping the paths of each shape."""
        return mine(graph, settings, resources)

    def count(self, task: GroundingTask) -> tuple[IntArray, IntArray]:
        """Return support and hits of each rule."""
        return count_clauses(task.graph.observed, _clauses(task), task.counting, task.resources)

    def count_groundings(self, task: GroundingTask) -> FloatArray:
        """Count all groundings of each rule."""
        return self.count(replace(task, counting="paths"))[0].astype(np.float64)

    def ground(self, task: GroundingTask) -> StoredGroundNetwork:
        """Ground the rules into a Parquet file."""
        return ground_clauses(task.graph.observed, _clauses(task), task.counting, task.hidden_premises, task.resources)

    def grounding_lookup(self, task: GroundingTask) -> GroundingLookup:
        """Return a function that queries the groundings of a triple."""
        clauses = _clauses(task)
        return lambda triple: ground_triple(task.graph.observed, clauses, triple, task.counting, task.resources)


def _clauses(task: GroundingTask) -> list[Clause]:
    return [clause_of(rule, task.graph) for rule in task.rules]


def mine(graph: KnowledgeGraph, settings: config.Rules, resources: Resources | None = None) -> MiningResult:
    """Count every candidate rule and return the rules that reach the thresholds (Sec. 5.1 of the paper).

    Example:
        >>> rows = [("a", "husband", "b"), ("b", "wife", "a"), ("c", "husband", "d")]
        >>> mined = mine(KnowledgeGraph.from_names(rows), config.Rules())
        >>> [str(rule) for rule in mined.rules.rules]
        ['husband(X, Y) => wife(Y, X)', 'wife(X, Y) => husband(Y, X)']
    """
    _require_patterns_alone(settings)
    resources, shapes = resources or Resources(), shapes_of(settings.patterns)
    forward, backward = (_piece_of_each_fact(graph.observed, start) for start in (HEAD, TAIL))
    n_pieces = {True: int(forward.max(initial=0)) + 1, False: int(backward.max(initial=0)) + 1}
    candidates = []
    with (
        _open_database(resources) as database,
        resources.progress(
            "mining with SQL, chunks of paths", sum(n_pieces[shape.forward[0]] for shape in shapes)
        ) as advance,
    ):
        _create_table(
            database, "facts", _triple_columns(graph.observed) | {"piece_forward": forward, "piece_backward": backward}
        )
        for shape in shapes:
            queries = MiningQueries(shape, settings.counting)
            _execute(database, queries.create_tables)
            for piece in range(n_pieces[shape.forward[0]]):
                _execute(database, queries.count_piece(piece))
                advance()
            *columns, support, hits = _query(database, queries.candidates).values()
            candidates.append(CandidateRules.from_counts(shape, columns, support, hits, settings))
            _execute(database, queries.drop_tables)
    return mining_result(graph, settings, candidates)


def _require_patterns_alone(settings: config.Rules) -> None:
    """Raise InputError if the settings ask for rules that only the native engine mines."""
    wanted = {
        "rules.max_length=3": settings.max_length == 3,
        "rules.backward=true": settings.backward,
        "rules.constants=true": settings.constants,
    }
    if any(wanted.values()):
        names = " and ".join(name for name, is_wanted in wanted.items() if is_wanted)
        raise InputError(
            f"{names}: the SQL engine mines only the patterns of rules.patterns. Use --set grounding.engine=native, and"
            " only patterns that the native engine mines."
        )


def _piece_of_each_fact(facts: TripleSet, start: int) -> IntArray:
    """Return the index of each fact's piece. About CHUNK_PATHS two-step paths begin with the facts of a piece.

    `start` is the column of the path's first entity, HEAD or TAIL. Facts with the same relation and first entity are in
    the same piece.

    Example:
        >>> _piece_of_each_fact(TripleSet.of([(0, 0, 1), (0, 0, 2), (1, 0, 0), (2, 0, 0)], entities=3), HEAD)
        array([0, 0, 0, 0])
    """
    starts, ends = facts.triples[:, start], facts.triples[:, HEAD + TAIL - start]
    order = np.lexsort((starts, facts.triples[:, RELATION]))
    n_paths = np.bincount(facts.triples[:, HEAD], minlength=facts.entities)[ends[order]]
    key = (facts.triples[:, RELATION] * facts.entities + starts)[order]
    n_before = np.append(0, np.cumsum(n_paths))[np.searchsorted(key, key)]
    pieces = np.empty(len(facts), dtype=np.int64)
    pieces[order] = n_before // CHUNK_PATHS
    return pieces


def ground_clauses(
    observed: TripleSet,
    clauses: Sequence[Clause],
    counting: CountingMode,
    hidden_premises: bool = False,
    resources: Resources | None = None,
) -> StoredGroundNetwork:
    """Find the hidden triples H and all groundings that conclude a triple of O ∪ H.

    Example:
        >>> from plogicnet.grounding.sql.clauses import EncodedAtom
        >>> from plogicnet.rules import Variable
        >>> x, y = Variable("X"), Variable("Y")
        >>> mutual = Clause((EncodedAtom(0, x, y), EncodedAtom(0, y, x)), EncodedAtom(1, x, y))
        >>> network = ground_clauses(TripleSet.of([(0, 0, 1), (1, 0, 0)], entities=2), [mutual], "distinct")
        >>> network.hidden.tolist(), network.load().premises.tolist()
        ([[0, 1, 1], [1, 1, 0]], [[0, 1], [1, 0]])
    """
    resources = resources or Resources()
    templates, width = templates_of(enumerate(clauses)), _max_premises(clauses)
    with _open_database(resources) as database:
        _create_table(database, "facts", _triple_columns(observed))
        keys = [observed.keys]
        with resources.progress("finding hidden triples with SQL, rules", len(clauses)) as advance:
            for template in templates:
                _create_table(database, "clauses", template.columns)
                rows = _query(database, GroundingQueries(template.terms, counting).conclusions)
                keys.append(triple_keys(np.column_stack([rows["h"], rows["r"], rows["t"]]), observed.entities))
                advance(len(template.clause_indices))
        triples = TripleSet.of_keys(np.unique(np.concatenate(keys)), observed.entities)
        is_observed = observed.contains(triples.triples)
        _create_table(database, "facts", _triple_columns(triples, None if hidden_premises else is_observed))
        _create_table(database, "variables", _triple_columns(triples))
        _execute(database, [create_groundings_table(width)])
        with resources.progress("grounding with SQL, rules", len(clauses)) as advance:
            for template in templates:
                _create_table(database, "clauses", template.columns)
                # `sorted_groundings` joins with `variables` later: DuckDB might run that join before selective ones
                query = GroundingQueries(template.terms, counting).groundings(width)
                _execute(database, [f"INSERT INTO groundings {query}"])
                advance(len(template.clause_indices))
        file = Path(tempfile.mkdtemp(prefix="plogicnet-groundings-")) / "groundings.parquet"
        stored = StoredGroundNetwork(triples, is_observed, len(clauses), file)  # deletes the directory if COPY fails
        quoted = str(file).replace("'", "''")
        _execute(database, [f"COPY ({sorted_groundings(width)}) TO '{quoted}' (FORMAT parquet)"])
    return stored


def ground_triple(
    observed: TripleSet, clauses: Sequence[Clause], triple: IntArray, counting: CountingMode, resources: Resources
) -> dict[int, IntArray]:
    """Return the premises of the groundings that conclude a triple from observed premises, by index of the clause.

    Example:
        >>> from plogicnet.grounding.sql.clauses import EncodedAtom
        >>> from plogicnet.rules import Variable
        >>> x, y = Variable("X"), Variable("Y")
        >>> inverse = Clause((EncodedAtom(0, x, y),), EncodedAtom(1, y, x))
        >>> facts = TripleSet.of([(0, 0, 1), (1, 0, 1)], entities=2)
        >>> ground_triple(facts, [inverse], np.array([1, 1, 0]), "distinct", Resources())[0].tolist()
        [[[0, 0, 1]]]
    """
    head, relation, tail = (int(part) for part in triple)
    templates = templates_of((i, c) for i, c in enumerate(clauses) if c.hypothesis.relation == relation)
    premises_by_clause: dict[int, IntArray] = {}
    if not templates:
        return premises_by_clause
    facts = np.append(observed.triples, as_triples([-1, -1, -1]), axis=0)  # premise -1, the padding, selects this row
    with _open_database(resources) as database:
        _create_table(database, "facts", _triple_columns(observed))
        for template in templates:
            _create_table(database, "clauses", template.columns)
            width = len(template.terms) // 2 - 1
            query = GroundingQueries(template.terms, counting).groundings(width, (head, relation, tail))
            clause, _, _, _, *premises = _query(database, query).values()
            rows = np.column_stack([clause, *premises])
            rows = rows[np.lexsort(rows.T[::-1])]
            for index in np.unique(clause).tolist():
                premises_by_clause[index] = facts[rows[rows[:, 0] == index, 1:]]
    return dict(sorted(premises_by_clause.items()))


def count_clauses(
    observed: TripleSet, clauses: Sequence[Clause], counting: CountingMode, resources: Resources | None = None
) -> tuple[IntArray, IntArray]:
    """Return support and hits of each clause.

    Example:
        >>> from plogicnet.grounding.sql.clauses import EncodedAtom
        >>> from plogicnet.rules import Variable
        >>> x, y = Variable("X"), Variable("Y")
        >>> inverse = Clause((EncodedAtom(0, x, y),), EncodedAtom(1, y, x))
        >>> count_clauses(TripleSet.of([(0, 0, 1), (1, 0, 1), (1, 1, 0)], entities=2), [inverse], "distinct")
        (array([2]), array([1]))
    """
    resources = resources or Resources()
    support, hits = np.zeros((2, len(clauses)), dtype=np.int64)
    with (
        _open_database(resources) as database,
        resources.progress("counting with SQL, rules", len(clauses)) as advance,
    ):
        _create_table(database, "facts", _triple_columns(observed))
        for template in templates_of(enumerate(clauses)):
            _create_table(database, "clauses", template.columns)
            rows = _query(database, GroundingQueries(template.terms, counting).counts)
            support[rows["clause"]], hits[rows["clause"]] = rows["support"], rows["hits"]
            advance(len(template.clause_indices))
    return support, hits


def _max_premises(clauses: Sequence[Clause]) -> int:
    return max((len(clause.premises) for clause in clauses), default=1)


@contextmanager
def _open_database(resources: Resources) -> Iterator["duckdb.DuckDBPyConnection"]:
    try:
        import duckdb
    except ImportError:
        raise InputError(DUCKDB_MISSING) from None
    memory_mb = engine_mb(resources.memory_mb)
    with tempfile.TemporaryDirectory(prefix="plogicnet-sql-") as spill:
        options: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{memory_mb}MB",
            "temp_directory": spill,
            "preserve_insertion_order": False,
        }
        options |= {"threads": resources.threads} if resources.threads else {}
        database = duckdb.connect(":memory:", config=options)
        try:
            yield database
        except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"the SQL engine ran out of memory ({memory_mb:,} MB) or of disk space in {spill}: {reason}"
            ) from None
        finally:
            database.close()


def _triple_columns(triples: TripleSet, mask: BoolArray | None = None) -> dict[str, IntArray]:
    """Return the columns of a table of the triples (with `mask`, of the selected ones). A triple's id is its row."""
    rows = np.arange(len(triples)) if mask is None else np.flatnonzero(mask)
    selected = triples.triples[rows]
    return {"id": rows, "head": selected[:, HEAD], "relation": selected[:, RELATION], "tail": selected[:, TAIL]}


def _create_table(database: "duckdb.DuckDBPyConnection", name: str, columns: Mapping[str, IntArray]) -> None:
    """Create or replace a table of integers."""
    # int32 halves the memory of every join
    narrowed = {c: v.astype(np.int32) if v.max(initial=0) < 2**31 else v for c, v in columns.items()}
    database.register("given", pa.table(narrowed))
    database.execute(f"DROP TABLE IF EXISTS {name}")
    database.execute(f"CREATE TABLE {name} AS SELECT * FROM given")  # nosec B608 # the name is a constant
    database.unregister("given")


def _execute(database: "duckdb.DuckDBPyConnection", statements: Sequence[str]) -> None:
    for statement in statements:
        database.execute(statement)


def _query(database: "duckdb.DuckDBPyConnection", query: str) -> dict[str, IntArray]:
    return {name: np.asarray(values, dtype=np.int64) for name, values in database.execute(query).fetchnumpy().items()}


SQL: Engine = SqlEngine()
