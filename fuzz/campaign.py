"""Run each fuzzing target for some minutes on its corpus, and write the counts to docs/results/fuzzing.json."""

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
TARGETS = ("graph_text", "query_text", "rule_syntax", "rule_table", "foreign_rules", "settings_text", "run_files")
MAX_INPUT_BYTES = 2_048


def fuzz_target(target: str, minutes: float) -> dict[str, object]:
    """Run one target and return its counts.

    Inputs that make it fail are saved in its corpus as finding-*. Rename them to fixed-* after the bug is fixed.
    """
    corpus = CORPUS / target
    with tempfile.TemporaryDirectory() as new_inputs:
        command = [
            *(sys.executable, str(ROOT / "fuzz" / "drive.py"), target),
            *(new_inputs, str(corpus), f"-artifact_prefix={corpus}/finding-"),
            *(
                f"-max_total_time={round(60 * minutes)}",
                f"-max_len={MAX_INPUT_BYTES}",
                "-print_final_stats=1",
                "-seed=1",
            ),
        ]
        started = time.perf_counter()
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - started
    executions = re.search(r"number_of_executed_units:\s*(\d+)", process.stderr)
    covered = re.findall(r"cov: (\d+)", process.stderr)
    if executions is None:
        raise SystemExit(process.stderr[-2000:])
    return {
        "executions": int(executions[1]),
        "minutes": round(seconds / 60, 1),
        "covered": int(covered[-1]) if covered else None,
        "findings": len(list(corpus.glob("finding-*"))),
        "fixed": len(list(corpus.glob("fixed-*"))),
    }


def main() -> None:
    """Run the targets; exit with 1 if any has findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="Minutes per target.")
    parser.add_argument("targets", nargs="*", default=list(TARGETS), help="Targets to run. Default: all.")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    results |= {target: fuzz_target(target, options.minutes) for target in options.targets}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=1))
    sys.exit(any(f["findings"] for f in results.values()))


if __name__ == "__main__":
    main()
