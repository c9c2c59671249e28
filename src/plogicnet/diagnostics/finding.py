"""Findings: what a check saw, how bad it is, and what it means; the same for graphs and for runs."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from plogicnet.support.records import Record, json_of

Level = Literal["ok", "note", "warning"]
LEVELS: tuple[Level, ...] = ("ok", "note", "warning")
SOME, MANY, NEVER = 0.01, 0.1, math.inf
"""Common thresholds: shares from which a finding is a note, or a warning."""
EXAMPLES = 5


@dataclass(frozen=True)
class Finding(Record):
    """One check: what was counted, how bad it is, and what it means for the figures.

    Attributes:
        check: the name of the check.
        level: "ok", "note" (worth knowing) or "warning" (the figures do not mean what they seem to).
        count: how many were found: triples, relations, entities, names, lines, or pairs of relations that agree.
        share: which part of all that is; for pairs of relations, of all triples. None where nothing could be measured.
        message: what was seen, and what it means.
        examples: up to five, by name.
    """

    check: str
    level: Level
    count: int
    share: float | None
    message: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checkup:
    """All findings about a graph or a run.

    Attributes:
        name: what the graph or the run is called.
        what: which of the two it is.
        findings: the result of every check.
        about: further members of its JSON form.

    Example:
        >>> checkup = Checkup("tiny", "graph", (Finding("self-loops", "note", 1, 0.5, "self-loops: 1 of the 2"),))
        >>> checkup.level, list(checkup.to_json())
        ('note', ['graph', 'level', 'findings'])
    """

    name: str
    what: Literal["graph", "run"]
    findings: tuple[Finding, ...]
    about: Mapping[str, object] = field(default_factory=dict)

    @property
    def level(self) -> Level:
        """The worst level of any finding."""
        return max((finding.level for finding in self.findings), key=LEVELS.index, default="ok")

    def to_json(self) -> dict[str, Any]:
        """What `plogicnet doctor --json` prints."""
        return {self.what: self.name, **self.about, "level": self.level, "findings": json_of(self.findings)}


@dataclass(frozen=True)
class Scale:
    """What a share means, in words, and from which share on it is a note or a warning.

    Attributes:
        none: the meaning of none at all, which is always ok.
        means: the meaning from a note on.
        few: the meaning of some that are ok.
    """

    none: str
    means: str
    note: float = 0.0
    warning: float = NEVER
    few: str = "too few to matter"


def graded(value: float, note: float, warning: float) -> Level:
    """The level of a value by two thresholds.

    Example:
        >>> graded(0.05, note=0.01, warning=0.1)
        'note'
    """
    return "ok" if value < note else "warning" if value >= warning else "note"


def verdict(
    check: str, level: Level, share: float | None, message: str, count: int | None = None, examples: Iterable[str] = ()
) -> Finding:
    """A finding with a level of its own; where nothing was counted, the count is 1 unless all is well.

    Example:
        >>> verdict("calibration", "note", 0.3, "off by 0.3; use the order alone").message
        'calibration: off by 0.3; use the order alone'
    """
    count = int(level != "ok") if count is None else count
    return Finding(check, level, count, share, f"{check}: {message}", tuple(examples))


def part_of(check: str, count: int, total: int, what: str, scale: Scale, examples: Iterable[str] = ()) -> Finding:
    """A finding about a part of a total; its level and its meaning depend on the share.

    Example:
        >>> scale = Scale(none="all lead elsewhere", means="see whether they are meant")
        >>> part_of("self-loops", 1, 2, "triples lead from an entity to itself", scale).message
        'self-loops: 1 (50.0 %) of the 2 triples lead from an entity to itself; see whether they are meant'
    """
    share = count / max(total, 1)
    level = graded(share, scale.note, scale.warning) if count else "ok"
    part = "none" if not count else f"{count:,}" if share < 0.001 else f"{count:,} ({100 * share:.1f} %)"
    meaning = scale.none if not count else scale.few if level == "ok" else scale.means
    return verdict(check, level, share, f"{part} of the {total:,} {what}; {meaning}", count, examples)
