"""Findings: levels, messages and JSON."""

import json

import pytest

from plogicnet.diagnostics.finding import DiagnosticReport, Finding, Level, Thresholds, share_finding

THRESHOLDS = Thresholds(if_none="Fine.", meaning="Bad.", if_few="Nearly fine.", note=0.01, warning=0.1)


@pytest.mark.parametrize(
    ("count", "total", "level", "message"),
    [
        (0, 0, "ok", "loops: none of the 0 triples. Fine."),
        (0, 100, "ok", "loops: none of the 100 triples. Fine."),
        (1, 2_000, "ok", "loops: 1 of the 2,000 triples. Nearly fine."),
        (1, 101, "ok", "loops: 1 (1.0%) of the 101 triples. Nearly fine."),
        (1, 100, "note", "loops: 1 (1.0%) of the 100 triples. Bad."),
        (9_999, 100_000, "note", "loops: 9,999 (10.0%) of the 100,000 triples. Bad."),
        (10, 100, "warning", "loops: 10 (10.0%) of the 100 triples. Bad."),
    ],
)
def test_level_and_message_depend_on_the_share(count: int, total: int, level: str, message: str) -> None:
    finding = share_finding("loops", count, total, "triples", THRESHOLDS, ["a"])
    assert finding == Finding("loops", finding.level, count, count / max(total, 1), message, ("a",))
    assert finding.level == level


def test_the_level_of_a_report_is_the_highest_of_its_findings() -> None:
    def report(*levels: Level) -> DiagnosticReport:
        findings = tuple(Finding("x", level, 0, None, "", ("a",)) for level in levels)
        return DiagnosticReport("runs/a", "run", findings, {"split": "test"})

    assert [
        report(*levels).level for levels in ((), ("ok", "ok"), ("ok", "note", "ok"), ("note", "warning", "ok"))
    ] == ["ok", "ok", "note", "warning"]
    finding = {"check": "x", "level": "note", "count": 0, "share": None, "message": "", "examples": ["a"]}
    expected = {"run": "runs/a", "split": "test", "level": "note", "findings": [finding]}
    assert json.loads(json.dumps(report("note").to_json())) == expected
