"""Tables of rules with counts and weights, and their TSV files."""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from plogicnet.graph import BoolArray, FloatArray, IntArray
from plogicnet.rules.rule import MINED_PATTERNS, PATTERNS, Rule
from plogicnet.rules.syntax import parse_rule
from plogicnet.support.errors import InputError, quote_name
from plogicnet.support.files import write_text

COLUMNS = ("pattern", "rule", "support", "hits", "precision", "weight")
GIVEN_COLUMN = "given"
"""The name of an optional column with weights that the user gave: `2.5` is an initial weight, `=2.5` a fixed one."""
REPORT_COLUMNS = ("standard_error", "groundings")
"""The names of the columns that are added at the end of training."""
FILE_COLUMNS = ("file_support", "file_hits")
"""The names of optional columns with the counts that the program that wrote a rule file had found."""
NOT_COUNTED = -1
"""The value of `groundings`, `file_support` and `file_hits` if the number is unknown."""


@dataclass(frozen=True)
class RuleTable:
    """Rules and their statistics, as columns with one entry per rule.

    Attributes:
        support: the number of conclusions.
        hits: the number of conclusions that are observed.
        weight: the learned weight; NaN before training and for constraints.
        given: the initial or fixed weight that the user gave, otherwise NaN.
        fixed: whether the given weight is fixed.
        standard_error: the standard error of the weight; NaN if unknown, infinite if the triples do not determine it.
        groundings: the number of groundings, -1 if unknown.
        file_support: the support according to the file of another program, -1 if unknown.
        file_hits: the hits according to the file of another program, -1 if unknown.

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
    file_support: IntArray
    file_hits: IntArray

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
        file_counts: Sequence[tuple[int, int] | None] | None = None,
    ) -> "RuleTable":
        """Create a table from any sequences."""

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
            *file_columns(file_counts or [None] * len(rules)),
        )

    def __len__(self) -> int:
        return len(self.rules)

    @property
    def file_counts(self) -> list[tuple[int, int] | None]:
        """The support and hits according to the file of another program, or None."""
        columns = zip(self.file_support.tolist(), self.file_hits.tolist(), strict=True)
        return [None if NOT_COUNTED in counts else counts for counts in columns]

    @property
    def precision(self) -> FloatArray:
        """Hits / support (Sec. 5.1 of the paper)."""
        return self.hits / np.maximum(self.support, 1)

    @property
    def precision_lower_bound(self) -> FloatArray:
        """The lower end of the Wilson 95% interval of the precision. It is lower for 3 of 4 than for 75 of 100."""
        n, z2 = np.maximum(self.support, 1), 1.96**2
        p = self.precision
        lower = (p + z2 / (2 * n) - np.sqrt(z2 * (p * (1 - p) / n + z2 / (4 * n**2)))) / (1 + z2 / n)
        return np.minimum(lower, p)  # because of rounding, the bound can exceed the precision

    @property
    def patterns(self) -> list[str]:
        """Each rule's pattern."""
        return [rule.pattern for rule in self.rules]

    @property
    def constraints(self) -> BoolArray:
        """A mask of the rows that are constraints."""
        return np.array([pattern == "irreflexive" for pattern in self.patterns], dtype=bool)

    @property
    def formulas(self) -> BoolArray:
        """A mask of the rows that are formulas."""
        return np.array([rule.is_formula for rule in self.rules], dtype=bool)

    @property
    def negative(self) -> BoolArray:
        """A mask of the rows that are negative evidence."""
        return np.array([rule.is_negative for rule in self.rules], dtype=bool)

    def positive_first(self) -> "RuleTable":
        """Return the rules with negative evidence after all others, otherwise in the same order.

        Example:
            >>> rules = [parse_rule("son(X, Y) => not daughter(X, Y)"), parse_rule("son(X, Y) => child(X, Y)")]
            >>> [str(rule.head) for rule in RuleTable.of(rules, [4, 4], [4, 4]).positive_first().rules]
            ['child(X, Y)', 'daughter(X, Y)']
        """
        order = np.argsort(self.negative, kind="stable")
        return self if np.array_equal(order, np.arange(len(self))) else self.take(order)

    @cached_property
    def row_of(self) -> Mapping[Rule, int]:
        """The row of each rule."""
        return {rule: row for row, rule in enumerate(self.rules)}

    def take(self, rows: IntArray | BoolArray) -> "RuleTable":
        """Return the selected rows, in the order of `rows`."""
        indices = np.arange(len(self))[rows]
        return RuleTable(tuple(self.rules[i] for i in indices), *(column[indices] for column in self._columns))

    def with_weights(self, weights: FloatArray) -> "RuleTable":
        """Return a copy with new weights and without standard errors and numbers of groundings."""
        return self.with_report(np.full(len(self), np.nan), np.full(len(self), NOT_COUNTED), weights)

    def with_report(
        self, standard_error: FloatArray, groundings: IntArray, weights: FloatArray | None = None
    ) -> "RuleTable":
        """Return a copy with standard errors, numbers of groundings and, if given, new weights."""
        weight = self.weight if weights is None else weights
        return replace(self, weight=weight, standard_error=standard_error, groundings=groundings)

    def concat(self, other: "RuleTable") -> "RuleTable":
        """Return the rows of both tables."""
        columns = map(np.concatenate, zip(self._columns, other._columns, strict=True))
        return RuleTable(self.rules + other.rules, *columns)

    @property
    def _columns(self) -> list[Any]:
        return [getattr(self, column.name) for column in fields(self) if column.name != "rules"]

    def by_weight(self) -> "RuleTable":
        """Return the rules sorted by descending weight. Constraints, which have no weight, come last."""
        return self.take(np.argsort(-np.nan_to_num(self.weight, nan=-np.inf), kind="stable"))

    def counts(self) -> dict[str, int]:
        """Return the number of rules per pattern, for the mined patterns and all others that occur."""
        counts = Counter(self.patterns)
        return {p: counts[p] for p in PATTERNS if p in counts or p in MINED_PATTERNS}

    def rows(self) -> list[dict[str, object]]:
        """Return one dictionary per rule, for JSON. Unknown and infinite values are None."""
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
        return [dict(zip((*COLUMNS, *REPORT_COLUMNS), values, strict=True)) for values in zip(*columns, strict=True)]

    def write(self, path: Path) -> None:
        """Write a TSV file. `read` returns an equal table."""
        columns: tuple[str, ...] = COLUMNS
        rows = self.rows()
        if not np.isnan(self.given).all():
            columns = (*columns, GIVEN_COLUMN)
            for row, given, fixed in zip(rows, self.given.tolist(), self.fixed.tolist(), strict=True):
                row[GIVEN_COLUMN] = None if math.isnan(given) else f"={given}" if fixed else str(given)
        if (self.groundings != NOT_COUNTED).any() or not np.isnan(self.standard_error).all():
            columns = (*columns, *REPORT_COLUMNS)
            for row, error in zip(rows, self.standard_error.tolist(), strict=True):
                row["standard_error"] = None if math.isnan(error) else error
        if (self.file_support != NOT_COUNTED).any():
            columns = (*columns, *FILE_COLUMNS)
            for row, counts in zip(rows, self.file_counts, strict=True):
                row |= dict(zip(FILE_COLUMNS, counts or (None, None), strict=True))
        lines = ["\t".join(columns)]
        for row in rows:
            lines.append("\t".join("" if row[c] is None else str(row[c]) for c in columns))
        write_text(path, "\n".join(lines) + "\n")

    @classmethod
    def read(cls, path: Path) -> "RuleTable":
        """Read a TSV file that `write` or a user has written."""
        try:
            header, *lines = path.read_bytes().decode("utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot read the rule table: {error}") from None
        if not is_table(header):
            raise InputError(f"{path}, line 1: expected the header {' '.join(COLUMNS)}, separated by tabs")
        columns = header.rstrip("\r").split("\t")
        rules, support, hits, weight, given, fixed, errors, groundings = [], [], [], [], [], [], [], []
        file_counts: list[tuple[int, int] | None] = []
        for number, line in enumerate(lines, 2):
            cells = line.removesuffix("\r").split("\t")
            if cells == [""]:
                continue
            if len(cells) != len(columns):
                expected = f"expected {len(columns)} columns separated by tabs, found {len(cells)}"
                raise InputError(f"{path}, line {number}: {expected}")
            row = dict(zip(columns, cells, strict=True))
            try:
                rules.append(_parse_rule_cell(row["rule"]))
                support.append(_parse_count(row, "support"))
                hits.append(_parse_count(row, "hits"))
                weight.append(_parse_weight(row, "weight"))
                fixed.append(row.get(GIVEN_COLUMN, "").startswith("="))
                given.append(_parse_weight(row, GIVEN_COLUMN))
                errors.append(_parse_number(row.get("standard_error") or "nan", "standard_error"))
                groundings.append(_parse_count(row, "groundings") if row.get("groundings") else NOT_COUNTED)
                is_counted = all(row.get(column) for column in FILE_COLUMNS)
                file_counts.append(
                    (_parse_count(row, "file_support"), _parse_count(row, "file_hits")) if is_counted else None
                )
            except _CellError as error:
                raise InputError(f"{path}, line {number}, {error}") from None
        return cls.of(rules, support, hits, weight, given, fixed, errors, groundings, file_counts)


class _CellError(Exception):
    """An invalid cell. The message begins with "column NAME". `read` adds the file and the line."""


def _parse_rule_cell(text: str) -> Rule:
    try:
        return parse_rule(text)
    except InputError as error:
        # within the cell, positions are called characters, because columns are those of the table
        raise _CellError(f"column rule, character {str(error).removeprefix('rule, line 1, column ')}") from None


def is_table(text: str) -> bool:
    r"""Return whether a text begins with the header of a rule table.

    Example:
        >>> is_table("husband(X, Y) => wife(Y, X)"), is_table("\t".join(COLUMNS) + "\n")
        (False, True)
    """
    columns = tuple(text.split("\n", 1)[0].rstrip("\r").split("\t"))
    extra = columns[len(COLUMNS) :]
    groups = [group for group in ((GIVEN_COLUMN,), REPORT_COLUMNS, FILE_COLUMNS) if group[0] in extra]
    return columns[: len(COLUMNS)] == COLUMNS and any(
        extra == tuple(itertools.chain(*order)) for order in itertools.permutations(groups)
    )


def file_columns(file_counts: Sequence[tuple[int, int] | None]) -> tuple[IntArray, IntArray]:
    """Return the columns `file_support` and `file_hits`.

    Example:
        >>> file_columns([(4, 3), None])
        (array([ 4, -1]), array([ 3, -1]))
    """
    missing = (NOT_COUNTED, NOT_COUNTED)
    columns = np.array([counts or missing for counts in file_counts], dtype=np.int64).reshape(-1, 2)
    return columns[:, 0], columns[:, 1]


def _parse_count(row: Mapping[str, str], column: str) -> int:
    """Parse a count. An empty cell is 0. It is allowed, because rules that a user adds are counted later."""
    try:
        count = int(row[column] or 0)
    except ValueError:
        count = -1
    if not 0 <= count < 2**63:
        raise _CellError(
            f"column {column}: expected an integer between 0 and 2^63 - 1, found {quote_name(row[column])}"
        )
    return count


def _parse_weight(row: Mapping[str, str], column: str) -> float:
    """Parse a weight. An empty cell is NaN. Only given weights can begin with "="."""
    cell = row.get(column, "")
    if not cell:
        return math.nan
    weight = _parse_number(cell.removeprefix("=") if column == GIVEN_COLUMN else cell, column)
    if not math.isfinite(weight):
        raise _CellError(f"column {column}: the weight must be finite, got {quote_name(cell)}")
    return weight


def _parse_number(text: str, column: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _CellError(f"column {column}: expected a number, found {quote_name(text)}") from None
