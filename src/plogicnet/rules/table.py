"""Rules with their counts and weights, and the TSV file that holds them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from plogicnet.graph import BoolArray, FloatArray, IntArray
from plogicnet.rules.rule import MINED, PATTERNS, Rule
from plogicnet.rules.syntax import parse_rule
from plogicnet.support.errors import InputError
from plogicnet.support.files import write_text

COLUMNS = ("pattern", "rule", "support", "hits", "precision", "weight")
GIVEN = "given"
"""A further column, where a person gave weights: `2.5` to start from, `=2.5` to keep."""
REPORT = ("standard_error", "groundings")
"""Further columns, where training ended with a report."""
NOT_COUNTED = -1


@dataclass(frozen=True)
class RuleTable:
    """Rules in columns: support counts what a rule concludes, hits how much of that is observed.

    Attributes:
        weight: NaN until it is learned; a constraint has none.
        given: the weight that a person gave, to start from or to keep; NaN without one.
        fixed: whether the given weight is kept.
        standard_error: how far the weight may be off; NaN where that is not known, infinite where the triples do not
            tell.
        groundings: how many instances it has; -1 where they were not counted.

    Example:
        >>> table = RuleTable.of([parse_rule("husband(X, Y) => wife(Y, X)")], support=[4], hits=[3])
        >>> table.precision
        array([0.75])
    """

    rules: tuple[Rule, ...]
    support: IntArray
    hits: IntArray
    weight: FloatArray
    given: FloatArray
    fixed: BoolArray
    standard_error: FloatArray
    groundings: IntArray

    @classmethod
    def of(
        cls,
        rules: Sequence[Rule],
        support: Sequence[int],
        hits: Sequence[int],
        weight: Sequence[float] | None = None,
        given: Sequence[float] | None = None,
        fixed: Sequence[bool] | None = None,
        standard_error: Sequence[float] | None = None,
        groundings: Sequence[int] | None = None,
    ) -> "RuleTable":
        """A table from columns of any kind of sequence."""

        def floats(column: Sequence[float] | None) -> FloatArray:
            return np.full(len(rules), np.nan) if column is None else np.array(column, dtype=np.float64)

        return cls(
            tuple(rules),
            np.array(support, dtype=np.int64),
            np.array(hits, dtype=np.int64),
            floats(weight),
            floats(given),
            np.zeros(len(rules), dtype=bool) if fixed is None else np.array(fixed, dtype=bool),
            floats(standard_error),
            np.full(len(rules), NOT_COUNTED) if groundings is None else np.array(groundings, dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.rules)

    @property
    def precision(self) -> FloatArray:
        """Hits / support (Sec. 5.1)."""
        return self.hits / np.maximum(self.support, 1)

    @property
    def sureness(self) -> FloatArray:
        """The lower end of the precision's 95 % interval (Wilson): 3 of 4 is less sure than 75 of 100."""
        n, z2 = np.maximum(self.support, 1), 1.96**2
        p = self.precision
        lower = (p + z2 / (2 * n) - np.sqrt(z2 * (p * (1 - p) / n + z2 / (4 * n**2)))) / (1 + z2 / n)
        return np.minimum(lower, p)  # no higher by rounding

    @property
    def patterns(self) -> list[str]:
        """Each rule's pattern."""
        return [rule.pattern for rule in self.rules]

    @property
    def constraints(self) -> BoolArray:
        """Which rows are constraints, without weight and groundings."""
        return np.array([pattern == "irreflexive" for pattern in self.patterns], dtype=bool)

    def take(self, rows: IntArray | BoolArray) -> "RuleTable":
        """Some of the rows, in the order given."""
        at = np.arange(len(self))[rows]
        return RuleTable(tuple(self.rules[i] for i in at), *(column[at] for column in self._columns))

    def with_weights(self, weights: FloatArray) -> "RuleTable":
        """The same rules with other weights, of which nothing is reported yet."""
        return self.reported(np.full(len(self), np.nan), np.full(len(self), NOT_COUNTED), weights)

    def reported(
        self, standard_error: FloatArray, groundings: IntArray, weights: FloatArray | None = None
    ) -> "RuleTable":
        """The same rules with a report on each."""
        weight = self.weight if weights is None else weights
        return replace(self, weight=weight, standard_error=standard_error, groundings=groundings)

    def joined(self, other: "RuleTable") -> "RuleTable":
        """The rows of both."""
        columns = map(np.concatenate, zip(self._columns, other._columns, strict=True))
        return RuleTable(self.rules + other.rules, *columns)

    @property
    def _columns(self) -> list[Any]:
        return [getattr(self, column.name) for column in fields(self) if column.name != "rules"]

    def by_weight(self) -> "RuleTable":
        """Strongest first; constraints, which have no weight, last."""
        return self.take(np.argsort(-np.nan_to_num(self.weight, nan=-np.inf), kind="stable"))

    def counts(self) -> dict[str, int]:
        """The number of rules of each pattern that occurs, and of each mined one."""
        patterns = self.patterns
        return {p: patterns.count(p) for p in PATTERNS if p in patterns or p in MINED}

    def rows(self) -> list[dict[str, object]]:
        """One dictionary a rule, for JSON; what is not known, or not finite, is None."""
        columns = (
            self.patterns,
            map(str, self.rules),
            self.support.tolist(),
            self.hits.tolist(),
            self.precision.tolist(),
            [w if math.isfinite(w) else None for w in self.weight.tolist()],
            [e if math.isfinite(e) else None for e in self.standard_error.tolist()],
            [None if n == NOT_COUNTED else n for n in self.groundings.tolist()],
        )
        return [dict(zip((*COLUMNS, *REPORT), values, strict=True)) for values in zip(*columns, strict=True)]

    def write(self, path: Path) -> None:
        """Writes the TSV file; it loads back to the same table."""
        columns: tuple[str, ...] = COLUMNS
        rows = self.rows()
        if not np.isnan(self.given).all():
            columns = (*columns, GIVEN)
            for row, given, fixed in zip(rows, self.given.tolist(), self.fixed.tolist(), strict=True):
                row[GIVEN] = None if math.isnan(given) else f"={given}" if fixed else str(given)
        if (self.groundings != NOT_COUNTED).any() or not np.isnan(self.standard_error).all():
            columns = (*columns, *REPORT)
            for row, error in zip(rows, self.standard_error.tolist(), strict=True):
                row["standard_error"] = None if math.isnan(error) else error
        lines = ["\t".join(columns)]
        for row in rows:
            lines.append("\t".join("" if row[c] is None else str(row[c]) for c in columns))
        write_text(path, "\n".join(lines) + "\n")

    @classmethod
    def read(cls, path: Path) -> "RuleTable":
        """Reads the TSV file."""
        try:
            header, *lines = path.read_bytes().decode("utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot be read as a table of rules: {error}") from None
        if not is_table(header):
            raise InputError(f"{path}, line 1: expected the header {' '.join(COLUMNS)}, separated by tabs")
        columns = header.rstrip("\r").split("\t")
        rules, support, hits, weight, given, fixed, errors, groundings = [], [], [], [], [], [], [], []
        for number, line in enumerate(lines, 2):
            cells = line.removesuffix("\r").split("\t")
            if cells == [""]:
                continue
            try:
                if len(cells) != len(columns):
                    raise ValueError(f"{len(cells)} cells where {len(columns)} are meant, separated by tabs")
                row = dict(zip(columns, cells, strict=True))
                rules.append(_rule(row["rule"]))
                support.append(_count(row["support"]))
                hits.append(_count(row["hits"]))
                weight.append(_weight(row["weight"]))
                cell = row.get(GIVEN, "")
                fixed.append(cell.startswith("="))
                given.append(_weight(cell.removeprefix("="), needed=fixed[-1]))
                errors.append(float(row.get("standard_error") or "nan"))
                counted = row.get("groundings")
                groundings.append(_count(counted) if counted else NOT_COUNTED)
            except ValueError as error:
                raise InputError(f"{path}, line {number}: {error}") from None
        return cls.of(rules, support, hits, weight, given, fixed, errors, groundings)


def _rule(text: str) -> Rule:
    """A rule that stands in a cell; an error does not name a line of its own."""
    try:
        return parse_rule(text)
    except InputError as error:
        raise InputError(str(error).removeprefix("rule, line 1, ")) from None


def is_table(text: str) -> bool:
    r"""Whether a text begins with the header of a table of rules.

    Example:
        >>> is_table("husband(X, Y) => wife(Y, X)"), is_table("\t".join(COLUMNS) + "\n")
        (False, True)
    """
    columns = tuple(text.split("\n", 1)[0].rstrip("\r").split("\t"))
    further = columns[len(COLUMNS) :]
    return columns[: len(COLUMNS)] == COLUMNS and further in ((), (GIVEN,), REPORT, (GIVEN, *REPORT), (*REPORT, GIVEN))


def _count(cell: str) -> int:
    """0 where none stands: a rule that a person added is counted when it is used."""
    number = int(cell or 0)
    if not 0 <= number < 2**63:
        raise ValueError(f"{cell} is no count")
    return number


def _weight(cell: str, needed: bool = False) -> float:
    """NaN where none stands and none is needed."""
    if not cell and not needed:
        return math.nan
    number = float(cell)
    if not math.isfinite(number):
        raise ValueError(f"the weight {cell} is not finite, expected a finite number")
    return number
