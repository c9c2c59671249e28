"""The SQL queries of mining and grounding, as text that any database can run.

All tables contain integers. `facts` has the columns id, head, relation, tail, and for mining piece_forward and
piece_backward. `clauses` has the columns of `ClauseTemplate.columns`. `variables` contains the triples of O ∪ H.
Queries never contain user input. Rules for portable SQL: `=` and OR instead of IN over columns, ON instead of USING,
column names with their table, no alias that is also a column.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from plogicnet.config.shapes import ChainShape
from plogicnet.grounding.engine import CountingMode


@dataclass(frozen=True)
class MiningQueries:
    """The queries that count all rules of one chain shape, one piece at a time.

    The facts with which paths begin are split into pieces. All paths that connect the same two entities by the same
    relations begin in the same piece.
    """

    shape: ChainShape
    counting: CountingMode

    @property
    def create_tables(self) -> list[str]:
        """The statements that create the tables of bodies and rules, which get one row per piece.

        For a rule, `self_supporting` is the number of pairs that only self-supporting paths connect.
        """
        steps = ", ".join(f"{step} BIGINT" for step in self._step_columns)
        return [
            f"CREATE TABLE bodies ({steps}, support BIGINT)",
            f"CREATE TABLE rules ({steps}, relation BIGINT, hits BIGINT, self_supporting BIGINT)",
        ]

    def count_piece(self, piece: int) -> list[str]:
        """Return the statements that count one piece, by index."""
        steps, pair_weight, self_supporting = (
            self._steps_of("p"),
            *(("p.paths", "0") if self.counting == "paths" else ("1", self._is_self_supporting)),
        )
        # one row per body and pair of entities
        pairs = f"""CREATE TABLE pairs AS
            SELECT {self._steps_of("s")}, s.origin, s.goal, COUNT(*) AS paths, {", ".join(self._set_columns)}
            FROM ({self._paths_query(piece)}) s GROUP BY {self._steps_of("s")}, s.origin, s.goal"""  # nosec B608
        bodies = f"INSERT INTO bodies SELECT {steps}, SUM({pair_weight}) FROM pairs p GROUP BY {steps}"  # nosec B608
        rules = f"""INSERT INTO rules SELECT {steps}, f.relation, SUM({pair_weight}), SUM({self_supporting})
            FROM pairs p JOIN facts f ON f.head = p.origin AND f.tail = p.goal {self._hypothesis_condition}
            GROUP BY {steps}, f.relation"""  # nosec B608
        return [pairs, bodies, rules, "DROP TABLE pairs"]

    @property
    def candidates(self) -> str:
        """The query of the rules with at least one hit: relations of the steps, of the hypothesis, support, hits.

        A pair that only self-supporting paths connect is observed. So it is subtracted from support and hits.
        """
        steps, same = ", ".join(self._step_columns), " AND ".join(f"b.{step} = r.{step}" for step in self._step_columns)
        return f"""
            SELECT {self._steps_of("r")}, r.concluded, CAST(b.all_pairs - r.excluded AS BIGINT) AS support,
                CAST(r.all_hits - r.excluded AS BIGINT) AS hits
            FROM (SELECT {steps}, relation AS concluded, SUM(hits) AS all_hits, SUM(self_supporting) AS excluded
                    FROM rules GROUP BY {steps}, relation) r
                JOIN (SELECT {steps}, SUM(support) AS all_pairs FROM bodies GROUP BY {steps}) b ON {same}
            WHERE r.all_hits > r.excluded
            ORDER BY {self._steps_of("r")}, r.concluded"""  # nosec B608

    @property
    def drop_tables(self) -> list[str]:
        """The statements that drop the tables."""
        return ["DROP TABLE bodies", "DROP TABLE rules"]

    @property
    def _step_columns(self) -> list[str]:
        return [f"step{i}" for i in range(len(self.shape.forward))]

    def _steps_of(self, table: str) -> str:
        return ", ".join(f"{table}.{step}" for step in self._step_columns)

    def _paths_query(self, piece: int) -> str:
        """Return the query of the paths that begin in a piece: step0, step1, …, origin, goal, direct0, direct1, ….

        direct<i> is 1 if the fact of step i has the origin as its head and the goal as its tail. The fact is then the
        hypothesis, if it also has the relation of the hypothesis.
        """
        ends = [("head", "tail") if forward else ("tail", "head") for forward in self.shape.forward]
        last = len(ends) - 1
        origin, goal = f"a0.{ends[0][0]}", f"a{last}.{ends[last][1]}"
        columns = [f"a{i}.relation AS step{i}" for i in range(len(ends))]
        columns += [f"{origin} AS origin", f"{goal} AS goal"]
        for i in range(len(ends)):
            conditions = [
                f"{end} = {target}" for end, target in ((f"a{i}.head", origin), (f"a{i}.tail", goal)) if end != target
            ]
            columns.append(f"CASE WHEN {' AND '.join(conditions) or '1 = 1'} THEN 1 ELSE 0 END AS direct{i}")
        joins = [f"JOIN facts a{i} ON a{i - 1}.{ends[i - 1][1]} = a{i}.{ends[i][0]}" for i in range(1, len(ends))]
        side = "forward" if self.shape.forward[0] else "backward"
        return f"SELECT {', '.join(columns)} FROM facts a0 {' '.join(joins)} WHERE a0.piece_{side} = {piece:d}"  # nosec B608

    @property
    def _step_sets(self) -> list[tuple[int, ...]]:
        """The nonempty sets of steps, larger sets first. Any set can be the steps with the hypothesis's relation."""
        steps = range(len(self.shape.forward))
        return [chosen for size in reversed(steps) for chosen in combinations(steps, size + 1)]

    @property
    def _set_columns(self) -> list[str]:
        """One column per set of steps: whether in every path, the fact of one of these steps is direct."""
        return [
            f"MIN(CASE WHEN {' OR '.join(f's.direct{i} = 1' for i in chosen)} THEN 1 ELSE 0 END)"
            f" AS {_set_column(chosen)}"
            for chosen in self._step_sets
        ]

    @property
    def _is_self_supporting(self) -> str:
        """The expression that is 1 if only self-supporting paths conclude f, otherwise 0."""
        cases = (
            f"WHEN {' AND '.join(f'f.relation = p.step{i}' for i in chosen)} THEN p.{_set_column(chosen)}"
            for chosen in self._step_sets
        )
        return f"CASE {' '.join(cases)} ELSE 0 END"

    @property
    def _hypothesis_condition(self) -> str:
        """The condition for hypotheses f that match `shape.repeats_hypothesis`."""
        if self.shape.repeats_hypothesis is None:
            return ""
        same = " AND ".join(f"f.relation = p.{step}" for step in self._step_columns)
        return f"WHERE {'' if self.shape.repeats_hypothesis else 'NOT '}({same})"


def _set_column(steps: Sequence[int]) -> str:
    return "always_direct" + "_".join(map(str, steps))


@dataclass(frozen=True)
class GroundingQueries:
    """The queries that ground all clauses of one template, which are in the table `clauses`.

    Attributes:
        terms: see `plogicnet.grounding.sql.clauses.ClauseTemplate`.
        counting: `distinct` leaves out self-supporting groundings.
    """

    terms: tuple[int, ...]
    counting: CountingMode

    @property
    def conclusions(self) -> str:
        """The query of the distinct conclusions: h, r, t."""
        return f"SELECT DISTINCT {self._conclusion} {self._from_and_where()}"  # nosec B608

    @property
    def counts(self) -> str:
        """The query of clause, support and hits, for each clause with at least one conclusion."""
        distinct = "DISTINCT" if self.counting == "distinct" else ""
        return f"""
            SELECT s.clause, COUNT(*) AS support, COUNT(f.id) AS hits
            FROM (SELECT {distinct} c.clause, {self._conclusion} {self._from_and_where()}) s
                LEFT JOIN facts f ON f.relation = s.r AND f.head = s.h AND f.tail = s.t
            GROUP BY s.clause"""  # nosec B608

    def groundings(self, width: int, triple: tuple[int, int, int] | None = None) -> str:
        """Return the query of all groundings: clause, h, r, t, premise0, premise1, ….

        With `triple`, only groundings that conclude this triple are returned. `width` is the number of premise columns.
        Repeated premises and unused columns are -1.
        """
        conditions = [] if triple is None else [f"{v} = {n:d}" for v, n in zip(self._hypothesis, triple, strict=True)]
        ids = [f"p{i}.id" for i in range(self._n_premises)]
        distinct_ids = [
            f"CASE WHEN {' OR '.join(f'{ids[i]} = {earlier}' for earlier in ids[:i])} THEN -1 ELSE {ids[i]} END"
            if i
            else ids[i]
            for i in range(self._n_premises)
        ]
        distinct_ids += ["-1"] * (width - self._n_premises)
        premises = ", ".join(f"{text} AS premise{i}" for i, text in enumerate(distinct_ids))
        return f"SELECT c.clause, {self._conclusion}, {premises} {self._from_and_where(*conditions)}"  # nosec B608

    @property
    def _n_premises(self) -> int:
        return len(self.terms) // 2 - 1

    @property
    def _hypothesis(self) -> tuple[str, str, str]:
        """The expressions for the head, relation and tail of the hypothesis."""
        n = self._n_premises
        return self._term(2 * n), f"c.relation{n}", self._term(2 * n + 1)

    @property
    def _conclusion(self) -> str:
        return ", ".join(f"{value} AS {name}" for value, name in zip(self._hypothesis, "hrt", strict=True))

    def _term(self, position: int) -> str:
        """Return the SQL expression for a position: the entity, or the column of the variable's first position."""
        return f"c.entity{position}" if self.terms[position] < 0 else _premise_column(self.terms[position])

    def _from_and_where(self, *extra_conditions: str) -> str:
        """Return FROM and WHERE of the query of all groundings."""
        tables = [*(f"facts p{i}" for i in range(self._n_premises)), "clauses c"]
        conditions = [*extra_conditions, *(f"p{i}.relation = c.relation{i}" for i in range(self._n_premises))]
        for position in range(2 * self._n_premises):
            if self._term(position) != _premise_column(position):
                conditions.append(f"{_premise_column(position)} = {self._term(position)}")
        if self.counting == "distinct":
            head, relation, tail = self._hypothesis
            conditions += [
                f"NOT (p{i}.relation = {relation} AND p{i}.head = {head} AND p{i}.tail = {tail})"
                for i in range(self._n_premises)
            ]
        return f"FROM {', '.join(tables)} WHERE {' AND '.join(conditions)}"


def _premise_column(position: int) -> str:
    return f"p{position // 2}.{'tail' if position % 2 else 'head'}"


def create_groundings_table(width: int) -> str:
    """Return the statement that creates the table of groundings."""
    return (
        f"CREATE TABLE groundings (clause BIGINT, h BIGINT, r BIGINT, t BIGINT, {_premise_columns('{} BIGINT', width)})"
    )


def sorted_groundings(width: int) -> str:
    """Return the query of the groundings with a hypothesis in O ∪ H, sorted, with the columns of `grounding_schema`."""
    premises = _premise_columns("g.{}", width)
    return f"""
        SELECT g.clause, CAST(v.id AS BIGINT) AS hypothesis, g.h, g.r, g.t, {premises}
        FROM groundings g JOIN variables v ON v.relation = g.r AND v.head = g.h AND v.tail = g.t
        ORDER BY v.id, g.clause, {premises}"""  # nosec B608


def _premise_columns(pattern: str, width: int) -> str:
    return ", ".join(pattern.format(f"premise{i}") for i in range(width))
