"""Selection of the rules that people see: by relation, pattern and words, the most important ones first."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from plogicnet.graph import BoolArray, FloatArray, IntArray
from plogicnet.rules.rule import PATTERNS
from plogicnet.rules.table import RuleTable
from plogicnet.support.errors import InputError, did_you_mean, quote_name


def rule_importance(table: RuleTable) -> FloatArray:
    """Return |weight| · √hits: how strongly a rule speaks, and about how many known facts. Without a weight, it is 0.

    By the weight alone, rules about a single fact would come first; by |weight| · hits, vague rules.

    Example:
        >>> from plogicnet.rules.syntax import parse_rule
        >>> rules = [parse_rule("a(X, Y) => b(X, Y)"), parse_rule("c(X, Y) => b(X, Y)")]
        >>> rule_importance(RuleTable.of(rules, [1, 120], [1, 100], [2.0, -1.0]))
        array([ 2., 10.])
    """
    importance: FloatArray = np.abs(np.nan_to_num(table.weight)) * np.sqrt(table.hits)
    return importance


@dataclass(frozen=True)
class RuleIndex:
    """An index to search the rules of a table.

    Example:
        >>> from plogicnet.rules.syntax import parse_rule
        >>> rules = [parse_rule(f"{r}(X, Y) => {c}(Y, X)") for r, c in ("ab", "ba", "aa", "bb")]
        >>> index = RuleIndex(RuleTable.of(rules, [4, 4, 4, 4], [2, 2, 2, 2], [3.0, 2.0, 1.0, 0.5]))
        >>> index.find("A(x"), index.find(relation="b"), index.find(pattern="symmetric")
        (array([0, 2]), array([0, 3]), array([2, 3]))
        >>> index.by_importance(np.arange(4)), index.grouped(np.array([0, 1, 3]))
        (array([0, 1, 2, 3]), array([0, 3, 1]))
    """

    table: RuleTable

    @cached_property
    def _texts(self) -> list[str]:
        return [str(rule).casefold() for rule in self.table.rules]

    @cached_property
    def _patterns(self) -> "np.ndarray[tuple[int, ...], np.dtype[np.str_]]":
        return np.array(self.table.patterns, dtype=str)

    @cached_property
    def _importance(self) -> FloatArray:
        return rule_importance(self.table)

    @cached_property
    def _relations(self) -> tuple[dict[str, int], IntArray]:
        """The number of each relation that a rule concludes, and the number of each rule's relation."""
        numbers: dict[str, int] = {}
        found = [numbers.setdefault(rule.head.relation, len(numbers)) for rule in self.table.rules]
        return numbers, np.array(found, dtype=np.int64)

    @property
    def relations(self) -> tuple[str, ...]:
        """The relations that the rules conclude."""
        return tuple(self._relations[0])

    def find(self, search: str = "", relation: str | None = None, pattern: str | None = None) -> IntArray:
        """Return the rows of the rules with all words of `search`, about a relation, and with a pattern.

        Upper and lower case do not matter in `search`. A rule is about the relation that it concludes.
        """
        selected: BoolArray = np.ones(len(self.table), dtype=bool)
        if relation is not None:
            names, numbers = self._relations
            selected &= numbers == names.get(relation, -1)
        if pattern is not None:
            selected &= self._patterns == pattern
        rows: IntArray = np.flatnonzero(selected)
        words, texts = search.casefold().split(), self._texts if search else []
        return rows[[all(word in texts[i] for word in words) for i in rows.tolist()]] if words and len(rows) else rows

    def by_importance(self, rows: IntArray) -> IntArray:
        """Return rows by importance: the most important rule of each relation, then the second ones, and so on.

        Constraints, which have no weight, come last.
        """
        relation, importance = self._relations[1][rows], self._importance[rows]
        has_weight = ~np.isnan(self.table.weight[rows])
        order = np.lexsort((-importance, ~has_weight, relation))
        first = np.r_[True, np.diff(relation[order]) != 0] if len(rows) else np.zeros(0, dtype=bool)
        place = np.empty(len(rows), dtype=np.int64)  # the place of each rule among those of its relation
        place[order] = np.arange(len(rows)) - np.maximum.accumulate(np.where(first, np.arange(len(rows)), 0))
        result: IntArray = rows[np.lexsort((-importance, place, ~has_weight))]
        return result

    def grouped(self, rows: IntArray) -> IntArray:
        """Return rows with the rules of a relation together, the relation with the most important rule first."""
        relation, importance = self._relations[1][rows], self._importance[rows]
        best = np.zeros(len(self._relations[0]))
        np.maximum.at(best, relation, importance)
        result: IntArray = rows[np.lexsort((-importance, relation, -best[relation]))]
        return result

    def pattern_counts(self, rows: IntArray) -> dict[str, int]:
        """Return the number of rules per pattern that occurs, in the order of `PATTERNS`."""
        counts = dict(zip(*(a.tolist() for a in np.unique(self._patterns[rows], return_counts=True)), strict=True))
        return {pattern: counts[pattern] for pattern in PATTERNS if pattern in counts}

    def check_filters(self, relation: str | None = None, pattern: str | None = None) -> None:
        """Raise InputError if no rule can be about the relation or have the pattern."""
        if relation is not None and relation not in self._relations[0]:
            hint = did_you_mean(relation, self.relations)
            raise InputError(f"no rule concludes the relation {quote_name(relation)}.{hint}")
        if pattern is not None and pattern not in PATTERNS:
            raise InputError(f"unknown pattern {quote_name(pattern)}. Expected one of {', '.join(PATTERNS)}.")
