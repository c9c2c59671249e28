"""Findings: their levels, their words and their JSON form."""

import json

import pytest

from plogicnet.diagnostics.finding import Checkup, Finding, Level, Scale, part_of

SCALE = Scale(none="fine", means="bad", few="nearly fine", note=0.01, warning=0.1)


@pytest.mark.parametrize(
    ("count", "total", "level", "message"),
    [
        (0, 0, "ok", "loops: none of the 0 triples; fine"),
        (0, 100, "ok", "loops: none of the 100 triples; fine"),
        (1, 2_000, "ok", "loops: 1 of the 2,000 triples; nearly fine"),
        (1, 101, "ok", "loops: 1 (1.0 %) of the 101 triples; nearly fine"),
        (1, 100, "note", "loops: 1 (1.0 %) of the 100 triples; bad"),
        (9_999, 100_000, "note", "loops: 9,999 (10.0 %) of the 100,000 triples; bad"),
        (10, 100, "warning", "loops: 10 (10.0 %) of the 100 triples; bad"),
    ],
)
def test_a_part_of_a_total(count: int, total: int, level: str, message: str) -> None:
    finding = part_of("loops", count, total, "triples", SCALE, ["a"])
    assert finding == Finding("loops", finding.level, count, count / max(total, 1), message, ("a",))
    assert finding.level == level


def test_the_level_of_a_checkup_is_the_worst_and_all_of_it_is_json() -> None:
    def checkup(*levels: Level) -> Checkup:
        findings = tuple(Finding("x", level, 0, None, "", ("a",)) for level in levels)
        return Checkup("runs/a", "run", findings, {"split": "test"})

    assert [
        checkup(*levels).level for levels in ((), ("ok", "ok"), ("ok", "note", "ok"), ("note", "warning", "ok"))
    ] == ["ok", "ok", "note", "warning"]
    found = {"check": "x", "level": "note", "count": 0, "share": None, "message": "", "examples": ["a"]}
    expected = {"run": "runs/a", "split": "test", "level": "note", "findings": [found]}
    assert json.loads(json.dumps(checkup("note").to_json())) == expected
