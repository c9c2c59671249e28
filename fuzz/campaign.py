"""Runs each fuzzing target for some minutes on its kept corpus and writes the figures to docs/results/fuzzing.json."""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
CORPUS, RESULTS = ROOT / "tests" / "corpus", ROOT / "docs" / "results" / "fuzzing.json"
TARGETS = ("graph_text", "asked_text", "rule_syntax", "rule_table", "settings_text", "run_files")
LONGEST_INPUT = 2_048


def campaign(target: str, minutes: float) -> dict[str, object]:
    """One target's figures; what makes it fail is left in its corpus as finding-*, and kept there as fixed-*."""
    kept = CORPUS / target
    with tempfile.TemporaryDirectory() as grown:
        command = [
            *(sys.executable, str(ROOT / "fuzz" / "drive.py"), target),
            *(grown, str(kept), f"-artifact_prefix={kept}/finding-"),
            *(f"-max_total_time={round(60 * minutes)}", f"-max_len={LONGEST_INPUT}", "-print_final_stats=1", "-seed=1"),
        ]
        started = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        took = time.perf_counter() - started
    executions = re.search(r"number_of_executed_units:\s*(\d+)", done.stderr)
    covered = re.findall(r"cov: (\d+)", done.stderr)
    if executions is None:
        raise SystemExit(done.stderr[-2000:])
    return {
        "executions": int(executions[1]),
        "minutes": round(took / 60, 1),
        "covered": int(covered[-1]) if covered else None,
        "findings": len(list(kept.glob("finding-*"))),
        "fixed": len(list(kept.glob("fixed-*"))),
    }


def main() -> None:
    """Every target in turn; exit code 1 where one has found something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="for each target")
    parser.add_argument("targets", nargs="*", default=list(TARGETS), help="all, unless some are named")
    given = parser.parse_args()
    figures = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    figures |= {target: campaign(target, given.minutes) for target in given.targets}
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(figures, indent=1))
    sys.exit(any(f["findings"] for f in figures.values()))


if __name__ == "__main__":
    main()
