"""The SQL engine by DuckDB, within a given memory; what does not fit is written to a temporary directory."""

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
from plogicnet.grounding.engine import Counting, Engine, Explain, Job, Mined, Resources
from plogicnet.grounding.groundings import StoredGroundings
from plogicnet.grounding.mining import Candidates, mined_of
from plogicnet.grounding.sql.clauses import Clause, clause_of, forms_of
from plogicnet.grounding.sql.text import JoinText, MiningText, create_links, ordered_links
from plogicnet.rules import Rule
from plogicnet.support.errors import InputError
from plogicnet.support.memory import engine_mb

if TYPE_CHECKING:
    import duckdb

PATHS_AT_ONCE = 1 << 22
"""About how many two-step paths are grouped at a time: progress between pieces, and hardly ever a spill."""
MISSING = "the SQL engine needs DuckDB; install it with: pip install 'plogicnet[sql]'"


class SqlEngine:
    """Every connected Horn clause, by joins in DuckDB; see `Engine`."""

    scope = "rules with a positive hypothesis"
    in_memory = False

    def supports(self, rule: Rule) -> bool:
        """All but constraints."""
        return not rule.negated

    def require(self) -> None:
        """DuckDB must be installed."""
        if find_spec("duckdb") is None:
            raise InputError(MISSING)

    def mines(self, shape: ChainShape) -> bool:  # noqa: ARG002
        """Any chain."""
        return True

    def mine(self, graph: KnowledgeGraph, settings: config.Rules, resources: Resources) -> Mined:
        """Groups the paths of each shape, in pieces."""
        return mine(graph, settings, resources)

    def count(self, job: Job) -> tuple[IntArray, IntArray]:
        """Support and hits."""
        return count_clauses(job.graph.observed, _clauses(job), job.counting, job.resources)

    def expect(self, job: Job) -> FloatArray:
        """Counts all groundings."""
        return self.count(replace(job, counting="paths"))[0].astype(np.float64)

    def ground(self, job: Job) -> StoredGroundings:
        """A file of links."""
        return ground_clauses(job.graph.observed, _clauses(job), job.counting, job.hidden_premises, job.resources)

    def explain(self, job: Job) -> Explain:
        """A query with the triple's entities in it."""
        clauses = _clauses(job)
        return lambda triple: ground_triple(job.graph.observed, clauses, triple, job.counting, job.resources)


def _clauses(job: Job) -> list[Clause]:
    return [clause_of(rule, job.graph) for rule in job.rules]


def mine(graph: KnowledgeGraph, settings: config.Rules, resources: Resources | None = None) -> Mined:
    """Counts every candidate rule exactly and keeps those of enough precision and support (Sec. 5.1).

    Example:
        >>> rows = [("a", "husband", "b"), ("b", "wife", "a"), ("c", "husband", "d")]
        >>> mined = mine(KnowledgeGraph.from_names(rows), config.Rules())
        >>> [str(rule) for rule in mined.rules.rules]
        ['husband(X, Y) => wife(Y, X)', 'wife(X, Y) => husband(Y, X)']
    """
    resources, shapes = resources or Resources(), shapes_of(settings.patterns)
    forward, backward = (_pieces(graph.observed, start) for start in (HEAD, TAIL))
    pieces = {True: int(forward.max(initial=0)) + 1, False: int(backward.max(initial=0)) + 1}
    found = []
    with (
        _database(resources) as database,
        resources.progress("mining by SQL, pieces", sum(pieces[shape.steps[0]] for shape in shapes)) as advance,
    ):
        _fill(database, "facts", _columns(graph.observed) | {"piece_forward": forward, "piece_backward": backward})
        for shape in shapes:
            text = MiningText(shape, settings.counting)
            _run(database, text.create)
            for piece in range(pieces[shape.steps[0]]):
                _run(database, text.piece(piece))
                advance()
            *columns, support, hits = _fetch(database, text.candidates).values()
            found.append(Candidates.kept(shape, columns, support, hits, settings))
            _run(database, text.drop)
    return mined_of(graph, settings, found)


def _pieces(facts: TripleSet, start: int) -> IntArray:
    """Each fact's piece: one begins about so many two-step paths; facts of one relation and start stay together.

    Example:
        >>> _pieces(TripleSet.of([(0, 0, 1), (0, 0, 2), (1, 0, 0), (2, 0, 0)], entities=3), HEAD)
        array([0, 0, 0, 0])
    """
    here, there = facts.triples[:, start], facts.triples[:, HEAD + TAIL - start]
    order = np.lexsort((here, facts.triples[:, RELATION]))
    paths = np.bincount(facts.triples[:, HEAD], minlength=facts.entities)[there[order]]
    key = (facts.triples[:, RELATION] * facts.entities + here)[order]
    before = np.append(0, np.cumsum(paths))[np.searchsorted(key, key)]
    pieces = np.empty(len(facts), dtype=np.int64)
    pieces[order] = before // PATHS_AT_ONCE
    return pieces


def ground_clauses(
    observed: TripleSet,
    clauses: Sequence[Clause],
    counting: Counting,
    hidden_premises: bool = False,
    resources: Resources | None = None,
) -> StoredGroundings:
    """Finds H and links every grounding whose hypothesis is in O ∪ H.

    Example:
        >>> from plogicnet.grounding.sql.clauses import NumberedAtom
        >>> from plogicnet.rules import Variable
        >>> x, y = Variable("X"), Variable("Y")
        >>> mutual = Clause((NumberedAtom(0, x, y), NumberedAtom(0, y, x)), NumberedAtom(1, x, y))
        >>> network = ground_clauses(TripleSet.of([(0, 0, 1), (1, 0, 0)], entities=2), [mutual], "distinct")
        >>> network.hidden.tolist(), network.arrays().premises.tolist()
        ([[0, 1, 1], [1, 1, 0]], [[0, 1], [1, 0]])
    """
    resources = resources or Resources()
    forms, width = forms_of(enumerate(clauses)), _width(clauses)
    with (
        _database(resources) as database,
        resources.progress("grounding by SQL, rules", 2 * len(clauses)) as advance,
    ):
        _fill(database, "facts", _columns(observed))
        keys = [observed.keys]
        for form in forms:
            _fill(database, "clauses", form.columns)
            found = _fetch(database, JoinText(form.terms, counting).conclusions)
            keys.append(triple_keys(np.column_stack([found["h"], found["r"], found["t"]]), observed.entities))
            advance(len(form.numbers))
        triples = TripleSet.of_keys(np.unique(np.concatenate(keys)), observed.entities)
        is_observed = observed.contains(triples.triples)
        _fill(database, "facts", _columns(triples, None if hidden_premises else is_observed))
        _fill(database, "variables", _columns(triples))
        _run(database, [create_links(width)])
        for form in forms:
            _fill(database, "clauses", form.columns)
            # without the join with variables, which could be tried before the selective ones
            _run(database, [f"INSERT INTO links {JoinText(form.terms, counting).links(width)}"])
            advance(len(form.numbers))
        file = Path(tempfile.mkdtemp(prefix="plogicnet-links-")) / "links.parquet"
        stored = StoredGroundings(triples, is_observed, len(clauses), file)  # removes the folder if what follows fails
        quoted = str(file).replace("'", "''")
        _run(database, [f"COPY ({ordered_links(width)}) TO '{quoted}' (FORMAT parquet)"])
    return stored


def ground_triple(
    observed: TripleSet, clauses: Sequence[Clause], triple: IntArray, counting: Counting, resources: Resources
) -> dict[int, IntArray]:
    """The groundings that conclude one triple from observed premises: for each clause that has some, their premises.

    Example:
        >>> from plogicnet.grounding.sql.clauses import NumberedAtom
        >>> from plogicnet.rules import Variable
        >>> x, y = Variable("X"), Variable("Y")
        >>> inverse = Clause((NumberedAtom(0, x, y),), NumberedAtom(1, y, x))
        >>> facts = TripleSet.of([(0, 0, 1), (1, 0, 1)], entities=2)
        >>> ground_triple(facts, [inverse], np.array([1, 1, 0]), "distinct", Resources())[0].tolist()
        [[[0, 0, 1]]]
    """
    head, relation, tail = (int(part) for part in triple)
    forms = forms_of((i, c) for i, c in enumerate(clauses) if c.hypothesis.relation == relation)
    found: dict[int, IntArray] = {}
    if not forms:
        return found
    facts = np.append(observed.triples, as_triples([-1, -1, -1]), axis=0)  # the padding is row -1
    with _database(resources) as database:
        _fill(database, "facts", _columns(observed))
        for form in forms:
            _fill(database, "clauses", form.columns)
            width = len(form.terms) // 2 - 1
            text = JoinText(form.terms, counting).links(width, (head, relation, tail))
            clause, _, _, _, *premises = _fetch(database, text).values()
            rows = np.column_stack([clause, *premises])
            rows = rows[np.lexsort(rows.T[::-1])]
            for number in np.unique(clause).tolist():
                found[number] = facts[rows[rows[:, 0] == number, 1:]]
    return dict(sorted(found.items()))


def count_clauses(
    observed: TripleSet, clauses: Sequence[Clause], counting: Counting, resources: Resources | None = None
) -> tuple[IntArray, IntArray]:
    """Support and hits of each clause.

    Example:
        >>> from plogicnet.grounding.sql.clauses import NumberedAtom
        >>> from plogicnet.rules import Variable
        >>> x, y = Variable("X"), Variable("Y")
        >>> inverse = Clause((NumberedAtom(0, x, y),), NumberedAtom(1, y, x))
        >>> count_clauses(TripleSet.of([(0, 0, 1), (1, 0, 1), (1, 1, 0)], entities=2), [inverse], "distinct")
        (array([2]), array([1]))
    """
    resources = resources or Resources()
    support, hits = np.zeros((2, len(clauses)), dtype=np.int64)
    with (
        _database(resources) as database,
        resources.progress("counting by SQL, rules", len(clauses)) as advance,
    ):
        _fill(database, "facts", _columns(observed))
        for form in forms_of(enumerate(clauses)):
            _fill(database, "clauses", form.columns)
            found = _fetch(database, JoinText(form.terms, counting).counts)
            support[found["clause"]], hits[found["clause"]] = found["support"], found["hits"]
            advance(len(form.numbers))
    return support, hits


def _width(clauses: Sequence[Clause]) -> int:
    return max((len(clause.premises) for clause in clauses), default=1)


@contextmanager
def _database(resources: Resources) -> Iterator["duckdb.DuckDBPyConnection"]:
    try:
        import duckdb
    except ImportError:
        raise InputError(MISSING) from None
    memory_mb = engine_mb(resources.memory_mb)
    with tempfile.TemporaryDirectory(prefix="plogicnet-sql-") as spill:
        given: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{memory_mb}MB",
            "temp_directory": spill,
            "preserve_insertion_order": False,
        }
        given |= {"threads": resources.threads} if resources.threads else {}
        database = duckdb.connect(":memory:", config=given)
        try:
            yield database
        except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"the SQL engine ran out of memory or disk, at {memory_mb:,} MB of memory and {spill}: {reason}"
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


def _run(database: "duckdb.DuckDBPyConnection", statements: Sequence[str]) -> None:
    for statement in statements:
        database.execute(statement)


def _fetch(database: "duckdb.DuckDBPyConnection", query: str) -> dict[str, IntArray]:
    return {name: np.asarray(values, dtype=np.int64) for name, values in database.execute(query).fetchnumpy().items()}


SQL: Engine = SqlEngine()
