"""The SQL of mining and grounding: text alone, so that any engine that runs it can be used.

Joins, GROUP BY and DISTINCT over tables of whole numbers. `facts` has the columns id, head, relation, tail; for mining
also piece_forward and piece_backward. No name that people give stands in a text. To stay portable: `=` and OR instead
of IN over columns, ON instead of USING, columns with their table's name, no alias that is also a column.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from plogicnet.config.shapes import ChainShape
from plogicnet.grounding.engine import Counting


@dataclass(frozen=True)
class MiningText:
    """Counts every rule of one chain shape with at least one hit, piece by piece.

    A piece of facts begins some paths; all paths between two entities over the same relations are in one piece.
    """

    shape: ChainShape
    counting: Counting

    @property
    def create(self) -> list[str]:
        """Makes the tables of bodies and rules, to which each piece adds."""
        steps = ", ".join(f"{step} BIGINT" for step in self._steps)
        return [
            f"CREATE TABLE bodies ({steps}, support BIGINT)",
            f"CREATE TABLE rules ({steps}, relation BIGINT, hits BIGINT, own BIGINT)",
        ]

    def piece(self, number: int) -> list[str]:
        """Counts one piece."""
        steps, weight, own = self._of("p"), *(("p.paths", "0") if self.counting == "paths" else ("1", self._own))
        # a pair of entities with all its paths; it is lost to a hypothesis where every path has that as a premise
        pairs = f"""CREATE TABLE pairs AS
            SELECT {self._of("s")}, s.origin, s.goal, COUNT(*) AS paths, {", ".join(self._lost)}
            FROM ({self._paths(number)}) s GROUP BY {self._of("s")}, s.origin, s.goal"""  # nosec B608
        bodies = f"INSERT INTO bodies SELECT {steps}, SUM({weight}) FROM pairs p GROUP BY {steps}"  # nosec B608
        rules = f"""INSERT INTO rules SELECT {steps}, f.relation, SUM({weight}), SUM({own})
            FROM pairs p JOIN facts f ON f.head = p.origin AND f.tail = p.goal {self._hypotheses}
            GROUP BY {steps}, f.relation"""  # nosec B608
        return [pairs, bodies, rules, "DROP TABLE pairs"]

    @property
    def candidates(self) -> str:
        """The rules with at least one hit, in order: the relations of the steps, the hypothesis's, support, hits.

        What supports only itself has its hypothesis among the facts, so it is both a lost hit and lost support.
        """
        steps, same = ", ".join(self._steps), " AND ".join(f"b.{step} = r.{step}" for step in self._steps)
        return f"""
            SELECT {self._of("r")}, r.concluded, CAST(b.reached - r.lost AS BIGINT) AS support,
                CAST(r.met - r.lost AS BIGINT) AS hits
            FROM (SELECT {steps}, relation AS concluded, SUM(hits) AS met, SUM(own) AS lost
                    FROM rules GROUP BY {steps}, relation) r
                JOIN (SELECT {steps}, SUM(support) AS reached FROM bodies GROUP BY {steps}) b ON {same}
            WHERE r.met > r.lost
            ORDER BY {self._of("r")}, r.concluded"""  # nosec B608

    @property
    def drop(self) -> list[str]:
        """Removes the tables."""
        return ["DROP TABLE bodies", "DROP TABLE rules"]

    @property
    def _steps(self) -> list[str]:
        return [f"step{i}" for i in range(len(self.shape.steps))]

    def _of(self, table: str) -> str:
        return ", ".join(f"{table}.{step}" for step in self._steps)

    def _paths(self, piece: int) -> str:
        """The paths from an origin to a goal; own0, own1, … mark premises that lead straight there."""
        ends = [("head", "tail") if forward else ("tail", "head") for forward in self.shape.steps]
        last = len(ends) - 1
        origin, goal = f"a0.{ends[0][0]}", f"a{last}.{ends[last][1]}"
        columns = [f"a{i}.relation AS step{i}" for i in range(len(ends))]
        columns += [f"{origin} AS origin", f"{goal} AS goal"]
        for i in range(len(ends)):
            alike = [f"{end} = {to}" for end, to in ((f"a{i}.head", origin), (f"a{i}.tail", goal)) if end != to]
            columns.append(f"CASE WHEN {' AND '.join(alike) or '1 = 1'} THEN 1 ELSE 0 END AS own{i}")
        joins = [f"JOIN facts a{i} ON a{i - 1}.{ends[i - 1][1]} = a{i}.{ends[i][0]}" for i in range(1, len(ends))]
        side = "forward" if self.shape.steps[0] else "backward"
        return f"SELECT {', '.join(columns)} FROM facts a0 {' '.join(joins)} WHERE a0.piece_{side} = {piece:d}"  # nosec B608

    @property
    def _sets(self) -> list[tuple[int, ...]]:
        """The sets of steps that can have the hypothesis's relation, larger ones first."""
        steps = range(len(self.shape.steps))
        return [chosen for size in reversed(steps) for chosen in combinations(steps, size + 1)]

    @property
    def _lost(self) -> list[str]:
        """For each of these sets, whether every path has one of its steps as the hypothesis."""
        return [
            f"MIN(CASE WHEN {' OR '.join(f's.own{i} = 1' for i in chosen)} THEN 1 ELSE 0 END) AS {_name(chosen)}"
            for chosen in self._sets
        ]

    @property
    def _own(self) -> str:
        """Whether a pair is lost to the hypothesis f."""
        cases = (
            f"WHEN {' AND '.join(f'f.relation = p.step{i}' for i in chosen)} THEN p.{_name(chosen)}"
            for chosen in self._sets
        )
        return f"CASE {' '.join(cases)} ELSE 0 END"

    @property
    def _hypotheses(self) -> str:
        """Which hypotheses f the shape has."""
        if self.shape.same is None:
            return ""
        same = " AND ".join(f"f.relation = p.{step}" for step in self._steps)
        return f"WHERE {'' if self.shape.same else 'NOT '}({same})"


def _name(steps: Sequence[int]) -> str:
    return "lost" + "_".join(map(str, steps))


@dataclass(frozen=True)
class JoinText:
    """Grounds all clauses of one form, which stand in the table `clauses`.

    Attributes:
        terms: see `plogicnet.grounding.sql.clauses.Form`.
        counting: under `distinct`, groundings with their hypothesis among their premises are left out.
    """

    terms: tuple[int, ...]
    counting: Counting

    @property
    def conclusions(self) -> str:
        """Every triple that is concluded, once: h, r, t."""
        return f"SELECT DISTINCT {self._concluded} {self._groundings()}"  # nosec B608

    @property
    def counts(self) -> str:
        """For each clause that concludes anything, its support and hits."""
        distinct = "DISTINCT" if self.counting == "distinct" else ""
        return f"""
            SELECT s.clause, COUNT(*) AS support, COUNT(f.id) AS hits
            FROM (SELECT {distinct} c.clause, {self._concluded} {self._groundings()}) s
                LEFT JOIN facts f ON f.relation = s.r AND f.head = s.h AND f.tail = s.t
            GROUP BY s.clause"""  # nosec B608

    def links(self, width: int, triple: tuple[int, int, int] | None = None) -> str:
        """Every grounding, or those that conclude one triple: clause, h, r, t, premise0, premise1, … of that width.

        A premise that occurs twice counts once; -1 fills the rest.
        """
        bound = [] if triple is None else [f"{v} = {n:d}" for v, n in zip(self._hypothesis, triple, strict=True)]
        ids = [f"p{i}.id" for i in range(self._premises)]
        once = [
            f"CASE WHEN {' OR '.join(f'{ids[i]} = {earlier}' for earlier in ids[:i])} THEN -1 ELSE {ids[i]} END"
            if i
            else ids[i]
            for i in range(self._premises)
        ]
        once += ["-1"] * (width - self._premises)
        premises = ", ".join(f"{text} AS premise{i}" for i, text in enumerate(once))
        return f"SELECT c.clause, {self._concluded}, {premises} {self._groundings(*bound)}"  # nosec B608

    @property
    def _premises(self) -> int:
        return len(self.terms) // 2 - 1

    @property
    def _hypothesis(self) -> tuple[str, str, str]:
        """Its head, relation and tail."""
        n = self._premises
        return self._value(2 * n), f"c.relation{n}", self._value(2 * n + 1)

    @property
    def _concluded(self) -> str:
        return ", ".join(f"{value} AS {name}" for value, name in zip(self._hypothesis, "hrt", strict=True))

    def _value(self, place: int) -> str:
        """What stands in a place: the clause's entity, or what the variable's first place has."""
        return f"c.entity{place}" if self.terms[place] < 0 else _place(self.terms[place])

    def _groundings(self, *more: str) -> str:
        """FROM and WHERE of all groundings."""
        tables = [*(f"facts p{i}" for i in range(self._premises)), "clauses c"]
        conditions = [*more, *(f"p{i}.relation = c.relation{i}" for i in range(self._premises))]
        for place in range(2 * self._premises):
            if self._value(place) != _place(place):
                conditions.append(f"{_place(place)} = {self._value(place)}")
        if self.counting == "distinct":
            head, relation, tail = self._hypothesis
            conditions += [
                f"NOT (p{i}.relation = {relation} AND p{i}.head = {head} AND p{i}.tail = {tail})"
                for i in range(self._premises)
            ]
        return f"FROM {', '.join(tables)} WHERE {' AND '.join(conditions)}"


def _place(place: int) -> str:
    return f"p{place // 2}.{'tail' if place % 2 else 'head'}"


def create_links(width: int) -> str:
    """Makes the table of links, to which the links of every form are added."""
    return f"CREATE TABLE links (clause BIGINT, h BIGINT, r BIGINT, t BIGINT, {_premises('{} BIGINT', width)})"


def ordered_links(width: int) -> str:
    """The links whose hypothesis is in the table `variables`, ordered by hypothesis; columns as in `link_schema`."""
    premises = _premises("l.{}", width)
    return f"""
        SELECT l.clause, CAST(v.id AS BIGINT) AS hypothesis, l.h, l.r, l.t, {premises}
        FROM links l JOIN variables v ON v.relation = l.r AND v.head = l.h AND v.tail = l.t
        ORDER BY v.id, l.clause, {premises}"""  # nosec B608


def _premises(form: str, width: int) -> str:
    return ", ".join(form.format(f"premise{i}") for i in range(width))
