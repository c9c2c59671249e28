"""Findings: the results of the checks of graphs and runs."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from plogicnet.support.records import Record, to_jsonable

Level = Literal["ok", "note", "warning"]
LEVELS: tuple[Level, ...] = ("ok", "note", "warning")
ONE_PERCENT, TEN_PERCENT, NEVER = 0.01, 0.1, math.inf
"""Common thresholds of shares for notes and warnings."""
MAX_EXAMPLES = 5
"""Maximum number of examples in a finding."""


@dataclass(frozen=True)
class Finding(Record):
    """The result of one check.

    Attributes:
        check: name of the check.
        level: "ok", "note" (good to know) or "warning" (metrics or predictions are misleading).
        count: how many items were found. Depending on the check, these are triples, relations, entities, names, lines
            or pairs of relations.
        share: share of the items in all items, or another number that the message explains; None if unknown. For pairs
            of relations, the share of the triples that have one of these relations.
        message: what was found, what it means and what to do.
        examples: up to five examples, as text.
    """

    check: str
    level: Level
    count: int
    share: float | None
    message: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class DiagnosticReport:
    """All findings about a graph or a run.

    Attributes:
        name: name of the graph or run.
        kind: what was checked: "graph" or "run".
        findings: one finding per check.
        extra: additional fields of the JSON form.

    Example:
        >>> report = DiagnosticReport("tiny", "graph", (Finding("self-loops", "note", 1, 0.5, "1 of the 2 triples"),))
        >>> report.level, report.summary, list(report.to_json())
        ('note', '0 of 1 checks passed', ['graph', 'level', 'findings'])
    """

    name: str
    kind: Literal["graph", "run"]
    findings: tuple[Finding, ...]
    extra: Mapping[str, object] = field(default_factory=dict)

    @property
    def level(self) -> Level:
        """The highest level of all findings."""
        return max((finding.level for finding in self.findings), key=LEVELS.index, default="ok")

    @property
    def summary(self) -> str:
        """The number of checks that passed, as text."""
        passed = sum(finding.level == "ok" for finding in self.findings)
        return f"{passed} of {len(self.findings)} checks passed"

    def to_json(self) -> dict[str, Any]:
        """Return the object that `plogicnet doctor --json` prints."""
        return {self.kind: self.name, **self.extra, "level": self.level, "findings": to_jsonable(self.findings)}


@dataclass(frozen=True)
class Thresholds:
    """The shares at which a finding becomes a note or a warning, and sentences that explain a share.

    Attributes:
        if_none: explanation of a count of zero, which is always ok.
        meaning: explanation of a note or warning, and what to do.
        note, warning: minimum shares of a note and of a warning.
        if_few: explanation of a share below `note`.
    """

    if_none: str
    meaning: str
    note: float = 0.0
    warning: float = NEVER
    if_few: str = "These are too few to matter."


def grade(value: float, note: float, warning: float) -> Level:
    """Return the level of a value, given the minimum values of a note and of a warning.

    Example:
        >>> grade(0.05, note=0.01, warning=0.1)
        'note'
    """
    return "ok" if value < note else "warning" if value >= warning else "note"


def make_finding(
    check: str, level: Level, share: float | None, message: str, count: int | None = None, examples: Iterable[str] = ()
) -> Finding:
    """Return a finding; the default count is 0 for level "ok" and 1 otherwise.

    Example:
        >>> make_finding("calibration", "note", 0.3, "probabilities are off by 0.3. Use them only for sorting.").message
        'calibration: probabilities are off by 0.3. Use them only for sorting.'
    """
    count = int(level != "ok") if count is None else count
    return Finding(check, level, count, share, f"{check}: {message}", tuple(examples))


def share_finding(
    check: str, count: int, total: int, description: str, thresholds: Thresholds, examples: Iterable[str] = ()
) -> Finding:
    """Return a finding about `count` of `total` items. The level and the explanation depend on the share.

    Example:
        >>> thresholds = Thresholds(if_none="All are different.", meaning="Check whether they are correct.")
        >>> share_finding("self-loops", 1, 2, "triples connect an entity with itself", thresholds).message
        'self-loops: 1 (50.0%) of the 2 triples connect an entity with itself. Check whether they are correct.'
    """
    share = count / max(total, 1)
    level = grade(share, thresholds.note, thresholds.warning) if count else "ok"
    part = "none" if not count else f"{count:,}" if share < 0.001 else f"{count:,} ({100 * share:.1f}%)"
    meaning = thresholds.if_none if not count else thresholds.if_few if level == "ok" else thresholds.meaning
    return make_finding(check, level, share, f"{part} of the {total:,} {description}. {meaning}", count, examples)
