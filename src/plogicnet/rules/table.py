"""Rules with their counts and weights, and the TSV file that holds them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from plogicnet.errors import InputError
from plogicnet.files import write_text
from plogicnet.graph import BoolArray, FloatArray, IntArray
from plogicnet.rules.rule import PATTERNS, Rule
from plogicnet.rules.syntax import parse_rule

COLUMNS = ("pattern", "rule", "support", "hits", "precision", "weight")
GIVEN = "given"
"""A further column, where a person gave weights: `2.5` to start from, `=2.5` to keep."""


@dataclass(frozen=True)
class RuleTable:
    """Rules in columns: support counts what a rule concludes, hits how much of that is observed.

    Attributes:
        weight: NaN until it is learned; a constraint has none.
        given: the weight that a person gave, to start from or to keep; NaN without one.
        fixed: whether the given weight is kept.

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

    @classmethod
    def of(
        cls,
        rules: Sequence[Rule],
        support: Sequence[int],
        hits: Sequence[int],
        weight: Sequence[float] | None = None,
        given: Sequence[float] | None = None,
        fixed: Sequence[bool] | None = None,
    ) -> "RuleTable":
        """A table from columns of any kind of sequence."""
        return cls(
            tuple(rules),
            np.array(support, dtype=np.int64),
            np.array(hits, dtype=np.int64),
            np.full(len(rules), np.nan) if weight is None else np.array(weight, dtype=np.float64),
            np.full(len(rules), np.nan) if given is None else np.array(given, dtype=np.float64),
            np.zeros(len(rules), dtype=bool) if fixed is None else np.array(fixed, dtype=bool),
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
        return (p + z2 / (2 * n) - np.sqrt(z2 * (p * (1 - p) / n + z2 / (4 * n**2)))) / (1 + z2 / n)

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
        rules = tuple(self.rules[i] for i in at)
        return RuleTable(rules, self.support[at], self.hits[at], self.weight[at], self.given[at], self.fixed[at])

    def with_weights(self, weights: FloatArray) -> "RuleTable":
        """The same rules with other weights."""
        return replace(self, weight=weights)

    def joined(self, other: "RuleTable") -> "RuleTable":
        """The rows of both."""
        names = ("support", "hits", "weight", "given", "fixed")
        columns = [np.concatenate([getattr(self, c), getattr(other, c)]) for c in names]
        return RuleTable(self.rules + other.rules, *columns)

    def by_weight(self) -> "RuleTable":
        """Strongest first; constraints, which have no weight, last."""
        return self.take(np.argsort(-np.nan_to_num(self.weight, nan=-np.inf), kind="stable"))

    def counts(self) -> dict[str, int]:
        """The number of rules of each pattern that occurs, and of each mined one."""
        patterns = self.patterns
        return {p: patterns.count(p) for p in PATTERNS if p in patterns or PATTERNS.index(p) < 4}

    def rows(self) -> list[dict[str, object]]:
        """One dictionary a rule, for JSON."""
        weights = [None if math.isnan(w) else w for w in self.weight.tolist()]
        columns = (
            self.patterns,
            map(str, self.rules),
            self.support.tolist(),
            self.hits.tolist(),
            self.precision.tolist(),
        )
        return [dict(zip(COLUMNS, values, strict=True)) for values in zip(*columns, weights, strict=True)]

    def write(self, path: Path) -> None:
        """Writes the TSV file; it loads back to the same table."""
        columns: tuple[str, ...] = COLUMNS
        rows = self.rows()
        if not np.isnan(self.given).all():
            columns = (*COLUMNS, GIVEN)
            for row, given, fixed in zip(rows, self.given.tolist(), self.fixed.tolist(), strict=True):
                row[GIVEN] = None if math.isnan(given) else f"={given}" if fixed else str(given)
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
        rules, support, hits, weight, given, fixed = [], [], [], [], [], []
        for number, line in enumerate(lines, 2):
            cells = line.removesuffix("\r").split("\t")
            if cells == [""]:
                continue
            try:
                if len(cells) != len(columns):
                    raise ValueError(f"{len(cells)} cells where {len(columns)} are meant, separated by tabs")
                row = dict(zip(columns, cells, strict=True))
                rules.append(parse_rule(row["rule"]))
                support.append(_count(row["support"]))
                hits.append(_count(row["hits"]))
                weight.append(_weight(row["weight"]))
                cell = row.get(GIVEN, "")
                fixed.append(cell.startswith("="))
                given.append(_weight(cell.removeprefix("="), needed=fixed[-1]))
            except ValueError as error:
                raise InputError(f"{path}, line {number}: {error}") from None
        return cls.of(rules, support, hits, weight, given, fixed)


def is_table(text: str) -> bool:
    r"""Whether a text begins with the header of a table of rules.

    Example:
        >>> is_table("husband(X, Y) => wife(Y, X)"), is_table("\t".join(COLUMNS) + "\n")
        (False, True)
    """
    columns = tuple(text.split("\n", 1)[0].rstrip("\r").split("\t"))
    return columns in (COLUMNS, (*COLUMNS, GIVEN))


def _count(cell: str) -> int:
    number = int(cell)
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
